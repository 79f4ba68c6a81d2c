"""The protocol machine: what a stage and a client do on each message, timer and step of work.

Sans-I/O: every function changes the memory `m` and lists in `out` what its driver must send or write. The explorer
calls these functions in every order, the replay engine in simulated time, the testbed from its threads; none of them
has another way to move a chunk. The controller's functions are in `lifecycle`.

The life of a chunk: room is *reserved* on every out-edge before the task starts; the task is *launched*, which takes
its inputs over and returns their credit; it *finishes*, and the chunk is sent; the next stage receives it (nothing is
returned), and takes it over by launching its own task.
"""

from __future__ import annotations

from workbench.control import credit, ledger, lifecycle, objects
from workbench.control.effects import (
    COMMITTED,
    DROPPED,
    LAUNCHED,
    RECORDED,
    RELEASED,
    SEND_DATA,
    SEND_STOPPED,
    SUPPRESSED,
    emit,
)
from workbench.control.layout import (
    CHUNK_BYTES,
    CLIENT_EPOCH,
    CLOSED,
    EDGES,
    EXPOSED,
    FINAL_RECEIVED,
    FINAL_SENT,
    FROM,
    GENERATION,
    IN_AT,
    IN_COUNT,
    LAST,
    OUT_AT,
    OUT_COUNT,
    READY,
    RECEIVED,
    REQUESTS,
    RUNNING,
    SENT,
    SENT_BYTES,
    SLOT,
    SLOT_GENERATION,
    STAGE_EPOCH,
    STAGE_SIZE,
    STAGES,
    STATUS,
    TAKEN,
    TAKEN_KNOWN,
    TAKEN_KNOWN_BYTES,
    TO,
    WHOLE,
    client,
    cursor,
    edge_row,
    receiver,
    request,
    sender,
    slot,
    stage,
    stage_row,
)
from workbench.control.phases import IDLE, OPEN, STOPPED, STOPPING
from workbench.twin import Vector, rule

# Why a stage may not go on: what it waits for. The kinds of a wait in a trace follow from these.
GO, NOT_OPEN, BUSY, NO_INPUT, NO_SLOT, NO_WINDOW, NO_ROOM, BAD_STATE = range(8)

# FINAL_SENT of a terminal edge: no, yes, and yes with the client's takeover reported to the controller.
REPORTED = 2


@rule
def open_stage(g: Vector, m: Vector, r: int, v: int, epoch: int) -> bool:
    """Begin attempt `epoch` of request `r` at stage `v` if the ledger says that it is the one that runs."""
    if not ledger.open_to(g, m, r, epoch):
        return False
    at = stage(g, r, v)
    for i in range(STAGE_SIZE):
        m[at + i] = 0
    m[at + STATUS] = OPEN
    m[at + STAGE_EPOCH] = epoch
    m[at + SLOT] = objects.NONE
    row = stage_row(g, v)
    for i in range(g[row + IN_COUNT]):
        credit.open_receiver(g, m, r, g[g[row + IN_AT] + i])
    for i in range(g[row + OUT_COUNT]):
        credit.open_sender(g, m, r, g[g[row + OUT_AT] + i])
    return True


@rule
def runs(g: Vector, m: Vector, r: int, v: int, epoch: int) -> bool:
    """Whether stage `v` works on `epoch` of request `r`, opening it if it is new here."""
    at = stage(g, r, v)
    if m[at + STATUS] == IDLE or m[at + STAGE_EPOCH] < epoch:
        return open_stage(g, m, r, v, epoch)
    return m[at + STATUS] == OPEN and m[at + STAGE_EPOCH] == epoch


@rule
def on_start(g: Vector, m: Vector, r: int, v: int, epoch: int) -> None:
    """A first stage is told to begin."""
    runs(g, m, r, v, epoch)


