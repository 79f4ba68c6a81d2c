"""Evaluation of a task graph in the (max, +) sense, forwards and backwards (compiled).

A launch starts at the latest dependency of its members plus its lag. All functions work on *groups*: lists of
launches, in graph order, that move together while everything else keeps its recorded time. A launch belongs to the
group of every request family that has a member in it; one group of all launches is the whole system.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.metrics.dependencies import DATA, RESOURCE, STATE
from workbench.metrics.tables import Bools, Int, Ints
from workbench.metrics.task_graph import TaskGraph
from workbench.metrics.waits import grouped
from workbench.twin import compiled

FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Groups:
    """Launches that move together: those of group g are ``launches[ptr[g]:ptr[g + 1]]``, in graph order."""

    ptr: Ints
    launches: Ints
    everyone: bool

    @classmethod
    def of(cls, graph: TaskGraph, *, system: bool) -> Groups:
        """One group per request family (numbered as the family), or a single one for the whole system."""
        a = graph.activities
        if system:
            count = len(a.launch_ptr) - 1
            return cls(np.array([0, count]), np.arange(count), True)
        ptr, order = grouped(graph.requests.family[a.request], len(graph.requests.request))
        launch, family = a.launch[order], graph.requests.family[a.request[order]]
        fresh = (np.diff(launch, prepend=-1) != 0) | (np.diff(family, prepend=-1) != 0)
        sizes = np.add.reduceat(np.append(fresh, False), ptr[:-1], dtype=np.int64) if len(ptr) > 1 else ptr[:0]
        sizes[np.diff(ptr) == 0] = 0
        return cls(np.insert(np.cumsum(sizes), 0, 0), launch[fresh], False)

    def one(self, group: int) -> Groups:
        """The groups reduced to a single one."""
        launches = self.launches[self.ptr[group] : self.ptr[group + 1]]
        return Groups(np.array([0, len(launches)]), launches, self.everyone)


def longest(graph: TaskGraph, durations: Ints) -> Ints:
    """Length of each launch: the longest of its members' durations."""
    first = graph.activities.launch_ptr[:-1]
    return np.maximum.reduceat(durations, first) if len(first) else durations


@compiled
def _release(
    u: Int, g: Int, launch_ptr: Ints, launch: Ints, start: Ints, end: Ints, arrival: Ints,
    dep_ptr: Ints, dep_source: Ints, dep_kind: Ints, dep_at_start: Bools, dep_offset: Ints,
    duration: Ints, length: Ints, stamp: Ints, moved: Ints,
) -> Int:  # fmt: skip
    """Latest dependency of launch u: launches stamped g count as moved and with new durations, others as recorded."""
    latest: Int = arrival[launch_ptr[u]]
    for x in range(launch_ptr[u], launch_ptr[u + 1]):
        latest = max(latest, arrival[x])
        for e in range(dep_ptr[x], dep_ptr[x + 1]):
            s = dep_source[e]
            if s < 0:
                moment = arrival[x]
            else:
                v = launch[s]
                if stamp[v] != g:
                    moment = start[s] if dep_at_start[e] else end[s]
                elif dep_at_start[e]:
                    moment = moved[v]
                elif dep_kind[e] == RESOURCE:
                    moment = moved[v] + length[v]
                else:
                    moment = moved[v] + duration[s]
            latest = max(latest, moment + dep_offset[e])
    return latest


@compiled
def retime_groups(
    group_ptr: Ints, group_launches: Ints, everyone: bool,
    launch_ptr: Ints, launch: Ints, start: Ints, end: Ints, arrival: Ints, family: Ints, lag: Ints,
    dep_ptr: Ints, dep_source: Ints, dep_kind: Ints, dep_at_start: Bools, dep_offset: Ints,
    duration: Ints, length: Ints, new_start: Ints, new_end: Ints,
) -> None:  # fmt: skip
    """Start and end of every activity under new durations, group by group."""
    stamp = np.full(len(lag), -1, dtype=np.int64)
    moved = np.empty(len(lag), dtype=np.int64)
    for g in range(len(group_ptr) - 1):
        for k in range(group_ptr[g], group_ptr[g + 1]):
            u = group_launches[k]
            moved[u] = lag[u] + _release(
                u, g, launch_ptr, launch, start, end, arrival,
                dep_ptr, dep_source, dep_kind, dep_at_start, dep_offset, duration, length, stamp, moved,
            )  # fmt: skip
            stamp[u] = g
            for x in range(launch_ptr[u], launch_ptr[u + 1]):
                if everyone or family[x] == g:
                    new_start[x] = moved[u]
                    new_end[x] = moved[u] + duration[x]


