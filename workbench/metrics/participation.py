"""Participation: share of the latency of a set of requests that each stage, edge and kind holds on their paths."""

from __future__ import annotations

import numpy as np
import polars as pl

from workbench.errors import UsageError
from workbench.metrics.critical_path import CriticalPaths
from workbench.metrics.task_graph import TERMINALS

GROUP = ("stage", "edge", "kind")


def tail_band(paths: CriticalPaths, terminal: str, low: float = 0.95, high: float = 1.0) -> pl.Series:
    """Ids of the requests whose latency to `terminal` lies in a band of ranks, e.g. p95 to p100.

    Of n requests with a path, sorted by (latency, id), those with rank in (low * n, high * n], ranks from 1: bands that
    share a bound neither overlap nor leave a gap. Requests without a path have no latency; count them from
    ``paths.requests``.

    Raises
    ------
    UsageError
        Not 0 <= low < high <= 1, or unknown terminal.
    """
    if not 0 <= low < high <= 1:
        raise UsageError("0 <= low < high <= 1", f"low={low}, high={high}", where="tail_band")
    known = _with_path(paths, terminal)
    ranked = known.sort("latency_ns", "request")["request"]
    first, last = (round(bound * len(ranked)) for bound in (low, high))
    return ranked[first:last].sort()


def participation(
    paths: CriticalPaths,
    terminal: str,
    *,
    requests: pl.Series | None = None,
    resamples: int = 0,
    seed: int = 0,
) -> pl.DataFrame:
    """Sum of path time over sum of latency, per stage or edge and kind.

    Aggregate over requests, never average paths. A large share does not mean that less of it would help: see `drag`.

    Parameters
    ----------
    paths : CriticalPaths
        Paths of one view.
    terminal : str
        ``first`` or ``job``.
    requests : polars.Series of int64, optional
        Ids to aggregate over, e.g. a `tail_band`; None takes all that have a path.
    resamples : int
        Bootstrap replicates over requests for the columns ``low`` and ``high``; 0 leaves them NULL.
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    polars.DataFrame
        ``stage, edge, kind, path_ns, share, low, high, requests``: one row per group that occurs, largest first.
        Shares sum to 1. ``low`` and ``high`` are percentile bounds, two-sided 95 %, *within this run*: they say how
        much the mix of its requests matters and nothing about another run (requests of one run queue behind each
        other). ``requests`` is the number of requests aggregated over.

    Raises
    ------
    UsageError
        Unknown terminal, or an id without a path.
    """
    known = _with_path(paths, terminal)
    if requests is not None:
        strange = sorted(set(requests) - set(known["request"]))
        if strange:
            raise UsageError(f"requests with a path to {terminal}", f"request {strange[0]}", where="requests")
        known = known.filter(pl.col("request").is_in(requests.implode()))
    known = known.sort("request")
    parts = (
        paths.segments.filter(pl.col("terminal") == terminal)
        .join(known.select("request"), on="request", how="semi")
        .group_by("request", *GROUP)
        .agg(path_ns=(pl.col("end_ns") - pl.col("start_ns")).sum())
    )
    total = int(known["latency_ns"].sum())
    shares = (
        parts.group_by(*GROUP).agg(pl.col("path_ns").sum()).sort("path_ns", *GROUP, descending=[True] + [False] * 3)
    )
    # NumPy divides; polars multiplies with a rounded reciprocal.
    shares = shares.with_columns(share=pl.Series(shares["path_ns"].to_numpy() / total))
    low, high = _bounds(known, parts, shares, resamples, seed)
    return shares.with_columns(low=low, high=high, requests=pl.lit(len(known), dtype=pl.Int64))


def _with_path(paths: CriticalPaths, terminal: str) -> pl.DataFrame:
    """Rows of the requests that reached a terminal."""
    if terminal not in TERMINALS:
        raise UsageError(f"one of {', '.join(TERMINALS)}", repr(terminal), where="terminal")
    return paths.requests.filter((pl.col("terminal") == terminal) & pl.col("latency_ns").is_not_null())


def _bounds(
    known: pl.DataFrame, parts: pl.DataFrame, shares: pl.DataFrame, resamples: int, seed: int
) -> tuple[pl.Series, pl.Series]:
    """Percentile bounds of each group's share over resampled requests."""
    if resamples == 0 or not len(shares):
        nothing = pl.Series([None] * len(shares), dtype=pl.Float64)
        return nothing, nothing
    row = known.select("request").with_row_index("row")
    column = shares.select(*GROUP).with_row_index("column")
    cells = parts.join(row, on="request").join(column, on=GROUP, nulls_equal=True)
    spent = np.zeros((len(known), len(shares)))
    spent[cells["row"].to_numpy(), cells["column"].to_numpy()] = cells["path_ns"].to_numpy()
    latency = known["latency_ns"].to_numpy().astype(np.float64)
    random = np.random.default_rng(seed)
    drawn = np.empty((resamples, len(shares)))
    for k in range(resamples):
        times = np.bincount(random.integers(len(known), size=len(known)), minlength=len(known)).astype(np.float64)
        # einsum without BLAS: the same sum on any number of threads.
        drawn[k] = np.einsum("r,rg->g", times, spent) / np.einsum("r,r->", times, latency)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return pl.Series(low), pl.Series(high)
