"""States as boxes and observed transitions as arrows with what caused them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from workbench.charts import theme
from workbench.errors import UsageError

Point = tuple[float, float]
Row = dict[str, Any]

BOX_PX = (92.0, 20.0)
GRID_PX = (236.0, 62.0)
_MARGIN_PX = 12
_LINE_PX = 10.5
_LETTER_PX = 4.7
_CURVE_STEPS = 64
# What a transition is colored by: the machine's own step, or one that the environment forces.
CAUSES = {"machine": theme.INK, "environment": theme.VERMILLION}


def state_diagram(
    edges: pl.DataFrame, places: Mapping[str, Point], *, title: str = "", alt_text: str = ""
) -> tuple[alt.LayerChart, pl.DataFrame]:
    """Draw one state machine.

    Parameters
    ----------
    edges : polars.DataFrame
        ``source``, ``target``, ``label`` (one cause; an edge may have several rows), ``cause``: "machine" or
        "environment", ``transitions`` (how often it was seen).
    places : mapping of str to (float, float)
        Column and row of each state; the order of the mapping is the order of the frame.
    title, alt_text : str
        As for `theme.figure`.

    Returns
    -------
    (altair.LayerChart, polars.DataFrame)
        The chart, and the rows of `edges` in the order of the states.

    Raises
    ------
    UsageError
        A transition from or to a state without a place.
    """
    names = list(places)
    if unknown := sorted({*edges["source"], *edges["target"]} - set(names)):
        raise UsageError(f"states among {names}", repr(unknown[0]), where="state diagram")
    rank = {name: k for k, name in enumerate(names)}
    frame = (
        edges.with_columns(
            pl.col("source").replace_strict(rank, return_dtype=pl.Int64).alias("_s"),
            pl.col("target").replace_strict(rank, return_dtype=pl.Int64).alias("_t"),
        )
        .sort("_s", "_t", "cause", "label")
        .drop("_s", "_t")
    )
    left = min(column for column, _ in places.values())
    top = min(row for _, row in places.values())
    at = {
        name: (
            _MARGIN_PX + BOX_PX[0] / 2 + (column - left) * GRID_PX[0],
            _MARGIN_PX + BOX_PX[1] / 2 + (row - top) * GRID_PX[1],
        )
        for name, (column, row) in places.items()
    }
    lines, tips, words = _arrows(frame, at)
    reach = max([x for x, _ in at.values()] + [row["x"] + row["half"] - BOX_PX[0] / 2 for row in words])
    size = (reach + BOX_PX[0] / 2 + _MARGIN_PX, max(y for _, y in at.values()) + BOX_PX[1] / 2 + _MARGIN_PX)
    boxes = pl.DataFrame([{"state": name, "x": x, "y": y} for name, (x, y) in at.items()])
    chart = _draw(boxes, pl.DataFrame(lines), pl.DataFrame(tips), pl.DataFrame(words), size)
    shown = theme.figure(
        chart,
        width_in=size[0] / theme.PX_PER_IN,
        height_in=(size[1] + (22 if title else 0)) / theme.PX_PER_IN,
        title=title,
        alt_text=alt_text or f"{len(names)} states and {edges.select('source', 'target').n_unique()} transitions.",
    )
    return shown, frame


def _arrows(frame: pl.DataFrame, at: Mapping[str, Point]) -> tuple[list[Row], list[Row], list[Row]]:
    """Polylines, tips and labels. Edges into one state for one and the same reason share a label."""
    lines: list[Row] = []
    tips: list[Row] = []
    groups: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    causes: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for source, target, label, cause in frame.select("source", "target", "label", "cause").iter_rows():
        causes.setdefault((source, target), []).append((label, cause))
    for pair, reasons in causes.items():
        groups.setdefault((pair[1], repr(sorted(reasons))), []).append(pair)
    # Only a bundle of arrows shares its words; two arrows carry their own.
    groups = {
        (*key, str(part)): bundle
        for key, pairs in groups.items()
        for part, bundle in enumerate([pairs] if len(pairs) > 2 else [[pair] for pair in pairs])
    }
    words: list[Row] = []
    for (target, *_), pairs in groups.items():
        reasons = causes[pairs[0]]
        main = "machine" if any(cause == "machine" for _, cause in reasons) else "environment"
        for number, (source, _) in enumerate(pairs):
            points = _route(source, target, at, back=(target, source) in causes)
            key = f"{source}>{target}"
            lines += [{"edge": key, "order": k, "x": x, "y": y, "cause": main} for k, (x, y) in enumerate(points)]
            (x0, y0), (x1, y1) = points[-2], points[-1]
            angle = math.degrees(math.atan2(y1 - y0, x1 - x0)) + 90
            tips.append({"edge": key, "x": x1, "y": y1, "angle": angle, "cause": main})
            if number == 0:
                mutual = (target, source) in causes
                x, y = points[int(len(points) * (0.32 if mutual else 0.5))]
                if mutual and abs(points[0][1] - points[-1][1]) < BOX_PX[1]:
                    # Two arrows side by side: each carries its words on its own side.
                    y += math.copysign(3 + len(reasons) * _LINE_PX / 2, points[-1][0] - points[0][0])
                for k, (label, cause) in enumerate(reasons):
                    line_y = y + (k - (len(reasons) - 1) / 2) * _LINE_PX
                    words.append(
                        {"edge": key, "x": x, "y": line_y, "text": label, "cause": cause}
                        | {"half": len(label) * _LETTER_PX / 2}
                    )
    return lines, tips, words


def _route(source: str, target: str, at: Mapping[str, Point], *, back: bool) -> list[Point]:
    """Points from border to border: straight, or bent to the right around boxes that lie between."""
    start, end = at[source], at[target]
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = math.hypot(dx, dy)
    aside = 6.0 if back else 0.0
    shift = (-dy / length * aside, dx / length * aside)
    start, end = (start[0] + shift[0], start[1] + shift[1]), (end[0] + shift[0], end[1] + shift[1])
    others = [point for name, point in at.items() if name not in (source, target)]
    blocked = sum(_near(start, end, point) for point in others)
    bends = [0.0] if not blocked else [side * (70.0 + 45.0 * blocked) for side in (1, -1)]
    routes = [_curve(start, end, bend) for bend in bends]
    # Around what lies between, on the side with more room.
    curve = max(routes, key=lambda route: min((_far(route, point) for point in others), default=0.0))
    inside = [_inside(point, at[source], 1) or _inside(point, at[target], 3) for point in curve]
    kept = [point for point, hidden in zip(curve, inside, strict=True) if not hidden]
    return kept if len(kept) > 2 else curve


def _curve(start: Point, end: Point, bend: float) -> list[Point]:
    """A line, or a parabola whose middle lies `bend` to the right of it."""
    middle = ((start[0] + end[0]) / 2 + 2 * bend, (start[1] + end[1]) / 2)
    return [
        tuple((1 - t) ** 2 * start[i] + 2 * t * (1 - t) * middle[i] + t * t * end[i] for i in (0, 1))  # type: ignore[misc]
        for t in (k / _CURVE_STEPS for k in range(_CURVE_STEPS + 1))
    ]


def _far(route: list[Point], box: Point) -> float:
    """Least distance of a route from a box, counted from its middle in widths and heights."""
    return min(max(abs(x - box[0]) / BOX_PX[0], abs(y - box[1]) / BOX_PX[1]) for x, y in route)


def _near(start: Point, end: Point, point: Point) -> bool:
    """Whether a straight line would cross the box around `point`."""
    return any(
        _inside((start[0] + t * (end[0] - start[0]), start[1] + t * (end[1] - start[1])), point, 4)
        for t in (k / 60 for k in range(61))
    )


def _inside(point: Point, box: Point, room: float) -> bool:
    return abs(point[0] - box[0]) < BOX_PX[0] / 2 + room and abs(point[1] - box[1]) < BOX_PX[1] / 2 + room


def _draw(
    boxes: pl.DataFrame, lines: pl.DataFrame, tips: pl.DataFrame, words: pl.DataFrame, size: tuple[float, float]
) -> alt.LayerChart:
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, size[0]], nice=False, zero=False))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[size[1], 0], nice=False, zero=False))
    color = alt.Color("cause:N", legend=None, scale=alt.Scale(domain=list(CAUSES), range=list(CAUSES.values())))
    flow = alt.Chart(lines).mark_line(strokeWidth=1.1).encode(x=x, y=y, detail="edge:N", order="order:Q", color=color)
    heads = (
        alt.Chart(tips)
        .mark_point(shape="triangle", filled=True, size=34)
        .encode(
            x=x, y=y, color=color, angle=alt.Angle("angle:Q", scale=alt.Scale(domain=[0, 360], range=[0, 360])),
        )
    )  # fmt: skip
    text = alt.Chart(words).encode(x=x, y=y, text="text:N")
    frames = (
        alt.Chart(boxes)
        .mark_rect(cornerRadius=4, fill="white", stroke=theme.BLUE, strokeWidth=1.5)
        .transform_calculate(
            left=f"datum.x - {BOX_PX[0] / 2}", right=f"datum.x + {BOX_PX[0] / 2}",
            top=f"datum.y - {BOX_PX[1] / 2}", bottom=f"datum.y + {BOX_PX[1] / 2}",
        )
        .encode(
            x=alt.X("left:Q", axis=None, scale=alt.Scale(domain=[0, size[0]], nice=False, zero=False)), x2="right:Q",
            y=alt.Y("top:Q", axis=None, scale=alt.Scale(domain=[size[1], 0], nice=False, zero=False)), y2="bottom:Q",
        )
    )  # fmt: skip
    names = alt.Chart(boxes).mark_text(fontWeight="bold").encode(x=x, y=y, text="state:N")
    halo = text.mark_text(stroke="white", strokeWidth=4, fontSize=9.5)
    inked = text.mark_text(fontSize=9.5).encode(color=color)
    return alt.LayerChart(layer=[flow, heads, halo, inked, frames, names])


def stacked(panels: Sequence[tuple[str, alt.LayerChart, pl.DataFrame]]) -> tuple[alt.VConcatChart, pl.DataFrame]:
    """Several state machines in one figure; the frame says in ``machine`` which one a row belongs to."""
    parts = []
    for name, chart, _ in panels:
        part = chart.copy()
        part.autosize = alt.Undefined
        parts.append(part.properties(title=name))
    frames = [frame.select(pl.lit(name).alias("machine"), pl.all()) for name, _, frame in panels]
    described = "; ".join(f"{name}: {frame.height} kinds of transition" for name, _, frame in panels)
    joined: alt.VConcatChart = alt.vconcat(*parts, spacing=14).properties(description=described)
    return joined, pl.concat(frames)
