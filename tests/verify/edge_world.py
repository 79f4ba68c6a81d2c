"""One stage edge under credit: a window of W chunks over channels that lose and repeat; the receiver may restart.

Credit is a count of chunks that comes back one by one (`ABSOLUTE` 0) or the largest sequence number that the receiver
will take (1). `PROBE` lets the receiver ask again when both channels are empty; `FENCE` drops messages of an older
receiver; `DEDUP` drops chunks seen before. State counts and verdicts of its variants are known from a second explorer
and from Spin.
"""

from __future__ import annotations

from workbench.twin import Vector, rule
from workbench.verify.interface import FAULT, GOAL, PROGRESS

# Configuration.
K, W, LOSS, DUP, KILL, CANCEL, ABSOLUTE, PROBE, FENCE, DEDUP = range(10)
# State: next new chunk, credit, budgets left, receiver epoch, 1 cancel asked 2 cleaned, chunks out in order, the first
# chunk out of order plus one, lengths of the channels; then channels of (epoch, value), and chunks held by number.
NEXT, LIMIT, LOSSES, DUPS, KILLS, EPOCH, CANCELLED, OUT, WRONG, N_DATA, N_CREDIT = range(11)
CREDITS = 3
CREDIT = 11
DATA = CREDIT + 2 * CREDITS

CLEAN, ASK, SEND, DISCARD, DELIVER, LOSE_DATA, DUP_DATA, CONSUME, STALE, TAKE, LOSE_CREDIT, DUP_CREDIT = range(1, 13)
RETRANSMIT, READVERTISE, RESTART = range(13, 16)
NAMES = (
    "", "clean", "cancel", "send", "discard", "deliver", "lose data", "dup data", "consume", "stale credit", "credit",
    "lose credit", "dup credit", "retransmit", "readvertise", "kill",
)  # fmt: skip
OVER_BUFFER, OUT_OF_ORDER, UNCLEAN, OVER_CREDIT, OVER_CHANNEL = range(1, 6)


def config(k=3, w=2, loss=1, dup=1, kill=0, cancel=0, absolute=1, probe=1, fence=1, dedup=1) -> list[int]:
    return [k, w, loss, dup, kill, cancel, absolute, probe, fence, dedup]


def initial(g: list[int]) -> list[int]:
    m = [0] * (DATA + 2 * (g[W] + 2) + g[K])
    m[LIMIT], m[LOSSES], m[DUPS], m[KILLS] = g[W], g[LOSS], g[DUP], g[KILL]
    return m


@rule
def held_from(g: Vector) -> int:
    return DATA + 2 * (g[W] + 2)


@rule
def pop(m: Vector, size: int, base: int) -> None:
    """Remove the first message of a channel; free places are zero."""
    m[size] -= 1
    for i in range(base, base + 2 * m[size]):
        m[i] = m[i + 2]
    m[base + 2 * m[size]] = 0
    m[base + 2 * m[size] + 1] = 0


@rule
def push(m: Vector, size: int, base: int, epoch: int, value: int) -> None:
    m[base + 2 * m[size]] = epoch
    m[base + 2 * m[size] + 1] = value
    m[size] += 1


@rule
def clear(m: Vector, low: int, high: int) -> None:
    for i in range(low, high):
        m[i] = 0


@rule
def target(g: Vector, m: Vector) -> int:
    return m[OUT] + g[W] if g[ABSOLUTE] else 1


@rule
def expected(g: Vector, m: Vector) -> int:
    """The first chunk that the receiver lacks."""
    chunk = m[OUT]
    while chunk < g[K] and m[held_from(g) + chunk] > 0:
        chunk += 1
    return chunk


@rule
def first_held(g: Vector, m: Vector) -> int:
    for chunk in range(g[K]):
        if m[held_from(g) + chunk] > 0:
            return chunk
    return -1


@rule
def unwanted(g: Vector, m: Vector) -> bool:
    """Whether the first data message is of another receiver or seen before."""
    epoch, chunk = m[DATA], m[DATA + 1]
    if g[FENCE] and epoch != m[EPOCH]:
        return True
    return g[DEDUP] > 0 and (m[held_from(g) + chunk] > 0 or chunk < m[OUT])


