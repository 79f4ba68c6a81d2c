"""Fallback: down at once, up one mode at a time after a hold, static always one step away."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.control import fallback
from workbench.control.fallback import (
    ADMISSION_CREDIT,
    JOINT,
    LATE,
    MEMORY,
    MODE,
    NONE,
    ORDERED,
    QUALITY,
    REASONS,
    RECOVERED,
    SHADOW,
    STALLED,
    STATE,
    STATIC,
    THREW,
    THROUGHPUT,
    TURN,
    Limits,
    begin,
    step,
    trouble,
    usable,
)
from workbench.control.ranges import MAX_SERVICE_NS, MAX_TIME_NS
from workbench.errors import UsageError
from workbench.schema.enums import CONTROL_MODE
from workbench.twin import Edit, twin

FAST = twin("workbench.control.fallback")
LIMITS = Limits(deadline_ns=10, hold_ns=100, settle_ns=20, keep_permille=900)
P = LIMITS.vector()
TROUBLES = st.sampled_from([NONE, NONE, NONE, THREW, STALLED, LATE, MEMORY, QUALITY, THROUGHPUT])
STEPS = st.lists(
    st.tuples(st.sampled_from([0, 1, 19, 20, 50, 99, 100, 101, -30]), st.integers(0, 3), TROUBLES), min_size=40
)


def test_words_and_codes_agree():
    assert tuple(map(CONTROL_MODE.index, ("static", "shadow", "admission_credit", "joint"))) == (
        STATIC,
        SHADOW,
        ADMISSION_CREDIT,
        JOINT,
    )
    assert [getattr(fallback, word.upper()) for word in REASONS] == list(range(len(REASONS)))


def started(mode: int, rules=fallback) -> tuple[list[int], int]:
    """Memory after an untroubled climb to `mode`, and the time it ended."""
    s = [9] * STATE
    rules.begin(s, 0, 0)
    for now in range(100, 100 * mode + 1, 100):
        assert rules.step(P, 0, s, 0, now, mode, NONE)[1] == RECOVERED
    assert s[MODE] == mode
    return s, 100 * mode


def check_run(steps, rules=fallback) -> None:
    """What holds at every step of every history."""
    s = [9] * STATE
    rules.begin(s, 0, 0)
    now = quiet = 0
    for passed, goal, found in steps:
        before, turn = s[MODE], s[TURN]
        now += passed
        quiet = min(quiet, now)
        mode, reason = rules.step(P, 0, s, 0, now, goal, found)
        assert mode == s[MODE]
        assert STATIC <= mode <= JOINT
        assert mode <= max(goal, before)
        assert mode - before <= 1, "a mode was skipped on the way up"
        assert (s[TURN] > turn) == (mode != before), "an answer to the mode before would still count"
        if goal < before:
            assert (mode, reason) == (goal, ORDERED)
        elif found in (THREW, STALLED, LATE):
            assert (mode, reason) == (max(before - 1, STATIC), found), "not at once"
        elif mode < before:
            assert mode == before - 1
            assert reason == found >= MEMORY
        if mode > before:
            assert reason == RECOVERED
            assert found == NONE or before < ADMISSION_CREDIT
            assert now - quiet >= LIMITS.hold_ns, "back before the hold"
        if mode != before or reason not in (NONE, RECOVERED):
            quiet = now


@given(STEPS)
def test_every_history(steps):
    check_run(steps)


MUTANTS = {
    "no hold": ("now_ns - s[w + QUIET_SINCE_NS] >= p[at + HOLD_NS]", "now_ns >= 0"),
    "up to the goal at once": ("        mode += 1\n", "        mode = goal\n"),
    "falls only when settled": ("(found < MEMORY or not settling)", "not settling"),
    "trouble does not restart the hold": (
        "    if _counts(mode, found):\n        s[w + QUIET_SINCE_NS] = now_ns\n",
        "    if _counts(mode, found):\n",
    ),
    "the goal waits": (
        "    if goal < mode:\n        _enter(s, w, goal, now_ns)\n        return goal, ORDERED",
        "    if goal < mode:\n        _enter(s, w, mode - 1, now_ns)\n        return mode - 1, ORDERED",
    ),
    "the turn stays": ("s[w + TURN] += 1", "s[w + TURN] += 0"),
}


@pytest.mark.parametrize("change", MUTANTS.values(), ids=MUTANTS)
def test_the_properties_find_mutants(change):
    rules = twin("workbench.control.fallback", compiled=False, edits=[Edit("workbench.control.fallback", *change)])
    rng = np.random.default_rng(0)
    choices = ([0, 1, 19, 20, 50, 99, 100, 101], [3, 3, 3, 3, 1, 0], [NONE] * 6 + list(range(THREW, ORDERED)))

    def runs():
        for _ in range(50):
            check_run([tuple(int(rng.choice(options)) for options in choices) for _ in range(80)], rules)

    with pytest.raises(AssertionError):
        runs()


@pytest.mark.parametrize("mode", range(JOINT + 1))
@pytest.mark.parametrize("found", range(NONE, ORDERED))
def test_static_is_one_step_away(mode, found):
    """Whatever else is wrong, in the same nanosecond as the mode began."""
    s, now = started(mode)
    answer = step(P, 0, s, 0, now, STATIC, found)
    assert answer[0] == STATIC
    assert answer[1] == (ORDERED if mode > STATIC else answer[1])


@given(st.integers(1, JOINT), st.sampled_from([THREW, STALLED, LATE]))
def test_a_dead_controller_is_out_after_as_many_steps_as_it_has_modes(mode, found):
    s, now = started(mode)
    assert [step(P, 0, s, 0, now, JOINT, found)[0] for _ in range(mode)] == list(range(mode - 1, -1, -1))


def test_changes_of_mode_are_bounded_in_time():
    """However it flaps: at most one rise per hold, so at most ``2 * T / hold + 4`` changes in a time T."""
    s = [0] * STATE
    begin(s, 0, 0)
    for now in range(10_000):
        step(P, 0, s, 0, now, JOINT, THREW if s[MODE] == JOINT else NONE)
    assert 2 * 10_000 // 100 - 10 <= s[TURN] <= 2 * 10_000 // 100 + 4


def test_a_guard_costs_one_mode_per_window():
    s, now = started(JOINT)
    seen = [step(P, 0, s, 0, now + i, JOINT, QUALITY)[0] for i in range(45)]
    assert seen == [ADMISSION_CREDIT] * 20 + [SHADOW] * 25  # in shadow quality is the server's own


@pytest.mark.parametrize(
    ("mode", "found", "after"),
    [
        (STATIC, MEMORY, SHADOW),
        (STATIC, THROUGHPUT, SHADOW),
        (SHADOW, MEMORY, ADMISSION_CREDIT),
        (SHADOW, QUALITY, ADMISSION_CREDIT),
        (SHADOW, THROUGHPUT, STATIC),
        (ADMISSION_CREDIT, MEMORY, SHADOW),
        (JOINT, THROUGHPUT, ADMISSION_CREDIT),
    ],
)
def test_a_guard_counts_where_the_controller_can_be_the_cause(mode, found, after):
    """A server that exceeds its memory by itself must not keep out the controller that would bound it."""
    s, now = started(mode)
    assert step(P, 0, s, 0, now + LIMITS.hold_ns, JOINT, found)[0] == after


def test_a_late_answer_does_not_act():
    s, now = started(JOINT)
    turn = s[TURN]
    assert usable(s, 0, turn, JOINT) == 1
    step(P, 0, s, 0, now, JOINT, LATE)
    assert usable(s, 0, turn, ADMISSION_CREDIT) == 0
    assert usable(s, 0, s[TURN], JOINT) == 0
    assert usable(s, 0, s[TURN], ADMISSION_CREDIT) == 1


def test_a_clock_set_back_gives_nothing_back_early():
    s, now = started(SHADOW)
    assert step(P, 0, s, 0, now - 90, JOINT, NONE) == (SHADOW, NONE)
    assert step(P, 0, s, 0, now + 9, JOINT, NONE) == (SHADOW, NONE)
    assert step(P, 0, s, 0, now + 10, JOINT, NONE) == (ADMISSION_CREDIT, RECOVERED)


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ((0, -1, -1, -1, 0, -1, -1, -1), "none"),
        ((0, 9, 10, 5, 5, 1, 900, 1000), "none"),
        ((1, 99, 99, 9, 5, 0, 0, 1000), "threw"),
        ((0, 10, 99, 9, 5, 0, 0, 1000), "stalled"),
        ((0, 9, 11, 9, 5, 0, 0, 1000), "late"),
        ((0, 9, 10, 6, 5, 0, 0, 1000), "memory"),
        ((0, 9, 10, 5, 5, 0, 0, 1000), "quality"),
        ((0, 9, 10, 5, 5, -1, 899, 1000), "throughput"),
        ((0, 9, 10, 5, 5, -1, 0, 0), "none"),
        ((0, 9, 10, 5, 5, -1, 5, -1), "none"),
    ],
)
def test_trouble(asked, word):
    """What was not measured is no trouble; the controller's own faults are named first."""
    assert REASONS[trouble(P, 0, *asked)] == word


