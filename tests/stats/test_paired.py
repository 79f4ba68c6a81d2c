from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench.errors import UsageError
from workbench.stats import TooFewPairs, UnpairedRuns, equivalence, paired_t, sign_flip

METRICS = st.floats(1e-3, 1e6)
PAIRS = st.lists(st.tuples(METRICS, METRICS), min_size=6, max_size=9)


def runs(values: Any) -> dict[int, float]:
    return dict(enumerate(np.asarray(values, dtype=float).tolist()))


def from_logs(logs: Any) -> tuple[dict[int, float], dict[int, float]]:
    """A baseline of ones and a candidate with these log ratios."""
    return runs(np.ones(len(logs))), runs(np.exp(logs))


def test_paired_t_by_hand() -> None:
    effect = paired_t(*from_logs([0.1, 0.2, 0.3]))
    # mean .2, sd .1, se .1/sqrt(3), t = 2 sqrt(3) with 2 degrees of freedom, t.975 = 4.30265
    assert effect.t == pytest.approx(2 * math.sqrt(3))
    assert effect.p_value == pytest.approx(1 - 2 * math.sqrt(3) / math.sqrt(12 + 2))  # closed form for 2 df
    assert effect.ratio == pytest.approx(math.exp(0.2))
    assert math.log(effect.high) == pytest.approx(0.2 + 4.302653 * 0.1 / math.sqrt(3), rel=1e-6)
    assert math.log(effect.low) == pytest.approx(0.2 - 4.302653 * 0.1 / math.sqrt(3), rel=1e-5)
    assert (effect.seeds, effect.degrees_of_freedom) == (3, 2)


@given(PAIRS)
def test_paired_t_equals_scipy_and_is_antisymmetric(pairs: list[tuple[float, float]]) -> None:
    before, after = np.array(pairs).T
    if np.ptp(np.log(after) - np.log(before)) < 1e-9:
        return
    effect = paired_t(runs(before), runs(after))
    reference = stats.ttest_rel(np.log(after), np.log(before))
    assert effect.p_value == pytest.approx(reference.pvalue, rel=1e-6)
    swapped = paired_t(runs(after), runs(before))
    assert swapped.ratio == pytest.approx(1 / effect.ratio)
    assert swapped.low == pytest.approx(1 / effect.high)
    assert swapped.p_value == pytest.approx(effect.p_value)


def test_a_deterministic_replay_against_itself() -> None:
    same = paired_t(runs([3.0, 5.0, 7.0]), runs([3.0, 5.0, 7.0]))
    assert (same.ratio, same.low, same.high, same.p_value) == (1, 1, 1, 1)
    assert math.isnan(same.t)
    twice = paired_t(runs([0.3, 0.7, 1.1]), runs([0.6, 1.4, 2.2]))  # equal up to the rounding of logarithms
    assert twice.low == twice.high == pytest.approx(2)
    assert (twice.p_value, twice.t) == (0, math.inf)
    in_ns = np.random.default_rng(0).integers(10**9, 10**12, 20)
    slower = paired_t(runs(in_ns), runs(1.1 * in_ns))
    assert slower.sd_log_ratio == 0
    assert slower.ratio == pytest.approx(1.1)


def test_warnings_end_at_ten_seeds() -> None:
    logs = np.linspace(0.1, 0.2, 10)
    assert paired_t(*from_logs(logs)).warnings == ()
    for result in (paired_t(*from_logs(logs[:9])), sign_flip(*from_logs(logs[:9])), equivalence(*from_logs(logs[:9]))):
        assert result.warnings[0].startswith("9 seeds: fewer than 10")


@pytest.mark.parametrize(
    ("logs", "p_value"),
    [
        ([1, 1, 1, 1, 1, 1], 2 / 64),
        ([1, 2, 3, 4, 5, 6], 2 / 64),
        ([-1, 2, 3, 4, 5, 6], 4 / 64),  # sum 19: reached by flipping nothing, or the 1, on either side
        ([1, 1, 1, 1, 1, -1], 14 / 64),  # |sum| >= 4: all alike (2) or one apart (2 x 6)
        ([1, 1, 1, -1, -1, -1], 1.0),
        ([0, 0, 0, 0, 0, 1], 1.0),
        ([0, 0, 0, 0, 0, 0], 1.0),
        ([0.1, 0.2, 0.3, -0.1, -0.2, 0.5], None),
    ],
)
def test_sign_flip_on_tiny_samples(logs: list[float], p_value: float | None) -> None:
    """Against hand counts, and against counting every assignment in exact tenths."""
    tenths = [round(10 * x) for x in logs]
    hits = sum(
        abs(sum(s * x for s, x in zip(signs, tenths, strict=True))) >= abs(sum(tenths))
        for signs in itertools.product((1, -1), repeat=len(logs))
    )
    result = sign_flip(*from_logs(logs))
    assert result.p_value == pytest.approx(hits / 2 ** len(logs), abs=0)
    assert p_value is None or result.p_value == p_value
    assert (result.exact, result.assignments) == (True, 64)


