from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from statsmodels.duration.survfunc import SurvfuncRight

from workbench.errors import UsageError
from workbench.stats import censored_quantile

INF = math.inf


def test_kaplan_meier_by_hand() -> None:
    # 20 requests: four end at 1..4, five are cut at 4.5, eleven end at 5..15.
    done = [*range(1, 5), *range(5, 16)]
    result = censored_quantile(done, [4.5] * 5, 0.5)
    # S(4) = 16/20; 11 at risk after the cut: S(9) = .8 * 6/11 = .436, S(8) = .8 * 7/11 = .509
    assert result.value == 9
    assert (result.n, result.censored, result.beyond) == (20, 5, None)


def test_beyond_the_cut_nothing_is_extrapolated() -> None:
    result = censored_quantile(range(1, 91), [120.0] * 10, 0.9)
    assert result.value == 90  # exactly 90 of 100 have ended by 90
    beyond = censored_quantile(range(1, 190), [250.0] * 11, 0.95)
    assert (beyond.value, beyond.beyond, beyond.high) == (None, 250, None)
    assert str(beyond) == "> 250"
    assert beyond.low is not None


def test_without_cut_off_it_is_the_smallest_value_reaching_q() -> None:
    values = np.random.default_rng(9).lognormal(0, 1, 300)
    result = censored_quantile(values, [], 0.9)
    assert result.value == np.quantile(values, 0.9, method="inverted_cdf")


@given(
    st.lists(st.tuples(st.integers(1, 30), st.booleans()), min_size=40, max_size=80),
    st.sampled_from([0.25, 0.5, 0.75]),
)
def test_kaplan_meier_equals_statsmodels(rows: list[tuple[int, bool]], q: float) -> None:
    times = np.array([time for time, _ in rows], dtype=float)
    ended = np.array([end for _, end in rows])
    assume(ended.sum() > 1)
    reference = SurvfuncRight(times, ended.astype(int))
    # A curve that touches 1 - q to the last bit makes either answer right.
    assume(not np.isclose(reference.surv_prob, 1 - q, atol=1e-9).any())
    result = censored_quantile(times[ended], times[~ended], q)
    expected = reference.quantile(q)
    assert result.value == (None if math.isnan(expected) else expected)
    if result.value is None:
        assert result.beyond == times.max()
    else:
        assert result.low is not None
        assert result.low <= result.value <= (INF if result.high is None else result.high)


@pytest.mark.filterwarnings("ignore::RuntimeWarning:statsmodels")
def test_kaplan_meier_limits_equal_statsmodels_log_log() -> None:
    rng = np.random.default_rng(12)
    lifetime, cut = rng.exponential(1, 300), rng.exponential(2, 300)
    times, ended = np.minimum(lifetime, cut), lifetime <= cut
    result = censored_quantile(times[ended], times[~ended], 0.5)
    low, high = SurvfuncRight(times, ended.astype(int)).quantile_ci(0.5, method="cloglog")
    assert (result.low, result.high) == pytest.approx((low, high), rel=0.02)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: censored_quantile([], [1.0] * 100, 0.9), "done of size 0"),
        (lambda: censored_quantile([1.0] * 99 + [INF], [], 0.9), r"done\[99\]=inf.*not a cut-off one"),
        (lambda: censored_quantile([1.0] * 99, [math.nan], 0.9), r"running\[0\]=nan"),
        (lambda: censored_quantile([1.0] * 90, [1.0] * 9, 0.9), "at least 100 values for q=0.9, found n=99"),
    ],
)
def test_bad_arguments_are_named(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()
