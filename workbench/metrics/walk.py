"""The backward walk: from a terminal to the arrival, one segment at a time (compiled).

Everything here works on the flat arrays of a task graph; `critical_path` is the face. A path is written from its end
towards its front, into the slot that a first, counting walk has measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.metrics.dependencies import CREDIT, DATA, STATE
from workbench.metrics.tables import Bools, Int, Ints
from workbench.metrics.task_graph import TaskGraph
from workbench.metrics.waits import BATCH_WAIT, CAUSE_CODE, CREDIT_STALL
from workbench.schema.enums import SPAN_KIND
from workbench.twin import compiled

_HOST, _QUEUE, _UNATTRIBUTED = (SPAN_KIND.index(kind) for kind in ("host", "queue", "unattributed"))
_UNKNOWN, _ARRIVAL_CAUSE = CAUSE_CODE["unknown"], CAUSE_CODE["arrival"]
_CREDIT_CAUSE, _BATCH_CAUSE = CAUSE_CODE["credit"], CAUSE_CODE["batch"]


@dataclass(frozen=True, slots=True)
class Segments:
    """Segments of all paths, path by path, in order of time.

    Attributes
    ----------
    ptr : int64, length n_paths + 1
        Offsets of the paths.
    node, blocker : int64
        Activity that the segment belongs to (a wait belongs to what it delayed); activity that ended the wait, or -1.
    span : int64
        Id of the row that the segment shows: span, chunk or wait; for a lag the activity that was late.
    kind, cause : int64
        Positions in SPAN_KIND and CAUSE.
    start_ns, end_ns : int64
        Interval.
    ambiguous : int64, length n_paths
        Steps at which a second candidate ended within the clock error of the chosen one.
    """

    ptr: Ints
    node: Ints
    span: Ints
    kind: Ints
    cause: Ints
    start_ns: Ints
    end_ns: Ints
    blocker: Ints
    ambiguous: Ints


def walk(graph: TaskGraph, terminals: Ints, scheduled_ns: Ints, *, system: bool, clock_error_ns: int) -> Segments:
    """Walk back from every terminal (an activity number) to its request's arrival."""
    a, d, w = graph.activities, graph.dependencies, graph.waits
    arguments = (
        terminals, scheduled_ns, system, clock_error_ns,
        a.span, a.kind, a.cause, a.start_ns, a.end_ns, a.request, graph.requests.scheduled_ns[a.request],
        a.launch, a.launch_ptr, graph.lag_ns, graph.busy, graph.rooted,
        d.ptr, d.source, d.kind, d.at_start, d.offset_ns,
        w.ptr, w.span, w.kind, w.cause, w.start_ns, w.end_ns, w.explained, w.source,
    )  # fmt: skip
    ptr = np.zeros(len(terminals) + 1, dtype=np.int64)
    ambiguous = np.zeros(len(terminals), dtype=np.int64)
    _walk(*arguments, ptr, np.empty((0, 7), dtype=np.int64), ambiguous)
    np.cumsum(ptr, out=ptr)
    out = np.empty((int(ptr[-1]), 7), dtype=np.int64)
    _walk(*arguments, ptr, out, ambiguous)
    node, span, kind, cause, start, end, blocker = (np.ascontiguousarray(column) for column in out.T)
    return Segments(ptr, node, span, kind, cause, start, end, blocker, ambiguous)


@compiled
def _emit(
    out: Ints, state: Ints, node: Int, span: Int, kind: Int, cause: Int, start: Int, end: Int, blocker: Int
) -> None:
    """Prepend a segment; a lag joins the lag of the same activity behind it. state: next slot, last node, last kind."""
    if end <= start:
        return
    if node == state[1] and kind == state[2] and kind in (_HOST, _UNATTRIBUTED):
        if len(out):
            out[state[0], 4] = start
        return
    state[0] -= 1
    state[1] = node
    state[2] = kind
    if len(out):
        row = state[0]
        out[row, 0], out[row, 1], out[row, 2], out[row, 3] = node, span, kind, cause
        out[row, 4], out[row, 5], out[row, 6] = start, end, blocker


@compiled
def _gap(out: Ints, state: Ints, node: Int, span: Int, low: Int, high: Int, latest: Int, lag_kind: Int) -> None:
    """Time that no wait row covers: up to the latest recorded cause unattributed, from there on the lag."""
    # Plain numbers would be types of their own to numba, and each combination a compilation.
    nobody, unknown, unattributed = np.int64(-1), np.int64(_UNKNOWN), np.int64(_UNATTRIBUTED)
    _emit(out, state, node, span, lag_kind, unknown, max(low, latest), high, nobody)
    _emit(out, state, node, span, unattributed, unknown, low, min(high, latest), nobody)


