"""Every rule fires on exactly the damaged row, and no rule fires on a valid trace."""

from __future__ import annotations

import copy
import json
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from workbench.errors import DataIntegrityError
from workbench.schema.ddl import views
from workbench.schema.rules import Rule, rules
from workbench.schema.tables import TABLES
from workbench.testing.traces import (
    FATES,
    JOIN,
    LINEAR,
    Arrival,
    Row,
    Tables,
    changed,
    from_rows,
    random_traces,
    simulate,
    to_rows,
    worked_example,
    write_folder,
)
from workbench.trace import store
from workbench.trace.validate import Report, validate
from workbench.units import MS_NS

Rows = dict[str, list[Row]]

ARRIVALS = [
    Arrival(at_ns=3 * n * MS_NS, chunks=1 + n % 4, klass=("short", "long")[n % 2], fate=("ok", *FATES)[n % 7])
    for n in range(35)
]
BASES = {"linear": simulate(LINEAR, ARRIVALS, seed=11), "join": simulate(JOIN, ARRIVALS, seed=12)}
MUTANTS: list[tuple[str, str, Callable[[Rows], set[str]]]] = []


def mutant(rule: str, base: str = "linear") -> Callable[[Callable[[Rows], set[str]]], Callable[[Rows], set[str]]]:
    """Register damage: it changes rows in place and returns the keys that the rule must list."""

    def register(damage: Callable[[Rows], set[str]]) -> Callable[[Rows], set[str]]:
        MUTANTS.append((rule, base, damage))
        return damage

    return register


def find(rows: Rows, table: str, condition: Callable[[Row], bool] = lambda row: True, **values: Any) -> Row:
    """The first row of a table with these values."""
    return next(
        row for row in rows[table] if condition(row) and all(row[name] == value for name, value in values.items())
    )


def find_all(rows: Rows, table: str, **values: Any) -> list[Row]:
    return [row for row in rows[table] if all(row[name] == value for name, value in values.items())]


def stream(rows: Rows, edge: str, length: int) -> list[Row]:
    """Chunks of an unharmed stream of this length on an edge, in order."""
    streams = defaultdict(list)
    for row in rows["chunk"]:
        if row["edge"] == edge:
            streams[row["request"], row["epoch"]].append(row)
    ok = {row["request"] for row in rows["outcome"] if row["status"] == "ok"}
    return next(
        sorted(chunks, key=lambda row: row["seq"])
        for (request, _), chunks in streams.items()
        if len(chunks) == length and request in ok
    )


def launches(rows: Rows, stage: str) -> list[list[Row]]:
    """Members of each launch of replica 0 of a stage, in order."""
    groups = defaultdict(list)
    for row in rows["span"]:
        if row["kind"] == "service" and row["stage"] == stage and row["replica"] == 0:
            groups[row["batch"]].append(row)
    return sorted(groups.values(), key=lambda members: members[0]["start_ns"])


@mutant("duplicate-key")
def two_batches(rows: Rows) -> set[str]:
    rows["batch"].append(rows["batch"][0])
    return {f"batch {rows['batch'][0]['batch']}"}


@mutant("duplicate-key")
def two_requests_and_stages(rows: Rows) -> set[str]:
    rows["request"].append(rows["request"][2])
    rows["stage"].append(rows["stage"][1])
    rows["slo"].append(rows["slo"][0])
    return {"request 2", "stage thinker", f"class {rows['slo'][0]['class']} metric {rows['slo'][0]['metric']}"}


@mutant("duplicate-id")
def span_twice(rows: Rows) -> set[str]:
    rows["span"].append(rows["span"][5])
    return {f"span {rows['span'][5]['span']}"}


@mutant("duplicate-id")
def span_and_chunk_of_one_id(rows: Rows) -> set[str]:
    rows["chunk"][3]["span"] = rows["span"][5]["span"]
    return {f"span {rows['span'][5]['span']}"}


