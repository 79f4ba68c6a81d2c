"""The properties of states: what must hold wherever the world stands. `workbench.verify.witness` judges events."""

from __future__ import annotations

from workbench.control import machine
from workbench.control.layout import (
    ADVERTISED,
    ADVERTISED_BYTES,
    ARMED,
    ATTEMPTS,
    CHILDREN,
    CHUNK_BYTES,
    CLIENT_EPOCH,
    EDGE_MAX,
    EDGES,
    EPOCH,
    FLOOR,
    FLOORED,
    FROM,
    GENERATION,
    HOLDS_SLOT,
    LAST,
    LIMIT,
    LIMIT_BYTES,
    NOTICE,
    OUTCOME,
    OWNER,
    PARENT,
    PHASE,
    READY,
    RECEIVED,
    REQUEST_MAX,
    REQUEST_USED,
    REQUESTS,
    RESERVED,
    RESERVED_BYTES,
    RETURNED,
    RETURNED_BYTES,
    RUNNING,
    SENT,
    SENT_BYTES,
    SLOT,
    SLOT_GENERATION,
    SLOT_TENANT,
    SLOTS,
    STAGE_EPOCH,
    STAGES,
    STATUS,
    TAKEN,
    TAKEN_BYTES,
    TAKEN_KNOWN,
    TAKEN_KNOWN_BYTES,
    TENANT,
    TENANT_MAX,
    TENANTS,
    TO,
    TOTAL_MAX,
    TRIMMED_BYTES,
    USED,
    WAITING,
    WAITING_MAX,
    WIDTH,
    WIDTH_BYTES,
    WINDOW,
    WINDOW_BYTES,
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
from workbench.control.phases import (
    CLOSED_PHASE,
    DRAINING,
    NEW,
    OK,
    OPEN,
    RUNNING_PHASE,
    STOPPING,
    TOLD,
    WAITING_PHASE,
)
from workbench.twin import Vector, rule
from workbench.verify.interface import GOAL, UNTIMED
from workbench.verify.readiness import may_go
from workbench.verify.wires import CHUNKS, ENDINGS, bytes_of, config, dead, muted, on_device, wires

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
    CAUSE,
    COMPLETE,
    OVERRUN,
    FAMILY,
    COLLATERAL,
    PROMPT,
) = range(19)


@rule
def outstanding(m: Vector, at: int) -> int:
    """Bytes of an account that are reserved and neither trimmed nor returned; the laws add up for themselves."""
    return m[at + RESERVED_BYTES] - m[at + TRIMMED_BYTES] - m[at + RETURNED_BYTES]


@rule
def counted(g: Vector, m: Vector, r: int, e: int) -> int:
    """Bytes that (`r`, `e`) must contribute to the sums."""
    at, row = account(g, r, e), edge_row(g, e)
    floor = g[row + FLOOR] * g[row + CHUNK_BYTES]
    if m[request(g, r) + PHASE] not in (RUNNING_PHASE, DRAINING) and not brought_in(g, m, r):
        floor = 0
    return max(floor, outstanding(m, at))


@rule
def brought_in(g: Vector, m: Vector, r: int) -> bool:
    """Whether a child that is not in has its room because its parent was admitted and has not ended.

    Before its first epoch it must have it; before a later one it may, depending on whether it came along.
    """
    at = request(g, r)
    if m[at + PARENT] == 0 or m[at + PHASE] not in (NEW, WAITING_PHASE):
        return False
    parent = request(g, m[at + PARENT] - 1)
    admitted = m[parent + EPOCH] > 0 or m[parent + PHASE] in (RUNNING_PHASE, DRAINING)
    came = m[at + EPOCH] == 0 or m[account(g, r, 0) + FLOORED] == 1
    return m[parent + OUTCOME] == 0 and admitted and came


