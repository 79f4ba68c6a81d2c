"""The world around the protocol machine: wires that lose, repeat and reorder, workers that die, clients that give up.

The explorer asks which actions are possible and performs each of them on a copy; every action calls the functions of
`workbench.control` that the replay engine and the testbed call. Nothing here decides anything: which ready task runs
next, how long a message travels and when a timer fires are all left open, so what holds here holds under every
scheduling rule, window law and delay.

State is kept small: a chunk is a number, messages are single integers, and timers that would send something that is
still on its way do not fire (the fault *repeat* covers that case). Faults and cancels have budgets.
"""

from __future__ import annotations

from workbench.control import credit, ledger, lifecycle, machine
from workbench.control.effects import (
    ADMITTED,
    AT_EPOCH,
    COMMITTED,
    DROPPED,
    EFFECT_SIZE,
    ENDED,
    KIND,
    LAUNCHED,
    RECORDED,
    SEND_CREDIT,
    SEND_DATA,
    SEND_START,
    SEND_STOP,
    SEND_STOPPED,
    WHERE,
    WHO,
    A,
    C,
)
from workbench.control.layout import (
    ADVERTISED,
    ARMED,
    CHUNK_BYTES,
    CLIENT_EPOCH,
    CLOSED,
    EDGE_MAX,
    EDGES,
    EPOCH,
    EXTRA,
    FROM,
    GENERATION,
    HOLDS_SLOT,
    IN_AT,
    IN_COUNT,
    LIMIT,
    NOTICE,
    OUT_AT,
    OUT_COUNT,
    OUTCOME,
    OWNER,
    PHASE,
    READY,
    RECEIVED,
    REPLAYABLE,
    REQUEST_AT,
    REQUEST_MAX,
    REQUEST_SIZE,
    REQUEST_USED,
    REQUESTS,
    RESERVED,
    RETURNED,
    REVISION,
    RUNNING,
    SENT,
    SLOT,
    SLOT_AT,
    SLOT_GENERATION,
    SLOT_SIZE,
    SLOT_TENANT,
    SLOTS,
    STAGE_EPOCH,
    STAGES,
    STATUS,
    STOP,
    TAKEN,
    TAKEN_KNOWN,
    TENANT,
    TENANT_MAX,
    TENANTS,
    TO,
    TOTAL_MAX,
    USED,
    WIDTH,
    WINDOW,
    account,
    client,
    edge_row,
    edge_used,
    receiver,
    request,
    revision_of,
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
    OPEN,
    RUNNING_PHASE,
    STOPPING,
    TOLD,
    UNTOLD,
    WAITING_PHASE,
    WANTED,
)
from workbench.twin import Vector, rule

# Configuration of the world in `g`, from g[EXTRA] on.
CHUNKS, SHORT_LAST, DATA_ROOM, CREDIT_ROOM, SYMMETRIC, BUDGET_AT, DEAD_AT, WORLD_AT, WORLD_SIZE, WORLD_CONFIG = range(
    10
)

# Actions. Those from EXPIRE on are the environment's; each of these has a budget at m[budget + action - EXPIRE].
(
    _NOTHING,
    SUBMIT,
    ASK_AGAIN,
    CONTROL,  # a start or stop message reaches stage `place`
    REPLY,  # a stage's word that it stopped reaches the controller
    DATA,  # the message at the head of edge `place` arrives
    CREDIT,  # the credit message at the head of the reverse edge arrives
    RESERVE,
    LAUNCH,
    FINISH,
    NOTICE_ARRIVES,
    CANCEL_ARRIVES,
    RESEND,
    REFRESH,
    START_AGAIN,
    STOP_AGAIN,
    DETECT,  # the controller learns that a worker is dead; its successor is up
    EXPIRE,
    CANCEL,
    LOSE_DATA,
    LOSE_CREDIT,
    LOSE_CONTROL,
    LOSE_REPLY,
    REPEAT_DATA,
    REPEAT_CREDIT,
    REPEAT_CONTROL,
    REPEAT_REPLY,
    REORDER_DATA,
    REORDER_CREDIT,
    KILL,
    UPGRADE,  # kill, and the successor runs another model revision
    MUTE,  # a stage silently forgets to work on one request: a lost branch
    FAIL,  # a launch ends in an error
    RECONNECT,  # the client's connection breaks and is made again
    RESIZE,  # the credit protocol changes the window of a stream
    ACTIONS,
) = range(36)
FAULTS = ACTIONS - EXPIRE

