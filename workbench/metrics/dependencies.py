"""What each activity had to wait for: data, state, credit, a free replica, its batch, a timer.

A dependency is a moment of another activity (its end, or its start for a take-over) plus a fixed trip. An activity starts
at the latest of its dependencies plus its *lag*; a negative lag contradicts the recording and is listed, never clipped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench.metrics.activities import HOST, Activities, Places, Requests, violation_rows
from workbench.metrics.compiled import compiled
from workbench.metrics.tables import NONE, Bools, Ints
from workbench.metrics.waits import CAUSE_CODE, Chains, Links, Waits, grouped

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
    kind : int64
        DATA, STATE, CREDIT, RESOURCE (the end of the whole launch of `source`) or BATCH (a last member or a timer).
    at_start : bool
        Whether `source` releases x by its start.
    offset_ns : int64
        Time from that moment to the release: the trip of a credit, the length of a timer, else 0.
    """

    ptr: Ints
    source: Ints
    kind: Ints
    at_start: Bools
    offset_ns: Ints


@dataclass(frozen=True, slots=True)
class _Flat:
    """Dependencies in no order, with the activity they belong to."""

    target: Ints
    source: Ints
    kind: Ints
    at_start: Bools
    offset_ns: Ints

    def chosen(self, mask: Bools) -> _Flat:
        return _Flat(*(getattr(self, name)[mask] for name in self.__slots__))

    def moment_ns(self, activities: Activities) -> Ints:
        s = np.maximum(self.source, 0)
        return np.where(self.at_start, activities.start_ns[s], activities.end_ns[s]) + self.offset_ns


@dataclass(frozen=True, slots=True)
class Linked:
    """Dependencies of `activities` and what follows from them.

    Attributes
    ----------
    dependencies : Dependencies
        Without those that contradict the recording.
    lag_ns : int64, length n_launches
        Start of the launch minus the latest dependency of all its members.
    busy : bool, length n_launches
        Whether another launch ran on the same replica when this one started: its lag then is not the host's alone.
    rooted : bool, length n_activities
        Whether the activity needs no other cause than the arrival of its request.
    violations : list of polars.DataFrame
        Columns VIOLATION_COLUMNS. Codes: ``negative-lag``, ``cycle``; not excluding: ``unknown-producer``,
        ``unknown-consumer``, ``unknown-cause`` (the id names no activity).
    """

    dependencies: Dependencies
    lag_ns: Ints
    busy: Bools
    rooted: Bools
    violations: list[pl.DataFrame]


def levels(activities: Activities, flat: _Flat) -> Ints | None:
    """Rank of each activity among those that start in the same nanosecond, None where the order is right as it is.

    Activities of length 0 and releases by a start can depend on each other within one instant; the sort by (start, end)
    cannot know in which direction.
    """
    source, target = activities.launch[np.maximum(flat.source, 0)], activities.launch[flat.target]
    if np.all((source < target) | (flat.source < 0)):
        return None
    first = activities.launch_ptr[:-1]
    start = activities.start_ns[first]
    instant = (flat.source >= 0) & (start[source] == start[target]) & (source != target)
    source, target = source[instant], target[instant]
    level = np.zeros(len(first), dtype=np.int64)
    ptr, order = grouped(source, len(first))
    _rank(ptr, target[order], level)
    return level[activities.launch]


def collect(activities: Activities, waits: Waits, chains: Chains, links: Links, requests: Requests) -> _Flat:
    """All dependencies that the recording states or implies."""
    request = activities.request
    before = chains.predecessor(activities)
    launch_before, _ = launches_before(activities)
    replica_before = launch_before[activities.launch]
    everyone = np.arange(len(activities))
    parts = [
        _simple(everyone, links.producer, DATA),
        _simple(links.consumer, np.where(links.consumer >= 0, everyone, NONE), DATA),
        _simple(everyone, before, STATE),
        _simple(everyone, np.where(replica_before >= 0, activities.launch_ptr[replica_before], NONE), RESOURCE),
    ]
    named = links.cause
    n = np.maximum(named, 0)
    for name, known in (
        ("data", links.consumer[n] == everyone),
        ("state", named == before),
        ("resource", activities.launch[n] == replica_before),
        ("retry", np.zeros(len(activities), dtype=np.bool_)),
    ):
        fresh = (activities.cause == CAUSE_CODE[name]) & (named >= 0) & ~known
        parts.append(_simple(everyone, np.where(fresh, named, NONE), _OF_CAUSE[name]))
    target = np.repeat(everyone, np.diff(waits.ptr))
    sound = waits.explained & (waits.end_ns <= activities.start_ns[target])
    kind = np.full(len(CAUSE_CODE), NONE, dtype=np.int64)
    for name, number in _OF_CAUSE.items():
        kind[CAUSE_CODE[name]] = number
    kind = kind[waits.cause]
    known = (kind == RESOURCE) & (activities.launch[np.maximum(waits.source, 0)] == replica_before[target])
    told = sound & (waits.source >= 0) & (kind >= 0) & ~known
    parts.append(_Flat(target[told], waits.source[told], kind[told], waits.at_start[told], waits.offset_ns[told]))
    flat = _joined(parts)
    timed = np.flatnonzero(sound & (waits.cause == CAUSE_CODE["timer"]))
    return _joined([flat, _timers(activities, waits, target, timed, flat, requests.scheduled_ns[request])])