@mutant("missing-outcome")
def no_outcome(rows: Rows) -> set[str]:
    rows["outcome"].remove(find(rows, "outcome", request=4))
    return {"request 4"}


@mutant("double-outcome")
def two_outcomes(rows: Rows) -> set[str]:
    rows["outcome"].append({**find(rows, "outcome", request=4), "status": "error"})
    return {"request 4"}


@mutant("unknown-request")
def orphans(rows: Rows) -> set[str]:
    for table, index in (("span", 7), ("chunk", 3), ("outcome", 2), ("object", 1)):
        rows[table][index]["request"] = 999
    subject = rows["object"][1]
    return {
        f"span {rows['span'][7]['span']}",
        f"chunk {rows['chunk'][3]['span']}",
        "request 999",
        f"object {subject['object']} {subject['event']}",
    }


@mutant("unknown-stage")
def span_of_no_stage(rows: Rows) -> set[str]:
    rows["span"][7]["stage"] = "ghost"
    rows["edge"][1]["source"] = "ghost"
    return {f"span {rows['span'][7]['span']}", f"edge {rows['edge'][1]['edge']}"}


@mutant("unknown-edge")
def chunk_of_no_edge(rows: Rows) -> set[str]:
    rows["chunk"][3]["edge"] = "ghost>ghost"
    return {f"chunk {rows['chunk'][3]['span']}"}


@mutant("unknown-replica")
def replica_beyond(rows: Rows) -> set[str]:
    rows["span"][7]["replica"], rows["batch"][0]["replica"] = 7, -1
    return {f"span {rows['span'][7]['span']}", f"batch {rows['batch'][0]['batch']}"}


@mutant("unknown-batch")
def launch_of_no_batch(rows: Rows) -> set[str]:
    row = find(rows, "span", kind="service")
    row["batch"] = 999
    return {f"span {row['span']}"}


@mutant("unknown-process")
def written_by_nobody(rows: Rows) -> set[str]:
    rows["span"][7]["proc"] = 9
    return {f"span {rows['span'][7]['span']}"}


@mutant("reversed-window")
def window_backwards(rows: Rows) -> set[str]:
    rows["run"][0]["last_ns"] = rows["run"][0]["first_ns"] - 1
    return {f"run {rows['run'][0]['label']}"}


@mutant("reversed-interval")
def negative_interval(rows: Rows) -> set[str]:
    row = find(rows, "span", kind="queue")
    row["end_ns"] = row["start_ns"] - 1
    return {f"span {row['span']}"}


@mutant("reversed-transfer")
def received_before_sent(rows: Rows) -> set[str]:
    row = rows["chunk"][3]
    row["received_ns"] = row["sent_ns"] - 1
    return {f"chunk {row['span']}"}


@mutant("reversed-transfer")
def taken_and_never_received(rows: Rows) -> set[str]:
    row = find(rows, "chunk", lambda row: row["taken_ns"] is not None)
    row["received_ns"] = None
    return {f"chunk {row['span']}"}


@mutant("reversed-launch")
def device_before_dispatch(rows: Rows) -> set[str]:
    row = rows["batch"][2]
    row["device_start_ns"] = row["dispatch_ns"] - 1
    return {f"batch {row['batch']}"}


@mutant("negative-size")
def negative_bytes(rows: Rows) -> set[str]:
    rows["chunk"][3]["bytes"], rows["batch"][1]["members"] = -1, 0
    return {f"chunk {rows['chunk'][3]['span']}", f"batch {rows['batch'][1]['batch']}"}


@mutant("bad-weight")
def no_weight(rows: Rows) -> set[str]:
    rows["request"][0]["weight"], rows["request"][1]["weight"] = 0.0, math.nan
    return {"request 0", "request 1"}


@mutant("early-submission")
def submitted_early(rows: Rows) -> set[str]:
    row = find(rows, "request", lambda row: row["arrival_ns"] is not None)
    row["arrival_ns"] = row["scheduled_ns"] - 1
    return {f"request {row['request']}"}


