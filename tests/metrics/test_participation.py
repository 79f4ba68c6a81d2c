from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given

from tests.metrics.frames import graph_of
from workbench.errors import UsageError
from workbench.metrics.critical_path import CriticalPaths, critical_paths
from workbench.metrics.participation import participation, tail_band
from workbench.testing.example import BLOCKS_VISION
from workbench.testing.traces import LINEAR, Arrival, random_traces, simulate, worked_example
from workbench.units import MS_NS


@pytest.fixture(scope="module")
def paths() -> CriticalPaths:
    """Forty requests of one class that queue behind each other."""
    arrivals = [
        Arrival(at_ns=number * 6 * MS_NS, chunks=1 + number % 4, klass="a", tenant="a", weight=1.0, fate="ok")
        for number in range(40)
    ]
    return critical_paths(graph_of(simulate(LINEAR, arrivals, seed=1, label="queue")))


def test_participation_of_the_worked_example():
    rows = participation(critical_paths(graph_of(worked_example())), "job")
    cells = rows.select("stage", "edge", "kind", "share").rows()
    found = {(stage or edge, kind): share for stage, edge, kind, share in cells}
    assert found["k", "service"] == 90 / 209
    assert found["ev", "queue"] == 10 / 209
    assert math.fsum(found.values()) == pytest.approx(1, abs=1e-15)
    assert rows["path_ns"].sum() == 209 * MS_NS
    assert rows["requests"].to_list() == [1] * len(rows)


def test_an_aggregate_weighs_requests_by_their_latency(paths):
    rows = participation(paths, "job")
    known = paths.requests.filter((pl.col("terminal") == "job") & pl.col("latency_ns").is_not_null())
    assert rows["path_ns"].sum() == known["latency_ns"].sum()
    assert rows["path_ns"].is_sorted(descending=True)


def test_bands_that_share_a_bound_part_the_requests(paths):
    bands = [tail_band(paths, "job", low, high) for low, high in ((0, 0.5), (0.5, 0.95), (0.95, 1))]
    assert [len(band) for band in bands] == [20, 18, 2]
    assert sorted(pl.concat(bands)) == list(range(40))
    latency = dict(paths.requests.filter(pl.col("terminal") == "job").select("request", "latency_ns").rows())
    assert min(latency[r] for r in bands[2]) >= max(latency[r] for r in bands[1])


def test_participation_in_the_tail_is_over_its_requests_alone(paths):
    band = tail_band(paths, "job", 0.9)
    rows = participation(paths, "job", requests=band)
    inside = paths.segments.filter((pl.col("terminal") == "job") & pl.col("request").is_in(band.to_list()))
    assert rows["path_ns"].sum() == (inside["end_ns"] - inside["start_ns"]).sum()
    assert rows["requests"][0] == 4


def test_the_interval_is_fixed_by_its_seed_and_holds_the_share(paths):
    one, again, other = (participation(paths, "job", resamples=300, seed=seed) for seed in (1, 1, 2))
    assert one.equals(again)
    assert not one.equals(other)
    assert ((one["low"] <= one["share"]) & (one["share"] <= one["high"])).all()
    assert participation(paths, "job")["low"].null_count() == len(one)


def test_one_request_has_an_interval_of_no_width():
    rows = participation(critical_paths(graph_of(worked_example())), "job", resamples=50)
    assert (rows["high"] - rows["low"]).abs().max() < 1e-15


def test_wrong_arguments_are_named(paths):
    with pytest.raises(UsageError, match=r"low=0.9, high=0.5"):
        tail_band(paths, "job", 0.9, 0.5)
    worked = critical_paths(graph_of(worked_example()))
    with pytest.raises(UsageError, match=f"request {BLOCKS_VISION}"):
        participation(worked, "job", requests=pl.Series([1, BLOCKS_VISION]))
    with pytest.raises(UsageError, match="'end'"):
        participation(paths, "end")
    with pytest.raises(UsageError, match="'end'"):
        tail_band(paths, "end")


@given(random_traces())
def test_shares_sum_to_one(tables):
    paths = critical_paths(graph_of(tables))
    for terminal in ("first", "job"):
        rows = participation(paths, terminal)
        if len(rows):
            assert math.fsum(rows["share"]) == pytest.approx(1, abs=1e-12)
