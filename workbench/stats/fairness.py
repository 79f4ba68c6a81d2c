"""Fairness between tenants: Jain's index and the tails of slowdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from workbench.errors import UsageError
from workbench.stats.quantiles import TooFewForQuantile, minimum_size, quantile
from workbench.stats.samples import SHARE_ROUNDING, FloatArray, as_level, as_sample


@dataclass(frozen=True, slots=True)
class TailSlowdown:
    """Tail slowdown of several tenants, by three definitions that answer different questions.

    Attributes
    ----------
    weighted : float
        ``sum_u w_u Q_q(S_u) / sum_u w_u``: mean over tenants of each one's own tail.
    pooled : float
        ``q``-quantile (type 1) of all requests together, each counting ``w_u / n_u``.
    worst : float
        ``max_u Q_q(S_u)``.
    worst_tenant : str
        Who has it; the first in the given order on a tie.
    per_tenant : dict of str to float
        ``Q_q(S_u)``, type 7; inf if it falls among a tenant's failures.
    q : float
        Level.
    censored : bool
        Whether any tenant's tail is inf.
    """

    weighted: float
    pooled: float
    worst: float
    worst_tenant: str
    per_tenant: dict[str, float]
    q: float
    censored: bool


def jain_index(allocations: ArrayLike, *, weights: ArrayLike | None = None) -> float:
    """Jain's fairness index ``(sum x)^2 / (n sum x^2)``, with ``x`` each tenant's allocation over its weight.

    1 if all are equal, ``k / n`` if ``k`` of ``n`` share equally and the others get nothing; it does not depend on the
    unit. It measures equality, not efficiency: idle for all alike scores 1. Apply it to what each tenant was to get
    equally (service per weight, throughput while backlogged), not to a latency, where it rewards equal misery.

    Parameters
    ----------
    allocations : array_like, shape (n,)
        One finite number of at least 0 per tenant, one unit; not all 0.
    weights : array_like, shape (n,), optional
        Entitlements above 0; equal if absent.

    Returns
    -------
    float
        In ``[1 / n, 1]``.

    Raises
    ------
    UsageError
        Missing, negative or infinite values, all of them 0 (the index is 0/0 there), or shapes that differ.

    References
    ----------
    Jain, Chiu & Hawe (1984), *A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared
    Computer Systems*, DEC-TR-301.

    Examples
    --------
    >>> jain_index([1, 1, 1, 0]), round(jain_index([4, 1]), 3), jain_index([4, 2], weights=[2, 1])
    (0.75, 0.735, 1.0)
    """
    shares = as_sample(allocations, "allocations", domain="latency")
    if np.isinf(shares).any():
        raise UsageError("finite allocations", "an infinite one", where="allocations")
    if weights is not None:
        shares = shares / _matching(weights, "weights", shares.size, "allocations")
    if not shares.any():
        raise UsageError("at least one allocation above 0", f"all {shares.size} are 0", where="allocations")
    shares = shares / shares.max()  # squares of very large or small units would overflow or vanish
    index: float = shares.sum() ** 2 / (shares.size * (shares @ shares))
    return float(min(max(index, 1 / shares.size), 1.0))


def slowdown(shared: ArrayLike, isolated: ArrayLike) -> FloatArray:
    """Slowdown (stretch) of each request: time on the shared system over time alone on an idle one.

    ``S_i = T_i / T_i_alone``; 1 means that sharing cost nothing. Below 1 is measurement noise or a warm cache and is
    kept. Both times must come from the same request and the same hardware.

    Parameters
    ----------
    shared : array_like, shape (n,)
        Latencies in any unit, inf for requests that failed.
    isolated : array_like, shape (n,)
        Latency of the same request alone, same unit, finite and above 0.

    Returns
    -------
    ndarray, shape (n,)
        Dimensionless.

    Raises
    ------
    UsageError
        Missing or negative values, an isolated time of 0, or shapes that differ.

    References
    ----------
    Bender, Chakrabarti & Muthukrishnan (1998), "Flow and stretch metrics for scheduling continuous job streams",
    *SODA*, 270-279.

    Examples
    --------
    >>> slowdown([300, 450, float("inf")], [100, 300, 200])
    array([3. , 1.5, inf])
    """
    together = as_sample(shared, "shared", domain="latency")
    alone = _matching(isolated, "isolated", together.size, "shared")
    ratios: FloatArray = together / alone
    return ratios


def tail_slowdown(
    slowdowns: Mapping[str, ArrayLike], *, weights: Mapping[str, float] | None = None, q: float = 0.99
) -> TailSlowdown:
    """Weighted tail slowdown of tenants (or classes), with the pooled and the worst-tenant tail beside it.

    `TailSlowdown.weighted` is the objective "weighted tail slowdown": each tenant's tail counts by entitlement however
    few requests it sent. `TailSlowdown.pooled` is what a request drawn by entitlement meets; a small tenant may suffer
    entirely beyond the level unseen. `TailSlowdown.worst` is the max-stretch view of isolation. None stands alone.

    Parameters
    ----------
    slowdowns : mapping of tenant to array_like
        Output of `slowdown` per tenant, inf for failures.
    weights : mapping of tenant to float, optional
        Entitlements above 0 for exactly the same tenants; equal if absent.
    q : float
        Level in (0, 1).

    Raises
    ------
    TooFewForQuantile
        A tenant has fewer than ``10 / min(q, 1 - q)`` requests; the message names it.
    UsageError
        No tenant, weights for other tenants, or values that are missing or negative.

    References
    ----------
    Bender, Chakrabarti & Muthukrishnan (1998) for stretch and max-stretch; weights as the shares of weighted fair
    queueing, Demers, Keshav & Shenker (1989), *SIGCOMM*, 1-12.

    Examples
    --------
    >>> tails = tail_slowdown({"a": [1.0] * 100, "b": [4.0] * 100}, weights={"a": 3, "b": 1}, q=0.9)
    >>> tails.weighted, tails.pooled, tails.worst, tails.worst_tenant
    (1.75, 4.0, 4.0, 'b')
    """
    if not isinstance(slowdowns, Mapping) or not slowdowns:
        raise UsageError("a mapping of tenant to slowdowns", f"slowdowns={slowdowns!r}", where="slowdowns")
    as_level(q, "q")
    if weights is not None and weights.keys() != slowdowns.keys():
        raise UsageError(
            f"weights for exactly the tenants {sorted(map(str, slowdowns))}",
            f"weights for {sorted(map(str, weights))}",
            where="weights",
        )
    tenants = list(slowdowns)
    entitled = [1.0] * len(tenants) if weights is None else [weights[tenant] for tenant in tenants]
    shares = as_sample(entitled, "weights", domain="positive", labels=tenants)
    samples = [as_sample(slowdowns[tenant], f"slowdowns[{tenant!r}]", domain="latency") for tenant in tenants]
    for tenant, sample in zip(tenants, samples, strict=True):
        if sample.size < minimum_size(q):
            raise TooFewForQuantile(q, sample.size, minimum_size(q), where=f"slowdowns[{tenant!r}]")
    tails = np.array([quantile(sample, q).value for sample in samples])
    each = np.concatenate([np.full(s.size, w / s.size) for s, w in zip(samples, shares / shares.sum(), strict=True)])
    pool = np.concatenate(samples)
    order = np.argsort(pool, kind="stable")
    reached = np.cumsum(each[order]) >= q - SHARE_ROUNDING
    worst = int(np.argmax(tails))
    return TailSlowdown(
        weighted=float(shares @ tails / shares.sum()),
        pooled=float(pool[order[np.argmax(reached)]]),
        worst=float(tails[worst]),
        worst_tenant=tenants[worst],
        per_tenant=dict(zip(tenants, tails.tolist(), strict=True)),
        q=q,
        censored=bool(np.isinf(tails).any()),
    )


def _matching(values: ArrayLike, name: str, size: int, other: str) -> FloatArray:
    sample = as_sample(values, name, domain="positive")
    if sample.size != size:
        raise UsageError(f"{size} values, one for each of {other}", f"{name} of size {sample.size}", where=name)
    return sample
