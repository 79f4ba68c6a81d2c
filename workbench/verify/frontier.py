"""Memory of the compiled search: arrays that grow with the states found, and the levels they stand on."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from workbench.verify import search
from workbench.verify.interface import GOAL, MAX_ACTIONS, MAX_CODE, PROGRESS, TIMER, UNTIMED, Rules
from workbench.verify.outcome import Exploration, no_code, out_of_range, too_many
from workbench.verify.search import Ints

Say = Callable[[str], None]

# States expanded between two looks at the keyboard: some tens of milliseconds.
SLICE = 1 << 14
SAY_EVERY_S = 2.0


class Frontier:
    """The states of one world that are known so far, and the transitions between them.

    Parameters
    ----------
    rules : Rules
        Compiled rules of the world.
    g, m0 : int64
        Configuration and initial state, the latter a representative whose values fit in bytes.
    limit : int
        Largest number of states.
    record : bool
        Whether to keep the transitions, which liveness needs.
    """

    def __init__(self, rules: Rules, g: Ints, m0: Ints, limit: int, record: bool) -> None:
        self.rules, self.g, self.length, self.limit, self.record = rules, g, len(m0), limit, record
        capacity = 4 * MAX_ACTIONS
        self.words = np.zeros((capacity, (self.length + 7) // 8), np.uint64)
        self.slots = np.zeros(2 * capacity, np.int64)
        self.parent = np.zeros(capacity, np.int32)
        self.via = np.zeros(capacity, np.int32)
        self.flag = np.zeros(capacity, np.int8)
        self.first = np.zeros(capacity, np.int64)
        self.edges = np.zeros(4 * capacity if record else 1, np.int32)
        self.counters = np.zeros(len(search.COUNTERS), np.int64)
        self.fired = np.zeros(MAX_CODE + 1, np.int64)
        self.extra = 0
        self.words.view(np.int8)[0, : self.length] = m0
        search.find(self.words, 0, 0, self.slots)
        self.counters[search.STATES] = 1

    @property
    def states(self) -> int:
        """Number of states known."""
        return int(self.counters[search.STATES])

    def run(self, say: Say | None) -> Exploration:
        """Expand level after level until nothing is new or something is wrong."""
        ends = [0, 1]
        began = last = time.perf_counter()
        while True:
            expanded = int(self.counters[search.EXPANDED])
            reason = self._advance(min(ends[-1], expanded + SLICE))
            if say and (now := time.perf_counter()) - last > SAY_EVERY_S:
                last = now
                waiting = self.states - int(self.counters[search.EXPANDED])
                rate = self.states / (now - began)
                say(f"{self.states:,} states, {waiting:,} of them waiting, depth {len(ends) - 1}, {rate:,.0f} states/s")
            if reason == search.GROW:
                self._grow()
            elif reason != search.DONE:
                return self._stopped(reason, ends)
            elif self.counters[search.EXPANDED] == ends[-1]:
                if code := int(self.counters[search.STEP_CODE]):
                    trace = (*self._path(self.counters[search.STEP_AT]), int(self.counters[search.STEP_ACTION]))
                    return self._result(ends, "violated", "step", code, trace)
                if self.states == ends[-1]:
                    return self._lively(ends) if self.record else self._result(ends, "holds")
                ends.append(self.states)

    def _advance(self, upto: int) -> int:
        rows = self.words.view(np.int8)
        reason: int = search.compiled_advance()(
            *self.rules, self.g, self.length, upto, self.limit, self.counters, self.fired, rows, self.words, self.slots,
            self.parent, self.via, self.flag, self.first, self.edges, self.record,
        )  # fmt: skip
        return reason

    def _grow(self) -> None:
        """Half as much again of what is full; in place where the allocator can."""
        states, transitions = self.states, int(self.counters[search.TRANSITIONS])
        if states + MAX_ACTIONS + 1 > len(self.words):
            capacity = len(self.words) + len(self.words) // 2
            self.words.resize((capacity, self.words.shape[1]), refcheck=False)
            for array in (self.parent, self.via, self.flag, self.first):
                array.resize(capacity, refcheck=False)
        if self.record and transitions + MAX_ACTIONS > len(self.edges):
            self.edges.resize(len(self.edges) + len(self.edges) // 2, refcheck=False)
        if 3 * (states + MAX_ACTIONS) > 2 * len(self.slots):
            self.slots = np.zeros(2 * len(self.slots), np.int64)
            search.fill(self.words, states, self.slots)

    def _stopped(self, reason: int, ends: list[int]) -> Exploration:
        at, action, value, code = (
            int(self.counters[name]) for name in (search.AT, search.ACTION, search.VALUE, search.PROPERTY)
        )
        if reason == search.RANGE:
            raise out_of_range(code, value, action)
        if reason == search.CROWD:
            raise too_many(value)
        if reason == search.CODE:
            raise no_code(action)
        if reason == search.LIMIT:
            return self._result(ends, "limit")
        kind, code = ("state", code) if reason == search.STATE else ("deadlock", 0)
        return self._result(ends, "violated", kind, code, self._path(at))

    def _lively(self, ends: list[int]) -> Exploration:
        """The verdict on liveness, once everything is expanded."""
        states, transitions = self.states, int(self.counters[search.TRANSITIONS])
        start = np.zeros(states + 1, np.int64)
        back = np.empty(transitions, np.int32)
        search.turned(self.first, self.edges, states, transitions, start, back)
        waiting = np.empty(states, np.int32)
        flag = self.flag[:states]
        self.extra = start.nbytes + back.nbytes + waiting.nbytes + states
        for kind, slowest, wanted in (
            ("no-way-out", TIMER, np.ones(states, np.bool_)),
            ("only-by-timeout", PROGRESS, flag & UNTIMED != 0),
        ):
            reached = np.zeros(states, np.bool_)
            search.reaching(start, back, flag, states, slowest, reached, waiting)
            bad = np.flatnonzero(wanted & ~reached)
            if len(bad):
                return self._result(ends, "violated", kind, 0, self._path(bad[0]))
        return self._result(ends, "holds")

    def _path(self, state: int) -> tuple[int, ...]:
        actions = []
        while state > 0:
            actions.append(int(self.via[state]))
            state = self.parent[state]
        return tuple(reversed(actions))

    def _result(
        self, ends: list[int], verdict: str, kind: str = "", code: int = 0, trace: tuple[int, ...] = ()
    ) -> Exploration:
        arrays = (self.words, self.slots, self.parent, self.via, self.flag, self.first, self.edges)
        bounds = [*ends, self.states] if self.states > ends[-1] else ends
        codes = np.flatnonzero(self.fired)
        return Exploration(
            states=self.states,
            transitions=int(self.counters[search.TRANSITIONS]),
            levels=tuple(int(size) for size in np.diff(bounds)),
            goals=int(np.count_nonzero(self.flag[: self.states] & GOAL)),
            fired={int(each): int(self.fired[each]) for each in codes},
            verdict=verdict,
            kind=kind,
            code=code,
            trace=trace,
            bytes_per_state=(sum(array.nbytes for array in arrays) + self.extra) / self.states,
        )
