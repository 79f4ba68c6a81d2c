from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metrics.frames import edited, graph_of, in_ms, ms, polars_tables
from tests.metrics.reference import plain_paths
from tests.metrics.streams import Run
from workbench.errors import UsageError
from workbench.metrics.critical_path import CriticalPaths, critical_paths, join_waits
from workbench.metrics.retiming import reproduces, retime, scaled
from workbench.metrics.task_graph import TaskGraph
from workbench.testing.example import BLOCKS_THINKER, BLOCKS_VISION, ORIGIN_NS, REQUEST
from workbench.testing.traces import Row, Tables, changed, random_traces, worked_example
from workbench.units import MS_NS

UNTIL_TALKER = [
    ("ev", "queue", 0, 10),
    ("ev", "service", 10, 50),
    ("ev>t", "transfer", 50, 55),
    ("t", "queue", 55, 60),
    ("t", "service", 60, 100),
    ("t>k", "transfer", 100, 101),
    ("k", "service", 101, 131),
]


def rows_of(paths: CriticalPaths, request: int, terminal: str) -> list[tuple[str, int, int, int]]:
    rows = paths.segments.filter((pl.col("request") == request) & (pl.col("terminal") == terminal))
    return rows.select("kind", "start_ns", "end_ns", "span").rows()


# --- the worked example -------------------------------------------------------------------------------------------


def test_first_output_path_of_the_worked_example():
    paths = critical_paths(graph_of(worked_example()))
    end = [("k>v", "transfer", 131, 133), ("v", "service", 133, 148), ("v>client", "deliver", 148, 149)]
    assert in_ms(paths, REQUEST, "first") == UNTIL_TALKER + end


def test_job_path_of_the_worked_example():
    paths = critical_paths(graph_of(worked_example()))
    assert in_ms(paths, REQUEST, "job") == [
        *UNTIL_TALKER,
        ("k", "service", 131, 161),
        ("k", "service", 161, 191),
        ("k>v", "transfer", 191, 193),
        ("v", "service", 193, 208),
        ("v>client", "deliver", 208, 209),
    ]


def test_waits_name_the_request_that_blocked():
    paths = critical_paths(graph_of(worked_example()), ["job"])
    queues = paths.segments.filter(pl.col("kind") == "queue").select("stage", "cause", "blocker").rows()
    assert queues == [("ev", "resource", BLOCKS_VISION), ("t", "resource", BLOCKS_THINKER)]
    assert paths.segments.filter(pl.col("kind") != "queue")["blocker"].null_count() == 10


def test_join_wait_is_slack_of_the_early_branch_and_not_path_time():
    graph = graph_of(worked_example())
    assert critical_paths(graph).segments.filter(pl.col("kind") == "join_wait").is_empty()
    found = join_waits(graph).select("request", "stage", "edge", "join_wait_ns").rows()
    assert found == [(REQUEST, "t", "ea>t", 23 * MS_NS), (REQUEST, "t", "ev>t", 0)]


def test_system_view_steps_into_the_blocking_request_and_is_cut_at_the_arrival():
    paths = critical_paths(graph_of(worked_example()), ["job"], view="system")
    found = in_ms(paths, REQUEST, "job")
    assert found[:2] == [("t", "service", 0, 60), ("t", "service", 60, 100)]
    assert paths.segments["blocker"].to_list()[:2] == [BLOCKS_THINKER, None]
    assert sum(end - start for _, _, start, end in found) == 209


def test_requests_without_a_path_are_listed_with_the_reason():
    requests = critical_paths(graph_of(worked_example())).requests
    missing = requests.filter(pl.col("missing").is_not_null())
    assert missing.select("request", "terminal", "missing").rows() == [
        (request, terminal, "unfinished")
        for terminal in ("first", "job")
        for request in (BLOCKS_THINKER, BLOCKS_VISION)
    ]
    assert requests.filter(pl.col("request") == REQUEST)["latency_ns"].to_list() == [149 * MS_NS, 209 * MS_NS]


