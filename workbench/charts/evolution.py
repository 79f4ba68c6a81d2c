"""How queues, oldest waits and bytes in flight evolve during a run, one column per load."""

from __future__ import annotations

import altair as alt
import polars as pl

from workbench.charts import theme

PANELS = {
    "queue_depth": "tasks waiting",
    "oldest_wait_s": "oldest wait (s)",
    "in_flight_kib": "in flight (KiB)",
}


def evolution(
    series: pl.DataFrame, *, loads: list[str], stages: list[str], title: str = ""
) -> tuple[alt.ConcatChart, pl.DataFrame]:
    """Three rows of small panels over the time of the run.

    Parameters
    ----------
    series : polars.DataFrame
        ``load``, ``quantity`` (queue_depth, oldest_wait_s, in_flight_kib), ``stage`` (for bytes: the stage that the
        edge leads to), ``at_s`` from the first scheduled arrival (bin start), ``value`` (largest in the bin).
    loads, stages : list of str
        Columns from left to right; colors.
    title : str
        Empty where a caption says it.

    Returns
    -------
    (altair.ConcatChart, polars.DataFrame)
        The chart and its rows.
    """
    frame = series.sort("quantity", pl.col("load").cast(pl.Enum(loads)), "stage", "at_s")
    color = alt.Color("stage:N", title=None, scale=theme.stage_scale(stages))
    rows: list[alt.Chart] = []
    for quantity, label in PANELS.items():
        part = frame.filter(pl.col("quantity") == quantity)
        top = float(part["value"].max() or 1.0)  # type: ignore[arg-type]
        panels = []
        for i, load in enumerate(loads):
            end_s = float(frame.filter(pl.col("load") == load)["at_s"].max() or 1.0)  # type: ignore[arg-type]
            last_row = quantity == list(PANELS)[-1]
            panel = (
                alt.Chart(part.filter(pl.col("load") == load))
                .mark_line(interpolate="step-after", strokeWidth=1.2)
                .encode(
                    x=alt.X(
                        "at_s:Q",
                        title="time in run (s)" if last_row else None,
                        scale=alt.Scale(domain=[0, end_s], nice=True),
                        axis=alt.Axis(tickCount=4),
                    ),
                    y=alt.Y(
                        "value:Q",
                        title=label if i == 0 else None,
                        # White rather than absent: the labels keep their room, so that all panels of a row align.
                        axis=alt.Axis(labelColor=theme.INK if i == 0 else "white", tickCount=4),
                        scale=alt.Scale(domain=[0, top]),
                    ),
                    color=color,
                )
                .properties(width=170, height=78)
            )
            if quantity == next(iter(PANELS)):
                panel = panel.properties(title=alt.Title(load, fontWeight="normal", anchor="middle"))
            panels.append(panel)
        rows += panels
    chart = theme.figure(
        alt.concat(*rows, columns=len(loads), spacing={"row": 6, "column": 4}),
        title=title,
        alt_text="Waiting tasks, oldest wait and bytes in flight over the run, per stage, for each load.",
    )
    return chart, frame
