from __future__ import annotations

import polars as pl
from hypothesis import given

from tests.metrics.frames import graph_of
from workbench.metrics.remaining import lower_bound
from workbench.testing.example import REQUEST
from workbench.testing.traces import random_traces, worked_example
from workbench.units import MS_NS


def test_bound_of_the_worked_example_has_no_waits():
    graph = graph_of(worked_example())
    rows = lower_bound(graph)
    assert set(rows["request"]) == {REQUEST}
    # Ev 40, transfer 5, T1 40, 1, K 3 x 30, 2, V 15, 1: the job's 209 ms less the two queues.
    assert rows["remaining_ns"].max() == 194 * MS_NS
    first = lower_bound(graph, "first")
    assert first["remaining_ns"].max() == 134 * MS_NS
    assert set(first["terminal"]) == {"first"}


@given(random_traces())
def test_no_request_was_faster_than_its_bound(tables):
    for terminal in ("first", "job"):
        rows = lower_bound(graph_of(tables), terminal)
        assert (rows["remaining_ns"] <= rows["observed_ns"]).all()
        assert (rows["remaining_ns"] >= 0).all()
        assert rows["start_ns"].is_sorted()


def test_a_chain_without_waits_meets_its_bound():
    rows = lower_bound(graph_of(worked_example()))
    assert rows.filter(pl.col("remaining_ns") == pl.col("observed_ns")).height == 8
