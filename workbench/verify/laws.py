"""The properties that must hold, each checked against witnesses that the protocol machine does not see."""

from __future__ import annotations

from workbench.control import ledger
from workbench.control.effects import ADMITTED, COMMITTED, ENDED, LAUNCHED, RECORDED
from workbench.control.layout import (
    CHUNK_BYTES,
    CLIENT_EPOCH,
    EDGE_MAX,
    EDGES,
    EPOCH,
    FROM,
    GENERATION,
    HOLDS_SLOT,
    NOTICE,
    OUTCOME,
    OWNER,
    PHASE,
    READY,
    REPLAYABLE,
    REQUEST_MAX,
    REQUEST_USED,
    REQUESTS,
    RESERVED,
    RETURNED,
    REVISION,
    RUNNING,
    SENT,
    SLOT,
    SLOT_GENERATION,
    SLOT_TENANT,
    SLOTS,
    STAGE_EPOCH,
    STAGES,
    STATUS,
    TAKEN,
    TENANT,
    TENANT_MAX,
    TENANTS,
    TO,
    TOTAL_MAX,
    USED,
    account,
    client,
    edge_row,
    edge_used,
    receiver,
    request,
    sender,
    slot,
    slots_used,
    stage,
    stage_control,
    stage_row,
    tenant_used,
)
from workbench.control.phases import CLOSED_PHASE, DRAINING, OPEN, RUNNING_PHASE, STOPPING, TOLD
from workbench.twin import Vector, rule
from workbench.verify.interface import GOAL, UNTIMED
from workbench.verify.wires import ENDINGS, GONE, TAG, bytes_of, commits, dead, late, muted, on_device, wires

# Properties; 0 is none broken.
(
    _HOLDS,
    BOUND,
    CONSERVATION,
    HELD,
    LEAK,
    TERMINAL,
    ORDER,
    AFTER_CANCEL,
    LATE_LAUNCH,
    STATE_MISUSE,
    UNRECORDED,
    MIXED,
    ROOM,
) = range(13)


@rule
def witness(g: Vector, m: Vector, what: int, r: int, where: int, epoch: int, number: int) -> int:
    """Check one thing that happened against what may happen; 0, or the property broken."""
    at = request(g, r)
    mine = wires(g, r)
    if what == ADMITTED:
        for v in range(g[STAGES]):
            m[late(g, r, v)] = 0
    elif what == LAUNCHED:
        if m[on_device(g, r, where)] != 0:
            return UNRECORDED
        m[on_device(g, r, where)] = 1
        if m[at + OUTCOME] != 0:
            if m[late(g, r, where)] != 0:
                return LATE_LAUNCH
            m[late(g, r, where)] = 1
    elif what == RECORDED:
        if m[on_device(g, r, where)] != 1:
            return UNRECORDED
        m[on_device(g, r, where)] = 0
    elif what == COMMITTED:
        if m[mine + GONE] == 1:
            return AFTER_CANCEL
        if number != m[commits(g, r, where)]:
            return ORDER
        m[commits(g, r, where)] += 1
        tag = 1 + m[at + REVISION]
        if g[REPLAYABLE] == 0:
            tag = 1 + epoch
        if m[mine + TAG] not in (0, tag):
            return MIXED
        m[mine + TAG] = tag
    elif what == ENDED:
        if m[mine + ENDINGS] != 0:
            return TERMINAL
        m[mine + ENDINGS] = 1
    return 0


@rule
def broken(g: Vector, m: Vector) -> int:
    """The property that this state violates, 0 if none."""
    found = sums(g, m)
    if found != 0:
        return found
    for r in range(g[REQUESTS]):
        for e in range(g[EDGES]):
            found = held(g, m, r, e)
            if found != 0:
                return found
        for v in range(g[STAGES]):
            found = residue(g, m, r, v)
            if found != 0:
                return found
    for v in range(g[STAGES]):
        for i in range(g[stage_row(g, v) + SLOTS]):
            owner = m[slot(g, v, i) + OWNER]
            if owner != 0:
                at = stage(g, owner - 1, v)
                if m[at + SLOT] != i or m[at + STATUS] not in (OPEN, STOPPING):
                    return LEAK
    return 0


