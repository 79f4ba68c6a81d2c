from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from workbench.errors import UsageError
from workbench.stats import (
    TooFewForQuantile,
    minimum_size,
    quantile,
    quantile_bootstrap,
    quantile_bounds,
    quantile_replicates,
)

INF = math.inf
LATENCIES = st.lists(st.floats(0, 1e9) | st.just(INF), min_size=100, max_size=140)
LEVELS = st.integers(10, 90).map(lambda percent: percent / 100)


@pytest.mark.parametrize(
    ("q", "size"), [(0.5, 20), (0.9, 100), (0.95, 200), (0.99, 1000), (0.999, 10_000), (0.01, 1000), (0.7, 34)]
)
def test_ten_values_lie_beyond_the_quantile(q: float, size: int) -> None:
    assert minimum_size(q) == size
    quantile(range(size), q)
    with pytest.raises(TooFewForQuantile, match=rf"at least {size} values for q={q:g}, found n={size - 1}") as caught:
        quantile(range(size - 1), q)
    assert (caught.value.q, caught.value.n, caught.value.needed) == (q, size - 1, size)


def test_a_claim_needs_fifty_beyond() -> None:
    assert not quantile(range(4999), 0.99).claimable
    assert quantile(range(5000), 0.99).claimable


@given(st.lists(st.floats(0, 1e12), min_size=100, max_size=160), LEVELS)
def test_finite_samples_give_numpy_type_7(values: list[float], q: float) -> None:
    result = quantile(values, q)
    assert result.value == pytest.approx(float(np.quantile(values, q)), rel=1e-9, abs=1e-9)
    assert (result.failures, result.censored) == (0, False)


@given(LATENCIES, LEVELS, LEVELS)
def test_quantiles_are_monotone_bounded_and_blind_to_order(values: list[float], p: float, q: float) -> None:
    low, high = sorted((p, q))
    assert min(values) <= quantile(values, low).value <= quantile(values, high).value <= max(values)
    assert quantile(values[::-1], q) == quantile(values, q)


def test_monotone_on_levels_that_share_a_gap() -> None:
    values = np.random.default_rng(0).lognormal(0, 3, 101)
    levels = np.linspace(0.1, 0.9, 4_001)
    curve = [quantile(values, float(q)).value for q in levels]
    assert all(a <= b for a, b in itertools.pairwise(curve))


@given(LATENCIES, LEVELS)
def test_a_failure_is_the_limit_of_a_very_late_answer(values: list[float], q: float) -> None:
    result = quantile(values, q)
    late = quantile([1e300 if math.isinf(v) else v for v in values], q).value
    assert result.censored == (late > 1e200)
    assert result.value == (INF if result.censored else late)
    assert result.failures == sum(map(math.isinf, values))


def test_the_edge_between_served_and_failed() -> None:
    # h = .99 * 1000 = 990 exactly: the 991st value alone decides, whatever comes after it.
    assert quantile([1.0] * 991 + [INF] * 10, 0.99).value == 1
    assert quantile([1.0] * 990 + [INF] * 11, 0.99).value == INF
    # h = .99 * 999 = 989.01: any weight on a failure is a failure.
    assert quantile([1.0] * 990 + [INF] * 10, 0.99).value == INF
    assert quantile([1.0] * 991 + [INF] * 9, 0.99).value == 1


@pytest.mark.parametrize("n", [400, 1000, 5000])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_bounds_are_the_narrowest_equal_tailed_ranks(n: int, confidence: float) -> None:
    tail = (1 - confidence) / 2
    bounds = quantile_bounds(range(n), 0.99, confidence=confidence)
    low, high = int(bounds.low), int(bounds.high)  # values are zero-based ranks
    # x[low] > quantile needs at most `low` values below it; x[high] < quantile at least `high + 1`.
    assert stats.binom.cdf(low, n, 0.99) <= tail < stats.binom.cdf(low + 1, n, 0.99)
    assert stats.binom.sf(high, n, 0.99) <= tail < stats.binom.sf(high - 1, n, 0.99)


@pytest.mark.parametrize(
    ("q", "confidence", "size"), [(0.99, 0.95, 368), (0.999, 0.95, 3688), (0.5, 0.95, 6), (0.01, 0.95, 368)]
)
def test_bounds_need_finite_ranks(q: float, confidence: float, size: int) -> None:
    assert math.isfinite(quantile_bounds(range(size), q, confidence=confidence).high)
    with pytest.raises(TooFewForQuantile, match=f"at least {size} values"):
        quantile_bounds(range(size - 1), q, confidence=confidence)


def test_bounds_among_failures_are_censored() -> None:
    bounds = quantile_bounds([1.0] * 995 + [INF] * 5, 0.99)
    assert (bounds.low, bounds.high, bounds.censored, bounds.failures) == (1, INF, True, 5)


