"""What can happen next in a small world: every step of the machine that is possible, and every fault in budget.

Nothing is decided here: which ready task runs next, how long a message travels and when a timer fires are all left
open. Timers that would send something that is still on its way do not fire; the *repeat* faults cover that case.
"""

from __future__ import annotations

from workbench.control import ledger, machine
from workbench.control.layout import (
    ADVERTISED,
    ARMED,
    CLIENT_EPOCH,
    CLOSED,
    EDGES,
    EPOCH,
    FROM,
    IN_COUNT,
    LIMIT,
    NOTICE,
    OUT_AT,
    OUT_COUNT,
    PHASE,
    READY,
    RECEIVED,
    REQUESTS,
    RUNNING,
    SENT,
    STAGE_EPOCH,
    STAGES,
    STATUS,
    STOP,
    TAKEN,
    TAKEN_KNOWN,
    TO,
    client,
    edge_row,
    receiver,
    request,
    sender,
    stage,
    stage_control,
    stage_row,
)
from workbench.control.phases import DRAINING, NEW, OPEN, RUNNING_PHASE, STOPPING, UNTOLD, WAITING_PHASE, WANTED
from workbench.twin import Vector, rule
from workbench.verify.wires import (
    ACTIONS,
    ASK_AGAIN,
    CANCEL,
    CANCEL_ARRIVES,
    CANCEL_MESSAGE,
    CHUNKS,
    CONTROL,
    CREDIT,
    CREDIT_ROOM,
    DATA,
    DATA_ROOM,
    DETECT,
    DUPLICATE_CONTROL,
    DUPLICATE_CREDIT,
    DUPLICATE_DATA,
    DUPLICATE_REPLY,
    EXPIRE,
    FAIL,
    FINISH,
    KILL,
    LAUNCH,
    LOSE_CONTROL,
    LOSE_CREDIT,
    LOSE_DATA,
    LOSE_REPLY,
    LOST_BRANCH,
    NOTICE_ARRIVES,
    RECONNECT,
    REFRESH,
    REORDER_CREDIT,
    REORDER_DATA,
    REPLY,
    RESEND,
    RESERVE,
    RESIZE,
    START_AGAIN,
    STOP_AGAIN,
    SUBMIT,
    UPGRADE,
    budget,
    code,
    config,
    control_wire,
    credit_wire,
    data_wire,
    dead,
    filled,
    muted,
    reply_wire,
    up,
    wires,
)


@rule
def actions(g: Vector, m: Vector, acts: Vector) -> int:
    """Codes of everything that can happen now, and their number."""
    n = 0
    stages, edges = g[STAGES], g[EDGES]
    for v in range(stages):
        if m[dead(g, v)] != 0:
            n = push(g, acts, n, DETECT, 0, v, 0)
    for r in range(g[REQUESTS]):
        at = request(g, r)
        if m[at + PHASE] == NEW:
            n = push(g, acts, n, SUBMIT, r, 0, 0)
            continue
        if m[at + PHASE] == WAITING_PHASE and ledger.short_of(g, m, r, 0) == 0:
            n = push(g, acts, n, ASK_AGAIN, r, 0, 0)
        if m[at + NOTICE] == UNTOLD:
            n = push(g, acts, n, NOTICE_ARRIVES, r, 0, 0)
        if m[wires(g, r) + CANCEL_MESSAGE] == 1:
            n = push(g, acts, n, CANCEL_ARRIVES, r, 0, 0)
        for v in range(stages):
            if m[reply_wire(g, r, v)] != 0:
                n = push(g, acts, n, REPLY, r, v, 0)
            elif unanswered(g, m, r, v):
                n = push(g, acts, n, STOP_AGAIN, r, v, 0)
            if not up(g, m, v):
                continue
            if m[control_wire(g, r, v)] != 0:
                n = push(g, acts, n, CONTROL, r, v, 0)
            elif m[at + PHASE] == RUNNING_PHASE and g[stage_row(g, v) + IN_COUNT] == 0:
                own = stage(g, r, v)
                if m[own + STATUS] != OPEN or m[own + STAGE_EPOCH] != m[at + EPOCH]:
                    n = push(g, acts, n, START_AGAIN, r, v, 0)
            n = work(g, m, acts, n, r, v)
        for e in range(edges):
            if m[data_wire(g, r, e)] != 0 and up(g, m, g[edge_row(g, e) + TO]):
                n = push(g, acts, n, DATA, r, e, 0)
            if up(g, m, g[edge_row(g, e) + FROM]):
                if m[credit_wire(g, r, e)] != 0:
                    n = push(g, acts, n, CREDIT, r, e, 0)
                for seq in range(m[sender(g, r, e) + TAKEN_KNOWN], m[sender(g, r, e) + SENT]):
                    if m[stage(g, r, g[edge_row(g, e) + FROM]) + STATUS] == OPEN and awaited(g, m, r, e, seq):
                        n = push(g, acts, n, RESEND, r, e, seq)
            if up(g, m, g[edge_row(g, e) + TO]) and stale_view(g, m, r, e):
                n = push(g, acts, n, REFRESH, r, e, 0)
    # A deadline fires early at the price of its budget, and always once nothing else can happen.
    patient = n == 0
    for r in range(g[REQUESTS]):
        if m[request(g, r) + ARMED] == 1 and (patient or m[budget(g, EXPIRE)] > 0):
            n = push(g, acts, n, EXPIRE, r, 0, 0)
    return environment(g, m, acts, n)


