"""Reachable states against the size of the world."""

from __future__ import annotations

import altair as alt
import polars as pl

from workbench.charts import theme

COLORS = (theme.BLUE, theme.VERMILLION, theme.GREEN, theme.PURPLE)
SHAPES = ("circle", "square", "triangle-up", "diamond")


def state_space(
    sizes: pl.DataFrame, *, dimensions: list[str], width_in: float = theme.PAGE_IN, title: str = ""
) -> tuple[alt.LayerChart, pl.DataFrame]:
    """Draw sizes of explored worlds, one line per dimension.

    Parameters
    ----------
    sizes : polars.DataFrame
        ``dimension``, ``size``, ``states``, ``verdict``. A world whose exploration met its limit is drawn hollow, at
        the limit.
    dimensions : list of str
        Lines, in the order of their colors.
    width_in, title
        As for `theme.figure`.

    Returns
    -------
    (altair.LayerChart, polars.DataFrame)
        The chart and its rows, sorted by dimension and size.
    """
    order = {name: k for k, name in enumerate(dimensions)}
    frame = sizes.sort(pl.col("dimension").replace_strict(order, return_dtype=pl.Int64), "size")
    scale = alt.Scale(domain=dimensions, range=list(COLORS[: len(dimensions)]))
    color = alt.Color("dimension:N", scale=scale, legend=None)
    x = alt.X(
        "size:Q",
        title="number of them",
        axis=alt.Axis(tickMinStep=1, format="d"),
        scale=alt.Scale(nice=False, padding=8),
    )
    y = alt.Y(
        "states:Q",
        title="reachable states (log scale)",
        scale=alt.Scale(type="log"),
        axis=alt.Axis(format="~s", values=[10**k for k in range(8)]),
    )
    base = alt.Chart(frame).encode(x=x, y=y, color=color)
    shape = alt.Shape(
        "dimension:N", scale=alt.Scale(domain=dimensions, range=list(SHAPES[: len(dimensions)])), legend=None
    )
    whole = base.transform_filter("datum.verdict != 'limit'").mark_point(filled=True, size=44).encode(shape=shape)
    cut = base.transform_filter("datum.verdict == 'limit'").mark_point(filled=False, size=44).encode(shape=shape)
    ends = frame.group_by("dimension", maintain_order=True).last()
    words = alt.Chart(ends).mark_text(align="left", dx=8, dy=-5).encode(x=x, y=y, text="dimension:N", color=color)
    layers: list[alt.Chart] = [base.mark_line(strokeWidth=1.2), whole, cut, words]
    worst = frame.sort("states").row(-1, named=True)
    shown = theme.figure(
        alt.LayerChart(layer=layers).resolve_scale(shape="independent"),
        width_in=width_in,
        height_in=2.6,
        title=title,
        alt_text=f"{frame.height} worlds of up to {worst['states']:,} states ({worst['size']} {worst['dimension']}).",
    )
    return shown, frame
