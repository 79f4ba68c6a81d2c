"""Drawings of stage graphs: every stage and edge in its place, apart from each other; nonsense is refused."""

from __future__ import annotations

import itertools
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.charts import renderer, save, theme
from workbench.charts.graph_drawing import graph_drawing
from workbench.errors import UsageError
from workbench.graph import StageGraph, preset, presets


def frames(graph: StageGraph) -> tuple[pl.DataFrame, pl.DataFrame]:
    stages = [{"stage": stage.name, "role": stage.role} for stage in graph.stages]
    edges = [{"source": e.source, "target": e.target, "modality": e.modality, "kind": e.kind} for e in graph.edges]
    return pl.DataFrame(stages), pl.DataFrame(edges)


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_drawn_once_each_and_downwards(name: str) -> None:
    graph = preset(name)
    chart, frame = graph_drawing(*frames(graph), title=graph.title)
    boxes = frame.filter(pl.col("part") == "stage")
    assert boxes["name"].to_list() == sorted([stage.name for stage in graph.stages] + ["client"])
    assert boxes.select("layer", "slot").is_duplicated().any() is False
    assert sorted(frame.filter(pl.col("part") == "edge")["name"]) == sorted(edge.name for edge in graph.edges)
    layer = dict(boxes.filter(pl.col("name") != "client").select("name", "layer").iter_rows())
    for edge in graph.edges:
        if "client" not in (edge.source, edge.target):
            assert layer[edge.source] < layer[edge.target], edge.name
    svg = renderer.to_svg(theme.specification(chart))
    for stage in graph.stages:
        assert f">{stage.name}<" in svg


@pytest.mark.parametrize("name", presets())
def test_boxes_do_not_touch(name: str) -> None:
    spec = theme.specification(graph_drawing(*frames(preset(name)))[0])
    boxes = next(rows for rows in spec["datasets"].values() if "x0" in rows[0])
    for one, other in itertools.combinations(boxes, 2):
        apart = one["x1"] < other["x0"] or other["x1"] < one["x0"] or one["y1"] < other["y0"] or other["y1"] < one["y0"]
        assert apart, (one["name"], other["name"])


@pytest.mark.parametrize("name", presets())
def test_a_drawing_can_be_saved_as_a_figure(name: str, tmp_path: Path) -> None:
    chart, frame = graph_drawing(*frames(preset(name)), title="A graph")
    provenance = {"raw": {}, "parameters": {}, "code_sha256": "0", "versions": {}}
    assert len(save(chart, frame, tmp_path / name, provenance)) == 5


def test_notes_stand_beside_the_role() -> None:
    stages, edges = frames(preset("t1"))
    chart, _ = graph_drawing(stages.with_columns(note=pl.lit("cuda:0")), edges)
    assert ">ar, cuda:0<" in renderer.to_svg(theme.specification(chart))


def test_a_stage_without_edges_is_drawn() -> None:
    stages = pl.DataFrame({"stage": ["a", "b"], "role": ["ar", "host"]})
    none = pl.DataFrame(schema=dict.fromkeys(("source", "target", "modality", "kind"), pl.String))
    _, frame = graph_drawing(stages, none)
    assert frame["name"].to_list() == ["a", "b"]


def edges_of(*pairs: tuple[str, str]) -> pl.DataFrame:
    return pl.DataFrame([{"source": a, "target": b, "modality": "text", "kind": "whole"} for a, b in pairs])


def test_nonsense_is_refused() -> None:
    stages = pl.DataFrame({"stage": ["client", "a", "b"], "role": ["client", "ar", "ar"]})
    with pytest.raises(UsageError, match="found 'nowhere'"):
        graph_drawing(stages, edges_of(("client", "nowhere")))
    with pytest.raises(UsageError, match="no cycle among stages"):
        graph_drawing(stages, edges_of(("client", "a"), ("a", "b"), ("b", "a")))
    with pytest.raises(UsageError, match="no cycle"):
        graph_drawing(stages, edges_of(("a", "a")))
    with pytest.raises(UsageError, match="at least one stage"):
        graph_drawing(stages.clear(), edges_of(("a", "b")))


def test_hostile_names_are_text() -> None:
    name = '"><script>alert(1)</script>'
    stages = pl.DataFrame({"stage": ["client", name], "role": ["client", "ar"], "note": ["", name]})
    svg = renderer.to_svg(theme.specification(graph_drawing(stages, edges_of(("client", name), (name, "client")))[0]))
    assert "<script" not in svg


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)).filter(lambda pair: pair[0] < pair[1]), max_size=14))
def test_any_graph_without_a_cycle_is_laid_out(pairs: list[tuple[int, int]]) -> None:
    names = [f"s{k}" for k in range(8)]
    stages = pl.DataFrame({"stage": names, "role": ["ar"] * 8})
    links = [(names[a], names[b]) for a, b in dict.fromkeys(pairs)]
    edges = edges_of(*links) if links else edges_of(("s0", "s1")).clear()
    _, frame = graph_drawing(stages, edges)
    boxes = frame.filter(pl.col("part") == "stage")
    assert sorted(boxes["name"]) == names
    assert boxes.select("layer", "slot").is_duplicated().any() is False
    layer = dict(boxes.select("name", "layer").iter_rows())
    assert all(layer[a] < layer[b] for a, b in links)
