from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from workbench.errors import UsageError
from workbench.stats import stability
from workbench.units import MS_NS, S_NS


def every(gap_ns: int, n: int) -> NDArray[np.int64]:
    return np.arange(n, dtype=np.int64) * gap_ns


def test_a_deterministic_overload_grows_at_the_excess_rate() -> None:
    result = stability(every(10 * MS_NS, 2000), every(12 * MS_NS, 2000) + 12 * MS_NS)
    assert result.verdict == "unstable"
    assert result.arrival_rate_per_s == pytest.approx(100, rel=0.01)
    assert result.growth_per_s == pytest.approx(100 - 1000 / 12, rel=0.01)
    assert result.drift_per_s == pytest.approx(100 - 1000 / 12, rel=0.05)


def test_a_constant_queue_is_stable_without_spread() -> None:
    result = stability(every(10 * MS_NS, 1001), every(10 * MS_NS, 1001) + 10 * MS_NS, warmup=0.1)
    assert result.verdict == "stable"
    assert result.mean_in_flight == pytest.approx(1)  # each leaves as the next arrives
    assert result.growth_per_s == pytest.approx(0, abs=1e-9)
    assert result.growth_high_per_s == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("load", [0.7, 0.95])
def test_both_limits_against_a_second_implementation(lindley: Callable[..., Any], load: float) -> None:
    arrivals, departures = lindley(np.random.default_rng(3), 2000, load)
    result = stability(arrivals * S_NS, departures * S_NS, warmup=0.2, blocks=10, confidence=0.9)

    start = arrivals[0] + 0.2 * (arrivals[-1] - arrivals[0])
    edges = np.linspace(start, arrivals[-1], 11)
    width = edges[1] - edges[0]
    overlap = np.minimum(departures[:, None], edges[1:]) - np.maximum(arrivals[:, None], edges[:-1])
    means = np.maximum(overlap, 0).sum(axis=0) / width
    assert result.mean_in_flight == pytest.approx(means.mean())

    fit = sm.OLS(means, sm.add_constant(np.arange(10) * width)).fit()
    r1 = (fit.resid[1:] * fit.resid[:-1]).sum() / (fit.resid**2).sum()
    effective = 10 * (1 - max(r1, 0)) / (1 + max(r1, 0))
    error = fit.bse[1] * math.sqrt(fit.df_resid / (effective - 2))
    assert result.growth_per_s == pytest.approx(fit.params[1])
    assert result.autocorrelation == pytest.approx(r1)
    half = stats.t.ppf(0.95, effective - 2) * error
    assert (result.growth_low_per_s, result.growth_high_per_s) == pytest.approx(
        (fit.params[1] - half, fit.params[1] + half)
    )

    in_flight = ((arrivals[:, None] <= edges) & (departures[:, None] > edges)).sum(axis=0)
    drift = stats.ttest_1samp(np.diff(in_flight) / width, 0)
    assert result.drift_per_s == pytest.approx((in_flight[-1] - in_flight[0]) / (10 * width))
    assert (result.drift_low_per_s, result.drift_high_per_s) == pytest.approx(tuple(drift.confidence_interval(0.9)))


def test_littles_law(lindley: Callable[..., Any]) -> None:
    arrivals, departures = lindley(np.random.default_rng(0), 20_000, 0.7)
    result = stability(arrivals * S_NS, departures * S_NS)
    sojourn_s = (departures - arrivals)[2000:].mean()
    assert result.mean_in_flight == pytest.approx(result.arrival_rate_per_s * sojourn_s, rel=0.02)


def test_requests_that_never_leave_are_simply_absent() -> None:
    arrivals = every(10 * MS_NS, 1000)
    hung = stability(arrivals, arrivals[::2] + 5 * MS_NS)  # every other request hangs
    assert hung.verdict == "unstable"
    assert hung.growth_per_s == pytest.approx(50, rel=0.02)
    assert stability(arrivals, []).growth_per_s == pytest.approx(100, rel=0.02)


