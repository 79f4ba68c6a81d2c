"""Queues to test closed forms and policies with: small simulators, exact where their times are integers.

They know nothing of traces and predict no particular server. Each returns moments, from which a test computes what it
needs. Time has no unit of its own: nanoseconds if the caller's numbers are.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal


def exponential(mean: int, count: int, rng: random.Random) -> list[int]:
    """`count` integer draws of an exponential distribution; choose `mean` large, rounding shifts it by less than 1."""
    return [round(rng.expovariate(1 / mean)) for _ in range(count)]


def poisson(mean_gap: int, count: int, rng: random.Random) -> list[int]:
    """Arrival moments of a Poisson process, ascending."""
    return list(itertools.accumulate(exponential(mean_gap, count, rng)))


def area(intervals: Iterable[tuple[int, int]], weights: Iterable[int] | None = None) -> int:
    """Integral over time of the number (or weight) of intervals that are open, swept moment by moment."""
    changes: list[tuple[int, int]] = []
    for (start, end), weight in zip(intervals, weights or itertools.repeat(1), strict=False):
        changes += [(start, weight), (end, -weight)]
    changes.sort()
    total = level = 0
    for (here, change), (after, _) in itertools.pairwise(changes):
        level += change
        total += level * (after - here)
    return total


def first_come(arrivals: Sequence[int], services: Sequence[int], *, servers: int = 1) -> list[int]:
    """Departures of a queue served in order of arrival."""
    free = [0] * servers
    departures = []
    for arrival, service in zip(arrivals, services, strict=True):
        end = max(arrival, heapq.heappop(free)) + service
        heapq.heappush(free, end)
        departures.append(end)
    return departures


def batch_server(arrivals: Sequence[float], fixed: float, per_item: float, *, cap: int | None = None) -> list[float]:
    """Departures of a server that takes all that waits, at most `cap`, in launches of ``fixed + per_item * size``."""
    departures: list[float] = []
    now = 0.0
    while len(departures) < len(arrivals):
        first = len(departures)
        now = max(now, arrivals[first])
        last = first
        while last < len(arrivals) and arrivals[last] <= now and (cap is None or last - first < cap):
            last += 1
        now += fixed + per_item * (last - first)
        departures += [now] * (last - first)
    return departures


def credit_line(
    makes: Sequence[int],
    services: Sequence[int],
    *,
    window: int | None,
    forward: int = 0,
    back: int = 0,
    batch: int = 1,
    returned: Literal["start", "end"] = "end",
    sizes: Sequence[int] | None = None,
) -> list[int]:
    """A maker, a way, a server and the way back of credit; nothing is made before its credit is reserved.

    Parameters
    ----------
    makes, services : sequence of int
        Time to make each item; time of each launch. The maker never lacks work.
    window : int or None
        Most credit out: items, or the sum of their `sizes`; None = no limit.
    forward, back : int
        Travel time of an item and of a credit.
    batch : int
        Items per launch; a launch waits until it is full.
    returned : {"start", "end"}
        When a launch gives its items' credit back.
    sizes : sequence of int, optional
        Credit that each item takes, default 1.

    Returns
    -------
    list of int
        Start of each launch that was full; shorter than `services` if the line stood still.
    """
    weight = sizes or [1] * len(makes)
    events: list[tuple[int, int, str, tuple[int, ...]]] = []
    order = itertools.count()
    waiting: deque[int] = deque()
    starts: list[int] = []
    out = next_item = 0
    making = serving = False

    def at(moment: int, kind: str, items: tuple[int, ...]) -> None:
        heapq.heappush(events, (moment, next(order), kind, items))

    now = 0
    while True:
        if not making and next_item < len(makes) and (window is None or out + weight[next_item] <= window):
            making = True
            out += weight[next_item]
            at(now + makes[next_item], "made", (next_item,))
            next_item += 1
        if not serving and len(waiting) >= batch and len(starts) < len(services):
            serving = True
            launch = tuple(waiting.popleft() for _ in range(batch))
            at(now + services[len(starts)], "served", launch)
            if returned == "start":
                at(now + back, "credit", launch)
            starts.append(now)
        if not events:
            return starts
        now, _, kind, items = heapq.heappop(events)
        if kind == "made":
            making = False
            at(now + forward, "arrived", items)
        elif kind == "arrived":
            waiting.extend(items)
        elif kind == "served":
            serving = False
            if returned == "end":
                at(now + back, "credit", items)
        else:
            out -= sum(weight[item] for item in items)


# Waiting jobs (arrival at the station, job) per (route, step); step 0 enters, step 1 leaves.
Waiting = dict[tuple[int, int], deque[tuple[int, int]]]
# (now, waiting, station) -> which (route, step) the station serves next; None = stay idle.
Policy = Callable[[int, Waiting, int], tuple[int, int] | None]


@dataclass(frozen=True, slots=True)
class TwoWay:
    """What happened in a run of `two_way`.

    Attributes
    ----------
    backlog : list of int
        Jobs in the system at eight equally spaced moments of the arrival period, the end included.
    visits : list of tuple of int
        (route, step, arrival, departure) of every finished visit.
    """

    backlog: list[int]
    visits: list[tuple[int, int, int, int]]


def two_way(
    policy: Policy, *, mean_gap: int, mean_in: int, mean_out: int, until: int, seed: int, drain: bool = False
) -> TwoWay:
    """The network of Rybko and Stolyar: two stations, two flows in opposite directions, Poisson and exponential.

    Flow 0 enters at station 0 and leaves by station 1, flow 1 the other way round. Service times belong to the jobs,
    so that two policies are compared on the same work. `drain` serves on after the last arrival.

    References
    ----------
    Rybko & Stolyar (1992), *Ergodicity of stochastic processes describing the operation of open queueing networks*.
    """
    rng = random.Random(seed)
    events: list[tuple[int, int, int, int, int]] = []  # moment, order, route, step that arrives (2 = leaves), job
    work: list[tuple[int, int]] = []
    for route in (0, 1):
        moment = round(rng.expovariate(1 / mean_gap))
        while moment < until:
            events.append((moment, len(work), route, 0, len(work)))
            work.append((round(rng.expovariate(1 / mean_in)), round(rng.expovariate(1 / mean_out))))
            moment += round(rng.expovariate(1 / mean_gap))
    heapq.heapify(events)
    order = itertools.count(len(work))
    waiting: Waiting = {(route, step): deque() for route in (0, 1) for step in (0, 1)}
    busy = [False, False]
    backlog: list[int] = []
    visits: list[tuple[int, int, int, int]] = []
    inside, sample = 0, 1
    arrived: dict[tuple[int, int], int] = {}
    while events:
        now, _, route, step, job = heapq.heappop(events)
        while sample <= 8 and now >= sample * until // 8:
            backlog.append(inside)
            sample += 1
        if now > until and not drain:
            break
        if step > 0:
            visits.append((route, step - 1, arrived.pop((job, step - 1)), now))
            busy[route ^ (step - 1)] = False
        inside += 1 if step == 0 else -1 if step == 2 else 0
        if step < 2:
            waiting[route, step].append((now, job))
            arrived[job, step] = now
        for station in (0, 1):
            if not busy[station] and (chosen := policy(now, waiting, station)) is not None:
                _, next_job = waiting[chosen].popleft()
                busy[station] = True
                heapq.heappush(
                    events, (now + work[next_job][chosen[1]], next(order), chosen[0], chosen[1] + 1, next_job)
                )
    return TwoWay(backlog + [inside] * (8 - len(backlog)), visits)


def _ready(waiting: Waiting, station: int) -> list[tuple[int, int]]:
    """(route, step) that wait at a station; entering work first."""
    return [key for key in ((station, 0), (1 - station, 1)) if waiting[key]]


def oldest_first(now: int, waiting: Waiting, station: int) -> tuple[int, int] | None:
    """Serve what came to the station first."""
    return min(_ready(waiting, station), key=lambda key: waiting[key][0], default=None)


def last_stage_first(now: int, waiting: Waiting, station: int) -> tuple[int, int] | None:
    """Serve what is about to leave before what has just entered."""
    return max(_ready(waiting, station), key=lambda key: key[1], default=None)


def last_stage_first_aged(head_start: int) -> Policy:
    """Serve what is about to leave first, unless work that has just entered has waited `head_start` longer."""

    def choose(now: int, waiting: Waiting, station: int) -> tuple[int, int] | None:
        return max(
            _ready(waiting, station), key=lambda key: now - waiting[key][0][0] + key[1] * head_start, default=None
        )

    return choose


def max_weight(mean_in: int, mean_out: int) -> Policy:
    """Serve the largest (waiting here - waiting at the next step) * service rate; idle if none is above 0."""

    def choose(now: int, waiting: Waiting, station: int) -> tuple[int, int] | None:
        weights = {
            (route, step): (len(waiting[route, step]) - (0 if step else len(waiting[route, 1])))
            * (mean_in if step else mean_out)
            for route, step in _ready(waiting, station)
        }
        best = max(weights, key=lambda key: weights[key], default=None)
        return best if best is not None and weights[best] > 0 else None

    return choose


def shared_device(items: int, slots: int, *, reserve_first: bool) -> int:
    """Items that a line of two stages on one device finishes when the device always prefers the first stage.

    With `reserve_first` the first stage starts only if there is a free slot for its result; without, it starts anyway
    and keeps the device until there is one.
    """
    made = waiting = done = 0
    while done < items:
        if made < items and (not reserve_first or waiting < slots):
            made += 1
            if waiting == slots:
                return done  # the result has no slot, and the stage that would empty one has no device
            waiting += 1
        else:
            waiting -= 1
            done += 1
    return done
