"""What the probes cost: paired runs with probes on and off, against the noise of identical runs."""

from __future__ import annotations

import altair as alt
import polars as pl

from workbench.charts import theme
from workbench.errors import UsageError


def probe_cost(
    pairs: pl.DataFrame, estimates: pl.DataFrame, *, noise: pl.DataFrame, metrics: list[str], title: str = ""
) -> tuple[alt.LayerChart | alt.FacetChart, pl.DataFrame]:
    """Ratio on / off of each pair (ticks), mean with its 95 % interval (dot and line), A/A spread behind (grey).

    Parameters
    ----------
    pairs : polars.DataFrame
        ``metric``, ``pair``, ``ratio`` (probes on over probes off; 1.01 = 1 % slower with probes).
    estimates : polars.DataFrame
        ``metric``, ``estimate``, ``low``, ``high``: paired t over log ratios, as ratios.
    noise : polars.DataFrame
        ``metric``, ``low``, ``high``: band of ratios between identical runs.
    metrics : list of str
        Rows from top to bottom.
    title : str
        Empty where a caption says it.

    Returns
    -------
    (altair chart, polars.DataFrame)
        The chart, and its rows with ``shown`` = "A/A band", "pair" or "estimate".

    Raises
    ------
    UsageError
        No metrics: there were fewer than two pairs.
    """
    if not metrics:
        raise UsageError("a metric of at least two probe pairs", "none", where="probe_cost", fix="Record more pairs.")
    y = alt.Y("metric:N", sort=metrics, title=None, scale=alt.Scale(domain=metrics))
    x = alt.X(
        "low:Q",
        title="probes on / probes off (1 = no cost)",
        scale=alt.Scale(zero=False, padding=16),
        axis=alt.Axis(format=".2f"),
    )
    frame = pl.concat(
        [
            noise.select(
                "metric", pl.lit("A/A band").alias("shown"), pl.lit(None, pl.Float64).alias("estimate"), "low", "high"
            ),
            pairs.select(
                "metric",
                pl.lit("pair").alias("shown"),
                pl.lit(None, pl.Float64).alias("estimate"),
                pl.col("ratio").alias("low"),
                pl.col("ratio").alias("high"),
            ),
            estimates.select("metric", pl.lit("estimate").alias("shown"), "estimate", "low", "high"),
        ]
    ).sort(pl.col("metric").cast(pl.Enum(metrics)), "shown", "low")
    colors = alt.Color(
        "shown:N",
        title=None,
        scale=alt.Scale(domain=["A/A band", "pair", "estimate"], range=["#DADADA", theme.MUTED, theme.VERMILLION]),
    )
    one = alt.Chart(pl.DataFrame({"at": [1.0]})).mark_rule(strokeDash=[2, 2]).encode(x="at:Q")
    band = (
        alt.Chart(frame.filter(pl.col("shown") == "A/A band"))
        .mark_bar(height=22)
        .encode(y=y, x=x, x2="high:Q", color=colors)
    )
    each = (
        alt.Chart(frame.filter(pl.col("shown") == "pair"))
        .mark_tick(thickness=1.2, size=16)
        .encode(y=y, x=x, color=alt.value(theme.GREY))
    )
    interval = (
        alt.Chart(frame.filter(pl.col("shown") == "estimate"))
        .mark_rule(strokeWidth=2.4)
        .encode(y=y, x=x, x2="high:Q", color=colors)
    )
    dot = (
        alt.Chart(frame.filter(pl.col("shown") == "estimate"))
        .mark_point(filled=True, size=52)
        .encode(y=y, x=alt.X("estimate:Q"), color=colors)
    )
    chart = theme.figure(
        alt.layer(band, one, each, interval, dot),
        width_in=theme.COLUMN_IN,
        height_in=0.75 + 0.36 * len(metrics),
        title=title,
        alt_text="Ratio of metrics with probes on and off per pair, with the interval of the mean and the A/A band.",
    )
    return chart, frame
