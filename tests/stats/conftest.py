"""Queues whose truth is known: the data on which request-level statistics go wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

Run = tuple[NDArray[np.float64], NDArray[np.float64]]


def lindley_run(rng: np.random.Generator, n: int, load: float, cv2: float = 1.5) -> Run:
    """Arrivals and departures (mean service 1) of the first `n` requests of an M/G/1 FIFO queue that starts empty."""
    sigma2 = np.log1p(cv2)
    service = rng.lognormal(-sigma2 / 2, np.sqrt(sigma2), n)
    arrivals = np.cumsum(rng.exponential(1 / load, n))
    work = np.cumsum(service)
    # D_i = max(A_i, D_{i-1}) + S_i, unrolled: the latest busy-period start is a running maximum.
    departures = work + np.maximum.accumulate(arrivals - np.concatenate(([0.0], work[:-1])))
    return arrivals, departures


@pytest.fixture(scope="session")
def lindley() -> Callable[..., Run]:
    return lindley_run
