from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.verify import edge_world as edge
from tests.verify import join_world as join
from workbench.errors import UsageError
from workbench.twin import Edit, twin
from workbench.verify import random_walk
from workbench.verify.explorer import explore, replay
from workbench.verify.walker import walk

EDGE, JOIN = "tests.verify.edge_world", "tests.verify.join_world"

# Variants of the edge that are wrong, as the explorer finds them.
WRONG = [
    {"absolute": 0, "loss": 2, "dup": 0},
    {"absolute": 0, "loss": 0, "dup": 1},
    {"absolute": 0, "loss": 0, "dup": 0, "kill": 1, "fence": 0},
    {"probe": 0},
    {"dedup": 0},
]


def run(world: str, g: list[int], **options):
    """The compiled walk, after the plain one was found equal."""
    module = edge if world == EDGE else join
    found = walk(world, g, module.initial(g), **options)
    assert walk(world, g, module.initial(g), compiled=False, **options) == found
    return found


@pytest.mark.parametrize("variant", WRONG)
def test_the_walker_finds_what_the_explorer_finds(variant) -> None:
    """And its trace, once shrunk, is no longer than the shortest: these bugs have one cause each."""
    g = edge.config(**variant)
    exact, found = explore(EDGE, g, edge.initial(g)), run(EDGE, g)
    assert (found.verdict, found.kind, found.code) == ("violated", exact.kind, exact.code)
    assert len(found.trace) == len(exact.trace) <= found.taken


@pytest.mark.parametrize("variant", WRONG[1:3])
def test_a_walk_repeats_from_its_seed(variant) -> None:
    g = edge.config(**variant)
    first = run(EDGE, g, seed=7)
    again = run(EDGE, g, seed=first.seed, steps=1)
    assert (again.runs, again.trace, again.seed) == (1, first.trace, first.seed)
    assert run(EDGE, g, seed=first.seed + 1).seed > first.seed


def test_a_right_edge_survives_and_the_budget_is_kept() -> None:
    found = run(EDGE, edge.config(k=5, w=3, loss=2, dup=2, kill=1, cancel=1), steps=20_000, longest=50)
    assert (found.verdict, found.trace, found.seed) == ("nothing found", (), -1)
    assert 20_000 <= found.steps < 20_000 + 200
    assert found.runs > 400


def test_symmetric_requests_are_walked_as_they_are() -> None:
    """A trace of the walker is a concrete run: request 0 stays request 0."""
    g = join.config(pool=3, chunks=3, requests=2)
    found = run(JOIN, g)
    steps = replay(JOIN, g, join.initial(g), found.trace, folded=False)
    assert found.kind == "deadlock"
    assert [step.action for step in steps] == list(found.trace)
    assert join.actions(g, list(steps[-1].after), [0] * 256) == 0


def test_faults_stop_before_the_world_must_end() -> None:
    """A client that goes away would free the pool, but after healing none does."""
    found = run(JOIN, join.config(cancel=1), longest=20)
    assert found.kind == "deadlock"
    assert join.GO_AWAY + 1 not in found.trace


def test_a_circle_is_a_silent_hang() -> None:
    found = run(JOIN, join.config(spin=1, cancel=1), longest=20, bound=500)
    assert (found.kind, found.code) == ("silent-hang", 0)


def test_a_bound_is_a_bound() -> None:
    """Six chunks take 18 steps: from the start they fit into 18, not into 17."""
    g = join.config(pool=7)
    assert run(JOIN, g, longest=1, bound=18).kind == ""
    assert run(JOIN, g, longest=1, bound=16).kind == "silent-hang"


def test_a_state_that_must_do_without_timers_is_not_helped_by_one() -> None:
    """Without the flag the deadline frees the pool."""
    assert run(JOIN, join.config(deadline=1), longest=20).kind == "only-by-timeout"
    free = Edit(JOIN, "return UNTIMED", "return 0")
    assert run(JOIN, join.config(deadline=1), longest=20, steps=5_000, edits=[free]).kind == ""


def test_a_broken_step_ends_the_trace() -> None:
    overdraw = Edit(JOIN, "if a < g[CHUNKS] and taken < g[POOL]", "if a < g[CHUNKS] and taken <= g[POOL]")
    found = run(JOIN, join.config(), edits=[overdraw])
    assert (found.kind, found.code, len(found.trace)) == ("step", join.OVERDRAWN, 4)


def test_what_is_wrong_from_the_start_needs_no_step() -> None:
    wrong = Edit(JOIN, "    return 0\n\n\n@rule\ndef flags", "    return 5\n\n\n@rule\ndef flags")
    found = walk(JOIN, join.config(), [0] * 4, edits=[wrong], compiled=False)
    assert (found.kind, found.code, found.trace, found.runs) == ("state", 5, (), 1)


@pytest.mark.parametrize("compiled", [True, False])
def test_a_world_where_nothing_happens_ends(compiled: bool) -> None:
    g = join.config(chunks=0)
    assert walk(JOIN, g, join.initial(g), steps=50, compiled=compiled).runs == 50


@pytest.mark.parametrize("option", ["seed", "steps", "longest", "bound"])
def test_an_option_out_of_range_is_named(option: str) -> None:
    with pytest.raises(UsageError, match=option):
        walk(JOIN, join.config(), [0] * 4, **{option: -1})


@given(st.integers(0, 1 << 32), st.integers(0, 1 << 22), st.integers(1, 1 << 20))
def test_draws_are_equal_in_both_executions_and_in_range(seed: int, salt: int, below: int) -> None:
    fast = twin("workbench.verify.random_walk")
    state = random_walk.mixed(seed, salt)
    assert state == fast.mixed(seed, salt)
    assert 0 <= state < 1 << 32
    plain, array = [max(1, state)], np.array([max(1, state)])
    for _ in range(5):
        drawn = random_walk.draw(plain, below)
        assert drawn == fast.draw(array, below)
        assert 0 <= drawn < below
        assert 0 < plain[0] == array[0] < 1 << 32
    for fault in (True, False):
        assert random_walk.weight(seed, salt, fault) == fast.weight(seed, salt, fault)


def test_draws_are_spread_evenly() -> None:
    """Chi-square of 16 cells, one stream and one draw of many streams: below its 99.99 % quantile of 44.3."""
    state = [1]
    streams = [[max(1, random_walk.mixed(seed, 3))] for seed in range(4_000)]
    for drawn in (
        [random_walk.draw(state, 16) for _ in range(4_000)],
        [random_walk.draw(stream, 16) for stream in streams],
        [random_walk.mixed(seed, 5) >> 28 for seed in range(4_000)],
    ):
        counts = Counter(drawn)
        assert sum((counts[cell] - 250) ** 2 / 250 for cell in range(16)) < 44.3


def test_a_quarter_of_the_faults_is_absent() -> None:
    weights = Counter(random_walk.weight(seed, family, True) for seed in range(200) for family in range(20))
    assert set(weights) == {0, 1, 4, 16}
    assert 800 < weights[0] < 1_200


@pytest.mark.soak
def test_ten_million_steps_of_a_right_edge_find_nothing() -> None:
    g = edge.config(k=6, w=3, loss=3, dup=2, kill=2, cancel=1)
    found = walk(EDGE, g, edge.initial(g), steps=10_000_000)
    assert (found.kind, found.steps >= 10_000_000) == ("", True)
