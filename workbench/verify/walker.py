"""A seeded random walker for worlds too large to exhaust: swarm faults, then healing, then the end or a silent hang.

Every run has its own seed, which draws the share of each family of faults (some are absent: swarm testing, Groce et
al., ISSTA 2012) and of each family of other actions. In the *safety phase* faults happen, and every property of step
and state is checked. Then they stop, and in the *liveness phase* the world must reach a goal within a bound of steps;
the two phases are those of TigerBeetle's simulator. In the second each enabled action is equally likely at every step,
so a world without a hang ends with probability 1, though soon only if the bound is large against the way to the goal.

A walk that finds nothing proves nothing; it says how many steps it took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from workbench.control.ranges import within
from workbench.twin import Edit, twin
from workbench.verify import random_walk
from workbench.verify.interface import ACTIONS_SPACE, MAX_ACTIONS, MAX_EFFECTS, Rules, bind, compile_as, signature
from workbench.verify.interface import SHAPES as RULE_SHAPES
from workbench.verify.outcome import too_many

KINDS = ("", "step", "state", "deadlock", "silent-hang", "only-by-timeout")
# Steps between two looks at the keyboard: a few tenths of a second compiled.
SLICE = 1 << 20

_WALK = "workbench.verify.random_walk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """Result of one walk. Two are equal if everything but time is.

    Attributes
    ----------
    runs, steps : int
        Runs begun and steps taken in all.
    kind : str
        ``step``, ``state``, ``deadlock``, ``silent-hang`` (no goal within the bound although faults stopped),
        ``only-by-timeout`` (a state flagged UNTIMED from which only a timer leads on); empty if nothing was found.
    code : int
        Code of the violated property; 0 if there is none.
    seed : int
        The run that failed: ``walk(..., seed=that, steps=1)`` repeats it. -1 if none did.
    trace : tuple of int
        Actions of the failing run from the initial state, shrunk; up to the end of faults for the last two kinds.
    taken : int
        Length of the trace before shrinking.
    seconds : float
        Wall time of the walk, compiling and shrinking left out.
    """

    runs: int
    steps: int
    kind: str = ""
    code: int = 0
    seed: int = -1
    trace: tuple[int, ...] = ()
    taken: int = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def verdict(self) -> str:
        """``violated``, or ``nothing found``."""
        return "violated" if self.kind else "nothing found"


def walk(
    world: str,
    g: Sequence[int],
    m0: Sequence[int],
    *,
    seed: int = 0,
    steps: int = 100_000,
    longest: int = 500,
    bound: int = 10_000,
    compiled: bool = True,
    edits: Sequence[Edit] = (),
    say: Callable[[str], None] | None = None,
) -> Walk:
    """Walk at random through a world until something goes wrong or the steps are spent.

    Parameters
    ----------
    world : str
        Full name of a module of rules as `workbench.verify.interface` describes. It may have one more rule,
        ``family(g, action)``: the number of the group of actions that share one weight, such as "lose on any edge";
        without it each code stands alone.
    g, m0 : sequence of int
        Configuration and initial state; the values may have 64 bits.
    seed : int, keyword-only
        Seed of the first run; the next runs have the next integers. At least 0.
    steps : int, keyword-only
        Begin no run after this many steps in all.
    longest, bound : int, keyword-only
        Each run has 1 to `longest` steps with faults, then must reach a goal in `bound` steps.
    compiled : bool, keyword-only
        Compiled or plain rules; the result is the same.
    edits : sequence of Edit, keyword-only
        Changes to the sources of the world and its rules: a mutant.
    say : function, keyword-only
        Told after every million steps how far the walk is; None for silence.
    """
    within(seed, 0, 1 << 31, "seed")
    within(steps, 1, 1 << 40, "steps")
    within(longest, 1, 1 << 20, "longest")
    within(bound, 1, 1 << 30, "bound")
    place = _Place(world, g, m0, longest, bound, compiled, edits)
    began = time.perf_counter()
    ending = random_walk.FINE
    while ending == random_walk.FINE and place.report[random_walk.STEPS] < steps:
        runs = int(place.report[random_walk.RUNS])
        ending = place.roam(seed + runs, min(steps, int(place.report[random_walk.STEPS]) + SLICE))
        if say:
            say(f"{place.report[random_walk.STEPS]:,} steps in {place.report[random_walk.RUNS]:,} runs")
    seconds = time.perf_counter() - began
    done, runs = int(place.report[random_walk.STEPS]), int(place.report[random_walk.RUNS])
    if ending == random_walk.CROWD:
        raise too_many(MAX_ACTIONS + 1)
    if ending == random_walk.FINE:
        return Walk(runs=runs, steps=done, seconds=seconds)
    failed, code = seed + runs - 1, int(place.report[random_walk.PROPERTY])
    trace = place.shrink(failed, ending, code)
    return Walk(
        runs=runs, steps=done, kind=KINDS[ending], code=code, seed=failed, trace=tuple(trace), taken=place.taken,
        seconds=seconds,
    )  # fmt: skip


class _Place:
    """A world with the vectors that a walk through it needs: lists, or arrays for compiled rules."""

    def __init__(
        self,
        world: str,
        g: Sequence[int],
        m0: Sequence[int],
        longest: int,
        bound: int,
        compiled: bool,
        edits: Sequence[Edit],
    ) -> None:
        rules = bind(world, compiled=compiled, edits=edits)
        module, walking = twin(world, compiled=compiled, edits=edits), twin(_WALK, compiled=compiled)
        family = getattr(module, "family", walking.alone)
        if compiled:
            family = compile_as(family, RULE_SHAPES["kind"], f"{world}.family")
        self._roam, self._retrace = _compiled_walk() if compiled else (walking.roam, walking.retrace)
        self.rules = (*(rule for name, rule in rules._asdict().items() if name != "canonical"), family)
        self.vector: Callable[[Sequence[int]], Any] = (lambda values: np.array(values, np.int64)) if compiled else list
        self.longest, self.bound, self.taken = longest, bound, 0
        self.g, self.m0, self.m = (self.vector(values) for values in (g, m0, m0))
        sizes = (ACTIONS_SPACE, ACTIONS_SPACE, MAX_EFFECTS, 1, longest + bound, random_walk.RUNS + 1)
        self.vectors = tuple(self.vector([0] * size) for size in sizes)
        self.trace, self.report = self.vectors[-2:]

    def roam(self, seed: int, budget: int) -> int:
        """How the runs from `seed` on ended: the first that went wrong, or FINE after `budget` steps in all."""
        return int(
            self._roam(*self.rules, self.g, self.m, seed, self.longest, self.bound, *self.vectors, self.m0, budget)
        )

    def fails(self, seed: int, ending: int, code: int, wish: list[int]) -> list[int] | None:
        """The actions among `wish` that make the same failure again; None if they do not."""
        self.m[:] = self.m0
        healing = ending in (random_walk.HANG, random_walk.TIMEOUT)
        found = self._retrace(*self.rules, self.g, self.m, seed, self.bound, *self.vectors, self.vector(wish), healing)
        if found != ending or self.report[random_walk.PROPERTY] != code:
            return None
        length = self.report[random_walk.SAFE if healing else random_walk.LENGTH]
        return [int(action) for action in self.trace[:length]]

    def shrink(self, seed: int, ending: int, code: int) -> list[int]:
        """The failing trace without what it does not need: pieces are dropped, halves first, while it still fails."""
        healing = ending in (random_walk.HANG, random_walk.TIMEOUT)
        length = self.report[random_walk.SAFE if healing else random_walk.LENGTH]
        trace = [int(action) for action in self.trace[:length]]
        self.taken = len(trace)
        size = max(1, len(trace) // 2)
        while True:
            before = len(trace)
            at = 0
            while at < len(trace):
                shorter = self.fails(seed, ending, code, trace[:at] + trace[at + size :])
                if shorter is not None and len(shorter) < len(trace):
                    trace = shorter
                else:
                    at += size
            if size == 1 and len(trace) == before:
                return trace
            size = max(1, size // 2)


@lru_cache(maxsize=1)
def _compiled_walk() -> tuple[Any, Any]:
    """`roam` and `retrace`, compiled for rules that come as pointers to functions."""
    from numba import types

    walking = twin(_WALK)
    names = [name for name in Rules._fields if name != "canonical"]
    rules = [types.FunctionType(signature(RULE_SHAPES[name])) for name in (*names, "kind")]
    int64, long = types.int64, types.int64[::1]
    walking.roam.compile((*rules, long, long, int64, int64, int64, *[long] * 7, int64))
    walking.retrace.compile((*rules, long, long, int64, int64, *[long] * 7, types.boolean))
    for dispatcher in (walking.roam, walking.retrace):
        dispatcher.disable_compile()
    return walking.roam, walking.retrace
