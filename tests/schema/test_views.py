"""Every view says what its words say: compared with slow plain Python on random runs, and with the worked example."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from tests.schema import reference
from workbench.schema import ddl
from workbench.schema.tables import TABLES
from workbench.testing.traces import (
    JOIN,
    LINEAR,
    Arrival,
    Row,
    Tables,
    changed,
    random_traces,
    simulate,
    to_rows,
    worked_example,
)
from workbench.trace import store
from workbench.units import MS_NS

ORDERED_BY_MEANING = {"oldest_wait", "in_flight_step"}


def set_all(table: str, **values: Any):
    """A variant of a run: these columns of every row of a table."""
    return lambda tables: changed(tables, table, lambda rows: [row | values for row in rows])


def without(table: str, condition):
    return lambda tables: changed(tables, table, lambda rows: [row for row in rows if not condition(row)])


def timed(rows: list[Row]) -> list[Row]:
    return [
        row | {"device_start_ns": row["dispatch_ns"] + 1_000, "device_end_ns": row["end_ns"] - 1_000} for row in rows
    ]


def metered(rows: list[Row]) -> list[Row]:
    """Counters of several kinds: good, unread, too few updates, wrapped, modeled."""
    counters = {
        ("nvml", "gpu0"): list(range(0, 1_200, 100)),
        ("nvml", "gpu1"): [None] * 4,
        ("rapl", "cpu0"): [1, 1, 2, 2],
        ("rapl", "cpu1"): [*range(20), 3],
    }
    rows = [
        {"source": source, "device": device, "before_ns": 10 * n, "after_ns": 10 * n + 1, "counter_mj": value}
        for (source, device), values in counters.items()
        for n, value in enumerate(values)
    ]
    return [
        *rows,
        *({"source": "model", "device": "gpu0", "before_ns": n, "after_ns": n, "modeled_mj": n} for n in (1, 9)),
    ]


VARIANTS = {
    "as recorded": lambda tables: tables,
    "imported without waits": lambda tables: without("span", lambda row: row["kind"] in reference.WAITS)(
        set_all("run", provenance="imported")(tables)
    ),
    "imported with some waits": set_all("run", provenance="imported"),
    "sizes unknown on one edge": lambda tables: changed(
        tables,
        "chunk",
        lambda rows: [row | {"bytes": None} if row["edge"] == rows[0]["edge"] else row for row in rows],
    ),
    "no chunk rows": without("chunk", lambda row: True),
    "client only": lambda tables: set_all("run", probes="off")(
        without("span", lambda row: row["stage"] != "client")(tables)
    ),
    "device clock": lambda tables: changed(tables, "batch", timed),
    "energy": lambda tables: changed(tables, "energy", metered),
    "nothing samples": set_all("chunk", samples=None),
    "quality gate": lambda tables: changed(
        set_all("outcome", quality=0.04, quality_metric="wer")(tables),
        "slo",
        lambda rows: [*rows, *({**row, "metric": "quality", "limit_value": 0.05} for row in rows[:1])],
    ),
    "unknown objective": set_all("slo", metric="no-such-metric"),
    "residency recorded": lambda tables: changed(
        tables, "span", lambda rows: [row | {"kind": "residency"} if row["chunk"] == 0 else row for row in rows]
    ),
    "no batches": lambda tables: without("batch", lambda row: True)(set_all("span", batch=None)(tables)),
}


def rows_of(con: duckdb.DuckDBPyConnection, view: str) -> list[Row]:
    relation = con.sql(f"SELECT * FROM {view}")
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def normal(rows: list[Row]) -> list[list[tuple[str, Any]]]:
    """Rows in an order that both sides share, whatever their NULLs and the last digits of their floats."""

    def key(row: list[tuple[str, Any]]) -> list[tuple[str, bool, str]]:
        return [
            (name, value is None, f"{value:.6g}" if isinstance(value, float) else str(value)) for name, value in row
        ]

    return sorted((sorted(row.items()) for row in rows), key=key)


def equal(a: Any, b: Any) -> bool:
    # 1 / slowdown is added up in parts per billion.
    if isinstance(a, float) or isinstance(b, float):
        return a is not None and b is not None and (a == b or math.isclose(a, b, rel_tol=1e-8, abs_tol=3e-9))
    return bool(a == b)


def compare(con: duckdb.DuckDBPyConnection, runs: dict[str, reference.Run], view: str) -> None:
    found = normal(rows_of(con, view))
    expected = normal([{"run": label} | row for label, run in runs.items() for row in reference.VIEWS[view](run)])
    assert len(found) == len(expected), f"{view}: {found} instead of {expected}"
    for mine, theirs in zip(found, expected, strict=True):
        assert [name for name, _ in mine] == [name for name, _ in theirs], view
        for (name, a), (_, b) in zip(mine, theirs, strict=True):
            # An interpolated percentile that ends in .5 may round either way.
            assert equal(a, b) or (name.endswith("_ns") and None not in (a, b) and abs(a - b) <= 1), (
                view,
                mine,
                theirs,
            )


def check_all(stores: list[Tables]) -> None:
    runs = reference.runs_of(stores)
    with store.load_tables(stores) as con:
        for view in reference.VIEWS:
            compare(con, runs, view)
        check_oldest_wait(con, runs)
        check_meaning(con, runs)


def check_oldest_wait(con: duckdb.DuckDBPyConnection, runs: dict[str, reference.Run]) -> None:
    """The sawtooth, read by straight lines between its corners, is the age of the oldest task at any moment."""
    for label, run in runs.items():
        for stage in {s["stage"] for s in run.span if s["kind"] in reference.DEPTH_KINDS}:
            corners = con.execute(
                "SELECT at_ns, oldest_wait_ns FROM oldest_wait WHERE run = ? AND stage = ?"
                " ORDER BY at_ns, oldest_wait_ns DESC",
                [label, stage],
            ).fetchall()
            moments = sorted(
                {m for s in run.span if s["stage"] == stage for m in (s["start_ns"], s["end_ns"])}
                | {at for at, _ in corners}
            )
            for a, b in pairwise(moments):
                middle = (a + b) / 2
                value = 0.0
                for (x0, y0), (x1, y1) in pairwise(corners):
                    if x0 <= middle <= x1 and x1 > x0:
                        value = y0 + (y1 - y0) * (middle - x0) / (x1 - x0)
                assert value == pytest.approx(reference.oldest_wait_at(run, stage, middle), abs=1), (
                    label,
                    stage,
                    middle,
                )


def check_meaning(con: duckdb.DuckDBPyConnection, runs: dict[str, reference.Run]) -> None:
    """What must hold whatever the numbers are."""
    assert (
        con.execute("SELECT count(*) FROM request_metrics").fetchall()
        == con.execute("SELECT count(*) FROM request").fetchall()
    )
    depths = con.execute(
        "SELECT run, stage, min(depth), arg_max(depth, at_ns) FROM queue_depth GROUP BY ALL"
    ).fetchall()
    assert all(low == 0 and last == 0 for _, _, low, last in depths)
    flights = con.execute(
        "SELECT run, edge, min(chunks), arg_max(chunks, at_ns), min(bytes), arg_max(bytes, at_ns)"
        " FROM in_flight_bytes GROUP BY ALL"
    ).fetchall()
    assert all(row[2] >= 0 and row[3] == 0 and row[4] in (None, 0) and row[5] in (None, 0) for row in flights)
    for label, run in runs.items():
        (total,) = con.execute("SELECT sum(requests) FROM outcome_counts WHERE run = ?", [label]).fetchone()
        assert total == len(run.request)


ARRIVALS = [
    Arrival(at_ns=2 * n * MS_NS, chunks=1 + n % 4, klass=("short", "long")[n % 2], tenant="abc"[n % 3], fate=fate)
    for n, fate in enumerate(("ok", "ok", "cancelled", "timeout", "error", "rejected", "retried", "ok") * 2)
]


@st.composite
def stores(draw: st.DrawFn) -> list[Tables]:
    """Three runs: two as drawn, in one variant each, and one of the same contents one at a time."""
    single = [Arrival(at_ns=n * 500 * MS_NS, chunks=n + 1) for n in range(draw(st.integers(1, 4)))]
    runs = [simulate(LINEAR, single, seed=draw(st.integers(0, 99)), label="alone")]
    for label, isolated in (("first", "alone"), ("second", draw(st.sampled_from((None, "alone", "not here"))))):
        tables = set_all("run", isolated_run=isolated)(draw(random_traces(label=label, max_requests=5)))
        runs.append(VARIANTS[draw(st.sampled_from(sorted(VARIANTS)))](tables))
    return runs


@settings(max_examples=6, phases=(Phase.explicit, Phase.generate), suppress_health_check=[HealthCheck.too_slow])
@given(stores())
def test_views_equal_their_definition(drawn: list[Tables]) -> None:
    check_all(drawn)


@pytest.mark.parametrize("graph", [LINEAR, JOIN], ids=["linear", "join"])
def test_views_of_every_variant(graph) -> None:
    """All variants side by side as runs of one store, with every fate in each."""
    alone = simulate(graph, [Arrival(at_ns=n * 500 * MS_NS, chunks=n + 1) for n in range(4)], seed=1, label="alone")
    runs = [
        variant(simulate(graph, ARRIVALS, seed=7, label=name, isolated_run="alone"))
        for name, variant in VARIANTS.items()
    ]
    check_all([alone, *runs])


def test_the_worked_example() -> None:
    """Hand-checked: TTFA 149 ms, JCT 209 ms, join wait of the audio branch 23 ms, services of 285 ms."""
    check_all([worked_example()])
    with store.load_tables([worked_example()]) as con:
        row = con.execute(
            "SELECT ttfo_ns, ttfa_ns, jct_ns, join_wait_ns, queue_ns, wait_ns, service_ns, underrun_ns, jitter_p99_ns"
            " FROM request_metrics WHERE request = 1"
        ).fetchone()
        assert row == (149_000_000, 149_000_000, 209_000_000, 23_000_000, 15_000_000, 38_000_000, 285_000_000, 0, 0)
        branches = con.execute("SELECT edge, join_wait_ns FROM join_wait WHERE request = 1 ORDER BY edge").fetchall()
        assert branches == [("ea>t", 23_000_000), ("ev>t", 0)]
        (spans,) = con.execute(
            "SELECT list(residency_ns ORDER BY stage) FROM stage_residency WHERE request = 1"
        ).fetchone()
        assert spans == [30_000_000, 50_000_000, 108_000_000, 90_000_000, 75_000_000]
        assert con.execute(
            "SELECT status, requests FROM outcome_counts WHERE requests > 0 ORDER BY status"
        ).fetchall() == [
            ("ok", 1),
            ("unfinished", 2),
        ]


def test_every_view_has_a_reference() -> None:
    assert {view.name for view in ddl.views()} - ORDERED_BY_MEANING == set(reference.VIEWS)


def test_in_flight_step_adds_up_to_in_flight_bytes() -> None:
    with store.load_tables([simulate(JOIN, ARRIVALS, seed=3)]) as con:
        assert con.execute(
            "SELECT count(*) FROM (SELECT run, edge, sum(bytes), sum(chunks) FROM in_flight_step GROUP BY run, edge"
            " HAVING sum(bytes) <> 0 OR sum(chunks) <> 0)"
        ).fetchone() == (0,)


def test_every_view_leads_with_run_and_survives_an_empty_run() -> None:
    empty = {name: table.slice(0, table.num_rows if name == "run" else 0) for name, table in worked_example().items()}
    with store.load_tables([empty]) as con:
        for view in ddl.views():
            relation = con.sql(f"SELECT * FROM {view.name}")
            assert relation.columns[0] == "run"
            speaks = view.name in ("outcome_counts", "energy_use", "probe_cost", "recorded_wait")
            assert speaks or relation.fetchall() == [], view.name


def test_no_view_adds_residencies_up() -> None:
    """Residencies of streaming stages overlap: a sum of them means nothing."""
    for view in ddl.views():
        assert "residency" not in view.sql or view.name in ("stage_residency", "interval"), view.name
        if view.name == "stage_residency":
            assert "sum(" not in view.sql.lower()


def test_results_do_not_depend_on_threads() -> None:
    tables = [simulate(JOIN, ARRIVALS * 4, seed=5, isolated_run="random")]
    with store.load_tables(tables, threads=1) as one, store.load_tables(tables, threads=4) as four:
        for view in ddl.views():
            assert sorted(map(str, rows_of(one, view.name))) == sorted(map(str, rows_of(four, view.name))), view.name


def test_null_never_turns_into_zero() -> None:
    """An import that records services alone knows no wait, no bytes and no device time."""
    tables = VARIANTS["imported without waits"](simulate(LINEAR, ARRIVALS, seed=2))
    tables = set_all("chunk", bytes=None)(tables)
    with store.load_tables([tables]) as con:
        unknown = {
            "stage_wait": "wait_ns",
            "stage_summary": "wait_p50_ns",
            "request_metrics": "wait_ns",
            "edge_transfer": "bytes",
            "in_flight_bytes": "bytes",
            "in_flight_high_water": "bytes",
            "device_busy": "busy_share",
            "energy_use": "energy_mj",
        }
        for view, column in unknown.items():
            assert con.execute(f"SELECT count(*) > 0, count({column}) FROM {view}").fetchone() == (True, 0), view


def test_failed_requests_stay_in_the_denominator() -> None:
    tables = simulate(LINEAR, ARRIVALS, seed=4)
    failed = sum(row["status"] != "ok" for row in to_rows(tables, "outcome"))
    assert failed > 2
    with store.load_tables([tables]) as con:
        assert con.execute("SELECT requests FROM goodput").fetchone() == (len(ARRIVALS),)
        assert con.execute("SELECT sum(requests) FROM slo_attainment WHERE metric = 'jct'").fetchone() == (
            len(ARRIVALS),
        )
        assert con.execute(
            "SELECT max(attainment) <= 1 - ? / ? FROM slo_attainment WHERE metric = 'jct'", [0, 1]
        ).fetchone() == (True,)


@example("thinker'; DROP TABLE span; --")
@given(st.text(min_size=1, max_size=30).filter(lambda name: "\x00" not in name and name.isprintable()))
@settings(max_examples=5)
def test_stage_names_are_data(name: str) -> None:
    tables = worked_example()
    for table, columns in (
        ("stage", ["stage"]),
        ("span", ["stage"]),
        ("batch", ["stage"]),
        ("edge", ["source", "target"]),
    ):
        tables = changed(
            tables,
            table,
            lambda rows, columns=columns: [
                row | {column: name for column in columns if row[column] == "t"} for row in rows
            ],
        )
    with store.load_tables([tables]) as con:
        assert con.execute(
            "SELECT service_ns FROM stage_service WHERE stage = ? AND request = 1", [name]
        ).fetchall() == [(80_000_000,)]
        assert con.execute("SELECT count(*) FROM span").fetchone() == (len(to_rows(tables, "span")),)


def test_catalog_comments_are_in_the_store() -> None:
    with store.load_tables([worked_example()]) as con:
        comments = dict(con.execute("SELECT view_name, comment FROM duckdb_views() WHERE NOT internal").fetchall())
        assert comments == {view.name: view.comment for view in ddl.views()}
        assert all("denominator: " in comment and "unit: " in comment for comment in comments.values())
        tables = dict(con.execute("SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal").fetchall())
        assert {name: tables[name] for name in TABLES} == {table.name: table.doc for table in TABLES.values()}
