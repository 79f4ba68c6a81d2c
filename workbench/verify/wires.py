"""The state of a small world beside the machine: messages under way, budgets of faults, and witnesses.

A chunk is a number and a message one integer, so that states stay small. The witnesses record what the machine itself
does not know, for the laws to compare.
"""

from __future__ import annotations

from workbench.control.layout import CHUNK_BYTES, EDGES, EXTRA, REQUESTS, STAGES, WINDOW, WINDOW_BYTES, edge_row
from workbench.twin import Vector, rule

# Configuration of the world in `g`, from g[EXTRA] on; the budgets that it began with follow.
(
    CHUNKS,
    SHORT_LAST,
    COARSE,  # 1: credit, starts and answers travel at once, and a task is launched as soon as it is reserved
    DATA_ROOM,
    CREDIT_ROOM,
    SYMMETRIC,
    BUDGET_AT,
    DEAD_AT,
    WORLD_AT,
    WORLD_SIZE,
    WORLD_CONFIG,
) = range(11)

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
    DUPLICATE_DATA,
    DUPLICATE_CREDIT,
    DUPLICATE_CONTROL,
    DUPLICATE_REPLY,
    REORDER_DATA,
    REORDER_CREDIT,
    KILL,
    UPGRADE,  # kill, and the successor runs another model revision
    LOST_BRANCH,  # a stage silently forgets to work on one request: a lost branch
    FAIL,  # a launch ends in an error; `arg` 1: it has made more than was reserved
    RECONNECT,  # the client's connection breaks and is made again
    RESIZE,  # the credit protocol changes the window of a stream
    ACTIONS,
) = range(36)
FAULTS = ACTIONS - EXPIRE

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
def limit_bytes_of(g: Vector, e: int, limit: int) -> int:
    """Limit in bytes that goes with a limit in chunks, all chunks being of the largest size."""
    row = edge_row(g, e)
    return g[row + WINDOW_BYTES] + (limit - g[row + WINDOW]) * g[row + CHUNK_BYTES]


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