@rule
def broken(g: Vector, m: Vector) -> int:
    """The property that this state violates, 0 if none."""
    found = sums(g, m)
    if found != 0:
        return found
    for r in range(g[REQUESTS]):
        found = standing(g, m, r)
        if found != 0:
            return found
        for e in range(g[EDGES]):
            found = held(g, m, r, e)
            if found == 0:
                found = ends(g, m, r, e)
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
    waiting, newcomers = 0, 0
    for r in range(g[REQUESTS]):
        if m[request(g, r) + PHASE] == WAITING_PHASE:
            waiting += 1
            newcomers += 1 if m[request(g, r) + EPOCH] == 0 and m[request(g, r) + PARENT] == 0 else 0
    if m[WAITING] != waiting:
        return CONSERVATION
    if newcomers > g[WAITING_MAX]:
        return BOUND
    total = 0
    for t in range(g[TENANTS]):
        part = 0
        for r in range(g[REQUESTS]):
            if m[request(g, r) + TENANT] == t:
                mine = 0
                for e in range(g[EDGES]):
                    mine += counted(g, m, r, e)
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
            if outstanding(m, at) < 0 or m[at + RETURNED] > m[at + RESERVED]:
                return CONSERVATION
            part += counted(g, m, r, e)
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
    """What exists of a stream is covered by what is outstanding: made and not taken over, or about to be made.

    And outstanding is exactly what the sender does not know to be taken: room that is not needed goes back.
    """
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
    if exists > outstanding(m, account(g, r, e)):
        return HELD
    known = bytes_of(g, e, sent) - bytes_of(g, e, m[sender(g, r, e) + TAKEN_KNOWN])
    if m[at + READY] == 1 or m[at + RUNNING] == 1:
        known += g[edge_row(g, e) + CHUNK_BYTES]
    if (
        m[at + STATUS] == OPEN
        and m[request(g, r) + PHASE] == RUNNING_PHASE
        and known != outstanding(m, account(g, r, e))
    ):
        return CONSERVATION
    return 0


@rule
def ends(g: Vector, m: Vector, r: int, e: int) -> int:
    """The two ends of a stream agree as far as messages under way allow; a stage that does not work holds no chunk."""
    near, far = sender(g, r, e), receiver(g, r, e)
    if m[far + TAKEN] > m[far + RECEIVED] or m[near + SENT] > config(g, CHUNKS):
        return ORDER
    if (
        m[near + SENT_BYTES] != bytes_of(g, e, m[near + SENT])
        or m[near + TAKEN_KNOWN_BYTES] != bytes_of(g, e, m[near + TAKEN_KNOWN])
        or m[far + TAKEN_BYTES] != bytes_of(g, e, m[far + TAKEN])
    ):
        return CONSERVATION
    v, at, own = g[edge_row(g, e) + TO], stage(g, r, g[edge_row(g, e) + FROM]), request(g, r)
    if m[at + STATUS] not in (OPEN, STOPPING) and m[near + SENT] != 0:
        return LEAK
    if v != g[STAGES] and m[stage(g, r, v) + STATUS] not in (OPEN, STOPPING) and m[far + RECEIVED] != 0:
        return LEAK
    if m[own + PHASE] != RUNNING_PHASE or m[at + STATUS] != OPEN or m[at + STAGE_EPOCH] != m[own + EPOCH]:
        return 0
    row = edge_row(g, e)
    least = m[near + TAKEN_KNOWN_BYTES] + g[row + CHUNK_BYTES]
    if m[near + SENT] > max(m[near + LIMIT], m[near + TAKEN_KNOWN] + 1):
        return OVERRUN
    if m[near + SENT_BYTES] > max(m[near + LIMIT_BYTES], least):
        return OVERRUN
    there = m[client(g, r) + CLIENT_EPOCH] if v == g[STAGES] else m[stage(g, r, v) + STAGE_EPOCH]
    if there != m[at + STAGE_EPOCH] or (v != g[STAGES] and m[stage(g, r, v) + STATUS] != OPEN):
        return 0
    if m[near + TAKEN_KNOWN] > m[far + TAKEN] or m[near + LIMIT] > m[far + ADVERTISED]:
        return OVERRUN
    window, room = m[far + ADVERTISED] - m[far + TAKEN], m[far + ADVERTISED_BYTES] - m[far + TAKEN_BYTES]
    if window > g[row + WINDOW] or room > g[row + WINDOW_BYTES]:
        return OVERRUN
    if m[far + WIDTH] < 1 or window < m[far + WIDTH] or room < m[far + WIDTH_BYTES]:
        return CONSERVATION
    return 0


