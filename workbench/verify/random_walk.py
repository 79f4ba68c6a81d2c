"""The random walk itself, as rules: one source for the plain and for the compiled walker.

The state of the generator is one integer of 32 bits in a vector of length 1. No product or shift leaves 63 bits, since
compiled signed overflow is undefined; so draws are equal in both executions.
"""

from __future__ import annotations

from collections.abc import Callable

from workbench.twin import Vector, rule
from workbench.verify.interface import FAULT, GOAL, MAX_ACTIONS, PROGRESS, TIMER, UNTIMED

Called = Callable[..., int]

_MASK = (1 << 32) - 1
# Salts of the two streams of a seed, above any family of actions: the walk with faults, the walk after healing.
_FAULTY, _HEALED = 1 << 20, 1 << 21

# How a walk ended: at a goal, or which way it went wrong.
FINE, STEP, STATE, DEADLOCK, HANG, TIMEOUT, CROWD = range(7)
# What a walk reports: performed steps, code of the broken property, length of the trace, its part before healing, and
# the runs begun.
STEPS, PROPERTY, LENGTH, SAFE, RUNS = range(5)


@rule
def mixed(seed: int, salt: int) -> int:
    """An integer of 32 bits, every bit of which depends on all of `seed` (32 bits) and `salt` (30 bits)."""
    value = (seed + salt * 0x1E3779B9) & _MASK
    for _ in range(2):
        value = ((value ^ (value >> 16)) * 0x7FEB352D) & _MASK
        value = ((value ^ (value >> 15)) * 0x31848BAB) & _MASK
    return value ^ (value >> 16)


@rule
def draw(random: Vector, below: int) -> int:
    """An integer from 0 to `below` - 1 (at most 2**20), all but equally likely.

    The generator is xorshift with 32 bits (Marsaglia 2003, shifts 13, 17, 5; period 2**32 - 1; its state is never 0),
    scrambled by one more product.
    """
    value = random[0]
    value ^= (value << 13) & _MASK
    value ^= value >> 17
    value ^= (value << 5) & _MASK
    random[0] = value
    scrambled = ((value ^ (value >> 16)) * 0x7FEB352D) & _MASK
    return (scrambled * below) >> 32


@rule
def weight(seed: int, family: int, fault: bool) -> int:
    """Share of a family of actions in run `seed`: 0, 1, 4 or 16 for faults, so that some are absent; else 1 to 64."""
    level = (mixed(seed, family) >> 20) & 3
    if not fault:
        return 1 << (2 * level)
    return 0 if level == 0 else 1 << (2 * level - 2)


@rule
def alone(g: Vector, action: int) -> int:
    """Every action is a family of its own; a world with a rule ``family`` says otherwise."""
    return action


@rule
def movable(kind: Called, g: Vector, acts: Vector, count: int) -> bool:
    """Whether one of the enabled actions is no fault."""
    i = 0
    while i < count and kind(g, acts[i]) == FAULT:
        i += 1
    return i < count


@rule
def choose(
    kind: Called,
    family: Called,
    g: Vector,
    acts: Vector,
    shares: Vector,
    count: int,
    seed: int,
    random: Vector,
    slowest: int,
) -> int:
    """One of the enabled actions of kind `slowest` or below, all alike unless faults are allowed; 0 if none."""
    total = 0
    for i in range(count):
        found = kind(g, acts[i])
        shares[i] = 0
        if found <= slowest:
            shares[i] = weight(seed, family(g, acts[i]), found == FAULT) if slowest == FAULT else 1
        total += shares[i]
    if total == 0:
        return 0
    left = draw(random, total)
    for i in range(count):
        left -= shares[i]
        if left < 0:
            return acts[i]
    return 0


@rule
def step(
    apply: Called, broken: Called, g: Vector, m: Vector, action: int, out: Vector, trace: Vector, report: Vector
) -> int:
    """Perform an action and note it; FINE, STEP or STATE."""
    trace[report[LENGTH]] = action
    report[LENGTH] += 1
    report[STEPS] += 1
    out[0] = 0
    report[PROPERTY] = apply(g, m, action, out)
    if report[PROPERTY] != 0:
        return STEP
    report[PROPERTY] = broken(g, m)
    return STATE if report[PROPERTY] != 0 else FINE


