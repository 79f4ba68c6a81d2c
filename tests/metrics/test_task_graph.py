from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given

from tests.metrics.frames import edited, graph_of, polars_tables
from workbench.errors import DataIntegrityError, UsageError
from workbench.metrics.critical_path import critical_paths
from workbench.metrics.retiming import reproduces
from workbench.metrics.task_graph import TaskGraph
from workbench.testing.example import ORIGIN_NS, REQUEST
from workbench.testing.traces import changed, random_traces, worked_example, write_folder
from workbench.trace.store import build, open_store
from workbench.twin import compiled
from workbench.units import MS_NS


def codes_of(tables) -> list[tuple[str, bool]]:
    return graph_of(tables).violations.select("code", "excluded").rows()


def test_dependencies_of_the_worked_example():
    graph = graph_of(worked_example())
    a, d = graph.activities, graph.dependencies
    tasks = {"ev": 0, "t": 1, "k": 2}
    found = {}
    for stage, chunk in tasks.items():
        (x,) = np.flatnonzero(graph.where(stage=stage, chunk=[chunk], request=REQUEST))
        entries = range(d.ptr[x], d.ptr[x + 1])
        found[stage] = sorted((int(d.kind[e]), (int(a.end_ns[d.source[e]]) - ORIGIN_NS) // MS_NS) for e in entries)
    # kinds: 0 data, 1 state, 3 resource
    assert found == {"ev": [(0, 0), (3, 10)], "t": [(1, 100), (3, 100)], "k": [(0, 141), (1, 161), (3, 161)]}
    assert not graph.lag_ns.any()


def test_causes_stand_before_what_depends_on_them():
    graph = graph_of(worked_example())
    d, launch = graph.dependencies, graph.activities.launch
    assert (launch[d.source] < launch[d.target()]).all()


def test_activities_of_length_zero_are_ordered_by_cause():
    tables = worked_example()
    for edge, seq in (("t>k", 0), ("k>v", 0)):
        tables = edited(tables, "chunk", {"edge": edge, "seq": seq}, received_ns=ORIGIN_NS + 100 * MS_NS)
        tables = edited(tables, "chunk", {"edge": edge, "seq": seq}, sent_ns=ORIGIN_NS + 100 * MS_NS)
    at = ORIGIN_NS + 100 * MS_NS
    tables = edited(tables, "span", {"stage": "k", "chunk": 0}, start_ns=at, end_ns=at)
    # Ids against the order of causes: the chunk that T1 made has the highest.
    chunk = {"edge": "t>k", "seq": 0}
    old = next(row["span"] for row in tables["chunk"].to_pylist() if row["edge"] == "t>k" and row["seq"] == 0)
    tables = edited(tables, "chunk", chunk, span=10**6)
    tables = edited(tables, "span", {"cause_span": old}, cause_span=10**6)
    graph = graph_of(tables)
    d, launch = graph.dependencies, graph.activities.launch
    assert graph.violations.is_empty()
    assert (launch[d.source] < launch[d.target()]).all()
    assert reproduces(graph).is_empty()


def test_contradictions_are_listed_by_row():
    tables = worked_example()
    ea = {"stage": "ea", "request": REQUEST, "kind": "service"}
    assert codes_of(edited(tables, "span", ea, end_ns=ORIGIN_NS - MS_NS)) == [
        ("reversed", True),
        ("unknown-cause", False),
        ("unknown-consumer", False),
    ]
    assert ("before-arrival", True) in codes_of(edited(tables, "span", ea, start_ns=ORIGIN_NS - MS_NS))
    assert ("unknown-request", False) in codes_of(edited(tables, "span", ea, request=77))
    assert codes_of(edited(tables, "span", {"stage": "v", "chunk": 0}, cause_span=999)) == [("unknown-cause", False)]
    late = edited(tables, "chunk", {"edge": "k>v", "seq": 0}, received_ns=ORIGIN_NS + 135 * MS_NS)
    row = graph_of(late).violations.select("code", "request", "excess_ns", "excluded").row(0)
    assert row == ("negative-lag", REQUEST, 2 * MS_NS, True)
    again = changed(tables, "span", lambda rows: [*rows, rows[-4]])
    assert ("duplicate-id", True) in codes_of(again)


def test_a_batch_whose_members_differ_is_split_and_listed():
    def together(rows):
        for row in rows:
            if row["stage"] in ("ea", "ev") and row["request"] == REQUEST and row["kind"] == "service":
                row["batch"] = 4_000
        return rows

    graph = graph_of(changed(worked_example(), "span", together))
    assert set(graph.violations["code"]) == {"split-launch"}
    assert set(graph.violations["other"]) == {4_000}
    assert graph.excluded.tolist() == [True, False, False]
    assert reproduces(graph).is_empty()


def test_a_circle_of_causes_is_listed():
    at = ORIGIN_NS + 133 * MS_NS
    tables = edited(worked_example(), "span", {"stage": "v", "chunk": 0}, start_ns=at, end_ns=at, batch=None)
    v1 = next(row["span"] for row in tables["span"].to_pylist() if row["stage"] == "v" and row["chunk"] == 0)
    chunk = {"edge": "k>v", "seq": 0}
    tables = edited(tables, "chunk", chunk, sent_ns=at, received_ns=at, producer_span=v1)
    graph = graph_of(tables)
    assert "cycle" in graph.violations["code"].to_list()
    assert critical_paths(graph).requests.filter(pl.col("request") == REQUEST)["missing"].to_list() == ["excluded"] * 2


def test_a_companion_request_belongs_to_the_family_of_its_parent():
    graph = graph_of(edited(worked_example(), "request", {"request": 9}, parent_request=8))
    assert graph.requests.family.tolist() == [0, 1, 1]


def test_a_broken_companion_excludes_the_whole_family():
    tables = edited(worked_example(), "request", {"request": 9}, parent_request=REQUEST)
    graph = graph_of(edited(tables, "chunk", {"request": 9}, received_ns=ORIGIN_NS - 9 * MS_NS))
    assert graph.violations.select("code", "request").rows() == [("negative-lag", 9)]
    assert graph.excluded.tolist() == [True, False, True]


def test_parents_in_a_circle_are_refused():
    tables = edited(worked_example(), "request", {"request": 9}, parent_request=8)
    with pytest.raises(DataIntegrityError, match="its own ancestor"):
        graph_of(edited(tables, "request", {"request": 8}, parent_request=9))


def test_damaged_tables_are_refused_with_the_place():
    frames = polars_tables(worked_example())
    for name, change, message in (
        ("span", frames["span"].drop("cause"), "table span.*cause"),
        ("span", frames["span"].with_columns(stage=pl.lit("oven")), "span.stage.*'oven'"),
        ("chunk", frames["chunk"].with_columns(sent_ns=pl.lit(None, dtype=pl.Int64)), "chunk.sent_ns.*row 0"),
        ("edge", frames["edge"].with_columns(target=pl.lit("oven")), "edge.target.*'oven'"),
        ("request", pl.concat([frames["request"]] * 2), "request 1 twice"),
    ):
        with pytest.raises(DataIntegrityError, match=message):
            TaskGraph.from_tables(**(frames | {name: change}))


def test_where_selects_by_place_kind_request_and_chunk():
    graph = graph_of(worked_example())
    assert graph.where(stage="k").sum() == 3
    assert graph.where(edge="k>v", chunk=[1, 2]).sum() == 2
    assert graph.where(kind="service", request=9).sum() == 1
    assert graph.where().sum() == len(graph)
    with pytest.raises(UsageError, match="client, ea, ev, k, t, v, found 'x'"):
        graph.where(stage="x")
    with pytest.raises(UsageError, match="request"):
        graph.request_number(5)


def test_a_graph_from_the_store_is_the_graph_from_the_tables(tmp_path):
    folder = write_folder(worked_example(), tmp_path / "worked-example")
    build([folder], tmp_path / "store.duckdb")
    with open_store(tmp_path / "store.duckdb") as connection:
        graph = TaskGraph.from_store(connection, "worked-example")
        with pytest.raises(UsageError, match=r"worked-example.*'other'"):
            TaskGraph.from_store(connection, "other")
    assert critical_paths(graph).segments.equals(critical_paths(graph_of(worked_example())).segments)


@given(random_traces())
def test_lags_are_never_negative_on_valid_runs(tables):
    graph = graph_of(tables)
    assert graph.violations.is_empty()
    assert (graph.lag_ns >= 0).all()


def test_code_without_a_file_is_compiled_and_not_kept():
    space: dict[str, object] = {}
    exec("def plus_one(x):\n    return x + 1", space)
    assert compiled(space["plus_one"])(1) == 2


def test_lags_are_listed_by_launch():
    tables = edited(worked_example(), "chunk", {"edge": "ev>t", "request": REQUEST}, sent_ns=ORIGIN_NS + 52 * MS_NS)
    rows = graph_of(tables).lags()
    late = rows.filter(pl.col("lag_ns") > 0)
    assert late.select("stage", "edge", "members", "lag_ns", "busy").rows() == [("ev", "ev>t", 1, 2 * MS_NS, False)]
    assert len(rows) == len(graph_of(tables))