@given(PAIRS)
def test_sign_flip_equals_scipy_enumeration(pairs: list[tuple[float, float]]) -> None:
    before, after = np.array(pairs).T
    logs = np.log(after) - np.log(before)
    reference = stats.permutation_test(
        (logs,), lambda x, axis: np.sum(x, axis=axis), permutation_type="samples", vectorized=True, n_resamples=2**9
    )
    result = sign_flip(runs(before), runs(after))
    # scipy's own tolerance for ties is wider on one side when sums nearly cancel.
    assert result.p_value == pytest.approx(reference.pvalue, abs=0) or np.abs(logs.sum()) < 1e-9 * np.abs(logs).sum()
    assert result.p_value >= 2 / 2 ** len(pairs)


def test_sign_flip_at_twenty_pairs_is_still_exact() -> None:
    result = sign_flip(*from_logs(np.linspace(0.01, 0.2, 20)))
    assert (result.p_value, result.exact, result.assignments) == (2 / 2**20, True, 2**20)


def test_sign_flip_draws_beyond_twenty_and_repeats_with_the_seed() -> None:
    logs = np.random.default_rng(5).normal(0.3, 1, 21)
    drawn = sign_flip(*from_logs(logs), resamples=20_000, seed=1)
    assert (drawn.exact, drawn.assignments) == (False, 20_000)
    assert drawn == sign_flip(*from_logs(logs), resamples=20_000, seed=1)
    assert drawn.p_value != sign_flip(*from_logs(logs), resamples=20_000, seed=2).p_value
    sums = logs[:1]
    for value in logs[1:]:
        sums = np.concatenate((sums + value, sums - value))
    exact = np.mean(np.abs(sums) >= abs(logs.sum()) - 1e-12)
    assert drawn.p_value == pytest.approx(exact, abs=5 * math.sqrt(exact / 20_000))


def test_sign_flip_keeps_its_size_on_skewed_metrics() -> None:
    rng = np.random.default_rng(6)
    false = sum(sign_flip(*from_logs(rng.standard_t(2, 8))).p_value <= 0.05 for _ in range(600))
    assert stats.binomtest(false, 600, 0.05, alternative="greater").pvalue > 0.001


def test_too_few_seeds_are_refused() -> None:
    with pytest.raises(TooFewPairs, match=r"at least 2 paired seeds, found pairs=1"):
        paired_t({1: 1.0}, {1: 2.0})
    with pytest.raises(TooFewPairs, match=r"at least 6 paired seeds, found pairs=5\. .* 0\.0625"):
        sign_flip(*from_logs([1, 1, 1, 1, 1]))
    with pytest.raises(TooFewPairs, match=r"found pairs=0"):
        equivalence({}, {})


@pytest.mark.parametrize("test", [paired_t, sign_flip, equivalence])
def test_unpaired_and_impossible_metrics_are_refused(test: Any) -> None:
    good = runs(np.arange(1, 8))
    with pytest.raises(UnpairedRuns, match="6 only in baseline and 9 only in candidate"):
        test(good, {**{k: v for k, v in good.items() if k != 6}, 9: 1.0})
    for value in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match=rf"candidate\[3\]={value}"):
            test(good, {**good, 3: value})


def test_equivalence_is_the_interval_inside_the_margin() -> None:
    rng = np.random.default_rng(8)
    verdicts = set()
    for _ in range(200):
        result = equivalence(*from_logs(rng.normal(0.01, 0.04, 12)), margin=0.04)
        assert result.equivalent == (result.low >= 1 / 1.04 and result.high <= 1.04)
        verdicts.add(result.equivalent)
    assert verdicts == {True, False}


def test_equivalence_by_hand_and_without_spread() -> None:
    logs = np.array([0.1, 0.2, 0.3])
    result = equivalence(*from_logs(logs), margin=math.e - 1)  # bounds at -1 and +1
    error = 0.1 / math.sqrt(3)
    assert result.p_above == pytest.approx(stats.t.sf(1.2 / error, 2))
    assert result.p_below == pytest.approx(stats.t.sf(0.8 / error, 2))
    assert result.p_value == result.p_below
    assert equivalence(runs([1, 2]), runs([1, 2])).equivalent
    assert equivalence(runs([1, 2]), runs([1.2, 2.4]), margin=0.05).p_value == 1
    assert equivalence(runs([1, 2]), runs([0.8, 1.6]), margin=0.05).p_value == 1


def test_a_wide_null_result_is_not_equivalence() -> None:
    noisy = from_logs([-0.3, 0.3, -0.2, 0.25, 0.1, -0.15])
    assert paired_t(*noisy).p_value > 0.9
    assert not equivalence(*noisy).equivalent


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda a, b: paired_t(a, b, confidence=1.0), "confidence=1.0"),
        (lambda a, b: sign_flip(a, b, resamples=10), "resamples=10"),
        (lambda a, b: sign_flip(a, b, seed=-1), "seed=-1"),
        (lambda a, b: equivalence(a, b, margin=0), "margin=0"),
        (lambda a, b: equivalence(a, b, alpha=0.5), "alpha=0.5"),
    ],
)
def test_bad_options_are_named(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(*from_logs(np.arange(6)))
