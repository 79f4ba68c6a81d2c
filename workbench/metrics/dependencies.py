"""What each activity had to wait for: data, state, credit, a free replica, its batch, a timer.

A dependency is a moment of another activity (its end, or its start for a take-over) plus a fixed trip. An activity
starts at the latest of its dependencies plus its *lag*; a negative lag contradicts the recording and is listed, never
clipped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench.metrics.activities import HOST, Activities, Requests, violation_rows
from workbench.metrics.tables import NONE, Bools, Ints
from workbench.metrics.waits import CAUSE_CODE, Chains, Links, Waits, grouped
from workbench.twin import compiled

# Kinds of dependency. Their order decides ties: of two that end together, the smaller number is the cause.
DATA, STATE, CREDIT, RESOURCE, BATCH = range(5)

_OF_CAUSE = {"data": DATA, "state": STATE, "retry": STATE, "credit": CREDIT, "resource": RESOURCE, "batch": BATCH}


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Dependencies by activity: those of activity x are the entries ``ptr[x]`` to ``ptr[x + 1]``.

    Attributes
    ----------
    ptr : int64, length n_activities + 1
        Offsets.
    source : int64
        Activity that is waited for; -1 is the arrival of x's own request.
    kind : int8
        DATA, STATE, CREDIT, RESOURCE (the end of the whole launch of `source`) or BATCH (a last member or a timer).
    at_start : bool
        Whether `source` releases x by its start.
    offset_ns : int64
        Time from that moment to the release: the trip of a credit, a timer or another wait of fixed length, else 0.
    """

    ptr: Ints
    source: Ints
    kind: Ints
    at_start: Bools
    offset_ns: Ints

    @classmethod
    def empty(cls, ptr: Ints) -> Dependencies:
        """Room for ``ptr[-1]`` entries."""
        size = int(ptr[-1])
        return cls(
            ptr,
            source=np.empty(size, dtype=np.int64),
            kind=np.empty(size, dtype=np.int8),
            at_start=np.empty(size, dtype=np.bool_),
            offset_ns=np.empty(size, dtype=np.int64),
        )

    def target(self) -> Ints:
        """Activity of every entry."""
        return np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))

    def without(self, wrong: Bools) -> Dependencies:
        """The dependencies less the entries `wrong`."""
        left = ~wrong
        ptr: Ints = np.insert(np.cumsum(left, dtype=np.int64), 0, 0)[self.ptr]
        return Dependencies(ptr, self.source[left], self.kind[left], self.at_start[left], self.offset_ns[left])


@dataclass(frozen=True, slots=True)
class Replicas:
    """What ran on a launch's replica before it.

    Attributes
    ----------
    before : int64, length n_launches
        Launch that freed the replica last, -1 if there is none or it had not ended.
    busy : bool, length n_launches
        Whether another launch still ran on the replica when this one started.
    """

    before: Ints
    busy: Bools

    @classmethod
    def of(cls, activities: Activities) -> Replicas:
        """Look back along every (stage, replica)."""
        first = activities.launch_ptr[:-1]
        before = np.full(len(first), NONE, dtype=np.int64)
        busy = np.zeros(len(first), dtype=np.bool_)
        work = np.flatnonzero((activities.edge[first] < 0) & (activities.kind[first] != HOST))
        if len(work):
            replica = activities.replica[first[work]].astype(np.int64)
            place = activities.stage[first[work]] * (replica.max() + 1) + replica
            ptr, order = grouped(place, int(place.max()) + 1)
            _look_back(ptr, work[order], activities.start_ns[first], activities.end_ns[first], before, busy)
        return cls(before, busy)


def collect(
    activities: Activities, waits: Waits, chains: Chains, links: Links, requests: Requests, replicas: Replicas
) -> Dependencies:
    """All dependencies that the recording states or implies, contradictions included."""
    fed = np.flatnonzero(links.consumer >= 0)
    input_ptr, position = grouped(links.consumer[fed], len(activities))
    state = chains.predecessor(activities)
    before = replicas.before[activities.launch]
    resource = np.where(before >= 0, activities.launch_ptr[before], NONE) if len(before) else before

    kind_of = np.full(len(CAUSE_CODE), NONE, dtype=np.int8)
    for name, kind in _OF_CAUSE.items():
        kind_of[CAUSE_CODE[name]] = kind
    arguments = (
        input_ptr, fed[position], links.consumer, state, resource, links.cause, kind_of[activities.cause],
        activities.launch, activities.launch_ptr, activities.start_ns, activities.end_ns, activities.span,
        requests.scheduled_ns[activities.request],
        waits.ptr, waits.start_ns, waits.end_ns, waits.explained, waits.cause == CAUSE_CODE["timer"],
        kind_of[waits.cause], waits.source, waits.at_start, waits.offset_ns,
    )  # fmt: skip
    ptr = np.zeros(len(activities) + 1, dtype=np.int64)
    found = Dependencies.empty(ptr)
    _collect(*arguments, found.ptr, found.source, found.kind, found.at_start, found.offset_ns)
    np.cumsum(ptr, out=ptr)
    found = Dependencies.empty(ptr)
    _collect(*arguments, found.ptr, found.source, found.kind, found.at_start, found.offset_ns)
    return found


