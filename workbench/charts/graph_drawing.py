"""A stage graph as a drawing: work flows from top to bottom, streams are solid lines and whole payloads dashed ones."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import polars as pl

from workbench.charts import theme
from workbench.errors import UsageError

LAYER_PX, BOX_PX = 62, 34
_MARGIN_PX, _TITLE_PX = 6, 24
_LETTER_PX, _BOLD_PX, _TITLE_LETTER_PX = 5.8, 6.8, 7.2  # of the theme's type, on the safe side
_SWEEPS = 4

_LINE = {"edge": pl.Int64, "order": pl.Int64, "x": pl.Float64, "y": pl.Float64, "kind": pl.String}
_LABEL = {
    "name": pl.String, "text": pl.String, "kind": pl.String,
    "x": pl.Float64, "y": pl.Float64, "tip_x": pl.Float64, "tip_y": pl.Float64,
}  # fmt: skip

Point = tuple[float, float]  # slot in the layer, layer


def graph_drawing(stages: pl.DataFrame, edges: pl.DataFrame, *, title: str = "") -> tuple[alt.LayerChart, pl.DataFrame]:
    """Draw stages and edges as a trace's tables ``stage`` and ``edge`` name them.

    Layers are longest paths from the client; within a layer stages lie near the mean place of their neighbors
    (Sugiyama, Tagawa & Toda 1981). Stages with the role ``client`` are drawn twice, where requests leave them and where
    outputs come back. The size follows from the graph.

    Parameters
    ----------
    stages : polars.DataFrame
        ``stage``, ``role``; ``note`` (a few words after the role, e.g. the device) if present.
    edges : polars.DataFrame
        ``source``, ``target``, ``modality``, ``kind`` ("stream" or "whole").
    title : str
        Empty where a caption says it.

    Returns
    -------
    (altair.LayerChart, polars.DataFrame)
        The chart, and one row per box and edge: ``part`` ("stage" or "edge"), ``name``, ``layer`` and ``slot`` of the
        box or of the middle of the edge.

    Raises
    ------
    UsageError
        An edge whose end is not a stage, no stage at all, or a cycle among stages that are not clients.
    """
    roles = dict(stages.select(pl.col("stage").cast(pl.String), pl.col("role").cast(pl.String)).iter_rows())
    if not roles:
        raise UsageError("at least one stage", "none", where="graph drawing")
    notes = dict(stages.select(pl.col("stage").cast(pl.String), "note").iter_rows()) if "note" in stages.columns else {}
    links = [_link(row, roles) for row in edges.iter_rows(named=True)]
    layers = _layers([name for name, role in roles.items() if role != "client"], links)
    place, routes = _place(layers, links)
    below = {
        name: ", ".join(filter(None, (role if role != name else "", notes.get(name)))) for name, role in roles.items()
    }
    width_px = 14 + max(max(len(n) * _BOLD_PX, len(text) * _LETTER_PX) for n, text in below.items())
    widest = max(len(link["text"]) for link in links) * _LETTER_PX if links else 0.0
    slot_px = max(width_px, widest) + 18
    left = min(slot for route in [*routes, [*place.values()]] for slot, _ in route)

    def at(point: Point, down_px: float = 0.0) -> dict[str, float]:
        slot, layer = point
        return {
            "x": _MARGIN_PX + width_px / 2 + (slot - left) * slot_px,
            "y": _MARGIN_PX + BOX_PX / 2 + layer * LAYER_PX + down_px,
        }

    boxes: list[dict[str, Any]] = []
    for node, point in place.items():
        middle, name = at(point), _plain(node)
        boxes.append(
            {"name": name, "below": below[name], "name_y": middle["y"] + (0 if below[name] else 7), **middle}
            | {"x0": middle["x"] - width_px / 2, "x1": middle["x"] + width_px / 2}
            | {"y0": middle["y"] - BOX_PX / 2, "y1": middle["y"] + BOX_PX / 2}
        )
    lines: list[dict[str, Any]] = []
    labels: list[dict[str, Any]] = []
    for number, (link, route) in enumerate(zip(links, routes, strict=True)):
        through = [at(point, side * BOX_PX / 2) for point in route[1:-1] for side in (-1, 1)]
        points = [at(route[0], BOX_PX / 2), *through, at(route[-1], -BOX_PX / 2)]
        lines += [{"edge": number, "order": k, "kind": link["kind"], **point} for k, point in enumerate(points)]
        before, after = points[len(points) // 2 - 1], points[len(points) // 2]
        there = _along(link, links)
        labels.append(
            {"name": f"{link['from']}>{link['to']}", "text": link["text"], "kind": link["kind"]}
            | {axis: before[axis] + there * (after[axis] - before[axis]) for axis in ("x", "y")}
            | {"tip_x": points[-1]["x"], "tip_y": points[-1]["y"]}
        )
    right = max(slot for route in [*routes, [*place.values()]] for slot, _ in route)
    size_px = (
        max(2 * _MARGIN_PX + width_px + (right - left) * slot_px, len(title) * _TITLE_LETTER_PX),
        2 * _MARGIN_PX + BOX_PX + (len(layers) - 1) * LAYER_PX,
    )
    drawn = _draw(pl.DataFrame(boxes), pl.DataFrame(lines, schema=_LINE), pl.DataFrame(labels, schema=_LABEL), size_px)
    shown = theme.figure(
        drawn,
        width_in=size_px[0] / theme.PX_PER_IN,
        height_in=(size_px[1] + (_TITLE_PX if title else 0)) / theme.PX_PER_IN,
        title=title,
        alt_text=f"Stage graph of {len(roles)} stages and {len(links)} edges, from the client at the top back to it.",
    )
    rows = [{"part": "stage", "name": _plain(node), "layer": y, "slot": x} for node, (x, y) in place.items()]
    for link, route in zip(links, routes, strict=True):
        (x0, y0), (x1, y1) = route[len(route) // 2 - 1], route[len(route) // 2]
        rows.append(
            {"part": "edge", "name": f"{link['from']}>{link['to']}", "layer": (y0 + y1) / 2, "slot": (x0 + x1) / 2}
        )
    return shown, pl.DataFrame(rows).sort("part", "name", "layer", "slot")


def _link(row: Mapping[str, object], roles: Mapping[str, str]) -> dict[str, str]:
    """An edge between boxes; a client is one box where requests leave it and another where outputs come back."""
    source, target = str(row["source"]), str(row["target"])
    for end in (source, target):
        if end not in roles:
            raise UsageError(f"edges between the stages {sorted(roles)}", repr(end), where=f"edge {source}>{target}")
    return {
        "from": source,
        "to": target,
        "source": f"out:{source}" if roles[source] == "client" else f"at:{source}",
        "target": f"in:{target}" if roles[target] == "client" else f"at:{target}",
        "text": str(row["modality"]),
        "kind": str(row["kind"]),
    }


def _along(link: Mapping[str, str], links: Sequence[Mapping[str, str]]) -> float:
    """Where on its way an edge carries its label: where edges that meet at one end are apart."""
    out_of = sum(other["source"] == link["source"] for other in links)
    into = sum(other["target"] == link["target"] for other in links)
    return 0.5 if out_of == into else 0.35 if into > out_of else 0.65


def _plain(node: str) -> str:
    return node.partition(":")[2]


def _layers(inner: Sequence[str], links: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Boxes by longest path from the top; those where outputs come back are last."""
    nodes = list(dict.fromkeys([link["source"] for link in links] + [link["target"] for link in links]))
    nodes += [f"at:{name}" for name in inner if f"at:{name}" not in nodes]
    depth = dict.fromkeys(nodes, 0)
    for _ in range(len(nodes) + 1):
        late = [link for link in links if depth[link["target"]] <= depth[link["source"]]]
        if not late:
            break
        for link in late:
            depth[link["target"]] = depth[link["source"]] + 1
    else:
        raise UsageError("no cycle among stages", f"one through {_plain(late[0]['target'])!r}", where="edges")
    last = max(depth.values(), default=0)
    depth.update({node: last for node in nodes if node.startswith("in:")})
    return [[node for node in nodes if depth[node] == k] for k in range(last + 1)]


