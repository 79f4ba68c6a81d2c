"""What each piece of work costs a terminal: drag if it took no time, slack until it begins to matter.

Being on the critical path does not mean being worth the effort: a wait for a busy engine can hide a stage altogether.
Publish drag beside participation.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from workbench.errors import UsageError
from workbench.metrics.max_plus import FAR, Groups, end_without_each, latest_starts, longest
from workbench.metrics.retiming import Others, retime, scaled
from workbench.metrics.tables import NONE, Bools, Ints, named
from workbench.metrics.task_graph import TERMINALS, TaskGraph
from workbench.schema.enums import SPAN_KIND


def activity_drag(graph: TaskGraph, request: int, terminal: str = "job", *, others: Others = "frozen") -> pl.DataFrame:
    """Drag and slack of every activity of one request.

    Parameters
    ----------
    request : int
        Request id; it must have a path to `terminal`.
    terminal : str
        ``first`` or ``job``.
    others : str
        ``frozen`` or ``relaxed``, as in `retiming.retime`.

    Returns
    -------
    polars.DataFrame
        One row per activity, in order of time: ``span, stage, edge, kind, chunk, start_ns, end_ns, duration_ns``,
        ``drag_ns`` (how much earlier the terminal would be if the activity, with its whole launch, took no time; at
        least 0 and at most the duration) and ``slack_ns`` (how much later it may end before the terminal moves; NULL
        if the terminal does not depend on it). Drag is 0 wherever slack is not, except that of two client streams the
        other one may become the ``first`` output.

    Raises
    ------
    UsageError
        Unknown request or terminal, or no such terminal for this request.
    """
    a, d = graph.activities, graph.dependencies
    number = graph.request_number(request)
    end = int(graph.terminals(terminal)[number])
    if end < 0:
        raise UsageError(
            f"a request that reached its {terminal} terminal", f"request {request}, which did not", where="request",
            fix="`critical_paths(graph).requests` says why in the column `missing`.",
        )  # fmt: skip
    candidates = graph.terminal_candidates(terminal)
    candidates = candidates[a.request[candidates] == number]
    groups = Groups.of(graph, system=others == "relaxed")
    launches = groups.launches if groups.everyone else groups.one(int(graph.requests.family[number])).launches
    launches = launches[launches <= a.launch[candidates].max()]

    duration = graph.durations()
    length = longest(graph, duration)
    member = np.zeros(len(graph.lag_ns), dtype=np.bool_)
    member[launches] = True
    slack = _slack(graph, launches, member, np.array([end]) if terminal == "first" else candidates, int(a.end_ns[end]))
    near = _slack(graph, launches, member, candidates, int(a.end_ns[end])) if len(candidates) > 1 else slack
    own = np.flatnonzero(a.request == number)
    mine = np.zeros(len(member), dtype=np.bool_)
    mine[a.launch[own]] = True
    decisive = near < FAR if terminal == "first" and len(candidates) > 1 else slack == 0
    without = np.full(len(launches), a.end_ns[end])
    end_without_each(
        launches, (mine & decisive)[launches], candidates, terminal == "job",
        a.launch_ptr, a.launch, a.start_ns, a.end_ns, graph.requests.scheduled_ns[a.request], graph.lag_ns,
        d.ptr, d.source, d.kind, d.at_start, d.offset_ns, duration, length, without,
    )  # fmt: skip
    drag = np.zeros(len(member), dtype=np.int64)
    drag[launches] = a.end_ns[end] - without
    return pl.DataFrame(
        {
            "span": a.span[own],
            "stage": named(np.where(a.edge[own] < 0, a.stage[own], NONE), graph.places.stages),
            "edge": named(a.edge[own], graph.places.edges),
            "kind": named(a.kind[own], SPAN_KIND),
            "chunk": a.chunk[own],
            "start_ns": a.start_ns[own],
            "end_ns": a.end_ns[own],
            "duration_ns": duration[own],
            "drag_ns": drag[a.launch[own]],
            "slack_ns": pl.Series(slack[a.launch[own]]).replace(FAR, None),
        }
    )


def stage_drag(graph: TaskGraph, *, others: Others = "frozen") -> pl.DataFrame:
    """Drag of every stage and edge on every request: both terminals with all of its work set to zero.

    Returns
    -------
    polars.DataFrame
        One row per request, terminal and stage or edge: ``request, terminal, stage, edge`` (one of both is NULL),
        ``drag_ns`` (recorded minus re-timed terminal) and ``duration_ns`` (the request's own work there, all chunks).
        With `others` frozen drag is at most the duration; relaxed it can be more, because other requests' work
        vanishes too and with it the wait for their launches.
    """
    a, places = graph.activities, graph.places
    nothing: dict[str, pl.DataType | type[pl.DataType]] = {"request": pl.Int64, "terminal": pl.Enum(TERMINALS)}
    nothing |= {"stage": pl.Enum(places.stages), "edge": pl.Enum(places.edges)}
    frames = [pl.DataFrame(schema=nothing | {"drag_ns": pl.Int64, "duration_ns": pl.Int64})]
    for name, is_edge in [(stage, False) for stage in places.stages] + [(edge, True) for edge in places.edges]:
        mask = graph.where(edge=name) if is_edge else graph.where(stage=name)
        if not np.any(mask):
            continue
        work = scaled(graph, 0, edge=name) if is_edge else scaled(graph, 0, stage=name)
        total = pl.DataFrame(
            {"request": graph.requests.request[a.request[mask]], "duration_ns": graph.durations()[mask]}
        )
        rows = retime(graph, work, others=others).terminals.join(
            total.group_by("request").agg(pl.col("duration_ns").sum()), on="request", how="left", maintain_order="left"
        )
        stage = pl.lit(None if is_edge else name, dtype=pl.Enum(places.stages))
        edge = pl.lit(name if is_edge else None, dtype=pl.Enum(places.edges))
        frames.append(
            rows.select(
                "request",
                "terminal",
                stage.alias("stage"),
                edge.alias("edge"),
                drag_ns=-pl.col("change_ns"),
                duration_ns=pl.col("duration_ns").fill_null(0),
            )
        )
    return pl.concat(frames).sort("terminal", "request", "stage", "edge", nulls_last=True)


def _slack(graph: TaskGraph, launches: Ints, member: Bools, ends: Ints, terminal_ns: int) -> Ints:
    """Latest minus recorded start of every launch, FAR where none of the deliveries `ends` depends on it."""
    a, d = graph.activities, graph.dependencies
    duration = graph.durations()
    late = np.full(len(member), FAR, dtype=np.int64)
    np.minimum.at(late, a.launch[ends], terminal_ns - duration[ends])
    latest_starts(
        launches, a.launch_ptr, a.launch, graph.lag_ns,
        d.ptr, d.source, d.kind, d.at_start, d.offset_ns, duration, longest(graph, duration), member, late,
    )  # fmt: skip
    return np.where(late < FAR, late - a.start_ns[a.launch_ptr[:-1]], FAR)