def test_a_short_run_is_undecided() -> None:
    result = stability(every(10 * MS_NS, 199), every(10 * MS_NS, 199) + MS_NS)
    assert result.verdict == "undecided"
    assert "fewer than 10" in result.reason


@given(st.integers(0, 2**32 - 1), st.integers(0, 10**12))
def test_order_unit_of_origin_and_shuffling_do_not_matter(seed: int, origin: int) -> None:
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.integers(1, 20 * MS_NS, 400))
    departures = arrivals + rng.integers(1, 100 * MS_NS, 400)
    plain = stability(arrivals, departures)
    moved = stability(rng.permutation(arrivals) + origin, rng.permutation(departures) + origin)
    assert moved.verdict == plain.verdict
    assert moved.growth_per_s == pytest.approx(plain.growth_per_s, abs=1e-6)
    assert moved.drift_per_s == pytest.approx(plain.drift_per_s, abs=1e-6)


def verdicts(lindley: Callable[..., Any], load: float, n: int, runs: int) -> Counter[str]:
    rng = np.random.default_rng(17)
    found: Counter[str] = Counter()
    for _ in range(runs):
        arrivals, departures = lindley(rng, n, load)
        found[stability(arrivals * MS_NS, departures * MS_NS).verdict] += 1
    return found


def test_queues_of_known_load(lindley: Callable[..., Any]) -> None:
    assert verdicts(lindley, 0.5, 2000, 60)["stable"] == 60
    assert verdicts(lindley, 0.9, 2000, 60)["unstable"] <= 2
    assert verdicts(lindley, 1.3, 2000, 60)["unstable"] >= 59


@pytest.mark.soak
@pytest.mark.parametrize("n", [500, 2000, 10_000])
def test_error_rates_of_the_table(lindley: Callable[..., Any], n: int) -> None:
    """The promises of the docstring's table, each with 4 standard errors of slack at 400 runs."""
    for load in (0.5, 0.8, 0.9, 0.95):
        assert verdicts(lindley, load, n, 400)["unstable"] <= 0.02 * 400
    assert verdicts(lindley, 1.0, n, 400)["unstable"] <= (0.05 + 4 * math.sqrt(0.05 * 0.95 / 400)) * 400
    assert verdicts(lindley, 1.05, n, 400)["stable"] <= (0.05 + 4 * math.sqrt(0.05 * 0.95 / 400)) * 400
    detected = {500: 0.25, 2000: 0.74, 10_000: 1.0}[n]
    slack = 4 * math.sqrt(detected * (1 - detected) / 400)
    assert verdicts(lindley, 1.1, n, 400)["unstable"] >= (detected - slack) * 400 - 1


@pytest.mark.parametrize(
    ("arrivals", "departures", "options", "message"),
    [
        ([], [], {}, "arrivals_ns of size 0"),
        ([5, 5], [], {}, "all arrivals at 5 ns"),
        ([1, -5], [], {}, r"arrivals_ns\[1\]=-5"),
        ([1, math.nan], [], {}, r"arrivals_ns\[1\]=nan"),
        ([1, math.inf], [], {}, "inf in arrivals_ns"),
        ([1, 2], [math.inf], {}, "Leave out requests that never left"),
        ([1, 5], [2, 3], {}, "2 departures and 1 arrivals by 3 ns"),
        ([[1, 2]], [], {}, r"shape \(1, 2\)"),
        ([1, 2], [], {"blocks": 5}, "blocks=5"),
        ([1, 2], [], {"warmup": 1}, "warmup=1"),
        ([1, 2], [], {"tolerance": 0}, "tolerance=0"),
        ([1, 2], [], {"confidence": 95}, "confidence=95"),
    ],
)
def test_bad_arguments_are_named(arrivals: Any, departures: Any, options: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        stability(arrivals, departures, **options)
