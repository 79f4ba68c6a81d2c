"""A walk over every transition of a small world, for a study that wants to know more of it than whether it holds.

The explorer answers one question, the same for every world. A survey visits the same states in the same order by the
same plain rules and lets the caller look: which transitions exist, how large some number can become.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from workbench.control.ranges import within
from workbench.errors import UsageError
from workbench.verify.interface import bind
from workbench.verify.plain import enabled, perform, representative

WORLD = "workbench.verify.world"


@dataclass(frozen=True, slots=True)
class Transition:
    """One step from a reachable state: number of the state, its values, the action, the values after it, effects."""

    number: int
    before: tuple[int, ...]
    action: int
    after: tuple[int, ...]
    effects: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Peak:
    """The largest value of a number over all reachable states.

    Attributes
    ----------
    value : int
        The largest value.
    trace : tuple of int
        Fewest actions that lead to it, in the explorer's representatives (`explorer.replay` makes a concrete run).
    states : int
        States visited: all there are.
    """

    value: int
    trace: tuple[int, ...]
    states: int


def transitions(
    g: Sequence[int], m0: Sequence[int], *, world: str = WORLD, limit_states: int = 200_000
) -> Iterator[Transition]:
    """Every transition of a world, nearest first; symmetric states count once, as in the explorer.

    Raises
    ------
    UsageError
        More than `limit_states` states: a partial survey could not say what does not exist.
    """
    for number, before, steps in _states(g, m0, world, limit_states):
        for action, after, effects in steps:
            yield Transition(number, before, action, tuple(after), tuple(effects))


def peak(
    g: Sequence[int],
    m0: Sequence[int],
    gauge: Callable[[list[int], list[int]], int],
    *,
    world: str = WORLD,
    limit_states: int = 200_000,
) -> Peak:
    """The largest value of ``gauge(g, m)`` over every reachable state, and the shortest way to it.

    Raises
    ------
    UsageError
        More than `limit_states` states.

    Examples
    --------
    >>> from workbench.control.layout import USED
    >>> from workbench.verify.scenario import Scenario, bounded, chain
    >>> g, m = Scenario(bounded(chain(1), 1, window=2, spare_bytes=1), chunks=2).vectors()
    >>> peak(g, m, lambda g, m: m[USED]).value
    2
    """
    config = list(g)
    found_from: dict[int, tuple[int, int]] = {}
    best, where, states = -1, 0, 0
    numbers: dict[tuple[int, ...], int] = {}
    for number, before, steps in _states(g, m0, world, limit_states, numbers, found_from):
        states = number + 1
        if (value := gauge(config, list(before))) > best:
            best, where = value, number
        del steps
    trace: list[int] = []
    while where in found_from:
        where, action = found_from[where]
        trace.append(action)
    return Peak(best, tuple(reversed(trace)), states)


def _states(
    g: Sequence[int],
    m0: Sequence[int],
    world: str,
    limit_states: int,
    numbers: dict[tuple[int, ...], int] | None = None,
    found_from: dict[int, tuple[int, int]] | None = None,
) -> Iterator[tuple[int, tuple[int, ...], list[tuple[int, list[int], list[int]]]]]:
    """Number, values and outgoing steps of every state; `found_from` receives how each was found first."""
    within(limit_states, 1, 10_000_000, "limit_states")
    rules, config = bind(world, compiled=False), list(g)
    number = {} if numbers is None else numbers
    origin = {} if found_from is None else found_from
    start = representative(rules, config, list(m0))
    number[start] = 0
    waiting = [start]
    for at, state in enumerate(waiting):
        steps = []
        for action in enabled(rules, config, list(state)):
            code, after, effects = perform(rules, config, list(state), action)
            if code:
                raise UsageError("a world in which every step keeps the properties", f"property {code}", where="survey")
            next_state = representative(rules, config, list(after), action)
            if next_state not in number:
                if len(number) == limit_states:
                    raise UsageError(
                        f"at most {limit_states:,} states", "more", where="survey", fix="Take a smaller one."
                    )
                number[next_state] = len(number)
                origin[number[next_state]] = (at, action)
                waiting.append(next_state)
            steps.append((action, after, effects))
        yield at, state, steps