@rule
def on_data(
    g: Vector, m: Vector, out: Vector, r: int, e: int, epoch: int, seq: int, size_bytes: int, final: int
) -> None:
    """A chunk arrives at the stage that consumes edge `e`.

    Dropped when it belongs to another epoch or to a stream that was stopped. The next chunk in order goes to the inbox;
    anything else is a repeat or comes after a gap, and is answered with the present numbers. The payload of a `whole`
    edge is taken over piece by piece: its task cannot start, and so cannot take over, before all of it is there.
    """
    v = g[edge_row(g, e) + TO]
    if not runs(g, m, r, v, epoch):
        emit(out, DROPPED, r, e, epoch, seq)
        return
    at = receiver(g, r, e)
    if not credit.accept(m, at, seq, final):
        emit(out, DROPPED, r, e, epoch, seq)
        credit.advertise(g, m, out, r, e, epoch)
    elif g[edge_row(g, e) + WHOLE] == 1:
        credit.take(m, at, size_bytes)
        credit.advertise(g, m, out, r, e, epoch)


@rule
def has_input(g: Vector, m: Vector, r: int, v: int) -> bool:
    """Whether the next task of the stage has all its inputs: the join."""
    row = stage_row(g, v)
    for i in range(g[row + IN_COUNT]):
        e = g[g[row + IN_AT] + i]
        at = receiver(g, r, e)
        if g[edge_row(g, e) + WHOLE] == 1:
            if m[at + FINAL_RECEIVED] == 0:
                return False
        elif m[at + RECEIVED] == m[at + TAKEN]:
            return False
    return True


@rule
def obstacle(g: Vector, m: Vector, r: int, v: int) -> int:
    """What the next task of request `r` at stage `v` waits for, GO if it may reserve: inputs, a state object, room.

    The ledger is asked last and for all out-edges at once.
    """
    at = stage(g, r, v)
    if m[at + STATUS] != OPEN or m[at + LAST] == 1 or not ledger.open_to(g, m, r, m[at + STAGE_EPOCH]):
        return NOT_OPEN
    if m[at + READY] == 1 or m[at + RUNNING] == 1:
        return BUSY
    if not has_input(g, m, r, v):
        return NO_INPUT
    if m[at + SLOT] == objects.NONE and objects.free(g, m, v) == objects.NONE:
        return NO_SLOT
    row = stage_row(g, v)
    for i in range(g[row + OUT_COUNT]):
        if not credit.may_send(g, m, r, g[g[row + OUT_AT] + i]):
            return NO_WINDOW
    if not ledger.can_reserve(g, m, r, v):
        return NO_ROOM
    return GO


@rule
def reserve(g: Vector, m: Vector, r: int, v: int) -> int:
    """Reserve the next task before it starts: room on every out-edge and, the first time, a state object.

    Returns GO, or the obstacle; then nothing has changed. A stage holds at most one task that is reserved and not
    launched, so at most one launch per stage can follow a cancel that has not reached it yet.
    """
    why = obstacle(g, m, r, v)
    if why != GO:
        return why
    at = stage(g, r, v)
    if m[at + SLOT] == objects.NONE:
        i = objects.free(g, m, v)
        objects.allocate(g, m, r, v, m[at + STAGE_EPOCH], i)
        m[at + SLOT] = i
        m[at + SLOT_GENERATION] = m[slot(g, v, i) + GENERATION]
    row = stage_row(g, v)
    for i in range(g[row + OUT_COUNT]):
        e = g[g[row + OUT_AT] + i]
        ledger.reserve(g, m, r, e)
        if g[edge_row(g, e) + TO] == g[STAGES]:
            m[request(g, r) + EXPOSED] = 1
    m[at + READY] = 1
    return GO


@rule
def launch(g: Vector, m: Vector, out: Vector, r: int, v: int, input_bytes: Vector) -> int:
    """Put the reserved task on the device and take its inputs over; GO, or why not.

    ``input_bytes[e]`` is the size of the chunk at the head of the inbox of each in-edge `e`.
    """
    at = stage(g, r, v)
    if m[at + STATUS] != OPEN or m[at + READY] == 0:
        return NOT_OPEN
    epoch = m[at + STAGE_EPOCH]
    if objects.check(g, m, r, v, epoch, m[at + SLOT], m[at + SLOT_GENERATION]) != objects.VALID:
        lifecycle.fail(g, m, out, r, epoch)
        return BAD_STATE
    m[at + READY] = 0
    m[at + RUNNING] = 1
    emit(out, LAUNCHED, r, v, epoch, m[at + SLOT], m[at + SLOT_GENERATION])
    row = stage_row(g, v)
    for i in range(g[row + IN_COUNT]):
        e = g[g[row + IN_AT] + i]
        if g[edge_row(g, e) + WHOLE] == 0:
            credit.take(m, receiver(g, r, e), input_bytes[e])
            credit.advertise(g, m, out, r, e, epoch)
    return GO


