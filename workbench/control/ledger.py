"""The ledger: how many bytes and state objects are promised, to whom, and under which bound.

Every (request, edge) has an account of cumulative counters. *Outstanding* is what was reserved and neither trimmed nor
returned. An admitted request keeps a floor of its own on each edge, so what the ledger counts as used is

    used = sum over admitted (request, edge) of max(floor, outstanding)     (0 for one that is not admitted)

and the same per request, tenant and edge. Only `admit` and `reserve` raise a sum, and both look first: that is the
whole proof of ``B(t) <= B_max``. Returns are absolute and merged by maximum, so a repeated or late one changes nothing.
"""

from __future__ import annotations

from workbench.control.admission import (
    EDGE_BYTES,
    FITS,
    REQUEST_BYTES,
    SLOTS_TAKEN,
    TENANT_BYTES,
    TOTAL_BYTES,
    TURN,
)
from workbench.control.layout import (
    CHILDREN,
    CHUNK_BYTES,
    EDGE_MAX,
    EDGES,
    EPOCH,
    FLOOR,
    FLOORED,
    HOLDS_SLOT,
    OUT_AT,
    OUT_COUNT,
    OUTCOME,
    PARENT,
    PHASE,
    REQUEST_MAX,
    REQUEST_USED,
    REQUESTS,
    RESERVED,
    RESERVED_BYTES,
    RETURNED,
    RETURNED_BYTES,
    SLOTS,
    STAGES,
    TENANT,
    TENANT_MAX,
    TOTAL_MAX,
    TRIMMED_BYTES,
    USED,
    account,
    edge_row,
    edge_used,
    request,
    slots_used,
    stage_control,
    stage_row,
    tenant_used,
)
from workbench.control.phases import NEW, RUNNING_PHASE, WAITING_PHASE
from workbench.twin import Vector, rule


@rule
def floor_bytes(g: Vector, e: int) -> int:
    """Bytes that an admitted request keeps on edge `e` whatever others do."""
    row = edge_row(g, e)
    return g[row + FLOOR] * g[row + CHUNK_BYTES]


@rule
def outstanding(m: Vector, at: int) -> int:
    """Bytes of the account at `at` that are reserved, in flight or held downstream."""
    return m[at + RESERVED_BYTES] - m[at + TRIMMED_BYTES] - m[at + RETURNED_BYTES]


@rule
def counted(g: Vector, m: Vector, r: int, e: int) -> int:
    """Bytes that (`r`, `e`) contributes to what is used: the larger of its floor and what is outstanding."""
    at = account(g, r, e)
    return max(m[at + FLOORED] * floor_bytes(g, e), outstanding(m, at))


@rule
def add(g: Vector, m: Vector, r: int, e: int, change: int) -> None:
    """Add `change` bytes to every sum that (`r`, `e`) is part of."""
    at = request(g, r)
    m[USED] += change
    m[tenant_used(m[at + TENANT])] += change
    m[at + REQUEST_USED] += change
    m[edge_used(g, e)] += change


@rule
def promised(g: Vector, m: Vector, r: int) -> bool:
    """Whether request `r` has its floors and slots: by its own admission, or by that of its parent."""
    return m[account(g, r, 0) + FLOORED] == 1


@rule
def comes_along(g: Vector, m: Vector, r: int, child: int) -> bool:
    """Whether `child` is a child of `r` that still runs, or will, and has no promise yet."""
    at = request(g, child)
    return m[at + PARENT] == r + 1 and m[at + OUTCOME] == 0 and not promised(g, m, child)


@rule
def company(g: Vector, m: Vector, r: int) -> int:
    """Number of requests that are promised their floors and slots when `r` is admitted: itself and its children."""
    if promised(g, m, r):
        return 0
    count = 1
    if m[request(g, r) + CHILDREN] > 0:
        for child in range(r + 1, g[REQUESTS]):
            if comes_along(g, m, r, child):
                count += 1
    return count


@rule
def waits(g: Vector, m: Vector, r: int) -> bool:
    """Whether request `r` is not in: nobody has heard of it, or it waits."""
    return m[request(g, r) + PHASE] == NEW or m[request(g, r) + PHASE] == WAITING_PHASE


@rule
def short_of(g: Vector, m: Vector, r: int, empty: int) -> int:
    """What keeps request `r` and those who come along from being admitted, FITS if nothing does.

    The first bound in which their floors and slots do not fit; or TURN, for a child whose parent is not in yet: it
    comes along with its parent. With `empty` = 1 the question is whether they would fit if nothing else were promised.
    """
    at = request(g, r)
    used = 1 - empty
    count = company(g, m, r)
    if count > 0 and used == 1 and m[at + PARENT] > 0 and waits(g, m, m[at + PARENT] - 1):
        return TURN
    total = 0
    for e in range(g[EDGES]):
        total += floor_bytes(g, e)
    if total > g[REQUEST_MAX]:
        return REQUEST_BYTES
    for e in range(g[EDGES]):
        if count > 0 and used * m[edge_used(g, e)] + count * floor_bytes(g, e) > g[edge_row(g, e) + EDGE_MAX]:
            return EDGE_BYTES
    if count > 0 and used * m[tenant_used(m[at + TENANT])] + count * total > g[TENANT_MAX]:
        return TENANT_BYTES
    if count > 0 and used * m[USED] + count * total > g[TOTAL_MAX]:
        return TOTAL_BYTES
    for v in range(g[STAGES]):
        if count > 0 and used * m[slots_used(g, v)] + count > g[stage_row(g, v) + SLOTS]:
            return SLOTS_TAKEN
    return FITS


