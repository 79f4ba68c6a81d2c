"""What paths are made of: sums that equal latency exactly, drag that never exceeds work, and one case done by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tests.studies.campaign import LOADS, REPEATS, latencies_ns, rows, run
from workbench.metrics.critical_path import CriticalPaths
from workbench.studies import shadow_profile
from workbench.studies.path_shares import HANDOVER, participation_shares, path_breakdown
from workbench.studies.shadow_profile import TERMINALS, Profile
from workbench.testing.traces import changed, worked_example
from workbench.trace import store
from workbench.units import MS_NS, S_NS


@pytest.fixture(scope="module")
def by_hand() -> Iterator[Profile]:
    """The worked example as a campaign of one run: first audio after 149 ms, the job after 209 ms."""
    tables = changed(worked_example(), "run", lambda rows: [row | {"label": "w-near-a"} for row in rows])
    with store.load_tables([tables]) as connection:
        yield shadow_profile.profile(connection, "w")


# --- breakdown by kind ---


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("terminal", TERMINALS)
def test_kinds_sum_to_the_mean_latency_exactly(profile: Profile, raw: Path, load: str, terminal: str) -> None:
    """Against the client's rows and against the view; to the nanosecond over all requests of both repeats."""
    latency = pl.concat([latencies_ns(raw, f"x-{load}-{repeat}") for repeat in REPEATS])[f"{terminal}_ns"].drop_nulls()
    column = {"first": "ttfo_ns", "job": "jct_ns"}[terminal]
    seen = profile.connection.execute(
        f"SELECT count({column}), sum({column}) FROM request_metrics WHERE run IN (?, ?)", profile.runs(load)
    ).fetchall()
    assert seen == [(latency.len(), latency.sum())]
    mine = path_breakdown(profile).filter((pl.col("load") == load) & (pl.col("terminal") == terminal))
    assert round(mine["mean_s"].sum() * latency.len() * S_NS) == latency.sum()
    assert mine["share"].sum() == pytest.approx(1.0, abs=1e-12)
    assert mine["mean_s"].min() > 0  # type: ignore[operator]
    assert mine["kind"].n_unique() == mine.height


def test_breakdown_rows_are_in_a_fixed_order(profile: Profile) -> None:
    found = path_breakdown(profile)
    assert found.columns == ["load", "terminal", "kind", "mean_s", "share"]
    assert found.rows() == sorted(found.rows())
    assert found.equals(path_breakdown(profile))


def test_breakdown_of_the_worked_example(by_hand: Profile) -> None:
    found = path_breakdown(by_hand)
    assert found.select("load", "terminal", "kind").rows() == [
        ("near", terminal, kind) for terminal in TERMINALS for kind in ("deliver", "queue", "service", "transfer")
    ]
    assert found["mean_s"].to_list() == pytest.approx([0.001, 0.015, 0.125, 0.008, 0.001, 0.015, 0.185, 0.008])


def test_a_load_that_never_reaches_a_terminal_has_no_bars(profile: Profile) -> None:
    paths = profile.paths | {
        label: CriticalPaths(
            "request",
            profile.paths[label].segments.filter(pl.col("terminal") == "first"),
            profile.paths[label].requests.with_columns(
                pl.when(pl.col("terminal") == "first").then(pl.col("latency_ns")).alias("latency_ns")
            ),
        )
        for label in profile.runs("over")
    }
    partial = Profile(profile.connection, profile.loads, profile.pairs, profile.stages, profile.graphs, paths)
    found = path_breakdown(partial)
    assert set(found.select("load", "terminal").unique().rows()) == {
        (load, terminal) for load in LOADS for terminal in TERMINALS
    } - {("over", "job")}


def test_a_campaign_where_nothing_finishes_has_no_rows() -> None:
    tables = run("x-over-a", seed=1, requests=4, fates=dict.fromkeys(range(10), "error"))
    with store.load_tables([tables]) as connection:
        p = shadow_profile.profile(connection, "x")
        assert path_breakdown(p).is_empty()
        assert path_breakdown(p).columns == ["load", "terminal", "kind", "mean_s", "share"]
        assert participation_shares(p, "over").is_empty()
        assert participation_shares(p, "over").columns == ["terminal", "stage", "measure", "share"]


# --- participation and drag ---


