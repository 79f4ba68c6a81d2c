"""State objects: KV caches, vocoder states and buffers that live as long as a request works at a stage.

A handle is (slot, generation). The generation rises when a slot is given up, so a handle kept too long is *stale* and
is refused instead of reaching the next owner's state. A lease only says when to look whether the owner is still there;
it never frees anything by itself, since clocks step and processes pause. What frees is the owner's end: its stream
ended, its epoch was stopped, or its worker is gone, and no launch uses the object any more.
"""

from __future__ import annotations

from workbench.control.layout import (
    EPOCH,
    GENERATION,
    OWNER,
    OWNER_EPOCH,
    SLOT_REVISION,
    SLOT_TENANT,
    SLOTS,
    TENANT,
    request,
    revision_of,
    slot,
    stage_row,
)
from workbench.twin import Vector, rule

NONE = -1

# What an access or a reclamation finds.
VALID, STALE, FOREIGN, OLD_MODEL = range(4)
KEEP, ORPHANED, RECLAIM = range(3)


@rule
def free(g: Vector, m: Vector, v: int) -> int:
    """The lowest free slot of stage `v`; NONE if there is none."""
    for i in range(g[stage_row(g, v) + SLOTS]):
        if m[slot(g, v, i) + OWNER] == 0:
            return i
    return NONE


@rule
def allocate(g: Vector, m: Vector, r: int, v: int, epoch: int, i: int) -> None:
    """Make (`r`, `epoch`) the owner of slot `i`, which is free."""
    at = slot(g, v, i)
    m[at + OWNER] = r + 1
    m[at + OWNER_EPOCH] = epoch
    m[at + SLOT_TENANT] = m[request(g, r) + TENANT]
    m[at + SLOT_REVISION] = m[revision_of(g, v)]


@rule
def check(g: Vector, m: Vector, r: int, v: int, epoch: int, i: int, generation: int) -> int:
    """VALID, or why request `r` in `epoch` may not touch slot `i` with a handle of this generation."""
    at = slot(g, v, i)
    if m[at + GENERATION] != generation or m[at + OWNER_EPOCH] != epoch:
        return STALE
    if m[at + OWNER] != r + 1 or m[at + SLOT_TENANT] != m[request(g, r) + TENANT]:
        return FOREIGN
    if m[at + SLOT_REVISION] != m[revision_of(g, v)]:
        return OLD_MODEL
    return VALID


@rule
def release(g: Vector, m: Vector, v: int, i: int) -> None:
    """Give the slot up; every handle to it is stale from now on."""
    at = slot(g, v, i)
    m[at + OWNER] = 0
    m[at + OWNER_EPOCH] = 0
    m[at + SLOT_TENANT] = 0
    m[at + SLOT_REVISION] = 0
    m[at + GENERATION] += 1


@rule
def reclaimable(
    g: Vector, m: Vector, v: int, i: int, dependants: int, lease_until_ns: int, now_ns: int, ended: int
) -> int:
    """What may be done about slot `i` of stage `v` now: KEEP, ORPHANED (ask the owner), or RECLAIM.

    Parameters
    ----------
    dependants : int
        Launches and consumers that still use the object.
    lease_until_ns, now_ns : int
        End of the lease and time now, on one clock.
    ended : int
        1 if the controller says that the owner's epoch is over.
    """
    at = slot(g, v, i)
    if m[at + OWNER] == 0 or dependants > 0:
        return KEEP
    if ended == 1 or m[at + OWNER_EPOCH] != m[request(g, m[at + OWNER] - 1) + EPOCH]:
        return RECLAIM
    if now_ns > lease_until_ns:
        return ORPHANED
    return KEEP


@rule
def lose_all(g: Vector, m: Vector, v: int) -> None:
    """The worker of stage `v` died with every state it kept.

    Generations go on counting in its successor (the controller keeps them), so handles from before stay stale.
    """
    for i in range(g[stage_row(g, v) + SLOTS]):
        if m[slot(g, v, i) + OWNER] != 0:
            release(g, m, v, i)
