"""Stage graphs: presets are valid, and each way of breaking one is refused with a message that names the spot."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import UsageError
from workbench.graph import from_mapping, load, preset, presets

T1: dict[str, Any] = {
    "name": "g",
    "title": "a graph",
    "source": "this test",
    "stage": [
        {"name": "client", "role": "client"},
        {"name": "a", "role": "ar"},
        {"name": "b", "role": "vocoder"},
    ],
    "edge": [
        {"source": "client", "target": "a", "modality": "text", "kind": "whole"},
        {"source": "a", "target": "b", "modality": "codes", "kind": "stream"},
        {"source": "b", "target": "client", "modality": "audio", "kind": "stream"},
    ],
}


@pytest.mark.parametrize("name", presets())
def test_presets_are_valid_and_end_at_the_client(name: str) -> None:
    graph = preset(name)
    assert graph.name == name
    assert graph.terminals
    assert len(graph.order) == len(graph.stages) - 1


def test_t2_joins_both_encoders_at_the_thinker() -> None:
    graph = preset("t2")
    assert len(graph.stage("thinker").join) == 3
    assert graph.order.index("thinker") > graph.order.index("image_encoder")
    assert {edge.target for edge in graph.out_edges("client")} == {"audio_encoder", "image_encoder", "thinker"}


def test_cfg_join_waits_for_parent_and_companion() -> None:
    assert set(preset("cfg-join").stage("guidance").join) == {"parent>guidance", "companion>guidance"}


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("stage", 1, "role"), "oracle", "role of stage 'a'"),
        (("stage", 1, "name"), "b", "'b' twice"),
        (("stage", 0, "name"), "user", "stage named 'client'"),
        (("edge", 1, "target"), "zzz", "'zzz'"),
        (("edge", 1, "modality"), "smell", "'smell'"),
        (("edge", 1, "kind"), "drip", "'drip'"),
        (("edge", 2, "source"), "a", "dead end 'b'"),
        (("edge", 1, "target"), "a", "two different stages"),
        (("stage", 1, "batch_limit"), True, "batch_limit as int"),
        (("stage", 1, "join"), ["b>a"], "'b>a'"),
        (("title",), 3, "title as str"),
    ],
)
def test_broken_graphs_say_where(path: tuple[Any, ...], value: Any, says: str) -> None:
    data = copy.deepcopy(T1)
    here: Any = data
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    with pytest.raises(UsageError, match=says.replace("(", r"\(")):
        from_mapping(data, where="test")


def test_a_cycle_is_refused() -> None:
    data = copy.deepcopy(T1)
    data["edge"].append({"source": "b", "target": "a", "modality": "codes", "kind": "stream"})
    with pytest.raises(UsageError, match="no cycle"):
        from_mapping(data, where="test")


def test_a_missing_or_broken_file_is_named(tmp_path: Any) -> None:
    with pytest.raises(UsageError, match=r"none\.toml"):
        load(tmp_path / "none.toml")
    bad = tmp_path / "bad.toml"
    bad.write_bytes(b"\xff\xfe= [")
    with pytest.raises(UsageError, match=r"bad\.toml"):
        load(bad)


@given(st.integers(2, 7), st.data())
def test_random_layered_graphs_order_every_edge_forward(n: int, data: st.DataObject) -> None:
    names = [f"s{i}" for i in range(n)]
    edges = [("client", names[0])] + list(itertools.pairwise(names)) + [(names[-1], "client")]
    for i in range(n):
        for j in range(i + 2, n):
            if data.draw(st.booleans()):
                edges.append((names[i], names[j]))
    graph = from_mapping(
        {
            "name": "r",
            "title": "r",
            "source": "r",
            "stage": [{"name": "client", "role": "client"}] + [{"name": s, "role": "ar"} for s in names],
            "edge": [{"source": a, "target": b, "modality": "codes", "kind": "stream"} for a, b in edges],
        },
        where="random",
    )
    position = {name: i for i, name in enumerate(graph.order)}
    for edge in graph.edges:
        if "client" not in (edge.source, edge.target):
            assert position[edge.source] < position[edge.target]
