"""What a request still needs: estimates from the past alone; the longest chain, the sum and the number of tasks left.

A request is a graph of chunk tasks. Chunk ``k`` of stage ``v`` (counted from 1) comes after chunk ``k - 1`` of ``v``
and, for each edge ``u > v``, after chunk ``ceil(k * N_u / N_v)`` of ``u`` where the edge streams, after the last,
``N_u``, where it hands over the whole. Equal totals stream one to one. A task that is running counts in full until it
ends, so a remainder is at most the elapsed part of running tasks too long.

`metrics.remaining` answers another question: the longest chain that was recorded, looking back.
"""

from __future__ import annotations

from workbench.control.ranges import MAX_TIME_NS
from workbench.control.signals import UNKNOWN
from workbench.graph import CLIENT, StageGraph
from workbench.twin import Vector, rule

# Estimate of one (class, stage): how many ended, their sum, and the value that stands until one has ended.
COUNT, SUM, PRIOR, ESTIMATE = range(4)

# Shape of a graph: numbers of stages and edges, then per edge its ends as positions in topological order, and whether
# it hands over the whole payload at once.
STAGES, EDGES, SHAPE_HEAD = range(3)
FROM, TO, WHOLE, EDGE_ROW = range(4)

# Progress of one request at one stage, a row per stage of the shape: chunks ended, chunks in all, nanoseconds per
# chunk, and the address of nanoseconds chunk by chunk in a vector of services (UNKNOWN = every chunk takes PER_CHUNK).
DONE, TOTAL, PER_CHUNK, CHUNKS_AT, PROGRESS = range(5)


@rule
def observe(estimates: Vector, e: int, value: int) -> None:
    """Count a value that has come to be known: service of a task that *ended*, chunks of a stream that *closed*.

    Sums are exact up to `MAX_TIME_NS` (73 years of service); there count and sum are halved, which keeps the mean.
    """
    if estimates[e + SUM] > MAX_TIME_NS - value:
        estimates[e + SUM] = estimates[e + SUM] // 2
        estimates[e + COUNT] = estimates[e + COUNT] // 2
    estimates[e + SUM] += value
    estimates[e + COUNT] += 1


@rule
def mean(estimates: Vector, e: int) -> int:
    """Mean of what was observed, rounded down; the prior while nothing was (`UNKNOWN` if there is none)."""
    if estimates[e + COUNT] < 1:
        return estimates[e + PRIOR]
    return estimates[e + SUM] // estimates[e + COUNT]


@rule
def expected_total(mean_total: int, done: int, closed: int) -> int:
    """Chunks that a stream will have in all: what is done once it is closed, else the mean, and always one more."""
    if closed != 0:
        return done
    if mean_total > done:
        return mean_total
    return done + 1


@rule
def added(a: int, b: int) -> int:
    """Sum of two times up to `MAX_TIME_NS`, no further."""
    if a + b > MAX_TIME_NS:
        return MAX_TIME_NS
    return a + b


@rule
def chunk_ns(progress: Vector, p: int, services: Vector, k: int) -> int:
    """Service of chunk `k` (from 1) of the stage whose progress row starts at `p`."""
    if progress[p + CHUNKS_AT] >= 0:
        return services[progress[p + CHUNKS_AT] + k - 1]
    return progress[p + PER_CHUNK]


@rule
def first_user(whole: int, k: int, total: int, next_total: int) -> int:
    """First chunk of the next stage that needs chunk `k` of this one; ``next_total + 1`` if none does."""
    if whole != 0:
        return 1
    return (k - 1) * next_total // total + 1


@rule
def known(shape: Vector, progress: Vector, p: int) -> int:
    """1 if every stage that has chunks left says how long they take, else 0."""
    for v in range(shape[STAGES]):
        row = p + v * PROGRESS
        if (
            progress[row + DONE] < progress[row + TOTAL]
            and progress[row + CHUNKS_AT] < 0
            and progress[row + PER_CHUNK] < 0
        ):
            return 0
    return 1


@rule
def starts(shape: Vector, progress: Vector, p: int, out: Vector, o: int) -> None:
    """Write where the chunks of each stage start in `out`, behind these addresses."""
    at = o + shape[STAGES]
    for v in range(shape[STAGES]):
        out[o + v] = at
        at += progress[p + v * PROGRESS + TOTAL]