@mutant("ok-without-end")
def ok_and_no_end(rows: Rows) -> set[str]:
    row = find(rows, "outcome", status="ok")
    row["end_ns"] = None
    return {f"request {row['request']}"}


@mutant("end-before-arrival")
def ended_before_arrival(rows: Rows) -> set[str]:
    row = find(rows, "outcome", status="error")
    row["end_ns"] = find(rows, "request", request=row["request"])["scheduled_ns"] - 1
    return {f"request {row['request']}"}


@mutant("output-after-end")
def output_after_end(rows: Rows) -> set[str]:
    row = find(rows, "outcome", status="error")
    row["first_output_ns"] = row["end_ns"] + 1
    return {f"request {row['request']}"}


@mutant("first-output-mismatch")
def other_first_output(rows: Rows) -> set[str]:
    row = find(rows, "outcome", lambda row: row["first_output_ns"] is not None)
    row["first_output_ns"] -= 1
    return {f"request {row['request']}"}


@mutant("end-mismatch")
def other_end(rows: Rows) -> set[str]:
    row = find(rows, "outcome", status="ok")
    row["end_ns"] += 1
    return {f"request {row['request']}"}


@mutant("ok-without-final-chunk")
def never_final(rows: Rows) -> set[str]:
    request = find(rows, "outcome", status="ok")["request"]
    for row in find_all(rows, "chunk", request=request, edge="code2wav>client"):
        row["final"] = False
    return {f"request {request}"}


@mutant("sample-total")
def one_sample_more(rows: Rows) -> set[str]:
    row = find(rows, "outcome", status="ok")
    row["output_units"] += 1
    return {f"request {row['request']}"}


@mutant("cancelled-without-cancel")
def no_cancel_moment(rows: Rows) -> set[str]:
    row = find(rows, "outcome", status="cancelled")
    row["cancel_ns"] = None
    return {f"request {row['request']}"}


@mutant("delivery-after-cancel")
def delivered_after_cancel(rows: Rows) -> set[str]:
    last = stream(rows, "code2wav>client", 3)[-1]
    find(rows, "outcome", request=last["request"])["cancel_ns"] = last["taken_ns"] - 1
    return {f"chunk {last['span']}"}


@mutant("sequence-gap")
def chunk_lost(rows: Rows) -> set[str]:
    chunks = stream(rows, "thinker>talker", 4)
    rows["chunk"].remove(chunks[1])
    return {f"chunk {chunks[2]['span']}"}


@mutant("sequence-repeat")
def chunk_twice(rows: Rows) -> set[str]:
    chunks = stream(rows, "thinker>talker", 4)
    again = max(row["span"] for row in rows["chunk"]) + 1
    rows["chunk"].append({**chunks[1], "span": again})
    return {f"chunk {again}"}


@mutant("sequence-gap")
def stream_from_one(rows: Rows) -> set[str]:
    chunks = stream(rows, "thinker>talker", 4)
    rows["chunk"].remove(chunks[0])
    return {f"chunk {chunks[1]['span']}"}


@mutant("sequence-order")
def emitted_out_of_order(rows: Rows) -> set[str]:
    chunks = stream(rows, "thinker>talker", 3)
    chunks[1]["emitted_ns"] = chunks[0]["emitted_ns"] - 1
    return {f"chunk {chunks[1]['span']}"}


@mutant("chunk-after-final")
def two_finals(rows: Rows) -> set[str]:
    chunks = stream(rows, "thinker>talker", 3)
    chunks[0]["final"] = True
    return {f"chunk {chunks[1]['span']}"}


@mutant("sample-gap")
def samples_skipped(rows: Rows) -> set[str]:
    last = stream(rows, "code2wav>client", 3)[-1]
    last["sample_start"] += 5
    return {f"chunk {last['span']}"}


