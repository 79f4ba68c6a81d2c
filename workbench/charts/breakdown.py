"""What the critical path is made of, as load grows: one bar per load and terminal, split by kind of interval."""

from __future__ import annotations

import altair as alt
import polars as pl

from workbench.charts import theme

TERMINAL_TITLES = {"first": "to first audio", "job": "to last audio"}


def breakdown(path: pl.DataFrame, *, loads: list[str], title: str = "") -> tuple[alt.HConcatChart, pl.DataFrame]:
    """Mean time on the critical path per request, by kind.

    Parameters
    ----------
    path : polars.DataFrame
        ``load``, ``terminal`` ("first" or "job"), ``kind``, ``mean_s`` (seconds per request with that terminal).
    loads : list of str
        Bars from top to bottom.
    title : str
        Empty where a caption says it.

    Returns
    -------
    (altair.HConcatChart, polars.DataFrame)
        The chart and its rows in drawing order. Kinds that are nowhere on a path are left out.
    """
    order = list(theme.KIND_COLORS)
    frame = (
        path.select("load", "terminal", pl.col("kind").cast(pl.String), "mean_s")
        .filter(pl.col("mean_s") > 0)
        .with_columns(
            pl.col("kind").replace_strict(order, range(len(order)), return_dtype=pl.Int64).alias("stacked_as")
        )
        .sort("terminal", pl.col("load").cast(pl.Enum(loads)), "stacked_as")
    )
    scale = theme.kind_scale(frame["kind"].unique())
    panels = []
    for terminal in ("first", "job"):
        panel = (
            alt.Chart(frame.filter(pl.col("terminal") == terminal))
            .mark_bar(height={"band": 0.72})
            .encode(
                y=alt.Y(
                    "load:N",
                    sort=loads,
                    title=None,
                    scale=alt.Scale(domain=loads),
                    axis=alt.Axis(labels=terminal == "first"),
                ),
                x=alt.X(
                    "mean_s:Q",
                    stack="zero",
                    title=f"time {TERMINAL_TITLES[terminal]} (s per request)",
                    axis=alt.Axis(tickCount=5),
                ),
                color=alt.Color(
                    "kind:N", scale=scale, title=None, legend=alt.Legend(columns=4, labelExpr=theme.PLAIN_LABELS)
                ),
                order=alt.Order("stacked_as:Q"),
                tooltip=["load:N", "kind:N", alt.Tooltip("mean_s:Q", format=".3f")],
            )
            .properties(width=250, height=28 * len(loads))
        )
        panels.append(panel)
    chart = theme.figure(
        alt.hconcat(*panels, spacing=18),
        title=title,
        alt_text="Mean time per request on the critical path, split by kind of interval, for each load.",
    )
    return chart, frame