@rule
def tails(shape: Vector, progress: Vector, p: int, services: Vector, out: Vector, o: int) -> int:
    """Longest chain from the start of each task left to the end of the request; returns the longest of them, `L_r`.

    The upward rank of HEFT (Topcuoglu, Hariri & Wu 2002) on chunk tasks, without communication.

    Parameters
    ----------
    shape : int vector
        The graph, from `shape_of`.
    progress : int vector
        Rows of `PROGRESS` integers from address `p`, one per stage in the order of the shape.
    services : int vector
        Services chunk by chunk, for rows that point into it; may be empty otherwise.
    out : int vector
        Receives from address `o` one address per stage, then one time in ns per chunk: chunk `k` of stage `v` stands at
        ``out[o + v] + k - 1``; chunks that ended get 0.

    Returns
    -------
    int
        0 if nothing is left, `UNKNOWN` if a service that is needed is not known (then `out` is untouched). Times stop
        at `MAX_TIME_NS`.
    """
    if known(shape, progress, p) == 0:
        return UNKNOWN
    starts(shape, progress, p, out, o)
    longest = 0
    for back in range(shape[STAGES]):
        v = shape[STAGES] - 1 - back
        row = p + v * PROGRESS
        total = progress[row + TOTAL]
        after = 0
        for behind in range(total):
            k = total - behind
            if k <= progress[row + DONE]:
                out[out[o + v] + k - 1] = 0
                continue
            tail = after
            for e in range(shape[EDGES]):
                edge = SHAPE_HEAD + e * EDGE_ROW
                if shape[edge + FROM] != v:
                    continue
                w = shape[edge + TO]
                w_row = p + w * PROGRESS
                user = first_user(shape[edge + WHOLE], k, total, progress[w_row + TOTAL])
                # What ended already needs nothing more; its successor stands in.
                if user <= progress[w_row + DONE]:
                    user = progress[w_row + DONE] + 1
                if user <= progress[w_row + TOTAL] and out[out[o + w] + user - 1] > tail:
                    tail = out[out[o + w] + user - 1]
            after = added(chunk_ns(progress, row, services, k), tail)
            out[out[o + v] + k - 1] = after
        if after > longest:
            longest = after
    return longest


@rule
def path_to(shape: Vector, progress: Vector, p: int, services: Vector, stage: int, k: int, out: Vector, o: int) -> int:
    """Longest chain of work that chunk `k` of `stage` waits for, its own service included: the way to a first output.

    Parameters and result as for `tails`; 0 if that chunk has ended. `out` receives such a chain for each task that
    comes before in the order of the shape.
    """
    if known(shape, progress, p) == 0:
        return UNKNOWN
    if k <= progress[p + stage * PROGRESS + DONE]:
        return 0
    starts(shape, progress, p, out, o)
    for v in range(stage + 1):
        row = p + v * PROGRESS
        total = progress[row + TOTAL]
        last = 0
        for j in range(progress[row + DONE] + 1, total + 1):
            head = last
            for e in range(shape[EDGES]):
                edge = SHAPE_HEAD + e * EDGE_ROW
                if shape[edge + TO] != v:
                    continue
                u = shape[edge + FROM]
                u_row = p + u * PROGRESS
                need = progress[u_row + TOTAL]
                if shape[edge + WHOLE] == 0:
                    need = (j * need + total - 1) // total
                if need > progress[u_row + DONE] and out[out[o + u] + need - 1] > head:
                    head = out[out[o + u] + need - 1]
            last = added(chunk_ns(progress, row, services, j), head)
            out[out[o + v] + j - 1] = last
            if v == stage and j == k:
                return last
    return 0


@rule
def work(shape: Vector, progress: Vector, p: int, services: Vector) -> int:
    """Sum of the services of all tasks left, up to `MAX_TIME_NS`; `UNKNOWN` if one that is needed is not known."""
    if known(shape, progress, p) == 0:
        return UNKNOWN
    total = 0
    for v in range(shape[STAGES]):
        row = p + v * PROGRESS
        for k in range(progress[row + DONE] + 1, progress[row + TOTAL] + 1):
            total = added(total, chunk_ns(progress, row, services, k))
    return total


@rule
def fan_out(shape: Vector, progress: Vector, p: int, stage: int, k: int, first: Vector, f: int) -> int:
    """Tasks left of the request that need chunk `k` of `stage`, directly or not.

    Parameters
    ----------
    first : int vector
        Scratch for one integer per stage, from address `f`.
    """
    count = 0
    for v in range(shape[STAGES]):
        row = p + v * PROGRESS
        total = progress[row + TOTAL]
        reached = total + 1
        if v == stage:
            reached = k
        for e in range(shape[EDGES]):
            edge = SHAPE_HEAD + e * EDGE_ROW
            u = shape[edge + FROM]
            if shape[edge + TO] == v and v > stage and u >= stage:
                u_total = progress[p + u * PROGRESS + TOTAL]
                if first[f + u] <= u_total:
                    user = first_user(shape[edge + WHOLE], first[f + u], u_total, total)
                    if user <= progress[row + DONE]:
                        user = progress[row + DONE] + 1
                    if user < reached:
                        reached = user
        first[f + v] = reached
        if v >= stage and reached <= total:
            count += total - reached + 1
    return count - 1


def shape_of(graph: StageGraph) -> Vector:
    """A graph as rules read it, stages in the order of ``graph.order``, edges from and to the client left out.

    Examples
    --------
    Three chunks at each of four stages, 5 ns each, 8 ns at the talker: the longest chain waits three times for it.

    >>> from workbench.graph import preset
    >>> progress = [0, 3, 5, -1, 0, 3, 5, -1, 0, 3, 8, -1, 0, 3, 5, -1]
    >>> tails(shape_of(preset("t1")), progress, 0, [], [0] * 16, 0)
    39
    """
    order = graph.order
    edges = [edge for edge in graph.edges if CLIENT not in (edge.source, edge.target)]
    shape = [len(order), len(edges)]
    for edge in edges:
        shape += [order.index(edge.source), order.index(edge.target), int(edge.kind == "whole")]
    return shape