def link(activities: Activities, flat: _Flat, links: Links, places: Places, requests: Requests) -> Linked:
    """Check the dependencies against the recording, index them by activity and derive lags."""
    request, launch = requests.request[activities.request], activities.launch
    excess = flat.moment_ns(activities) - activities.start_ns[flat.target]
    late = (flat.source >= 0) & (excess > 0)
    circle = ~late & (flat.source >= 0) & (launch[np.maximum(flat.source, 0)] >= launch[flat.target])
    owner, span = request[flat.target], activities.span[flat.target]
    other = activities.span[np.maximum(flat.source, 0)] if len(activities) else flat.source
    violations = [
        violation_rows("negative-lag", owner, span, other=other, excess_ns=excess, where=late),
        violation_rows("cycle", owner, span, other=other, where=circle),
    ]
    for code, named, found in (
        ("unknown-producer", activities.producer, links.producer),
        ("unknown-consumer", activities.consumer, links.consumer),
        ("unknown-cause", activities.cause_span, links.cause),
    ):
        lost = (named >= 0) & (found < 0)
        violations.append(violation_rows(code, request, activities.span, other=named, where=lost, excluded=False))
    flat = flat.chosen(~late & ~circle)
    ptr, order = grouped(flat.target, len(activities))
    dependencies = Dependencies(ptr, flat.source[order], flat.kind[order], flat.at_start[order], flat.offset_ns[order])
    scheduled = requests.scheduled_ns[activities.request]
    lag = np.empty(len(activities.launch_ptr) - 1, dtype=np.int64)
    _lags(
        activities.launch_ptr, activities.start_ns, activities.end_ns, scheduled,
        ptr, dependencies.source, dependencies.at_start, dependencies.offset_ns, lag,
    )  # fmt: skip
    client_made = (activities.edge >= 0) & (activities.producer < 0) & places.client[activities.stage]
    rooted = (activities.kind == HOST) | (activities.cause == CAUSE_CODE["arrival"]) | client_made
    return Linked(dependencies, lag, launches_before(activities)[1], rooted, violations)


def launches_before(activities: Activities) -> tuple[Ints, Bools]:
    """For every launch: the one that last freed its replica (-1 if none), and whether another was still running there."""
    first = activities.launch_ptr[:-1]
    before = np.full(len(first), NONE, dtype=np.int64)
    busy = np.zeros(len(first), dtype=np.bool_)
    work = np.flatnonzero((activities.edge[first] < 0) & (activities.kind[first] != HOST))
    if len(work):
        replica = activities.replica[first[work]]
        width = int(replica.max()) + 1
        place = activities.stage[first[work]].astype(np.int64) * width + replica
        ptr, order = grouped(place, int(place.max()) + 1)
        _launches_before(ptr, work[order], activities.start_ns[first], activities.end_ns[first], before, busy)
    return before, busy


def _simple(target: Ints, source: Ints, kind: int) -> _Flat:
    """Dependencies on the end of `source`, where there is one."""
    there = source >= 0
    count = int(np.count_nonzero(there))
    return _Flat(
        target[there],
        source[there],
        np.full(count, kind, dtype=np.int64),
        np.zeros(count, dtype=np.bool_),
        np.zeros(count, dtype=np.int64),
    )


def _joined(parts: list[_Flat]) -> _Flat:
    return _Flat(*(np.concatenate([getattr(part, name) for part in parts]) for name in _Flat.__slots__))


def _timers(activities: Activities, waits: Waits, target: Ints, timed: Ints, flat: _Flat, scheduled: Ints) -> _Flat:
    """One dependency per launch that a timer closed: its length from the moment at which the first member began to wait."""
    launch = activities.launch[target[timed]]
    order = np.lexsort((target[timed], waits.start_ns[timed], launch))
    timed = timed[order][np.diff(launch[order], prepend=NONE) > 0]
    node = target[timed]
    limit = np.full(len(activities), np.iinfo(np.int64).min)
    limit[node] = waits.start_ns[timed]
    anchor = np.full(len(activities), NONE, dtype=np.int64)
    if len(timed):
        moment = flat.moment_ns(activities)
        _latest_until(limit, flat.target, flat.source, flat.kind, moment, activities.span, anchor)
        entry = anchor[node]
        found = entry >= 0
        e = np.maximum(entry, 0)
        since = np.where(found, moment[e], scheduled[node])
        trip = np.where(found, flat.offset_ns[e], 0)
        source, at_start = np.where(found, flat.source[e], NONE), found & flat.at_start[e]
    else:
        since, trip, source, at_start = node, node, node, node.astype(np.bool_)
    return _Flat(node, source, np.full(len(node), BATCH, dtype=np.int64), at_start, trip + waits.end_ns[timed] - since)


@compiled
def _launches_before(ptr: Ints, launches: Ints, start: Ints, end: Ints, before: Ints, busy: Bools) -> None:
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
    """Longest chain in front of every launch within its instant (Kahn's order); members of a circle keep what they got."""
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


@compiled
def _latest_until(limit: Ints, target: Ints, source: Ints, kind: Ints, moment: Ints, span: Ints, anchor: Ints) -> None:
    """Entry of the latest dependency of each activity that is not after `limit`; ties by kind, then span id."""
    for e in range(len(target)):
        x = target[e]
        if source[e] < 0 or moment[e] > limit[x]:
            continue
        best = anchor[x]
        if (
            best < 0
            or moment[e] > moment[best]
            or (
                moment[e] == moment[best]
                and (kind[e] < kind[best] or (kind[e] == kind[best] and span[source[e]] < span[source[best]]))
            )
        ):
            anchor[x] = e
