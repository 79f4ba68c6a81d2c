from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from workbench.errors import UsageError
from workbench.stats import failure_bound, proportion

COUNTS = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@given(COUNTS, st.sampled_from([0.8, 0.95, 0.99]))
def test_interval_equals_scipy_exact(counts: tuple[int, int], confidence: float) -> None:
    share = proportion(*counts, confidence=confidence)
    reference = binomtest(*counts).proportion_ci(confidence, method="exact")
    assert (share.low, share.high) == pytest.approx((reference.low, reference.high), abs=1e-9)
    assert share.low <= share.estimate <= share.high


@given(COUNTS)
def test_the_bound_is_where_so_few_failures_become_unlikely(counts: tuple[int, int]) -> None:
    failures, trials = counts
    bound = failure_bound(failures, trials)
    if failures == trials:
        assert bound == 1
    else:
        assert binom.cdf(failures, trials, bound) == pytest.approx(0.05, abs=1e-9)


def test_none_of_five_hundred() -> None:
    assert failure_bound(0, 500) == pytest.approx(1 - 0.05 ** (1 / 500))
    assert proportion(0, 500).high == pytest.approx(1 - 0.025 ** (1 / 500))
    assert proportion(0, 500).low == 0
    assert proportion(500, 500).high == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: proportion(1, 0), "trials=0"),
        (lambda: proportion(3, 2), "successes=3"),
        (lambda: proportion(-1, 2), "successes=-1"),
        (lambda: proportion(1.5, 2), "successes=1.5"),  # type: ignore[arg-type]
        (lambda: proportion(1, 2, confidence=0), "confidence=0"),
        (lambda: failure_bound(4, 2), "failures=4"),
        (lambda: failure_bound(0, 2, confidence=0.5), "confidence=0.5"),
    ],
)
def test_bad_counts_are_named(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