# Kinds of step for the explorer.
PROGRESS, TIMER, FAULT = range(3)

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

# Per request in the world's part of `m`: wires and witnesses that the machine does not see.
CANCEL_MESSAGE, GONE, TAG, ENDINGS, WORLD_HEAD = range(5)


@rule
def config(g: Vector, field: int) -> int:
    """One entry of the world's configuration."""
    return g[g[EXTRA] + field]


@rule
def wires(g: Vector, r: int) -> int:
    """Address in `m` of the world's part of request `r`."""
    return config(g, WORLD_AT) + r * config(g, WORLD_SIZE)


@rule
def data_wire(g: Vector, r: int, e: int) -> int:
    """Address of the data messages on edge `e`, oldest first; 0 is an empty place."""
    return wires(g, r) + WORLD_HEAD + e * config(g, DATA_ROOM)


@rule
def credit_wire(g: Vector, r: int, e: int) -> int:
    """Address of the credit messages against edge `e`, oldest first."""
    return data_wire(g, r, g[EDGES]) + e * config(g, CREDIT_ROOM)


@rule
def control_wire(g: Vector, r: int, v: int) -> int:
    """Address of the control message under way to stage `v`: 1 + 2 * epoch, plus 1 for a stop."""
    return credit_wire(g, r, g[EDGES]) + v


@rule
def reply_wire(g: Vector, r: int, v: int) -> int:
    """Address of the stage's answer under way: 1 + epoch."""
    return control_wire(g, r, g[STAGES]) + v


@rule
def late(g: Vector, r: int, v: int) -> int:
    """Address of a witness: 1 after one launch that followed the end of the request, 2 once the stage was told."""
    return reply_wire(g, r, g[STAGES]) + v


@rule
def on_device(g: Vector, r: int, v: int) -> int:
    """Address of a witness: launches that began and were not recorded yet."""
    return late(g, r, g[STAGES]) + v


@rule
def muted(g: Vector, r: int, v: int) -> int:
    """Address of a flag: stage `v` silently stopped working on request `r`."""
    return on_device(g, r, g[STAGES]) + v


@rule
def commits(g: Vector, r: int, e: int) -> int:
    """Address of a witness: chunks of edge `e` that the client has committed."""
    return muted(g, r, g[STAGES]) + e


@rule
def dead(g: Vector, v: int) -> int:
    """Address of a flag: 1 while the worker of stage `v` is dead and unnoticed, 2 if its successor is upgraded."""
    return config(g, DEAD_AT) + v


@rule
def bytes_of(g: Vector, e: int, count: int) -> int:
    """Size of the first `count` chunks of a stream; the last chunk may be one byte short."""
    total = count * g[edge_row(g, e) + CHUNK_BYTES]
    if count == config(g, CHUNKS):
        total -= config(g, SHORT_LAST)
    return total


@rule
def size_of(g: Vector, e: int, seq: int) -> int:
    """Size of chunk `seq`."""
    return bytes_of(g, e, seq + 1) - bytes_of(g, e, seq)


@rule
def is_final(g: Vector, seq: int) -> int:
    """1 for the last chunk of a stream."""
    return 1 if seq + 1 == config(g, CHUNKS) else 0


@rule
def places(g: Vector) -> int:
    """Base of the place digit of an action code."""
    return max(g[STAGES], g[EDGES])


@rule
def code(g: Vector, action: int, r: int, place: int, arg: int) -> int:
    """Action code of its parts; `arg` is a sequence number below CHUNKS."""
    return ((action * g[REQUESTS] + r) * places(g) + place) * config(g, CHUNKS) + arg


