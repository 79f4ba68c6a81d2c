"""Participation beside drag: how much latency passes in a stage, and how much would go if the stage were free."""

from __future__ import annotations

import altair as alt
import polars as pl

from workbench.charts import theme
from workbench.charts.breakdown import TERMINAL_TITLES

MEASURES = ("work on path", "waiting on path", "dispatch lag on path", "drag")
COLORS = (theme.BLUE, theme.KIND_COLORS["queue"], theme.VERMILLION, theme.BLACK)


def participation(shares: pl.DataFrame, *, stages: list[str], title: str = "") -> tuple[alt.HConcatChart, pl.DataFrame]:
    """Shares of latency per stage, one panel per terminal.

    A bar is the stage's part of the critical path: work, waiting at the stage, and the lag of its dispatch. The diamond
    is its drag: the part of latency that would vanish if all its services took no time and everything else kept its
    order. A long bar with a small drag is a matter of load: one request alone would gain little from a faster stage.

    Parameters
    ----------
    shares : polars.DataFrame
        ``terminal`` ("first" or "job"), ``stage``, ``measure`` (one of `MEASURES`), ``share`` in
        [0, 1] of the summed latency.
    stages : list of str
        Rows from top to bottom.
    title : str
        Empty where a caption says it.

    Returns
    -------
    (altair.HConcatChart, polars.DataFrame)
        The chart and its rows.
    """
    position = pl.col("measure").replace_strict(list(MEASURES), range(len(MEASURES)), return_dtype=pl.Int64)
    frame = shares.with_columns(position.alias("stacked_as")).sort(
        "terminal", pl.col("stage").cast(pl.Enum(stages)), pl.col("measure").cast(pl.Enum(MEASURES))
    )
    bars = frame.filter(pl.col("measure") != "drag")
    longest = bars.group_by("terminal", "stage").agg(pl.col("share").sum())["share"].to_list()
    top = max(0.05, *frame["share"].to_list(), *longest)
    color = alt.Color("measure:N", title=None, scale=alt.Scale(domain=list(MEASURES), range=list(COLORS)))
    panels = []
    for terminal in ("first", "job"):
        rows = frame.filter(pl.col("terminal") == terminal)
        y = alt.Y(
            "stage:N",
            sort=stages,
            title=None,
            scale=alt.Scale(domain=stages),
            axis=alt.Axis(labels=terminal == "first"),
        )
        x = alt.X(
            "share:Q",
            stack="zero",
            title=f"share of time {TERMINAL_TITLES[terminal]}",
            axis=alt.Axis(format="%", tickCount=5),
            scale=alt.Scale(domain=[0, min(1.0, top)]),
        )
        bars = (
            alt.Chart(rows.filter(pl.col("measure") != "drag"))
            .mark_bar(height={"band": 0.62})
            .encode(y=y, x=x, color=color, order=alt.Order("stacked_as:Q"))
        )
        drag = (
            alt.Chart(rows.filter(pl.col("measure") == "drag"))
            .mark_point(shape="diamond", filled=True, size=52)
            .encode(y=y, x=alt.X("share:Q"), color=color)
        )
        panels.append(alt.layer(bars, drag).properties(width=250, height=22 * len(stages)))
    chart = theme.figure(
        alt.hconcat(*panels, spacing=18),
        title=title,
        alt_text="Share of latency on the critical path per stage, work and waiting, beside the drag of the stage.",
    )
    return chart, frame