@mutant("sample-gap", "join")
def samples_repeated(rows: Rows) -> set[str]:
    first = stream(rows, "vocoder>client", 1)[0]
    first["sample_start"] = 5
    return {f"chunk {first['span']}"}


@mutant("sample-rate-change")
def another_rate(rows: Rows) -> set[str]:
    last = stream(rows, "code2wav>client", 3)[-1]
    last["sample_rate"] = 16_000
    return {f"chunk {last['span']}"}


@mutant("frame-gap")
def frame_skipped(rows: Rows) -> set[str]:
    last = stream(rows, "code2wav>client", 3)[-1]
    last["frame_start"] += 1
    return {f"chunk {last['span']}"}


@mutant("state-generation-change")
def another_generation(rows: Rows) -> set[str]:
    last = stream(rows, "code2wav>client", 3)[-1]
    last["state_generation"] = 1
    return {f"chunk {last['span']}"}


@mutant("unknown-cause")
def caused_by_nothing(rows: Rows) -> set[str]:
    row = find(rows, "span", kind="service", cause="state")
    row["cause_span"] = 999
    return {f"span {row['span']}"}


@mutant("cause-after-start")
def caused_by_the_future(rows: Rows) -> set[str]:
    order = launches(rows, "talker")
    order[1][0] |= {"cause": "resource", "cause_span": order[-1][0]["span"]}
    return {f"span {order[1][0]['span']}"}


@mutant("cause-after-start")
def caused_by_a_chunk_that_never_came(rows: Rows) -> set[str]:
    row = find(rows, "span", kind="service", cause="data")
    find(rows, "chunk", span=row["cause_span"])["received_ns"] = None
    return {f"span {row['span']}"}


@mutant("cause-misplaced")
def caused_elsewhere(rows: Rows) -> set[str]:
    other = launches(rows, "thinker")[0][0]
    row = launches(rows, "talker")[-1][0]
    row |= {"cause": "resource", "cause_span": other["span"]}
    return {f"span {row['span']}"}


@mutant("cause-unnamed")
def caused_by_nobody(rows: Rows) -> set[str]:
    row = find(rows, "span", kind="service", cause="state")
    row["cause_span"] = None
    return {f"span {row['span']}"}


@mutant("wait-not-ended-by-cause")
def wait_ends_early(rows: Rows) -> set[str]:
    row = find(rows, "span", lambda row: row["end_ns"] > row["start_ns"], kind="queue")
    row["end_ns"] -= 1
    return {f"span {row['span']}"}


@mutant("wait-not-ended-by-cause")
def stall_ends_without_a_credit(rows: Rows) -> set[str]:
    row = find(rows, "span", lambda row: row["end_ns"] > row["start_ns"], kind="credit_stall")
    row["end_ns"] -= 1
    return {f"span {row['span']}"}


@mutant("unknown-service")
def consumed_by_nothing(rows: Rows) -> set[str]:
    chunks = [row for row in rows["chunk"] if row["consumer_span"] is not None][:2]
    chunks[0]["consumer_span"], chunks[1]["producer_span"] = 998, 999
    return {f"chunk {row['span']}" for row in chunks}


@mutant("hand-off-misplaced")
def consumed_elsewhere(rows: Rows) -> set[str]:
    row = stream(rows, "thinker>talker", 1)[0]
    row["consumer_span"] = launches(rows, "thinker")[-1][0]["span"]
    return {f"chunk {row['span']}"}


@mutant("sent-before-made")
def sent_early(rows: Rows) -> set[str]:
    row = stream(rows, "thinker>talker", 2)[1]
    row["sent_ns"] = row["emitted_ns"] = find(rows, "span", span=row["producer_span"])["end_ns"] - 1
    return {f"chunk {row['span']}"}