extreme = st.one_of(st.integers(-1, 20), st.sampled_from([1 << 50, MAX_TIME_NS]))
amounts = st.one_of(st.integers(-1, 2000), st.just(1 << 50))


@given(
    st.tuples(st.integers(0, 1), extreme, extreme, extreme, extreme, st.integers(-1, 1), amounts, amounts),
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 300), st.sampled_from([MAX_TIME_NS, MAX_SERVICE_NS])), st.integers(0, 3), TROUBLES
        ),
        min_size=40,
    ),
)
def test_python_is_the_compiled_form(asked, steps):
    q = np.array(P)
    assert FAST.trouble(q, 0, *asked) == trouble(P, 0, *asked)
    s, t = [9] * STATE, np.full(STATE, 9)
    begin(s, 0, 5)
    FAST.begin(t, 0, 5)
    for now, goal, found in steps:
        assert FAST.step(q, 0, t, 0, now, goal, found) == step(P, 0, s, 0, now, goal, found)
        assert t.tolist() == s
        assert FAST.usable(t, 0, 1, goal) == usable(s, 0, 1, goal)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"deadline_ns": 0}, "deadline_ns"),
        ({"hold_ns": 0}, "hold_ns"),
        ({"settle_ns": 30_000_000_000}, "below hold_ns"),
        ({"keep_permille": 1001}, "keep_permille"),
    ],
)
def test_bad_limits(change, says):
    with pytest.raises(UsageError, match=says):
        Limits(**change)