def levels(activities: Activities, found: Dependencies) -> Ints | None:
    """Rank of each activity among those that start in the same nanosecond, None where the order is right as it is.

    Activities of length 0 and releases by a start can depend on each other within one instant; the sort by (start, end)
    cannot know in which direction.
    """
    known = found.source >= 0
    source, target = activities.launch[found.source], activities.launch[found.target()]
    if np.all((source < target) | ~known):
        return None
    first = activities.launch_ptr[:-1]
    start = activities.start_ns[first]
    instant = known & (start[source] == start[target]) & (source != target)
    level = np.zeros(len(first), dtype=np.int64)
    ptr, order = grouped(source[instant], len(first))
    _rank(ptr, target[instant][order], level)
    return level[activities.launch]


def check(
    activities: Activities, found: Dependencies, links: Links, requests: Requests
) -> tuple[Dependencies, list[pl.DataFrame]]:
    """Leave out the dependencies that contradict the recording.

    Returns
    -------
    dependencies : Dependencies
        Those that hold.
    violations : list of polars.DataFrame
        Columns VIOLATION_COLUMNS. Codes: ``duplicate-id``, ``negative-lag`` (a dependency ended after the start),
        ``cycle``; and, without excluding the request, ``unknown-cause`` (for a chunk: its producer) and
        ``unknown-consumer``: an id that names no activity.
    """
    request, span, launch = requests.request[activities.request], activities.span, activities.launch
    violations = [violation_rows("duplicate-id", request, span, links.find.repeated())]
    wrong = np.zeros(len(found.source), dtype=np.bool_)
    _contradictions(
        launch, activities.start_ns, activities.end_ns,
        found.ptr, found.source, found.at_start, found.offset_ns, wrong,
    )  # fmt: skip
    bad = np.flatnonzero(wrong)
    source, target = found.source[bad], np.searchsorted(found.ptr, bad, side="right") - 1
    moment = np.where(found.at_start[bad], activities.start_ns[source], activities.end_ns[source])
    excess = moment + found.offset_ns[bad] - activities.start_ns[target]
    for code, some in (("negative-lag", excess > 0), ("cycle", excess <= 0)):
        other = span[source[some]]
        violations.append(violation_rows(code, request, span, target[some], other=other, excess_ns=excess[some]))
    for code, named, there in (
        ("unknown-consumer", activities.consumer, links.consumer),
        ("unknown-cause", activities.cause_span, links.cause),
    ):
        lost = np.flatnonzero((named >= 0) & (there < 0))
        violations.append(violation_rows(code, request, span, lost, other=named[lost], excluded=False))
    return found.without(wrong) if len(bad) else found, violations


def lags(activities: Activities, found: Dependencies, requests: Requests) -> Ints:
    """Start of every launch minus the latest dependency or arrival of its members, int64 nanoseconds."""
    lag = np.empty(len(activities.launch_ptr) - 1, dtype=np.int64)
    _lags(
        activities.launch_ptr, activities.start_ns, activities.end_ns, requests.scheduled_ns[activities.request],
        found.ptr, found.source, found.at_start, found.offset_ns, lag,
    )  # fmt: skip
    return lag


def rooted(activities: Activities) -> Bools:
    """Whether the arrival of the request is cause enough: the client's own work, and what names arrival as cause."""
    arrived: Bools = (activities.kind == HOST) | (activities.cause == CAUSE_CODE["arrival"])
    return arrived


@compiled
def _look_back(ptr: Ints, launches: Ints, start: Ints, end: Ints, before: Ints, busy: Bools) -> None:
    for place in range(len(ptr) - 1):
        last = -1
        j = ptr[place]
        for i in range(ptr[place], ptr[place + 1]):
            u = launches[i]
            while start[launches[j]] < start[u]:
                if last < 0 or end[launches[j]] > end[last]:
                    last = launches[j]
                j += 1
            if last >= 0:
                if end[last] <= start[u]:
                    before[u] = last
                else:
                    busy[u] = True


