"""Empirical distribution of time to first audio and completion time, as load grows, with both identical repeats."""

from __future__ import annotations

import altair as alt
import polars as pl

from workbench.charts import theme

PANELS = {"ttfa": "time to first audio (s, log)", "jct": "job completion time (s, log)"}
LOAD_COLORS = (theme.SKY, theme.BLUE, "#00203A")


def latency_ecdf(points: pl.DataFrame, *, loads: list[str], title: str = "") -> tuple[alt.HConcatChart, pl.DataFrame]:
    """One curve per load and repeat; a curve that ends below 1 has requests that never got there.

    Parameters
    ----------
    points : polars.DataFrame
        ``load``, ``repeat``, ``metric`` ("ttfa" or "jct"), ``seconds``, ``share`` (of *all* scheduled requests, failed
        ones included, at or below ``seconds``).
    loads : list of str
        Colors from light to dark.
    title : str
        Empty where a caption says it.

    Returns
    -------
    (altair.HConcatChart, polars.DataFrame)
        The chart and its rows.
    """
    frame = points.sort("metric", pl.col("load").cast(pl.Enum(loads)), "repeat", "seconds", "share")
    repeats = sorted(frame["repeat"].unique().to_list())
    color = alt.Color("load:N", title="load", scale=alt.Scale(domain=loads, range=list(LOAD_COLORS[: len(loads)])))
    dash = alt.StrokeDash(
        "repeat:N", title="repeat", scale=alt.Scale(domain=repeats, range=[[1, 0], [3, 2]][: len(repeats)])
    )
    panels = []
    for metric, label in PANELS.items():
        curves = frame.filter(pl.col("metric") == metric)
        # A logarithmic axis cannot find its ends without data.
        ends = alt.Undefined if curves.height else [0.1, 10]
        panel = (
            alt.Chart(curves)
            .mark_line(interpolate="step-after")
            .encode(
                x=alt.X(
                    "seconds:Q",
                    title=label,
                    scale=alt.Scale(type="log", nice=False, domain=ends),
                    axis=alt.Axis(format="~g", values=[0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100], grid=True),
                ),
                y=alt.Y(
                    "share:Q",
                    title="share of scheduled requests" if metric == "ttfa" else None,
                    scale=alt.Scale(domain=[0, 1]),
                    axis=alt.Axis(format="%", labels=metric == "ttfa"),
                ),
                color=color,
                strokeDash=dash,
            )
            .properties(width=260, height=150)
        )
        panels.append(panel)
    chart = theme.figure(
        alt.hconcat(*panels, spacing=18),
        title=title,
        alt_text="Empirical distributions of time to first audio and completion time at three loads, two repeats each.",
    )
    return chart, frame
