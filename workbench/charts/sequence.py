"""A run as a message sequence chart: time runs down, parties are columns, and each step says what happened in words."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable

import altair as alt
import polars as pl

from workbench.charts import theme
from workbench.errors import UsageError

LINE_PX = 15
LANE_PX = 88
HEAD_PX = 20
_LETTER_PX = 5.0
_NUMBER_PX = 30
_MARGIN_PX = 6
MAX_LINES = 80
_TONES = {"step": theme.INK, "fault": theme.VERMILLION, "after": theme.GREY, "wrong": theme.VERMILLION}

# Requests by color, and what is wrong.
REQUEST_COLORS = (theme.BLUE, theme.ORANGE, theme.GREEN, theme.PURPLE)


def sequence(
    lines: pl.DataFrame, messages: pl.DataFrame, launches: pl.DataFrame, *, lanes: list[str], title: str = ""
) -> tuple[alt.LayerChart, pl.DataFrame]:
    """Draw one run.

    Parameters
    ----------
    lines : polars.DataFrame
        What is said, from top to bottom: ``step`` (number of the step it belongs to), ``text``, ``kind``: "step",
        "fault" (a step of the environment), "after" (what followed in the same step) or "wrong" (the verdict).
    messages : polars.DataFrame
        ``request`` (letter), ``source``, ``target``, ``text``, ``sent`` and ``arrived`` (steps; null = still under
        way), ``lost``.
    launches : polars.DataFrame
        Work on a device: ``request``, ``stage``, ``start`` and ``end`` (steps).
    lanes : list of str
        Parties from left to right.
    title : str
        What the run shows.

    Returns
    -------
    (altair.LayerChart, polars.DataFrame)
        The chart; and its rows: ``part`` (line, message, launch), ``step``, ``until``, ``request``, ``source``,
        ``target``, ``text``.

    Raises
    ------
    UsageError
        More than 80 lines, or a party without a lane.
    """
    if lines.height > MAX_LINES:
        raise UsageError(f"at most {MAX_LINES} lines in one sequence", f"{lines.height}")
    named = {*messages["source"], *messages["target"], *launches["stage"]}
    if unknown := sorted(named - set(lanes)):
        raise UsageError(f"parties among {lanes}", repr(unknown[0]), where="sequence")
    verdict = next(
        (row["text"] for row in lines.iter_rows(named=True) if row["kind"] == "wrong"), "nothing is violated"
    )
    steps = lines.filter(pl.col("kind").is_in(["step", "fault"])).height
    page_px = theme.PAGE_IN * theme.PX_PER_IN - _MARGIN_PX - LANE_PX * len(lanes)
    words_px = min(page_px, max((len(text) * _LETTER_PX for text in lines["text"]), default=0.0) + _NUMBER_PX)
    said = lines
    lines = _wrapped(lines, int((words_px - _NUMBER_PX) / _LETTER_PX))
    size_px = (words_px + LANE_PX * len(lanes) + _MARGIN_PX, HEAD_PX + LINE_PX * (lines.height + 0.6))
    at = {lane: words_px + LANE_PX * (k + 0.5) for k, lane in enumerate(lanes)}
    first: dict[int, float] = {}
    for k, step in enumerate(lines["step"]):
        first.setdefault(step, HEAD_PX + LINE_PX * (k + 0.5))
    bottom = size_px[1] - LINE_PX / 2

    def y(step: int | None) -> float:
        return bottom if step is None else first.get(step, bottom)

    words = pl.DataFrame(
        [
            {"y": HEAD_PX + LINE_PX * (k + 0.5), "kind": row["kind"], "text": row["text"]}
            | {"number": str(row["step"]) if row["kind"] in ("step", "fault") and not row["more"] else ""}
            for k, row in enumerate(lines.iter_rows(named=True))
        ]
    )
    arrows = _arrows(messages, at, y)
    work = pl.DataFrame(
        [
            {"x": at[row["stage"]], "y": y(row["start"]), "y2": y(row["end"]), "request": row["request"]}
            for row in launches.iter_rows(named=True)
        ],
        schema={"x": pl.Float64, "y": pl.Float64, "y2": pl.Float64, "request": pl.String},
    )
    drawn = _draw(words, arrows, work, at, size_px)
    shown = theme.figure(
        drawn,
        width_in=size_px[0] / theme.PX_PER_IN,
        height_in=(size_px[1] + (22 if title else 0)) / theme.PX_PER_IN,
        title=title,
        alt_text=f"Message sequence of {steps} steps between {', '.join(lanes)}; {verdict}.",
    )
    return shown, _rows(said, messages, launches)


def _wrapped(lines: pl.DataFrame, letters: int) -> pl.DataFrame:
    """The lines, those too long for their column continued on further lines (``more``)."""
    rows = []
    for row in lines.iter_rows(named=True):
        indent = "  " if row["kind"] == "after" else ""
        parts = textwrap.wrap(row["text"], max(letters, 20), initial_indent=indent, subsequent_indent=indent + "  ")
        rows += [{**row, "text": part, "more": k > 0} for k, part in enumerate(parts or [""])]
    return pl.DataFrame(rows, schema={**lines.schema, "more": pl.Boolean})


def _arrows(messages: pl.DataFrame, at: dict[str, float], y: Callable[[int | None], float]) -> pl.DataFrame:
    rows, said = [], set()
    for row in messages.iter_rows(named=True):
        x0, x1 = at[row["source"]], at[row["target"]]
        y0, y1 = y(row["sent"]), y(row["arrived"])
        if row["arrived"] is None or row["lost"]:
            x1 = x0 + 0.62 * (x1 - x0)
        if y1 == y0:
            y1 = y0 + 3
        end = "lost" if row["lost"] else "under way" if row["arrived"] is None else "arrived"
        key = (row["sent"], row["source"], row["target"], row["text"])
        text = "" if key in said else row["text"]
        said.add(key)
        # A message that passes other parties carries its text before the first of them.
        share = 0.5 if abs(at[row["target"]] - x0) < 1.5 * LANE_PX else 0.25
        if end == "under way":
            share = 0.85
        rows.append(
            {"x": x0, "y": y0, "x2": x1, "y2": y1, "request": row["request"], "text": text, "end": end}
            | {"angle": math.degrees(math.atan2(y1 - y0, x1 - x0)) + 90}
            | {"label_x": x0 + share * (x1 - x0), "label_y": y0 + share * (y1 - y0)}
        )
    numbers = dict.fromkeys(("x", "y", "x2", "y2", "angle", "label_x", "label_y"), pl.Float64)
    strings = dict.fromkeys(("request", "text", "end"), pl.String)
    return pl.DataFrame(rows, schema={**numbers, **strings})


def _draw(
    words: pl.DataFrame,
    arrows: pl.DataFrame,
    work: pl.DataFrame,
    at: dict[str, float],
    size_px: tuple[float, float],
) -> alt.LayerChart:
    x_scale = alt.Scale(domain=[0, size_px[0]], nice=False, zero=False)
    y_scale = alt.Scale(domain=[size_px[1], 0], nice=False, zero=False)

    def x(field: str) -> alt.X:
        return alt.X(field, axis=None, scale=x_scale)

    def y(field: str) -> alt.Y:
        return alt.Y(field, axis=None, scale=y_scale)

    letters = sorted({*arrows["request"], *work["request"]})
    color = alt.Color(
        "request:N", title="request",
        scale=alt.Scale(domain=letters, range=[REQUEST_COLORS[k % 4] for k in range(len(letters))]),
        legend=alt.Legend(orient="top") if len(letters) > 1 else None,
    )  # fmt: skip
    heads = pl.DataFrame(
        [{"lane": lane, "x": px, "y": 8.0, "top": float(HEAD_PX), "end": size_px[1]} for lane, px in at.items()]
    )
    tone = alt.Color(
        "kind:N", legend=None,
        scale=alt.Scale(domain=list(_TONES), range=list(_TONES.values())),
    )  # fmt: skip
    said = alt.Chart(words).encode(y=y("y:Q"), color=tone)
    layers = [
        alt.Chart(words.filter(pl.col("kind").is_in(["step", "fault"])))
        .mark_rule(color=theme.GRID)
        .encode(x=x("left:Q"), x2="right:Q", y=y("y:Q"))
        .transform_calculate(left=str(min(at.values()) - LANE_PX / 2), right=str(size_px[0])),
        alt.Chart(heads).mark_rule(color=theme.GREY).encode(x=x("x:Q"), y=y("top:Q"), y2="end:Q"),
        alt.Chart(heads).mark_text(fontWeight="bold").encode(x=x("x:Q"), y=y("y:Q"), text="lane:N"),
        said.mark_text(align="right", x=16).encode(text="number:N"),
        said.mark_text(align="left", x=22).encode(text="text:N"),
        alt.Chart(work).mark_rule(strokeWidth=7).encode(x=x("x:Q"), y=y("y:Q"), y2="y2:Q", color=color),
        alt.Chart(arrows)
        .mark_rule(strokeWidth=1.2)
        .encode(
            x=x("x:Q"), x2="x2:Q", y=y("y:Q"), y2="y2:Q", color=color,
            strokeDash=alt.StrokeDash(
                "end:N", legend=None,
                scale=alt.Scale(domain=["arrived", "lost", "under way"], range=[[1, 0], [4, 2], [1, 2]]),
            ),
        ),
        alt.Chart(arrows.filter(pl.col("end") == "arrived"))
        .mark_point(shape="triangle", filled=True, size=30)
        .encode(
            x=x("x2:Q"), y=y("y2:Q"), color=color,
            angle=alt.Angle("angle:Q", scale=alt.Scale(domain=[0, 360], range=[0, 360])),
        ),
        alt.Chart(arrows.filter(pl.col("end") == "lost"))
        .mark_text(text="x", fontWeight="bold", fontSize=14, color=theme.VERMILLION)
        .encode(x=x("x2:Q"), y=y("y2:Q")),
    ]  # fmt: skip
    labels = alt.Chart(arrows).encode(x=x("label_x:Q"), y=y("label_y:Q"), text="text:N")
    layers += [labels.mark_text(stroke="white", strokeWidth=4, fontSize=9), labels.mark_text(fontSize=9)]
    chart: alt.LayerChart = alt.LayerChart(layer=layers).resolve_scale(color="independent")
    return chart


def _rows(lines: pl.DataFrame, messages: pl.DataFrame, launches: pl.DataFrame) -> pl.DataFrame:
    said = lines.select(part=pl.lit("line"), step="step", until="step", text="text")
    sent = messages.select(
        part=pl.when("lost").then(pl.lit("message lost")).otherwise(pl.lit("message")),
        step="sent", until="arrived", request="request", source="source", target="target", text="text",
    )  # fmt: skip
    worked = launches.select(part=pl.lit("launch"), step="start", until="end", request="request", source="stage")
    return pl.concat([said, sent, worked], how="diagonal_relaxed").select(
        "part", "step", "until", "request", "source", "target", "text"
    )