@rule
def finish(g: Vector, m: Vector, out: Vector, r: int, v: int, output_bytes: Vector, final: int, failed: int) -> None:
    """The launch on the device has ended.

    ``output_bytes[e]`` is the size of the chunk for each out-edge `e`. A result that nobody wants any more is recorded
    and thrown away, and only then the stage says that it has stopped. A chunk larger than was reserved is a failure.
    """
    at = stage(g, r, v)
    epoch = m[at + STAGE_EPOCH]
    m[at + RUNNING] = 0
    if m[at + STATUS] == STOPPING:
        emit(out, RECORDED, r, v, epoch, 1)
        halt(g, m, out, r, v)
        return
    row = stage_row(g, v)
    for i in range(g[row + OUT_COUNT]):
        e = g[g[row + OUT_AT] + i]
        if output_bytes[e] < 0 or output_bytes[e] > g[edge_row(g, e) + CHUNK_BYTES]:
            failed = 1
    emit(out, RECORDED, r, v, epoch, failed)
    if failed == 1:
        lifecycle.fail(g, m, out, r, epoch)
        return
    for i in range(g[row + OUT_COUNT]):
        e = g[g[row + OUT_AT] + i]
        end = sender(g, r, e)
        ledger.trim(g, m, r, e, g[edge_row(g, e) + CHUNK_BYTES] - output_bytes[e])
        emit(out, SEND_DATA, r, e, epoch, m[end + SENT], output_bytes[e], final)
        m[end + SENT] += 1
        m[end + SENT_BYTES] += output_bytes[e]
        m[end + FINAL_SENT] = final
    if final == 1:
        m[at + LAST] = 1
        give_slot_up(g, m, out, r, v)
        if ledger.open_to(g, m, r, epoch):
            ledger.return_slot(g, m, r, v)


@rule
def on_credit(
    g: Vector,
    m: Vector,
    out: Vector,
    r: int,
    e: int,
    epoch: int,
    taken: int,
    taken_bytes: int,
    limit: int,
    limit_bytes: int,
) -> None:
    """Credit comes back along edge `e`: the only way in which the ledger hears of a takeover."""
    v = g[edge_row(g, e) + FROM]
    at = stage(g, r, v)
    if m[at + STATUS] != OPEN or m[at + STAGE_EPOCH] != epoch:
        return
    end = sender(g, r, e)
    credit.learn(m, end, taken, taken_bytes, limit, limit_bytes)
    ledger.give_back(g, m, r, e, m[end + TAKEN_KNOWN], m[end + TAKEN_KNOWN_BYTES])
    if g[edge_row(g, e) + TO] == g[STAGES] and m[end + FINAL_SENT] == 1 and m[end + TAKEN_KNOWN] == m[end + SENT]:
        m[end + FINAL_SENT] = REPORTED
        lifecycle.delivered(g, m, out, r, epoch)


@rule
def resend(g: Vector, m: Vector, out: Vector, r: int, e: int, seq: int, size_bytes: int, final: int) -> None:
    """Timer: a chunk that was sent and is not known to be taken is sent again; it was kept for this."""
    at = stage(g, r, g[edge_row(g, e) + FROM])
    end = sender(g, r, e)
    if m[at + STATUS] == OPEN and m[end + TAKEN_KNOWN] <= seq < m[end + SENT]:
        emit(out, SEND_DATA, r, e, m[at + STAGE_EPOCH], seq, size_bytes, final)


@rule
def refresh(g: Vector, m: Vector, out: Vector, r: int, e: int) -> None:
    """Timer: the receiving end repeats its present numbers, in case the last message was lost."""
    v = g[edge_row(g, e) + TO]
    if v == g[STAGES]:
        credit.advertise(g, m, out, r, e, m[client(g, r) + CLIENT_EPOCH])
    elif m[stage(g, r, v) + STATUS] == OPEN:
        credit.advertise(g, m, out, r, e, m[stage(g, r, v) + STAGE_EPOCH])


