"""Lower bound of what is left: the longest chain of recorded work, without any wait."""

from __future__ import annotations

import numpy as np
import polars as pl

from workbench.metrics.max_plus import longest_remaining
from workbench.metrics.tables import named
from workbench.metrics.task_graph import TERMINALS, TaskGraph


def lower_bound(graph: TaskGraph, terminal: str = "job") -> pl.DataFrame:
    """Longest remaining chain of every activity that leads to the terminal.

    The chain follows data and state within the request and its companions, with the recorded durations and no wait,
    lag, credit or batch: no schedule that keeps these durations can be faster, so an oracle may use it as a bound.

    Returns
    -------
    polars.DataFrame
        One row per activity with a way to its own request's terminal, in order of time: ``request, span, start_ns``,
        ``remaining_ns`` (from the start of the activity, its own duration included) and ``observed_ns`` (terminal minus
        start). ``remaining_ns <= observed_ns`` always.
    """
    a, d, r = graph.activities, graph.dependencies, graph.requests
    chosen = graph.terminals(terminal)
    ends = chosen[chosen >= 0]
    duration = graph.durations()
    remaining = np.full(len(a), -1, dtype=np.int64)
    remaining[ends] = duration[ends]
    longest_remaining(d.ptr, d.source, d.kind, r.family[a.request], duration, remaining)
    at = np.flatnonzero((remaining >= 0) & (chosen[a.request] >= 0))
    return pl.DataFrame(
        {
            "request": r.request[a.request[at]],
            "terminal": named(np.full(len(at), TERMINALS.index(terminal)), TERMINALS),
            "span": a.span[at],
            "start_ns": a.start_ns[at],
            "remaining_ns": remaining[at],
            "observed_ns": a.end_ns[chosen[a.request[at]]] - a.start_ns[at],
        }
    )
