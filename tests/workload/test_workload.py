"""Arrivals and request plans: right in the mean, exact in their seeds, honest about what they refuse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from workbench.errors import UsageError
from workbench.units import S_NS
from workbench.workload.arrivals import poisson
from workbench.workload.requests import OVERSIZED_DIGITS, SPEECH_MIX, Mix, RequestClass, Tenant, contents, plan


def test_poisson_mean_rate_and_dispersion() -> None:
    n, rate = 20_000, 5.0
    offsets = poisson(n, rate_per_s=rate, seed=3)
    gaps = np.diff(offsets) / S_NS
    assert abs(gaps.mean() - 1 / rate) < 3 * (1 / rate) / math.sqrt(n)
    assert abs(gaps.std() / gaps.mean() - 1) < 0.05
    counts = np.bincount(offsets // S_NS)
    assert 0.9 < counts.var() / counts.mean() < 1.1


@pytest.mark.parametrize(("n", "rate"), [(0, 1.0), (-1, 1.0), (1, 0.0), (1, -2.0), (1, math.nan), (1, math.inf)])
def test_poisson_refuses(n: int, rate: float) -> None:
    with pytest.raises(UsageError):
        poisson(n, rate_per_s=rate, seed=0)


def test_seeds_are_separate() -> None:
    offsets = poisson(400, rate_per_s=1.0, seed=0)
    a = plan(offsets, SPEECH_MIX, length_seed=1, content_seed=1)
    same = plan(offsets, SPEECH_MIX, length_seed=1, content_seed=1)
    other_content = plan(offsets, SPEECH_MIX, length_seed=1, content_seed=2)
    assert a == same
    assert [p.request_class for p in a] == [p.request_class for p in other_content]
    assert [p.content for p in a] != [p.content for p in other_content]
    assert [p.offset_ns for p in a] == offsets.tolist()


def test_shares_come_out() -> None:
    planned = plan(poisson(20_000, rate_per_s=1.0, seed=0), SPEECH_MIX, length_seed=5, content_seed=6)
    n = len(planned)
    for share, got in (
        (0.7, sum(p.request_class == "short" for p in planned)),
        (0.5, sum(p.tenant == "gold" for p in planned)),
        (0.04, sum(p.cancel_after_ns is not None for p in planned)),
        (0.01, sum(p.oversized for p in planned)),
    ):
        assert abs(got / n - share) < 4 * math.sqrt(share * (1 - share) / n)
    assert {len(p.digits) for p in planned if p.oversized} == {OVERSIZED_DIGITS}
    assert all(2 <= len(p.digits) <= 8 for p in planned if not p.oversized)


def test_content_pool_is_distinct_and_fixed() -> None:
    pool = contents(SPEECH_MIX, seed=0)
    assert all(len(set(digits)) == len(digits) == 12 for digits in pool.values())
    assert pool == contents(SPEECH_MIX, seed=0)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"classes": (), "tenants": (Tenant("t", 1.0, 1.0),)},
        {"classes": (RequestClass("c", 0.5, (1, 2), 1, None),), "tenants": (Tenant("t", 1.0, 1.0),)},
        {"classes": (RequestClass("c", 1.0, (3, 2), 1, None),), "tenants": (Tenant("t", 1.0, 1.0),)},
        {"classes": SPEECH_MIX.classes, "tenants": SPEECH_MIX.tenants, "cancel_share": 1.5},
    ],
)
def test_bad_mixes_are_refused(kwargs: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        Mix(**kwargs)  # type: ignore[arg-type]


def test_a_pool_larger_than_the_vocabulary_is_refused() -> None:
    mix = Mix((RequestClass("c", 1.0, (1, 1), 11, None),), (Tenant("t", 1.0, 1.0),))
    with pytest.raises(UsageError, match="at most 10"):
        contents(mix, seed=0)
