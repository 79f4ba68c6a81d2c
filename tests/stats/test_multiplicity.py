from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import false_discovery_control

from workbench.errors import UsageError
from workbench.stats import adjust

P_VALUES = st.lists(st.floats(0, 1), min_size=1, max_size=12).map(lambda ps: {f"m{i}": p for i, p in enumerate(ps)})


def test_holm_by_hand() -> None:
    family = adjust({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}, method="holm")
    # sorted .005 .01 .03 .04 times 4 3 2 1, made monotone: .02 .03 .06 .06
    assert family.adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert family.rejected == ("a", "d")


def test_benjamini_hochberg_by_hand() -> None:
    family = adjust({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}, method="benjamini-hochberg")
    # times 4/1 4/2 4/3 4/4, made monotone from above: .02 .02 .04 .04
    assert family.adjusted == pytest.approx({"a": 0.02, "b": 0.04, "c": 0.04, "d": 0.02})
    assert family.rejected == ("a", "b", "c", "d")


@given(P_VALUES)
def test_adjustment_never_helps_and_keeps_order(p_values: dict[str, float]) -> None:
    holm = adjust(p_values, method="holm").adjusted
    hochberg = adjust(p_values, method="benjamini-hochberg").adjusted
    ranked = sorted(p_values, key=p_values.__getitem__)
    for name in p_values:
        assert p_values[name] - 1e-15 <= hochberg[name] <= holm[name] + 1e-12 <= 1 + 1e-12
    for family in (holm, hochberg):
        assert list(family) == list(p_values)
        assert all(family[a] <= family[b] + 1e-15 for a, b in itertools.pairwise(ranked))
    assert list(hochberg.values()) == pytest.approx(false_discovery_control(list(p_values.values())).tolist())


@pytest.mark.parametrize(
    ("p_values", "method", "message"),
    [
        ({}, "holm", "p_values of size 0"),
        ({"a": 1.2}, "holm", r"p_values\['a'\]=1.2"),
        ({"a": -0.1}, "holm", r"p_values\['a'\]=-0.1"),
        ({"a": float("nan")}, "holm", r"p_values\['a'\]=nan"),
        ({"a": 0.1}, "bonferroni", "method='bonferroni'"),
    ],
)
def test_bad_families_are_named(p_values: Any, method: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        adjust(p_values, method=method)