@rule
def action_of(g: Vector, which: int) -> int:
    """The action of a code."""
    return which // (config(g, CHUNKS) * places(g) * g[REQUESTS])


@rule
def request_of(g: Vector, which: int) -> int:
    """The request of a code."""
    return which // (config(g, CHUNKS) * places(g)) % g[REQUESTS]


@rule
def place_of(g: Vector, which: int) -> int:
    """The stage or edge of a code."""
    return which // config(g, CHUNKS) % places(g)


@rule
def arg_of(g: Vector, which: int) -> int:
    """The sequence number of a code."""
    return which % config(g, CHUNKS)


@rule
def kind(g: Vector, which: int) -> int:
    """PROGRESS, TIMER for a deadline, FAULT for what the environment does."""
    action = action_of(g, which)
    if action < EXPIRE:
        return PROGRESS
    if action == EXPIRE:
        return TIMER
    return FAULT


@rule
def budget(g: Vector, action: int) -> int:
    """Address in `m` of what is left of an action's budget."""
    return config(g, BUDGET_AT) + action - EXPIRE


@rule
def limit_count(g: Vector) -> int:
    """Base of the limit digit of a credit message."""
    top = 1
    for e in range(g[EDGES]):
        top = max(top, g[edge_row(g, e) + WINDOW])
    return config(g, CHUNKS) + top + 1


@rule
def filled(m: Vector, at: int, room: int) -> int:
    """Messages on a wire."""
    for i in range(room):
        if m[at + i] == 0:
            return i
    return room


@rule
def remove(m: Vector, at: int, room: int, i: int) -> None:
    """Take message `i` off a wire."""
    for j in range(at + i, at + room - 1):
        m[j] = m[j + 1]
    m[at + room - 1] = 0


@rule
def up(g: Vector, m: Vector, v: int) -> bool:
    """Whether stage `v` can act; the client always can."""
    return v == g[STAGES] or m[dead(g, v)] == 0


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
def push(g: Vector, acts: Vector, count: int, action: int, r: int, place: int, arg: int) -> int:
    """Add an action to the list; the new count."""
    acts[count] = code(g, action, r, place, arg)
    return count + 1


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
            if m[muted(g, r, v)] == 0 or m[stage(g, r, v) + RUNNING] == 1:
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
def unanswered(g: Vector, m: Vector, r: int, v: int) -> bool:
    """Whether the controller waits for stage `v` to stop, nothing is under way, and it is not just finishing."""
    if m[request(g, r) + PHASE] != DRAINING or m[stage_control(g, r, v) + STOP] != WANTED:
        return False
    if up(g, m, v) and m[stage(g, r, v) + STATUS] == STOPPING:
        return False
    return m[control_wire(g, r, v)] == 0


