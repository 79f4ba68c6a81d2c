"""Bootstrap of a p99: rank draws against `scipy.stats.bootstrap`, same sample, same number of resamples.

Run from the top folder: python -m benchmarks.bench_bootstrap [--values N] [--resamples B]
Prints seconds of CPU of each, their intervals, and the ratio scipy / rank draw.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import TypeVar

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from workbench.stats import quantile_bootstrap

Result = TypeVar("Result")


def timed(call: Callable[[], Result], repeats: int) -> tuple[float, Result]:
    """Least CPU seconds of several calls, and the last result."""
    least = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        result = call()
        least = min(least, time.process_time() - start)
    return least, result


def p99(values: NDArray[np.float64], axis: int = -1) -> NDArray[np.float64]:
    return np.asarray(np.quantile(values, 0.99, axis=axis))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--values", type=int, default=10_000)
    parser.add_argument("--resamples", type=int, default=10_000)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    values = rng.lognormal(0, 0.6, given.values)

    slow_s, slow = timed(
        lambda: stats.bootstrap(
            (values,), p99, n_resamples=given.resamples, method="percentile", batch=200, rng=np.random.default_rng(1)
        ),
        repeats=1,
    )
    fast_s, fast = timed(lambda: quantile_bootstrap(values, 0.99, resamples=given.resamples, seed=1), repeats=20)
    low, high = slow.confidence_interval
    print(f"p99 of {given.values} values, {given.resamples} resamples")
    print(f"scipy.stats.bootstrap  {slow_s:10.5f} s  [{low:.4f}, {high:.4f}]")
    print(f"rank draw              {fast_s:10.5f} s  [{fast.low:.4f}, {fast.high:.4f}]")
    print(f"ratio scipy / rank draw {slow_s / fast_s:8.0f}")


if __name__ == "__main__":
    main()
