from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metrics.frames import graph_of, polars_tables
from tests.metrics.streams import Run
from workbench.errors import UsageError
from workbench.metrics.critical_path import critical_paths
from workbench.metrics.drag import activity_drag, stage_drag
from workbench.metrics.retiming import retime
from workbench.metrics.task_graph import TaskGraph
from workbench.testing.example import BLOCKS_VISION, REQUEST
from workbench.testing.traces import worked_example
from workbench.units import MS_NS

OTHERS = ["frozen", "relaxed"]


@pytest.mark.parametrize("others", OTHERS)
def test_vision_is_on_the_path_and_has_no_drag(others):
    rows = activity_drag(graph_of(worked_example()), REQUEST, others=others)
    vision = rows.filter(pl.col("stage") == "ev").row(0, named=True)
    assert (vision["duration_ns"], vision["drag_ns"], vision["slack_ns"]) == (40 * MS_NS, 0, 5 * MS_NS)


def test_drag_and_slack_of_the_worked_example():
    rows = activity_drag(graph_of(worked_example()), REQUEST).filter(pl.col("stage").is_in(["t", "k", "v"]))
    found = {stage: [] for stage in ("t", "k", "v")}
    for stage, drag, slack in rows.select("stage", pl.col("drag_ns") // MS_NS, pl.col("slack_ns") // MS_NS).rows():
        found[stage].append((drag, slack))
    assert found == {
        "t": [(40, 0), (0, 10), (0, 20)],
        # Without K1 the talker waits for T2, without K2 for T3; without K3 the vocoder is the bottleneck.
        "k": [(10, 0), (20, 0), (15, 0)],
        "v": [(0, 30), (0, 15), (15, 0)],
    }


def test_what_the_first_output_does_not_need_has_no_slack():
    rows = activity_drag(graph_of(worked_example()), REQUEST, "first").filter(pl.col("stage") == "k")
    assert rows["slack_ns"].to_list() == [0, None, None]
    assert rows["drag_ns"].to_list() == [30 * MS_NS, 0, 0]


@pytest.mark.parametrize("others", OTHERS)
def test_stage_drag_of_the_worked_example(others):
    rows = stage_drag(graph_of(worked_example()), others=others).filter(pl.col("stage").is_not_null())
    found = {
        terminal: {stage: drag // MS_NS for stage, drag in part.select("stage", "drag_ns").rows() if drag}
        for (terminal,), part in rows.group_by("terminal")
    }
    freed = {} if others == "frozen" else {"ea": 5}
    # Relaxed, the thinker's other request goes too: T1 starts when vision arrives, 5 ms earlier.
    thinker = 40 if others == "frozen" else 45
    assert found["first"] == {"t": thinker, "k": 30, "v": 15} | freed
    assert found["job"] == {"t": thinker, "k": 50, "v": 15} | freed


def test_a_request_without_the_terminal_is_refused():
    with pytest.raises(UsageError, match=f"request {BLOCKS_VISION}"):
        activity_drag(graph_of(worked_example()), BLOCKS_VISION)


def test_a_run_in_which_nothing_happened_has_no_drags():
    tables = {name: table.clear() for name, table in polars_tables(worked_example()).items()}
    empty = stage_drag(TaskGraph.from_tables(**tables))
    assert empty.is_empty()
    assert empty.columns == stage_drag(graph_of(worked_example())).columns


def brute_force(graph: TaskGraph, request: int, terminal: str, others: str) -> dict[int, int]:
    """Drag by re-timing the whole run once per launch."""
    a = graph.activities
    own = (pl.col("request") == request) & (pl.col("terminal") == terminal)
    drags = {}
    for x in np.flatnonzero(graph.where(request=request)):
        durations = graph.durations()
        durations[a.launch == a.launch[x]] = 0
        drags[int(a.span[x])] = -retime(graph, durations, others=others).terminals.filter(own)["change_ns"][0]
    return drags


@pytest.mark.parametrize("others", OTHERS)
@given(seed=st.integers(0, 2**32))
def test_drag_is_what_retiming_without_the_activity_gives(seed, others):
    run = Run(seed)
    graph = TaskGraph.from_tables(**run.tables())
    request = run.requests[-1]
    for terminal in ("first", "job"):
        rows = activity_drag(graph, request, terminal, others=others)
        assert dict(rows.select("span", "drag_ns").rows()) == brute_force(graph, request, terminal, others)
        assert ((rows["drag_ns"] >= 0) & (rows["drag_ns"] <= rows["duration_ns"])).all()


@pytest.mark.parametrize("others", OTHERS)
@given(seed=st.integers(0, 2**32))
def test_slack_is_the_delay_that_leaves_the_job_in_place(seed, others):
    run = Run(seed, credits=False)
    graph = TaskGraph.from_tables(**run.tables())
    a, request = graph.activities, run.requests[0]
    own = (pl.col("request") == request) & (pl.col("terminal") == "job")
    for span, slack in activity_drag(graph, request, others=others).select("span", "slack_ns").rows()[::3]:
        (x,) = np.flatnonzero(a.span == span)
        moves = []
        for longer in (slack or 0, (slack or 0) + 1) if slack is not None else (1_000,):
            durations = graph.durations()
            durations[a.launch == a.launch[x]] += longer
            moves.append(retime(graph, durations, others=others).terminals.filter(own)["change_ns"][0])
        assert moves == ([0] if slack is None else [0, 1])


@given(st.integers(0, 2**32))
def test_only_the_longest_path_has_drag(seed):
    run = Run(seed)
    graph = TaskGraph.from_tables(**run.tables())
    system = critical_paths(graph, ["job"], view="system").segments
    for request in run.requests:
        rows = activity_drag(graph, request, others="relaxed")
        on_path = system.filter(pl.col("request") == request)["span"]
        launches = set(graph.activities.launch[np.isin(graph.activities.span, on_path.to_numpy())].tolist())
        dragging = rows.filter(pl.col("drag_ns") > 0)["span"].to_numpy()
        assert set(graph.activities.launch[np.isin(graph.activities.span, dragging)].tolist()) <= launches


@given(st.integers(0, 2**32))
def test_frozen_stage_drag_is_at_most_the_stages_work(seed):
    rows = stage_drag(TaskGraph.from_tables(**Run(seed).tables()))
    assert ((rows["drag_ns"] >= 0) & (rows["drag_ns"] <= rows["duration_ns"])).all()