def crisp(root_end: int, children: list[tuple[str, int, int]]) -> dict[str, int]:
    """Last-finishing child before each moment, as CRISP (ATC 2022) does on trees of calls; the rest is the root's."""
    share: dict[str, int] = {}
    moment = root_end
    while done := [child for child in children if child[2] <= moment]:
        name, start, end = max(done, key=lambda child: child[2])
        share[name] = share.get(name, 0) + end - start
        moment = start
    return share | {"root": root_end - sum(share.values())}


def test_stage_spans_lose_the_talker_and_chunk_spans_find_it():
    mine = (pl.col("kind") == "service") & (pl.col("request") == REQUEST)
    spans = pl.DataFrame(worked_example()["span"]).filter(mine)
    stages = spans.group_by("stage").agg(pl.col("start_ns").min(), pl.col("end_ns").max()).rows()
    assert crisp(209, [(stage, ms(a), ms(b)) for stage, a, b in stages]) == {"v": 75, "ev": 40, "root": 94}
    chunks = [(stage, ms(a), ms(b)) for stage, a, b in spans.select("stage", "start_ns", "end_ns").rows()]
    assert crisp(209, chunks) == {"v": 15, "k": 90, "t": 40, "ev": 40, "root": 24}
    assert sum(end - start for _, start, end in chunks) == 285
    encoders = [(a, b) for stage, a, b in stages if stage in ("ea", "ev")]
    rest = [(a, b) for stage, a, b in stages if stage not in ("ea", "ev")]
    both = (min(a for a, _ in encoders), max(b for _, b in encoders))
    assert sum(ms(b) - ms(a) for a, b in [both, *rest]) == 295
    ours = critical_paths(graph_of(worked_example()), ["job"]).segments.filter(pl.col("kind") == "service")
    shares = ours.group_by("stage").agg((pl.col("end_ns") - pl.col("start_ns")).sum() // MS_NS).rows()
    assert dict(shares) == {"ev": 40, "t": 40, "k": 90, "v": 15}


# --- the worked example with credits ------------------------------------------------------------------------------


def slow_vocoder(times: dict[tuple[str, int], tuple[int, int]], stalls: list[tuple[int, int, int]]) -> Tables:
    """The example with other times of talker, vocoder and their hand-offs; stalls are (talker task, start, end)."""
    tables = worked_example()
    mine = [row for row in tables["span"].to_pylist() if row["request"] == REQUEST]
    spans = {(row["stage"], row["chunk"]): row["span"] for row in mine}
    for (place, number), (start, end) in times.items():
        start_ns, end_ns = ORIGIN_NS + start * MS_NS, ORIGIN_NS + end * MS_NS
        if ">" in place:
            chunk = {"edge": place, "seq": number, "request": REQUEST}
            tables = edited(tables, "chunk", chunk, sent_ns=start_ns, received_ns=end_ns, taken_ns=end_ns)
        else:
            span = {"stage": place, "chunk": number, "request": REQUEST}
            tables = edited(tables, "span", span, start_ns=start_ns, end_ns=end_ns, batch=None)
            if place == "v":
                tables = edited(tables, "chunk", {"edge": "k>v", "seq": number}, taken_ns=start_ns)

    def stalled(rows: list[Row]) -> list[Row]:
        for number, (task, start, end) in enumerate(stalls):
            wait = rows[0] | {"span": 1_000 + number, "request": REQUEST, "stage": "k", "chunk": task, "batch": None}
            wait |= {"kind": "credit_stall", "cause": "credit", "cause_span": spans["v", task - 1]}
            rows.append(wait | {"start_ns": ORIGIN_NS + start * MS_NS, "end_ns": ORIGIN_NS + end * MS_NS})
        return rows

    def granted(rows: list[Row]) -> list[Row]:
        return [
            {"edge": "k>v", "request": REQUEST, "epoch": 0, "event": "grant", "seq": number, "chunks": task + 1}
            | {"at_ns": ORIGIN_NS + end * MS_NS}
            for number, (task, _, end) in enumerate(stalls)
        ]

    tables = changed(tables, "span", stalled)
    return changed(tables, "credit", granted) if stalls else tables


def returned_when_finished() -> Tables:
    return slow_vocoder(
        {
            ("v", 0): (133, 173), ("v", 1): (176, 216), ("v", 2): (219, 259),
            ("k", 2): (174, 204), ("k>v", 1): (174, 176), ("k>v", 2): (217, 219),
            ("v>client", 0): (173, 174), ("v>client", 1): (216, 217), ("v>client", 2): (259, 260),
        },
        [(1, 161, 174), (2, 204, 217)],
    )  # fmt: skip


def returned_when_taken_over() -> Tables:
    return slow_vocoder(
        {
            ("v", 0): (133, 173), ("v", 1): (173, 213), ("v", 2): (213, 253),
            ("v>client", 0): (173, 174), ("v>client", 1): (213, 214), ("v>client", 2): (253, 254),
        },
        [],
    )  # fmt: skip


def test_credit_back_when_finished_stalls_the_talker_twice():
    graph = graph_of(returned_when_finished())
    paths = critical_paths(graph)
    assert graph.violations.is_empty()
    assert paths.untiled().is_empty()
    assert [ms(end) for end in paths.requests["terminal_ns"].drop_nulls()] == [174, 260]
    assert in_ms(paths, REQUEST, "job") == [
        *UNTIL_TALKER,
        ("k", "service", 131, 161),
        ("k", "credit_stall", 161, 174),
        ("k", "service", 174, 204),
        ("k", "credit_stall", 204, 217),
        ("k>v", "transfer", 217, 219),
        ("v", "service", 219, 259),
        ("v>client", "deliver", 259, 260),
    ]


def test_system_view_runs_through_the_receiver_and_the_trip_of_the_credit():
    paths = critical_paths(graph_of(returned_when_finished()), ["job"], view="system")
    assert in_ms(paths, REQUEST, "job")[3:] == [
        ("k", "service", 101, 131),
        ("k>v", "transfer", 131, 133),
        ("v", "service", 133, 173),
        ("k", "credit_stall", 173, 174),
        ("k>v", "transfer", 174, 176),
        ("v", "service", 176, 216),
        ("k", "credit_stall", 216, 217),
        ("k>v", "transfer", 217, 219),
        ("v", "service", 219, 259),
        ("v>client", "deliver", 259, 260),
    ]


def test_credit_back_at_take_over_costs_six_ms_less_and_no_stall():
    paths = critical_paths(graph_of(returned_when_taken_over()))
    assert [ms(end) for end in paths.requests["terminal_ns"].drop_nulls()] == [174, 254]
    tail = [("k>v", "transfer", 131, 133), ("v", "service", 133, 173), ("v", "service", 173, 213)]
    tail += [("v", "service", 213, 253), ("v>client", "deliver", 253, 254)]
    assert in_ms(paths, REQUEST, "job") == UNTIL_TALKER + tail


@pytest.mark.parametrize("others", ["frozen", "relaxed"])
def test_a_fast_vocoder_takes_the_stalls_away(others):
    graph = graph_of(returned_when_finished())
    assert reproduces(graph, others=others).is_empty()
    again = retime(graph, scaled(graph, 15 / 40, stage="v"), others=others).terminals
    assert [ms(end) for end in again["retimed_ns"]] == [149, 209]


# --- what a wait needs to be explained ----------------------------------------------------------------------------


def shown(tables: Tables, terminal: str = "job") -> list[tuple[str, str, int, int]]:
    paths = critical_paths(graph_of(tables), [terminal])
    assert paths.untiled().is_empty()
    return in_ms(paths, REQUEST, terminal)


def test_a_wait_whose_cause_did_not_end_it_stays_unattributed():
    tables = edited(worked_example(), "span", {"kind": "queue", "stage": "ev"}, cause_span=None)
    assert shown(tables)[0] == ("ev", "unattributed", 0, 10)
    other = next(row["span"] for row in tables["span"].to_pylist() if row["stage"] == "k")
    tables = edited(worked_example(), "span", {"kind": "queue", "stage": "ev"}, cause_span=other)
    assert shown(tables)[0] == ("ev", "unattributed", 0, 10)


def test_a_wait_that_was_not_recorded_is_unattributed_while_the_replica_was_busy():
    tables = changed(worked_example(), "span", lambda rows: [row for row in rows if row["kind"] != "queue"])
    assert shown(tables)[0] == ("ev", "unattributed", 0, 10)
    assert ("t", "unattributed", 55, 60) in shown(tables)


def test_a_timer_explains_a_wait_without_a_span():
    tables = edited(worked_example(), "span", {"kind": "queue", "stage": "ev"}, kind="batch_wait", cause="timer")
    tables = edited(tables, "span", {"kind": "batch_wait"}, cause_span=None)
    assert shown(tables)[0] == ("ev", "batch_wait", 0, 10)


def test_a_credit_that_came_back_with_the_start_of_a_service_explains_a_stall():
    at, taker = ORIGIN_NS + 10 * MS_NS, {"stage": "t", "request": BLOCKS_THINKER}
    tables = edited(worked_example(), "span", taker, start_ns=at, batch=None)
    span = next(row["span"] for row in tables["span"].to_pylist() if taker.items() <= row.items())
    wait = {"kind": "queue", "stage": "ev"}
    tables = edited(tables, "span", wait, kind="credit_stall", cause="credit", cause_span=span)
    assert shown(tables)[0] == ("ev", "credit_stall", 0, 10)
    assert ("ev", "unattributed", 0, 10) in shown(edited(tables, "span", {"kind": "credit_stall"}, cause="resource"))


def test_the_lag_after_the_latest_cause_is_the_hosts():
    tables = edited(worked_example(), "span", {"kind": "queue", "stage": "ev"}, end_ns=ORIGIN_NS + 7 * MS_NS)
    blocker = {"stage": "ev", "request": BLOCKS_VISION}
    tables = edited(tables, "span", blocker, end_ns=ORIGIN_NS + 7 * MS_NS)
    assert shown(tables)[:2] == [("ev", "queue", 0, 7), ("ev", "host", 7, 10)]


def test_a_lag_beside_another_launch_is_unattributed():
    tables = edited(worked_example(), "span", {"kind": "queue", "stage": "ev"}, end_ns=ORIGIN_NS)
    blocker = {"stage": "ev", "request": BLOCKS_VISION}
    tables = edited(tables, "span", blocker, end_ns=ORIGIN_NS + 20 * MS_NS)
    tables = edited(tables, "span", {"stage": "ev", "request": REQUEST}, cause="unknown")
    assert shown(tables)[0] == ("ev", "unattributed", 0, 10)


def test_the_lag_of_a_hand_off_belongs_to_the_producing_stage():
    tables = edited(worked_example(), "chunk", {"edge": "ev>t", "request": REQUEST}, sent_ns=ORIGIN_NS + 52 * MS_NS)
    assert shown(tables)[2:4] == [("ev", "host", 50, 52), ("ev>t", "transfer", 52, 55)]


def test_a_request_without_client_rows_begins_unattributed():
    tables = changed(worked_example(), "chunk", lambda rows: [row for row in rows if row["edge"] != "client>ev"])
    tables = changed(tables, "span", lambda rows: [row for row in rows if row["kind"] != "queue"])
    tables = edited(tables, "span", {"stage": "ev", "request": BLOCKS_VISION}, end_ns=ORIGIN_NS - 5 * MS_NS)
    assert shown(tables)[0] == ("ev", "unattributed", 0, 10)


def test_submit_lag_of_the_client_is_on_the_path():
    late = ORIGIN_NS - 2 * MS_NS
    tables = edited(worked_example(), "request", {"request": REQUEST}, scheduled_ns=late)
    tables = edited(tables, "span", {"stage": "client", "request": REQUEST}, start_ns=late)
    assert shown(tables)[:2] == [("client", "host", -2, 0), ("ev", "queue", 0, 10)]


def test_of_two_causes_at_one_moment_data_wins_then_the_lowest_id():
    tables = edited(worked_example(), "chunk", {"edge": "t>k", "seq": 1}, received_ns=ORIGIN_NS + 131 * MS_NS)
    assert ("t>k", "transfer", 120, 131) in shown(tables)
    both = edited(worked_example(), "chunk", {"edge": "ea>t", "request": REQUEST}, received_ns=ORIGIN_NS + 55 * MS_NS)
    assert ("ea>t", "transfer", 30, 55) in shown(both)
    ea, ev = (
        row["span"]
        for name in ("ea>t", "ev>t")
        for row in both["chunk"].to_pylist()
        if row["edge"] == name and row["request"] == REQUEST
    )
    assert ea < ev


def test_steps_within_the_clock_error_are_counted():
    graph = graph_of(worked_example())
    steps = [
        critical_paths(graph, ["job"], clock_error_ns=error * MS_NS).requests["ambiguous_steps"][0]
        for error in (0, 10, 11, 24)
    ]
    # Rivals at K2, V3, K3 and T1 (the join) come 10, 15, 20 and 23 ms before the chosen cause.
    assert steps == [0, 0, 1, 4]


def test_a_cancelled_request_keeps_its_first_output_and_has_no_job():
    tables = edited(worked_example(), "outcome", {"request": REQUEST}, status="cancelled")
    requests = critical_paths(graph_of(tables)).requests.filter(pl.col("request") == REQUEST)
    assert requests.select("terminal", "latency_ns", "missing").rows() == [
        ("first", 149 * MS_NS, None),
        ("job", None, "cancelled"),
    ]


def test_a_broken_request_is_excluded_and_counted_and_the_rest_stays():
    tables = edited(worked_example(), "chunk", {"edge": "ev>t", "request": REQUEST}, received_ns=ORIGIN_NS + 61 * MS_NS)
    graph = graph_of(tables)
    assert graph.violations.select("code", "request", "excess_ns", "excluded").rows() == [
        ("negative-lag", REQUEST, MS_NS, True)
    ]
    requests = critical_paths(graph).requests
    assert requests.filter(pl.col("request") == REQUEST)["missing"].to_list() == ["excluded", "excluded"]
    assert len(requests) == 6


def test_the_store_of_an_empty_run_gives_empty_frames():
    tables = {name: table.clear() for name, table in polars_tables(worked_example()).items()}
    graph = TaskGraph.from_tables(**tables)
    paths = critical_paths(graph)
    assert paths.segments.is_empty()
    assert paths.requests.is_empty()
    assert paths.untiled().is_empty()
    assert join_waits(graph).is_empty()
    assert reproduces(graph).is_empty()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [({"view": "both"}, "'both'"), ({"terminals": ["last"]}, "'last'"), ({"clock_error_ns": -1}, "-1")],
)
def test_a_wrong_argument_is_named(arguments, named):
    with pytest.raises(UsageError, match=named):
        critical_paths(graph_of(worked_example()), **arguments)


