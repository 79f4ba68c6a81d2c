"""The seeded walker on worlds of the protocol machine too large to exhaust: faults at random rates, then healing."""

from __future__ import annotations

import pytest

from tests.verify.driver import WORLD
from workbench.control.effects import EFFECT_SIZE, room
from workbench.control.layout import EDGES
from workbench.graph import CLIENT, Edge, Stage, StageGraph
from workbench.twin import Edit
from workbench.verify.explorer import replay
from workbench.verify.interface import MAX_EFFECTS
from workbench.verify.scenario import FAULTS, Scenario, bounded, chain
from workbench.verify.walker import walk


def braid() -> StageGraph:
    """Two roots, a fork at the first, a join of both roots, and two outputs, one behind another join."""
    pairs = [
        (CLIENT, "a"),
        (CLIENT, "b"),
        ("a", "c"),
        ("a", "d"),
        ("b", "d"),
        ("c", "e"),
        ("d", "e"),
        ("d", CLIENT),
        ("e", CLIENT),
    ]
    joins = {"d": ("a>d", "b>d"), "e": ("c>e", "d>e")}
    stages = (Stage(CLIENT, "client"), *(Stage(name, "ar", join=joins.get(name, ())) for name in "abcde"))
    return StageGraph("braid", "two joins", "test", stages, tuple(Edge(u, v, "tokens", "stream") for u, v in pairs))


ALL = dict.fromkeys(FAULTS, 3)
SHARED = {"tenants": 2, "tenant_bytes": 7, "request_bytes": 5, "total_bytes": 10, "waiting": 2}
WORLDS = {
    "long": Scenario(bounded(chain(5), 3, window=3, spare_bytes=4, attempts=4), 4, ALL),
    "braid": Scenario(bounded(braid(), 3, window=2, spare_bytes=2, attempts=4, slots={"d": 2}), 3, ALL),
    "tenants": Scenario(bounded(chain(3), 4, window=2, attempts=3, **SHARED), 3, ALL, tenants=(0, 1, 0, 1)),
    "family": Scenario(
        bounded(braid(), 3, chunk_bytes=2, attempts=3, replayable=False), 2, ALL, short_last=True, parents=(-1, 0, 0)
    ),
}


@pytest.mark.parametrize("name", WORLDS)
def test_the_effects_of_the_largest_step_fit(name: str) -> None:
    """A compiled walk writes past a short list without a word."""
    g, _ = WORLDS[name].vectors()
    assert room(g) + g[EDGES] <= MAX_EFFECTS
    assert room(g) % EFFECT_SIZE == 1


@pytest.mark.parametrize("name", WORLDS)
def test_a_walk_through_a_large_world_finds_nothing(name: str) -> None:
    found = walk(WORLD, *WORLDS[name].vectors(), steps=150_000, longest=600)
    assert (found.kind, found.code, found.trace) == ("", 0, ())
    assert found.runs > 100


def test_the_walk_is_the_same_in_both_executions() -> None:
    vectors = WORLDS["tenants"].vectors()
    plain, fast = (walk(WORLD, *vectors, steps=1_500, longest=300, compiled=compiled) for compiled in (False, True))
    assert plain == fast


@pytest.mark.soak
@pytest.mark.parametrize("name", WORLDS)
def test_ten_million_steps_find_nothing(name: str) -> None:
    found = walk(WORLD, *WORLDS[name].vectors(), steps=10_000_000, longest=2_000)
    assert (found.kind, found.code, found.trace) == ("", 0, ())
    assert found.steps >= 10_000_000


MUTANTS = {
    "return-of-another-epoch": Edit("workbench.control.machine", "OPEN or m[at + STAGE_EPOCH] != epoch:", "OPEN:"),
    "no-resend": Edit("workbench.control.machine", "m[end + TAKEN_KNOWN] <= seq < m[end + SENT]", "False"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_protocol_is_found(name: str) -> None:
    """And the shrunk trace shows it again, step by step."""
    edits = [MUTANTS[name]]
    plan = bounded(chain(2), 2, window=2, spare_bytes=2, attempts=3)
    vectors = Scenario(plan, 3, {"kill": 2, "lose-data": 2, "cancel": 1}).vectors()
    found = walk(WORLD, *vectors, steps=200_000, longest=200, bound=1_000, compiled=False, edits=edits)
    assert found.verdict == "violated"
    assert len(found.trace) <= found.taken
    steps = replay(WORLD, *vectors, found.trace, edits=edits, folded=False)
    assert [step.action for step in steps] == list(found.trace)
    assert steps[-1].code == (found.code if found.kind == "step" else 0)