def test_ranks_follow_the_exact_bootstrap_law() -> None:
    """P(k-th of n drawn indices <= i) is a binomial tail; a type-7 median of 21 values is the 11th alone."""
    n, k, draws = 21, 11, 200_000
    counts = Counter(quantile_replicates(range(n), 0.5, resamples=draws, seed=3).astype(int).tolist())
    cdf = stats.binom.sf(k - 1, n, np.arange(1, n + 1) / n)
    expected = draws * np.diff(cdf, prepend=0)
    common = expected >= 5
    observed = np.array([counts[i] for i in range(n)])
    assert observed[~common].sum() <= 20
    scale = observed[common].sum() / expected[common].sum()
    assert stats.chisquare(observed[common], expected[common] * scale).pvalue > 0.001


@pytest.mark.parametrize(("n", "q", "k"), [(64, 0.5, 32), (1000, 0.99, 990), (112, 0.1, 12)])
def test_both_neighbors_follow_their_exact_law(n: int, q: float, k: int) -> None:
    """On values 0 up to a rank and 1 above it, a replicate is 0, the weight, or 1: a binomial tail each."""
    step, draws = k + 1, 200_000
    replicates = quantile_replicates((np.arange(n) >= step).astype(float), q, resamples=draws, seed=1)
    low_is_zero, both_are_zero = stats.binom.sf([k - 1, k], n, step / n)
    expected = draws * np.array([both_are_zero, low_is_zero - both_are_zero, 1 - low_is_zero])
    observed = [(replicates == 0).sum(), ((replicates > 0) & (replicates < 1)).sum(), (replicates == 1).sum()]
    assert stats.chisquare(observed, expected).pvalue > 0.001


@pytest.mark.parametrize(("n", "q"), [(200, 0.95), (137, 0.9), (64, 0.5), (250, 0.05)])
def test_interpolated_replicates_match_brute_force(n: int, q: float) -> None:
    rng = np.random.default_rng(n)
    values = rng.lognormal(0, 0.6, n)
    brute = np.quantile(values[rng.integers(0, n, (20_000, n))], q, axis=1)
    drawn = quantile_replicates(values, q, resamples=20_000, seed=11)
    # Rounded, because atoms that differ in their last bit look like different distributions.
    assert stats.ks_2samp(brute.round(9), drawn.round(9)).pvalue > 0.001
    assert drawn.std() == pytest.approx(brute.std(), rel=0.05)


def test_the_interval_matches_scipy_bootstrap() -> None:
    values = np.random.default_rng(4).lognormal(0, 0.6, 1000)
    mine = quantile_bootstrap(values, 0.95, resamples=20_000, seed=1)
    reference = stats.bootstrap(
        (values,),
        lambda x, axis: np.quantile(x, 0.95, axis=axis),
        n_resamples=5_000,
        method="percentile",
        rng=np.random.default_rng(2),
    )
    width = mine.high - mine.low
    assert mine.low == pytest.approx(reference.confidence_interval.low, abs=0.06 * width)
    assert mine.high == pytest.approx(reference.confidence_interval.high, abs=0.06 * width)
    assert mine.standard_error == pytest.approx(float(reference.standard_error), rel=0.05)


def test_equal_seeds_give_equal_bounds() -> None:
    values = np.arange(1000.0)
    assert quantile_bootstrap(values, 0.99, seed=5) == quantile_bootstrap(values[::-1], 0.99, seed=5)
    assert quantile_bootstrap(values, 0.99, seed=5) != quantile_bootstrap(values, 0.99, seed=6)


def test_bootstrap_with_failures_has_an_open_end_and_no_standard_error() -> None:
    result = quantile_bootstrap([1.0] * 992 + [INF] * 8, 0.99)
    assert (result.value, result.low, result.high) == (1, 1, INF)
    assert result.censored
    assert result.standard_error is None
    all_failed = quantile_bootstrap([INF] * 1000, 0.99)
    assert (all_failed.low, all_failed.high) == (INF, INF)


def test_a_constant_sample_has_a_point_interval() -> None:
    result = quantile_bootstrap([7.0] * 1000, 0.99)
    assert (result.low, result.value, result.high, result.standard_error) == (7, 7, 7, 0)


@pytest.mark.parametrize("function", [quantile, quantile_bounds, quantile_replicates, quantile_bootstrap])
def test_bad_samples_are_named(function: Any) -> None:
    for values, message in [
        ([], "values of size 0"),
        ([1.0] * 999 + [math.nan], r"values\[999\]=nan.*pass inf"),
        ([1.0] * 999 + [-1.0], r"values\[999\]=-1.0"),
        (np.ones((1000, 2)), r"shape \(1000, 2\)"),
    ]:
        with pytest.raises(UsageError, match=message):
            function(values, 0.99)
    for q in (0, 1, 99, math.nan, "0.5"):
        with pytest.raises(UsageError, match=f"q={q!r}"):
            function([1.0] * 1000, q)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: quantile_bootstrap([1.0] * 1000, 0.9, resamples=39), "at least 40 resamples"),
        (lambda: quantile_bootstrap([1.0] * 1000, 0.9, seed=-1), "seed=-1"),
        (lambda: quantile_bootstrap([1.0] * 1000, 0.9, confidence=95), "confidence=95"),
        (lambda: quantile_replicates([1.0] * 1000, 0.9, resamples=0), "resamples=0"),
        (lambda: minimum_size(0.9, tail=0), "tail=0"),
    ],
)
def test_bad_arguments_are_named(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
