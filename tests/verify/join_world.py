"""Requests that fork into two branches and join them, under one shared pool of C chunks.

Branch a runs ahead of b by `SKEW` chunks before b emits; the join takes one chunk of each. With `RESERVE` the last
chunk of the pool is kept from branch a. `DEADLINE` lets a request give up, `CANCEL` lets its client go away, `SPIN`
gives every state a step that leads nowhere. All requests are alike.
"""

from __future__ import annotations

from workbench.twin import Vector, rule
from workbench.verify.interface import FAULT, GOAL, PROGRESS, TIMER, UNTIMED

# Configuration.
POOL, CHUNKS, SKEW, RESERVE, REQUESTS, DEADLINE, CANCEL, SPIN = range(8)
# State: one record per request, then the turns made in vain. A request that gave up has joined everything.
A, B, JOINED, WIDTH = range(4)
# Action codes: four per request, then the step that leads nowhere.
RUN_A, RUN_B, JOIN, GIVE_UP, GO_AWAY, ACTIONS = range(6)
OVERDRAWN = 9


def config(pool=3, chunks=6, skew=1, reserve=0, requests=1, deadline=0, cancel=0, spin=0) -> list[int]:
    return [pool, chunks, skew, reserve, requests, deadline, cancel, spin]


def initial(g: list[int]) -> list[int]:
    return [0] * (g[REQUESTS] * WIDTH + 1)


@rule
def used(g: Vector, m: Vector) -> int:
    total = 0
    for r in range(0, g[REQUESTS] * WIDTH, WIDTH):
        total += m[r + A] + m[r + B] - 2 * m[r + JOINED]
    return total


@rule
def actions(g: Vector, m: Vector, acts: Vector) -> int:
    n = 0
    taken = used(g, m)
    for request in range(g[REQUESTS]):
        r, code = request * WIDTH, request * ACTIONS + 1
        a, b, joined = m[r + A], m[r + B], m[r + JOINED]
        if a < g[CHUNKS] and taken < g[POOL] and (g[RESERVE] == 0 or a - joined < g[POOL] - 1):
            acts[n] = code + RUN_A
            n += 1
        if b < g[CHUNKS] and taken < g[POOL] and a >= min(g[CHUNKS], b + g[SKEW]):
            acts[n] = code + RUN_B
            n += 1
        if min(a, b) > joined:
            acts[n] = code + JOIN
            n += 1
        if g[DEADLINE] and joined < g[CHUNKS]:
            acts[n] = code + GIVE_UP
            n += 1
        if g[CANCEL] and joined < g[CHUNKS]:
            acts[n] = code + GO_AWAY
            n += 1
    if g[SPIN]:
        acts[n] = g[REQUESTS] * ACTIONS + 1
        n += 1
    return n


@rule
def apply(g: Vector, m: Vector, action: int, out: Vector) -> int:
    request = (action - 1) // ACTIONS
    what, r = action - 1 - request * ACTIONS, request * WIDTH
    out[0], out[1], out[2] = 2, request, what
    if request == g[REQUESTS]:
        m[r] = 1 - m[r]
    elif what == RUN_A:
        m[r + A] += 1
    elif what == RUN_B:
        m[r + B] += 1
    elif what == JOIN:
        m[r + JOINED] += 1
    else:
        m[r + A], m[r + B], m[r + JOINED] = g[CHUNKS], g[CHUNKS], g[CHUNKS]
    return OVERDRAWN if used(g, m) > g[POOL] else 0


@rule
def kind(g: Vector, action: int) -> int:
    what = action - 1 - (action - 1) // ACTIONS * ACTIONS
    if action <= g[REQUESTS] * ACTIONS and what >= GIVE_UP:
        return TIMER if what == GIVE_UP else FAULT
    return PROGRESS


@rule
def family(g: Vector, action: int) -> int:
    """All requests share the weights of what they do."""
    return action - 1 - (action - 1) // ACTIONS * ACTIONS


@rule
def broken(g: Vector, m: Vector) -> int:
    return 0


@rule
def flags(g: Vector, m: Vector) -> int:
    for r in range(0, g[REQUESTS] * WIDTH, WIDTH):
        if m[r + JOINED] < g[CHUNKS]:
            return UNTIMED
    return GOAL | UNTIMED


@rule
def after(m: Vector, r: int) -> bool:
    """Whether the record at `r` belongs after the next one."""
    for field in range(WIDTH):
        if m[r + field] != m[r + WIDTH + field]:
            return m[r + field] > m[r + WIDTH + field]
    return False


@rule
def canonical(g: Vector, m: Vector, scratch: Vector) -> None:
    """Requests in ascending order of their records."""
    for end in range(g[REQUESTS] - 1, 0, -1):
        for request in range(end):
            r = request * WIDTH
            if after(m, r):
                for field in range(WIDTH):
                    scratch[0] = m[r + field]
                    m[r + field] = m[r + WIDTH + field]
                    m[r + WIDTH + field] = scratch[0]
