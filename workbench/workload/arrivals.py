"""Arrival processes: when requests are scheduled, as integer nanoseconds from the start of the run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from workbench.errors import UsageError
from workbench.units import S_NS

Offsets = npt.NDArray[np.int64]  # nanoseconds from the start of the run, non-decreasing


def poisson(n: int, *, rate_per_s: float, seed: int) -> Offsets:
    """Arrivals of a Poisson process: independent exponential gaps, first arrival after the first gap.

    Gaps are not rescaled so that the last arrival falls on ``n / rate``: that would remove the variance between seeds
    which the inference over seeds needs.

    Parameters
    ----------
    n : int
        Number of arrivals, at least 1.
    rate_per_s : float
        Mean rate, positive and finite.
    seed : int
        Seed of the arrival stream alone; lengths and contents have their own.

    Returns
    -------
    numpy.ndarray of int64, shape (n,)
        Offsets in ns, non-decreasing.

    Raises
    ------
    UsageError
        `n` < 1, or a rate that is not positive and finite.

    Examples
    --------
    >>> poisson(3, rate_per_s=2.0, seed=1).tolist() == poisson(3, rate_per_s=2.0, seed=1).tolist()
    True
    """
    if n < 1:
        raise UsageError("at least one arrival", f"n={n}")
    if not (np.isfinite(rate_per_s) and rate_per_s > 0):
        raise UsageError("a positive, finite rate", f"rate_per_s={rate_per_s}")
    gaps_s = np.random.default_rng(seed).exponential(1.0 / rate_per_s, n)
    return np.rint(np.cumsum(gaps_s) * S_NS).astype(np.int64)
