"""Admission: every combination of questions, turns that protect large requests, and CoDel against its own text."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.control import admission
from workbench.control.admission import (
    ADMIT,
    DEADLINE,
    FITS,
    MODE,
    OVERLOAD,
    QUEUE_FULL,
    REASONS,
    REJECT,
    SLOTS_TAKEN,
    SOJOURN_STATE,
    SOJOURNS,
    TURN,
    VERDICTS,
    WAIT,
    Sojourn,
    decide,
    in_mode,
    in_turn,
    paced,
    short,
    sojourn,
)
from workbench.control.ranges import MAX_SERVICE_NS, MAX_TIME_NS
from workbench.errors import UsageError
from workbench.schema.enums import CONTROL_MODE
from workbench.twin import twin

FAST = twin("workbench.control.admission")
BOUNDS = st.integers(FITS, SLOTS_TAKEN)
TIMES = st.one_of(st.integers(-1, 3), st.just(MAX_TIME_NS), st.integers(0, MAX_TIME_NS))
COUNTS = st.integers(0, 4)


def said(answer):
    return VERDICTS[answer[0]], REASONS[answer[1]]


def test_words_and_codes_agree():
    """One word per code, and the five bounds first, in the order in which `short` asks."""
    assert len(VERDICTS) == 3
    assert len(set(REASONS)) == len(REASONS) == MODE + 1
    for word, code in zip(REASONS, range(MODE + 1), strict=True):
        assert getattr(admission, word.upper()) == code


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ((FITS, FITS, 0, 0, 0, -1, -1), ("admit", "fits")),
        ((2, 2, 0, 0, 9, -1, -1), ("reject", "edge_bytes")),
        ((2, FITS, 0, 0, 9, -1, -1), ("wait", "edge_bytes")),
        ((2, FITS, 0, 9, 9, -1, -1), ("reject", "queue_full")),
        ((2, FITS, 0, 0, 0, -1, -1), ("reject", "queue_full")),
        ((FITS, FITS, 0, 9, 9, -1, -1), ("admit", "fits")),
        ((FITS, FITS, 0, 0, 9, 5, 6), ("reject", "deadline")),
        ((FITS, FITS, 0, 0, 9, 5, 5), ("admit", "fits")),
        ((FITS, FITS, 0, 0, 9, 0, -1), ("reject", "deadline")),
        ((FITS, FITS, 0, 0, 9, 5, -1), ("admit", "fits")),
        ((FITS, FITS, 0, 0, 9, -1, 5), ("admit", "fits")),
        ((1, 3, 0, 9, 9, 0, 9), ("reject", "tenant_bytes")),
        ((4, 4, 1, 9, 9, 0, 9), ("wait", "total_bytes")),
        ((FITS, 4, 1, 9, 9, 0, 9), ("admit", "fits")),
    ],
)
def test_decide(asked, answer):
    assert said(decide(*asked)) == answer


@given(BOUNDS, BOUNDS, st.integers(0, 1), COUNTS, COUNTS, TIMES, TIMES)
def test_decide_properties(fits_now, fits_ever, accepted, waiting, limit, slack_ns, path_ns):
    verdict, reason = decide(fits_now, fits_ever, accepted, waiting, limit, slack_ns, path_ns)
    assert (verdict == ADMIT) == (reason == FITS)
    if verdict == ADMIT:
        assert fits_now == FITS
    if verdict == WAIT:
        assert reason == fits_now != FITS
        assert accepted or waiting < limit
    if verdict == REJECT:
        assert not accepted
        assert reason in (fits_ever, QUEUE_FULL, DEADLINE)
    if accepted:
        assert (verdict == ADMIT) == (fits_now == FITS)
    # More room, a shorter queue or a later deadline never makes the answer worse (admit < wait < reject).
    assert decide(FITS, fits_ever, accepted, waiting, limit, slack_ns, path_ns)[0] <= verdict
    assert decide(fits_now, fits_ever, accepted, 0, limit, slack_ns, path_ns)[0] <= verdict
    assert decide(fits_now, fits_ever, accepted, waiting, limit, -1, path_ns)[0] <= verdict
    assert FAST.decide(fits_now, fits_ever, accepted, waiting, limit, slack_ns, path_ns) == (verdict, reason)


@given(*[st.one_of(st.integers(0, 3), st.just(1 << 60)) for _ in range(7)])
def test_short_names_the_first_bound(floor, most, edge_floor, edge_free, tenant_free, total_free, slots_free):
    fails = [floor > most, edge_floor > edge_free, floor > tenant_free, floor > total_free, slots_free == 0]
    wanted = fails.index(True) + 1 if any(fails) else FITS
    asked = (floor, most, edge_floor, edge_free, tenant_free, total_free, slots_free)
    assert short(*asked) == FAST.short(*asked) == wanted


@given(st.integers(0, 2), st.integers(0, MODE), st.integers(-1, 5), st.integers(0, 5), st.integers(0, 3))
def test_in_turn_and_in_mode(verdict, reason, ahead_ns, patience_ns, mode):
    turn = in_turn(verdict, reason, ahead_ns, patience_ns)
    blocked = verdict == ADMIT and ahead_ns >= patience_ns
    assert turn == ((WAIT, TURN) if blocked else (verdict, reason))
    assert FAST.in_turn(verdict, reason, ahead_ns, patience_ns) == turn
    for slot_free in (0, 1):
        answer = in_mode(mode, slot_free, verdict, reason)
        assert FAST.in_mode(mode, slot_free, verdict, reason) == answer
        if CONTROL_MODE[mode] in ("admission_credit", "joint"):
            assert answer == (verdict, reason)
        elif slot_free:
            assert answer[0] == ADMIT
            assert (answer[1] == MODE) == (verdict != ADMIT)
        else:
            assert answer == (verdict, reason)


def admitted_after(patience_ns: int) -> int | None:
    """When a request of 8 units gets in beside an endless stream of requests of 2, capacity 10; None within 10,000."""
    inside = [(end, 2) for end in range(1, 6)]
    for now in range(10_000):
        inside = [(end, size) for end, size in inside if end > now]
        free = 10 - sum(size for _, size in inside)
        if free >= 8:
            return now
        answer = decide(FITS if free >= 2 else 4, FITS, 0, 1, 64, -1, -1)
        if in_turn(*answer, ahead_wait_ns=now, patience_ns=patience_ns)[0] == ADMIT:
            inside.append((now + 8, 2))
    return None


def test_a_large_request_gets_in_after_its_patience():
    """Bound: patience plus the longest residence of what is inside; without a turn it starves."""
    assert admitted_after(MAX_TIME_NS) is None
    for patience_ns in (10, 100, 1_000):
        assert patience_ns <= admitted_after(patience_ns) <= patience_ns + 8


def law(interval_ns: int, count: int) -> int:
    return (interval_ns << 20) // math.isqrt(count << 40)


class Codel:
    """RFC 8289, section 5, in its own words, for one newcomer per dequeue."""

    def __init__(self, target, interval):
        self.target, self.interval = target, interval
        self.first_above_time = self.drop_next = 0
        self.count = self.lastcount = 0
        self.dropping = False

    def dequeue(self, now, sojourn_time, waiting):
        ok_to_drop = False
        if sojourn_time < self.target or waiting == 0:
            self.first_above_time = 0
        elif self.first_above_time == 0:
            self.first_above_time = now + self.interval
        elif now >= self.first_above_time:
            ok_to_drop = True
        if self.dropping:
            if not ok_to_drop:
                self.dropping = False
            elif now >= self.drop_next:
                self.count += 1
                self.drop_next += law(self.interval, self.count)
                return True
        elif ok_to_drop:
            self.dropping = True
            delta = self.count - self.lastcount
            self.count = 1
            if delta > 1 and now - self.drop_next < 16 * self.interval:
                self.count = delta
            self.drop_next = now + law(self.interval, self.count)
            self.lastcount = self.count
            return True
        return False


@given(st.integers(0, 2**32), st.integers(5, 60))
def test_sojourn_is_codel(seed, standing):
    """Two standing queues of 5 s or more, a calm between them: it refuses when the RFC's pseudo-code does."""
    rng = np.random.default_rng(seed)
    row = SOJOURNS["codel"]
    state, reference, now, both = [0] * SOJOURN_STATE, Codel(row.target_ns, row.interval_ns), 1, [0, 0]
    for phase in (standing, 3, standing, 0):
        for _ in range(phase * 20):
            now += int(rng.integers(1, 100_000_000))
            wait = int(rng.integers(0, 1 << 20)) if phase <= 3 else row.target_ns + int(rng.integers(0, 1 << 30))
            verdict, reason = sojourn(state, 0, now, wait, 5, row.target_ns, row.interval_ns)
            refused = reference.dequeue(now, wait, 5)
            assert (verdict, reason) == ((REJECT, OVERLOAD) if refused else (ADMIT, FITS))
            both[0] += refused
            both[1] += 1
    assert 2 <= both[0] < both[1] / 2