@rule
def work(g: Vector, m: Vector, acts: Vector, n: int, r: int, v: int) -> int:
    """Add what stage `v` can do for request `r`."""
    at = stage(g, r, v)
    if m[at + RUNNING] == 1:
        row = stage_row(g, v)
        for i in range(g[row + OUT_COUNT]):
            e = g[g[row + OUT_AT] + i]
            if filled(m, data_wire(g, r, e), config(g, DATA_ROOM)) == config(g, DATA_ROOM):
                return n
        return push(g, acts, n, FINISH, r, v, 0)
    if m[at + READY] == 1:
        return push(g, acts, n, LAUNCH, r, v, 0)
    if machine.obstacle(g, m, r, v) == machine.GO:
        return push(g, acts, n, RESERVE, r, v, 0)
    return n


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
            or (action == REPEAT_CONTROL and m[control_wire(g, r, v)] != 0 and up(g, m, v))
            or (action in (LOSE_REPLY, REPEAT_REPLY) and m[reply_wire(g, r, v)] != 0)
            or (action == MUTE and m[muted(g, r, v)] == 0 and m[request(g, r) + PHASE] == RUNNING_PHASE)
            or (action == FAIL and m[stage(g, r, v) + RUNNING] == 1)
        ):
            n = push(g, acts, n, action, r, v, 0)
    for e in range(g[EDGES]):
        far, near = up(g, m, g[edge_row(g, e) + TO]), up(g, m, g[edge_row(g, e) + FROM])
        wire, back = filled(m, data_wire(g, r, e), data), filled(m, credit_wire(g, r, e), credits)
        if (
            (action == LOSE_DATA and wire > 0)
            or (action == LOSE_CREDIT and back > 0)
            or (action == REPEAT_DATA and wire > 0 and far)
            or (action == REPEAT_CREDIT and back > 0 and near)
            or (action == REORDER_DATA and wire > 1 and far)
            or (action == REORDER_CREDIT and back > 1 and near)
        ):
            n = push(g, acts, n, action, r, e, 0)
        v = g[edge_row(g, e) + TO]
        if action == RESIZE and v < g[STAGES] and far and m[stage(g, r, v) + STATUS] == OPEN:
            n = push(g, acts, n, action, r, e, 0)
    return n


@rule
def apply(g: Vector, m: Vector, which: int, out: Vector) -> int:
    """Perform an action; 0, or the property that the step broke."""
    action, r = action_of(g, which), request_of(g, which)
    place, seq = place_of(g, which), arg_of(g, which)
    out[0] = 0
    broken_by = 0
    if action >= EXPIRE and m[budget(g, action)] > 0:
        m[budget(g, action)] -= 1
    if action == SUBMIT:
        lifecycle.submit(g, m, out, r, -1, -1)
    elif action == ASK_AGAIN:
        lifecycle.ask_again(g, m, out, r, -1, -1)
    elif action == EXPIRE:
        lifecycle.expire(g, m, out, r)
    elif action == CANCEL_ARRIVES:
        m[wires(g, r) + CANCEL_MESSAGE] = 0
        lifecycle.cancel(g, m, out, r)
    elif action == NOTICE_ARRIVES:
        machine.on_notice(g, m, r)
        m[wires(g, r) + GONE] = 1
        lifecycle.told(g, m, r)
    elif action == CANCEL:
        machine.client_cancels(g, m, r)
        m[wires(g, r) + GONE] = 1
        m[wires(g, r) + CANCEL_MESSAGE] = 1
    elif action == RESERVE:
        machine.reserve(g, m, r, place)
    elif action == LAUNCH:
        launch(g, m, out, r, place)
    elif action in (FINISH, FAIL):
        finish(g, m, out, r, place, action == FAIL)
    elif action == RESEND:
        machine.resend(g, m, out, r, place, seq, size_of(g, place, seq), is_final(g, seq))
    elif action == REFRESH:
        machine.refresh(g, m, out, r, place)
    elif action == START_AGAIN:
        lifecycle.start(g, m, out, r)
    elif action == STOP_AGAIN:
        lifecycle.stop_again(g, m, out, r, place)
    elif action in (KILL, UPGRADE):
        machine.wipe(g, m, place)
        m[dead(g, place)] = 1 if action == KILL else 2
        for other in range(g[REQUESTS]):
            m[on_device(g, other, place)] = 0
            m[late(g, other, place)] = 0
    elif action == DETECT:
        lifecycle.lost(g, m, out, place, m[revision_of(g, place)] + m[dead(g, place)] - 1)
        m[dead(g, place)] = 0
    elif action == MUTE:
        m[muted(g, r, place)] = 1
    elif action == RESIZE:
        at = receiver(g, r, place)
        width = 1 if m[at + WIDTH] > 1 else g[edge_row(g, place) + WINDOW]
        credit.resize(m, at, width, width * g[edge_row(g, place) + CHUNK_BYTES])
    elif action == RECONNECT:
        for e in range(g[EDGES]):
            if g[edge_row(g, e) + TO] == g[STAGES]:
                for i in range(config(g, DATA_ROOM)):
                    m[data_wire(g, r, e) + i] = 0
                for i in range(config(g, CREDIT_ROOM)):
                    m[credit_wire(g, r, e) + i] = 0
    else:
        broken_by = message(g, m, out, action, r, place)
    if broken_by != 0:
        return broken_by
    return route(g, m, out)


