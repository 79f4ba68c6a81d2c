"""Broken protocols and the length of the shortest run that shows each of them."""

from __future__ import annotations

import altair as alt
import polars as pl

from workbench.charts import theme

ROW_PX = 12.5


def mutants(found: pl.DataFrame, *, title: str = "") -> tuple[alt.LayerChart, pl.DataFrame]:
    """Draw one bar per mutant, grouped by the property that it violates.

    Parameters
    ----------
    found : polars.DataFrame
        ``mutant``, ``property`` (a few words), ``steps`` (length of the shortest counterexample).
    title : str
        Empty where a caption says it.

    Returns
    -------
    (altair.LayerChart, polars.DataFrame)
        The chart and its rows, sorted by property, steps and name.
    """
    frame = found.sort("property", "steps", "mutant")
    names = frame["mutant"].to_list()
    heads = frame.group_by("property", maintain_order=True).first()
    y = alt.Y("mutant:N", sort=names, title=None, axis=alt.Axis(labelLimit=0, ticks=False))
    steps = alt.X("steps:Q", title="steps of the shortest counterexample", axis=alt.Axis(tickMinStep=1))
    groups = list(dict.fromkeys(frame["property"]))
    tints = [theme.BLUE if k % 2 == 0 else theme.SKY for k in range(len(groups))]
    color = alt.Color("property:N", scale=alt.Scale(domain=groups, range=tints), legend=None)
    layers: list[alt.Chart] = [
        alt.Chart(frame)
        .mark_bar(height=ROW_PX - 4)
        .encode(y=y, x=steps, color=color, tooltip=["mutant:N", "property:N", "steps:Q"]),
        alt.Chart(frame).mark_text(align="left", dx=3).encode(y=y, x=steps, text="steps:Q"),
        alt.Chart(heads)
        .mark_text(align="right", fontWeight="bold", color=theme.GREY)
        .encode(y=y, x=alt.value("width"), text="property:N"),
    ]
    shown = theme.figure(
        alt.LayerChart(layer=layers),
        width_in=theme.PAGE_IN,
        height_in=(60 + ROW_PX * len(names)) / theme.PX_PER_IN,
        title=title,
        alt_text=f"{len(names)} broken protocols, grouped by {len(groups)} properties, with the steps it takes to show each.",
    )
    return shown, frame
