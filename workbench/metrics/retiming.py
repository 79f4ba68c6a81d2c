"""Forward re-timing: the same run with other durations, everything else as it was recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from workbench.errors import UsageError
from workbench.metrics.max_plus import Groups, longest, retime_groups
from workbench.metrics.tables import Ints, named
from workbench.metrics.task_graph import TERMINALS, TaskGraph

Others = Literal["frozen", "relaxed"]


@dataclass(frozen=True, slots=True)
class Retimed:
    """Times of all activities under other durations.

    Attributes
    ----------
    others : str
        ``frozen``: each request is moved on its own, as if all others kept their recorded times; a launch that it
        shares moves as a whole. ``relaxed``: all requests move at once.
    start_ns, end_ns : ndarray of int64, shape (n_activities,)
        New times, in the order of ``graph.activities``.
    terminals : polars.DataFrame
        One row per request and terminal that has a path: ``request, terminal, scheduled_ns, recorded_ns, retimed_ns``
        (ends of the terminal) and ``change_ns`` (negative is earlier).
    """

    others: Others
    start_ns: Ints
    end_ns: Ints
    terminals: pl.DataFrame


def retime(graph: TaskGraph, durations: Ints | None = None, *, others: Others = "frozen") -> Retimed:
    """Evaluate start = latest dependency + lag, end = start + duration, over the recorded graph.

    Kept from the recording: which activities there are, what each depends on, the members of every launch, the order
    on every replica, dispatch lags, credit trips and timers. A what-if that would change one of these (another batch,
    another order) is a matter for replay, not for re-timing.

    Parameters
    ----------
    graph : TaskGraph
        Graph of one run.
    durations : ndarray of int64, shape (n_activities,), optional
        New lengths in nanoseconds, at least 0; None keeps the recorded ones. See `scaled` and ``graph.durations``.
    others : str
        ``frozen`` (request view) or ``relaxed`` (system view); see `Retimed`.

    Returns
    -------
    Retimed
        With unchanged durations equal to the recording, to the nanosecond (`reproduces`).

    Raises
    ------
    UsageError
        Wrong shape, negative duration or unknown `others`.
    """
    if others not in ("frozen", "relaxed"):
        raise UsageError("frozen or relaxed", repr(others), where="others")
    a, d = graph.activities, graph.dependencies
    recorded = graph.durations()
    new = recorded if durations is None else np.array(durations, dtype=np.int64)
    if new.shape != recorded.shape:
        raise UsageError(
            f"one duration for each of {len(recorded)} activities", f"shape {new.shape}", where="durations"
        )
    if len(new) and new.min() < 0:
        raise UsageError("durations of at least 0 ns", f"{new.min()} ns", where=f"durations[{new.argmin()}]")
    groups = Groups.of(graph, system=others == "relaxed")
    start, end = np.empty_like(new), np.empty_like(new)
    retime_groups(
        groups.ptr, groups.launches, groups.everyone,
        a.launch_ptr, a.launch, a.start_ns, a.end_ns, graph.requests.scheduled_ns[a.request],
        graph.requests.family[a.request], graph.lag_ns,
        d.ptr, d.source, d.kind, d.at_start, d.offset_ns, new, longest(graph, new), start, end,
    )  # fmt: skip
    return Retimed(others, start, end, _terminals(graph, end))


def reproduces(graph: TaskGraph, *, others: Others = "frozen") -> pl.DataFrame:
    """Activities whose re-timed interval differs from the recording although nothing was changed: empty, or a defect.

    Returns
    -------
    polars.DataFrame
        Columns ``request, span, start_ns, end_ns, retimed_start_ns, retimed_end_ns``.
    """
    a = graph.activities
    again = retime(graph, others=others)
    at = np.flatnonzero((again.start_ns != a.start_ns) | (again.end_ns != a.end_ns))
    return pl.DataFrame(
        {
            "request": graph.requests.request[a.request[at]],
            "span": a.span[at],
            "start_ns": a.start_ns[at],
            "end_ns": a.end_ns[at],
            "retimed_start_ns": again.start_ns[at],
            "retimed_end_ns": again.end_ns[at],
        }
    )


def scaled(graph: TaskGraph, factor: float, *, stage: str | None = None, edge: str | None = None) -> Ints:
    """Recorded durations with those of one stage, or of the hand-offs of one edge, multiplied by `factor`.

    Parameters
    ----------
    factor : float
        At least 0; 0 takes the work away. Products are rounded to the nearest nanosecond.
    stage, edge : str
        Exactly one of them.

    Raises
    ------
    UsageError
        Negative factor, unknown name, or not exactly one of `stage` and `edge`.
    """
    if (stage is None) == (edge is None):
        raise UsageError("exactly one of stage and edge", f"stage={stage!r} and edge={edge!r}", where="scaled")
    if not factor >= 0:
        raise UsageError("a factor of at least 0", str(factor), where="factor")
    durations = graph.durations()
    mask = graph.where(stage=stage, edge=edge)
    durations[mask] = np.rint(durations[mask] * factor).astype(np.int64)
    return durations


def _terminals(graph: TaskGraph, end_ns: Ints) -> pl.DataFrame:
    a, r = graph.activities, graph.requests
    frames = []
    for terminal in TERMINALS:
        at = graph.terminal_candidates(terminal)
        pick = pl.Expr.min if terminal == "first" else pl.Expr.max
        rows = pl.DataFrame({"number": a.request[at], "recorded_ns": a.end_ns[at], "retimed_ns": end_ns[at]})
        rows = rows.group_by("number").agg(pick(pl.col("recorded_ns")), pick(pl.col("retimed_ns"))).sort("number")
        number = rows["number"].to_numpy()
        frames.append(
            pl.DataFrame(
                {
                    "request": r.request[number],
                    "terminal": named(np.full(len(number), TERMINALS.index(terminal)), TERMINALS),
                    "scheduled_ns": r.scheduled_ns[number],
                    "recorded_ns": rows["recorded_ns"],
                    "retimed_ns": rows["retimed_ns"],
                    "change_ns": rows["retimed_ns"] - rows["recorded_ns"],
                }
            )
        )
    return pl.concat(frames)