@mutant("service-before-data")
def used_before_it_came(rows: Rows) -> set[str]:
    row = stream(rows, "thinker>talker", 2)[1]
    row["received_ns"] = find(rows, "span", span=row["consumer_span"])["start_ns"] + 1
    return {f"chunk {row['span']}"}


@mutant("launch-overlap")
def two_launches_at_once(rows: Rows) -> set[str]:
    before, after = launches(rows, "talker")[3:5]
    for row in before:
        row["end_ns"] = after[0]["start_ns"] + 1
    return {f"span {min(row['span'] for row in after)}"}


@mutant("launch-uneven")
def member_ends_late(rows: Rows) -> set[str]:
    members = next(members for members in launches(rows, "talker") if len(members) == 2)
    members[1]["end_ns"] += 1
    return {f"batch {members[1]['batch']}"}


@mutant("launch-members")
def member_missing(rows: Rows) -> set[str]:
    rows["batch"][2]["members"] += 1
    return {f"batch {rows['batch'][2]['batch']}"}


@mutant("launch-members")
def more_than_the_limit(rows: Rows) -> set[str]:
    row = find(rows, "batch", members=2)
    row["limit"] = 1
    return {f"batch {row['batch']}"}


@mutant("task-overlap")
def waits_while_it_works(rows: Rows) -> set[str]:
    for wait in find_all(rows, "span", kind="batch_wait"):
        for service in find_all(rows, "span", kind="service", request=wait["request"], stage=wait["stage"]):
            if (service["epoch"], service["start_ns"]) == (wait["epoch"], wait["end_ns"]):
                wait["end_ns"] += 1
                return {f"span {service['span']}"}
    raise AssertionError("no service that starts at the end of its wait")


@mutant("task-order")
def tasks_swapped(rows: Rows) -> set[str]:
    chunks = stream(rows, "thinker>talker", 2)
    first, second = (find(rows, "span", span=row["producer_span"]) for row in chunks)
    first["chunk"], second["chunk"] = 1, 0
    return {f"span {second['span']}"}


@mutant("clock-step")
def clock_jumps(rows: Rows) -> set[str]:
    row = find_all(rows, "clock_sync", proc=1)[1]
    row["ref_ns"] += 10**9
    return {f"proc 1 at {row['local_ns']}"}


@mutant("clock-step")
def clock_runs_backwards(rows: Rows) -> set[str]:
    first, second = find_all(rows, "clock_sync", proc=2)
    second["local_ns"] = second["ref_ns"] = first["local_ns"] - 5
    return {f"proc 2 at {second['local_ns']}"}


@mutant("wall-clock-step")
def wall_clock_jumps(rows: Rows) -> set[str]:
    row = find_all(rows, "clock_sync", proc=1)[1]
    row["wall_ns"] -= 10**9
    return {f"proc 1 at {row['local_ns']}"}


def credits(rows: Rows, takes: int) -> list[Row]:
    """Credit events of an owner with this many takes, all returned."""
    owners = defaultdict(list)
    for row in rows["credit"]:
        owners[row["request"], row["epoch"]].append(row)
    return next(
        events
        for events in owners.values()
        if sum(row["event"] == "take" for row in events) == takes
        and sum(row["event"] == "return" for row in events) == takes
    )


def credit_key(row: Row) -> str:
    return f"{row['edge']} request {row['request']} epoch {row['epoch']} seq {row['seq']}"


@mutant("credit-sequence")
def credit_event_repeated(rows: Rows) -> set[str]:
    last = credits(rows, 2)[-1]
    rows["credit"].append({**last, "event": "refresh", "chunks": 3})
    return {credit_key(last)}


@mutant("credit-over-limit")
def taken_without_credit(rows: Rows) -> set[str]:
    events = credits(rows, 1)
    events[0]["chunks"] = 0
    return {credit_key(next(row for row in events if row["event"] == "take"))}


@mutant("credit-returned-twice")
def returned_twice(rows: Rows) -> set[str]:
    events = credits(rows, 2)
    again = {**events[-1], "event": "return", "seq": events[-1]["seq"] + 1}
    rows["credit"].append(again)
    return {credit_key(again)}


