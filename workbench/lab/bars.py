"""Which intervals of which requests a chart can hold: neighbors joined, what no eye would see left out, and counted."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from workbench.charts.overview import TIMELINE_PX

MAX_ROWS = 4_900  # a chart holds 5,000; some are left for its heads and marks
MAX_POINTS = 1_500
SLOWEST, FAILED, DETAILED = 25, 15, 70
WORST_POINTS = 500

_KEYS = ("request", "stage", "kind")


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars of a timeline.

    Attributes
    ----------
    rows : polars.DataFrame
        ``request, stage, kind, start_ns, end_ns, joined``: the recorded intervals in a bar, at least 1.
    gap_ns : int
        Largest gap that was closed.
    unseen : int
        Intervals left out because they are shorter than half a pixel.
    """

    rows: pl.DataFrame
    gap_ns: int
    unseen: int


def joined(intervals: pl.DataFrame, gap_ns: pl.Expr | int) -> pl.DataFrame:
    """Join intervals of equal request, stage and kind that overlap or lie at most `gap_ns` apart.

    Parameters
    ----------
    intervals : polars.DataFrame
        ``request, stage, kind, start_ns, end_ns``; extra columns are dropped.
    gap_ns : int or polars expression
        Gap that is closed; an expression may depend on the request.

    Returns
    -------
    polars.DataFrame
        ``request, stage, kind, start_ns, end_ns, joined``, sorted by request and time.
    """
    reach = pl.col("end_ns").cum_max().shift(1).over(_KEYS)
    begins = (pl.col("start_ns") > reach + gap_ns).fill_null(True)
    return (
        intervals.sort(*_KEYS, "start_ns", "end_ns")
        .with_columns(begins.alias("begins"))
        .with_columns(pl.col("begins").cum_sum().over(_KEYS).alias("bar"))
        .group_by(*_KEYS, "bar")
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), pl.len().alias("joined"))
        .drop("bar")
        .sort("request", "start_ns", "end_ns", "stage", "kind")
    )


def bars(intervals: pl.DataFrame, *, most: int) -> Bars:
    """Bars of several requests, at most `most` for each.

    Gaps below a pixel of the request's own width are closed first; then, for a request that still has too many bars,
    twice as wide ones, and so on.

    Parameters
    ----------
    intervals : polars.DataFrame
        ``request, stage, kind, start_ns, end_ns``, every row with an end.
    most : int
        Bars per request.
    """
    span_ns = (pl.col("end_ns").max() - pl.col("start_ns").min()).over("request")
    pending = intervals.with_columns(gap_ns=span_ns // TIMELINE_PX)
    done = [joined(intervals.clear(), 0)]
    widest = unseen = 0
    while pending.height:
        gaps = pending.select("request", "gap_ns").unique()
        made = joined(pending, pl.col("gap_ns")).join(gaps, on="request", how="left")
        is_seen = (pl.col("end_ns") - pl.col("start_ns")) * 2 >= pl.col("gap_ns")
        counted = made.group_by("request").agg(is_seen.sum().alias("seen"), pl.col("joined").filter(~is_seen).sum())
        fits = counted.filter(pl.col("seen") <= most)
        kept = made.filter(is_seen).join(fits, on="request", how="semi")
        done.append(kept.drop("gap_ns"))
        widest = max(widest, *gaps.join(fits, on="request", how="semi")["gap_ns"], 0)
        unseen += int(fits["joined"].sum())
        pending = pending.join(fits, on="request", how="anti").with_columns(pl.col("gap_ns") * 2 + 1)
    rows = pl.concat(done).sort("request", "start_ns", "end_ns", "stage", "kind")
    return Bars(rows, widest, unseen)


def detailed(requests: pl.DataFrame) -> pl.Series:
    """Requests whose timelines a chart of the whole run carries: the slowest, some that failed, an even sample.

    Parameters
    ----------
    requests : polars.DataFrame
        ``request, status, latency_s``.

    Returns
    -------
    polars.Series of int64
        At most 70 ids: the 25 slowest, up to 15 of those that did not end ok, and others evenly spaced by latency.
    """
    ranked = requests.sort("latency_s", "request", descending=[True, False])
    slowest = ranked.head(SLOWEST)
    failed = ranked.slice(SLOWEST).filter(pl.col("status") != "ok").head(FAILED)
    rest = ranked.slice(SLOWEST).join(failed, on="request", how="anti", maintain_order="left")
    room = DETAILED - slowest.height - failed.height
    return pl.concat([slowest["request"], failed["request"], evenly(rest, room)["request"]])


def thinned(requests: pl.DataFrame) -> pl.DataFrame:
    """At most 1,500 requests: all of them, or the 500 slowest and an even sample of the others by latency."""
    if requests.height <= MAX_POINTS:
        return requests
    ranked = requests.sort("latency_s", "request", descending=[True, False])
    return pl.concat([ranked.head(WORST_POINTS), evenly(ranked.slice(WORST_POINTS), MAX_POINTS - WORST_POINTS)])


def evenly(rows: pl.DataFrame, count: int) -> pl.DataFrame:
    """At most `count` rows at even distances, the first and the last included."""
    if rows.height <= count:
        return rows
    if count < 2:
        return rows.head(count)
    return rows[[round(k * (rows.height - 1) / (count - 1)) for k in range(count)]]
