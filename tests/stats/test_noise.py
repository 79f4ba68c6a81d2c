from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.power import TTestPower

from workbench.errors import UsageError
from workbench.stats import minimal_detectable_effect, noise_floor, pairs_needed


def test_two_pairs_by_hand() -> None:
    floor = noise_floor({"a": [1.0, math.e**0.1], "b": [math.e**0.3, 1.0]})
    assert floor.sd_log_ratio == pytest.approx(math.sqrt((0.1**2 + 0.3**2) / 2))
    assert (floor.degrees_of_freedom, floor.groups, floor.runs) == (2, 2, 4)


def test_groups_of_three_equal_the_mean_square_of_a_one_way_anova() -> None:
    rng = np.random.default_rng(0)
    groups = {seed: np.exp(seed + 0.05 * rng.standard_normal(3)) for seed in range(6)}
    grand = np.log(list(groups.values()))
    within = ((grand - grand.mean(axis=1, keepdims=True)) ** 2).sum() / 12
    assert noise_floor(groups).sd_log_ratio == pytest.approx(math.sqrt(2 * within))  # type: ignore[arg-type]


def test_drift_between_repeats_is_noise() -> None:
    steady = {seed: [1.0, math.exp(0.1)] for seed in range(20)}  # the second repeat is always 10 % slower
    assert noise_floor(steady).sd_log_ratio == pytest.approx(0.1)


def test_identical_repeats_have_no_noise_and_scale_does_not_matter() -> None:
    assert noise_floor({1: [5.0, 5.0], 2: [7.0, 7.0, 7.0]}).high == 0
    pairs = {seed: [100.0 + seed, 103.0] for seed in range(4)}
    scaled = {seed: [1e6 * value for value in pair] for seed, pair in pairs.items()}
    assert noise_floor(pairs).sd_log_ratio == pytest.approx(noise_floor(scaled).sd_log_ratio)


def test_few_repeats_warn() -> None:
    assert noise_floor({s: [1.0, 1.1] for s in range(19)}).warnings == (
        "19 degrees of freedom: fewer than 20 A/A pairs",
    )
    assert noise_floor({s: [1.0, 1.1] for s in range(20)}).warnings == ()


def test_the_interval_of_the_floor_covers() -> None:
    rng = np.random.default_rng(1)
    truth, covered = 0.03 * math.sqrt(2), 0
    for _ in range(400):
        metrics = np.exp(rng.normal(0, 0.5, (12, 1)) + rng.normal(0, 0.03, (12, 2)))
        floor = noise_floor(dict(enumerate(metrics.tolist())))
        covered += floor.low <= truth <= floor.high
    assert stats.binomtest(covered, 400, 0.95).pvalue > 0.001


@pytest.mark.parametrize(("pairs", "within"), [(5, 0.012), (10, 0.0014), (20, 0.0005), (50, 0.0005), (200, 0.0002)])
def test_detectable_effect_against_the_noncentral_t(pairs: int, within: float) -> None:
    exact = TTestPower().solve_power(nobs=pairs, alpha=0.05, power=0.8)
    assert minimal_detectable_effect(1.0, pairs) == pytest.approx(exact, rel=within)


def test_detectable_effect_at_two_pairs_by_tables() -> None:
    # t with one degree of freedom: 12.706 at .975 and tan(.3 pi) = 1.376 at .8.
    assert minimal_detectable_effect(1.0, 2) == pytest.approx(
        (12.7062 + math.tan(0.3 * math.pi)) / math.sqrt(2), rel=1e-5
    )


def test_a_known_sample_size() -> None:
    assert pairs_needed(1.0, 1.0, power=0.9) == 13  # solve_power gives 12.6


@given(st.floats(0.05, 1.9), st.sampled_from([0.8, 0.9, 0.95]))
def test_pairs_needed_is_the_smallest_that_suffices_and_near_the_exact_one(effect: float, power: float) -> None:
    pairs = pairs_needed(-effect, 1.0, power=power)
    assert minimal_detectable_effect(1.0, pairs, power=power) <= effect
    if pairs > 2:
        assert minimal_detectable_effect(1.0, pairs - 1, power=power) > effect
    exact = TTestPower().solve_power(effect, alpha=0.05, power=power)
    assert abs(pairs - math.ceil(exact)) <= 1


def test_no_noise_needs_two_pairs() -> None:
    assert minimal_detectable_effect(0.0, 5) == 0
    assert pairs_needed(1e-9, 0.0) == 2


def test_the_promised_power_is_kept() -> None:
    rng = np.random.default_rng(2)
    effect = minimal_detectable_effect(0.05, 10)
    ratios = rng.normal(effect, 0.05, (2000, 10))
    found = int((stats.ttest_1samp(ratios, 0, axis=1).pvalue < 0.05).sum())
    assert stats.binomtest(found, 2000, 0.8).pvalue > 0.001


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: noise_floor({}), "repeats={}"),
        (lambda: noise_floor([[1.0, 2.0]]), "a mapping of seed"),  # type: ignore[arg-type]
        (lambda: noise_floor({3: [1.0]}), r"repeats\[3\] of size 1"),
        (lambda: noise_floor({3: [1.0, 0.0]}), r"repeats\[3\]\[1\]=0.0"),
        (lambda: noise_floor({3: [1.0, math.nan]}), r"repeats\[3\]\[1\]=nan"),
        (lambda: noise_floor({3: [1.0, 2.0]}, confidence=95), "confidence=95"),
        (lambda: minimal_detectable_effect(-0.1, 10), "sd_log_ratio=-0.1"),
        (lambda: minimal_detectable_effect(math.nan, 10), "sd_log_ratio=nan"),
        (lambda: minimal_detectable_effect(0.1, 1), "pairs=1"),
        (lambda: minimal_detectable_effect(0.1, 10, power=0.4), "power=0.4"),
        (lambda: minimal_detectable_effect(0.1, 10, alpha=0), "alpha=0"),
        (lambda: pairs_needed(0, 0.1), "effect_log_ratio=0"),
        (lambda: pairs_needed(math.inf, 0.1), "effect_log_ratio=inf"),
        (lambda: pairs_needed(1e-9, 0.1), "effect_log_ratio=1e-09"),
    ],
)
def test_bad_arguments_are_named(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
