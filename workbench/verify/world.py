"""The world around the protocol machine: wires that lose, repeat and reorder, workers that die, clients that give up.

The explorer asks which actions are possible (`options`) and performs each of them on a copy; every action calls the
functions of `workbench.control` that the replay engine and the testbed call. Nothing here decides anything, so what
holds here holds under every scheduling rule, window law and delay.
"""

from __future__ import annotations

from workbench.control import credit, lifecycle, machine
from workbench.control.effects import (
    AT_EPOCH,
    DROPPED,
    EFFECT_SIZE,
    KIND,
    SEND_CREDIT,
    SEND_DATA,
    SEND_NOTICE,
    SEND_START,
    SEND_STOP,
    SEND_STOPPED,
    WHERE,
    WHO,
    A,
    B,
    C,
    D,
)
from workbench.control.layout import (
    ADVERTISED,
    CHUNK_BYTES,
    CLIENT_EPOCH,
    CLOSED,
    EDGES,
    FROM,
    IN_AT,
    IN_COUNT,
    LIMIT,
    OUT_AT,
    OUT_COUNT,
    OUTCOME,
    PHASE,
    RECEIVED,
    REQUESTS,
    RUNNING,
    SENT,
    STAGE_EPOCH,
    STAGES,
    STATUS,
    TAKEN,
    TAKEN_KNOWN,
    TO,
    WIDTH,
    WINDOW,
    client,
    edge_row,
    receiver,
    request,
    revision_of,
    sender,
    stage,
    stage_row,
)
from workbench.control.phases import OPEN, RUNNING_PHASE, WAITING_PHASE
from workbench.twin import Vector, rule
from workbench.verify.interface import FAULT, PROGRESS, TIMER
from workbench.verify.laws import (
    CAUSE,
    COLLATERAL,
    CONSERVATION,
    HELD,
    LEAK,
    MIXED,
    ORDER,
    OVERRUN,
    PROMPT,
    ROOM,
    STATE_MISUSE,
    TERMINAL,
    UNRECORDED,
    broken,
    flags,
    generations,
    spared,
)
from workbench.verify.options import actions
from workbench.verify.symmetry import canonical
from workbench.verify.wires import (
    ASK_AGAIN,
    CANCEL,
    CANCEL_ARRIVES,
    CANCEL_MESSAGE,
    CHUNKS,
    COARSE,
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
    GONE,
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
    action_of,
    arg_of,
    budget,
    bytes_of,
    commits,
    config,
    control_wire,
    credit_wire,
    data_wire,
    dead,
    filled,
    is_final,
    late,
    limit_bytes_of,
    limit_count,
    muted,
    on_device,
    place_of,
    remove,
    reply_wire,
    request_of,
    size_of,
    up,
    wires,
)
from workbench.verify.witness import misstated, needless, overstated, witness

