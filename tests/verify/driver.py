"""Concrete runs of a small world: a seeded schedule, faults struck where a test wants them, and what the client saw."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence

from workbench.control import effects
from workbench.control.effects import EFFECT_SIZE
from workbench.control.layout import EDGES, OUTCOME, REQUESTS, STAGES, TO, edge_row, request
from workbench.control.phases import OK
from workbench.twin import Edit
from workbench.verify import wires
from workbench.verify.interface import ACTIONS_SPACE, FAULT, GOAL, MAX_EFFECTS, PROGRESS, TIMER, bind
from workbench.verify.scenario import FAULTS, Scenario
from workbench.verify.story import PROPERTIES

WORLD = "workbench.verify.world"
# Effect kinds that a run remembers; each as (kind, request, where, epoch, a).
TOLD = (effects.COMMITTED, effects.SUPPRESSED, effects.DROPPED, effects.ENDED, effects.ADMITTED, effects.REFUSED)


class Run:
    """One run; every step is checked against the laws, and `settle` demands that it ends.

    Parameters
    ----------
    scenario : Scenario
        The world.
    seed : int
        Draws the schedule.
    edits : sequence of Edit
        A mutant.
    """

    def __init__(self, scenario: Scenario, seed: int, edits: Sequence[Edit] = ()) -> None:
        self.scenario, self.random = scenario, random.Random(seed)
        self.rules = bind(WORLD, compiled=False, edits=edits)
        self.g, self.m = scenario.vectors()
        self.acts, self.out = [0] * ACTIONS_SPACE, [0] * MAX_EFFECTS
        self.events: list[tuple[int, int, int, int, int]] = []

    def fork(self) -> Run:
        """The same state and past, with a future of its own."""
        other = object.__new__(Run)
        other.__dict__.update(self.__dict__)
        other.random = random.Random(self.random.random())
        other.m, other.events = list(self.m), list(self.events)
        return other

    def enabled(self) -> list[int]:
        return self.acts[: self.rules.actions(self.g, self.m, self.acts)]

    def possible(self, *actions: int) -> list[int]:
        """Codes of the enabled actions of these kinds."""
        return [code for code in self.enabled() if wires.action_of(self.g, code) in actions]

    def take(self, code: int) -> None:
        broken = self.rules.apply(self.g, self.m, code, self.out)
        assert broken == 0, PROPERTIES[broken]
        for at in range(1, 1 + self.out[0] * EFFECT_SIZE, EFFECT_SIZE):
            if self.out[at] in TOLD:
                self.events.append(tuple(self.out[at : at + 5]))
        broken = self.rules.broken(self.g, self.m)
        assert broken == 0, PROPERTIES[broken]

    def do(self, action: int, r: int = 0, place: int = 0, arg: int = 0) -> None:
        """Take one action that must be possible."""
        code = wires.code(self.g, action, r, place, arg)
        assert code in self.enabled(), f"{action} of {r} at {place} is not possible"
        self.take(code)

    def advance(self, hold: Sequence[int] = (), storm: float = 0.0, stuck: Sequence[int] = ()) -> bool:
        """One step at random, a timer only if nothing else can happen; False if no step is left.

        Actions in `hold` and codes in `stuck` do not happen; faults happen with probability `storm` where their budget
        allows one.
        """
        codes = [code for code in self.enabled() if wires.action_of(self.g, code) not in hold and code not in stuck]
        kinds = [FAULT, PROGRESS, TIMER] if self.random.random() < storm else [PROGRESS, TIMER]
        for kind in kinds:
            choices = [code for code in codes if self.rules.kind(self.g, code) == kind]
            if choices:
                self.take(self.random.choice(choices))
                return True
        return False

    @property
    def done(self) -> bool:
        """Whether everything has ended and is released."""
        return bool(self.rules.flags(self.g, self.m) & GOAL)

    def settle(self, bound: int = 5_000, storm: float = 0.0) -> Run:
        """Run to the end of everything; an AssertionError if that is not reached within `bound` steps."""
        for _ in range(bound):
            if self.done:
                return self
            assert self.advance(storm=storm), "nothing can happen, and not all has ended"
        raise AssertionError(f"not ended after {bound} steps")

    def until(
        self, reached: Callable[[Run], bool], hold: Sequence[int] = (), stuck: Sequence[int] = (), bound: int = 1_000
    ) -> bool:
        """Run until a state is reached; whether it was."""
        for _ in range(bound):
            if reached(self):
                return True
            if not self.advance(hold, stuck=stuck):
                return False
        return False

    def get(self, field: int, r: int = 0) -> int:
        """A field of the controller's record of a request."""
        return self.m[request(self.g, r) + field]

    def count(self, kind: int, r: int | None = None, epoch: int | None = None) -> int:
        """How often an effect happened, of one request or epoch or of all."""
        return sum(e[0] == kind and r in (None, e[1]) and epoch in (None, e[3]) for e in self.events)

    @property
    def terminals(self) -> list[int]:
        return [e for e in range(self.g[EDGES]) if self.g[edge_row(self.g, e) + TO] == self.g[STAGES]]

    def output(self, r: int, e: int) -> list[int]:
        """Chunks of terminal edge `e` that the client of request `r` committed, in order."""
        return [event[4] for event in self.events if event[:3] == (effects.COMMITTED, r, e)]

    def ended(self, r: int, outcome: int) -> None:
        """Assert the one terminal state of a request, and that its output is a prefix."""
        assert self.done
        assert [event[4] for event in self.events if event[:2] == (effects.ENDED, r)] == [outcome]
        assert self.get(OUTCOME, r) == outcome
        for e in self.terminals:
            assert self.output(r, e) == list(range(len(self.output(r, e))))

    def exactly_once(self) -> None:
        """Assert that every request ended well and its client has every chunk once, in order."""
        for r in range(self.g[REQUESTS]):
            self.ended(r, OK)
            for e in self.terminals:
                assert self.output(r, e) == list(range(self.scenario.chunks))


def strikes(scenario: Scenario, *faults: str, runs: int = 3, edits: Sequence[Edit] = ()) -> Iterator[Run]:
    """Runs struck by one fault each: on `runs` schedules, at every moment and place where it is possible.

    Every fault of the list that is possible strikes in a fork of its own; the fork stops right after it.
    """
    wanted = [FAULTS[name] for name in faults]
    for seed in range(runs):
        run = Run(scenario, seed, edits)
        while not run.done:
            for code in run.possible(*wanted):
                hit = run.fork()
                hit.take(code)
                yield hit
            assert run.advance(), "nothing can happen, and not all has ended"
