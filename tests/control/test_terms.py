"""Terms: ratios without units, neutral where nothing is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.candidates import built, facts, floats, ints, terms_twin
from workbench.control import signals as s
from workbench.control import terms as t
from workbench.control.ranges import MAX_TIME_NS

SCALES = st.sampled_from([1, 10**9, MAX_TIME_NS]) | st.integers(1, MAX_TIME_NS)


def of(signals: list[int], name: str, scale: int = 1_000) -> float:
    return t.term(signals, 0, [entry.name for entry in t.TERM_TABLE].index(name), scale)


def test_the_table_names_the_terms_in_order() -> None:
    assert [getattr(t, f"T_{entry.name.upper()}") for entry in t.TERM_TABLE] == list(range(t.TERMS))


@given(facts(), st.integers(0, 4), st.integers(0, MAX_TIME_NS), SCALES)
def test_both_executions_agree_and_stay_finite(task: list[int], information: int, now: int, scale: int) -> None:
    signals = built([task], s.INFORMATION[information], now)
    plain, fast = [0.0] * t.TERMS, floats([0.0] * t.TERMS)
    t.normalize(signals, 0, scale, plain, 0)
    terms_twin.normalize(ints(signals), 0, scale, fast, 0)
    assert fast.tolist() == plain
    assert all(abs(value) < t.FAR / 1e3 for value in plain), "not-a-number and infinity fail this as well"


def test_large_integers_are_rounded_before_they_are_divided_in_both_executions() -> None:
    """Plain Python rounds the quotient of two integers once; compiled code rounds both integers, then the quotient."""
    part, whole = 2112024940759048612, 1093093037969146109
    assert t.ratio(part, whole, 0.0) == terms_twin.ratio(part, whole, 0.0) == float(part) / float(whole) != part / whole


def test_every_unknown_term_has_the_neutral_value_of_the_table() -> None:
    signals = built([s.record(request=0, order=0, arrival_ns=0)], "clairvoyant", 5)
    for entry in t.TERM_TABLE:
        neutral = (1 << 61) / 1_000 if entry.unknown == "2^61 / scale" else float(entry.unknown)
        assert of(signals, entry.name) == neutral, entry.name


@given(facts(), st.integers(0, MAX_TIME_NS))
def test_a_term_that_needs_more_than_the_class_is_neutral(task: list[int], now: int) -> None:
    """What the table says a term needs is what it reads: blind signals leave it where it does not depend on facts."""
    signals = built([task], "blind", now)
    for entry in t.TERM_TABLE:
        if entry.information > s.BLIND and entry.name not in ("pressure", "weighted_path"):
            neutral = (1 << 61) / 1_000 if entry.unknown == "2^61 / scale" else float(entry.unknown)
            assert of(signals, entry.name) == neutral, entry.name


def worked() -> list[int]:
    task = s.record(
        request=1,
        order=0,
        arrival_ns=0,
        ready_ns=1_500,
        deadline_ns=8_000,
        attained_ns=600,
        weight=2_000,
        first=1,
        own_chunks=7,
        down_chunks=3,
        credit_used=300,
        credit_limit=400,
        class_path_ns=4_000,
        path_ns=3_000,
        work_ns=5_000,
        sibling_ns=2_500,
        service_ns=250,
        fan_out=9,
        down_work_ns=700,
    )
    return built([task], "class-statistics", 2_000)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("wait", 0.5),
        ("path", 3.0),
        ("class_path", 0.75),
        ("weighted_path", 1.5),
        ("work", 5.0),
        ("sibling", 2.5),
        ("slack", 3.0),
        ("time_left", 6.0),
        ("urgency", 1 - 3_000 / 8_000),
        ("credit", 0.75),
        ("own_chunks", 7.0),
        ("down_chunks", 3.0),
        ("down_work", 0.7),
        ("pressure", 16.0),
        ("fan_out", 9.0),
        ("attained", 0.6),
        ("class_attained", 0.15),
        ("tenant", 2.0),
        ("first", 1.0),
        ("raw_path", 3e-6),
        ("raw_urgency", 1e9 / 3_000),
        ("raw_attained", 6e-7),
    ],
)
def test_each_formula_on_a_worked_task(name: str, expected: float) -> None:
    assert of(worked(), name) == pytest.approx(expected, rel=1e-15)


def test_every_term_is_worked() -> None:
    marks = test_each_formula_on_a_worked_task.pytestmark  # type: ignore[attr-defined]
    assert [name for name, _ in marks[0].args[1]] == [entry.name for entry in t.TERM_TABLE]


@pytest.mark.parametrize(("slack", "expected"), [(0, 1e9), (1, 1e9), (-1, -1e9), (10**9, 1.0), (-(10**9), -1.0)])
def test_the_singular_urgency_is_safe_and_still_changes_sign(slack: int, expected: float) -> None:
    task = s.record(request=0, order=0, arrival_ns=0, path_ns=0, deadline_ns=10**10)
    assert of(built([task], "class-statistics", 10**10 - slack), "raw_urgency") == expected


@pytest.mark.parametrize(("used", "limit", "expected"), [(0, 0, 1.0), (5, 0, 1.0), (9, 3, 1.0), (0, 3, 0.0)])
def test_credit_stays_in_range(used: int, limit: int, expected: float) -> None:
    task = s.record(request=0, order=0, arrival_ns=0, credit_used=used, credit_limit=limit)
    assert of(built([task], "blind", 0), "credit") == expected
    assert (
        of(
            built([s.record(request=0, order=0, arrival_ns=0, credit_used=5, credit_limit=1 << 61)], "blind", 0),
            "credit",
        )
        < 1e-15
    )