__all__ = ["actions", "apply", "broken", "canonical", "flags", "kind"]


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
def apply(g: Vector, m: Vector, which: int, out: Vector) -> int:
    """Perform an action; 0, or the property that the step broke."""
    action, r = action_of(g, which), request_of(g, which)
    place, seq = place_of(g, which), arg_of(g, which)
    out[0] = 0
    broken_by = PROMPT if needless(g, m, r, action) else 0
    if action >= EXPIRE and m[budget(g, action)] > 0:
        m[budget(g, action)] -= 1
    if action == SUBMIT:
        lifecycle.submit(g, m, out, r, -1, -1)
        if m[request(g, r) + PHASE] == WAITING_PHASE:
            ask_too_early(g, m, out, r)
    elif action == ASK_AGAIN:
        lifecycle.ask_again(g, m, out, r, -1, -1)
    elif action == EXPIRE:
        lifecycle.expire(g, m, out, r)
    elif action == CANCEL_ARRIVES:
        m[wires(g, r) + CANCEL_MESSAGE] = 0
        lifecycle.cancel(g, m, out, r)
    elif action == NOTICE_ARRIVES:
        # The first notice may have been lost: the timer must be able to say the same.
        lifecycle.tell(g, m, out, r)
        again = out[0] == 1 and out[1 + KIND] == SEND_NOTICE and out[1 + A] == m[request(g, r) + OUTCOME]
        out[0] = 0
        if not again:
            return TERMINAL
        machine.on_notice(g, m, r)
        m[wires(g, r) + GONE] = 1
        lifecycle.told(g, m, r)
    elif action == CANCEL:
        machine.client_cancels(g, m, r)
        m[wires(g, r) + GONE] = 1
        m[wires(g, r) + CANCEL_MESSAGE] = 1
    elif action == RESERVE:
        machine.reserve(g, m, r, place)
        if config(g, COARSE) == 1:
            broken_by = launch(g, m, out, r, place)
    elif action == LAUNCH:
        broken_by = launch(g, m, out, r, place)
    elif action in (FINISH, FAIL):
        wanted = m[request(g, r) + PHASE] == RUNNING_PHASE and m[stage(g, r, place) + STATUS] == OPEN
        finish(g, m, out, r, place, action == FAIL, seq)
        if action == FAIL and wanted and m[request(g, r) + OUTCOME] == 0:
            return CAUSE
    elif action == RESEND:
        machine.resend(g, m, out, r, place, seq, size_of(g, place, seq), is_final(g, seq))
    elif action == REFRESH:
        machine.refresh(g, m, out, r, place)
    elif action == START_AGAIN:
        lifecycle.start(g, m, out, r)
    elif action == STOP_AGAIN:
        lifecycle.stop_again(g, m, out, r, place)
    elif action in (KILL, UPGRADE):
        handles = generations(g, m, place)
        machine.wipe(g, m, place)
        if generations(g, m, place) < handles:
            return STATE_MISUSE
        m[dead(g, place)] = 1 if action == KILL else 2
        for other in range(g[REQUESTS]):
            m[on_device(g, other, place)] = 0
            m[late(g, other, place)] = 0
    elif action == DETECT:
        unhurt, now = spared(g, m, place), m[revision_of(g, place)] + m[dead(g, place)] - 1
        lifecycle.lost(g, m, out, place, m[dead(g, place)] - 1)
        if m[revision_of(g, place)] != now:
            return MIXED
        if m[dead(g, place)] == 1 and spared(g, m, place) != unhurt:
            return COLLATERAL
        m[dead(g, place)] = 0
    elif action == LOST_BRANCH:
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
    seen = 0
    while broken_by == 0 and seen < out[0]:
        before, seen = seen, out[0]
        broken_by = route(g, m, out, before)
        if broken_by == 0 and config(g, COARSE) == 1:
            settle(g, m, out)
    return broken_by


@rule
def ask_too_early(g: Vector, m: Vector, out: Vector, r: int) -> None:
    """Ask again at once for a request that was told to wait: a driver may, and nothing may come of it."""
    seen = out[0]
    lifecycle.ask_again(g, m, out, r, -1, -1)
    if m[request(g, r) + PHASE] == WAITING_PHASE:
        out[0] = seen


@rule
def settle(g: Vector, m: Vector, out: Vector) -> None:
    """Deliver everything that travels at once in a coarse world: credit, starts, and word that a stage has stopped."""
    for r in range(g[REQUESTS]):
        for v in range(g[STAGES]):
            if m[reply_wire(g, r, v)] != 0:
                message(g, m, out, REPLY, r, v)
            if m[control_wire(g, r, v)] % 2 == 1 and up(g, m, v):
                message(g, m, out, CONTROL, r, v)
        for e in range(g[EDGES]):
            if m[credit_wire(g, r, e)] != 0 and up(g, m, g[edge_row(g, e) + FROM]):
                message(g, m, out, CREDIT, r, e)