@rule
def heal(
    actions: Called,
    apply: Called,
    kind: Called,
    broken: Called,
    flags: Called,
    family: Called,
    g: Vector,
    m: Vector,
    seed: int,
    bound: int,
    acts: Vector,
    shares: Vector,
    out: Vector,
    random: Vector,
    trace: Vector,
    report: Vector,
) -> int:
    """Walk without faults to a goal in at most `bound` steps; without timers if the first state is flagged UNTIMED."""
    report[SAFE] = report[LENGTH]
    random[0] = max(1, mixed(seed, _HEALED))
    slowest = PROGRESS if flags(g, m) & UNTIMED else TIMER
    for _ in range(bound):
        if flags(g, m) & GOAL:
            return FINE
        count = actions(g, m, acts)
        if count > MAX_ACTIONS:
            return CROWD
        action = choose(kind, family, g, acts, shares, count, seed, random, slowest)
        if action == 0:
            return TIMEOUT if movable(kind, g, acts, count) else DEADLOCK
        ending = step(apply, broken, g, m, action, out, trace, report)
        if ending != FINE:
            return ending
    return FINE if flags(g, m) & GOAL else HANG


@rule
def stray(
    actions: Called,
    apply: Called,
    kind: Called,
    broken: Called,
    flags: Called,
    family: Called,
    g: Vector,
    m: Vector,
    seed: int,
    longest: int,
    bound: int,
    acts: Vector,
    shares: Vector,
    out: Vector,
    random: Vector,
    trace: Vector,
    report: Vector,
) -> int:
    """One run: up to `longest` steps with the faults of `seed`, then `heal`."""
    report[LENGTH] = 0
    report[SAFE] = 0
    random[0] = max(1, mixed(seed, _FAULTY))
    report[PROPERTY] = broken(g, m)
    if report[PROPERTY] != 0:
        return STATE
    for _ in range(1 + draw(random, longest)):
        count = actions(g, m, acts)
        if count > MAX_ACTIONS:
            return CROWD
        if not movable(kind, g, acts, count) and flags(g, m) & GOAL == 0:
            return DEADLOCK
        action = choose(kind, family, g, acts, shares, count, seed, random, FAULT)
        if action == 0:
            break
        ending = step(apply, broken, g, m, action, out, trace, report)
        if ending != FINE:
            return ending
    return heal(
        actions, apply, kind, broken, flags, family, g, m, seed, bound, acts, shares, out, random, trace, report
    )  # fmt: skip


@rule
def roam(
    actions: Called,
    apply: Called,
    kind: Called,
    broken: Called,
    flags: Called,
    family: Called,
    g: Vector,
    m: Vector,
    seed: int,
    longest: int,
    bound: int,
    acts: Vector,
    shares: Vector,
    out: Vector,
    random: Vector,
    trace: Vector,
    report: Vector,
    start: Vector,
    budget: int,
) -> int:
    """Runs `seed`, `seed` + 1, ... from state `start` until `budget` steps are done or one goes wrong."""
    ending = FINE
    while ending == FINE and report[STEPS] < budget:
        for i in range(len(start)):
            m[i] = start[i]
        ending = stray(
            actions, apply, kind, broken, flags, family, g, m, seed, longest, bound, acts, shares, out, random, trace,
            report,
        )  # fmt: skip
        # A run from a goal without any action takes no step, and must not take forever.
        report[STEPS] += 1 if report[LENGTH] == 0 else 0
        report[RUNS] += 1
        seed += 1
    return ending


@rule
def retrace(
    actions: Called,
    apply: Called,
    kind: Called,
    broken: Called,
    flags: Called,
    family: Called,
    g: Vector,
    m: Vector,
    seed: int,
    bound: int,
    acts: Vector,
    shares: Vector,
    out: Vector,
    random: Vector,
    trace: Vector,
    report: Vector,
    wish: Vector,
    healing: bool,
) -> int:
    """Perform those actions of `wish` that are enabled, in order, then `heal` if told so; how it ended."""
    report[LENGTH] = 0
    report[SAFE] = 0
    report[PROPERTY] = broken(g, m)
    if report[PROPERTY] != 0:
        return STATE
    for i in range(len(wish)):
        count = actions(g, m, acts)
        for j in range(count):
            if acts[j] == wish[i]:
                ending = step(apply, broken, g, m, wish[i], out, trace, report)
                if ending != FINE:
                    return ending
                break
    if healing:
        return heal(
            actions, apply, kind, broken, flags, family, g, m, seed, bound, acts, shares, out, random, trace, report
        )  # fmt: skip
    count = actions(g, m, acts)
    return FINE if flags(g, m) & GOAL or movable(kind, g, acts, count) else DEADLOCK