def _place(
    layers: Sequence[Sequence[str]], links: Sequence[Mapping[str, str]]
) -> tuple[dict[str, Point], list[list[Point]]]:
    """Position of every box, and the points each edge passes: a slot of its own in each layer that it skips."""
    depth = {node: k for k, layer in enumerate(layers) for node in layer}
    order = [list(layer) for layer in layers]
    chains: list[list[str]] = []
    for number, link in enumerate(links):
        between = range(depth[link["source"]] + 1, depth[link["target"]])
        steps = [f"via:{number}:{k}" for k in between]
        for k, step in zip(between, steps, strict=True):
            order[k].append(step)
        chains.append([link["source"], *steps, link["target"]])
    neighbors: dict[str, list[str]] = {}
    for chain in chains:
        for a, b in itertools.pairwise(chain):
            neighbors.setdefault(a, []).append(b)
            neighbors.setdefault(b, []).append(a)
    slot = {node: k - (len(layer) - 1) / 2 for layer in order for k, node in enumerate(layer)}
    for sweep in range(_SWEEPS):
        for layer in order if sweep % 2 == 0 else order[::-1]:
            mean = {
                node: sum(slot[near] for near in neighbors.get(node, [node])) / len(neighbors.get(node, [node]))
                for node in layer
            }
            layer.sort(key=lambda node: mean[node])
            slot.update({node: k - (len(layer) - 1) / 2 for k, node in enumerate(layer)})
    return (
        {node: (slot[node], float(k)) for node, k in depth.items()},
        [[(slot[node], float(depth[chain[0]] + k)) for k, node in enumerate(chain)] for chain in chains],
    )