def test_a_burst_passes_and_nobody_waiting_ends_it():
    row, state = SOJOURNS["codel"], [0] * SOJOURN_STATE
    ask = lambda now, wait, waiting: sojourn(state, 0, now, wait, waiting, row.target_ns, row.interval_ns)  # noqa: E731
    step = row.interval_ns // 10
    assert [ask(1 + i * step, row.target_ns, 3)[0] for i in range(10)] == [ADMIT] * 10
    assert ask(1 + 10 * step, row.target_ns, 3) == (REJECT, OVERLOAD)
    assert ask(2 + 10 * step, row.target_ns, 3)[0] == ADMIT  # not before interval / sqrt(1)
    assert ask(1 + 20 * step, row.target_ns, 3)[0] == REJECT
    assert ask(1 + 40 * step, row.target_ns, 0)[0] == ADMIT
    assert ask(1 + 41 * step, row.target_ns, 3)[0] == ADMIT
    none = SOJOURNS["none"]
    assert all(sojourn(state, 0, i << 40, 1 << 61, 9, none.target_ns, none.interval_ns)[0] == ADMIT for i in range(9))


@given(st.integers(1, MAX_SERVICE_NS), st.one_of(st.integers(1, 1 << 20), st.integers(1 << 20, 1 << 61)))
def test_paced(interval_ns, count):
    wanted = law(interval_ns, min(count, 1 << 20))
    assert paced(interval_ns, count) == FAST.paced(interval_ns, count) == wanted
    if count <= 1 << 20:
        assert wanted == pytest.approx(interval_ns / math.sqrt(count), rel=2e-6, abs=1)


@given(
    st.lists(
        st.tuples(
            st.one_of(st.integers(0, 1 << 30), st.just(1 << 55)),
            st.one_of(st.integers(0, 1 << 30), st.just(MAX_TIME_NS)),
            st.integers(0, 2),
        ),
        min_size=30,
        max_size=60,
    ),
    st.sampled_from([(0, 0), (1, 1), (5_000_000, 100_000_000), (MAX_SERVICE_NS, MAX_SERVICE_NS)]),
)
def test_sojourn_python_is_the_compiled_form(asked, row):
    state, now = [0] * SOJOURN_STATE, 0
    fast = np.array(state)
    for step, wait_ns, waiting in asked:
        now += step
        answer = sojourn(state, 0, now, wait_ns, waiting, *row)
        assert FAST.sojourn(fast, 0, now, wait_ns, waiting, *row) == answer
        assert fast.tolist() == state


@pytest.mark.parametrize(("target_ns", "interval_ns"), [(0, 5), (6, 5), (-1, 0), (1, -1), (1, MAX_SERVICE_NS + 1)])
def test_bad_sojourn_rows(target_ns, interval_ns):
    with pytest.raises(UsageError, match="sojourn"):
        Sojourn(target_ns, interval_ns)
