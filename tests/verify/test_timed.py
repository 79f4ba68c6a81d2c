"""The timed driver against closed forms, and its rows against the trace contract."""

from __future__ import annotations

from pathlib import Path

import pytest

import workbench
from workbench.control import window
from workbench.control.capacity import busy_window_items, credit_hold_ns
from workbench.control.priorities import preset
from workbench.errors import UsageError
from workbench.graph import StageGraph
from workbench.units import MS_NS
from workbench.verify import model_run
from workbench.verify.scenario import chain, fork_join
from workbench.verify.timed import TimedRun, Work, run

PROTOCOLS = window.load()


def work(graph: StageGraph, service_ms: dict[str, int], requests: int = 1, chunks: int = 4, **more: object) -> Work:
    service = {name: service_ms.get(name, 1) * MS_NS for name in graph.order}
    sizes = {edge.name: 1_000 for edge in graph.edges}
    options: dict[str, object] = {"message_ns": MS_NS, **more}
    return Work(service, (0,) * requests, chunks, sizes, **options)  # type: ignore[arg-type]


def fixed(chunks: int) -> window.Protocol:
    return window.Protocol("fixed", "a window", "test", "fixed", False, 0, window_chunks=chunks)


def opened(made: TimedRun, folder: Path) -> workbench.Run:
    return workbench.open(model_run.save(made.tables, folder, "timed"))


def test_one_request_through_one_stage_takes_what_it_must() -> None:
    made = run(chain(1), work(chain(1), {"s0": 5}, chunks=3), PROTOCOLS["unbounded"])
    outcome = made.tables["outcome"].to_pylist()[0]
    # Start message, three launches back to back, one message to the client.
    assert outcome["first_output_ns"] == (1 + 5 + 1) * MS_NS
    assert outcome["end_ns"] == (1 + 3 * 5 + 1) * MS_NS
    assert outcome["status"] == "ok"


@pytest.mark.parametrize("down", [2, 5, 10])
@pytest.mark.parametrize("trip", [0, 3, 8])
def test_the_smallest_busy_window_is_the_one_that_the_formula_says(down: int, trip: int) -> None:
    graph, chunks = chain(2), 30
    load = work(graph, {"s0": 1, "s1": down}, chunks=chunks, message_ns=trip * MS_NS)
    # Credit comes back when the launch downstream starts, and is out from the reservation on.
    hold = credit_hold_ns(down * MS_NS, 2 * trip * MS_NS, make_ns=MS_NS, returned="start")
    enough = busy_window_items(down * MS_NS, hold) + 1
    quick = run(graph, load, PROTOCOLS["unbounded"])
    assert run(graph, load, fixed(enough)).end_ns == quick.end_ns
    if trip >= down:
        assert run(graph, load, fixed(1)).end_ns > quick.end_ns


def test_the_bound_holds_and_binds() -> None:
    graph = fork_join()
    load = work(graph, {"join": 9}, requests=3, chunks=12)
    free = run(graph, load, PROTOCOLS["unbounded"])
    bounded = run(graph, load, PROTOCOLS["closed-loop"], total_bytes=17_000)
    assert bounded.peak_bytes <= 17_000 < free.peak_bytes


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("graph", [fork_join()], ids=lambda graph: graph.name)
def test_rows_keep_every_rule_and_say_what_the_ledger_says(name: str, graph: StageGraph, tmp_path: Path) -> None:
    load = work(graph, {graph.order[-1]: 6}, requests=3, chunks=6, pause_ns=(30 * MS_NS, 60 * MS_NS))
    made = run(graph, load, PROTOCOLS[name], total_bytes=20_000)
    trace = opened(made, tmp_path)
    report = trace.validate()
    assert report.is_valid
    assert not report.findings
    assert trace.info["provenance"] == "emulated"
    together = trace.sql("SELECT bytes FROM in_flight_high_water WHERE edge IS NULL").item()
    assert 0 < together <= made.peak_bytes
    assert trace.sql("SELECT count(*) FROM outcome WHERE status = 'ok'").item() == 3
    # Nobody is on a stage's only worker at the same time as somebody else, and all work was done.
    busy = trace.sql("SELECT stage, sum(end_ns - start_ns) AS ns FROM span WHERE kind = 'service' GROUP BY stage")
    assert dict(busy.iter_rows()) == {stage: 18 * load.service_ns[stage] for stage in graph.order}
    # The waits of a request at a stage and its work tile the time from its first wait or launch on, gaps aside.
    overlaps = trace.sql(
        "SELECT count(*) FROM (SELECT start_ns, max(end_ns) OVER (PARTITION BY request, stage ORDER BY start_ns, span "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before_ns FROM span) WHERE before_ns > start_ns"
    ).item()
    assert overlaps == 0


def test_two_runs_are_equal() -> None:
    load = work(fork_join(), {"join": 3}, requests=3, chunks=5)
    one, other = (run(fork_join(), load, PROTOCOLS["aimd"]) for _ in range(2))
    assert one.tables == other.tables


def test_the_priority_decides_who_goes_first() -> None:
    graph = chain(1)
    load = Work({"s0": 4 * MS_NS}, (0, MS_NS, 2 * MS_NS), 3, {"s0>client": 10}, message_ns=0)
    ends = {}
    for name in ("oldest-first", "las"):
        made = run(graph, load, PROTOCOLS["unbounded"], priority=preset(name))
        ends[name] = [row["end_ns"] for row in made.tables["outcome"].to_pylist()]
    assert ends["oldest-first"] == [12 * MS_NS, 24 * MS_NS, 36 * MS_NS]
    # Least attained service takes turns, so nobody ends before everybody had two chunks.
    assert min(ends["las"]) >= 28 * MS_NS


def test_a_cancel_ends_the_work(tmp_path: Path) -> None:
    graph = chain(2)
    load = work(graph, {"s1": 5}, requests=2, chunks=20, cancels_ns={1: 31 * MS_NS})
    made = run(graph, load, PROTOCOLS["closed-loop"], total_bytes=20_000)
    trace = opened(made, tmp_path)
    assert trace.validate().is_valid
    assert trace.sql("SELECT status FROM outcome ORDER BY request")["status"].to_list() == ["ok", "cancelled"]
    after = trace.sql("SELECT started FROM after_cancel").item()
    # The client's word takes a message to the controller and another to each stage.
    assert after <= 2
    assert trace.sql("SELECT max(taken_ns) FROM chunk WHERE request = 1 AND edge = 's1>client'").item() <= 31 * MS_NS


def test_what_is_missing_is_said() -> None:
    graph = chain(2)
    with pytest.raises(UsageError, match="a service time of each stage"):
        run(graph, Work({"s0": 1}, (0,), 1, {}), PROTOCOLS["unbounded"])
    with pytest.raises(UsageError, match="chunks"):
        Work({"s0": 1}, (0,), 0, {})