@rule
def sums(g: Vector, m: Vector) -> int:
    """Every sum of the ledger is what its accounts add up to, and below its bound."""
    total = 0
    for t in range(g[TENANTS]):
        part = 0
        for r in range(g[REQUESTS]):
            if m[request(g, r) + TENANT] == t:
                mine = 0
                for e in range(g[EDGES]):
                    mine += ledger.counted(g, m, r, e)
                if m[request(g, r) + REQUEST_USED] != mine:
                    return CONSERVATION
                if mine > g[REQUEST_MAX]:
                    return BOUND
                part += mine
        if m[tenant_used(t)] != part:
            return CONSERVATION
        if part > g[TENANT_MAX]:
            return BOUND
        total += part
    if m[USED] != total:
        return CONSERVATION
    if total > g[TOTAL_MAX]:
        return BOUND
    for e in range(g[EDGES]):
        part = 0
        for r in range(g[REQUESTS]):
            at = account(g, r, e)
            if ledger.outstanding(m, at) < 0 or m[at + RETURNED] > m[at + RESERVED]:
                return CONSERVATION
            part += ledger.counted(g, m, r, e)
        if m[edge_used(g, e)] != part:
            return CONSERVATION
        if part > g[edge_row(g, e) + EDGE_MAX]:
            return BOUND
    for v in range(g[STAGES]):
        part = 0
        for r in range(g[REQUESTS]):
            part += m[stage_control(g, r, v) + HOLDS_SLOT]
        if m[slots_used(g, v)] != part:
            return CONSERVATION
        if part > g[stage_row(g, v) + SLOTS]:
            return BOUND
    return 0


@rule
def held(g: Vector, m: Vector, r: int, e: int) -> int:
    """What exists of a stream is covered by what is outstanding: made and not taken over, or about to be made."""
    u, v = g[edge_row(g, e) + FROM], g[edge_row(g, e) + TO]
    at = stage(g, r, u)
    if m[at + STATUS] not in (OPEN, STOPPING):
        return 0
    taken = -1
    if v == g[STAGES]:
        taken = m[receiver(g, r, e) + TAKEN] if m[client(g, r) + CLIENT_EPOCH] == m[at + STAGE_EPOCH] else 0
    elif m[stage(g, r, v) + STATUS] in (OPEN, STOPPING) and m[stage(g, r, v) + STAGE_EPOCH] == m[at + STAGE_EPOCH]:
        taken = m[receiver(g, r, e) + TAKEN]
    if taken < 0:
        return 0
    sent = m[sender(g, r, e) + SENT]
    exists = bytes_of(g, e, sent) - bytes_of(g, e, min(taken, sent))
    if m[at + READY] == 1 or m[at + RUNNING] == 1:
        exists += g[edge_row(g, e) + CHUNK_BYTES]
    if exists > ledger.outstanding(m, account(g, r, e)):
        return HELD
    return 0


@rule
def residue(g: Vector, m: Vector, r: int, v: int) -> int:
    """No stage works on an epoch that is over, every launch has its state, and every launch is accounted for."""
    at = stage(g, r, v)
    own = request(g, r)
    current = m[at + STAGE_EPOCH] == m[own + EPOCH] and m[own + PHASE] in (RUNNING_PHASE, DRAINING)
    if m[at + STATUS] in (OPEN, STOPPING) and not current:
        return LEAK
    if m[at + RUNNING] != m[on_device(g, r, v)]:
        return UNRECORDED
    if m[at + RUNNING] == 1:
        if m[at + SLOT] < 0:
            return STATE_MISUSE
        state = slot(g, v, m[at + SLOT])
        if (
            m[state + OWNER] != r + 1
            or m[state + GENERATION] != m[at + SLOT_GENERATION]
            or m[state + SLOT_TENANT] != m[own + TENANT]
        ):
            return STATE_MISUSE
    return 0


@rule
def flags(g: Vector, m: Vector) -> int:
    """Bit 0: everything has ended and is released. Bit 1: that must be reachable without any deadline."""
    goal, silent = m[USED] == 0, False
    for r in range(g[REQUESTS]):
        if m[request(g, r) + PHASE] != CLOSED_PHASE or m[request(g, r) + NOTICE] != TOLD:
            goal = False
        for v in range(g[STAGES]):
            silent = silent or m[muted(g, r, v)] == 1
    for v in range(g[STAGES]):
        if m[slots_used(g, v)] != 0 or m[dead(g, v)] != 0:
            goal = False
        for i in range(g[stage_row(g, v) + SLOTS]):
            if m[slot(g, v, i) + OWNER] != 0:
                goal = False
    return (GOAL if goal else 0) + (0 if silent else UNTIMED)