@rule
def actions(g: Vector, m: Vector, acts: Vector) -> int:
    n = 0
    if m[CANCELLED] == 2:
        return n
    if m[CANCELLED] == 1:
        acts[0] = CLEAN
        return 1
    if g[CANCEL] and m[OUT] < g[K]:
        acts[n] = ASK
        n += 1
    may = m[NEXT] < m[LIMIT] if g[ABSOLUTE] else m[LIMIT] > 0
    if m[NEXT] < g[K] and may and m[N_DATA] < g[W] + 2:
        acts[n] = SEND
        n += 1
    if m[N_DATA] > 0:
        acts[n] = DISCARD if unwanted(g, m) else DELIVER
        n += 1
        if m[LOSSES] > 0:
            acts[n] = LOSE_DATA
            n += 1
        if m[DUPS] > 0 and m[N_DATA] < g[W] + 2:
            acts[n] = DUP_DATA
            n += 1
    held = first_held(g, m)
    if held >= 0 and (held == m[OUT] or g[DEDUP] == 0):
        acts[n] = CONSUME
        n += 1
    if m[N_CREDIT] > 0:
        acts[n] = STALE if g[FENCE] and m[CREDIT] != m[EPOCH] else TAKE
        n += 1
        if m[LOSSES] > 0:
            acts[n] = LOSE_CREDIT
            n += 1
        if m[DUPS] > 0 and m[N_CREDIT] < CREDITS:
            acts[n] = DUP_CREDIT
            n += 1
    if g[PROBE] and m[OUT] < g[K] and m[N_DATA] == 0 and m[N_CREDIT] == 0:
        if expected(g, m) < m[NEXT]:
            acts[n] = RETRANSMIT
            n += 1
        if g[ABSOLUTE] and m[LIMIT] < target(g, m):
            acts[n] = READVERTISE
            n += 1
    if m[KILLS] > 0 and m[OUT] < g[K]:
        acts[n] = RESTART
        n += 1
    return n


@rule
def apply(g: Vector, m: Vector, action: int, out: Vector) -> int:
    held = held_from(g)
    if action == CLEAN:
        clear(m, CREDIT, held + g[K])
        m[N_DATA], m[N_CREDIT], m[CANCELLED], m[LIMIT] = 0, 0, 2, g[W]
    elif action == ASK:
        m[CANCELLED] = 1
    elif action == SEND:
        push(m, N_DATA, DATA, m[EPOCH], m[NEXT])
        m[NEXT] += 1
        if g[ABSOLUTE] == 0:
            m[LIMIT] -= 1
    elif action == DISCARD:
        pop(m, N_DATA, DATA)
    elif action == DELIVER:
        m[held + m[DATA + 1]] += 1
        pop(m, N_DATA, DATA)
    elif action == LOSE_DATA:
        pop(m, N_DATA, DATA)
        m[LOSSES] -= 1
    elif action == DUP_DATA:
        push(m, N_DATA, DATA, m[DATA], m[DATA + 1])
        m[DUPS] -= 1
    elif action == CONSUME:
        chunk = first_held(g, m)
        m[held + chunk] -= 1
        if chunk == m[OUT]:
            m[OUT] += 1
            limit = target(g, m)
        else:
            m[WRONG] = chunk + 1
            limit = target(g, m) + g[ABSOLUTE]
        if m[N_CREDIT] == CREDITS:
            pop(m, N_CREDIT, CREDIT)
        push(m, N_CREDIT, CREDIT, m[EPOCH], limit)
        out[0] = 1
        out[1] = chunk
    elif action == STALE:
        pop(m, N_CREDIT, CREDIT)
    elif action == TAKE:
        value = m[CREDIT + 1]
        m[LIMIT] = max(m[LIMIT], value) if g[ABSOLUTE] else m[LIMIT] + value
        pop(m, N_CREDIT, CREDIT)
    elif action == LOSE_CREDIT:
        pop(m, N_CREDIT, CREDIT)
        m[LOSSES] -= 1
    elif action == DUP_CREDIT:
        push(m, N_CREDIT, CREDIT, m[CREDIT], m[CREDIT + 1])
        m[DUPS] -= 1
    elif action == RETRANSMIT:
        push(m, N_DATA, DATA, m[EPOCH], expected(g, m))
    elif action == READVERTISE:
        push(m, N_CREDIT, CREDIT, m[EPOCH], target(g, m))
    elif action == RESTART:
        m[KILLS] -= 1
        clear(m, held, held + g[K])
        m[EPOCH] += 1
        m[NEXT] = m[OUT]
        m[LIMIT] = m[OUT] + g[W] if g[ABSOLUTE] else g[W]
    return OVER_CHANNEL if m[N_DATA] > g[W] + 2 else 0


@rule
def kind(g: Vector, action: int) -> int:
    if action in (ASK, LOSE_DATA, DUP_DATA, LOSE_CREDIT, DUP_CREDIT, RESTART):
        return FAULT
    return PROGRESS


@rule
def broken(g: Vector, m: Vector) -> int:
    count = 0
    for i in range(held_from(g), held_from(g) + g[K]):
        count += m[i]
    if count > g[W]:
        return OVER_BUFFER
    if m[WRONG] > 0:
        return OUT_OF_ORDER
    if m[CANCELLED] == 2 and (m[N_DATA] > 0 or m[N_CREDIT] > 0 or count > 0):
        return UNCLEAN
    if g[ABSOLUTE] == 0 and m[CANCELLED] == 0 and m[LIMIT] > g[W]:
        return OVER_CREDIT
    return 0


@rule
def flags(g: Vector, m: Vector) -> int:
    return GOAL if m[OUT] == g[K] or m[CANCELLED] == 2 else 0


@rule
def canonical(g: Vector, m: Vector, scratch: Vector) -> None:
    """No two states of one edge are symmetric."""