@rule
def admit(g: Vector, m: Vector, r: int) -> None:
    """Promise request `r` and those who come along their floors and slots; `short_of` must have said FITS.

    All at once: a request that held a slot of one branch while it waited for a slot of the other could deadlock with a
    request that does it the other way round, and parents that hold what their children wait for would wait for ever.
    """
    if m[request(g, r) + CHILDREN] > 0:
        for child in range(r + 1, g[REQUESTS]):
            if comes_along(g, m, r, child):
                promise(g, m, child)
    if not promised(g, m, r):
        promise(g, m, r)


@rule
def promise(g: Vector, m: Vector, r: int) -> None:
    """Promise one request its floor on every edge and a slot at every stage."""
    for e in range(g[EDGES]):
        at = account(g, r, e)
        for field in range(FLOORED):
            m[at + field] = 0
        m[at + FLOORED] = 1
        add(g, m, r, e, floor_bytes(g, e))
    for v in range(g[STAGES]):
        m[stage_control(g, r, v) + HOLDS_SLOT] = 1
        m[slots_used(g, v)] += 1


@rule
def open_to(g: Vector, m: Vector, r: int, epoch: int) -> bool:
    """Whether attempt `epoch` of request `r` may do work now: what a stage asks before it opens or reserves."""
    at = request(g, r)
    return m[at + PHASE] == RUNNING_PHASE and m[at + EPOCH] == epoch


@rule
def can_reserve(g: Vector, m: Vector, r: int, v: int) -> bool:
    """Whether one chunk on every out-edge of stage `v` fits in every bound at once.

    All edges or none: holding room on one edge while waiting for another is how branches deadlock.
    """
    at = request(g, r)
    total = 0
    row = stage_row(g, v)
    for i in range(g[row + OUT_COUNT]):
        e = g[g[row + OUT_AT] + i]
        chunk = g[edge_row(g, e) + CHUNK_BYTES]
        floor = m[account(g, r, e) + FLOORED] * floor_bytes(g, e)
        rise = max(floor, outstanding(m, account(g, r, e)) + chunk) - counted(g, m, r, e)
        if rise > 0 and m[edge_used(g, e)] + rise > g[edge_row(g, e) + EDGE_MAX]:
            return False
        total += rise
    return total == 0 or (
        m[at + REQUEST_USED] + total <= g[REQUEST_MAX]
        and m[tenant_used(m[at + TENANT])] + total <= g[TENANT_MAX]
        and m[USED] + total <= g[TOTAL_MAX]
    )


@rule
def reserve(g: Vector, m: Vector, r: int, e: int) -> None:
    """Reserve one chunk on (`r`, `e`), at its largest size; `can_reserve` must have said yes."""
    before = counted(g, m, r, e)
    at = account(g, r, e)
    m[at + RESERVED] += 1
    m[at + RESERVED_BYTES] += g[edge_row(g, e) + CHUNK_BYTES]
    add(g, m, r, e, counted(g, m, r, e) - before)


@rule
def trim(g: Vector, m: Vector, r: int, e: int, spare_bytes: int) -> None:
    """Give back what a chunk turned out not to need."""
    before = counted(g, m, r, e)
    m[account(g, r, e) + TRIMMED_BYTES] += spare_bytes
    add(g, m, r, e, counted(g, m, r, e) - before)


@rule
def give_back(g: Vector, m: Vector, r: int, e: int, taken: int, taken_bytes: int) -> None:
    """Learn that downstream has taken over or discarded `taken` chunks (`taken_bytes`) since this epoch began.

    The numbers are totals, not increments: an old or repeated message carries no news and returns nothing twice.
    """
    at = account(g, r, e)
    if taken > m[at + RETURNED]:
        before = counted(g, m, r, e)
        m[at + RETURNED] = taken
        m[at + RETURNED_BYTES] = taken_bytes
        add(g, m, r, e, counted(g, m, r, e) - before)


@rule
def return_slot(g: Vector, m: Vector, r: int, v: int) -> None:
    """Take the promise of a slot at stage `v` back, once."""
    at = stage_control(g, r, v)
    if m[at + HOLDS_SLOT] == 1:
        m[at + HOLDS_SLOT] = 0
        m[slots_used(g, v)] -= 1


@rule
def reclaim(g: Vector, m: Vector, r: int) -> None:
    """Take back everything that request `r` holds, floors included: nobody works on this epoch any more."""
    for e in range(g[EDGES]):
        at = account(g, r, e)
        before = counted(g, m, r, e)
        m[at + RETURNED] = m[at + RESERVED]
        m[at + RETURNED_BYTES] = m[at + RESERVED_BYTES] - m[at + TRIMMED_BYTES]
        m[at + FLOORED] = 0
        add(g, m, r, e, counted(g, m, r, e) - before)
    for v in range(g[STAGES]):
        return_slot(g, m, r, v)