@rule
def launch(g: Vector, m: Vector, out: Vector, r: int, v: int) -> int:
    """Launch, with the sizes of the chunks at the head of the inboxes; 0, or the property that it broke."""
    row = stage_row(g, v)
    # The sizes are handed over where the effect list will not reach.
    sizes = out[len(out) - g[EDGES] :]
    stated = out[len(out) - 2 * g[EDGES] : len(out) - g[EDGES]]
    for i in range(g[row + IN_COUNT]):
        e = g[g[row + IN_AT] + i]
        sizes[e] = size_of(g, e, m[receiver(g, r, e) + TAKEN])
        stated[e] = m[receiver(g, r, e) + ADVERTISED]
    machine.launch(g, m, out, r, v, sizes)
    for i in range(g[row + IN_COUNT]):
        e = g[g[row + IN_AT] + i]
        if overstated(m, receiver(g, r, e), stated[e]):
            return OVERRUN
    return 0


@rule
def finish(g: Vector, m: Vector, out: Vector, r: int, v: int, failed: bool, oversize: int) -> None:
    """Finish, with the sizes of the chunks made; a failed one says so, or has made a byte too much (`oversize`)."""
    row = stage_row(g, v)
    sizes = out[len(out) - g[EDGES] :]
    final = 0
    for i in range(g[row + OUT_COUNT]):
        e = g[g[row + OUT_AT] + i]
        seq = m[sender(g, r, e) + SENT]
        sizes[e] = g[edge_row(g, e) + CHUNK_BYTES] + 1 if failed and oversize == 1 else size_of(g, e, seq)
        final = is_final(g, seq)
    machine.finish(g, m, out, r, v, sizes, final, 1 if failed and oversize == 0 else 0)