@rule
def work(g: Vector, m: Vector, acts: Vector, n: int, r: int, v: int) -> int:
    """Add what stage `v` can do for request `r`; a forgotten request only ends the launch that it has."""
    at = stage(g, r, v)
    if m[at + RUNNING] == 1:
        row = stage_row(g, v)
        full = False
        for i in range(g[row + OUT_COUNT]):
            e = g[g[row + OUT_AT] + i]
            full = full or filled(m, data_wire(g, r, e), config(g, DATA_ROOM)) == config(g, DATA_ROOM)
        if not full:
            n = push(g, acts, n, FINISH, r, v, 0)
    if m[muted(g, r, v)] == 1:
        return n
    if m[at + READY] == 1:
        n = push(g, acts, n, LAUNCH, r, v, 0)
    if machine.obstacle(g, m, r, v) == machine.GO:
        return push(g, acts, n, RESERVE, r, v, 0)
    return n


@rule
def push(g: Vector, acts: Vector, count: int, action: int, r: int, place: int, arg: int) -> int:
    """Add an action to the list; the new count."""
    acts[count] = code(g, action, r, place, arg)
    return count + 1


@rule
def unanswered(g: Vector, m: Vector, r: int, v: int) -> bool:
    """Whether the controller waits for stage `v` to stop, nothing is under way, and it is not just finishing."""
    if m[request(g, r) + PHASE] != DRAINING or m[stage_control(g, r, v) + STOP] != WANTED:
        return False
    if up(g, m, v) and m[stage(g, r, v) + STATUS] == STOPPING:
        return False
    return m[control_wire(g, r, v)] == 0


@rule
def awaited(g: Vector, m: Vector, r: int, e: int, seq: int) -> bool:
    """Whether the receiving end lacks chunk `seq` of the sender's epoch and no such message is on the wire."""
    epoch = m[stage(g, r, g[edge_row(g, e) + FROM]) + STAGE_EPOCH]
    v = g[edge_row(g, e) + TO]
    if v == g[STAGES]:
        if m[client(g, r) + CLIENT_EPOCH] == epoch and m[receiver(g, r, e) + RECEIVED] > seq:
            return False
    else:
        at = stage(g, r, v)
        if m[at + STATUS] == OPEN and m[at + STAGE_EPOCH] == epoch and m[receiver(g, r, e) + RECEIVED] > seq:
            return False
    wire = data_wire(g, r, e)
    for i in range(config(g, DATA_ROOM)):
        if m[wire + i] == 1 + epoch * config(g, CHUNKS) + seq:
            return False
    return filled(m, wire, config(g, DATA_ROOM)) < config(g, DATA_ROOM)


