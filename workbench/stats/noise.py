"""The A/A noise floor: how far two identical runs lie apart, and what effect can be seen above that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2, t

from workbench.errors import UsageError
from workbench.stats.samples import Seed, as_count, as_level, as_sample

FEW_REPEATS = 20  # degrees of freedom below which the floor itself is known to no better than about -24 % / +44 %


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """Spread of a metric between runs that differ in nothing.

    Attributes
    ----------
    sd_log_ratio : float
        Standard deviation of ``log(m1 / m2)`` of two repeats of one seed; 0.03 reads as 3 %.
    low, high : float
        Confidence limits of `sd_log_ratio`.
    degrees_of_freedom : int
        Runs minus groups.
    groups, runs : int
        Seeds, and runs over all seeds.
    confidence : float
        Level of `low` and `high`.
    warnings : tuple of str
        What weakens the number; empty if nothing does.
    """

    sd_log_ratio: float
    low: float
    high: float
    degrees_of_freedom: int
    groups: int
    runs: int
    confidence: float
    warnings: tuple[str, ...]


def noise_floor(repeats: Mapping[Seed, Sequence[float]], *, confidence: float = 0.95) -> NoiseFloor:
    """Standard deviation of the log ratio of two identical runs, pooled within seeds.

    The estimator is the one-way within-group variance of the log metric: with ``x_gi = log m_gi`` for repeat ``i`` of
    seed ``g``, ``s2 = sum_gi (x_gi - mean_g)^2 / (runs - groups)``, and the log ratio of two such runs has standard
    deviation ``sqrt(2 s2)``. For pairs that is ``sqrt(mean(log(m1 / m2)^2))``: the mean of an A/A log ratio is known to
    be 0, so nothing is subtracted and a drift between first and second repeats counts as noise, as it should.

    Alternatives: the sample SD of the log ratios (loses a degree of freedom and hides drift); a mixed model with seed
    and host effects (when hosts differ). The spread *between* seeds is not noise in a paired design and does not enter.

    Parameters
    ----------
    repeats : mapping of seed to sequence of float
        At least two repeats of the same seed, configuration and machine; any unit, finite and above 0. Groups may
        differ in size.
    confidence : float
        Level of the chi-square interval, which assumes that log metrics are normal within a seed.

    Returns
    -------
    NoiseFloor
        All of it 0 if repeats are identical, as those of a deterministic replay must be.

    Raises
    ------
    UsageError
        No group, a group of fewer than two runs, or a metric that is not finite and positive.

    References
    ----------
    Snedecor & Cochran (1989), *Statistical Methods*, 8th ed., ch. 12 and 13 (pooled within-class variance).

    Examples
    --------
    >>> floor = noise_floor({1: [410.0, 402.0], 2: [395.0, 408.0], 3: [401.0, 404.0]})
    >>> print(f"{floor.sd_log_ratio:.4f} [{floor.low:.4f}, {floor.high:.4f}] on {floor.degrees_of_freedom} df")
    0.0223 [0.0126, 0.0832] on 3 df
    """
    as_level(confidence, "confidence")
    if not isinstance(repeats, Mapping) or not repeats:
        raise UsageError(
            "a mapping of seed to at least two repeated runs",
            f"repeats={repeats!r}",
            where="repeats",
            fix="Record A/A pairs.",
        )
    squares = 0.0
    runs = 0
    for seed, values in repeats.items():
        logs = np.log(as_sample(values, f"repeats[{seed!r}]", domain="positive", at_least=2))
        squares += float(np.sum((logs - logs.mean()) ** 2))
        runs += logs.size
    df = runs - len(repeats)
    sd = math.sqrt(2 * squares / df)
    tail = (1 - confidence) / 2
    warnings = () if df >= FEW_REPEATS else (f"{df} degrees of freedom: fewer than {FEW_REPEATS} A/A pairs",)
    return NoiseFloor(
        sd_log_ratio=sd,
        low=sd * math.sqrt(df / float(chi2.isf(tail, df))),
        high=sd * math.sqrt(df / float(chi2.ppf(tail, df))),
        degrees_of_freedom=df,
        groups=len(repeats),
        runs=runs,
        confidence=confidence,
        warnings=warnings,
    )


def minimal_detectable_effect(sd_log_ratio: float, pairs: int, *, power: float = 0.8, alpha: float = 0.05) -> float:
    """Smallest true effect that a two-sided paired t test finds with probability `power`.

    ``(t[1 - alpha/2] + t[power]) * sd / sqrt(pairs)``, both quantiles of Student's t with ``pairs - 1`` degrees of
    freedom, the ones the paired test itself will have. This shifts a central t; the exact power uses the noncentral t
    (`statsmodels.stats.power.TTestPower`), against which it is 0.1 % low at 10 pairs, 1.2 % at 5 and 14 % at 2.

    Parameters
    ----------
    sd_log_ratio : float
        Standard deviation of the paired log ratio, at least 0. That of A/A pairs is a lower bound: an effect that
        varies between seeds adds its own spread. To be safe against a floor measured on few pairs, pass
        `NoiseFloor.high`.
    pairs : int
        Seeds that will be run under both systems, at least 2.
    power, alpha : float
        Chance to see the effect (0.5 or more), and two-sided false-positive rate.

    Returns
    -------
    float
        Effect on the log scale; ``math.expm1`` of it is the relative change (0.05 reads as about 5 %). 0 if the
        standard deviation is 0.

    Raises
    ------
    UsageError
        An argument outside its range.

    References
    ----------
    Bloom (1995), "Minimum detectable effects", *Evaluation Review* 19(5), 547-556.

    Examples
    --------
    >>> round(minimal_detectable_effect(0.03, 10), 4)
    0.0298
    >>> round(minimal_detectable_effect(0.03, 40), 4)
    0.0136
    """
    sd = _spread(sd_log_ratio)
    pairs = as_count(pairs, "pairs", at_least=2)
    return (_t_quantile(1 - _alpha(alpha) / 2, pairs) + _t_quantile(_power(power), pairs)) * sd / math.sqrt(pairs)


def pairs_needed(effect_log_ratio: float, sd_log_ratio: float, *, power: float = 0.8, alpha: float = 0.05) -> int:
    """Fewest pairs whose minimal detectable effect is no larger than `effect_log_ratio`.

    Parameters
    ----------
    effect_log_ratio : float
        Effect worth finding on the log scale, not 0; the sign is ignored. A 5 % speed-up is ``log(0.95)``.
    sd_log_ratio, power, alpha : float
        As for `minimal_detectable_effect`.

    Returns
    -------
    int
        At least 2. Within one pair of `TTestPower.solve_power` for effects below two standard deviations.

    Raises
    ------
    UsageError
        An argument outside its range, or an effect so small that over a billion pairs are needed.

    Examples
    --------
    >>> pairs_needed(0.03, 0.03, power=0.9)
    13
    >>> import math
    >>> pairs_needed(math.log(0.95), 0.10)
    32
    """
    sd = _spread(sd_log_ratio)
    if not math.isfinite(effect_log_ratio) or effect_log_ratio == 0:
        raise _no_effect("a finite effect other than 0", effect_log_ratio)
    effect = abs(effect_log_ratio)

    def enough(pairs: int) -> bool:
        return minimal_detectable_effect(sd, pairs, power=power, alpha=alpha) <= effect

    if enough(2):
        return 2
    high = 4
    while not enough(high):
        if high > 1_000_000_000:
            raise _no_effect("an effect that some number of pairs can show", effect_log_ratio)
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _no_effect(expected: str, effect: float) -> UsageError:
    return UsageError(expected, f"effect_log_ratio={effect!r}", where="effect_log_ratio")


def _spread(sd: float) -> float:
    if not math.isfinite(sd) or sd < 0:
        raise UsageError("a finite number of at least 0", f"sd_log_ratio={sd!r}", where="sd_log_ratio")
    return float(sd)


def _alpha(alpha: float) -> float:
    return as_level(alpha, "alpha")


def _power(power: float) -> float:
    # Below one half the quantile is negative and more pairs would stop meaning a smaller effect.
    return as_level(power, "power", low=0.5)


def _t_quantile(level: float, pairs: int) -> float:
    return float(t.ppf(level, pairs - 1))
