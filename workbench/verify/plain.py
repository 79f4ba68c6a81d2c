"""The exploration in plain Python: the definition that the compiled search must equal, and quick enough for mutants."""

from __future__ import annotations

from collections import Counter

from workbench.errors import DataIntegrityError
from workbench.verify.interface import (
    ACTIONS_SPACE,
    FAULT,
    GOAL,
    MAX_ACTIONS,
    MAX_CODE,
    MAX_EFFECTS,
    MAX_SCRATCH,
    PROGRESS,
    TIMER,
    UNTIMED,
    Rules,
)
from workbench.verify.outcome import Exploration, no_code, out_of_range, too_many

State = tuple[int, ...]


def enabled(rules: Rules, g: list[int], m: list[int]) -> list[int]:
    """Codes of the actions enabled in `m`, in the world's order."""
    acts = [0] * ACTIONS_SPACE
    count = rules.actions(g, m, acts)
    if count > MAX_ACTIONS:
        raise too_many(count)
    for action in acts[:count]:
        if not 0 < action <= MAX_CODE:
            raise no_code(action)
    return acts[:count]


def perform(rules: Rules, g: list[int], m: list[int], action: int) -> tuple[int, list[int], list[int]]:
    """Code of the property that `action` breaks in `m`, the state after it, and the effects."""
    after, out = list(m), [0] * MAX_EFFECTS
    return rules.apply(g, after, action, out), after, out


def representative(rules: Rules, g: list[int], m: list[int], action: int = 0) -> State:
    """The state that stands for all those symmetric to `m`, reached by `action`."""
    found, again = list(m), []
    rules.canonical(g, found, [0] * MAX_SCRATCH)
    again = list(found)
    rules.canonical(g, again, [0] * MAX_SCRATCH)
    if found != again:
        raise DataIntegrityError("canonical to change a representative no more", f"{found} became {again}")
    for index, value in enumerate(found):
        if not -128 <= value <= 127:
            raise out_of_range(index, value, action)
    return tuple(found)


def explore_plainly(rules: Rules, g: list[int], m0: list[int], limit: int, liveness: bool) -> Exploration:
    """Breadth-first search over a dictionary of states; see `workbench.verify.explorer.explore`."""
    start = representative(rules, g, m0)
    number: dict[State, int] = {start: 0}
    states: list[State] = [start]
    found_from: list[tuple[int, int]] = [(-1, 0)]
    bits: list[int] = []
    # Per state, the transitions that lead to it: source and kind.
    into: list[list[tuple[int, int]]] = [[]]
    fired: Counter[int] = Counter()
    levels: list[int] = []
    begin = 0

    def path(i: int) -> tuple[int, ...]:
        actions = []
        while i > 0:
            i, action = found_from[i]
            actions.append(action)
        return tuple(reversed(actions))

    def result(verdict: str, kind: str = "", code: int = 0, trace: tuple[int, ...] = ()) -> Exploration:
        goals = sum(flags & GOAL for flags in bits)
        sizes = (*levels, len(states) - sum(levels)) if len(states) > sum(levels) else tuple(levels)
        return Exploration(
            states=len(states), transitions=sum(fired.values()), levels=sizes, goals=goals, fired=dict(fired),
            verdict=verdict, kind=kind, code=code, trace=trace,
        )  # fmt: skip

    while begin < len(states):
        end = len(states)
        levels.append(end - begin)
        broken_step: tuple[int, tuple[int, ...]] | None = None
        for i in range(begin, end):
            m = list(states[i])
            if code := rules.broken(g, m):
                return result("violated", "state", code, path(i))
            bits.append(rules.flags(g, m))
            actions = enabled(rules, g, m)
            kinds = [rules.kind(g, action) for action in actions]
            if all(kind == FAULT for kind in kinds) and not bits[i] & GOAL:
                return result("violated", "deadlock", 0, path(i))
            if broken_step:
                # Only the states of this level may still hold a shorter counterexample.
                continue
            for action, kind in zip(actions, kinds, strict=True):
                fired[action] += 1
                code, after, _ = perform(rules, g, m, action)
                if code:
                    broken_step = code, (*path(i), action)
                    break
                state = representative(rules, g, after, action)
                j = number.setdefault(state, len(states))
                if j == len(states):
                    if j == limit:
                        return result("limit")
                    states.append(state)
                    found_from.append((i, action))
                    into.append([])
                into[j].append((i, kind))
        if broken_step:
            return result("violated", "step", *broken_step)
        begin = end
    if liveness:
        untimed = [i for i, flags in enumerate(bits) if flags & UNTIMED]
        everywhere: list[int] = list(range(len(states)))
        for name, slowest, wanted in (("no-way-out", TIMER, everywhere), ("only-by-timeout", PROGRESS, untimed)):
            reached = reaching(into, [i for i, flags in enumerate(bits) if flags & GOAL], slowest)
            if bad := [i for i in wanted if i not in reached]:
                return result("violated", name, 0, path(bad[0]))
    return result("holds")


def reaching(into: list[list[tuple[int, int]]], goals: list[int], slowest: int) -> set[int]:
    """The states with a path to a goal over transitions of kind `slowest` or below."""
    reached, waiting = set(goals), list(goals)
    while waiting:
        for source, kind in into[waiting.pop()]:
            if kind <= slowest and source not in reached:
                reached.add(source)
                waiting.append(source)
    return reached
