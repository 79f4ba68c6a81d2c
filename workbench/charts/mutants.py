"""Broken protocols and the length of the shortest run that shows each of them."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import polars as pl

from workbench.charts import theme

DOT_PX = 8.0
_GAP_PX = 9.0
_NAMES_PX = 90.0


def mutants(found: pl.DataFrame, *, named: Sequence[str] = (), title: str = "") -> tuple[alt.LayerChart, pl.DataFrame]:
    """Draw one dot per mutant: its property in rows, the length of its shortest counterexample along the axis.

    Parameters
    ----------
    found : polars.DataFrame
        ``mutant``, ``property``, ``steps``.
    named : sequence of str
        Mutants that are drawn in another color and named at the right.
    title : str
        Empty where a caption says it.

    Returns
    -------
    (altair.LayerChart, polars.DataFrame)
        The chart and its rows, sorted by property, steps and name.
    """
    frame = found.sort("property", "steps", "mutant")
    # Dots of one property and length stand on each other.
    dots = frame.with_columns(
        pl.int_range(pl.len()).over("property", "steps").alias("level"), pl.col("mutant").is_in(named).alias("named")
    )
    tallest = dict(dots.group_by("property").agg(pl.col("level").max()).iter_rows())
    floor: dict[str, float] = {}
    y = 0.0
    for name in dict.fromkeys(frame["property"]):
        y += _GAP_PX + (tallest[name] + 1) * DOT_PX
        floor[name] = y
    height = y + _GAP_PX
    dots = dots.with_columns(
        (pl.col("property").replace_strict(floor, return_dtype=pl.Float64) - DOT_PX * (pl.col("level") + 0.5)).alias(
            "y"
        )
    )
    rows = pl.DataFrame(
        [{"property": name, "y": base - DOT_PX / 2, "line": base + _GAP_PX / 2} for name, base in floor.items()]
    )
    place = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[height, 0], nice=False, zero=False))
    under = alt.Y("line:Q", axis=None, scale=alt.Scale(domain=[height, 0], nice=False, zero=False))
    most = max(frame["steps"])
    steps = alt.X(
        "steps:Q",
        title="steps of the shortest counterexample",
        scale=alt.Scale(domain=[0, most + 9], nice=False),
        axis=alt.Axis(tickMinStep=1, grid=False),
    )
    tint = alt.condition("datum.named", alt.value(theme.VERMILLION), alt.value(theme.BLUE))
    left = alt.value(-6)
    shown_names = dots.filter(pl.col("named"))
    layers: list[alt.Chart] = [
        alt.Chart(rows).mark_rule(color=theme.GRID).encode(y=under),
        alt.Chart(dots)
        .mark_point(filled=True, size=34)
        .encode(x=steps, y=place, color=tint, tooltip=["mutant:N", "property:N", "steps:Q"]),
        alt.Chart(rows).mark_text(align="right").encode(x=left, y=place, text="property:N"),
    ]
    if shown_names.height:
        said = (
            shown_names.with_columns(pl.format("{}: {}", "mutant", "steps").alias("text"))
            .group_by("property", maintain_order=True)
            .agg(pl.col("y").max(), pl.col("text").str.join(", "))
        )
        layers.append(
            alt.Chart(said)
            .mark_text(align="right", color=theme.VERMILLION)
            .encode(x=alt.value("width"), y=place, text="text:N")
        )
    chart = alt.LayerChart(layer=layers).properties(width=theme.PAGE_IN * theme.PX_PER_IN - _NAMES_PX, height=height)
    described = f"{frame.height} broken protocols by {len(floor)} properties, with the steps that show each."
    return chart.properties(description=described, **({"title": title} if title else {})), frame
