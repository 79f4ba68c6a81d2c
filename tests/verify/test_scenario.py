"""Worlds that cannot be explored are refused before anything is searched."""

from __future__ import annotations

from typing import Any

import pytest

from workbench.control.effects import room
from workbench.control.layout import Plan
from workbench.errors import UsageError
from workbench.verify.explorer import explore
from workbench.verify.interface import MAX_EFFECTS
from workbench.verify.scenario import MAX_WINDOW, Scenario, bounded, chain, graph_named, own_world


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chunks": 0}, "chunks: expected an integer from 1 to 8, found 0"),
        ({"chunks": True}, "chunks: expected an integer"),
        ({"faults": {"kil": 1}}, "expected faults among"),
        ({"faults": {"kill": -1}}, "budget of kill: expected an integer from 0"),
        ({"faults": {"kill": True}}, "budget of kill: expected an integer"),
        ({"faults": ["kill"]}, "expected a table of faults"),
        ({"coarse": 2}, "coarse: expected true or false, found 2"),
        ({"short_last": "no"}, "short_last: expected true or false, found 'no'"),
        ({"short_last": True}, "expected chunks of at least 2 bytes"),
        ({"plan": Plan(chain(2), 1)}, "edge s0>s1, window_bytes: expected an integer from 1 to 1"),
        ({"plan": bounded(chain(2), 1, window=1 << 40)}, f"window_chunks: expected an integer from 1 to {MAX_WINDOW}"),
        ({"plan": bounded(chain(2), 100)}, "expected a small world, found 100 requests"),
        ({"plan": bounded(chain(60), 1), "chunks": 8}, "Take fewer requests"),
    ],
)
def test_a_world_that_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        Scenario(**{"plan": bounded(chain(2), 1), **change})
    assert message in str(caught.value)


def test_the_largest_world_has_room_for_what_a_step_does() -> None:
    def made(requests: int) -> Scenario:
        return Scenario(bounded(chain(1), requests))

    most = max(r for r in range(1, 40) if room(Plan(chain(1), r).configuration()) <= MAX_EFFECTS)
    assert made(most).vectors()
    with pytest.raises(UsageError, match="a small world"):
        made(most + 1)


def test_the_bound_on_windows_takes_nothing_away() -> None:
    """The widest windows are refused by the search itself: their credit messages leave what a byte holds."""
    scenario = Scenario(bounded(chain(1), 1, window=MAX_WINDOW), chunks=8)
    g, m = scenario.vectors()
    with pytest.raises(UsageError, match="state values from -128 to 127"):
        explore("workbench.verify.world", g, m, compiled=False)


@pytest.mark.parametrize("name", ["", "chain-", "chain-x", "chain-²", "chain-" + "9" * 5_000, "../chain-2"])
def test_a_graph_of_another_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="expected a graph among"):
        graph_named(name)


def test_a_world_of_no_requests_is_refused() -> None:
    with pytest.raises(UsageError, match="requests: expected an integer from 1"):
        own_world(chain(1), requests=0)