@mutant("unknown-metric")
def objective_on_nothing(rows: Rows) -> set[str]:
    rows["slo"][0]["metric"] = "speed"
    return {f"class {rows['slo'][0]['class']} metric speed"}


@mutant("events-lost")
def rows_lost(rows: Rows) -> set[str]:
    rows["run"][0]["events_lost"] = 3
    return {f"run {rows['run'][0]['label']}"}


@mutant("not-placed")
def importer_gave_up(rows: Rows) -> set[str]:
    rows["import_note"].append({"level": "error", "code": "no-request", "count": 3, "sample": "<b>x</b>"})
    rows["import_note"].append({"level": "info", "code": "unknown-field", "count": 1, "sample": None})
    return {"no-request"}


def judged(tables: Tables, **options: int) -> Report:
    with store.load_tables([tables]) as con:
        return validate(con, **options)


@pytest.fixture(scope="module")
def damaged() -> tuple[dict[str, set[str]], Report]:
    """All mutants as runs of one store, judged at once: expected keys per run, and the report."""
    expected, runs = {}, []
    for _, base, damage in MUTANTS:
        rows = {name: copy.deepcopy(to_rows(BASES[base], name)) for name in TABLES}
        rows["run"][0]["label"] = damage.__name__
        expected[damage.__name__] = damage(rows)
        runs.append(from_rows(rows))
    with store.load_tables(runs) as con:
        return expected, validate(con, rows=10_000)


@pytest.mark.parametrize(("rule", "damage"), [(rule, damage.__name__) for rule, _, damage in MUTANTS])
def test_rule_fires_on_exactly_the_damaged_row(
    rule: str, damage: str, damaged: tuple[dict[str, set[str]], Report]
) -> None:
    expected, report = damaged
    finding = next(finding for finding in report.findings if finding.rule == rule)
    found = [row.key for row in finding.rows if row.run == damage]
    assert set(found) == expected[damage]
    assert len(found) == len(expected[damage])
    assert finding.count == len(finding.rows)


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule.id)
def test_rule_is_silent_elsewhere(rule: Rule, damaged: tuple[dict[str, set[str]], Report]) -> None:
    """A mutant may break neighboring rules too, but most of them leave a rule alone."""
    _, report = damaged
    hit = {row.run for finding in report.findings if finding.rule == rule.id for row in finding.rows}
    assert len(hit) <= 6


def test_every_rule_has_a_mutant() -> None:
    assert {rule for rule, _, _ in MUTANTS} == {rule.id for rule in rules()}


@pytest.mark.parametrize("base", BASES)
def test_valid_traces_are_silent(base: str) -> None:
    assert judged(BASES[base]).findings == ()


def test_the_worked_example_is_valid() -> None:
    report = judged(worked_example())
    assert report.findings == ()
    states = {answer.question: (answer.state, answer.reason) for answer in report.answers}
    assert states["first-output"][0] == states["critical-path"][0] == states["join"][0] == "yes"
    assert states["device"] == ("no", "no device clock")
    assert states["energy"] == ("no", "no energy counter was recorded")
    assert states["credit"] == ("no", "no edge has a window")
    assert states["load"] == ("partly", "1 of 3 scheduled requests have an end")


@settings(max_examples=8, phases=(Phase.generate,), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(random_traces(max_requests=12), min_size=1, max_size=4))
def test_random_valid_traces_are_silent(drawn: list[Tables]) -> None:
    """Also side by side in one store: equal ids of different runs have nothing to do with each other."""
    runs = [
        changed(tables, "run", lambda rows, n=n: [row | {"label": f"run {n}"} for row in rows])
        for n, tables in enumerate(drawn)
    ]
    with store.load_tables(runs) as con:
        report = validate(con)
    assert report.findings == (), report.text()
    assert report.runs == tuple(f"run {n}" for n in range(len(drawn)))


