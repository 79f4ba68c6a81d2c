"""Candidates to decide between: random facts over the whole ranges, and one server that decides at every chunk."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from workbench.control.priorities import Priority
from workbench.control.priority import choose
from workbench.control.signals import FACT_RANGES, FACTS, INFORMATION, SIGNALS, build, record, scale_ns
from workbench.twin import twin

NAMES = [name for name, *_ in FACT_RANGES]
priority_twin = twin("workbench.control.priority")
signals_twin = twin("workbench.control.signals")
terms_twin = twin("workbench.control.terms")


def ints(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def floats(values: Sequence[float]) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def _value(low: int, high: int) -> st.SearchStrategy[int]:
    ends = sorted({low, max(low, 0), min(high, 1), high})
    return st.sampled_from(ends) | st.integers(low, high) | st.integers(low, min(high, 10_000))


def facts(**fixed: int) -> st.SearchStrategy[list[int]]:
    """Facts of one task, every field anywhere in its range, its ends and unknown most of all."""
    fields = [st.just(fixed[name]) if name in fixed else _value(low, high) for name, low, high, _ in FACT_RANGES]
    return st.tuples(*fields).map(list)


@st.composite
def several(draw: st.DrawFn, most: int = 5, requests: int = 3) -> list[list[int]]:
    """Facts of up to `most` tasks of a few requests: unique task numbers, one order and one arrival per request."""
    arrivals = sorted(draw(st.lists(st.integers(0, 10**6), min_size=requests, max_size=requests)))
    found = []
    for task in range(draw(st.integers(1, most))):
        r = draw(st.integers(0, requests - 1))
        found.append(draw(facts(request=r + 10, order=r, task=task, arrival_ns=arrivals[r])))
    return found


def built(tasks: Sequence[Sequence[int]], information: str, now_ns: int) -> list[int]:
    """Signals of all tasks, one record behind the other."""
    signals = [0] * (SIGNALS * len(tasks))
    flat = [value for task in tasks for value in task]
    for i in range(len(tasks)):
        build(flat, i * FACTS, INFORMATION.index(information), now_ns, signals, i * SIGNALS)
    return signals


def chosen(priority: Priority, signals: Sequence[int], scale: int = 1_000, *, both: bool = True) -> int:
    """The choice; with `both`, the compiled one is checked to be the same."""
    spec, weights, count = priority.spec, priority.weights, len(signals) // SIGNALS
    index = choose(spec, weights, list(signals), 0, count, scale)
    if both:
        compiled = priority_twin.choose(ints(spec), floats(weights), ints(signals), 0, count, scale)
        assert compiled == index
    return index


def told(priority: Priority, information: str) -> Priority:
    """The same rule with another information class."""
    return dataclasses.replace(priority, information=information)


@dataclass
class Job:
    """A request of one stage: chunks of `chunk` ns each, so that it can be interrupted between two."""

    arrival: int
    chunks: int
    chunk: int = 1
    deadline: int = -1
    facts: dict[str, int] = field(default_factory=dict)


def serve(priority: Priority, jobs: Sequence[Job], *, scale: int = 1_000) -> tuple[list[int], list[tuple[int, int]]]:
    """One server that decides anew after every chunk; finish of each job, and (time, job) of each decision."""
    left = [job.chunks for job in jobs]
    ready = [job.arrival for job in jobs]
    finish = [-1] * len(jobs)
    decisions = []
    order = {j: rank for rank, j in enumerate(sorted(range(len(jobs)), key=lambda j: (jobs[j].arrival, j)))}
    now = 0
    while any(left):
        waiting = [j for j in range(len(jobs)) if left[j] and jobs[j].arrival <= now]
        if not waiting:
            now = min(jobs[j].arrival for j in range(len(jobs)) if left[j])
            continue
        tasks = []
        for j in waiting:
            job, rest = jobs[j], left[j] * jobs[j].chunk
            given: dict[str, Any] = {
                "request": j,
                "order": order[j],
                "arrival_ns": job.arrival,
                "ready_ns": ready[j],
                "deadline_ns": job.deadline,
                "attained_ns": (job.chunks - left[j]) * job.chunk,
                "path_ns": rest,
                "work_ns": rest,
                "true_path_ns": rest,
                "true_work_ns": rest,
                "class_path_ns": job.chunks * job.chunk,
            }
            tasks.append(record(**(given | job.facts)))
        signals = built(tasks, priority.information, now)
        j = waiting[chosen(priority, signals, scale, both=False)]
        decisions.append((now, j))
        now += jobs[j].chunk
        left[j] -= 1
        ready[j] = now
        if not left[j]:
            finish[j] = now
    return finish, decisions


def scale_of(priority: Priority, mean_path_ns: int) -> int:
    return scale_ns(INFORMATION.index(priority.information), mean_path_ns)