@rule
def launch(g: Vector, m: Vector, out: Vector, r: int, v: int) -> None:
    """Launch, with the sizes of the chunks at the head of the inboxes."""
    row = stage_row(g, v)
    # The sizes are handed over where the effect list will not reach.
    sizes = out[len(out) - g[EDGES] :]
    for i in range(g[row + IN_COUNT]):
        e = g[g[row + IN_AT] + i]
        sizes[e] = size_of(g, e, m[receiver(g, r, e) + TAKEN])
    machine.launch(g, m, out, r, v, sizes)


@rule
def finish(g: Vector, m: Vector, out: Vector, r: int, v: int, failed: bool) -> None:
    """Finish, with the sizes of the chunks made."""
    row = stage_row(g, v)
    sizes = out[len(out) - g[EDGES] :]
    final = 0
    for i in range(g[row + OUT_COUNT]):
        e = g[g[row + OUT_AT] + i]
        seq = m[sender(g, r, e) + SENT]
        sizes[e] = size_of(g, e, seq)
        final = is_final(g, seq)
    machine.finish(g, m, out, r, v, sizes, final, 1 if failed else 0)


@rule
def message(g: Vector, m: Vector, out: Vector, action: int, r: int, place: int) -> int:
    """Deliver, lose or repeat a message; 0, or the property that the delivery broke."""
    if action in (CONTROL, LOSE_CONTROL, REPEAT_CONTROL):
        wire = control_wire(g, r, place)
        what = m[wire] - 1
        if action != REPEAT_CONTROL:
            m[wire] = 0
        if action != LOSE_CONTROL:
            if what % 2 == 0:
                machine.on_start(g, m, r, place, what // 2)
            else:
                machine.on_stop(g, m, out, r, place, what // 2)
                if m[request(g, r) + OUTCOME] != 0:
                    m[late(g, r, place)] = 2
    elif action in (REPLY, LOSE_REPLY, REPEAT_REPLY):
        wire = reply_wire(g, r, place)
        what = m[wire] - 1
        if action != REPEAT_REPLY:
            m[wire] = 0
        if action != LOSE_REPLY:
            lifecycle.stopped(g, m, out, r, place, what)
    elif action in (DATA, LOSE_DATA, REPEAT_DATA, REORDER_DATA):
        wire = data_wire(g, r, place)
        i = 1 if action == REORDER_DATA else 0
        what = m[wire + i] - 1
        if action != REPEAT_DATA:
            remove(m, wire, config(g, DATA_ROOM), i)
        if action != LOSE_DATA:
            return arrive(g, m, out, r, place, what // config(g, CHUNKS), what % config(g, CHUNKS))
    elif action in (CREDIT, LOSE_CREDIT, REPEAT_CREDIT, REORDER_CREDIT):
        wire = credit_wire(g, r, place)
        i = 1 if action == REORDER_CREDIT else 0
        what = m[wire + i] - 1
        if action != REPEAT_CREDIT:
            remove(m, wire, config(g, CREDIT_ROOM), i)
        if action != LOSE_CREDIT:
            limit = what % limit_count(g)
            taken = what // limit_count(g) % (config(g, CHUNKS) + 1)
            epoch = what // limit_count(g) // (config(g, CHUNKS) + 1)
            room = g[edge_row(g, place) + CHUNK_BYTES]
            machine.on_credit(g, m, out, r, place, epoch, taken, bytes_of(g, place, taken), limit, limit * room)
    return 0


@rule
def arrive(g: Vector, m: Vector, out: Vector, r: int, e: int, epoch: int, seq: int) -> int:
    """A data message arrives; what is accepted must be the next chunk of the epoch that the consumer works on."""
    v = g[edge_row(g, e) + TO]
    at = receiver(g, r, e)
    if v == g[STAGES]:
        machine.on_delivery(g, m, out, r, e, epoch, seq, size_of(g, e, seq), is_final(g, seq))
        return 0
    machine.on_data(g, m, out, r, e, epoch, seq, size_of(g, e, seq), is_final(g, seq))
    for i in range(out[0]):
        if out[1 + i * EFFECT_SIZE + KIND] == DROPPED:
            return 0
    if m[stage(g, r, v) + STAGE_EPOCH] != epoch:
        return MIXED
    if m[at + RECEIVED] != seq + 1:
        return ORDER
    return 0


@rule
def route(g: Vector, m: Vector, out: Vector) -> int:
    """Put what was sent on the wires and let the witnesses look; 0, or the property broken."""
    for i in range(out[0]):
        at = 1 + i * EFFECT_SIZE
        what, r, where, epoch = out[at + KIND], out[at + WHO], out[at + WHERE], out[at + AT_EPOCH]
        if what == SEND_START:
            m[control_wire(g, r, where)] = 1 + 2 * epoch
        elif what == SEND_STOP:
            m[control_wire(g, r, where)] = 2 + 2 * epoch
        elif what == SEND_STOPPED:
            m[reply_wire(g, r, where)] = 1 + epoch
        elif what == SEND_DATA:
            wire = data_wire(g, r, where)
            n = filled(m, wire, config(g, DATA_ROOM))
            if n == config(g, DATA_ROOM):
                return ROOM
            m[wire + n] = 1 + epoch * config(g, CHUNKS) + out[at + A]
        elif what == SEND_CREDIT:
            wire, room = credit_wire(g, r, where), config(g, CREDIT_ROOM)
            n = filled(m, wire, room)
            say = 1 + (epoch * (config(g, CHUNKS) + 1) + out[at + A]) * limit_count(g) + out[at + C]
            # Absolute numbers: a message that says what the one before it says, or finds no room, replaces it.
            if n == room or (n > 0 and m[wire + n - 1] == say):
                n -= 1
            m[wire + n] = say
        else:
            found = witness(g, m, what, r, where, epoch, out[at + A])
            if found != 0:
                return found
    return 0


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
    return (1 if goal else 0) + (0 if silent else 2)


@rule
def canonical(g: Vector, m: Vector, scratch: Vector) -> None:
    """Order requests that differ in name only, so that of all renamings one state is kept."""
    if config(g, SYMMETRIC) == 0:
        return
    for i in range(g[REQUESTS] - 1):
        for j in range(g[REQUESTS] - 1 - i):
            if follows(g, m, j):
                swap(g, m, j)


@rule
def follows(g: Vector, m: Vector, r: int) -> bool:
    """Whether request `r` is larger than its neighbor, read as one long number."""
    size, at = g[REQUEST_SIZE], request(g, r)
    for i in range(size):
        if m[at + i] != m[at + size + i]:
            return m[at + i] > m[at + size + i]
    size, at = config(g, WORLD_SIZE), wires(g, r)
    for i in range(size):
        if m[at + i] != m[at + size + i]:
            return m[at + i] > m[at + size + i]
    return False


@rule
def swap(g: Vector, m: Vector, r: int) -> None:
    """Rename requests `r` and `r` + 1 into each other, in their records and in the slots they own."""
    size, at = g[REQUEST_SIZE], request(g, r)
    for i in range(size):
        m[at + i], m[at + size + i] = m[at + size + i], m[at + i]
    size, at = config(g, WORLD_SIZE), wires(g, r)
    for i in range(size):
        m[at + i], m[at + size + i] = m[at + size + i], m[at + i]
    for at in range(g[SLOT_AT], g[REQUEST_AT], SLOT_SIZE):
        if m[at + OWNER] == r + 1:
            m[at + OWNER] = r + 2
        elif m[at + OWNER] == r + 2:
            m[at + OWNER] = r + 1
