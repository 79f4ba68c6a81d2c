"""Waiting time and service time of each stage, as load grows."""

from __future__ import annotations

import altair as alt
import polars as pl

from workbench.charts import theme

QUANTITIES = {"W_v": "waiting W_v", "S_v": "service S_v"}
# Every second power of ten, without prefixes: "10m" beside a unit of ms would read as minutes.
LOG_LABELS = (
    "indexof([0.1, 10, 1000, 100000], datum.value) >= 0 ? '' : "
    "datum.value < 1 ? format(datum.value, '~g') : format(datum.value, ',d')"
)
COLORS = {"waiting W_v": theme.VERMILLION, "service S_v": theme.BLUE}


def stage_times(
    times: pl.DataFrame, *, loads: list[str], stages: list[str], title: str = ""
) -> tuple[alt.HConcatChart, pl.DataFrame]:
    """Median (dot) and 95th percentile (end of the line) over requests, one panel per load, logarithmic time axis.

    Parameters
    ----------
    times : polars.DataFrame
        ``load``, ``stage``, ``quantity`` ("W_v" or "S_v"), ``p50_ms``, ``p95_ms``. 0 is drawn at the left edge.
    loads, stages : list of str
        Panels from left to right, rows from top to bottom.
    title : str
        Empty where a caption says it.

    Returns
    -------
    (altair.HConcatChart, polars.DataFrame)
        The chart and its rows.
    """
    floor_ms = 0.01  # shortest time worth telling from none on this axis
    frame = times.with_columns(
        pl.col("quantity").replace_strict(QUANTITIES).alias("quantity"),
        pl.col("p50_ms").clip(lower_bound=floor_ms).alias("from_ms"),
        pl.col("p95_ms").clip(lower_bound=floor_ms).alias("to_ms"),
    ).sort(pl.col("load").cast(pl.Enum(loads)), pl.col("stage").cast(pl.Enum(stages)), "quantity")
    top = float(frame["to_ms"].max() or 1.0) * 1.3  # type: ignore[arg-type]
    x = alt.X(
        "from_ms:Q",
        title="ms per request (log)",
        scale=alt.Scale(type="log", domain=[floor_ms, top], nice=False),
        axis=alt.Axis(
            values=[0.01, 0.1, 1, 10, 100, 1000, 10_000, 100_000], labelExpr=LOG_LABELS, grid=True, gridColor=theme.GRID
        ),
    )
    color = alt.Color("quantity:N", title=None, scale=alt.Scale(domain=list(COLORS), range=list(COLORS.values())))
    panels = []
    for i, load in enumerate(loads):
        base = alt.Chart(frame.filter(pl.col("load") == load)).encode(
            y=alt.Y("stage:N", sort=stages, title=None, axis=alt.Axis(labels=i == 0), scale=alt.Scale(domain=stages)),
            yOffset=alt.YOffset("quantity:N", scale=alt.Scale(domain=list(COLORS), paddingOuter=0.6)),
            color=color,
            tooltip=[
                "stage:N",
                "quantity:N",
                alt.Tooltip("p50_ms:Q", format=".2f"),
                alt.Tooltip("p95_ms:Q", format=".2f"),
            ],
        )
        panel = alt.layer(
            base.mark_rule(strokeWidth=2).encode(x=x, x2="to_ms:Q"), base.mark_point(filled=True, size=40).encode(x=x)
        ).properties(width=165, height=34 * len(stages), title=alt.Title(load, fontWeight="normal", anchor="middle"))
        panels.append(panel)
    chart = theme.figure(
        alt.hconcat(*panels, spacing=14),
        title=title,
        alt_text="Waiting and service time per stage and load; dots are medians, lines end at the 95th percentile.",
    )
    return chart, frame
