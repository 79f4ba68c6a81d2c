"""The compiled frontier: every state stored once and in full, found again by its hash, in order of its distance.

A state is a row of bytes, padded to whole 64-bit words. An open-addressing table holds, per slot, 30 bits of the hash
and the number of the state; equal bits are confirmed on the words themselves, so no state is ever taken for another.
States are numbered in breadth-first order, therefore the transitions of one state lie together and the table of
transitions needs no sources.

The rules of the world come in as pointers to functions. Rules compiled into the loop are no faster here
(`benchmarks/bench_explorer.py` prints both), and this way the loop is compiled once for all worlds and kept on disk: a
world or a mutant costs its own compilation only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.twin import compiled
from workbench.verify.interface import (
    ACTIONS_SPACE,
    FAULT,
    GOAL,
    MAX_ACTIONS,
    MAX_CODE,
    MAX_EFFECTS,
    MAX_SCRATCH,
    SHAPES,
    Rules,
    signature,
)

Ints = npt.NDArray[np.int64]

# Why `advance` returned.
DONE, GROW, LIMIT, STATE, DEADLOCK, RANGE, CROWD, CODE = range(8)
# Counters that live across its calls; STEP_CODE is 0 until a step breaks a property.
COUNTERS = ("states", "expanded", "transitions", "code", "at", "action", "value", "step_code", "step_at", "step_action")
(STATES, EXPANDED, TRANSITIONS, PROPERTY, AT, ACTION, VALUE, STEP_CODE, STEP_AT, STEP_ACTION) = range(len(COUNTERS))

# Unsigned, since only unsigned products wrap: numba leaves the overflow of signed ones undefined.
_SEED, _MULTIPLIER, _SHIFT = np.uint64(0x2545F4914F6CDD1D), np.uint64(0x9E3779B97F4A7C15), np.uint64(29)
_HALF, _TOP = np.uint64(32), np.uint64(34)
_SLOT_BITS = 32
_LOW = np.uint64((1 << _SLOT_BITS) - 1)
# Two bits of a transition hold its kind.
MAX_STATES = 1 << 29


@compiled
def digest(words: Any, row: int) -> Any:
    """A hash of one row, 64 bits."""
    value = _SEED
    for word in words[row]:
        value = (value ^ word) * _MULTIPLIER
        value ^= value >> _SHIFT
    return value ^ (value >> _HALF)


@compiled
def find(words: Any, row: int, states: int, slots: Any) -> int:
    """The number of the state equal to row `row`; if there is none, that row becomes state `states`."""
    value = digest(words, row)
    tag = np.int64(value >> _TOP)
    mask = len(slots) - 1
    place = np.int64(value & _LOW) & mask
    while slots[place] != 0:
        if slots[place] >> _SLOT_BITS == tag:
            known: int = (slots[place] & ((1 << _SLOT_BITS) - 1)) - 1
            same = True
            for word in range(words.shape[1]):
                if words[known, word] != words[row, word]:
                    same = False
                    break
            if same:
                return known
        place = (place + 1) & mask
    slots[place] = (tag << _SLOT_BITS) | (states + 1)
    return states


@compiled
def fill(words: Any, states: int, slots: Any) -> None:
    """Enter every state into an empty table."""
    mask = len(slots) - 1
    for row in range(states):
        value = digest(words, row)
        place = np.int64(value & _LOW) & mask
        while slots[place] != 0:
            place = (place + 1) & mask
        slots[place] = (np.int64(value >> _TOP) << _SLOT_BITS) | (row + 1)


@compiled
def advance(
    actions: Any,
    apply: Any,
    kind: Any,
    broken: Any,
    flags: Any,
    canonical: Any,
    g: Any,
    length: int,
    upto: int,
    limit: int,
    counters: Any,
    fired: Any,
    rows: Any,
    words: Any,
    slots: Any,
    parent: Any,
    via: Any,
    flag: Any,
    first: Any,
    edges: Any,
    record: bool,
) -> int:
    """Expand the states before number `upto`; returns why it stopped, `DONE` if all are expanded.

    Parameters
    ----------
    actions, apply, kind, broken, flags, canonical : functions
        Rules of the world.
    g : int64
        Configuration.
    length : int
        Integers in a state.
    upto, limit : int
        First state that is left alone; largest number of states.
    counters : int64, length of COUNTERS
        Progress, and the details of what stopped it.
    fired : int64, length MAX_CODE + 1
        How often each action was performed.
    rows, words : int8 (capacity, 8 w), uint64 (capacity, w)
        The same memory twice: states; the row after the last is where a successor is packed.
    slots : int64, a power of two
        Hash table.
    parent, via, flag : int32, int32, int8 (capacity)
        Where a state was first found from, by which action, and its flags.
    first, edges : int64 (capacity), int32
        Transitions of a state: target and kind (two low bits) from ``first[state]``; only if `record`.
    """
    now = np.zeros(length, np.int64)
    work = np.zeros(length, np.int64)
    acts = np.zeros(ACTIONS_SPACE, np.int64)
    kinds = np.zeros(ACTIONS_SPACE, np.int64)
    out = np.zeros(MAX_EFFECTS, np.int64)
    scratch = np.zeros(MAX_SCRATCH, np.int64)
    states = counters[STATES]
    transitions = counters[TRANSITIONS]
    reason = DONE
    here = counters[EXPANDED]
    while here < upto:
        full = states + MAX_ACTIONS + 1 > len(rows) or 3 * (states + MAX_ACTIONS) > 2 * len(slots)
        if full or (record and transitions + MAX_ACTIONS > len(edges)):
            reason = GROW
            break
        for i in range(length):
            now[i] = rows[here, i]
        code = broken(g, now)
        if code != 0:
            counters[PROPERTY], counters[AT] = code, here
            reason = STATE
            break
        flag[here] = flags(g, now)
        first[here] = transitions
        count = actions(g, now, acts)
        if count > MAX_ACTIONS:
            counters[AT], counters[VALUE] = here, count
            reason = CROWD
            break
        free = 0
        for i in range(count):
            if not 0 < acts[i] <= MAX_CODE:
                counters[AT], counters[ACTION] = here, acts[i]
                reason = CODE
                break
            kinds[i] = kind(g, acts[i])
            free += kinds[i] != FAULT
        if reason != DONE:
            break
        if free == 0 and flag[here] & GOAL == 0:
            counters[AT] = here
            reason = DEADLOCK
            break
        if counters[STEP_CODE] == 0:
            for i in range(count):
                work[:] = now
                out[0] = 0
                transitions += 1
                fired[acts[i]] += 1
                code = apply(g, work, acts[i], out)
                if code != 0:
                    # The states of this level that are left may hold a shorter counterexample.
                    counters[STEP_CODE], counters[STEP_AT], counters[STEP_ACTION] = code, here, acts[i]
                    break
                canonical(g, work, scratch)
                for j in range(length):
                    rows[states, j] = work[j]
                    if work[j] != rows[states, j]:
                        counters[AT], counters[ACTION], counters[PROPERTY], counters[VALUE] = here, acts[i], j, work[j]
                        reason = RANGE
                target = find(words, states, states, slots)
                if target == states:
                    if states == limit and reason == DONE:
                        counters[AT] = here
                        reason = LIMIT
                    parent[states] = here
                    via[states] = acts[i]
                    states += 1
                if reason != DONE:
                    break
                if record:
                    edges[transitions - 1] = (target << 2) | kinds[i]
            if reason != DONE:
                break
        here += 1
    counters[STATES] = states if reason != LIMIT else limit
    counters[TRANSITIONS] = transitions
    counters[EXPANDED] = here
    return reason


@compiled
def turned(first: Any, edges: Any, states: int, transitions: int, start: Any, back: Any) -> None:
    """Turn the transitions round, those of kind FAULT left out: sources and kinds from ``start[target]`` in `back`."""
    for edge in edges[:transitions]:
        if edge & 3 != FAULT:
            start[edge >> 2] += 1
    for state in range(1, states):
        start[state] += start[state - 1]
    # Each entry is the end of its target now, and comes down to its beginning as the target's sources are entered.
    start[states] = start[states - 1]
    for state in range(states):
        end = first[state + 1] if state + 1 < states else transitions
        for edge in edges[first[state] : end]:
            if edge & 3 != FAULT:
                start[edge >> 2] -= 1
                back[start[edge >> 2]] = (state << 2) | (edge & 3)


@compiled
def reaching(start: Any, back: Any, flag: Any, states: int, slowest: int, reached: Any, waiting: Any) -> None:
    """Mark the states from which a goal is reachable by steps of kind `slowest` or below."""
    count = 0
    for state in range(states):
        if flag[state] & GOAL:
            reached[state] = True
            waiting[count] = state
            count += 1
    while count > 0:
        count -= 1
        state = waiting[count]
        for edge in back[start[state] : start[state + 1]]:
            source = edge >> 2
            if edge & 3 <= slowest and not reached[source]:
                reached[source] = True
                waiting[count] = source
                count += 1


@lru_cache(maxsize=1)
def compiled_advance() -> Any:
    """`advance`, compiled for rules that come as pointers to functions; the other functions here are compiled too."""
    from numba import types

    int8, int32, int64, long = types.int8[::1], types.int32[::1], types.int64, types.int64[::1]
    rules = [types.FunctionType(signature(SHAPES[name])) for name in Rules._fields]
    row, word, truth = types.int8[:, ::1], types.uint64[:, ::1], types.boolean
    arrays = (long, long, row, word, long, int32, int32, int8, long, int32)
    for function, arguments in (
        (find, (word, int64, int64, long)),
        (fill, (word, int64, long)),
        (turned, (long, int32, int64, int64, long, int32)),
        (reaching, (long, int32, int8, int64, int64, truth[::1], int32)),
        (advance, (*rules, long, int64, int64, int64, *arrays, truth)),
    ):
        dispatcher: Any = function
        dispatcher.compile(arguments)
    dispatcher.disable_compile()
    return dispatcher
