"""Regret: what a policy costs over an oracle on the same traces."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import ttest_1samp

from workbench.stats.samples import Seed, as_level, pair_runs, rounding_of, seed_warnings


@dataclass(frozen=True, slots=True)
class Regret:
    """Extra cost of a policy over an oracle, paired by trace.

    Attributes
    ----------
    estimate, low, high : float
        Mean over seeds of policy minus oracle and its confidence limits, in the unit of the metric.
    relative : float
        ``sum(policy) / sum(oracle) - 1``; 0.12 reads as 12 % above the oracle.
    per_seed : tuple of float
        Policy minus oracle, in the order of the policy's seeds.
    seeds : int
        Pairs.
    beaten : tuple
        Seeds on which the policy was *below* the oracle. Not empty means that the "oracle" is only a good schedule.
    confidence : float
        Level of `low` and `high`.
    warnings : tuple of str
        What weakens the result; empty if nothing does.
    """

    estimate: float
    low: float
    high: float
    relative: float
    per_seed: tuple[float, ...]
    seeds: int
    beaten: tuple[Hashable, ...]
    confidence: float
    warnings: tuple[str, ...]


def regret(policy: Mapping[Seed, float], oracle: Mapping[Seed, float], *, confidence: float = 0.95) -> Regret:
    """Mean of ``metric(policy) - metric(oracle)`` on the same traces, with a paired t interval over seeds.

    The metric is a cost (smaller is better) of a whole run. Regret is relative to what the oracle knows and allows: an
    oracle that breaks stream order or the byte bound, or a lower bound no schedule attains, makes it too large; a
    feasible but suboptimal one makes it too small. Report both ends, with `oracle` once the bound and once the best
    schedule known.

    Alternatives: ratio of means with BCa over at least 20 traces; competitive ratio (worst case, no traces).

    Parameters
    ----------
    policy, oracle : mapping of seed to float
        One run-level cost per trace, finite and above 0, same unit and same seeds on both sides.
    confidence : float
        Level of the interval.

    Returns
    -------
    Regret
        If all differences are equal, the interval is that one point.

    Raises
    ------
    UnpairedRuns
        A seed is on one side only: the difference would compare different traces.
    TooFewPairs
        Fewer than 2 seeds.
    UsageError
        A cost that is missing, infinite or not positive.

    References
    ----------
    Borodin & El-Yaniv (1998), *Online Computation and Competitive Analysis* (cost against an offline optimum); Law
    (2015), *Simulation Modeling and Analysis*, 5th ed., section 10.2 (paired t).

    Examples
    --------
    >>> result = regret({1: 5.2, 2: 6.1, 3: 4.9}, {1: 4.8, 2: 5.6, 3: 4.6})
    >>> print(f"{result.estimate:.2f} s [{result.low:.2f}, {result.high:.2f}], {result.relative:.1%}")
    0.40 s [0.15, 0.65], 8.0%
    """
    as_level(confidence, "confidence")
    seeds, cost, least = pair_runs(
        policy, oracle, ("policy", "oracle"), domain="positive", needed=2, why="One trace has no spread."
    )
    extra = cost - least
    estimate = float(extra.mean())
    low = high = estimate
    if np.ptp(extra) > rounding_of(cost, least):
        interval = ttest_1samp(extra, 0.0).confidence_interval(confidence)
        low, high = float(interval.low), float(interval.high)
    beaten = tuple(seed for seed, value in zip(seeds, extra, strict=True) if value < 0)
    lead = (f"the policy is below the oracle on {len(beaten)} of {len(seeds)} seeds",) if beaten else ()
    return Regret(
        estimate=estimate,
        low=low,
        high=high,
        relative=float(cost.sum() / least.sum() - 1),
        per_seed=tuple(extra.tolist()),
        seeds=len(seeds),
        beaten=beaten,
        confidence=confidence,
        warnings=lead + seed_warnings(len(seeds)),
    )
