"""The timeline of one request: stages as rows, work solid, waits light, hand-offs and credits as marks."""

from __future__ import annotations

import altair as alt
import polars as pl

from workbench.charts import theme
from workbench.errors import UsageError
from workbench.schema.enums import WAIT_KINDS

MAX_BARS = 2_000
LANES = ("wait", "work")
# Moments that catch the eye.
STRIKING = ("first audio", "fault", "deadline")
# One for each credit event, take-over and first audio.
SHAPES = ("triangle-down", "diamond", "circle", "cross", "square", "triangle-up", "triangle-left", "triangle-right")
COLUMNS = ("stage", "kind", "start_ns", "end_ns")


def timeline(
    intervals: pl.DataFrame,
    *,
    stages: list[str],
    origin_ns: int,
    marks: pl.DataFrame | None = None,
    width_in: float = theme.PAGE_IN,
    title: str = "",
) -> tuple[alt.LayerChart, pl.DataFrame]:
    """Draw one request.

    Waits lie in the upper half of a stage's row and work in the lower half, so that a wait is never taken for work.

    Parameters
    ----------
    intervals : polars.DataFrame
        Rows of the view ``interval`` of one request, at least ``stage``, ``kind``, ``start_ns``, ``end_ns``; rows
        without an end (a chunk that never arrived) are left out.
    stages : list of str
        Rows from top to bottom, in graph order.
    origin_ns : int
        Zero of the time axis, usually the scheduled arrival.
    marks : polars.DataFrame, optional
        Moments to mark: ``stage``, ``at_ns``, ``what`` (e.g. "chunk taken over", "credit returned", "first audio").
    width_in : float
        Width in inches.
    title : str
        Empty where a caption says it.

    Returns
    -------
    (altair.LayerChart, polars.DataFrame)
        The chart, and its rows: ``stage``, ``kind``, ``lane``, ``start_ms``, ``end_ms`` sorted by start; marks follow
        as rows of kind ``mark: WHAT`` with equal start and end.

    Raises
    ------
    UsageError
        More than 2,000 intervals, or a stage that is not listed.
    """
    drawn = intervals.filter(pl.col("end_ns").is_not_null()).select(
        pl.col("stage").cast(pl.String),
        pl.col("kind").cast(pl.String),
        pl.when(pl.col("kind").cast(pl.String).is_in([*WAIT_KINDS, "unattributed"]))
        .then(pl.lit("wait"))
        .otherwise(pl.lit("work"))
        .alias("lane"),
        ((pl.col("start_ns") - origin_ns) / 1e6).alias("start_ms"),
        ((pl.col("end_ns") - origin_ns) / 1e6).alias("end_ms"),
    )
    if drawn.height > MAX_BARS:
        raise UsageError(
            f"at most {MAX_BARS:,} intervals in one timeline",
            f"{drawn.height:,}",
            fix="Draw a window: filter the intervals by start_ns and end_ns.",
        )
    placed = set(drawn["stage"]) | (set() if marks is None else set(marks["stage"].cast(pl.String)))
    if unknown := sorted(placed - set(stages)):
        raise UsageError(f"stages among {stages}", repr(unknown[0]), where="timeline")
    drawn = drawn.sort("start_ms", "end_ms", "stage", "kind")
    kinds = drawn["kind"].unique().to_list()
    y = alt.Y("stage:N", sort=stages, title=None, scale=alt.Scale(domain=stages))
    offset = alt.YOffset("lane:N", scale=alt.Scale(domain=list(LANES), paddingOuter=0.12))
    x = alt.X("start_ms:Q", title="time since scheduled arrival (ms)", scale=alt.Scale(zero=True, nice=False))
    color = alt.Color(
        "kind:N", scale=theme.kind_scale(kinds), title=None, legend=alt.Legend(labelExpr=theme.PLAIN_LABELS)
    )
    bars = (
        alt.Chart(drawn)
        .mark_bar(minBandSize=1)
        .encode(
            y, offset, x, alt.X2("end_ms:Q"), color,
            tooltip=["stage:N", "kind:N", *(alt.Tooltip(f"{end}_ms:Q", format=".2f") for end in ("start", "end"))],
        )
    )  # fmt: skip
    layers: list[alt.Chart] = [bars]
    frame = drawn
    if marks is not None and marks.height:
        points = marks.select(
            pl.col("stage").cast(pl.String),
            pl.col("what").cast(pl.String),
            ((pl.col("at_ns") - origin_ns) / 1e6).alias("at_ms"),
        ).sort("at_ms", "stage", "what")
        shapes = sorted(points["what"].unique().to_list())
        layers.append(
            alt.Chart(points)
            .mark_point(filled=True, size=26)
            .encode(
                y,
                x=alt.X("at_ms:Q"),
                shape=alt.Shape(
                    "what:N",
                    title=None,
                    scale=alt.Scale(domain=shapes, range=list(SHAPES[: len(shapes)])),
                ),
                color=alt.condition(
                    f"indexof({list(STRIKING)}, datum.what) >= 0", alt.value(theme.VERMILLION), alt.value(theme.INK)
                ),
                size=alt.condition("datum.what == 'first audio'", alt.value(60), alt.value(26)),
                tooltip=["what:N", "stage:N", alt.Tooltip("at_ms:Q", format=".2f")],
            )
        )
        frame = pl.concat(
            [
                frame,
                points.select(
                    "stage",
                    ("mark: " + pl.col("what")).alias("kind"),
                    pl.lit("mark").alias("lane"),
                    pl.col("at_ms").alias("start_ms"),
                    pl.col("at_ms").alias("end_ms"),
                ),
            ]
        )
    chart = alt.layer(*layers).resolve_scale(shape="independent")
    height_in = 0.55 + 0.34 * len(stages)
    last = float(drawn["end_ms"].max() or 0.0)  # type: ignore[arg-type]
    shown = theme.figure(
        chart,
        width_in=width_in,
        height_in=height_in,
        title=title,
        alt_text=f"Timeline of one request over {len(stages)} stages; its last interval ends after {last:.0f} ms.",
    )
    return shown, frame