@rule
def standing(g: Vector, m: Vector, r: int) -> int:
    """The controller's record of a request is sound, and agrees with those of its family."""
    own = request(g, r)
    phase, outcome = m[own + PHASE], m[own + OUTCOME]
    if m[own + EPOCH] >= g[ATTEMPTS]:
        return BOUND
    if (outcome == 0 and phase == CLOSED_PHASE) or (outcome != 0 and phase not in (DRAINING, CLOSED_PHASE)):
        return TERMINAL
    if m[wires(g, r) + ENDINGS] != (0 if outcome == 0 else 2):
        return TERMINAL
    # Who waits without a deadline may wait for ever, and no timer outlives its request.
    if (phase == WAITING_PHASE and m[own + ARMED] == 0) or (outcome != 0 and m[own + ARMED] == 1):
        return TERMINAL
    if phase not in (RUNNING_PHASE, DRAINING) and not brought_in(g, m, r):
        if m[own + REQUEST_USED] != 0:
            return LEAK
        for v in range(g[STAGES]):
            if m[stage_control(g, r, v) + HOLDS_SLOT] != 0:
                return LEAK
    if m[own + PARENT] > 0:
        above = m[request(g, m[own + PARENT] - 1) + OUTCOME]
        if (above not in (0, OK) and outcome == 0 and phase != NEW) or (above == OK and outcome != OK):
            return FAMILY
        if above == 0 and outcome not in (0, OK):
            return FAMILY
    return 0


@rule
def spared(g: Vector, m: Vector, v: int) -> int:
    """One bit for each running request, of no family, that never had anything reserved into or out of stage `v`."""
    bits = 0
    for r in range(g[REQUESTS]):
        used = 0
        for e in range(g[EDGES]):
            if v in (g[edge_row(g, e) + FROM], g[edge_row(g, e) + TO]):
                used += m[account(g, r, e) + RESERVED]
        own = request(g, r)
        alone = m[own + PARENT] == 0 and m[own + CHILDREN] == 0
        if m[own + PHASE] == RUNNING_PHASE and alone and used == 0:
            bits += 1 << r
    return bits


@rule
def residue(g: Vector, m: Vector, r: int, v: int) -> int:
    """No stage works on an epoch that is over, every launch has its state, and every launch is accounted for."""
    at = stage(g, r, v)
    own = request(g, r)
    current = m[at + STAGE_EPOCH] == m[own + EPOCH] and m[own + PHASE] in (RUNNING_PHASE, DRAINING)
    if m[at + STATUS] in (OPEN, STOPPING) and not current:
        return LEAK
    promised = m[stage_control(g, r, v) + HOLDS_SLOT]
    if m[at + SLOT] >= 0 and promised == 0:
        return LEAK
    if m[at + STATUS] == OPEN and m[at + LAST] == 1 and m[own + PHASE] == RUNNING_PHASE and promised == 1:
        return LEAK
    if m[at + RUNNING] != m[on_device(g, r, v)]:
        return UNRECORDED
    if m[at + STATUS] == OPEN:
        why = machine.obstacle(g, m, r, v)
        if why != machine.GO and may_go(g, m, r, v):
            return PROMPT
        # A driver may try too early; in a protocol that is right this changes nothing.
        if why in (machine.NO_SLOT, machine.NO_WINDOW, machine.NO_ROOM) and machine.reserve(g, m, r, v) == machine.GO:
            return BOUND
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
def generations(g: Vector, m: Vector, v: int) -> int:
    """Generations of the slots of stage `v`, one more for each that is owned: the least once it is lost."""
    total = 0
    for i in range(g[stage_row(g, v) + SLOTS]):
        total += m[slot(g, v, i) + GENERATION] + (1 if m[slot(g, v, i) + OWNER] != 0 else 0)
    return total


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
