"""Shares of trials: SLO attainment, word errors per sentence, failures of a contract."""

from __future__ import annotations

from dataclasses import dataclass

from statsmodels.stats.proportion import proportion_confint

from workbench.errors import UsageError
from workbench.stats.samples import as_count, as_level


@dataclass(frozen=True, slots=True)
class Proportion:
    """A share with its exact interval.

    Attributes
    ----------
    estimate, low, high : float
        ``successes / trials`` and its two-sided limits, in [0, 1].
    successes, trials : int
        As given.
    confidence : float
        Level of `low` and `high`.
    """

    estimate: float
    low: float
    high: float
    successes: int
    trials: int
    confidence: float


def proportion(successes: int, trials: int, *, confidence: float = 0.95) -> Proportion:
    """A share of independent trials with its Clopper-Pearson interval.

    The interval inverts two one-sided binomial tests; it covers at least `confidence` at every true share and is wider
    than need be for it. Alternatives: Wilson (nearer nominal on average, below it at some shares). Requests of one
    loaded run are *not* independent trials: compute attainment per run and compare runs with `paired_t`.

    Parameters
    ----------
    successes, trials : int
        ``0 <= successes <= trials`` and at least one trial. Failed requests belong in `trials`.
    confidence : float
        Two-sided level.

    Returns
    -------
    Proportion
        ``low`` is exactly 0 with no success, ``high`` exactly 1 with no failure.

    Raises
    ------
    UsageError
        No trial, or successes outside the range.

    References
    ----------
    Clopper & Pearson (1934), *Biometrika* 26, 404-413; computed by `statsmodels` ``proportion_confint(method="beta")``.

    Examples
    --------
    >>> share = proportion(188, 200)
    >>> print(f"{share.estimate:.3f} [{share.low:.3f}, {share.high:.3f}]")
    0.940 [0.898, 0.969]
    """
    successes, trials = _counts(successes, trials, "successes")
    as_level(confidence, "confidence")
    low, high = proportion_confint(successes, trials, alpha=1 - confidence, method="beta")
    return Proportion(successes / trials, float(low), float(high), successes, trials, confidence)


def failure_bound(failures: int, trials: int, *, confidence: float = 0.95) -> float:
    """One-sided upper bound for the failure rate behind `failures` of `trials`.

    For none of ``n`` this is ``1 - (1 - confidence)**(1 / n)``, about ``3 / n`` at 95 %: seeing nothing go wrong in 500
    trials still allows 0.6 %. (The upper end of the *two-sided* 95 % interval, as given by `proportion`, is 0.74 %.)

    Parameters
    ----------
    failures, trials : int
        ``0 <= failures <= trials`` and at least one independent trial.
    confidence : float
        One-sided level, above 0.5.

    Returns
    -------
    float
        Upper Clopper-Pearson limit; 1 if every trial failed.

    Raises
    ------
    UsageError
        No trial, or failures outside the range.

    References
    ----------
    Hanley & Lippman-Hand (1983), "If nothing goes wrong, is everything all right?", *JAMA* 249, 1743-1745.

    Examples
    --------
    >>> round(failure_bound(0, 500), 5)
    0.00597
    """
    failures, trials = _counts(failures, trials, "failures")
    as_level(confidence, "confidence", low=0.5)
    return float(proportion_confint(failures, trials, alpha=2 * (1 - confidence), method="beta")[1])


def _counts(part: int, trials: int, name: str) -> tuple[int, int]:
    trials = as_count(trials, "trials", at_least=1)
    part = as_count(part, name)
    if part > trials:
        raise UsageError(f"{name} of at most trials={trials}", f"{name}={part}", where=name)
    return part, trials