@compiled
def _walk(
    terminals: Ints, scheduled: Ints, system: bool, clock_error: int,
    span: Ints, kind: Ints, cause: Ints, start: Ints, end: Ints, request: Ints, arrival: Ints,
    launch: Ints, launch_ptr: Ints, lag: Ints, busy: Bools, rooted: Bools,
    dep_ptr: Ints, dep_source: Ints, dep_kind: Ints, dep_at_start: Bools, dep_offset: Ints,
    wait_ptr: Ints, wait_span: Ints, wait_kind: Ints, wait_cause: Ints, wait_start: Ints, wait_end: Ints,
    wait_explained: Bools, wait_source: Ints,
    ptr: Ints, out: Ints, ambiguous: Ints,
) -> None:  # fmt: skip
    """Fill `out` (node, span, kind, cause, start, end, blocker), or count into ``ptr[1:]`` where `out` is empty."""
    state = np.empty(3, dtype=np.int64)
    nobody, queue, unattributed = np.int64(-1), np.int64(_QUEUE), np.int64(_UNATTRIBUTED)
    unknown, on_arrival = np.int64(_UNKNOWN), np.int64(_ARRIVAL_CAUSE)
    for path in range(len(terminals)):
        low = scheduled[path]
        state[0] = ptr[path + 1] if len(out) else 0
        state[1] = -1
        state[2] = -1
        x = terminals[path]
        own = request[x]
        ambiguous[path] = 0
        through = True
        while True:
            s = max(start[x], low)
            if through:
                other = x if request[x] != own else nobody
                _emit(out, state, x, span[x], np.int64(kind[x]), np.int64(cause[x]), s, end[x], other)
            if s <= low:
                break
            # The latest dependency to follow: data and state of x, or in the system view all of the whole launch.
            best, second, ready, due = -1, low - 1, low, low
            first = launch_ptr[launch[x]] if system else x
            last = launch_ptr[launch[x] + 1] if system else x + 1
            for y in range(first, last):
                for e in range(dep_ptr[y], dep_ptr[y + 1]):
                    f = dep_source[e]
                    if f < 0:
                        moment = arrival[y] + dep_offset[e]
                    else:
                        moment = (start[f] if dep_at_start[e] else end[f]) + dep_offset[e]
                    if not system and dep_kind[e] != DATA and dep_kind[e] != STATE:
                        continue
                    if best < 0 or moment > ready:
                        better = True
                    elif moment < ready or dep_kind[e] > dep_kind[best]:
                        better = False
                    else:
                        better = dep_kind[e] < dep_kind[best] or (
                            f >= 0 and dep_source[best] >= 0 and span[f] < span[dep_source[best]]
                        )
                    if better:
                        if best < 0 or f != dep_source[best]:
                            second = ready if best >= 0 else second
                        best, ready, due = e, moment, arrival[y]
                    elif f != dep_source[best]:
                        second = max(second, moment)
            if best >= 0 and second >= low and ready - second < clock_error:
                ambiguous[path] += 1
            # A path that ends in another request began when that one arrived; before, this one waited for it to come.
            came = max(low, arrival[x]) if best < 0 else low
            ready = max(ready, came)
            # What the launch waited for last, whether or not a row says that this member waited for it too.
            latest = max(start[x] - lag[launch[x]], ready)
            for k in range(wait_ptr[x], wait_ptr[x + 1]):
                if wait_explained[k] and wait_end[k] <= s:
                    latest = max(latest, wait_end[k])
            rootless = best < 0 and not rooted[x] and latest == low
            lag_kind = unattributed if busy[launch[x]] or rootless else np.int64(_HOST)
            cursor = s
            for k in range(wait_ptr[x + 1] - 1, wait_ptr[x] - 1, -1):
                begin, stop = max(wait_start[k], ready), min(wait_end[k], cursor)
                if stop <= begin:
                    continue
                _gap(out, state, x, span[x], stop, cursor, latest, lag_kind)
                if wait_explained[k] and wait_end[k] <= s:
                    f = wait_source[k]
                    other = f if f >= 0 and request[f] != own else nobody
                    waited, why = np.int64(wait_kind[k]), np.int64(wait_cause[k])
                    _emit(out, state, x, wait_span[k], waited, why, begin, stop, other)
                else:
                    _emit(out, state, x, span[x], unattributed, unknown, begin, stop, nobody)
                cursor = begin
            _gap(out, state, x, span[x], ready, cursor, latest, lag_kind)
            if best < 0 or ready <= low:
                _emit(out, state, x, span[x], queue, on_arrival, low, came, x)
                break
            f = dep_source[best]
            moment = due if f < 0 else (start[f] if dep_at_start[best] else end[f])
            if moment < ready:
                credit = dep_kind[best] == CREDIT
                trip = np.int64(CREDIT_STALL if credit else BATCH_WAIT)
                why = np.int64(_CREDIT_CAUSE if credit else _BATCH_CAUSE)
                other = f if f >= 0 and request[f] != own else nobody
                _emit(out, state, x, span[x], trip, why, max(moment, low), ready, other)
            if f < 0:
                _emit(out, state, x, span[x], queue, on_arrival, low, moment, nobody)
            if f < 0 or moment <= low:
                break
            through = not dep_at_start[best]
            x = f
        if not len(out):
            ptr[path + 1] = -state[0]
