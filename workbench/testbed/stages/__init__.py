"""The stages of the speech graph as workers: how each chooses a batch, what it runs, what it hands on.

All keep today's stage-local order: first come, first served, prefill before decode, batches of whatever is ready.
"""