def _draw(
    boxes: pl.DataFrame, lines: pl.DataFrame, labels: pl.DataFrame, size_px: tuple[float, float]
) -> alt.LayerChart:
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[0, size_px[0]], nice=False, zero=False))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[size_px[1], 0], nice=False, zero=False))
    dash = alt.StrokeDash("kind:N", legend=None, scale=alt.Scale(domain=["stream", "whole"], range=[[1, 0], [4, 3]]))
    flow = (
        alt.Chart(lines)
        .mark_line(interpolate="linear", color=theme.GREY, strokeWidth=1.2)
        .encode(x=x, y=y, detail="edge:N", order="order:Q", strokeDash=dash)
    )
    tips = (
        alt.Chart(labels)
        .mark_point(shape="triangle-down", filled=True, size=36, color=theme.GREY, yOffset=-3)
        .encode(x="tip_x:Q", y="tip_y:Q", tooltip=["name:N", "text:N", "kind:N"])
    )
    frames = (
        alt.Chart(boxes)
        .mark_rect(cornerRadius=3, fill="white", strokeWidth=1.5)
        .encode(
            x="x0:Q", x2="x1:Q", y="y0:Q", y2="y1:Q",
            stroke=alt.Stroke("name:N", legend=None, scale=theme.stage_scale(dict.fromkeys(boxes["name"]))),
            tooltip=["name:N", "below:N"],
        )
    )  # fmt: skip
    inside = alt.Chart(boxes).encode(x="x:Q")
    bold = inside.mark_text(fontWeight="bold", baseline="bottom", dy=1).encode(y="name_y:Q", text="name:N")
    plain = inside.mark_text(baseline="top", dy=2).encode(y="y:Q", text="below:N")
    words = alt.Chart(labels).encode(x="x:Q", y="y:Q", text="text:N")
    halo, text = words.mark_text(stroke="white", strokeWidth=4), words.mark_text()
    return alt.LayerChart(layer=[flow, tips, frames, bold, plain, halo, text])