@pytest.mark.parametrize("load", LOADS)
def test_bars_sum_to_one_and_drag_never_exceeds_the_work(profile: Profile, raw: Path, load: str) -> None:
    shares = participation_shares(profile, load)
    assert shares.columns == ["terminal", "stage", "measure", "share"]
    assert shares.rows() == sorted(shares.rows())
    assert set(shares["stage"]) == {*profile.stages, HANDOVER}
    bars, drags = shares.filter(pl.col("measure") != "drag"), shares.filter(pl.col("measure") == "drag")
    assert set(bars["measure"]) <= {"work on path", "waiting on path", "dispatch lag on path"}
    for terminal in TERMINALS:
        assert bars.filter(pl.col("terminal") == terminal)["share"].sum() == pytest.approx(1.0, abs=1e-12)
        work_ns, latency_ns = work_per_stage(profile, raw, load, terminal)
        mine = dict(drags.filter(pl.col("terminal") == terminal).select("stage", "share").iter_rows())
        assert set(mine) == set(profile.stages), "a drag for every stage, none for edges"
        for stage, drag in mine.items():
            assert 0.0 <= drag <= work_ns.get(stage, 0) / latency_ns + 1e-12, (terminal, stage)
        assert max(mine.values()) > 0.01


def work_per_stage(profile: Profile, raw: Path, load: str, terminal: str) -> tuple[dict[str, int], int]:
    """Work of each stage on the requests that reached the terminal, and their summed latency, from rows on disk."""
    work: dict[str, int] = {}
    latency_ns = 0
    for label in profile.runs(load):
        reached = latencies_ns(raw, label).filter(pl.col(f"{terminal}_ns").is_not_null())
        latency_ns += reached[f"{terminal}_ns"].sum()
        spans = rows(raw, label, "span").join(reached.select("request"), on="request")
        spans = spans.filter(pl.col("kind").is_in(["service", "host"]))
        summed = spans.group_by("stage").agg((pl.col("end_ns") - pl.col("start_ns")).sum())
        for stage, work_ns in summed.iter_rows():
            work[stage] = work.get(stage, 0) + work_ns
    return work, latency_ns


@pytest.mark.parametrize("load", LOADS)
def test_what_waits_works_and_lags_agrees_with_the_breakdown(profile: Profile, load: str) -> None:
    """The same path time, grouped by measure here and by kind there."""
    kinds = path_breakdown(profile).filter(pl.col("load") == load)
    measures = dict.fromkeys(("service", "transfer", "deliver"), "work on path") | {"host": "dispatch lag on path"}
    measure = pl.col("kind").replace_strict(measures, default="waiting on path")
    one = kinds.group_by("terminal", measure.alias("measure")).agg(pl.col("share").sum()).sort("terminal", "measure")
    bars = participation_shares(profile, load).filter(pl.col("measure") != "drag")
    other = bars.group_by("terminal", "measure").agg(pl.col("share").sum()).sort("terminal", "measure")
    assert one.select("terminal", "measure").rows() == other.select("terminal", "measure").rows()
    assert one["share"].to_list() == pytest.approx(other["share"].to_list(), abs=1e-12)


def test_participation_of_the_worked_example(by_hand: Profile) -> None:
    """The vision encoder is the longest bar of the first audio beside the thinker, and has no drag at all.

    Without it the thinker would begin at 60 ms just the same: it waits for request 8.
    """
    shares = participation_shares(by_hand, "near").filter(pl.col("terminal") == "first")
    ms = {(stage, measure): share * 149 for stage, measure, share in shares.drop("terminal").iter_rows()}
    assert ms == pytest.approx(
        {
            ("ev", "work on path"): 40,
            ("ev", "waiting on path"): 10,
            ("t", "work on path"): 40,
            ("t", "waiting on path"): 5,
            ("k", "work on path"): 30,
            ("v", "work on path"): 15,
            (HANDOVER, "work on path"): 9,
            ("client", "drag"): 0,
            ("ea", "drag"): 0,
            ("ev", "drag"): 0,
            ("t", "drag"): 40,
            ("k", "drag"): 30,
            ("v", "drag"): 15,
        },
        abs=1e-9,
    )
    assert by_hand.paths["w-near-a"].requests["latency_ns"].drop_nulls().to_list() == [149 * MS_NS, 209 * MS_NS]