def test_untiled_finds_a_gap_an_overlap_and_a_wrong_end():
    paths = critical_paths(graph_of(worked_example()), ["job"])
    for change in (
        pl.col("start_ns") + pl.when(pl.col("position") == 3).then(1).otherwise(0),
        pl.col("start_ns") - pl.when(pl.col("position") == 3).then(1).otherwise(0),
        pl.col("start_ns") - pl.when(pl.col("position") == 0).then(1).otherwise(0),
    ):
        broken = CriticalPaths("request", paths.segments.with_columns(start_ns=change), paths.requests)
        assert broken.untiled()["request"].to_list() == [REQUEST]
    assert paths.untiled().is_empty()


# --- random runs --------------------------------------------------------------------------------------------------


@given(st.integers(0, 2**32))
def test_paths_are_the_causes_that_the_simulator_knows(seed):
    # Of launches of length 0 in one nanosecond the recording cannot tell which freed the replica: no system view then.
    run = Run(seed, least=seed % 2)
    graph = TaskGraph.from_tables(**run.tables())
    assert graph.violations.is_empty()
    assert graph.lag_ns.min() >= 0
    request_view, system_view = critical_paths(graph), critical_paths(graph, view="system")
    assert request_view.untiled().is_empty()
    assert system_view.untiled().is_empty()
    for terminal in ("first", "job"):
        for request in run.requests:
            found, truth = rows_of(request_view, request, terminal), run.path(request, terminal)
            assert [row[:3] for row in found] == [row[:3] for row in truth]
            assert all(span in (None, row[3]) for row, (*_, span) in zip(found, truth, strict=True))
            if run.least:
                found = [row[:3] for row in rows_of(system_view, request, terminal)]
                assert found == run.system_path(request, terminal)


