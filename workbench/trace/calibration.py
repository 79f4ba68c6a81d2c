"""What recording costs on this machine, and how its clocks relate: both measured in the process that records.

Cost is the median over short batches, because a batch that was preempted says nothing about the recorder; the empty
loop is subtracted. The wall clock is read between two readings of the local clock and the tightest of several brackets
is kept, so that the error is known instead of assumed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

# A bracket took 137 ns at best and 1.8 us at p99 on a virtual machine; 20 tries find a tight one.
BRACKETS = 20
BATCHES = 9
BATCH_CALLS = 500

now = time.perf_counter_ns


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Wall clock against local clock: `wall_ns` was read within `err_ns` of `local_ns`."""

    local_ns: int
    wall_ns: int
    err_ns: int


def read_clocks(brackets: int = BRACKETS) -> ClockReading:
    """The tightest of `brackets` readings of the wall clock between two readings of the local clock."""
    best: tuple[int, int, int] | None = None
    for _ in range(brackets):
        before, wall, after = now(), time.time_ns(), now()
        if best is None or after - before < best[0]:
            best = (after - before, before, wall)
    assert best is not None
    width, before, wall = best
    return ClockReading(before + width // 2, wall, -(-width // 2))


def reference_clock() -> str:
    """Name of the clock that all *_ns columns of this process are read from."""
    return time.get_clock_info("perf_counter").implementation


def cost_ns(batch: Callable[[int], object], *, batches: int = BATCHES, calls: int = BATCH_CALLS) -> float:
    """Median nanoseconds per pass of a loop, the empty loop subtracted.

    Parameters
    ----------
    batch : callable
        ``batch(n)`` runs the measured statement n times in a loop of its own.
    """
    return max(0.0, _median_ns(batch, batches, calls) - _median_ns(_empty, batches, calls))


def _empty(calls: int) -> None:
    for _ in range(calls):
        pass


def _median_ns(batch: Callable[[int], object], batches: int, calls: int) -> float:
    batch(calls // 10)
    times = []
    for _ in range(batches):
        start = now()
        batch(calls)
        times.append((now() - start) / calls)
    return statistics.median(times)