@compiled
def _collect(
    input_ptr: Ints, inputs: Ints, consumer: Ints, state: Ints, resource: Ints, named: Ints, named_kind: Ints,
    launch: Ints, launch_ptr: Ints, start: Ints, end: Ints, span: Ints, scheduled: Ints,
    wait_ptr: Ints, wait_start: Ints, wait_end: Ints, wait_explained: Bools, wait_timed: Bools,
    wait_kind: Ints, wait_source: Ints, wait_at_start: Bools, wait_offset: Ints,
    ptr: Ints, source: Ints, kind: Ints, at_start: Bools, offset: Ints,
) -> None:  # fmt: skip
    """Write the dependencies of every activity, or count them into ``ptr[1:]`` where `source` is empty.

    A wait that nothing in the graph ended (a timer, a credit of unknown origin) becomes a fixed time after the latest
    dependency that the activity had until then. Of the timers of a launch only that of the member which began to wait
    first counts.
    """
    fill = len(source) > 0
    for u in range(len(launch_ptr) - 1):
        timer = -1
        for x in range(launch_ptr[u], launch_ptr[u + 1]):
            for k in range(wait_ptr[x], wait_ptr[x + 1]):
                usable = wait_explained[k] and wait_timed[k] and wait_end[k] <= start[x]
                if usable and (timer < 0 or wait_start[k] < wait_start[timer]):
                    timer = k
        for x in range(launch_ptr[u], launch_ptr[u + 1]):
            e = ptr[x] if fill else 0
            for i in range(input_ptr[x], input_ptr[x + 1]):
                if fill:
                    source[e], kind[e], at_start[e], offset[e] = inputs[i], DATA, False, 0
                e += 1
            # The cause that an activity names counts where it says more than its inputs, chain and replica already do.
            n, why = named[x], named_kind[x]
            if n >= 0 and (
                (why == DATA and consumer[n] == x)
                or (why == STATE and n == state[x])
                or (why == RESOURCE and resource[x] >= 0 and launch[n] == launch[resource[x]])
                or why in (CREDIT, BATCH, NONE)
            ):
                n = -1
            for what in range(3):
                if what == 0:
                    s, cause = state[x], STATE
                elif what == 1:
                    s, cause = resource[x], RESOURCE
                else:
                    s, cause = n, why
                if s >= 0:
                    if fill:
                        source[e], kind[e], at_start[e], offset[e] = s, cause, False, 0
                    e += 1
            for k in range(wait_ptr[x], wait_ptr[x + 1]):
                s = wait_source[k]
                if not wait_explained[k] or wait_end[k] > start[x] or (wait_timed[k] and k != timer):
                    continue
                if wait_kind[k] == RESOURCE and resource[x] >= 0 and launch[s] == launch[resource[x]]:
                    continue
                if fill and s >= 0:
                    source[e], kind[e], at_start[e], offset[e] = s, wait_kind[k], wait_at_start[k], wait_offset[k]
                elif fill:
                    best, since = -1, scheduled[x]
                    for f in range(ptr[x], e):
                        s = source[f]
                        moment = offset[f] + (scheduled[x] if s < 0 else start[s] if at_start[f] else end[s])
                        if moment > wait_start[k] or (best >= 0 and moment < since):
                            continue
                        tie = best >= 0 and moment == since
                        if tie and (kind[f] > kind[best] or (kind[f] == kind[best] and source[best] < 0)):
                            continue
                        if tie and kind[f] == kind[best] and s >= 0 and span[s] >= span[source[best]]:
                            continue
                        best, since = f, moment
                    source[e], at_start[e], offset[e] = -1, False, wait_end[k] - since
                    if best >= 0:
                        source[e], at_start[e] = source[best], at_start[best]
                        offset[e] += offset[best]
                    kind[e] = CREDIT if wait_kind[k] == CREDIT else BATCH
                e += 1
            if not fill:
                ptr[x + 1] = e


@compiled
def _contradictions(
    launch: Ints, start: Ints, end: Ints, ptr: Ints, source: Ints, at_start: Bools, offset: Ints, wrong: Bools
) -> None:
    """Mark dependencies that ended after the start of what depends on them, or do not stand before it."""
    for x in range(len(ptr) - 1):
        for e in range(ptr[x], ptr[x + 1]):
            s = source[e]
            if s >= 0:
                moment = (start[s] if at_start[e] else end[s]) + offset[e]
                wrong[e] = moment > start[x] or launch[s] >= launch[x]


@compiled
def _lags(
    launch_ptr: Ints, start: Ints, end: Ints, scheduled: Ints,
    ptr: Ints, source: Ints, at_start: Bools, offset: Ints, lag: Ints,
) -> None:  # fmt: skip
    for u in range(len(launch_ptr) - 1):
        first = launch_ptr[u]
        latest = scheduled[first]
        for x in range(first, launch_ptr[u + 1]):
            latest = max(latest, scheduled[x])
            for e in range(ptr[x], ptr[x + 1]):
                s = source[e]
                moment = scheduled[x] if s < 0 else (start[s] if at_start[e] else end[s])
                latest = max(latest, moment + offset[e])
        lag[u] = start[first] - latest


@compiled
def _rank(ptr: Ints, after: Ints, level: Ints) -> None:
    """Longest chain in front of every launch within its instant (Kahn's order); in a circle ranks stay incomplete."""
    open_causes = np.zeros(len(level), dtype=np.int64)
    for v in after:
        open_causes[v] += 1
    queue = np.empty(len(level), dtype=np.int64)
    head, tail = 0, 0
    for u in range(len(level)):
        if open_causes[u] == 0 and ptr[u + 1] > ptr[u]:
            queue[tail] = u
            tail += 1
    while head < tail:
        u = queue[head]
        head += 1
        for e in range(ptr[u], ptr[u + 1]):
            v = after[e]
            level[v] = max(level[v], level[u] + 1)
            open_causes[v] -= 1
            if open_causes[v] == 0:
                queue[tail] = v
                tail += 1