def test_objective_metrics_are_those_of_the_view() -> None:
    """The rule lists the names once more, because asking the view for them would compute every metric."""
    (rule,) = (rule for rule in rules() if rule.id == "unknown-metric")
    with store.load_tables([worked_example()]) as con:
        names = {name for (name,) in con.execute("SELECT DISTINCT metric FROM request_metric").fetchall()}
    assert all(f"'{name}'" in rule.sql for name in names)
    assert rule.sql.count(", '") + rule.sql.count("    '") >= len(names)


def test_report_counts_all_and_shows_some() -> None:
    tables = changed(BASES["linear"], "span", lambda rows: [row | {"proc": 9} for row in rows])
    report = judged(tables, rows=3)
    (finding,) = report.findings
    assert (finding.rule, finding.count, len(finding.rows)) == ("unknown-process", len(to_rows(tables, "span")), 3)
    assert (report.errors, report.warnings, report.is_valid) == (0, finding.count, True)
    text = report.text(shown_rows=2)
    assert "warning unknown-process" in text
    assert f"and {finding.count - 2} more" in text
    content = json.loads(json.dumps(report.as_dict()))
    assert content["findings"][0]["rows"][0]["table"] == "span"
    assert content["answers"][0]["views"] == ["ttfo", "ttft", "ttfa"]


def test_text_of_many_runs_stays_short() -> None:
    runs = [changed_all(worked_example(), "run", label=f"run {n}") for n in range(5)]
    runs[3] = changed_all(runs[3], "batch", device_start_ns=1, device_end_ns=2)
    with store.load_tables(runs) as con:
        text = validate(con).text()
    assert "  no     How busy are the devices? 4 of 5 runs, run 0: no device clock" in text
    assert "  yes    How busy are the devices? 1 of 5 runs, run 3: all 14 launches have device times" in text
    assert len(text.splitlines()) < 40


def test_invalid_trace_says_so() -> None:
    rows = {name: to_rows(worked_example(), name) for name in TABLES}
    rows["outcome"].pop()
    report = judged(from_rows(rows))
    assert not report.is_valid
    assert "NOT valid" in report.text()
    assert "error missing-outcome: 1 rows (every request has an outcome)" in report.text()


def test_a_connection_is_left_as_it_was_found() -> None:
    with store.load_tables([worked_example()]) as con:
        before = con.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall()
        assert validate(con).as_dict() == validate(con).as_dict()
        assert con.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall() == before


def test_folder_store_file_and_connection_get_the_same_report(tmp_path) -> None:
    folder = write_folder(BASES["linear"], tmp_path / "random")
    store.build([folder], tmp_path / "runs.duckdb")
    with store.open_store(tmp_path / "runs.duckdb") as con:
        assert validate(folder) == validate(tmp_path / "runs.duckdb") == validate(con)


def test_damaged_folder_is_an_error_not_a_report(tmp_path) -> None:
    folder = write_folder(worked_example(), tmp_path / "run")
    content = (folder / "span.parquet").read_bytes()
    (folder / "span.parquet").write_bytes(content[:-9])
    with pytest.raises(DataIntegrityError, match=r"span\.parquet"):
        validate(folder)


def test_questions_name_views_that_exist() -> None:
    names = {view.name for view in views()}
    assert {view for answer in judged(worked_example()).answers for view in answer.views} <= names


def changed_all(tables: Tables, table: str, **values: Any) -> Tables:
    return changed(tables, table, lambda rows: [row | values for row in rows])


WAITS = ("queue", "batch_wait", "credit_stall", "join_wait")


METER = {"source": "model", "device": "cpu", "before_ns": 1, "after_ns": 2}

