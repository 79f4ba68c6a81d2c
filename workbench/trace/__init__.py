"""Recording a run, and a run at rest: recorder, segment files, sealed folders with their manifest, the store."""
