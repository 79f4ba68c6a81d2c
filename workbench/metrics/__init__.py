"""What SQL cannot say about a trace: task graph, critical path, re-timing, drag, participation.

Import the modules by name. They load numba and polars, so the command line imports them only when it needs them.
"""
