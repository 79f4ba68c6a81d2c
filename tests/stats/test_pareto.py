from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import UsageError
from workbench.stats import pareto_front
from workbench.stats.pareto import Sense

# Few distinct values, so that ties and duplicates are common.
TABLES = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, 2.0, 3.0, math.inf])] * width), max_size=25)
)
SENSES = st.lists(st.sampled_from(["min", "max"]), min_size=3, max_size=3)


def front(rows: list[tuple[float, ...]], senses: list[Sense]) -> tuple[Any, np.ndarray[Any, Any]]:
    table = np.array(rows, dtype=float).reshape(len(rows), -1) if rows else np.empty((0, 1))
    names = [f"c{i}" for i in range(table.shape[1])]
    sense = dict(zip(names, senses, strict=False))
    costs = table * [1 if s == "min" else -1 for s in sense.values()]
    return pareto_front({name: table[:, i] for i, name in enumerate(names)}, sense=sense), costs


def dominates(a: Any, b: Any) -> bool:
    return bool((a <= b).all() and (a < b).any())


@given(TABLES, SENSES)
def test_against_the_definition(rows: list[tuple[float, ...]], senses: list[Sense]) -> None:
    result, costs = front(rows, senses)
    assert result.dominated.tolist() == [any(dominates(a, b) for a in costs) for b in costs]
    assert sorted(result.front) == np.flatnonzero(~result.dominated).tolist()
    assert list(result.front) == sorted(result.front, key=lambda row: (*costs[row], row))
    for a in result.front:  # members do not dominate each other
        assert not any(dominates(costs[b], costs[a]) for b in result.front)
    for row, by in enumerate(result.dominator.tolist()):  # every dominated row has the first member that beats it
        beaters = [member for member in result.front if dominates(costs[member], costs[row])]
        assert by == (beaters[0] if beaters else -1)


@given(TABLES, SENSES, st.randoms(use_true_random=False))
def test_row_order_does_not_decide_membership(rows: list[tuple[float, ...]], senses: list[Sense], random: Any) -> None:
    order = list(range(len(rows)))
    random.shuffle(order)
    straight, _ = front(rows, senses)
    shuffled, _ = front([rows[i] for i in order], senses)
    assert sorted(order[i] for i in shuffled.front) == sorted(straight.front)


def test_equal_rows_share_their_fate_and_keep_row_order() -> None:
    result, _ = front([(1, 1), (1, 1), (2, 2), (2, 2)], ["min", "min"])
    assert result.front == (0, 1)
    assert result.dominator.tolist() == [-1, -1, 0, 0]


def test_one_column_keeps_all_minima() -> None:
    assert front([(3,), (1,), (2,), (1,)], ["min"])[0].front == (1, 3)
    assert front([(3,), (1,), (3,)], ["max"])[0].front == (0, 2)


def test_a_censored_tail_loses_to_any_number() -> None:
    result = pareto_front({"p99": [math.inf, 5.0]}, sense={"p99": "min"})
    assert result.front == (1,)


def test_no_rows_have_an_empty_front() -> None:
    assert pareto_front({"p99": []}, sense={"p99": "min"}).front == ()


def test_flags_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        pareto_front({"p99": [1.0]}, sense={"p99": "min"}).dominated[0] = True


@pytest.mark.parametrize(
    ("columns", "sense", "message"),
    [
        ({}, {}, "at least one column"),
        ({"a": [1.0]}, {"b": "min"}, r"sense for \['b'\]"),
        ({"a": [1.0]}, {"a": "low"}, r"sense\['a'\]='low'"),
        ({"a": [1.0, math.nan]}, {"a": "min"}, r"columns\['a'\]\[1\]=nan"),
        ({"a": [1.0, None]}, {"a": "min"}, "dtype object"),
        ({"a": [[1.0]]}, {"a": "min"}, r"shape \(1, 1\)"),
        ({"a": [1.0], "b": [1.0, 2.0]}, {"a": "min", "b": "max"}, r"sizes {'a': 1, 'b': 2}"),
    ],
)
def test_bad_tables_are_named(columns: Any, sense: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        pareto_front(columns, sense=sense)
