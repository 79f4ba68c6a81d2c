"""A survey visits what the explorer visits; a peak is the true maximum, and its trace leads there."""

from __future__ import annotations

import pytest

from workbench.control.layout import USED
from workbench.errors import UsageError
from workbench.verify.explorer import explore, replay
from workbench.verify.scenario import Scenario, bounded, chain
from workbench.verify.survey import WORLD, peak, transitions

WORLDS = {
    "one": Scenario(bounded(chain(1), 1), 2),
    "pair": Scenario(bounded(chain(1), 2), 1),
    "cancel": Scenario(bounded(chain(1), 1), 2, {"cancel": 1, "lose-data": 1}),
    "two-stages": Scenario(bounded(chain(2), 1, window=2, spare_bytes=1), 2),
}


def promised(g: list[int], m: list[int]) -> int:
    return m[USED]


@pytest.mark.parametrize("name", WORLDS)
def test_it_visits_every_transition_that_the_explorer_visits(name: str) -> None:
    g, m = WORLDS[name].vectors()
    steps = list(transitions(g, m))
    found = explore(WORLD, g, m, compiled=False)
    assert len(steps) == found.transitions
    assert len({step.number for step in steps} | {0}) + found.goals >= found.states
    actions: dict[int, int] = {}
    for step in steps:
        actions[step.action] = actions.get(step.action, 0) + 1
    assert actions == found.fired


@pytest.mark.parametrize("name", WORLDS)
def test_the_peak_is_the_maximum_and_its_trace_leads_there(name: str) -> None:
    g, m = WORLDS[name].vectors()
    found = peak(g, m, promised)
    assert found.states == explore(WORLD, g, m, compiled=False).states
    assert found.value == max(max(step.before[USED], step.after[USED]) for step in transitions(g, m))
    steps = replay(WORLD, g, m, found.trace)
    assert steps[-1].after[USED] == found.value
    assert all(step.before[USED] < found.value for step in steps)


@pytest.mark.parametrize(("requests", "window", "chunks"), [(1, 1, 3), (1, 2, 3), (2, 1, 2), (2, 2, 2), (1, 3, 2)])
def test_without_a_shared_bound_the_peak_is_what_all_windows_hold(requests: int, window: int, chunks: int) -> None:
    plan = bounded(chain(1), requests, window=window, spare_bytes=100)
    g, m = Scenario(plan, chunks).vectors()
    assert peak(g, m, promised).value == requests * min(window, chunks)


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_under_a_shared_bound_the_peak_is_the_bound(bound: int) -> None:
    g, m = Scenario(bounded(chain(1), 2, window=2, total_bytes=bound), 2).vectors()
    assert peak(g, m, promised).value == bound


def test_a_survey_that_would_be_partial_is_refused() -> None:
    g, m = WORLDS["pair"].vectors()
    with pytest.raises(UsageError, match="at most 10 states"):
        list(transitions(g, m, limit_states=10))
