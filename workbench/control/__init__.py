"""Decision rules and the protocol: pure functions that replay, testbed and explorer call alike."""
