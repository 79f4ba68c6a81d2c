"""One stream under credit: its two ends against a model, and the rules of Reactive Streams that concern them.

Of the Reactive Streams rules, 1.1 (demand bounds what is sent), 1.3 (signals in series), 1.7 (nothing after the end),
2.8 (late items are tolerated), 3.5 (stopping twice is stopping), 3.9 (demand below one is refused), 3.13 (a cancelled
stream keeps nothing) and 3.17 (demand without bound) are tests here. 3.3 (bounded recursion) says nothing of a machine
that calls nobody back; what is thread-safe is the driver's to show.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.machines import Machine
from workbench.control import credit, effects, ledger, lifecycle, machine
from workbench.control.layout import (
    ADVERTISED,
    ADVERTISED_BYTES,
    FINAL_RECEIVED,
    LIMIT,
    RECEIVED,
    RECEIVER_SIZE,
    SENDER_SIZE,
    SENT,
    SENT_BYTES,
    SLOT_AT,
    TAKEN,
    TAKEN_BYTES,
    TAKEN_KNOWN,
    TAKEN_KNOWN_BYTES,
    USED,
    EdgePlan,
    Plan,
    receiver,
    sender,
)
from workbench.control.phases import OK
from workbench.control.ranges import MAX_CHUNK_BYTES, MAX_CHUNKS, UNBOUNDED
from workbench.errors import UsageError
from workbench.verify.scenario import chain


def stream(window: int = 2, chunk_bytes: int = 3, window_bytes: int = UNBOUNDED) -> tuple[Machine, int, int]:
    """A machine of one stage, and the addresses of the two ends of its stream to the client."""
    box = Machine(Plan(chain(1), 1, edges={"s0>client": EdgePlan(chunk_bytes, 1, window, window_bytes)}))
    box(credit.open_sender, 0, 0)
    box(credit.open_receiver, 0, 0)
    return box, sender(box.g, 0, 0), receiver(box.g, 0, 0)


class Channel:
    """One stream over wires that lose, repeat and reorder: sizes are those that the sender chose."""

    def __init__(self, window: int, chunk_bytes: int) -> None:
        self.box, self.near, self.far = stream(window, chunk_bytes)
        self.window, self.chunk = window, chunk_bytes
        self.made: list[int] = []
        self.arrived: list[int] = []
        self.data: list[tuple[int, int]] = []
        self.news: list[tuple[int, int, int, int]] = []

    def send(self, size: int) -> None:
        if not self.box(credit.may_send, 0, 0):
            return
        m = self.box.m
        self.data.append((m[self.near + SENT], size))
        self.made.append(size)
        m[self.near + SENT] += 1
        m[self.near + SENT_BYTES] += size

    def resend(self) -> None:
        m = self.box.m
        self.data += [(seq, self.made[seq]) for seq in range(m[self.near + TAKEN_KNOWN], m[self.near + SENT])]

    def deliver(self, i: int) -> None:
        seq, size = self.data.pop(i)
        if credit.accept(self.box.m, self.far, seq, 0):
            self.arrived.append(size)

    def advertise(self) -> None:
        self.box(credit.advertise, 0, 0, 0)
        (said,) = self.box.effects
        assert said.kind == effects.SEND_CREDIT
        self.news.append((said.a, said.b, said.c, said.d))

    def take(self) -> None:
        m = self.box.m
        if m[self.far + TAKEN] < m[self.far + RECEIVED]:
            credit.take(m, self.far, self.arrived[m[self.far + TAKEN]])
            self.advertise()

    def learn(self, i: int) -> None:
        credit.learn(self.box.m, self.near, *self.news.pop(i))

    def check(self) -> None:
        m, near, far = self.box.m, self.near, self.far
        assert m[near + TAKEN_KNOWN] <= m[far + TAKEN] <= m[far + RECEIVED] <= m[near + SENT]
        assert m[near + SENT] - m[far + TAKEN] <= self.window, "rule 1.1: no more is sent than was asked for"
        assert m[near + LIMIT] <= m[far + ADVERTISED]
        assert self.arrived == self.made[: m[far + RECEIVED]], "in order, each once"
        assert m[near + TAKEN_KNOWN_BYTES] == sum(self.made[: m[near + TAKEN_KNOWN]])
        assert m[far + TAKEN_BYTES] == sum(self.made[: m[far + TAKEN]])


@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_wires_may_do_what_they_like(window: int, chunk_bytes: int, data: st.DataObject) -> None:
    """Lost, repeated and reordered messages, both ways: the ends stay in step, and after healing all arrives."""
    channel = Channel(window, chunk_bytes)
    before = list(channel.box.m)
    for _ in range(data.draw(st.integers(1, 60))):
        act = data.draw(st.sampled_from(["send", "take", "deliver", "learn", "lose", "repeat", "resend", "refresh"]))
        wire = data.draw(st.sampled_from([channel.data, channel.news]))
        if act == "send":
            channel.send(data.draw(st.integers(0, chunk_bytes)))
        elif act == "take":
            channel.take()
        elif act == "deliver" and channel.data:
            channel.deliver(data.draw(st.integers(0, len(channel.data) - 1)))
        elif act == "learn" and channel.news:
            channel.learn(data.draw(st.integers(0, len(channel.news) - 1)))
        elif act == "lose" and wire:
            wire.pop(data.draw(st.integers(0, len(wire) - 1)))
        elif act == "repeat" and wire:
            wire.append(wire[data.draw(st.integers(0, len(wire) - 1))])
        elif act == "resend":
            channel.resend()
        elif act == "refresh":
            channel.advertise()
        channel.check()
        for at in range(SENDER_SIZE):
            assert channel.box.m[channel.near + at] >= before[channel.near + at], "totals only grow"
        for at in range(RECEIVER_SIZE):
            assert channel.box.m[channel.far + at] >= before[channel.far + at], "totals only grow"
        before = list(channel.box.m)
    heal(channel)


def heal(channel: Channel) -> None:
    """Everything is sent again until everything is known; the window is as wide as at the start."""
    m = channel.box.m
    for _ in range(len(channel.made) + 1):
        channel.data.clear()
        channel.resend()
        while channel.data:
            channel.deliver(0)
        while m[channel.far + TAKEN] < m[channel.far + RECEIVED]:
            channel.take()
        channel.advertise()
        while channel.news:
            channel.learn(0)
    assert m[channel.near + TAKEN_KNOWN] == m[channel.near + SENT] == len(channel.made)
    assert m[channel.near + LIMIT] == len(channel.made) + channel.window


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=4), st.data())
def test_credit_messages_commute_and_repeat(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    """Whatever order and however often the messages of a growing history arrive, the same is known at the end."""
    history, taken, limit = [], 0, 0
    for more_taken, more_limit in steps:
        taken, limit = taken + more_taken, max(limit + more_limit, taken + more_taken)
        history.append((taken, 3 * taken, limit, 3 * limit))
    ends = set()
    again = data.draw(st.lists(st.sampled_from(history), max_size=2))
    for order in itertools.islice(itertools.permutations([*history, *again]), 60):
        box, near, _ = stream(window=1)
        for said in order:
            credit.learn(box.m, near, *said)
        ends.add(tuple(box.m[near : near + SENDER_SIZE]))
    assert len(ends) == 1
    known = dict(zip((TAKEN_KNOWN, TAKEN_KNOWN_BYTES, LIMIT), history[-1], strict=False))
    for at, value in known.items():
        assert next(iter(ends))[at] == max(value, 1 if at == LIMIT else 0)


@given(st.lists(st.integers(0, 6), max_size=30))
def test_only_the_next_chunk_is_accepted(arrivals: list[int]) -> None:
    box, _, far = stream()
    expected = 0
    for seq in arrivals:
        assert credit.accept(box.m, far, seq, int(seq == 6)) == (seq == expected)
        expected += seq == expected
        assert box.m[far + RECEIVED] == expected
    assert box.m[far + FINAL_RECEIVED] == (expected == 7)


def test_received_is_not_taken() -> None:
    """A copy in the inbox returns nothing; only the takeover does."""
    box, _, far = stream()
    credit.accept(box.m, far, 0, 0)
    assert box.m[far + TAKEN] == 0
    assert box.m[far + ADVERTISED] == 2
    credit.take(box.m, far, 3)
    assert (box.m[far + TAKEN], box.m[far + TAKEN_BYTES], box.m[far + ADVERTISED]) == (1, 3, 3)


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=20))
def test_a_window_may_change_but_takes_nothing_back(changes: list[tuple[int, bool]]) -> None:
    box, _, far = stream(window=4)
    advertised, seq, kept = 4, 0, 4
    for width, chunk in changes:
        if chunk:
            credit.accept(box.m, far, seq, 0)
            credit.take(box.m, far, 3)
            seq += 1
            advertised = max(advertised, seq + kept)
        kept = width
        credit.resize(box.m, far, width, 3 * width)
        advertised = max(advertised, seq + width)
        assert box.m[far + ADVERTISED] == advertised


@pytest.mark.parametrize(
    ("window", "window_bytes", "sent"), [(3, UNBOUNDED, 3), (9, 7, 2), (9, 6, 2), (9, 5, 1), (9, 1, 1)]
)
def test_chunks_and_bytes_both_bound_what_is_sent(window: int, window_bytes: int, sent: int) -> None:
    """Of chunks of three bytes; one may always be under way, or a small window would stop a stream for ever."""
    box, near, _ = stream(window, 3, window_bytes)
    count = 0
    while box(credit.may_send, 0, 0) and count < 20:
        box.m[near + SENT] += 1
        box.m[near + SENT_BYTES] += 3
        count += 1
    assert count == sent


def test_demand_without_bound_never_binds() -> None:
    """Rule 3.17: the largest window over the longest stream of the largest chunks stays in range."""
    box, near, far = stream(UNBOUNDED, MAX_CHUNK_BYTES)
    for seq in (0, 1):
        credit.accept(box.m, far, seq, 0)
        credit.take(box.m, far, MAX_CHUNK_BYTES)
    box.m[far + TAKEN], box.m[far + TAKEN_BYTES] = MAX_CHUNKS - 1, (MAX_CHUNKS - 1) * MAX_CHUNK_BYTES
    credit.take(box.m, far, MAX_CHUNK_BYTES)
    credit.learn(box.m, near, *(box.m[far + at] for at in (TAKEN, TAKEN_BYTES, ADVERTISED, ADVERTISED_BYTES)))
    assert box(credit.may_send, 0, 0)
    assert max(box.m[near : near + SENDER_SIZE] + box.m[far : far + RECEIVER_SIZE]) < 1 << 62


def test_demand_below_one_is_refused() -> None:
    """Rule 3.9."""
    with pytest.raises(UsageError, match="window_chunks"):
        stream(0)


def test_a_message_that_asks_for_less_changes_nothing() -> None:
    box, near, _ = stream()
    before = list(box.m)
    credit.learn(box.m, near, 0, 0, 1, 1)
    credit.learn(box.m, near, -1, -1, -1, -1)
    assert box.m == before


def finished() -> Machine:
    """A machine whose one request has sent its only chunk, taken by the client."""
    box = Machine(Plan(chain(1), 1, edges={"s0>client": EdgePlan(3, 1, 2)}))
    box.admit()
    (sent,) = [effect for effect in box.make(0, final=1) if effect.kind == effects.SEND_DATA]
    box(machine.on_delivery, 0, 0, 0, sent.a, sent.b, sent.c)
    said = box.effects[-1]
    box(machine.on_credit, 0, 0, 0, said.a, said.b, said.c, said.d)
    assert [effect.a for effect in box.effects if effect.kind == effects.ENDED] == [OK]
    return box


def test_nothing_follows_the_end_of_a_stream() -> None:
    """Rule 1.7: after its final chunk the stage makes no other one, after the end it takes no input."""
    box = finished()
    assert box(machine.reserve, 0, 0) == machine.NOT_OPEN
    box(machine.on_notice, 0)
    box(machine.on_delivery, 0, 0, 0, 1, 3, 0)
    assert [effect.kind for effect in box.effects] == [effects.DROPPED]


def test_late_items_are_tolerated() -> None:
    """Rule 2.8: what arrives after a stop is dropped without a word and without a trace."""
    box = finished()
    box(machine.on_stop, 0, 0, 0)
    before = list(box.m)
    box(machine.on_credit, 0, 0, 0, 9, 27, 99, 297)
    assert box.effects == []
    box(machine.resend, 0, 0, 0, 3, 1)
    assert box.effects == []
    assert box.m == before


def test_stopping_twice_is_stopping() -> None:
    """Rule 3.5: and each time the stage says that it has stopped, since the first word may be lost."""
    box = finished()
    box(machine.on_stop, 0, 0, 0)
    before = list(box.m)
    box(machine.on_stop, 0, 0, 0)
    assert [effect.kind for effect in box.effects] == [effects.SEND_STOPPED]
    assert box.m == before


def test_a_cancelled_stream_keeps_nothing() -> None:
    """Rule 3.13: bytes, slot and both ends are as if the request had never been."""
    box = Machine(Plan(chain(1), 1, edges={"s0>client": EdgePlan(3, 1, 2)}))
    fresh = list(box.m)
    box.admit()
    box.make(0)
    box(lifecycle.cancel, 0)
    box(machine.on_stop, 0, 0, 0)
    box(lifecycle.stopped, 0, 0, 0)
    assert box.m[USED] == 0
    near = sender(box.g, 0, 0)
    assert box.m[near + SENT] == box.m[near + SENT_BYTES] == 0
    assert box(ledger.short_of, 0, 0) == 0
    assert box.m[: box.g[SLOT_AT]] == fresh[: box.g[SLOT_AT]]


def test_one_signal_at_a_time() -> None:
    """Rule 1.3: a stage holds one reserved task and one launch of a request at most, so chunks leave in order."""
    box = Machine(Plan(chain(1), 1, edges={"s0>client": EdgePlan(3, 1, 9)}))
    box.admit()
    assert box(machine.reserve, 0, 0) == machine.GO
    assert box(machine.reserve, 0, 0) == machine.BUSY
    box(machine.launch, 0, 0, box.sizes)
    assert box(machine.reserve, 0, 0) == machine.BUSY
    assert box(machine.launch, 0, 0, box.sizes) == machine.NOT_OPEN
