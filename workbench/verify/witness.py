"""The properties of what happens: each event of a step against witnesses that the protocol machine does not see.

Launches, commits and ends are judged here, at the moment at which they happen; `workbench.verify.laws` judges states.
"""

from __future__ import annotations

from workbench.control.admission import WAIT
from workbench.control.effects import (
    ADMITTED,
    COMMITTED,
    DROPPED,
    ENDED,
    LAUNCHED,
    RECORDED,
    REFUSED,
    RELEASED,
    SEND_NOTICE,
)
from workbench.control.layout import (
    ADVERTISED,
    ATTEMPTS,
    CHUNK_BYTES,
    EDGE_MAX,
    EDGES,
    EPOCH,
    FLOOR,
    GENERATION,
    IN_AT,
    IN_COUNT,
    OUTCOME,
    PARENT,
    PHASE,
    RECEIVED,
    REPLAYABLE,
    REQUEST_MAX,
    REQUESTS,
    RESERVED,
    REVISION,
    RUNNING,
    SLOTS,
    STAGES,
    TAKEN,
    TENANT,
    TENANT_MAX,
    TO,
    TOTAL_MAX,
    USED,
    WAITING,
    WAITING_MAX,
    WHOLE,
    WIDTH,
    account,
    edge_row,
    edge_used,
    receiver,
    request,
    revision_of,
    slot,
    slots_used,
    stage,
    stage_row,
    tenant_used,
)
from workbench.control.phases import (
    CANCELLED,
    ERROR,
    NEW,
    OK,
    REJECTED,
    RUNNING_PHASE,
    TIMEOUT,
    WAITING_PHASE,
)
from workbench.twin import Vector, rule
from workbench.verify.laws import (
    AFTER_CANCEL,
    CAUSE,
    COMPLETE,
    FAMILY,
    LATE_LAUNCH,
    LEAK,
    MIXED,
    ORDER,
    STATE_MISUSE,
    TERMINAL,
    UNRECORDED,
    brought_in,
)
from workbench.verify.wires import (
    ACTIONS,
    CANCEL,
    CHUNKS,
    ENDINGS,
    EXPIRE,
    FAIL,
    GONE,
    KILL,
    REFRESH,
    RESEND,
    SHORT_LAST,
    START_AGAIN,
    STOP_AGAIN,
    TAG,
    UPGRADE,
    WORLD_CONFIG,
    budget,
    bytes_of,
    commits,
    config,
    late,
    limit_bytes_of,
    muted,
    on_device,
    reply_wire,
    wires,
)


@rule
def witness(g: Vector, m: Vector, what: int, r: int, where: int, epoch: int, number: int, second: int) -> int:
    """Check one thing that happened, with its numbers, against what may happen; 0, or the property broken."""
    at = request(g, r)
    mine = wires(g, r)
    if what == ADMITTED:
        for v in range(g[STAGES]):
            m[late(g, r, v)] = 0
        parent = request(g, max(0, m[at + PARENT] - 1))
        if m[at + PARENT] > 0 and m[parent + EPOCH] == 0 and m[parent + PHASE] in (NEW, WAITING_PHASE):
            return FAMILY
    elif what == LAUNCHED:
        if m[on_device(g, r, where)] != 0:
            return UNRECORDED
        m[on_device(g, r, where)] = 1
        if m[at + OUTCOME] != 0:
            if m[late(g, r, where)] != 0:
                return LATE_LAUNCH
            m[late(g, r, where)] = 1
        return inputs(g, m, r, where)
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
        return verdict(g, m, r, number)
    elif what == SEND_NOTICE:
        if m[mine + ENDINGS] == 0 or number != m[at + OUTCOME]:
            return TERMINAL
        m[mine + ENDINGS] = 2
    elif (what == REFUSED and number == WAIT and fits(g, m, r, 1)) or (
        what == DROPPED and m[at + PHASE] == RUNNING_PHASE and undisturbed(g, m)
    ):
        return CAUSE
    elif what == RELEASED:
        if m[slot(g, where, number) + GENERATION] <= second:
            return STATE_MISUSE
        if m[on_device(g, r, where)] != 0:
            return STATE_MISUSE if m[stage(g, r, where) + RUNNING] == 1 else UNRECORDED
        if m[reply_wire(g, r, where)] == 1 + epoch:
            return LEAK
    return 0


@rule
def inputs(g: Vector, m: Vector, r: int, v: int) -> int:
    """A launch has all of a `whole` input, and while its request runs, the model revisions of its admission."""
    row = stage_row(g, v)
    for i in range(g[row + IN_COUNT]):
        e = g[g[row + IN_AT] + i]
        if g[edge_row(g, e) + WHOLE] == 1 and m[receiver(g, r, e) + RECEIVED] != config(g, CHUNKS):
            return ORDER
    revisions = 0
    for u in range(g[STAGES]):
        revisions += m[revision_of(g, u)]
    if m[request(g, r) + PHASE] == RUNNING_PHASE and m[request(g, r) + REVISION] != revisions:
        return MIXED
    return 0


@rule
def spent(g: Vector, m: Vector, action: int) -> int:
    """How often the environment has done `action`."""
    return config(g, WORLD_CONFIG + action - EXPIRE) - m[budget(g, action)]


