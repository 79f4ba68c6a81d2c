"""Latency quantiles when the recording ended before the requests did: what a cut-off leaves knowable."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import CensoredData, ecdf

from workbench.errors import UsageError
from workbench.stats.quantiles import require_tail
from workbench.stats.samples import SHARE_ROUNDING, FloatArray, as_level, as_sample


@dataclass(frozen=True, slots=True)
class CensoredQuantile:
    """Kaplan-Meier quantile of a sample in which some requests were still running.

    Attributes
    ----------
    value : float or None
        Smallest latency at which the estimated share done reaches `q`; None if it is never reached.
    beyond : float or None
        When `value` is None: the longest time observed, so the quantile is greater than this. Otherwise None.
    low, high : float or None
        Confidence limits; None where the limit lies beyond the longest time observed.
    q, confidence : float
        Level of the quantile, and of the interval.
    n, censored : int
        Requests, and how many were cut off.
    """

    value: float | None
    beyond: float | None
    low: float | None
    high: float | None
    q: float
    confidence: float
    n: int
    censored: int

    def __str__(self) -> str:
        return f"{self.value:g}" if self.value is not None else f"> {self.beyond:g}"


def censored_quantile(done: ArrayLike, running: ArrayLike, q: float, *, confidence: float = 0.95) -> CensoredQuantile:
    """Kaplan-Meier quantile when the observation ended before some requests did.

    The estimate is the smallest latency at which the product-limit share done reaches `q`; limits invert the pointwise
    log-log band (Brookmeyer-Crowley). If the share never reaches `q` the answer is "greater than the longest time
    observed"; nothing is extrapolated.

    Valid only if cut-off tells nothing about the request: the recording ended, or a planned cancel at a time drawn
    beforehand. A request that *missed its deadline* or failed is an event, not a cut-off: use `quantile` with inf for
    it, or count it against SLO attainment.

    Parameters
    ----------
    done : array_like, shape (n_done,)
        Latencies of the requests that ended, finite, any one unit.
    running : array_like, shape (n_running,)
        Time from arrival to cut-off of the others, same unit; may be empty.
    q : float
        Level in (0, 1).
    confidence : float
        Two-sided level of the limits.

    Raises
    ------
    TooFewForQuantile
        Fewer than ``10 / min(q, 1 - q)`` requests in all.
    UsageError
        A value that is missing, negative or infinite, or no request that ended.

    References
    ----------
    Kaplan & Meier (1958), *JASA* 53, 457-481; Brookmeyer & Crowley (1982), *Biometrics* 38, 29-41; computed by
    `scipy.stats.ecdf`.

    Examples
    --------
    >>> done = [float(x) for x in range(1, 181)]
    >>> print(censored_quantile(done, [200.0] * 20, 0.5))
    100
    >>> print(censored_quantile(done, [200.0] * 20, 0.95))
    > 200
    """
    ended = _finite_latencies(done, "done", at_least=1)
    cut = _finite_latencies(running, "running", at_least=0)
    n = ended.size + cut.size
    require_tail(q, n, where="done and running")
    as_level(confidence, "confidence")
    curve = ecdf(CensoredData(uncensored=ended, right=cut)).cdf
    # The log-log band is undefined (nan) where the share is exactly 0 or 1; a nan limit is never reached, which leaves
    # the bound open rather than wrong.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        band: Any = curve.confidence_interval(confidence, method="log-log")  # scipy-stubs: its curves are not floats
    times = curve.quantiles
    value = _first_reaching(times, curve.probabilities, q)
    upper_share = np.where(curve.probabilities == 1, 1.0, band.high.probabilities)
    return CensoredQuantile(
        value=value,
        beyond=float(max(ended.max(), cut.max(initial=0.0))) if value is None else None,
        low=_first_reaching(times, upper_share, q),
        high=_first_reaching(times, band.low.probabilities, q),
        q=q,
        confidence=confidence,
        n=n,
        censored=cut.size,
    )


def _finite_latencies(values: ArrayLike, name: str, *, at_least: int) -> FloatArray:
    sample = as_sample(values, name, domain="latency", at_least=at_least)
    if np.isinf(sample).any():
        raise UsageError(
            "finite times",
            f"{name}[{int(np.flatnonzero(np.isinf(sample))[0])}]=inf",
            where=name,
            fix="A failed request is not a cut-off one: pass inf to quantile() instead.",
        )
    return sample


def _first_reaching(times: FloatArray, shares: FloatArray, q: float) -> float | None:
    reached = np.flatnonzero(shares >= q - SHARE_ROUNDING)
    return float(times[reached[0]]) if reached.size else None
