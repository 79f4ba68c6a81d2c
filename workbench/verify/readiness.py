"""Whether a stage could begin its next task, worked out apart from the machine: the law *prompt* compares the two."""

from __future__ import annotations

from workbench.control.layout import (
    CHUNK_BYTES,
    EDGE_MAX,
    EPOCH,
    FLOOR,
    IN_AT,
    IN_COUNT,
    LAST,
    LIMIT,
    LIMIT_BYTES,
    OUT_AT,
    OUT_COUNT,
    OWNER,
    PHASE,
    READY,
    RECEIVED,
    REQUEST_MAX,
    REQUEST_USED,
    RESERVED_BYTES,
    RETURNED_BYTES,
    RUNNING,
    SENT,
    SENT_BYTES,
    SLOT,
    SLOTS,
    STAGE_EPOCH,
    STATUS,
    TAKEN,
    TAKEN_KNOWN,
    TENANT,
    TENANT_MAX,
    TOTAL_MAX,
    TRIMMED_BYTES,
    USED,
    WHOLE,
    account,
    edge_row,
    edge_used,
    receiver,
    request,
    sender,
    slot,
    stage,
    stage_row,
    tenant_used,
)
from workbench.control.phases import OPEN, RUNNING_PHASE
from workbench.twin import Vector, rule
from workbench.verify.wires import CHUNKS, config


@rule
def may_go(g: Vector, m: Vector, r: int, v: int) -> bool:
    """Whether request `r` has at stage `v` all that its next task needs: inputs, a state slot, credit and room."""
    at, own, row = stage(g, r, v), request(g, r), stage_row(g, v)
    if m[at + STATUS] != OPEN or m[at + LAST] == 1 or m[at + READY] == 1 or m[at + RUNNING] == 1:
        return False
    if m[own + PHASE] != RUNNING_PHASE or m[own + EPOCH] != m[at + STAGE_EPOCH]:
        return False
    for i in range(g[row + IN_COUNT]):
        e = g[g[row + IN_AT] + i]
        end = receiver(g, r, e)
        needed = config(g, CHUNKS) if g[edge_row(g, e) + WHOLE] == 1 else m[end + TAKEN] + 1
        if m[end + RECEIVED] < needed:
            return False
    free = m[at + SLOT] >= 0
    for i in range(g[row + SLOTS]):
        free = free or m[slot(g, v, i) + OWNER] == 0
    return free and has_room(g, m, r, v)


@rule
def has_room(g: Vector, m: Vector, r: int, v: int) -> bool:
    """Whether credit and every bound allow one largest chunk on each out-edge at once."""
    own, row, total = request(g, r), stage_row(g, v), 0
    for i in range(g[row + OUT_COUNT]):
        e = g[g[row + OUT_AT] + i]
        end, at, chunk = sender(g, r, e), account(g, r, e), g[edge_row(g, e) + CHUNK_BYTES]
        credit = m[end + SENT] < m[end + LIMIT] and m[end + SENT_BYTES] + chunk <= m[end + LIMIT_BYTES]
        if not credit and m[end + SENT] > m[end + TAKEN_KNOWN]:
            return False
        held = m[at + RESERVED_BYTES] - m[at + TRIMMED_BYTES] - m[at + RETURNED_BYTES]
        # What lies within the floor is promised already.
        more = max(0, min(chunk, held + chunk - g[edge_row(g, e) + FLOOR] * chunk))
        if more > 0 and m[edge_used(g, e)] + more > g[edge_row(g, e) + EDGE_MAX]:
            return False
        total += more
    if total == 0:
        return True
    tenant = m[tenant_used(m[own + TENANT])]
    return total <= min(g[REQUEST_MAX] - m[own + REQUEST_USED], g[TENANT_MAX] - tenant, g[TOTAL_MAX] - m[USED])
