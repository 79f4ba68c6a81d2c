from __future__ import annotations

import random

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.metrics.frames import edited, graph_of, ms
from tests.metrics.streams import Run
from workbench.errors import UsageError
from workbench.metrics.retiming import reproduces, retime, scaled
from workbench.metrics.task_graph import TaskGraph
from workbench.testing.example import ORIGIN_NS, REQUEST
from workbench.testing.traces import random_traces, worked_example
from workbench.units import MS_NS

OTHERS = ["frozen", "relaxed"]


def ends(graph: TaskGraph, durations: np.ndarray, others: str) -> list[int]:
    """First output and job of the worked example in milliseconds."""
    return [ms(end) for end in retime(graph, durations, others=others).terminals["retimed_ns"]]


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize(
    ("stage", "chunks", "length", "first", "job"),
    [
        ("k", None, 20, 139, 179),
        ("t", [0], 30, 139, 199),
        ("t", [1, 2], 10, 149, 209),
        ("ev", None, 20, 149, 209),
        ("ev", None, 0, 149, 209),
        ("ea", None, 1, 149, 209),
        ("v", None, 40, 174, 254),
    ],
)
def test_what_ifs_of_the_worked_example(stage, chunks, length, first, job, others):
    graph = graph_of(worked_example())
    durations = graph.durations()
    durations[graph.where(stage=stage, chunk=chunks, request=REQUEST)] = length * MS_NS
    assert ends(graph, durations, others) == [first, job]


def test_relaxed_others_move_too():
    graph = graph_of(worked_example())
    assert ends(graph, scaled(graph, 0, stage="ea"), "frozen") == [149, 209]
    # Request 8, which holds the thinker until 60, has its audio 18 ms earlier: nothing but the vision branch is left.
    assert ends(graph, scaled(graph, 0, stage="ea"), "relaxed") == [144, 204]


def test_change_is_retimed_minus_recorded():
    graph = graph_of(worked_example())
    rows = retime(graph, scaled(graph, 2 / 3, stage="k")).terminals
    assert rows.select("request", "terminal", "change_ns").rows() == [
        (REQUEST, "first", -10 * MS_NS),
        (REQUEST, "job", -30 * MS_NS),
    ]
    assert (rows["retimed_ns"] - rows["recorded_ns"]).equals(rows["change_ns"].alias("retimed_ns"))


def test_hand_offs_can_be_scaled():
    graph = graph_of(worked_example())
    assert ends(graph, scaled(graph, 0, edge="k>v"), "frozen") == [147, 207]
    assert ends(graph, scaled(graph, 3, edge="t>k"), "frozen") == [151, 211]


def test_lags_are_kept():
    tables = edited(worked_example(), "chunk", {"edge": "k>v", "seq": 2}, received_ns=ORIGIN_NS + 192 * MS_NS)
    graph = graph_of(tables)
    assert graph.lag_ns.max() == MS_NS
    assert ends(graph, scaled(graph, 0, edge="k>v"), "frozen") == [147, 208]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda graph: retime(graph, others="thawed"), "'thawed'"),
        (lambda graph: retime(graph, graph.durations()[1:]), "shape"),
        (lambda graph: retime(graph, -graph.durations()), "at least 0"),
        (lambda graph: scaled(graph, 1), "exactly one"),
        (lambda graph: scaled(graph, 1, stage="k", edge="k>v"), "exactly one"),
        (lambda graph: scaled(graph, float("nan"), stage="k"), "nan"),
        (lambda graph: scaled(graph, -1, stage="k"), "-1"),
    ],
)
def test_a_wrong_argument_is_named(call, named):
    with pytest.raises(UsageError, match=named):
        call(graph_of(worked_example()))


@pytest.mark.parametrize("others", OTHERS)
@given(tables=random_traces())
def test_no_change_reproduces_runs_with_cancels_retries_and_batches(tables, others):
    graph = graph_of(tables)
    assert reproduces(graph, others=others).is_empty()
    again = retime(graph, others=others).terminals
    assert (again["change_ns"] == 0).all()
    assert again["terminal"].to_list() == sorted(again["terminal"].to_list(), key=["first", "job"].index)


def test_reproduces_lists_a_difference():
    graph = graph_of(worked_example())
    graph.lag_ns[-1] += 1
    rows = reproduces(graph)
    assert rows["span"].to_list() == [int(graph.activities.span[-1])]
    assert (rows["retimed_end_ns"] - rows["end_ns"]).to_list() == [1]


@given(st.integers(0, 2**32), st.booleans())
def test_no_change_reproduces_the_simulator(seed, credits):
    graph = TaskGraph.from_tables(**Run(seed, credits=credits).tables())
    assert reproduces(graph).is_empty()
    assert reproduces(graph, others="relaxed").is_empty()


def changed_run(seed: int) -> tuple[Run, TaskGraph, np.ndarray]:
    """A run, its graph, and other durations: for single activities, or for all members of some launches."""
    # Launches of length 0 in one nanosecond have no order that a recording could tell.
    run = Run(seed, credits=False, least=1)
    graph = TaskGraph.from_tables(**run.tables())
    rng = random.Random(seed)
    for what in run.order:
        members = what.members if hasattr(what, "members") else [what]
        if rng.random() < 0.5:
            length = rng.randint(0, 15)
            for member in members:
                member.duration = length if rng.random() < 0.8 else rng.randint(0, 15)
    new = {a.id: a.duration for a in run.acts}
    return run, graph, np.array([new[span] for span in graph.activities.span.tolist()])


@given(st.integers(0, 2**32))
def test_relaxed_retiming_is_the_simulator_run_again(seed):
    run, graph, durations = changed_run(seed)
    run.evaluate()
    again = retime(graph, durations, others="relaxed")
    times = {a.id: (a.start, a.end) for a in run.acts}
    found = list(zip(again.start_ns.tolist(), again.end_ns.tolist(), strict=True))
    assert found == [times[span] for span in graph.activities.span.tolist()]
    for request, terminal, end in again.terminals.select("request", "terminal", "retimed_ns").rows():
        assert end == run.terminal(request, terminal).end


@given(st.integers(0, 2**32))
def test_frozen_retiming_is_each_request_run_again_alone(seed):
    run, graph, durations = changed_run(seed)
    again = retime(graph, durations)
    recorded = {a.id: (a.start, a.end) for a in run.acts}
    for request in run.requests:
        for a in run.acts:
            a.start, a.end = recorded[a.id]
        run.evaluate({request})
        times = {a.id: (a.start, a.end) for a in run.acts if a.request == request}
        mine = graph.where(request=request)
        assert (
            dict(
                zip(
                    graph.activities.span[mine].tolist(),
                    zip(again.start_ns[mine].tolist(), again.end_ns[mine].tolist(), strict=True),
                    strict=True,
                )
            )
            == times
        )


@given(st.integers(0, 2**32))
def test_less_work_never_ends_later(seed):
    graph = TaskGraph.from_tables(**Run(seed).tables())
    for others in OTHERS:
        for stage in graph.places.stages:
            assert (retime(graph, scaled(graph, 0.5, stage=stage), others=others).terminals["change_ns"] <= 0).all()


def test_an_untouched_recording_is_not_changed():
    graph = graph_of(worked_example())
    scaled(graph, 0, stage="k")
    assert pl.Series(graph.durations()).sum() == pl.Series(graph.activities.end_ns - graph.activities.start_ns).sum()