CASES: list[tuple[str, str, str, Callable[[Tables], Tables]]] = [
    ("waiting", "yes", "recorder was on", lambda t: t),
    ("waiting", "no", "probes were off", lambda t: changed_all(t, "run", probes="off")),
    ("waiting", "partly", "not join_wait", lambda t: changed_all(t, "run", provenance="imported")),
    (
        "waiting",
        "no",
        "no wait intervals",
        lambda t: changed(
            changed_all(t, "run", provenance="imported"),
            "span",
            lambda rows: [row for row in rows if row["kind"] not in WAITS],
        ),
    ),
    ("service", "no", "probes were off", lambda t: changed_all(t, "run", probes="off")),
    ("service", "partly", "reached a service", lambda t: changed_all(t, "run", provenance="imported")),
    ("bytes", "no", "state their size", lambda t: changed_all(t, "chunk", bytes=None)),
    (
        "bytes",
        "partly",
        "state their size",
        lambda t: changed(t, "chunk", lambda r: [r[0] | {"bytes": None}, *r[1:]]),
    ),
    ("bytes", "partly", "client edges only", lambda t: changed_all(t, "run", probes="off")),
    ("transfer", "partly", "client edges only", lambda t: changed_all(t, "run", probes="off")),
    ("playback", "no", "samples at the client", lambda t: changed_all(t, "chunk", samples=None)),
    ("critical-path", "no", "consumer", lambda t: changed_all(t, "chunk", consumer_span=None)),
    ("critical-path", "no", "0 of", lambda t: changed_all(t, "span", cause_span=None)),
    ("batching", "no", "state their limit", lambda t: changed_all(t, "batch", limit=None)),
    ("quality", "no", "not measured", lambda t: t),
    ("quality", "yes", "were measured", lambda t: changed_all(t, "outcome", quality=0.1, quality_metric="wer")),
    ("fairness", "no", "names no isolated run", lambda t: t),
    ("fairness", "no", "not in this store", lambda t: changed_all(t, "run", isolated_run="alone")),
    (
        "fairness",
        "yes",
        "isolated time",
        lambda t: changed(t, "run", lambda rows: [row | {"isolated_run": row["label"]} for row in rows]),
    ),
    ("cancel", "yes", "cancels", lambda t: t),
    ("cancel", "partly", "no state objects", lambda t: {k: v for k, v in t.items() if k != "object"}),
    ("cancel", "no", "nothing was cancelled", lambda t: changed_all(t, "outcome", cancel_ns=None)),
    ("probes", "yes", "calibrated", lambda t: t),
    ("probes", "partly", "7 rows were lost", lambda t: changed_all(t, "run", events_lost=7)),
    ("probes", "no", "not calibrated", lambda t: changed_all(t, "run", probe_ns_per_event=None)),
    ("objectives", "no", "no objectives", lambda t: {k: v for k, v in t.items() if k != "slo"}),
    ("device", "yes", "device times", lambda t: changed_all(t, "batch", device_start_ns=1, device_end_ns=2)),
    ("energy", "no", "modeled only", lambda t: changed(t, "energy", lambda _: [METER | {"modeled_mj": 5}])),
    ("energy", "no", "0 of 1", lambda t: changed(t, "energy", lambda _: [METER | {"source": "nvml"}])),
    ("state", "yes", "state object events", lambda t: t),
    ("decisions", "no", "no decisions", lambda t: t),
]


@pytest.fixture(scope="module")
def answered() -> Report:
    """All cases as runs of one store; the label is the number of the case."""
    runs = [damage(changed_all(BASES["linear"], "run", label=str(number))) for number, (*_, damage) in enumerate(CASES)]
    with store.load_tables(runs) as con:
        return validate(con)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{case[0]}-{case[1]}-{case[2]}" for case in CASES])
def test_answers_say_what_is_missing(number: int, answered: Report) -> None:
    question, state, reason, _ = CASES[number]
    (answer,) = (answer for answer in answered.answers if (answer.run, answer.question) == (str(number), question))
    assert answer.state == state
    assert reason in answer.reason
