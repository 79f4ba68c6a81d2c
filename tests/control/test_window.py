"""Credit windows: one contract for every row, the laws against closed forms, the response to a pause and slow-down."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.control import ranges, window
from workbench.control.window import Protocol, load
from workbench.errors import UsageError
from workbench.twin import Edit, twin

ROWS = load()
FAST = twin("workbench.control.window")
MS = 1_000_000
CHUNK = 1_000


@dataclass
class Stream:
    """One edge in virtual time: a sender that always has a next chunk, a delay each way, one consumer.

    Counts chunks where they are (on the way, waiting, taken) apart from the limits, so that conservation is a check.
    """

    row: Protocol
    sizes: list[int]
    service_ns: Any  # function of the time: how long the consumer works on a chunk that it takes then
    delay_ns: int = 10 * MS
    period_ns: int = 0
    pause: tuple[int, int] = (0, 0)
    rules: ModuleType = window
    log: list[tuple[int, int, int, int]] = field(default_factory=list)  # time, outstanding, chunks and bytes of window
    taken_at: list[int] = field(default_factory=list)

    def run(self) -> Stream:
        p, s = self.row.vector(CHUNK), [0] * window.STATE
        self.rules.begin(p, 0, s, 0)
        chunks, size = self.rules.window(p, 0, s, 0)
        granted = known = (chunks, size)
        events: list[tuple[int, int, str, Any]] = [(0, 0, "make", None)]
        number = on_way = taken = taken_bytes = sent = sent_bytes = 0
        busy_until, waiting, ready, stalled = 0, [], 0, 0

        def at(time: int, what: str, load: Any = None) -> None:
            nonlocal number
            number += 1
            heapq.heappush(events, (time, number, what, load))

        while events:
            now, _, what, load = heapq.heappop(events)
            if what == "make":
                ready += 1
                if ready < len(self.sizes):
                    at(now + self.period_ns, "make")
            elif what == "data":
                on_way -= 1
                waiting.append((now, load))
            elif what == "credit":
                assert load[0] >= known[0], "an absolute limit fell"
                assert load[1] >= known[1], "an absolute limit fell"
                known = load
            if waiting and now >= busy_until:
                if self.pause[0] <= now < self.pause[1]:
                    at(self.pause[1], "work")
                else:
                    since, size = waiting.pop(0)
                    taken, taken_bytes = taken + 1, taken_bytes + size
                    busy_until = now + self.service_ns(now)
                    at(busy_until, "work")
                    self.rules.observe(p, 0, s, 0, now, size, now - since, stalled)
                    stalled = 0
                    wide = self.rules.window(p, 0, s, 0)
                    assert wide[0] >= 1, "no room for one largest chunk"
                    assert wide[1] >= CHUNK, "no room for one largest chunk"
                    granted = (
                        self.rules.raised(granted[0], taken, wide[0]),
                        self.rules.raised(granted[1], taken_bytes, wide[1]),
                    )
                    at(now + self.delay_ns, "credit", granted)
                    self.taken_at.append(now)
                    self.log.append((now, sent - taken, *wide))
            while sent < ready:
                size = self.sizes[sent]
                if sent + 1 > known[0] or sent_bytes + size > known[1]:
                    stalled = 1
                    break
                sent, sent_bytes, on_way = sent + 1, sent_bytes + size, on_way + 1
                at(now + self.delay_ns, "data", size)
            free = known[0] - sent
            assert free >= 0, "sent beyond the limit"
            assert known[1] >= sent_bytes, "sent beyond the limit"
            assert known[0] == taken + len(waiting) + on_way + free, "granted = consumed + in flight + free"
        assert taken == len(self.sizes), f"stood still after {taken} of {len(self.sizes)} chunks"
        return self

    def high(self, since: int = 0) -> int:
        return max(outstanding for time, outstanding, *_ in self.log if time >= since)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@given(
    st.lists(st.integers(1, CHUNK), min_size=1, max_size=60),
    st.sampled_from([0, 1, 7 * MS, 300 * MS]),
    st.integers(0, 200),
    st.tuples(st.integers(0, 2_000), st.integers(0, 3_000)),
)
def test_contract(row, sizes, delay_ns, service_ms, pause):
    """Demand bound, monotone limits, room for one chunk, conservation and an end, for every protocol."""
    start, length = pause
    stream = Stream(row, sizes, lambda now: service_ms * MS, delay_ns, pause=(start * MS, (start + length) * MS)).run()
    assert stream.high() <= row.window_chunks


MUTANTS = {
    "limit falls": Edit("workbench.control.window", "return max(limit, taken + width)", "return taken + width"),
    "no floor in bytes": Edit("workbench.control.window", "max(window_bytes, p[at + CHUNK_BYTES])", "window_bytes"),
    "no floor in chunks": Edit("workbench.control.window", "return max(chunks, 1), ", "return chunks - 1, "),
    "window grows past its end": Edit(
        "workbench.control.window",
        "chunks = min(chunks, s[w + NOW_CHUNKS])",
        "chunks = s[w + NOW_CHUNKS] + 64",
    ),
}


@pytest.mark.parametrize("edit", MUTANTS.values(), ids=MUTANTS)
def test_the_contract_finds_mutants(edit):
    rules = twin("workbench.control.window", compiled=False, edits=[edit])
    small = Protocol("small", "t", "s", "fixed", False, 0, window_chunks=1, window_bytes=1)

    def contract():
        for row in (small, *ROWS.values()):
            slow = Stream(row, [CHUNK] * 200, lambda now: (1 if now < 200 * MS else 200) * MS, rules=rules).run()
            assert slow.high() <= row.window_chunks

    with pytest.raises(AssertionError):
        contract()


def test_fixed_window_on_a_round_trip():
    """Throughput of a window W over a round trip T is ``min(mu, W / T)``."""
    for chunks, expected in ((1, 50.0), (2, 100.0), (4, 200.0), (8, 200.0)):
        row = Protocol("w", "t", "s", "fixed", False, 0, window_chunks=chunks)
        taken = Stream(row, [CHUNK] * 400, lambda now: 5 * MS, delay_ns=10 * MS).run().taken_at
        assert (len(taken) - 1) / (taken[-1] - taken[0]) * 1e9 == pytest.approx(expected, rel=0.02)


def test_flink_example():
    """16 buffers, 3333 B/s, target 1200 ms: 250 bytes per buffer (BufferDebloaterTest)."""
    row = Protocol("flink", "t", "s", "predict", False, 0, target_ns=1200 * MS, horizon_ns=1, weight_permille=95)
    p, s = row.vector(1), [0] * window.STATE
    window.begin(p, 0, s, 0)
    for second in range(1, 4):
        window.observe(p, 0, s, 0, second * 1_000_000_000, 3333, 1, 0)
    assert s[window.RATE] == 3333
    assert window.window(p, 0, s, 0)[1] // 16 == 250
    assert window.served(3333, 1200 * MS) == 4000


@given(st.integers(0, ranges.MAX_BYTES_PER_S), st.integers(0, 2 * ranges.MAX_SERVICE_NS))
def test_served_is_exact_at_a_microsecond(rate, time_ns):
    micros = -(-time_ns // 1000)
    assert window.served(rate, time_ns) == -(-rate * micros // 1_000_000)


def test_aimd_adds_one_chunk_per_window():
    """From W0 = 2 the window is W after W0 + ... + (W - 1) takeovers at which the sender was held by its credit."""
    p, s = ROWS["aimd"].vector(CHUNK), [0] * window.STATE
    window.begin(p, 0, s, 0)
    for wanted in range(2, 40):
        assert window.window(p, 0, s, 0)[0] == wanted
        for _ in range(wanted):
            window.observe(p, 0, s, 0, 0, CHUNK, 0, 0)
            window.observe(p, 0, s, 0, 0, CHUNK, 0, 1)


def test_aimd_halves_once_per_window():
    p, s = ROWS["aimd"].vector(CHUNK), [0] * window.STATE
    s[window.NOW_CHUNKS] = 64
    sizes = []
    for _ in range(64 + 32 + 16 + 8 + 4 + 2 + 1 + 9):
        window.observe(p, 0, s, 0, 0, CHUNK, ROWS["aimd"].target_ns + 1, 1)
        sizes.append(window.window(p, 0, s, 0)[0])
    changes = [i for i, (a, b) in enumerate(zip([64, *sizes], sizes, strict=False)) if a != b]
    assert [sizes[i] for i in changes] == [32, 16, 8, 4, 2, 1]
    assert changes == [0, 65, 98, 115, 124, 129]  # each a whole window after the one before, plus one


def test_predict_follows_the_moving_average():
    """Against floats: the estimate is the moving average of (bytes of the moment before) / (time since)."""
    row = ROWS["model-predictive"]
    p, s = row.vector(CHUNK), [0] * window.STATE
    weight, rate, now = row.weight_permille / 1000, 0.0, 0
    window.observe(p, 0, s, 0, now := now + MS, CHUNK, 1, 0)
    for i in range(300):
        step = (5 + 20 * (i > 100) + i % 7) * MS
        window.observe(p, 0, s, 0, now := now + step, CHUNK, 1, 0)
        sample = CHUNK / step * 1e9
        rate = sample if i == 0 else rate + weight * (sample - rate)
        assert s[window.RATE] == pytest.approx(rate, rel=1e-3)


def test_an_idle_consumer_is_not_a_slow_one():
    """A gap without a waiting chunk says nothing against the rate; a faster sample still counts."""
    p, s = ROWS["model-predictive"].vector(CHUNK), [0] * window.STATE
    for now in (10, 20, 30):
        window.observe(p, 0, s, 0, now * MS, CHUNK, 1, 0)
    assert s[window.RATE] == 100_000
    window.observe(p, 0, s, 0, 5_000 * MS, CHUNK, 0, 0)
    assert s[window.RATE] == 100_000
    window.observe(p, 0, s, 0, 5_005 * MS, CHUNK, 0, 0)
    assert s[window.RATE] == 109_500
    window.observe(p, 0, s, 0, 4_000 * MS, CHUNK, 1, 0)  # the clock was set back
    assert s[window.RATE] == 109_500
    for _ in range(3):
        window.observe(p, 0, s, 0, 4_000 * MS, CHUNK, 1, 0)
    window.observe(p, 0, s, 0, 4_040 * MS, CHUNK, 1, 0)  # four chunks of one moment in 40 ms
    assert s[window.RATE] == 108_598


def steps(row: str, before_ms: int, after_ms: int, **more: Any) -> Stream:
    """A consumer that changes its pace at 4 s, sender always ready."""
    pace = lambda now: (before_ms if now < 4_000 * MS else after_ms) * MS  # noqa: E731
    return Stream(ROWS[row], [CHUNK] * 900, pace, **more).run()


def test_predict_settles_after_a_consumer_gets_four_times_slower():
    """The window goes to ``rate * (target + horizon)`` as fast as its average forgets, without undershoot."""
    stream = steps("model-predictive", 10, 40, delay_ns=5 * MS)
    row = ROWS["model-predictive"]
    span = (row.target_ns + row.horizon_ns) / 1e9
    high, low = 100_000 * span, 25_000 * span
    after = [wide for time, _, _, wide in stream.log if time > 4_040 * MS]
    before = next(wide for time, _, _, wide in reversed(stream.log) if time < 4_000 * MS)
    assert before == pytest.approx(high, rel=0.01)
    assert min(after) >= 0.99 * low
    settled = next(i for i, wide in enumerate(after) if wide <= 1.05 * low)
    forgets = math.log(0.05 / 3) / math.log(1 - row.weight_permille / 1000)  # 41 takeovers
    assert settled == pytest.approx(forgets, abs=3)
    # What was granted before the step is the overshoot: four times the new window, and no more.
    assert stream.high(4_000 * MS) * CHUNK <= high + CHUNK
    assert stream.log[-1][1] == 0


def test_aimd_settles_after_a_consumer_gets_four_times_slower():
    """From 12 chunks (10 ms each, target 100 ms) to 3: a sawtooth around the target, the consumer always busy."""
    stream = steps("aimd", 10, 40, delay_ns=5 * MS)
    before = [chunks for time, _, chunks, _ in stream.log if 3_000 * MS < time < 4_000 * MS]
    assert 5 <= min(before) <= max(before) <= 13
    after = [chunks for time, _, chunks, _ in stream.log if time > 5_000 * MS]
    assert 1 <= min(after) <= max(after) <= 4
    gaps = np.diff([time for time in stream.taken_at if time > 5_000 * MS])
    assert np.mean(gaps) <= 1.05 * 40 * MS
    settled = next(time for time, outstanding, *_ in stream.log if time > 4_000 * MS and outstanding <= 5)
    assert settled <= 4_700 * MS


@pytest.mark.parametrize("name", ROWS)
def test_pause_of_two_seconds(name):
    """A window stops the sender, the unbounded row does not; afterwards the consumer works without a gap."""
    row = ROWS[name]
    stream = Stream(
        row, [CHUNK] * 600, lambda now: 10 * MS, 5 * MS, period_ns=8 * MS, pause=(3_000 * MS, 5_000 * MS)
    ).run()
    piled = stream.high(5_000 * MS) + 1
    if name == "unbounded":
        assert piled > 2_000 // 8
    else:
        bytes_then = max(wide for time, _, _, wide in stream.log if time <= 5_000 * MS)
        chunks_then = max(chunks for time, _, chunks, _ in stream.log if time <= 5_000 * MS)
        assert piled <= min(chunks_then, bytes_then // CHUNK + 1)
        assert piled <= 120
    resumed = [time for time in stream.taken_at if time >= 5_000 * MS]
    gaps = np.diff(resumed[:100])
    assert gaps.max() <= 10 * MS
    if name == "model-predictive":
        wide = [wide for time, _, _, wide in stream.log if time >= 5_000 * MS]
        steady = 1_050 * MS * 100_000 // 1_000_000_000
        assert 0.88 * steady <= min(wide) <= 0.92 * steady  # one sample of weight 9.5 %
        assert wide[8] >= 0.95 * steady


numbers = st.one_of(st.integers(0, 3), st.integers(0, 1 << 20), st.sampled_from([1 << 34, 1 << 40, 1 << 61]))


@given(
    st.sampled_from(["aimd", "model-predictive", "closed-loop"]),
    st.integers(1, ranges.MAX_CHUNK_BYTES),
    st.lists(
        st.tuples(
            st.integers(-(1 << 20), 1 << 61),
            st.one_of(st.integers(0, 1 << 12), st.just(ranges.MAX_CHUNK_BYTES)),
            st.one_of(st.integers(0, 1 << 30), st.just(1 << 61)),
            st.integers(0, 1),
        ),
        min_size=20,
        max_size=60,
    ),
    st.booleans(),
    numbers,
)
def test_python_is_the_compiled_form(name, chunk_bytes, takeovers, sort, taken):
    p, s = ROWS[name].vector(chunk_bytes), [7] * window.STATE
    q, t = np.array(p), np.array(s)
    window.begin(p, 0, s, 0)
    FAST.begin(q, 0, t, 0)
    limit = 0
    for takeover in sorted(takeovers) if sort else takeovers:
        window.observe(p, 0, s, 0, *takeover)
        FAST.observe(q, 0, t, 0, *takeover)
        assert t.tolist() == s
        wide = window.window(p, 0, s, 0)
        assert FAST.window(q, 0, t, 0) == wide
        assert 1 <= wide[0] <= ranges.UNBOUNDED
        assert chunk_bytes <= wide[1] <= ranges.UNBOUNDED
        assert FAST.raised(limit, taken, wide[1]) == window.raised(limit, taken, wide[1]) >= limit
        limit = window.raised(limit, taken, wide[1])
    rate, span = min(taken, ranges.MAX_BYTES_PER_S), 2 * ranges.MAX_SERVICE_NS
    assert FAST.served(rate, span) == window.served(rate, span)


def test_fixed_rows_keep_no_memory():
    """A state space that holds such a window grows by nothing."""
    for row in ROWS.values():
        if row.law == "fixed":
            p, s = row.vector(CHUNK), [0] * window.STATE
            window.observe(p, 0, s, 0, 5, 5, 5, 1)
            assert s == [0] * window.STATE


@pytest.mark.parametrize("chunk_bytes", [0, -1, ranges.MAX_CHUNK_BYTES + 1, True, 1.0])
def test_chunk_size_is_refused(chunk_bytes):
    with pytest.raises(UsageError, match="chunk_bytes"):
        ROWS["fixed-items"].vector(chunk_bytes)


GOOD = """
[mine]
text = "t"
source = "s"
law = "fixed"
window_chunks = 3
shared_bounds = true
floor_chunks = 1
"""


def test_a_user_adds_a_row(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(GOOD)
    rows = load(path)
    assert list(rows) == [*ROWS, "mine"]
    assert window.window(rows["mine"].vector(10), 0, [0] * window.STATE, 0) == (3, ranges.UNBOUNDED)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("window_chunks = 3", "window_chunks = 0", "window_chunks: expected an integer from 1"),
        ("window_chunks = 3", "window_chunks = -2", "found -2"),
        ("window_chunks = 3", "window_chunks = true", "found True"),
        ("window_chunks = 3", "window_bytes = 0", "window_bytes: expected an integer from 1"),
        ("window_chunks = 3", "windows = 3", "found 'windows'"),
        ("window_chunks = 3", "target_ns = 5", "none of its keys for law 'fixed'"),
        ('law = "fixed"', 'law = "aimd"', "for law 'aimd'"),
        ('law = "fixed"', 'law = "vegas"', "found 'vegas'"),
        ('text = "t"', 'text = " "', "expected a text"),
        ('text = "t"', "", "key 'text'"),
        ("floor_chunks = 1", "floor_chunks = 0", "a floor of at least 1 chunk"),
        ("shared_bounds = true", "shared_bounds = 1", "true or false"),
        ("[mine]", "[Mine]", "kebab-case"),
        ("[mine]", "[closed-loop]", "ships with the workbench"),
        ("[mine]", "[mine", "TOML"),
        ("[mine]", "", "a table"),
    ],
)
def test_bad_rows_get_one_clear_error(tmp_path, old, new, says):
    path = tmp_path / "own.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(UsageError, match=says.replace("(", r"\(")) as caught:
        load(path)
    assert "own.toml" in str(caught.value) or "protocol 'mine'" in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(UsageError, match="a file of rows"):
        load(tmp_path / "none.toml")
