"""A whole run in one linked chart: brush requests by arrival and latency, pick one in the list, read its timeline."""

from __future__ import annotations

import altair as alt
import polars as pl

from workbench.charts import theme
from workbench.schema.enums import OUTCOME_STATUS, WAIT_KINDS

LIST_ROWS = 14
ROW_PX = 13
SCATTER_PX, LIST_PX, TIMELINE_PX = 220, 370, 560

STATUS_COLORS = {
    "ok": theme.BLUE,
    "error": theme.VERMILLION,
    "cancelled": theme.PURPLE,
    "rejected": theme.BLACK,
    "timeout": theme.ORANGE,
    "unfinished": theme.GREY,
}

# Left edges of the columns of the list, in pixels.
_COLUMNS = {"request": 4, "class": 50, "status": 98, "seconds": 158, "mostly": 206}
_PICKED, _ROW = "#FBE3A6", "#F5F5F5"


def overview(
    requests: pl.DataFrame,
    intervals: pl.DataFrame,
    *,
    stages: list[str],
    latency_title: str,
    picked: int | None = None,
    notes: tuple[str, ...] = (),
    title: str = "",
) -> tuple[alt.VConcatChart, pl.DataFrame]:
    """Link all requests of a run, a list of the brushed ones, and the timeline of the one that was clicked.

    Parameters
    ----------
    requests : polars.DataFrame
        One row per request: ``request``, ``class``, ``status``, ``arrival_s`` from the run's first arrival,
        ``latency_s``, ``mostly`` (what most of its time went to, in a few words), ``has_timeline``. Points without a
        timeline are hollow and are not listed.
    intervals : polars.DataFrame
        Of the requests with a timeline: ``request``, ``stage``, ``kind``, ``start_ms`` and ``end_ms`` since the
        scheduled arrival, ``joined`` (recorded intervals in this bar), ``what``. A moment has kind NULL, its name in
        ``what``, and equal start and end.
    stages : list of str
        Rows of the timeline from top to bottom.
    latency_title : str
        What ``latency_s`` is, for the axis.
    picked : int, optional
        Request whose timeline is shown at first; the slowest listed one by default.
    notes : tuple of str
        Sentences under the title: what the chart leaves out.
    title : str
        Empty where a caption says it.

    Returns
    -------
    (altair.VConcatChart, polars.DataFrame)
        The chart, and its rows: those of `requests`, then those of `intervals`, missing columns NULL.

    Raises
    ------
    UsageError
        More than 5,000 rows in both frames together.
    """
    theme.check_rows(requests.height + intervals.height)
    points = requests.sort("latency_s", "request", descending=[True, False])
    if picked is None:
        picked = next(iter(points.filter("has_timeline")["request"]), None)
    brush = alt.selection_interval(name="brush", encodings=["x", "y"])
    pick = alt.selection_point(
        name="pick",
        fields=["request"],
        toggle=False,
        empty=False,
        value=[{"request": picked}] if picked is not None else alt.Undefined,
    )
    scatter = _scatter(points, brush, pick, latency_title)
    rows = _list(points.filter("has_timeline"), brush, pick)
    bars = _timeline(intervals, stages, pick)
    heading = alt.Title(title, subtitle=list(notes), subtitleFontSize=theme.TEXT_PX, subtitleColor=theme.INK)
    chart = alt.vconcat(alt.hconcat(scatter, rows, spacing=14), bars, spacing=14)
    chart = chart.resolve_scale(color="independent", shape="independent")
    shown = theme.figure(
        chart,
        alt_text=f"{requests.height} requests by arrival and latency, a list of them, and the timeline of one.",
    )
    if title or notes:
        shown = shown.properties(title=heading)
    return shown, pl.concat([points, intervals], how="diagonal")


def _scatter(points: pl.DataFrame, brush: alt.Parameter, pick: alt.Parameter, latency_title: str) -> alt.LayerChart:
    present = [status for status in OUTCOME_STATUS if status in set(points["status"])]
    scale = alt.Scale(domain=present, range=[STATUS_COLORS[status] for status in present])
    base = alt.Chart(points).encode(
        x=alt.X("arrival_s:Q", title="scheduled arrival (s)"),
        y=alt.Y("latency_s:Q", title=latency_title, scale=alt.Scale(zero=True)),
        tooltip=[
            "request:Q",
            "class:N",
            "status:N",
            alt.Tooltip("arrival_s:Q", format=".3f"),
            alt.Tooltip("latency_s:Q", format=".3f"),
            "mostly:N",
        ],
    )
    color = alt.Color("status:N", title=None, scale=scale)
    dots = base.mark_point(size=26, strokeWidth=1.2).encode(
        stroke=alt.when(brush).then(color).otherwise(alt.value(theme.MUTED)),
        fill=alt.when(brush & alt.datum.has_timeline).then(color).otherwise(alt.value("white")),
    )
    ring = base.transform_filter(pick).mark_point(size=110, filled=False, stroke=theme.INK, strokeWidth=1.4)
    return alt.LayerChart(layer=[dots.add_params(brush), ring]).properties(
        width=SCATTER_PX, height=ROW_PX * LIST_ROWS, title=_small("Drag over requests to choose")
    )


