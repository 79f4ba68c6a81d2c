"""Waits, services, latencies, queues and bytes per load, each against a plain computation on the rows on disk."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.studies.campaign import GAP_NS, LOADS, REPEATS, latencies_ns, rows, run
from workbench.schema.enums import WAIT_KINDS
from workbench.stats.stability import stability
from workbench.studies import shadow_profile
from workbench.studies.load_response import (
    BINS,
    ECDF_POINTS,
    binned_max,
    evolution_series,
    latency_points,
    stability_verdicts,
    stage_times,
)
from workbench.studies.shadow_profile import Profile
from workbench.testing.traces import JOIN, Tables, from_rows, run_row
from workbench.trace import store
from workbench.units import MS_NS, S_NS

WAITING = ("queue", "batch_wait", "credit_stall")

# --- waits and services per stage ---


def test_stage_times_against_plain_sums(profile: Profile, raw: Path) -> None:
    found = stage_times(profile)
    assert found.columns == ["load", "stage", "quantity", "p50_ms", "p95_ms", "requests"]
    keys = [(load, s, q) for load in LOADS for s in ("code2wav", "talker", "thinker") for q in ("S_v", "W_v")]
    assert found.select("load", "stage", "quantity").rows() == keys
    for load, stage, quantity, p50_ms, p95_ms, requests in found.iter_rows():
        sums: list[int] = []
        for repeat in REPEATS:
            waits: dict[int, int] = {}
            services: dict[int, int] = {}
            spans = rows(raw, f"x-{load}-{repeat}", "span").filter(pl.col("stage") == stage)
            for span in spans.iter_rows(named=True):
                into = services if span["kind"] == "service" else waits if span["kind"] in WAIT_KINDS else {}
                into[span["request"]] = into.get(span["request"], 0) + span["end_ns"] - span["start_ns"]
            sums += [waits.get(r, 0) for r in services] if quantity == "W_v" else services.values()
        assert requests == len(sums)
        assert [p50_ms, p95_ms] == pytest.approx((np.percentile(sums, [50, 95]) / MS_NS).tolist()), (load, stage)


# --- distributions ---


def test_curves_are_monotone_and_end_at_the_share_that_got_there(profile: Profile, raw: Path) -> None:
    points = latency_points(profile)
    assert points.columns == ["load", "repeat", "metric", "seconds", "share"]
    curves = points.partition_by("load", "repeat", "metric", as_dict=True, maintain_order=True)
    metrics = ("ttfa", "jct")
    assert list(curves) == [(load, repeat, metric) for load in LOADS for repeat in REPEATS for metric in metrics]
    for (load, repeat, metric), curve in curves.items():
        scheduled = latencies_ns(raw, f"x-{load}-{repeat}")
        values = scheduled["first_ns" if metric == "ttfa" else "job_ns"].drop_nulls().to_numpy() / S_NS
        assert curve["seconds"].is_sorted()
        assert curve["share"].is_sorted()
        assert curve["share"].n_unique() == curve.height <= ECDF_POINTS
        assert curve["share"][-1] == len(values) / scheduled.height
        assert curve["seconds"][-1] == values.max()
        for seconds, share in curve.select("seconds", "share").iter_rows():
            assert np.sum(values < seconds) < round(share * scheduled.height) <= np.sum(values <= seconds)
    ends = {(load, metric): curve["share"][-1] for (load, _, metric), curve in curves.items()}
    assert ends["near", "jct"] == 1.0
    assert ends["over", "jct"] < 0.9, "failed requests stay in the denominator"


def test_a_long_curve_is_thinned_to_its_limit_and_keeps_its_ends() -> None:
    times = [{"request": r, "scheduled_ns": 0, "end_ns": (r * 7919) % 1_000 + 1} for r in range(1_000)]
    with store.load_tables([outcomes_only("x-light-a", times)]) as connection:
        curve = latency_points(bare_profile(connection, {"x-light-a": "light"})).filter(pl.col("metric") == "jct")
    assert curve.height == ECDF_POINTS
    assert (curve["share"][0], curve["share"][-1]) == (1 / 1_000, 1.0)
    assert curve["seconds"].to_list() == [round(share * 1_000) / S_NS for share in curve["share"]]


def outcomes_only(label: str, times: list[dict[str, int]]) -> Tables:
    """A run of which only arrivals and ends are known; no end = unfinished."""
    about = {"class": "short", "tenant": "a", "weight": 1.0}
    requests = [
        {"request": row["request"], "scheduled_ns": row["scheduled_ns"], "arrival_ns": row["scheduled_ns"]} | about
        for row in times
    ]
    outcomes = [
        {"request": row["request"], "status": "ok" if "end_ns" in row else "unfinished", "end_ns": row.get("end_ns")}
        for row in times
    ]
    ends = [row["end_ns"] for row in times if "end_ns" in row]
    return from_rows({"run": [run_row(label, 0, max(ends))], "request": requests, "outcome": outcomes})


def bare_profile(connection: duckdb.DuckDBPyConnection, runs: dict[str, str]) -> Profile:
    loads = pl.DataFrame({"run": list(runs), "load": list(runs.values()), "repeat": "a"})
    return Profile(connection, loads, pl.DataFrame(), [], {}, {})


# --- largest value per bin ---


@st.composite
def bin_edges(draw: st.DrawFn) -> np.ndarray:
    halves = draw(st.lists(st.integers(-10, 130), min_size=2, max_size=9, unique=True).map(sorted))
    return np.array(halves) / 2


@given(st.dictionaries(st.integers(0, 60), st.integers(0, 9), min_size=1, max_size=12), bin_edges())
def test_steps_against_evaluating_them_everywhere(corners: dict[int, int], edges: np.ndarray) -> None:
    at = np.array(sorted(corners))
    value = np.array([corners[moment] for moment in at])

    def holds(moment: float) -> int:
        return max(((m, corners[m]) for m in corners if m <= moment), default=(0, 0))[1]

    expected = [max(holds(t) for t in np.arange(low, high, 0.5)) for low, high in pairwise(edges)]
    assert binned_max(at, value, edges, is_step=True).tolist() == expected


def sawtooth(tasks: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    """Corners of the age of the oldest waiting task: before and after each moment at which one comes or goes."""
    corners = []
    for moment in sorted({end for task in tasks for end in task}):
        before = max((moment - start for start, end in tasks if start < moment <= end), default=0)
        after = max((moment - start for start, end in tasks if start <= moment < end), default=0)
        corners += [(moment, before)] + [(moment, after)] * (after != before)
    return np.array([moment for moment, _ in corners]), np.array([age for _, age in corners])


TASKS = st.tuples(st.integers(0, 55), st.integers(1, 25)).map(lambda drawn: (drawn[0], drawn[0] + drawn[1]))


@given(st.lists(TASKS, min_size=1, max_size=8), bin_edges())
def test_sawtooths_against_the_ages_of_the_tasks(tasks: list[tuple[int, int]], edges: np.ndarray) -> None:
    """In [low, high] the oldest is the earliest task that overlaps it, at the end of the bin or of the task."""
    expected = [
        max((min(end, high) - start for start, end in tasks if start < high and end >= low), default=0.0)
        for low, high in pairwise(edges)
    ]
    assert binned_max(*sawtooth(tasks), edges, is_step=False).tolist() == pytest.approx(expected, abs=1e-9)


# --- evolution ---


@pytest.fixture(scope="module")
def series(profile: Profile) -> pl.DataFrame:
    return evolution_series(profile)


def bins_of(profile: Profile, load: str) -> np.ndarray:
    ((first_ns, last_ns),) = (
        profile.loads.filter((pl.col("load") == load) & (pl.col("repeat") == "a")).select("first_ns", "last_ns").rows()
    )
    return np.linspace(first_ns, last_ns, BINS + 1)


def test_every_curve_has_every_bin_in_order(profile: Profile, series: pl.DataFrame) -> None:
    assert series.columns == ["load", "quantity", "stage", "at_s", "value"]
    assert (series["value"] >= 0).all()
    curves = series.partition_by("load", "quantity", "stage", as_dict=True, maintain_order=True)
    assert {stage for _, quantity, stage in curves if quantity == "in_flight_kib"} == set(profile.stages)
    for (load, _, _), curve in curves.items():
        edges = bins_of(profile, load)
        assert curve["at_s"].to_list() == pytest.approx(((edges[:-1] - edges[0]) / S_NS).tolist())


@pytest.mark.parametrize(
    ("quantity", "query", "scale"),
    [
        ("queue_depth", "SELECT stage::VARCHAR, max(depth) FROM queue_depth WHERE run = ? GROUP BY 1", 1.0),
        ("oldest_wait_s", "SELECT stage::VARCHAR, max(oldest_wait_ns) FROM oldest_wait WHERE run = ? GROUP BY 1", S_NS),
        ("in_flight_kib", "SELECT target::VARCHAR, max(bytes) FROM in_flight_bytes JOIN edge USING (run, edge) "
                          "WHERE run = ? GROUP BY 1", 1024),
    ],
)  # fmt: skip
def test_the_largest_value_is_that_of_the_view(
    profile: Profile, series: pl.DataFrame, quantity: str, query: str, scale: float
) -> None:
    """Loads without failures do nothing after their last outcome, so no value lies outside the window."""
    for load in ("light", "near"):
        mine = series.filter((pl.col("load") == load) & (pl.col("quantity") == quantity))
        found = dict(mine.group_by("stage").agg(pl.col("value").max()).iter_rows())
        tops = profile.connection.execute(query, [f"x-{load}-a"]).fetchall()
        assert len(found) >= 2
        assert found == pytest.approx({stage: top / scale for stage, top in tops})


@pytest.mark.parametrize("load", LOADS)
def test_bins_against_spans_and_chunks(profile: Profile, series: pl.DataFrame, raw: Path, load: str) -> None:
    edges = bins_of(profile, load)
    spans = rows(raw, f"x-{load}-a", "span").filter(pl.col("kind").is_in(WAITING))
    for (stage,), mine in spans.group_by("stage"):
        waits = mine.select("start_ns", "end_ns").rows()
        found = curve_of(series, load, "queue_depth", str(stage))
        assert found == [
            max(sum(s <= t < e for s, e in waits) for t in moments(waits, low, high)) for low, high in pairwise(edges)
        ]
        tasks = mine.group_by("request", "epoch", "chunk").agg(pl.col("start_ns").min(), pl.col("end_ns").max())
        ends = tasks.select("start_ns", "end_ns").rows()
        oldest = [
            max((min(e, high) - s for s, e in ends if s < high and e >= low), default=0) / S_NS
            for low, high in pairwise(edges)
        ]
        assert curve_of(series, load, "oldest_wait_s", str(stage)) == pytest.approx(oldest, abs=1e-9)


def curve_of(series: pl.DataFrame, load: str, quantity: str, stage: str) -> list[float]:
    mine = (pl.col("load") == load) & (pl.col("quantity") == quantity) & (pl.col("stage") == stage)
    return series.filter(mine)["value"].to_list()


def moments(intervals: list[tuple[int, int]], low: float, high: float) -> list[float]:
    """Where a count of intervals can be largest in [low, high)."""
    return [low, *(start for start, _ in intervals if low <= start < high)]


def test_bytes_of_several_edges_into_a_stage_are_added() -> None:
    tables = run("x-near-a", seed=5, gap_ns=5 * MS_NS, requests=12, graph=JOIN)
    with store.load_tables([tables]) as connection:
        p = shadow_profile.profile(connection, "x")
        found = curve_of(evolution_series(p), "near", "in_flight_kib", "thinker")
        edges = bins_of(p, "near")
    chunks = pl.DataFrame(tables["chunk"]).filter(pl.col("edge").str.ends_with(">thinker"))
    assert chunks["edge"].n_unique() == 2
    flights = chunks.select("emitted_ns", "taken_ns", "bytes").rows()
    expected = [
        max(
            sum(size for start, end, size in flights if start <= t < end)
            for t in moments([flight[:2] for flight in flights], low, high)
        )
        / 1024
        for low, high in pairwise(edges)
    ]
    assert found == pytest.approx(expected)
    assert max(expected) > max(size for *_, size in flights) / 1024, "no two chunks were in flight at once"


def test_the_other_repeat(profile: Profile, series: pl.DataFrame) -> None:
    other = evolution_series(profile, repeat="b")
    assert set(other["quantity"]) == set(series["quantity"])
    assert not other.equals(series)


# --- stability ---


def test_verdicts_are_those_of_the_regression(profile: Profile, raw: Path) -> None:
    found = stability_verdicts(profile)
    assert found.columns == ["load", "run", "verdict", "why"]
    assert found.select("load", "run").rows() == profile.loads.select("load", "run").rows()
    for label, verdict, why in found.select("run", "verdict", "why").iter_rows():
        departures = rows(raw, label, "outcome")["end_ns"].drop_nulls().to_numpy()
        judged = stability(rows(raw, label, "request")["scheduled_ns"].to_numpy(), departures)
        assert (verdict, why) == (judged.verdict, judged.reason)


def test_a_growing_and_a_settled_run_are_told_apart() -> None:
    gaps = np.random.default_rng(1).exponential(GAP_NS["near"], 1_000)
    arrivals = [int(at_ns) for at_ns in np.cumsum(gaps)]
    settled = [{"request": r, "scheduled_ns": at, "end_ns": at + 20 * MS_NS} for r, at in enumerate(arrivals)]
    growing = [row | {"end_ns": 2 * row["scheduled_ns"] + 20 * MS_NS} for row in settled]
    stuck = [row if row["request"] % 2 else {k: row[k] for k in ("request", "scheduled_ns")} for row in settled]
    runs = {"x-light-a": settled, "x-near-a": growing, "x-over-a": stuck}
    with store.load_tables([outcomes_only(label, times) for label, times in runs.items()]) as connection:
        found = stability_verdicts(bare_profile(connection, {label: label.split("-")[1] for label in runs}))
    assert dict(found.select("load", "verdict").iter_rows()) == {
        "light": "stable",
        "near": "unstable",
        "over": "unstable",
    }