@rule
def stale_view(g: Vector, m: Vector, r: int, e: int) -> bool:
    """Whether the sender of edge `e` knows less than the receiver says and no credit message is on the wire."""
    at = stage(g, r, g[edge_row(g, e) + FROM])
    if m[at + STATUS] != OPEN or m[credit_wire(g, r, e)] != 0:
        return False
    v = g[edge_row(g, e) + TO]
    if v == g[STAGES]:
        if m[client(g, r) + CLIENT_EPOCH] != m[at + STAGE_EPOCH]:
            return False
    elif m[stage(g, r, v) + STATUS] != OPEN or m[stage(g, r, v) + STAGE_EPOCH] != m[at + STAGE_EPOCH]:
        return False
    near, far = sender(g, r, e), receiver(g, r, e)
    return m[near + TAKEN_KNOWN] < m[far + TAKEN] or m[near + LIMIT] < m[far + ADVERTISED]


@rule
def environment(g: Vector, m: Vector, acts: Vector, n: int) -> int:
    """Add what faults and clients can do within their budgets."""
    for action in range(EXPIRE + 1, ACTIONS):
        if m[budget(g, action)] == 0:
            continue
        if action in (KILL, UPGRADE):
            for v in range(g[STAGES]):
                if m[dead(g, v)] == 0:
                    n = push(g, acts, n, action, 0, v, 0)
            continue
        for r in range(g[REQUESTS]):
            if m[request(g, r) + PHASE] == NEW:
                continue
            n = harm(g, m, acts, n, action, r)
    return n


@rule
def harm(g: Vector, m: Vector, acts: Vector, n: int, action: int, r: int) -> int:
    """Add the places where `action` can strike request `r`."""
    data, credits = config(g, DATA_ROOM), config(g, CREDIT_ROOM)
    if action == CANCEL:
        if m[client(g, r) + CLOSED] == 0:
            n = push(g, acts, n, action, r, 0, 0)
        return n
    if action == RECONNECT:
        for e in range(g[EDGES]):
            if g[edge_row(g, e) + TO] == g[STAGES] and (m[data_wire(g, r, e)] != 0 or m[credit_wire(g, r, e)] != 0):
                return push(g, acts, n, action, r, 0, 0)
        return n
    for v in range(g[STAGES]):
        if (
            (action == LOSE_CONTROL and m[control_wire(g, r, v)] != 0)
            or (action == DUPLICATE_CONTROL and m[control_wire(g, r, v)] != 0 and up(g, m, v))
            or (action in (LOSE_REPLY, DUPLICATE_REPLY) and m[reply_wire(g, r, v)] != 0)
            or (action == LOST_BRANCH and m[muted(g, r, v)] == 0 and m[request(g, r) + PHASE] == RUNNING_PHASE)
            or (action == FAIL and m[stage(g, r, v) + RUNNING] == 1)
        ):
            n = push(g, acts, n, action, r, v, 0)
            if action == FAIL and config(g, CHUNKS) > 1:
                n = push(g, acts, n, action, r, v, 1)
    for e in range(g[EDGES]):
        far, near = up(g, m, g[edge_row(g, e) + TO]), up(g, m, g[edge_row(g, e) + FROM])
        wire, back = filled(m, data_wire(g, r, e), data), filled(m, credit_wire(g, r, e), credits)
        if (
            (action == LOSE_DATA and wire > 0)
            or (action == LOSE_CREDIT and back > 0)
            or (action == DUPLICATE_DATA and wire > 0 and far)
            or (action == DUPLICATE_CREDIT and back > 0 and near)
            or (action == REORDER_DATA and wire > 1 and far)
            or (action == REORDER_CREDIT and back > 1 and near)
        ):
            n = push(g, acts, n, action, r, e, 0)
        v = g[edge_row(g, e) + TO]
        if action == RESIZE and v < g[STAGES] and far and m[stage(g, r, v) + STATUS] == OPEN:
            n = push(g, acts, n, action, r, e, 0)
    return n
