"""The catalog of small worlds holds, uses all that a world can do, and is explored alike by both searches."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from workbench.control.layout import REQUESTS
from workbench.errors import UsageError
from workbench.twin import Edit
from workbench.verify import catalog, wires
from workbench.verify.catalog import CATALOG
from workbench.verify.explorer import explore, replay
from workbench.verify.outcome import Exploration
from workbench.verify.scenario import FAULTS, Scenario
from workbench.verify.story import Teller, tell

WORLD = "workbench.verify.world"
SMALL = [entry.name for entry in catalog.of_size("small")]
MEDIUM = [entry.name for entry in catalog.of_size("medium")]
LARGE = [entry.name for entry in catalog.of_size("large")]
ALL_ACTIONS = set(range(wires.SUBMIT, wires.ACTIONS))

# What each exploration of this file fired, so that the last test need not explore again.
FIRED: dict[str, set[int]] = {}


def run(name: str, **options) -> Exploration:
    g, m = CATALOG[name].scenario.vectors()
    found = explore(WORLD, g, m, **options)
    FIRED[name] = {wires.action_of(g, code) for code in found.fired}
    return found


def story_of(name: str, found: Exploration) -> str:
    return tell(CATALOG[name].scenario, found.trace, found.kind, found.code) if found.kind else ""


@pytest.mark.parametrize("name", SMALL)
def test_a_small_world_holds(name: str) -> None:
    found = run(name, compiled=False, limit_states=60_000)
    assert found.verdict == "holds", story_of(name, found)
    assert found.goals > 0
    used = {FAULTS[fault] for fault, budget in CATALOG[name].scenario.faults.items() if budget}
    assert used <= FIRED[name], "a fault in budget never happens"


@pytest.mark.parametrize("name", MEDIUM)
def test_a_medium_world_holds(name: str) -> None:
    found = run(name, limit_states=2_000_000)
    assert found.verdict == "holds", story_of(name, found)
    assert found.states > 40_000
    assert found.goals > 0


@pytest.mark.soak
@pytest.mark.parametrize("name", LARGE)
def test_a_large_world_holds(name: str) -> None:
    found = run(name, limit_states=20_000_000)
    assert found.verdict == "holds", story_of(name, found)
    assert found.states > 500_000


@pytest.mark.parametrize("name", ["crash-stop", "family"])
def test_both_searches_find_the_same(name: str) -> None:
    plain, quick = run(name, compiled=False), run(name)
    assert plain == quick
    assert sum(plain.levels) == plain.states
    assert plain.depth > 10


def test_nothing_that_can_happen_is_left_out() -> None:
    """Every action of the world fires in some small world, every fault is in some budget."""
    for name in SMALL:
        if name not in FIRED:
            run(name, compiled=False)
    assert set.union(*(FIRED[name] for name in SMALL)) == ALL_ACTIONS
    faults = Counter(fault for entry in CATALOG.values() for fault in entry.scenario.faults)
    assert set(faults) == set(FAULTS)


@pytest.mark.parametrize("name", ["one-stage", "slots", "short-last", "tight"])
def test_symmetry_leaves_out_nothing(name: str) -> None:
    """Without it there are more states, at most as many times as requests have orders, and the same verdict."""
    same = Edit("workbench.verify.symmetry", "if config(g, SYMMETRIC) == 0:", "if True:")
    folded, full = run(name, compiled=False), run(name, compiled=False, edits=[same])
    assert (folded.verdict, full.verdict) == ("holds", "holds")
    assert folded.states < full.states <= 2 * folded.states
    assert folded.depth == full.depth
    assert folded.goals <= full.goals <= 2 * folded.goals


@pytest.mark.parametrize("fault", list(FAULTS))
def test_a_story_tells_of_each_fault(fault: str) -> None:
    """Every way to a place where the fault strikes, as the explorer finds it when it is told to look for that."""
    name = next(name for name in SMALL if fault in CATALOG[name].scenario.faults)
    scenario = CATALOG[name].scenario
    trap = Edit(
        WORLD,
        "    out[0] = 0\n    broken_by =",
        f"    out[0] = 0\n    if action == {FAULTS[fault]}:\n        return ROOM\n    broken_by =",
    )
    g, m = scenario.vectors()
    found = explore(WORLD, g, m, compiled=False, edits=[trap])
    assert found.kind == "step"
    told = tell(scenario, found.trace, found.kind, found.code, edits=[trap]).splitlines()
    line = next(line for line in told if line.startswith(f"{len(found.trace):>3}. "))
    said = re.sub(r" *\d+\. ", "", line, count=1)
    assert said.startswith("CLIENT" if fault == "cancel" else "deadline" if fault == "deadline" else "FAULT")
    assert said == Teller(scenario).action(*_last(scenario, found, trap))


def _last(scenario: Scenario, found: Exploration, trap: Edit) -> tuple[int, tuple[int, ...]]:
    """The last step of a trace as it is told: its action and the state before it."""
    g, m = scenario.vectors()
    step = replay(WORLD, g, m, found.trace, edits=[trap])[-1]
    return step.action, step.before


def test_the_catalog_uses_what_a_scenario_can_say() -> None:
    scenarios = [entry.scenario for entry in CATALOG.values()]
    plans = [scenario.plan for scenario in scenarios]
    assert {plan.attempts for plan in plans} >= {1, 2, 3}
    assert {plan.replayable for plan in plans} == {True, False}
    assert {plan.requests for plan in plans} == {1, 2, 3}
    assert {scenario.chunks for scenario in scenarios} >= {1, 2, 3}
    assert any(scenario.short_last for scenario in scenarios)
    assert any(scenario.parents for scenario in scenarios)
    assert any(plan.tenants > 1 for plan in plans)
    assert any(plan.slots for plan in plans)
    assert {len(plan.stages) for plan in plans} == {1, 2, 3, 4}
    for entry in CATALOG.values():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", entry.name)
        assert entry.size in catalog.SIZES
        assert entry.scenario.vectors()[0][REQUESTS] == entry.scenario.plan.requests


def test_a_name_that_is_none_is_said() -> None:
    with pytest.raises(UsageError, match="Did you mean fork-join"):
        catalog.named("fork-joint")
    with pytest.raises(UsageError, match="--list"):
        catalog.named("zzz")
