"""A campaign is found by its labels, and a trace that does not rebuild is reported."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pytest

from tests.studies.campaign import GAP_NS, LOADS, PAIRS, REPEATS, latencies_ns, rows, run
from workbench.errors import DataIntegrityError
from workbench.metrics.critical_path import CriticalPaths
from workbench.studies import shadow_profile
from workbench.studies.shadow_profile import Profile
from workbench.testing.traces import JOIN, Row, changed
from workbench.trace import store
from workbench.units import MS_NS, S_NS

RUNS = [f"x-{load}-{repeat}" for load in LOADS for repeat in REPEATS]


# --- which runs ---


def test_runs_are_ordered_by_load_and_repeat(profile: Profile, raw: Path) -> None:
    loads = profile.loads
    assert loads.columns == ["run", "load", "repeat", "rate_per_s", "first_ns", "last_ns"]
    expected = [(f"x-{load}-{repeat}", load, repeat) for load in LOADS for repeat in REPEATS]
    assert loads.select("run", "load", "repeat").rows() == expected
    assert loads["rate_per_s"].to_list() == [S_NS / GAP_NS[load] for load in LOADS for _ in REPEATS]
    for label, first_ns, last_ns in loads.select("run", "first_ns", "last_ns").rows():
        assert rows(raw, label, "run").select("first_ns", "last_ns").rows() == [(first_ns, last_ns)]
    assert profile.load_names == list(LOADS)
    assert profile.runs("near") == ["x-near-a", "x-near-b"]
    assert list(profile.graphs) == list(profile.paths) == RUNS


def test_pairs_and_stages(profile: Profile) -> None:
    expected = [(f"x-pair{pair}-{probes}", pair, probes) for pair in PAIRS for probes in ("off", "on")]
    assert profile.pairs.rows() == expected
    assert profile.stages == ["client", "thinker", "talker", "code2wav"]


def test_a_smoke_profile_has_one_load_and_two_pairs(smoke_profile: Profile) -> None:
    assert smoke_profile.load_names == ["light"]
    assert smoke_profile.runs("light") == ["x-light-a", "x-light-b"]
    assert smoke_profile.runs("near") == []
    assert sorted(set(smoke_profile.pairs["pair"])) == [1, 2]


def test_other_campaigns_in_the_store_and_the_order_of_runs_do_not_matter() -> None:
    labels = ["x-over-a", "x-light-b", "y-light-a", "x-light-a", "x-y-near-a", "x-light-ab", "x-peak-a", "x-pair10-on"]
    with store.load_tables([run(label, seed=1, requests=2) for label in labels]) as connection:
        mine = shadow_profile.profile(connection, "x")
        assert mine.loads["run"].to_list() == ["x-light-a", "x-light-b", "x-over-a"]
        assert mine.load_names == ["light", "over"]
        assert mine.pairs.rows() == [("x-pair10-on", 10, "on")]
        nested = shadow_profile.profile(connection, "x-y")
        assert (nested.load_names, nested.pairs.height) == (["near"], 0)


def test_a_store_without_the_campaign_is_refused(connection: duckdb.DuckDBPyConnection) -> None:
    message = r"store: expected runs named z-light-a and so on, found runs \['x-isolated', 'x-light-a', .*make record"
    with pytest.raises(DataIntegrityError, match=message):
        shadow_profile.profile(connection, "z")
    with pytest.raises(DataIntegrityError, match=re.escape("runs named .-light-a")):
        shadow_profile.profile(connection, ".")


def test_stages_of_a_graph_with_a_join_come_in_the_order_in_which_edges_reach_them() -> None:
    with store.load_tables([run("x-light-a", seed=1, requests=2, graph=JOIN)]) as connection:
        stages = shadow_profile.profile(connection, "x").stages
    assert stages == ["client", "audio-encoder", "vision-encoder", "thinker", "vocoder"]


# --- does it rebuild ---


def test_a_valid_campaign_rebuilds_to_the_nanosecond(profile: Profile, raw: Path) -> None:
    rebuilt = shadow_profile.rebuild(profile)
    places = [(label.split("-")[1], label, terminal) for label in RUNS for terminal in ("first", "job")]
    assert rebuilt.select("load", "run", "terminal").rows() == places
    for column in ("untiled", "not_reproduced", "violations"):
        assert rebuilt[column].to_list() == [0] * len(places), column
    assert rebuilt["unattributed_share"].to_list() == [0.0] * len(places)
    assert rebuilt["host_share"].is_between(0.0, 0.5).all()
    for label, terminal, requests in rebuilt.select("run", "terminal", "requests").rows():
        assert requests == latencies_ns(raw, label)[f"{terminal}_ns"].count(), (label, terminal)
    assert rebuilt.filter(pl.col("load") == "over")["requests"].max() < 100  # type: ignore[operator]


def rebuilt_after(change: Callable[[list[Row]], list[Row]], **options: object) -> pl.DataFrame:
    """How a small crowded run rebuilds with other spans."""
    tables = run("x-near-a", seed=3, gap_ns=2 * MS_NS, requests=12, **options)  # type: ignore[arg-type]
    with store.load_tables([changed(tables, "span", change)]) as connection:
        return shadow_profile.rebuild(shadow_profile.profile(connection, "x"))


def test_a_service_that_starts_before_its_input_is_reported() -> None:
    def early(spans: list[Row]) -> list[Row]:
        hit = next(s for s in spans if (s["kind"], s["stage"], s["chunk"]) == ("service", "code2wav", 1))
        hit["start_ns"] -= 20 * MS_NS
        return spans

    whole, damaged = rebuilt_after(lambda spans: spans), rebuilt_after(early)
    assert whole["violations"].to_list() == [0, 0]
    assert whole["requests"].to_list() == [12, 12]
    assert min(damaged["violations"]) >= 1
    assert damaged["requests"].to_list() == [11, 11], "the request takes part in no path"


def test_a_wait_that_its_cause_did_not_end_is_unattributed() -> None:
    def wrong(spans: list[Row]) -> list[Row]:
        for span in spans:
            if span["kind"] == "queue":
                span["cause_span"] = spans[0]["span"]
        return spans

    damaged = rebuilt_after(wrong)
    assert damaged["unattributed_share"].min() > 0.05  # type: ignore[operator]
    assert damaged["untiled"].to_list() == [0, 0], "what is not explained is still counted"
    assert damaged["violations"].to_list() == [0, 0]


def test_a_segment_that_is_lost_is_reported(profile: Profile) -> None:
    paths = profile.paths["x-near-a"]
    holed = CriticalPaths(paths.view, paths.segments[1:], paths.requests)
    broken = Profile(
        connection=profile.connection,
        loads=profile.loads.filter(pl.col("run") == "x-near-a"),
        pairs=profile.pairs,
        stages=profile.stages,
        graphs=profile.graphs,
        paths={"x-near-a": holed},
    )
    assert shadow_profile.rebuild(broken)["untiled"].to_list() == [1, 0]


def test_a_run_where_nothing_finishes_has_no_shares() -> None:
    rebuilt = rebuilt_after(lambda spans: spans, fates=dict.fromkeys(range(10), "error"))
    assert rebuilt["requests"].to_list() == [0, 0]
    assert rebuilt["unattributed_share"].to_list() == [None, None]
    assert rebuilt["host_share"].to_list() == [None, None]
