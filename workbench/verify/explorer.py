"""Exhaustive exploration of a small world: every state it can reach, and the shortest way to the first that is wrong.

What is checked, over all reachable states:

*   *step*: no step breaks a property (``apply`` returns 0);
*   *state*: no state violates one (``broken`` returns 0);
*   *deadlock*: a state without an enabled action, faults not counted, is a goal;
*   *no-way-out*: from every state some goal is reachable by steps of kind PROGRESS and TIMER, that is AG EF goal in the
    graph without faults;
*   *only-by-timeout*: from every state flagged UNTIMED some goal is reachable by steps of kind PROGRESS alone.

The graph is finite, so *no-way-out* says more than "possible": if, from some point on, no fault happens and every
transition that is enabled again and again is taken again and again (strong fairness of transitions), every run reaches
a goal. For the set of states that a run visits without end is closed under those transitions, and it contains a state
with a path to a goal. Without fairness the claim is AG EF only: a scheduler may repeat a circle of retransmissions for
ever. Likewise for *only-by-timeout* under runs in which no timer fires.

The search is exact: states are compared in full, none is left out or taken for another because of a hash.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from workbench.control.ranges import within
from workbench.errors import DataIntegrityError, UsageError
from workbench.twin import Edit
from workbench.verify.frontier import Frontier, Say
from workbench.verify.interface import Rules, bind
from workbench.verify.outcome import Exploration
from workbench.verify.plain import enabled, explore_plainly, perform, representative
from workbench.verify.search import MAX_STATES, compiled_advance


def explore(
    world: str,
    g: Sequence[int],
    m0: Sequence[int],
    *,
    limit_states: int = 10_000_000,
    compiled: bool = True,
    edits: Sequence[Edit] = (),
    liveness: bool = True,
    say: Say | None = None,
) -> Exploration:
    """Visit every reachable state of a world, nearest first, and check all properties above.

    Parameters
    ----------
    world : str
        Full name of a module of rules as `workbench.verify.interface` describes.
    g, m0 : sequence of int
        Configuration and initial state.
    limit_states : int, keyword-only
        Stop with verdict ``limit`` when one state more than this is found.
    compiled : bool, keyword-only
        Compiled search over compiled rules, or the plain search over plain rules: the same result, sooner for a large
        world; the plain one is sooner where compiling takes longer than searching (some 10,000 states).
    edits : sequence of Edit, keyword-only
        Changes to the sources of the world and its rules: a mutant.
    liveness : bool, keyword-only
        Whether to check *no-way-out* and *only-by-timeout*, which keeps all transitions in memory.
    say : function, keyword-only
        Told every two seconds how far the compiled search is; None for silence.

    Returns
    -------
    Exploration
        Verdict, size and counterexample; the same for every call with the same arguments.

    Raises
    ------
    UsageError
        A rule is missing or returns no integer; a state value leaves -128..127; a state has too many actions.
    """
    within(limit_states, 1, MAX_STATES, "limit_states")
    began = time.perf_counter()
    rules = bind(world, compiled=compiled, edits=edits)
    plain = bind(world, compiled=False, edits=edits)
    start = representative(plain, list(g), list(m0))
    if compiled:
        compiled_advance()
    ready, cpu = time.perf_counter(), time.process_time()
    if compiled:
        frontier = Frontier(rules, np.array(g, np.int64), np.array(start, np.int64), limit_states, liveness)
        found = frontier.run(say)
    else:
        found = explore_plainly(rules, list(g), list(start), limit_states, liveness)
    return replace(
        found,
        seconds=time.perf_counter() - ready,
        cpu_seconds=time.process_time() - cpu,
        compile_seconds=ready - began if compiled else 0.0,
    )


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a replayed trace: action, states before and after, effect buffer, property that it broke (or 0)."""

    action: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    effects: tuple[int, ...]
    code: int


def replay(
    world: str,
    g: Sequence[int],
    m0: Sequence[int],
    trace: Sequence[int],
    *,
    edits: Sequence[Edit] = (),
    folded: bool = True,
) -> list[Step]:
    """Run the actions of a trace on the plain rules; `folded` tells the explorer's traces from the walker's.

    A trace of the explorer names its actions in representatives, in which symmetric parts may have changed places at
    every step. The replay tells one concrete run instead: at each step it takes the action whose outcome is symmetric
    to the next representative, so that request 0 stays request 0 from the first line to the last. A trace of the walker
    (`folded` False) is such a run already.

    Raises
    ------
    UsageError
        An action is not enabled where the trace takes it.
    DataIntegrityError
        No enabled action leads to the next representative: ``canonical`` maps states to each other that differ.
    """
    rules, config = bind(world, compiled=False, edits=edits), list(g)
    if not folded:
        rules = rules._replace(canonical=lambda g, m, scratch: None)
    now, fold = list(m0), list(representative(rules, config, list(m0)))
    steps = []
    for position, action in enumerate(trace):
        where = f"step {position} of the trace"
        if action not in (choices := enabled(rules, config, fold)):
            raise UsageError(f"an enabled action, one of {choices}", str(action), where=where)
        code, after, _ = perform(rules, config, fold, action)
        fold = list(representative(rules, config, after, action))
        step = _follow(rules, config, now, action, fold, code)
        if step is None:
            raise DataIntegrityError("an action that leads to the next representative", "none", where=where)
        steps.append(step)
        now = list(step.after)
    return steps


def _follow(rules: Rules, g: list[int], now: list[int], wish: int, fold: list[int], code: int) -> Step | None:
    """The step from `now` to a state symmetric to `fold` that breaks the same property; action `wish` if it does."""
    choices = enabled(rules, g, now)
    for action in sorted(choices, key=lambda choice: choice != wish):
        found, after, effects = perform(rules, g, now, action)
        if found == code and list(representative(rules, g, after, action)) == fold:
            return Step(action, tuple(now), tuple(after), tuple(effects), code)
    return None
