from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from workbench.errors import UsageError
from workbench.stats import TooFewPairs, UnpairedRuns, regret


def test_regret_by_hand() -> None:
    result = regret({1: 11.0, 2: 23.0, 3: 32.0}, {3: 30.0, 1: 10.0, 2: 20.0})
    assert result.per_seed == (1, 3, 2)
    assert result.estimate == 2
    half = stats.t.ppf(0.975, 2) * 1 / math.sqrt(3)
    assert (result.low, result.high) == pytest.approx((2 - half, 2 + half))
    assert result.relative == pytest.approx(6 / 60)  # the mean of the ratios would be .106
    assert result.beaten == ()
    assert result.warnings == ("3 seeds: fewer than 10, so the interval leans on normality",)


def test_an_oracle_has_no_regret_against_itself() -> None:
    costs = {seed: 1.0 + seed for seed in range(12)}
    result = regret(costs, costs)
    assert (result.estimate, result.low, result.high, result.relative, result.warnings) == (0, 0, 0, 0, ())


def test_a_beaten_oracle_is_said() -> None:
    result = regret({s: 9.0 if s == 4 else 12.0 for s in range(10)}, dict.fromkeys(range(10), 10.0))
    assert result.beaten == (4,)
    assert result.warnings == ("the policy is below the oracle on 1 of 10 seeds",)


def test_the_interval_is_over_seeds() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(500):
        least = rng.lognormal(1, 0.5, 12)
        result = regret(dict(enumerate(least + rng.normal(0.3, 0.1, 12))), dict(enumerate(least)))
        covered += result.low <= 0.3 <= result.high
    assert stats.binomtest(covered, 500, 0.95).pvalue > 0.001


def test_unpaired_and_impossible_costs_are_refused() -> None:
    with pytest.raises(UnpairedRuns, match="seed 2 only in policy and 3 only in oracle"):
        regret({1: 1.0, 2: 1.0}, {1: 1.0, 3: 1.0})
    with pytest.raises(TooFewPairs, match="pairs=1"):
        regret({1: 1.0}, {1: 1.0})
    with pytest.raises(UsageError, match=r"oracle\[2\]=nan"):
        regret({1: 1.0, 2: 1.0}, {1: 1.0, 2: math.nan})
    with pytest.raises(UsageError, match=r"policy\[2\]=-1.0"):
        regret({1: 1.0, 2: -1.0}, {1: 1.0, 2: 1.0})
    with pytest.raises(UsageError, match="confidence=2"):
        regret({1: 1.0, 2: 1.0}, {1: 1.0, 2: 1.0}, confidence=2)
