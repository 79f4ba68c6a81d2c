from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.machines import Machine
from workbench.control import objects
from workbench.control.layout import EPOCH, GENERATION, OWNER, SLOTS, Plan, request, revision_of, slot, stage_row
from workbench.control.objects import FOREIGN, KEEP, NONE, OLD_MODEL, ORPHANED, RECLAIM, STALE, VALID
from workbench.verify.scenario import chain


def arena(slots: int = 2, requests: int = 3, tenants: int = 2) -> Machine:
    return Machine(Plan(chain(1), requests, tenants, slots={"s0": slots}))


@given(st.data())
def test_a_handle_reaches_its_own_object_or_nothing(data: st.DataObject) -> None:
    """Against a model: a handle is valid exactly while what it was given for is there, under the same model."""
    box = arena()
    alive: dict[int, tuple[int, int, int]] = {}
    handles: list[tuple[int, int, int, int, int]] = []
    given_out = 0
    for _ in range(data.draw(st.integers(1, 30))):
        act = data.draw(st.sampled_from(["allocate", "release", "lose", "upgrade"]))
        if act == "allocate":
            i = box(objects.free, 0)
            assert i == min(set(range(2)) - set(alive), default=NONE)
            if i != NONE:
                r, epoch = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))
                box(objects.allocate, r, 0, epoch, i)
                generation, model = box.m[slot(box.g, 0, i) + GENERATION], box.m[revision_of(box.g, 0)]
                handles.append((given_out, r, epoch, i, generation))
                alive[i] = (given_out, generation, model)
                given_out += 1
        elif act == "release" and alive:
            i = data.draw(st.sampled_from(sorted(alive)))
            box(objects.release, 0, i)
            del alive[i]
        elif act == "lose":
            box(objects.lose_all, 0)
            alive.clear()
        elif act == "upgrade":
            box.m[revision_of(box.g, 0)] += 1
        for number, r, epoch, i, generation in handles:
            there = alive.get(i)
            found = box(objects.check, r, 0, epoch, i, generation)
            if there is None or there[0] != number:
                assert found == STALE
            else:
                assert found == (VALID if there[2] == box.m[revision_of(box.g, 0)] else OLD_MODEL)


def test_each_part_of_a_handle_is_checked() -> None:
    """Requests 0 and 2 are of one tenant, request 1 of another."""
    box = arena()
    box(objects.allocate, 0, 0, 1, 0)
    assert box(objects.check, 0, 0, 1, 0, 0) == VALID
    assert box(objects.check, 0, 0, 2, 0, 0) == STALE
    assert box(objects.check, 0, 0, 1, 0, 1) == STALE
    assert box(objects.check, 2, 0, 1, 0, 0) == FOREIGN
    assert box(objects.check, 1, 0, 1, 0, 0) == FOREIGN
    box.m[revision_of(box.g, 0)] += 1
    assert box(objects.check, 0, 0, 1, 0, 0) == OLD_MODEL


def test_the_tenant_of_an_object_is_checked_apart_from_its_owner() -> None:
    box = arena()
    box(objects.allocate, 0, 0, 0, 0)
    box.m[request(box.g, 0) + objects.TENANT] = 1
    assert box(objects.check, 0, 0, 0, 0, 0) == FOREIGN


def test_a_dead_worker_leaves_no_valid_handle() -> None:
    """Generations go on counting in its successor; free slots keep theirs."""
    box = arena()
    box(objects.allocate, 0, 0, 0, 0)
    box(objects.lose_all, 0)
    assert [box.m[slot(box.g, 0, i) + GENERATION] for i in range(box.g[stage_row(box.g, 0) + SLOTS])] == [1, 0]
    box(objects.allocate, 0, 0, 0, 0)
    assert box(objects.check, 0, 0, 0, 0, 0) == STALE
    assert box(objects.check, 0, 0, 0, 0, 1) == VALID


# owned, dependants, lease until, now, owner ended, owner's epoch now -> what may be done. The owner is of epoch 1.
RECLAMATION = [
    (False, 0, 0, 9, 1, 1, KEEP),  # a free slot has nothing to reclaim
    (True, 0, 5, 4, 0, 1, KEEP),
    (True, 0, 5, 5, 0, 1, KEEP),  # the last instant of the lease belongs to it
    (True, 0, 5, 6, 0, 1, ORPHANED),  # a lease that ran out frees nothing: it asks
    (True, 0, 5, 4, 1, 1, RECLAIM),  # the owner's end frees, lease or not
    (True, 0, 5, 6, 1, 1, RECLAIM),
    (True, 0, 5, 4, 0, 2, RECLAIM),  # an epoch that is over is an owner that has ended
    (True, 1, 5, 6, 1, 2, KEEP),  # never under a launch or a consumer
    (True, 1, 5, 6, 0, 1, KEEP),
    (True, 0, 5, 1 << 61, 0, 1, ORPHANED),  # a clock that jumps does not free either
    (True, 0, 5, -(1 << 61), 0, 1, KEEP),
]


@pytest.mark.parametrize(("owned", "dependants", "lease", "now", "ended", "epoch", "expected"), RECLAMATION)
def test_what_may_be_reclaimed(
    owned: bool, dependants: int, lease: int, now: int, ended: int, epoch: int, expected: int
) -> None:
    box = arena()
    if owned:
        box(objects.allocate, 1, 0, 1, 0)
    box.m[request(box.g, 1) + EPOCH] = epoch
    before = list(box.m)
    assert box(objects.reclaimable, 0, 0, dependants, lease, now, ended) == expected
    assert box.m == before


def test_a_released_slot_names_nobody() -> None:
    box = arena()
    empty = box.m[slot(box.g, 0, 1) : slot(box.g, 0, 2)]
    box(objects.allocate, 2, 0, 3, 1)
    assert box.m[slot(box.g, 0, 1) + OWNER] == 3
    box(objects.release, 0, 1)
    empty[GENERATION] = 1
    assert box.m[slot(box.g, 0, 1) : slot(box.g, 0, 2)] == empty