@rule
def verdict(g: Vector, m: Vector, r: int, outcome: int) -> int:
    """Whether a terminal state is deserved: lost, late, repeated or reordered messages alone never change it.

    OK needs every chunk of every output at the client. An error needs a task that failed, or a worker that died where
    another attempt is not left or may not continue the output. In a family whatever happened is cause enough. Only a
    newcomer is turned away, when it can never fit or when it does not fit and the queue is full.
    """
    if outcome == OK:
        for e in range(g[EDGES]):
            if g[edge_row(g, e) + TO] == g[STAGES] and m[commits(g, r, e)] != config(g, CHUNKS):
                return COMPLETE
        return 0
    if outcome == REJECTED:
        full = m[WAITING] >= g[WAITING_MAX] and not fits(g, m, r, 1)
        newcomer = m[request(g, r) + EPOCH] == 0 and m[request(g, r) + PARENT] == 0
        return 0 if newcomer and (full or not fits(g, m, r, 0)) else CAUSE
    if disowned(g, m, r, outcome):
        return FAMILY
    if related(g, m, r):
        return CAUSE if outcome != TIMEOUT and undisturbed(g, m) else 0
    deaths = spent(g, m, KILL) + spent(g, m, UPGRADE)
    other = shown(g, m, r) and (g[REPLAYABLE] == 0 or spent(g, m, UPGRADE) > 0)
    silent = spent(g, m, EXPIRE) > 0
    for v in range(g[STAGES]):
        silent = silent or m[muted(g, r, v)] == 1
    if outcome == CANCELLED and spent(g, m, CANCEL) == 0:
        return CAUSE
    if outcome == TIMEOUT and not silent:
        return CAUSE
    if outcome == ERROR and spent(g, m, FAIL) == 0 and not (deaths > 0 and (other or deaths >= g[ATTEMPTS])):
        return CAUSE
    return 0


@rule
def disowned(g: Vector, m: Vector, r: int, outcome: int) -> bool:
    """Whether a bad end has not the name that its family gives it.

    A child's makes its parent's an error, and a parent's is a cancel of its children.
    """
    parent = m[request(g, r) + PARENT]
    if parent > 0:
        return m[wires(g, parent - 1) + ENDINGS] != 0 and outcome != CANCELLED
    ended = False
    for child in range(g[REQUESTS]):
        mine = m[request(g, child) + PARENT] == r + 1 and m[wires(g, child) + ENDINGS] != 0
        ended = ended or (mine and m[request(g, child) + OUTCOME] != OK)
    return ended and outcome != ERROR


@rule
def shown(g: Vector, m: Vector, r: int) -> bool:
    """Whether the client may have a chunk; taken for granted after the first attempt."""
    found = m[request(g, r) + EPOCH] > 0
    for e in range(g[EDGES]):
        if g[edge_row(g, e) + TO] == g[STAGES]:
            found = found or m[commits(g, r, e)] > 0 or m[account(g, r, e) + RESERVED] > 0
    return found


@rule
def needless(g: Vector, m: Vector, r: int, action: int) -> bool:
    """Whether a timer that repeats something fires although nothing was lost: then something was never sent."""
    if action not in (RESEND, REFRESH, START_AGAIN, STOP_AGAIN) or not undisturbed(g, m):
        return False
    return action == STOP_AGAIN or m[request(g, r) + PHASE] == RUNNING_PHASE


@rule
def misstated(g: Vector, e: int, taken: int, taken_bytes: int, limit: int, limit_bytes: int) -> bool:
    """Whether a credit message states other bytes than its chunks have; a short last chunk may show in the limit."""
    room = limit_bytes_of(g, e, limit)
    return taken_bytes != bytes_of(g, e, taken) or not room - config(g, SHORT_LAST) <= limit_bytes <= room


@rule
def overstated(m: Vector, at: int, before: int) -> bool:
    """Whether a takeover raised the limit above what was taken and the window in force; `before` was stated already."""
    return m[at + ADVERTISED] > max(before, m[at + TAKEN] + m[at + WIDTH])


@rule
def related(g: Vector, m: Vector, r: int) -> bool:
    """Whether request `r` has a parent or children."""
    found = m[request(g, r) + PARENT] != 0
    for child in range(g[REQUESTS]):
        found = found or m[request(g, child) + PARENT] == r + 1
    return found


@rule
def undisturbed(g: Vector, m: Vector) -> bool:
    """Whether the environment has done nothing yet and no request was turned away."""
    done = 0
    for action in range(EXPIRE, ACTIONS):
        done += spent(g, m, action)
    for r in range(g[REQUESTS]):
        done += 1 if m[request(g, r) + OUTCOME] == REJECTED else 0
    return done == 0


@rule
def fits(g: Vector, m: Vector, r: int, used: int) -> bool:
    """Whether the floors and slots of request `r` fit beside all that is promised (`used` = 1) or alone (0).

    A family comes in together: a parent brings the children that have nothing yet, and a child follows its parent.
    """
    count, total = 1, 0
    for child in range(g[REQUESTS]):
        at = request(g, child)
        if m[at + PARENT] == r + 1 and (m[at + OUTCOME] == 0 or m[request(g, r) + OUTCOME] != 0):
            waits = m[at + PHASE] in (NEW, WAITING_PHASE) or m[at + OUTCOME] != 0
            count += 1 if waits and not brought_in(g, m, child) else 0
    if used == 1 and m[request(g, r) + PARENT] > 0:
        if brought_in(g, m, r):
            return True
        if m[request(g, m[request(g, r) + PARENT] - 1) + PHASE] in (NEW, WAITING_PHASE):
            return False
    for e in range(g[EDGES]):
        row = edge_row(g, e)
        floor = g[row + FLOOR] * g[row + CHUNK_BYTES]
        total += floor
        if used * m[edge_used(g, e)] + count * floor > g[row + EDGE_MAX]:
            return False
    for v in range(g[STAGES]):
        if used * m[slots_used(g, v)] + count > g[stage_row(g, v) + SLOTS]:
            return False
    tenant = used * m[tenant_used(m[request(g, r) + TENANT])]
    return total <= g[REQUEST_MAX] and count * total <= min(g[TENANT_MAX] - tenant, g[TOTAL_MAX] - used * m[USED])
