"""Probe effects and noise floors, against the formulas written out over rows on disk."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import scipy.stats
from scipy import stats

from tests.studies.campaign import PAIRS, REPEATS, latencies_ns, rows, run
from workbench.studies import shadow_profile
from workbench.studies.probe_effect import (
    PROBE_METRICS,
    effect_rows,
    noise_band,
    noise_floors,
    noise_rows,
    probe_effects,
    run_metrics,
)
from workbench.studies.shadow_profile import Profile
from workbench.trace import store

NAMES = list(PROBE_METRICS.values())


def metrics_of(raw: Path, label: str) -> dict[str, float]:
    """The run-level metrics: medians over requests that ended ok, first arrival to last outcome."""
    ok = latencies_ns(raw, label).filter(pl.col("status") == "ok")
    ((first_ns, last_ns),) = rows(raw, label, "run").select("first_ns", "last_ns").rows()
    values = (float(np.median(ok["first_ns"])), float(np.median(ok["job_ns"])), float(last_ns - first_ns))
    return dict(zip(NAMES, values, strict=True))


def test_metrics_of_a_run(profile: Profile, raw: Path) -> None:
    labels = ["x-over-a", "x-pair1-off"]
    found = run_metrics(profile, labels)
    assert found["run"].to_list() == labels
    for row in found.iter_rows(named=True):
        assert [row[column] for column in PROBE_METRICS] == pytest.approx(list(metrics_of(raw, row["run"]).values()))
        status = latencies_ns(raw, row["run"])["status"]
        assert (row["ok"], row["requests"]) == ((status == "ok").sum(), len(status))


def test_effects_are_paired_t_over_log_ratios(profile: Profile, raw: Path) -> None:
    ratios, effects = probe_effects(profile)
    assert ratios.columns == ["metric", "pair", "ratio"]
    assert ratios.select("metric", "pair").rows() == [(name, pair) for name in NAMES for pair in PAIRS]
    assert list(effects) == NAMES
    on, off = ({pair: metrics_of(raw, f"x-pair{pair}-{probes}") for pair in PAIRS} for probes in ("on", "off"))
    for name in NAMES:
        logs = np.array([math.log(on[pair][name]) - math.log(off[pair][name]) for pair in PAIRS])
        assert ratios.filter(pl.col("metric") == name)["ratio"].to_list() == pytest.approx(np.exp(logs).tolist())
        reach = stats.t.ppf(0.975, len(PAIRS) - 1) * logs.std(ddof=1) / math.sqrt(len(PAIRS))
        expected = np.exp([logs.mean(), logs.mean() - reach, logs.mean() + reach]).tolist()
        assert [effects[name].ratio, effects[name].low, effects[name].high] == pytest.approx(expected), name
    shown = effect_rows(effects)
    assert shown.columns == ["metric", "estimate", "low", "high"]
    assert shown.rows() == [(name, e.ratio, e.low, e.high) for name, e in effects.items()]


def test_a_side_without_its_other_side_is_no_pair() -> None:
    labels = {"x-light-a": 1, "x-pair1-on": 2, "x-pair1-off": 3, "x-pair2-on": 4, "x-pair3-off": 5}
    runs = [run(label, seed=seed, probes=label.rpartition("-")[2].replace("a", "on")) for label, seed in labels.items()]
    with store.load_tables(runs) as connection:
        p = shadow_profile.profile(connection, "x")
        assert p.pairs.height == 4
        ratios, effects = probe_effects(p)
        assert (ratios.height, effects) == (0, {}), "one pair has no spread"
        assert ratios.columns == ["metric", "pair", "ratio"]
        assert effect_rows(effects).columns == ["metric", "estimate", "low", "high"]
        assert noise_floors(p) == {}, "one repeat has no spread"
        assert noise_rows(p).columns == ["metric", "low", "high"]


def test_the_floor_comes_from_repeats_below_saturation(profile: Profile, raw: Path) -> None:
    floors = noise_floors(profile)
    assert list(floors) == NAMES
    for name, floor in floors.items():
        squares = []
        for load in ("light", "near"):
            one, other = (metrics_of(raw, f"x-{load}-{repeat}")[name] for repeat in REPEATS)
            squares.append(math.log(one / other) ** 2)
        assert floor.sd_log_ratio == pytest.approx(math.sqrt(np.mean(squares))), name
        assert (floor.groups, floor.runs) == (2, 4)
        reach = float(scipy.stats.t.ppf(0.975, floor.degrees_of_freedom)) * floor.sd_log_ratio
        assert [math.log(end) for end in noise_band(floor)] == pytest.approx([-reach, reach])
    assert noise_rows(profile).rows() == [(name, *noise_band(floor)) for name, floor in floors.items()]


def test_an_overloaded_campaign_alone_has_no_floor(profile: Profile) -> None:
    over = profile.loads.filter(pl.col("load") == "over")
    alone = Profile(profile.connection, over, profile.pairs, profile.stages, {}, {})
    assert noise_floors(alone) == {}