@given(random_traces())
def test_paths_equal_plain_python_on_runs_with_cancels_retries_and_batches(tables):
    graph = graph_of(tables)
    paths = critical_paths(graph)
    assert graph.violations.is_empty()
    assert paths.untiled().is_empty()
    assert critical_paths(graph, view="system").untiled().is_empty()
    assert "unattributed" not in paths.segments["kind"].to_list()
    found = paths.segments.select("request", "terminal", "kind", "start_ns", "end_ns", "span").rows()
    assert found == plain_paths(polars_tables(tables))
    delivered = pl.DataFrame(tables["outcome"]).filter(pl.col("status") == "ok")
    jobs = paths.requests.filter((pl.col("terminal") == "job") & pl.col("terminal_ns").is_not_null())
    assert jobs["terminal_ns"].to_list() == delivered.sort("request")["end_ns"].to_list()


@given(random_traces(), st.integers(0, 2**32))
def test_damaged_waits_still_tile_and_equal_plain_python(tables, seed):
    frames = polars_tables(tables)
    frames["span"] = damaged(frames["span"], random.Random(seed))
    graph = TaskGraph.from_tables(**frames)
    paths = critical_paths(graph)
    assert paths.untiled().is_empty()
    assert critical_paths(graph, view="system").untiled().is_empty()
    assert reproduces(graph).is_empty()
    excluded = set(graph.requests.request[graph.excluded].tolist())
    found = paths.segments.select("request", "terminal", "kind", "start_ns", "end_ns", "span").rows()
    assert found == [row for row in plain_paths(frames) if row[0] not in excluded]