@rule
def on_stop(g: Vector, m: Vector, out: Vector, r: int, v: int, epoch: int) -> None:
    """Stop working on `epoch`. A launch that is on the device ends first: the state under it stays until then."""
    at = stage(g, r, v)
    if m[at + STATUS] != IDLE and m[at + STAGE_EPOCH] > epoch:
        return
    if m[at + STATUS] == OPEN and m[at + RUNNING] == 1:
        m[at + STATUS] = STOPPING
    if m[at + STATUS] == STOPPING:
        return
    m[at + STAGE_EPOCH] = epoch
    halt(g, m, out, r, v)


@rule
def halt(g: Vector, m: Vector, out: Vector, r: int, v: int) -> None:
    """Let go of everything that stage `v` holds for request `r` and say so."""
    at = stage(g, r, v)
    epoch = m[at + STAGE_EPOCH]
    give_slot_up(g, m, out, r, v)
    m[at + STATUS] = STOPPED
    m[at + READY] = 0
    m[at + LAST] = 0
    row = stage_row(g, v)
    for i in range(g[row + IN_COUNT]):
        credit.open_receiver(g, m, r, g[g[row + IN_AT] + i])
    for i in range(g[row + OUT_COUNT]):
        credit.open_sender(g, m, r, g[g[row + OUT_AT] + i])
    emit(out, SEND_STOPPED, r, v, epoch)


@rule
def give_slot_up(g: Vector, m: Vector, out: Vector, r: int, v: int) -> None:
    """Release the state object that request `r` holds at stage `v`, if it holds one."""
    at = stage(g, r, v)
    if m[at + SLOT] != objects.NONE:
        emit(out, RELEASED, r, v, m[at + STAGE_EPOCH], m[at + SLOT], m[at + SLOT_GENERATION])
        objects.release(g, m, v, m[at + SLOT])
        m[at + SLOT] = objects.NONE
        m[at + SLOT_GENERATION] = 0


@rule
def wipe(g: Vector, m: Vector, v: int) -> None:
    """The worker of stage `v` died: its records, its state objects and the ends of its streams are gone."""
    objects.lose_all(g, m, v)
    row = stage_row(g, v)
    for r in range(g[REQUESTS]):
        at = stage(g, r, v)
        for i in range(STAGE_SIZE):
            m[at + i] = 0
        m[at + SLOT] = objects.NONE
        for i in range(g[row + IN_COUNT]):
            credit.open_receiver(g, m, r, g[g[row + IN_AT] + i])
        for i in range(g[row + OUT_COUNT]):
            credit.open_sender(g, m, r, g[g[row + OUT_AT] + i])


@rule
def on_delivery(
    g: Vector, m: Vector, out: Vector, r: int, e: int, epoch: int, seq: int, size_bytes: int, final: int
) -> None:
    """A chunk arrives at the client on terminal edge `e`.

    The client commits each chunk once, in order, whatever the epoch: its cursor survives everything, so a second
    attempt starts from 0 and is silent until it reaches what the client lacks. A closed client commits nothing.
    """
    at = client(g, r)
    if m[at + CLOSED] == 1 or epoch < m[at + CLIENT_EPOCH]:
        emit(out, DROPPED, r, e, epoch, seq)
        return
    if epoch > m[at + CLIENT_EPOCH]:
        m[at + CLIENT_EPOCH] = epoch
        for other in range(g[EDGES]):
            if g[edge_row(g, other) + TO] == g[STAGES]:
                credit.open_receiver(g, m, r, other)
    end = receiver(g, r, e)
    if not credit.accept(m, end, seq, final):
        emit(out, DROPPED, r, e, epoch, seq)
    else:
        credit.take(m, end, size_bytes)
        if seq == m[cursor(g, r, e)]:
            m[cursor(g, r, e)] += 1
            emit(out, COMMITTED, r, e, epoch, seq)
        else:
            emit(out, SUPPRESSED, r, e, epoch, seq)
    credit.advertise(g, m, out, r, e, epoch)


@rule
def on_notice(g: Vector, m: Vector, r: int) -> None:
    """The client hears that its request has ended; its driver answers, and the controller calls `lifecycle.told`."""
    m[client(g, r) + CLOSED] = 1


@rule
def client_cancels(g: Vector, m: Vector, r: int) -> None:
    """The client gives up: from now on it commits nothing, whatever is still on the wire."""
    m[client(g, r) + CLOSED] = 1