@rule
def message(g: Vector, m: Vector, out: Vector, action: int, r: int, place: int) -> int:
    """Deliver, lose or repeat a message; 0, or the property that the delivery broke."""
    if action in (CONTROL, LOSE_CONTROL, DUPLICATE_CONTROL):
        wire = control_wire(g, r, place)
        what = m[wire] - 1
        if action != DUPLICATE_CONTROL:
            m[wire] = 0
        if action != LOSE_CONTROL:
            if what % 2 == 0:
                machine.on_start(g, m, r, place, what // 2)
            else:
                machine.on_stop(g, m, out, r, place, what // 2)
                if m[request(g, r) + OUTCOME] != 0:
                    m[late(g, r, place)] = 2
    elif action in (REPLY, LOSE_REPLY, DUPLICATE_REPLY):
        wire = reply_wire(g, r, place)
        what = m[wire] - 1
        if action != DUPLICATE_REPLY:
            m[wire] = 0
        if action != LOSE_REPLY:
            lifecycle.stopped(g, m, out, r, place, what)
    elif action in (DATA, LOSE_DATA, DUPLICATE_DATA, REORDER_DATA):
        wire = data_wire(g, r, place)
        i = 1 if action == REORDER_DATA else 0
        what = m[wire + i] - 1
        if action != DUPLICATE_DATA:
            remove(m, wire, config(g, DATA_ROOM), i)
        if action != LOSE_DATA:
            return arrive(g, m, out, r, place, what // config(g, CHUNKS), what % config(g, CHUNKS))
    elif action in (CREDIT, LOSE_CREDIT, DUPLICATE_CREDIT, REORDER_CREDIT):
        wire = credit_wire(g, r, place)
        i = 1 if action == REORDER_CREDIT else 0
        what = m[wire + i] - 1
        if action != DUPLICATE_CREDIT:
            remove(m, wire, config(g, CREDIT_ROOM), i)
        if action != LOSE_CREDIT:
            limit = what % limit_count(g)
            taken = what // limit_count(g) % (config(g, CHUNKS) + 1)
            epoch = what // limit_count(g) // (config(g, CHUNKS) + 1)
            size, bound = bytes_of(g, place, taken), limit_bytes_of(g, place, limit)
            machine.on_credit(g, m, out, r, place, epoch, taken, size, limit, bound)
            end, at = sender(g, r, place), stage(g, r, g[edge_row(g, place) + FROM])
            unheard = m[end + TAKEN_KNOWN] < taken or m[end + LIMIT] < limit
            if m[at + STATUS] == OPEN and m[at + STAGE_EPOCH] == epoch and unheard:
                return CONSERVATION
    return 0


@rule
def arrive(g: Vector, m: Vector, out: Vector, r: int, e: int, epoch: int, seq: int) -> int:
    """A data message arrives; what is accepted must be the next chunk of the epoch that the consumer works on."""
    v = g[edge_row(g, e) + TO]
    at = receiver(g, r, e)
    if v == g[STAGES]:
        machine.on_delivery(g, m, out, r, e, epoch, seq, size_of(g, e, seq), is_final(g, seq))
        listens = m[client(g, r) + CLOSED] == 0 and m[client(g, r) + CLIENT_EPOCH] == epoch
        return PROMPT if listens and out[0] > 0 and not answered(out) else 0
    stated = m[at + ADVERTISED]
    machine.on_data(g, m, out, r, e, epoch, seq, size_of(g, e, seq), is_final(g, seq))
    for i in range(out[0]):
        if out[1 + i * EFFECT_SIZE + KIND] == DROPPED:
            listens = m[stage(g, r, v) + STATUS] == OPEN and m[stage(g, r, v) + STAGE_EPOCH] == epoch
            return PROMPT if listens and not answered(out) else 0
    if m[stage(g, r, v) + STAGE_EPOCH] != epoch:
        return MIXED
    if m[at + RECEIVED] != seq + 1:
        return ORDER
    return OVERRUN if overstated(m, at, max(stated, g[edge_row(g, e) + WINDOW])) else 0


@rule
def answered(out: Vector) -> bool:
    """Whether the step sent credit."""
    found = False
    for i in range(out[0]):
        found = found or out[1 + i * EFFECT_SIZE + KIND] == SEND_CREDIT
    return found


@rule
def route(g: Vector, m: Vector, out: Vector, first: int) -> int:
    """Put what was sent, from effect `first` on, on the wires and let the witnesses look; 0, or the property broken."""
    for i in range(first, out[0]):
        at = 1 + i * EFFECT_SIZE
        what, r, where, epoch = out[at + KIND], out[at + WHO], out[at + WHERE], out[at + AT_EPOCH]
        if what == SEND_START:
            m[control_wire(g, r, where)] = 1 + 2 * epoch
        elif what == SEND_STOP:
            m[control_wire(g, r, where)] = 2 + 2 * epoch
        elif what == SEND_STOPPED:
            if m[on_device(g, r, where)] != 0:
                return LEAK if m[stage(g, r, where) + RUNNING] == 1 else UNRECORDED
            m[reply_wire(g, r, where)] = 1 + epoch
        elif what == SEND_DATA:
            if out[at + B] != size_of(g, where, out[at + A]) or out[at + C] != is_final(g, out[at + A]):
                return ORDER
            wire = data_wire(g, r, where)
            n = filled(m, wire, config(g, DATA_ROOM))
            if n == config(g, DATA_ROOM):
                return ROOM
            m[wire + n] = 1 + epoch * config(g, CHUNKS) + out[at + A]
        elif what == SEND_CREDIT:
            if misstated(g, where, out[at + A], out[at + B], out[at + C], out[at + D]):
                return CONSERVATION
            if g[edge_row(g, where) + TO] == g[STAGES] and out[at + A] > m[commits(g, r, where)]:
                return HELD
            wire, room = credit_wire(g, r, where), config(g, CREDIT_ROOM)
            n = filled(m, wire, room)
            say = 1 + (epoch * (config(g, CHUNKS) + 1) + out[at + A]) * limit_count(g) + out[at + C]
            # Absolute numbers: a message that says what the one before it says, or finds no room, replaces it.
            if n == room or (n > 0 and m[wire + n - 1] == say):
                n -= 1
            m[wire + n] = say
        else:
            found = witness(g, m, what, r, where, epoch, out[at + A], out[at + B])
            if found != 0:
                return found
    return 0
