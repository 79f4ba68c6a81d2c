"""Signals: what a rule may know, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.candidates import NAMES, built, facts, ints, signals_twin
from workbench.control import signals as s
from workbench.control.ranges import MAX_TIME_NS, UNBOUNDED
from workbench.errors import UsageError

CODES = st.integers(0, len(s.INFORMATION) - 1)
TIMES = st.sampled_from([0, 1, MAX_TIME_NS]) | st.integers(0, MAX_TIME_NS)


def test_the_table_names_the_fields_in_order() -> None:
    assert [getattr(s, entry.name.upper()) for entry in s.SIGNAL_TABLE] == list(range(s.SIGNALS))
    assert len(NAMES) == s.FACTS
    for at, name in [(s.ARRIVAL_AT, "arrival_ns"), (s.CLASS_MEAN, "class_path_ns"), (s.FACTOR, "factor")]:
        assert NAMES[at] == name
    for size in range(s.SIZES):
        signal = s.SIGNAL_TABLE[s.PATH + size].name
        assert NAMES[s.MEAN + size].removesuffix("_ns") == signal
        assert NAMES[s.TRUE + size].removesuffix("_ns") == f"true_{signal}"


@given(facts(), CODES, TIMES)
def test_both_executions_build_the_same(task: list[int], information: int, now: int) -> None:
    plain, fast = [0] * s.SIGNALS, ints([0] * s.SIGNALS)
    s.build(task, 0, information, now, plain, 0)
    signals_twin.build(ints(task), 0, information, now, fast, 0)
    assert fast.tolist() == plain
    assert all(abs(value) <= 1 << 62 for value in plain)


@given(facts(), CODES, TIMES)
def test_a_class_supplies_only_what_it_covers(task: list[int], information: int, now: int) -> None:
    signals = built([task], s.INFORMATION[information], now)
    for value, entry in zip(signals, s.SIGNAL_TABLE, strict=True):
        if entry.information > information:
            assert value == (UNBOUNDED if entry.unknown == "2^61" else s.UNKNOWN), entry.name


@given(facts(), facts(), CODES, TIMES)
def test_what_has_not_run_changes_nothing_below_its_class(
    task: list[int], other: list[int], information: int, now: int
) -> None:
    """True sizes and prediction errors may be anything: blind rules and class statistics see the same signals."""
    altered = list(task)
    altered[s.TRUE :] = other[s.TRUE :]
    altered[s.FACTOR] = other[s.FACTOR]
    name = s.INFORMATION[information]
    if information < s.PREDICTED:
        assert built([altered], name, now) == built([task], name, now)
    blind = list(altered)
    blind[s.CLASS_MEAN :] = other[s.CLASS_MEAN :]
    assert built([blind], "blind", now) == built([task], "blind", now)


def test_what_has_not_run_is_seen_where_it_may_be() -> None:
    def path(information: str, true: int, factor: int) -> int:
        task = s.record(request=0, order=0, arrival_ns=0, path_ns=50, true_path_ns=true, factor=factor)
        return built([task], information, 0)[s.PATH]

    assert [path("class-statistics", true, factor) for true, factor in ((70, 1500), (90, 500))] == [50, 50]
    assert [path("predicted", true, factor) for true, factor in ((70, 1500), (70, 1000), (90, 500))] == [105, 70, 45]
    assert [path("true-sizes", true, factor) for true, factor in ((70, 1500), (90, 500))] == [70, 90]
    assert path("predicted", 70, s.UNKNOWN) == 50, "without a prediction the estimate stands"
    assert path("true-sizes", s.UNKNOWN, 1000) == 50


@given(st.integers(0, MAX_TIME_NS), st.integers(0, 1_000_000))
def test_a_prediction_is_the_true_size_times_its_error(true: int, factor: int) -> None:
    expected = true // 1000 * factor + true % 1000 * factor // 1000
    found = s.sized(s.PREDICTED, 1, true, factor)
    assert found == signals_twin.sized(s.PREDICTED, 1, true, factor)
    assert found <= MAX_TIME_NS
    if found < MAX_TIME_NS:
        assert found == expected == true * factor // 1000
    else:
        assert expected >= MAX_TIME_NS - (MAX_TIME_NS // 1000 + 1) * 2


def test_times_are_relative_to_the_present() -> None:
    task = s.record(request=1, order=0, arrival_ns=100, ready_ns=150, deadline_ns=400, path_ns=80)
    signals = built([task], "class-statistics", 250)
    assert [signals[field] for field in (s.AGE, s.WAIT, s.TIME_LEFT, s.BUDGET, s.SLACK)] == [150, 100, 150, 300, 70]
    late = built([task], "class-statistics", 900)
    assert (late[s.TIME_LEFT], late[s.SLACK]) == (-500, -580)
    early = built([task], "class-statistics", 50)
    assert (early[s.AGE], early[s.WAIT]) == (0, 0)
    blind = built([task], "blind", 250)
    assert (blind[s.TIME_LEFT], blind[s.SLACK], blind[s.PATH]) == (150, UNBOUNDED, s.UNKNOWN)


def test_the_unit_of_time_is_never_zero_and_a_second_for_the_blind() -> None:
    for rule in (s.scale_ns, signals_twin.scale_ns):
        assert [rule(s.BLIND, 5), rule(s.CLASS_STATISTICS, 5), rule(s.CLASS_STATISTICS, 0)] == [10**9, 5, 1]
        assert rule(s.TRUE_SIZES, s.UNKNOWN) == 10**9


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"request": 1, "order": 0}, "expected fact 'arrival_ns', found none"),
        ({"request": 1, "order": 0, "arrival_ns": 0, "slack": 3}, "found 'slack'"),
        ({"request": -1, "order": 0, "arrival_ns": 0}, "fact 'request': expected an integer from 0"),
        ({"request": 1, "order": 0, "arrival_ns": 1.5}, "fact 'arrival_ns': expected an integer"),
        ({"request": 1, "order": 0, "arrival_ns": 0, "weight": 1 << 40}, "fact 'weight'"),
    ],
)
def test_facts_out_of_range_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        s.record(**given)
    assert message in str(caught.value)
