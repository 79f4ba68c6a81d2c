"""Credit protocols side by side: the exact worst case of small worlds above, single timed runs below."""

from __future__ import annotations

import altair as alt
import polars as pl

from workbench.charts import theme

FORM_COLORS = (theme.GREY, theme.SKY, theme.VERMILLION)
FORM_DASHES = ([4, 2], [8, 2, 2, 2], [1, 0])
CASE_COLORS = (theme.BLUE, theme.ORANGE)
# Measure -> title of its axis.
MEASURES = {
    "promised_chunks": "most promised (chunks)",
    "stall_ms": "waiting for credit (ms)",
    "first_output_ms": "first output, mean (ms)",
    "end_ms": "last output (ms)",
}
_PANEL_PX = 112


def protocol_memory(
    worst: pl.DataFrame, timed: pl.DataFrame, *, b_max: int, title: str = ""
) -> tuple[alt.VConcatChart, pl.DataFrame]:
    """Draw both comparisons.

    Parameters
    ----------
    worst : polars.DataFrame
        ``form``, ``requests``, ``peak_bytes``: exact maxima over all schedules.
    timed : polars.DataFrame
        ``protocol``, ``case`` and the columns of `MEASURES`: one run each.
    b_max : int
        Bound of the form that has one, in bytes of the small world.
    title : str
        Empty where a caption says it.

    Returns
    -------
    (altair.VConcatChart, polars.DataFrame)
        The chart, and long rows ``part`` ("worst case" or "timed run"), ``name``, ``case``, ``measure``, ``value``.
    """
    forms = list(dict.fromkeys(worst["form"]))
    cases = list(dict.fromkeys(timed["case"]))
    protocols = list(dict.fromkeys(timed["protocol"]))
    color = alt.Color("form:N", scale=alt.Scale(domain=forms, range=list(FORM_COLORS)), legend=None)
    x = alt.X(
        "requests:Q",
        title="requests at once",
        axis=alt.Axis(tickMinStep=1, format="d"),
        scale=alt.Scale(padding=10, nice=False, zero=False),
    )
    y = alt.Y("peak_bytes:Q", title="most promised (bytes)", scale=alt.Scale(zero=True), axis=alt.Axis(tickMinStep=1))
    lines = alt.Chart(worst).encode(x=x, y=y, color=color)
    ends = worst.group_by("form", maintain_order=True).last()
    bound = pl.DataFrame({"y": [b_max], "text": ["B_max"]})
    dash = alt.StrokeDash("form:N", scale=alt.Scale(domain=forms, range=list(FORM_DASHES)), legend=None)
    top = alt.LayerChart(
        layer=[
            alt.Chart(bound).mark_rule(strokeDash=[1, 2]).encode(y="y:Q"),
            lines.mark_line().encode(strokeDash=dash),
            lines.mark_point(filled=True, size=40),
            alt.Chart(ends).mark_text(align="left", dx=8).encode(x=x, y=y, text="form:N", color=color),
        ]
    ).properties(width=300, height=120, title="Worst case over all schedules (exact, worlds of 2 chunks per request)")
    panels = [_panel(timed, measure, protocols, cases, first=k == 0) for k, measure in enumerate(MEASURES)]
    below = alt.hconcat(*panels, spacing=10).properties(title="One timed run each (3 requests of 24 chunks)")
    chart: alt.VConcatChart = alt.vconcat(top, below, spacing=18).resolve_scale(color="independent")
    described = (
        f"Worst cases of {len(forms)} forms of credit; timed runs of {len(protocols)} protocols in {len(cases)} cases."
    )
    chart = theme.figure(chart, title=title, alt_text=described)
    rows = [
        worst.select(
            part=pl.lit("worst case"), name="form", case=pl.format("{} requests", "requests"),
            measure=pl.lit("promised_bytes"), value=pl.col("peak_bytes").cast(pl.Float64),
        ),
        timed.unpivot(on=list(MEASURES), index=["protocol", "case"]).select(
            part=pl.lit("timed run"), name="protocol", case="case", measure="variable",
            value=pl.col("value").cast(pl.Float64),
        ),
    ]  # fmt: skip
    return chart, pl.concat(rows)


def _panel(timed: pl.DataFrame, measure: str, protocols: list[str], cases: list[str], *, first: bool) -> alt.Chart:
    legend = alt.Legend(title=None, orient="top") if first else None
    chart: alt.Chart = (
        alt.Chart(timed)
        .mark_bar()
        .encode(
            y=alt.Y("protocol:N", sort=protocols, title=None, axis=alt.Axis(labels=first, ticks=first)),
            yOffset=alt.YOffset("case:N", sort=cases),
            x=alt.X(f"{measure}:Q", title=MEASURES[measure], axis=alt.Axis(tickCount=3)),
            color=alt.Color("case:N", scale=alt.Scale(domain=cases, range=list(CASE_COLORS)), legend=legend),
        )
        .properties(width=_PANEL_PX, height=22 * len(protocols))
    )
    return chart