def _list(points: pl.DataFrame, brush: alt.Parameter, pick: alt.Parameter) -> alt.LayerChart:
    base = (
        alt.Chart(points)
        .transform_filter(brush)
        .transform_window(
            rank="row_number()",
            sort=[alt.SortField("latency_s", order="descending"), alt.SortField("request")],
        )
        .transform_filter(alt.datum.rank <= LIST_ROWS)
        .encode(y=alt.Y("rank:O", axis=None, scale=alt.Scale(domain=list(range(1, LIST_ROWS + 1)), padding=0)))
    )
    hit = base.mark_bar(cursor="pointer").encode(
        x=alt.value(0),
        x2=alt.value(LIST_PX),
        color=alt.when(pick).then(alt.value(_PICKED)).otherwise(alt.value(_ROW)),
        tooltip=["request:Q", "mostly:N"],
    )
    texts = {
        "request": alt.Text("request:Q"),
        "class": alt.Text("class:N"),
        "status": alt.Text("status:N"),
        "seconds": alt.Text("latency_s:Q", format=".3f"),
        "mostly": alt.Text("mostly:N"),
    }
    columns = [
        base.mark_text(align="left", baseline="middle", cursor="pointer", limit=_width(name)).encode(
            x=alt.value(_COLUMNS[name]), text=text
        )
        for name, text in texts.items()
    ]
    heads = [
        alt.Chart(pl.DataFrame({"head": [name]}))
        .mark_text(align="left", baseline="bottom", color=theme.GREY)
        .encode(x=alt.value(left), y=alt.value(-2), text="head:N")
        for name, left in _COLUMNS.items()
    ]
    return alt.LayerChart(layer=[hit.add_params(pick), *columns, *heads]).properties(
        width=LIST_PX, height=ROW_PX * LIST_ROWS, title=_small("The slowest of them: click one", offset=18)
    )


def _width(column: str) -> int:
    left = [*_COLUMNS.values(), LIST_PX]
    return left[list(_COLUMNS).index(column) + 1] - _COLUMNS[column] - 4


def _timeline(intervals: pl.DataFrame, stages: list[str], pick: alt.Parameter) -> alt.LayerChart:
    drawn = intervals.filter(pl.col("kind").is_not_null()).with_columns(
        pl.when(pl.col("kind").is_in(WAIT_KINDS)).then(pl.lit("wait")).otherwise(pl.lit("work")).alias("lane")
    )
    y = alt.Y("stage:N", sort=stages, title=None, scale=alt.Scale(domain=stages))
    x = alt.X(
        "start_ms:Q",
        title="time since scheduled arrival (ms)",
        scale=alt.Scale(zero=True, nice=False),
        axis=alt.Axis(tickCount=8),
    )
    bars = (
        alt.Chart(drawn)
        .transform_filter(pick)
        .mark_bar(minBandSize=1)
        .encode(
            x=x,
            x2="end_ms:Q",
            y=y,
            yOffset=alt.YOffset("lane:N", scale=alt.Scale(domain=["wait", "work"], paddingOuter=0.12)),
            color=alt.Color(
                "kind:N",
                title=None,
                scale=theme.kind_scale(drawn["kind"].unique()),
                legend=alt.Legend(labelExpr=theme.PLAIN_LABELS),
            ),
            tooltip=[
                "stage:N",
                "kind:N",
                alt.Tooltip("start_ms:Q", format=".2f"),
                alt.Tooltip("end_ms:Q", format=".2f"),
                "joined:Q",
            ],
        )
    )
    moments = (
        alt.Chart(intervals.filter(pl.col("kind").is_null()))
        .transform_filter(pick)
        .mark_point(filled=True, size=40, color=theme.INK, shape="diamond")
        .encode(x=x, y=y, tooltip=["what:N", alt.Tooltip("start_ms:Q", format=".2f")])
    )
    return alt.LayerChart(layer=[bars, moments]).properties(
        width=TIMELINE_PX, height=round(0.3 * theme.PX_PER_IN * len(stages)), title=_small("Its timeline")
    )


def _small(text: str, offset: int = 4) -> alt.Title:
    return alt.Title(text, fontSize=theme.TEXT_PX, fontWeight="normal", offset=offset)
