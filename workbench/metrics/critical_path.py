"""Critical path of every request: its waits and work between arrival and terminal, without gap or overlap.

Backward walk over last-arriving causes (Yang & Miller 1988; Fields et al. 2001; Google's critical path tracing 2022),
on tasks of the size of a chunk: stage-level spans overlap in streaming graphs and give a wrong path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from workbench.errors import UsageError
from workbench.metrics.dependencies import DATA
from workbench.metrics.tables import NONE, Ints, named
from workbench.metrics.task_graph import TERMINALS, TaskGraph
from workbench.metrics.walk import Segments, walk
from workbench.schema.enums import CAUSE, OUTCOME_STATUS, SPAN_KIND

View = Literal["request", "system"]


@dataclass(frozen=True, slots=True)
class CriticalPaths:
    """Paths of all requests of a run to one or both terminals.

    Attributes
    ----------
    view : str
        ``request``: the path stays in the request; a wait is a segment and names its blocker. ``system``: the path
        steps into whatever ended the wait, other requests included, and is cut at the request's arrival. Both add up
        to the latency; never mix them in one table.
    segments : polars.DataFrame
        One row per segment, sorted by (terminal, request, position): ``request`` (Int64), ``terminal`` (Enum),
        ``position`` (Int32, 0 is the earliest), ``stage`` (Enum; NULL for a hand-off), ``edge`` (Enum; NULL for
        everything else), ``kind`` and ``cause`` (Enums of the contract), ``epoch`` (Int16), ``start_ns``, ``end_ns``,
        ``span`` (Int64: the span, chunk or wait row; for ``host`` and ``unattributed`` the activity that came late),
        ``blocker`` (Int64: the other request whose work ended a wait; NULL if it was this one, or none). Segments of
        length 0 are left out.
    requests : polars.DataFrame
        One row per request and terminal, none left out: ``request``, ``terminal``, ``status`` (Enum; NULL without
        outcome), ``scheduled_ns``, ``terminal_ns``, ``latency_ns``, ``segments``, ``ambiguous_steps``, ``missing``
        (NULL where there is a path; else ``excluded``, ``no-output``, ``unfinished`` or the request's status).
    """

    view: View
    segments: pl.DataFrame
    requests: pl.DataFrame

    def untiled(self) -> pl.DataFrame:
        """Rows of `requests` whose segments do not tile [scheduled, terminal] exactly: empty, or there is a defect."""
        keys = ("terminal", "request")
        last = pl.col("end_ns").shift(1).over(keys)
        sums = (
            self.segments.with_columns(step=(pl.col("start_ns") == last).fill_null(True))
            .group_by(keys)
            .agg(
                first_ns=pl.col("start_ns").first(),
                last_ns=pl.col("end_ns").last(),
                sound=(pl.col("step") & (pl.col("end_ns") > pl.col("start_ns"))).all(),
            )
        )
        paths = self.requests.filter(pl.col("terminal_ns").is_not_null()).join(sums, on=keys, how="left")
        tiled = (
            pl.col("sound")
            & (pl.col("first_ns") == pl.col("scheduled_ns"))
            & (pl.col("last_ns") == pl.col("terminal_ns"))
        )
        empty = pl.col("sound").is_null() & (pl.col("latency_ns") == 0)
        return paths.filter(~(tiled.fill_null(False) | empty)).sort(keys)


def critical_paths(
    graph: TaskGraph,
    terminals: Sequence[str] = TERMINALS,
    *,
    view: View = "request",
    clock_error_ns: int = 0,
) -> CriticalPaths:
    """Walk back from each terminal of each request to its scheduled arrival.

    At every activity the walk emits the activity, then what lay between its latest cause and its start, and continues
    at that cause: the latest data or state it needed (in the system view the latest dependency of any kind). Ties:
    data before state before credit before resource before batch, then the lowest id. Between cause and start stand the
    recorded waits, if the cause they name ended them; ``host`` from the last known cause to the start (the dispatch
    lag; ``unattributed`` if another launch ran on the replica meanwhile); and ``unattributed`` for the rest. The lag
    of a hand-off belongs to the producing stage.

    Parameters
    ----------
    graph : TaskGraph
        Graph of one run.
    terminals : sequence of str
        ``first`` (first consumable output), ``job`` (last chunk of the last client stream), or both.
    view : str
        ``request`` or ``system``; see `CriticalPaths`.
    clock_error_ns : int
        Two candidate causes closer than this make a step ambiguous; such steps are counted, the tie order decides.
        0 where all processes share one clock.

    Raises
    ------
    UsageError
        Unknown terminal or view, negative clock error.

    References
    ----------
    Yang & Miller, *Critical path analysis for the execution of parallel and distributed programs* (1988).
    Fields, Rubin & Bodik, *Focusing processor policies via critical-path prediction* (2001).
    """
    if view not in ("request", "system"):
        raise UsageError("request or system", repr(view), where="view")
    if clock_error_ns < 0:
        raise UsageError("an error of at least 0 ns", str(clock_error_ns), where="clock_error_ns")
    segments, requests = [], []
    for terminal in terminals:
        chosen = graph.terminals(terminal)
        at = np.flatnonzero(chosen >= 0)
        found = walk(
            graph,
            chosen[at],
            graph.requests.scheduled_ns[at],
            system=view == "system",
            clock_error_ns=clock_error_ns,
        )
        segments.append(_segment_rows(graph, terminal, at, found))
        requests.append(_request_rows(graph, terminal, chosen, at, found))
    return CriticalPaths(view, pl.concat(segments), pl.concat(requests))


def join_waits(graph: TaskGraph) -> pl.DataFrame:
    """How long each early branch of a join lay there before the last one arrived: slack of that branch, not path time.

    Returns
    -------
    polars.DataFrame
        One row per branch of every service that needed chunks of two or more edges: ``request``, ``stage``, ``edge``,
        ``span`` (the service), ``arrived_ns`` (its last chunk), ``join_wait_ns`` (last arrival of all branches minus
        this one; 0 for the last).
    """
    a, d = graph.activities, graph.dependencies
    target = d.target()
    source = np.maximum(d.source, 0)
    fed = (d.kind == DATA) & (d.source >= 0) & (a.edge[source] >= 0) & (a.edge[target] < 0)
    target, source = target[fed], source[fed]
    rows = pl.DataFrame({"target": target, "edge": a.edge[source], "arrived_ns": a.end_ns[source]})
    branches = rows.group_by("target", "edge").agg(pl.col("arrived_ns").max())
    last = pl.col("arrived_ns").max().over("target")
    joins = (
        branches.with_columns(join_wait_ns=last - pl.col("arrived_ns"), branches=pl.len().over("target"))
        .filter(pl.col("branches") > 1)
        .sort("target", "edge")
    )
    at = joins["target"].to_numpy()
    return pl.DataFrame(
        {
            "request": graph.requests.request[a.request[at]],
            "stage": named(a.stage[at], graph.places.stages),
            "edge": named(joins["edge"].to_numpy(), graph.places.edges),
            "span": a.span[at],
            "arrived_ns": joins["arrived_ns"],
            "join_wait_ns": joins["join_wait_ns"],
        }
    )


def _segment_rows(graph: TaskGraph, terminal: str, at: Ints, found: Segments) -> pl.DataFrame:
    a = graph.activities
    count = np.diff(found.ptr)
    hand_off = np.isin(found.kind, [SPAN_KIND.index("transfer"), SPAN_KIND.index("deliver")])
    other = np.where(found.blocker >= 0, graph.requests.request[a.request[found.blocker]], NONE)
    return pl.DataFrame(
        {
            "request": np.repeat(graph.requests.request[at], count),
            "terminal": named(np.full(len(found.node), TERMINALS.index(terminal)), TERMINALS),
            "position": (np.arange(len(found.node)) - np.repeat(found.ptr[:-1], count)).astype(np.int32),
            "stage": named(np.where(hand_off, NONE, a.stage[found.node]), graph.places.stages),
            "edge": named(np.where(hand_off, a.edge[found.node], NONE), graph.places.edges),
            "kind": named(found.kind, SPAN_KIND),
            "cause": named(found.cause, CAUSE),
            "epoch": a.epoch[found.node].astype(np.int16),
            "start_ns": found.start_ns,
            "end_ns": found.end_ns,
            "span": found.span,
            "blocker": pl.Series(other).replace(NONE, None),
        }
    )


def _request_rows(graph: TaskGraph, terminal: str, chosen: Ints, at: Ints, found: Segments) -> pl.DataFrame:
    r = graph.requests
    end = np.zeros(len(chosen), dtype=np.int64)
    end[at] = graph.activities.end_ns[chosen[at]]
    count = np.zeros((2, len(chosen)), dtype=np.int64)
    count[0, at], count[1, at] = np.diff(found.ptr), found.ambiguous
    there = pl.col("there")
    status = pl.col("status").cast(pl.String)
    reason = (
        pl.when(there)
        .then(None)
        .when(pl.col("excluded"))
        .then(pl.lit("excluded"))
        .when(status.is_not_null() & (status != "ok"))
        .then(status)
        .otherwise(pl.lit("no-output" if terminal == "first" else "unfinished"))
    )
    rows = pl.DataFrame(
        {
            "request": r.request,
            "terminal": named(np.full(len(chosen), TERMINALS.index(terminal)), TERMINALS),
            "status": named(r.status, OUTCOME_STATUS),
            "scheduled_ns": r.scheduled_ns,
            "terminal_ns": end,
            "latency_ns": end - r.scheduled_ns,
            "segments": count[0],
            "ambiguous_steps": count[1],
            "there": chosen >= 0,
            "excluded": graph.excluded,
        }
    )
    unknown = [
        pl.when(there).then(pl.col(name)).alias(name)
        for name in ("terminal_ns", "latency_ns", "segments", "ambiguous_steps")
    ]
    return rows.with_columns(*unknown, missing=reason).drop("there", "excluded")