def damaged(span: pl.DataFrame, rng: random.Random) -> pl.DataFrame:
    """Spans with some waits lost, some ended a nanosecond off, and some causes forgotten."""
    wait = span["kind"].is_in(["queue", "batch_wait", "credit_stall", "join_wait"])
    kept = pl.Series([not w or rng.random() < 0.8 for w in wait], dtype=pl.Boolean)
    causes = pl.Series([None if rng.random() < 0.1 else by for by in span["cause_span"]], dtype=pl.Int64)
    moved = pl.Series([rng.choice((0, 0, 0, 1, -1)) if w else 0 for w in wait], dtype=pl.Int64)
    return span.with_columns(cause_span=causes, end_ns=pl.col("end_ns") + moved).filter(kept)


@given(st.integers(0, 2**32))
def test_row_order_and_representation_of_names_do_not_matter(seed):
    tables = Run(seed).tables()
    expected = critical_paths(TaskGraph.from_tables(**tables)).segments
    shuffled = {name: table.sample(fraction=1, shuffle=True, seed=seed) for name, table in tables.items()}
    for name, column in (("span", "stage"), ("span", "kind"), ("chunk", "edge"), ("stage", "role")):
        shuffled[name] = shuffled[name].with_columns(pl.col(column).cast(pl.Categorical))
    assert critical_paths(TaskGraph.from_tables(**shuffled)).segments.equals(expected)


def test_arrays_of_a_graph_are_not_touched_by_a_walk():
    graph = TaskGraph.from_tables(**Run(7).tables())
    arrays = (graph.activities.start_ns, graph.dependencies.source, graph.waits.end_ns)
    before = [np.copy(array) for array in arrays]
    critical_paths(graph)
    retime(graph)
    for array, copy in zip(arrays, before, strict=True):
        assert np.array_equal(array, copy)
