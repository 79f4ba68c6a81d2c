"""The protocol machine under worlds too large to exhaust: Hypothesis chooses the graph, the bounds and every step.

Up to five requests on up to six stages with forks, joins and `whole` edges, streams of up to six chunks, windows up to
four, bounds at random, all faults. The laws are checked after every step; at the end faults stop and everything must
end and be released within a bound of steps.
"""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from tests.control.machines import plans
from tests.verify.driver import Run
from workbench.control import effects
from workbench.control.layout import OUTCOME, REQUESTS
from workbench.control.phases import OK
from workbench.twin import Edit
from workbench.verify import wires
from workbench.verify.interface import FAULT
from workbench.verify.scenario import FAULTS, Scenario


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Large worlds; requests of a family stand beside strangers."""
    chunks = draw(st.integers(1, 6))
    plan = draw(plans(most=6, requests=5, ahead=4))
    if any(edge.kind == "whole" for edge in plan.graph.edges):
        chunks = min(chunks, 4)
    parents: list[int] = []
    if draw(st.booleans()):
        for r in range(plan.requests):
            wish = draw(st.integers(-1, r - 1))
            parents.append(wish if wish >= 0 and parents[wish] < 0 else -1)
    budgets = draw(st.dictionaries(st.sampled_from(sorted(FAULTS)), st.integers(1, 3)))
    return Scenario(plan, chunks, budgets, parents=tuple(parents))


class World(RuleBasedStateMachine):
    """Any enabled action may happen next; faults are chosen apart so that they are not the most frequent thing."""

    edits: tuple[Edit, ...] = ()
    steps = 0

    @initialize(scenario=scenarios(), seed=st.integers(0, 1 << 16))
    def begin(self, scenario: Scenario, seed: int) -> None:
        self.run = Run(scenario, seed, self.edits)

    def choose(self, data: st.DataObject, fault: bool) -> None:
        codes = [code for code in self.run.enabled() if (self.run.rules.kind(self.run.g, code) == FAULT) == fault]
        if codes:
            self.run.take(codes[data.draw(st.integers(0, len(codes) - 1))])
            World.steps += 1

    @rule(data=st.data())
    def go_on(self, data: st.DataObject) -> None:
        self.choose(data, fault=False)

    @rule(steps=st.integers(1, 40))
    def go_far(self, steps: int) -> None:
        """Many steps at once, so that examples get deep: forty rules would hardly start five requests."""
        for _ in range(steps):
            World.steps += self.run.advance()

    @precondition(lambda self: any(self.run.m[at] for at in budgets(self.run)))
    @rule(data=st.data())
    def harm(self, data: st.DataObject) -> None:
        self.choose(data, fault=True)

    def teardown(self) -> None:
        if not hasattr(self, "run"):
            return
        run = self.run.settle()
        for r in range(run.g[REQUESTS]):
            run.ended(r, run.get(OUTCOME, r))
            if run.get(OUTCOME, r) == OK:
                assert all(run.output(r, e) == list(range(run.scenario.chunks)) for e in run.terminals)
        assert run.count(effects.ENDED) == run.g[REQUESTS]


def budgets(run: Run) -> range:
    """Addresses of what is left of every budget."""
    at = wires.config(run.g, wires.BUDGET_AT)
    return range(at, at + wires.FAULTS)


SMALL = settings(max_examples=12, stateful_step_count=12)


def test_large_worlds_keep_the_laws_and_end() -> None:
    World.steps = 0
    run_state_machine_as_test(World, settings=SMALL)
    assert World.steps > 200


@pytest.mark.soak
def test_many_large_worlds_keep_the_laws_and_end() -> None:
    run_state_machine_as_test(World, settings=settings(max_examples=400, stateful_step_count=40))


def broken(edit: Edit) -> type[World]:
    """The same world on a protocol that is wrong."""
    return type("Broken", (World,), {"edits": (edit,)})


MUTANTS = [
    Edit("workbench.control.ledger", "m[at + RETURNED_BYTES] = taken_bytes", "m[at + RETURNED_BYTES] += taken_bytes"),
    Edit(
        "workbench.control.machine",
        "    give_slot_up(g, m, out, r, v)\n    m[at + STATUS] = STOPPED",
        "    m[at + STATUS] = STOPPED",
    ),
    Edit("workbench.control.lifecycle", "    ledger.reclaim(g, m, r)\n", ""),
]


@pytest.mark.parametrize("edit", MUTANTS, ids=["double-return", "forgotten-slot", "forgotten-reclaim"])
def test_a_wrong_protocol_is_found(edit: Edit) -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(broken(edit), settings=settings(SMALL, max_examples=30, phases=[Phase.generate]))