@compiled
def end_without_each(
    launches: Ints, tried: Bools, candidates: Ints, latest_counts: bool,
    launch_ptr: Ints, launch: Ints, start: Ints, end: Ints, arrival: Ints, lag: Ints,
    dep_ptr: Ints, dep_source: Ints, dep_kind: Ints, dep_at_start: Bools, dep_offset: Ints,
    duration: Ints, length: Ints, terminal: Ints,
) -> None:  # fmt: skip
    """Terminal time when launch k of the group takes no time at all, for every k that is `tried`.

    The terminal is the latest of the candidates' ends, or the earliest where `latest_counts` is false.
    """
    stamp = np.full(len(lag), -1, dtype=np.int64)
    moved = np.empty(len(lag), dtype=np.int64)
    widest = 1
    for u in launches:
        stamp[u] = 0
        moved[u] = start[launch_ptr[u]]
        widest = max(widest, launch_ptr[u + 1] - launch_ptr[u])
    kept = np.empty(widest, dtype=np.int64)
    group = np.int64(0)
    for k in range(len(launches)):
        if not tried[k]:
            continue
        w = launches[k]
        gone = launch_ptr[w + 1] - launch_ptr[w]
        for m in range(gone):
            kept[m] = duration[launch_ptr[w] + m]
            duration[launch_ptr[w] + m] = 0
        kept_length = length[w]
        length[w] = 0
        for i in range(k + 1, len(launches)):
            u = launches[i]
            moved[u] = lag[u] + _release(
                u, group, launch_ptr, launch, start, end, arrival,
                dep_ptr, dep_source, dep_kind, dep_at_start, dep_offset, duration, length, stamp, moved,
            )  # fmt: skip
        for i in range(len(candidates)):
            x = candidates[i]
            t = moved[launch[x]] + duration[x]
            if i == 0 or (t > terminal[k]) == latest_counts:
                terminal[k] = t
        for m in range(gone):
            duration[launch_ptr[w] + m] = kept[m]
        length[w] = kept_length
        for i in range(k + 1, len(launches)):
            u = launches[i]
            moved[u] = start[launch_ptr[u]]


@compiled
def latest_starts(
    launches: Ints, launch_ptr: Ints, launch: Ints, lag: Ints,
    dep_ptr: Ints, dep_source: Ints, dep_kind: Ints, dep_at_start: Bools, dep_offset: Ints,
    duration: Ints, length: Ints, member: Bools, late: Ints,
) -> None:  # fmt: skip
    """Latest start of each launch of a group that leaves the terminal in place; `late` comes with FAR and seeds."""
    for k in range(len(launches) - 1, -1, -1):
        u = launches[k]
        if late[u] == FAR:
            continue
        for x in range(launch_ptr[u], launch_ptr[u + 1]):
            for e in range(dep_ptr[x], dep_ptr[x + 1]):
                s = dep_source[e]
                if s < 0 or not member[launch[s]]:
                    continue
                v = launch[s]
                bound = late[u] - lag[u] - dep_offset[e]
                if not dep_at_start[e]:
                    bound -= length[v] if dep_kind[e] == RESOURCE else duration[s]
                late[v] = min(late[v], bound)


@compiled
def longest_remaining(
    dep_ptr: Ints, dep_source: Ints, dep_kind: Ints, family: Ints, duration: Ints, remaining: Ints
) -> None:
    """Longest chain of data and state within the family from the start of each activity to a terminal.

    `remaining` comes with the duration at terminals and -1 elsewhere.
    """
    for x in range(len(remaining) - 1, -1, -1):
        if remaining[x] < 0:
            continue
        for e in range(dep_ptr[x], dep_ptr[x + 1]):
            s = dep_source[e]
            if s >= 0 and (dep_kind[e] == DATA or dep_kind[e] == STATE) and family[s] == family[x]:
                remaining[s] = max(remaining[s], remaining[x] + duration[s])
