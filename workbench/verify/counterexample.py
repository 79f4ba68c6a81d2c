"""A counterexample as a trace: the tables of a run in which each step of the explorer takes one millisecond.

The times are model time: a step has a place in an order and no duration, and one millisecond stands for "the next
step". The run says so: its clock is ``model: 1 ms per step`` and its source the explorer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pyarrow as pa

from workbench.twin import Edit, twin
from workbench.units import MS_NS
from workbench.verify import wires
from workbench.verify.explorer import Step, replay
from workbench.verify.journal import Journal
from workbench.verify.model_run import save
from workbench.verify.outcome import Exploration
from workbench.verify.scenario import Scenario
from workbench.verify.story import KINDS, PROPERTIES, Teller, letter, tell
from workbench.verify.survey import WORLD

ARRIVALS = (wires.DATA, wires.DUPLICATE_DATA, wires.REORDER_DATA)
# What the environment does, as the kind of an event row. Faults need no entry.
_EVENTS = {wires.EXPIRE: "deadline", wires.CANCEL: "cancel", wires.FAIL: "error"}


@dataclass(frozen=True, slots=True)
class Counterexample:
    """The shortest way to a violation, as one concrete run.

    Attributes
    ----------
    name : str
        Name of the run.
    scenario : Scenario
        World it happened in.
    steps : tuple of Step
        The run, step by step.
    violated : str
        The sentence that it contradicts; empty for a run that ends well.
    story : str
        The run in words.
    edits : tuple of Edit
        What was changed in the protocol.
    """

    name: str
    scenario: Scenario
    steps: tuple[Step, ...]
    violated: str
    story: str
    edits: tuple[Edit, ...] = ()

    @property
    def title(self) -> str:
        """The property and the number of steps that break it."""
        return f"After {len(self.steps)} steps violated: {self.violated}" if self.violated else self.name

    @property
    def machine(self) -> ModuleType:
        """The rules of the machine as they were changed."""
        changed: ModuleType = twin(WORLD, compiled=False, edits=self.edits).machine
        return changed

    def standstill(self) -> list[str]:
        """What each task waits for before the last step, in words; a task that could go on has no line."""
        if not self.steps:
            return []
        teller, machine = Teller(self.scenario), self.machine
        words = {
            machine.NO_INPUT: "an input", machine.NO_SLOT: "a state object", machine.NO_WINDOW: "credit",
            machine.NO_ROOM: "room under a bound",
        }  # fmt: skip
        g, m = teller.g, list(self.steps[-1].before)
        return [
            f"{letter(r)} at {stage} waits for {words[why]}"
            for r in range(self.scenario.plan.requests)
            for v, stage in enumerate(self.scenario.plan.stages)
            if (why := machine.obstacle(g, m, r, v)) in words
        ]

    def tables(self) -> dict[str, pa.Table]:
        """The run's tables; every sentence of the story is a row of table ``event``."""
        teller = Teller(self.scenario)
        g = teller.g
        book = Journal(self.scenario.plan, g, concurrent=True, obstacle=self.machine.obstacle)
        for number, step in enumerate(self.steps, start=1):
            at_ns = number * MS_NS
            action, r = wires.action_of(g, step.action), wires.request_of(g, step.action)
            place = wires.place_of(g, step.action)
            sentence = teller.action(step.action, step.before)
            if action == wires.SUBMIT:
                book.submitted(at_ns, r, step.before, scheduled_ns=0)
            elif action == wires.CANCEL:
                book.cancelled(at_ns, r)
            elif action == wires.NOTICE_ARRIVES:
                book.told(at_ns, r)
            book.step(at_ns, step.before, step.after, step.effects, arrived=arrival(g, step))
            kind = _EVENTS.get(action, "fault" if action >= wires.EXPIRE else "note")
            where = _stage(self.scenario, action, place)
            whose = None if action in (wires.KILL, wires.UPGRADE, wires.DETECT) else r
            book.event(at_ns, kind, sentence, whose, where)
        end_ns = (len(self.steps) + 1) * MS_NS
        if self.violated:
            book.event(end_ns, "error", f"violated: {self.violated}")
        return book.tables(
            end_ns,
            label=self.name,
            provenance="replayed",
            source=f"explorer:{self.scenario.plan.graph.name}",
            clock="model: 1 ms per step",
            config={"chunks": self.scenario.chunks, "faults": dict(self.scenario.faults), "violated": self.violated},
        )

    def save(self, folder: str | Path) -> Path:
        """Write the run into `folder`, as a new folder of its name that `workbench.open` reads (`model_run.save`)."""
        return save(self.tables(), Path(folder), self.name)


def counterexample(
    name: str, scenario: Scenario, found: Exploration, *, edits: Sequence[Edit] = (), world: str = WORLD
) -> Counterexample:
    """What an exploration found, as a run.

    Parameters
    ----------
    name : str
        Name of the run.
    scenario : Scenario
        World that was explored.
    found : Exploration
        Its result.
    edits : sequence of Edit, keyword-only
        The mutant that was explored.
    world : str, keyword-only
        Module of rules that was explored.
    """
    g, m = scenario.vectors()
    steps = tuple(replay(world, g, m, found.trace, edits=edits))
    violated = PROPERTIES[found.code] if found.code else KINDS.get(found.kind, "")
    story = tell(scenario, found.trace, found.kind, found.code, edits=edits) if violated else ""
    return Counterexample(name, scenario, steps, violated, story, tuple(edits))


def arrival(g: list[int], step: Step) -> tuple[int, int, int, int] | None:
    """Request, edge, epoch and number of the chunk that a step brings to its consumer; None if it brings none."""
    action, r, e = (part(g, step.action) for part in (wires.action_of, wires.request_of, wires.place_of))
    if action not in ARRIVALS:
        return None
    message = step.before[wires.data_wire(g, r, e) + (action == wires.REORDER_DATA)] - 1
    chunks = wires.config(g, wires.CHUNKS)
    return r, e, message // chunks, message % chunks


def _stage(scenario: Scenario, action: int, place: int) -> str:
    """The stage at which an action is felt: the consumer of a data message, the producer for credit."""
    plan = scenario.plan
    if action in (*ARRIVALS, wires.LOSE_DATA):
        return plan.carried[place].target
    if action in (wires.CREDIT, wires.LOSE_CREDIT, wires.DUPLICATE_CREDIT, wires.REORDER_CREDIT, wires.RESEND):
        return plan.carried[place].source
    if action in (wires.REFRESH, wires.RESIZE):
        return plan.carried[place].target
    if action in (wires.SUBMIT, wires.CANCEL, wires.NOTICE_ARRIVES, wires.RECONNECT, wires.ASK_AGAIN):
        return "client"
    if action in (wires.CANCEL_ARRIVES, wires.EXPIRE):
        return "client"
    return plan.stages[min(place, len(plan.stages) - 1)]
