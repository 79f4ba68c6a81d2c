from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from workbench.errors import UsageError
from workbench.stats import TooFewForQuantile, jain_index, slowdown, tail_slowdown

INF = math.inf
SHARES = st.lists(st.floats(0, 1e9), min_size=1, max_size=30).filter(any)


@pytest.mark.parametrize(
    ("shares", "index"), [([1, 1, 1, 0], 0.75), ([4, 1], 25 / 34), ([7], 1), ([0, 0, 5], 1 / 3), ([3, 3, 3], 1)]
)
def test_jain_by_hand(shares: list[float], index: float) -> None:
    assert jain_index(shares) == pytest.approx(index)


@given(SHARES)
def test_jain_lies_between_one_nth_and_one(shares: list[float]) -> None:
    assert 1 / len(shares) <= jain_index(shares) <= 1


@given(SHARES, st.sampled_from([1e-150, 1e-3, 7.0, 1e150]))
def test_jain_ignores_unit_and_order(shares: list[float], unit: float) -> None:
    assume(min(s for s in shares if s) > 1e-6)
    assert jain_index([unit * share for share in shares]) == pytest.approx(jain_index(shares))
    assert jain_index(shares[::-1]) == pytest.approx(jain_index(shares))


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=10))
def test_shares_in_proportion_to_weight_are_perfectly_fair(weights: list[float]) -> None:
    assert jain_index([3 * w for w in weights], weights=weights) == pytest.approx(1)


def test_jain_moves_toward_one_by_giving_to_the_poor() -> None:
    assert jain_index([1, 9]) < jain_index([2, 8]) < jain_index([5, 5])


def test_slowdown_keeps_failures_and_noise() -> None:
    assert slowdown([2, 0.9, INF, 0], [1, 1, 5, 2]).tolist() == [2, 0.9, INF, 0]


def test_three_tails_of_two_tenants() -> None:
    big, small = np.arange(1.0, 901.0), np.full(100, 50.0)
    tails = tail_slowdown({"big": big, "small": small}, weights={"big": 1.0, "small": 3.0}, q=0.9)
    assert tails.per_tenant == pytest.approx({"big": 810.1, "small": 50.0})
    assert tails.weighted == pytest.approx((810.1 + 3 * 50) / 4)
    # The small tenant holds 3/4 of the weight, so the pooled .9 is the .6 of the big one: its 540th value.
    assert tails.pooled == 540
    assert (tails.worst, tails.worst_tenant) == (pytest.approx(810.1), "big")


@given(st.floats(0.1, 9), st.floats(0.1, 9))
def test_weighted_tail_lies_between_the_tenants(first: float, second: float) -> None:
    samples = {"a": np.linspace(1, 2, 100), "b": np.linspace(3, 9, 120)}
    tails = tail_slowdown(samples, weights={"a": first, "b": second}, q=0.9)
    assert tails.per_tenant["a"] <= tails.weighted <= tails.worst == tails.per_tenant["b"]
    scaled = tail_slowdown(samples, weights={"a": 10 * first, "b": 10 * second}, q=0.9)
    assert scaled.weighted == pytest.approx(tails.weighted)
    assert scaled.pooled == tails.pooled


def test_equal_weights_count_tenants_and_not_requests() -> None:
    samples = {"a": np.ones(1000), "b": np.full(100, 5.0)}
    assert tail_slowdown(samples, q=0.9).weighted == 3
    assert tail_slowdown(samples, q=0.9).pooled == 5


def test_failures_reach_every_definition() -> None:
    tails = tail_slowdown({"a": [1.0] * 100, "b": [1.0] * 80 + [INF] * 20}, q=0.9)
    assert (tails.weighted, tails.worst, tails.worst_tenant, tails.censored) == (INF, INF, "b", True)
    assert tails.pooled == 1  # a tenth of all weight failed: exactly at the level, not beyond it


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jain_index([]), "allocations of size 0"),
        (lambda: jain_index([0, 0]), "all 2 are 0"),
        (lambda: jain_index([1, -1]), r"allocations\[1\]=-1.0"),
        (lambda: jain_index([1, math.nan]), r"allocations\[1\]=nan"),
        (lambda: jain_index([1, INF]), "finite allocations"),
        (lambda: jain_index([[1, 2]]), r"shape \(1, 2\)"),
        (lambda: jain_index([1, 2], weights=[1]), "weights of size 1"),
        (lambda: jain_index([1, 2], weights=[1, 0]), r"weights\[1\]=0.0"),
        (lambda: slowdown([1, 2], [1]), "isolated of size 1"),
        (lambda: slowdown([1], [0]), r"isolated\[0\]=0.0"),
        (lambda: slowdown([1], [INF]), r"isolated\[0\]=inf"),
        (lambda: tail_slowdown({}), "slowdowns={}"),
        (lambda: tail_slowdown({"a": [1.0] * 1000}, weights={"b": 1}), r"weights for \['b'\]"),
        (lambda: tail_slowdown({"a": [1.0] * 1000}, weights={"a": -1}), r"weights\['a'\]=-1.0"),
        (lambda: tail_slowdown({"a": [1.0] * 999 + [math.nan]}), r"slowdowns\['a'\]\[999\]=nan"),
        (lambda: tail_slowdown({"a": [1.0]}, q=1.5), "q=1.5"),
    ],
)
def test_bad_arguments_are_named(call: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_a_tenant_with_too_little_tail_is_named() -> None:
    with pytest.raises(TooFewForQuantile, match=r"slowdowns\['small'\]: expected at least 1000 values for q=0.99"):
        tail_slowdown({"big": [1.0] * 1000, "small": [1.0] * 999})
