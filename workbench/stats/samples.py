"""Checked inputs: samples, levels, counts and runs paired by seed.

Every public function of `workbench.stats` passes its arguments through this module, so a missing, negative or misshapen
value is named once, with its position, before any number is computed from it.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UsageError

FloatArray = NDArray[np.float64]
Seed = TypeVar("Seed", bound=Hashable)  # what identifies one trace: its seed, its hash, its file name
Domain = Literal["real", "positive", "latency"]

FEW_SEEDS = 10  # below this many pairs a paired decision carries a warning; bootstrap A/A error is 12-17 % there

# A sum of shares misses its decimal by rounding; without this allowance a quantile read from it jumps a whole gap.
SHARE_ROUNDING = 1e-9

_DOMAINS: dict[Domain, str] = {
    "real": "finite numbers",
    "positive": "finite numbers above 0",
    "latency": "numbers of at least 0, or inf for a request that failed",
}


class TooFewPairs(UsageError):
    """Fewer seeds than the method needs for any answer.

    Attributes
    ----------
    pairs, needed : int
        Seeds present on both sides, and the least number that works.
    """

    def __init__(self, pairs: int, needed: int, *, where: str, why: str) -> None:
        self.pairs = pairs
        self.needed = needed
        super().__init__(
            f"at least {needed} paired seeds",
            f"pairs={pairs}",
            where=where,
            fix=f"{why} Replay more seeds on both sides.",
        )


class UnpairedRuns(UsageError):
    """The two sides do not hold the same seeds, so their difference would mix traces.

    Attributes
    ----------
    only_first, only_second : tuple
        Seeds present on one side only, in their given order.
    """

    def __init__(
        self, names: tuple[str, str], only_first: tuple[Hashable, ...], only_second: tuple[Hashable, ...]
    ) -> None:
        self.only_first = only_first
        self.only_second = only_second
        sides = zip(names, (only_first, only_second), strict=True)
        found = " and ".join(f"{_shortlist(seeds)} only in {name}" for name, seeds in sides if seeds)
        super().__init__(
            "the same seeds on both sides",
            f"seed {found}",
            where=" and ".join(names),
            fix="Run the missing seeds, or remove them from the other side and say so.",
        )


def as_sample(
    values: ArrayLike, name: str, *, domain: Domain, at_least: int = 1, labels: Sequence[object] | None = None
) -> FloatArray:
    """A one-dimensional float array whose every value lies in `domain`.

    Parameters
    ----------
    values : array_like, shape (n,)
        Real numbers. Missing values (None, NaN, a masked entry) are refused: what a missing value means (a failure, an
        unrecorded run) is for the caller to say.
    name : str
        Argument name for the message.
    domain : {"real", "positive", "latency"}
        ``latency`` admits 0 and +inf (the request failed); the others are finite.
    at_least : int
        Smallest size accepted.
    labels : sequence, optional
        One label a value for the message, instead of the position.

    Raises
    ------
    UsageError
        Wrong shape, no numbers, too few of them, or one outside `domain`.

    Examples
    --------
    >>> as_sample([1, 2.5, float("inf")], "latency_s", domain="latency")
    array([1. , 2.5, inf])
    >>> as_sample([0.3, -2.0], "latency_s", domain="latency")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    workbench.errors.UsageError: latency_s: expected numbers of at least 0, ... found latency_s[1]=-2.0.
    """
    try:
        raw = np.ma.asarray(values) if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    except ValueError as ragged:
        raise UsageError("one row of numbers", f"{name} with rows of different length", where=name) from ragged

    def label(index: int) -> str:
        return f"{name}[{index if labels is None else labels[index]!r}]"

    if raw.ndim != 1:
        raise UsageError("one row of numbers, shape (n,)", f"{name} with shape {raw.shape}", where=name)
    missing = np.flatnonzero(np.ma.getmaskarray(raw))
    if missing.size:
        raise UsageError(_DOMAINS[domain], f"{label(int(missing[0]))} masked", where=name, fix=_missing_fix(domain))
    if raw.size and raw.dtype.kind not in "iuf":
        odd = next((i for i, value in enumerate(raw.tolist()) if isinstance(value, bool) or not _is_number(value)), 0)
        raise UsageError(
            _DOMAINS[domain],
            f"{label(odd)}={raw.tolist()[odd]!r} (dtype {raw.dtype})",
            where=name,
            fix=_missing_fix(domain) if raw.tolist()[odd] is None else "",
        )
    sample: FloatArray = np.asarray(raw, dtype=np.float64)
    if sample.size < at_least:
        raise UsageError(
            f"at least {at_least} value{'s' * (at_least > 1)}", f"{name} of size {sample.size}", where=name
        )
    if domain == "latency":
        wrong = np.isnan(sample) | (sample < 0)
    elif domain == "positive":
        wrong = ~(np.isfinite(sample) & (sample > 0))
    else:
        wrong = ~np.isfinite(sample)
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        value = float(sample[index])
        raise UsageError(
            _DOMAINS[domain],
            f"{label(index)}={value!r}",
            where=name,
            fix=_missing_fix(domain)
            if math.isnan(value)
            else _infinite_fix()
            if domain == "positive" and value == math.inf
            else "",
        )
    return sample


def as_level(value: float, name: str, *, low: float = 0.0, high: float = 1.0) -> float:
    """A number strictly between `low` and `high`: a quantile level, a confidence, a power.

    >>> as_level(0.95, "confidence")
    0.95
    >>> as_level(95, "confidence")
    Traceback (most recent call last):
    workbench.errors.UsageError: confidence: expected a number above 0 and below 1, found confidence=95.
    """
    if not _is_number(value) or not low < value < high:
        raise UsageError(f"a number above {low:g} and below {high:g}", f"{name}={value!r}", where=name)
    return float(value)


def as_count(value: int, name: str, *, at_least: int = 0) -> int:
    """A whole number of at least `at_least`.

    >>> as_count(3, "pairs", at_least=2)
    3
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < at_least:
        raise UsageError(f"a whole number of at least {at_least}", f"{name}={value!r}", where=name)
    return int(value)


def pair_runs(
    first: Mapping[Seed, float],
    second: Mapping[Seed, float],
    names: tuple[str, str],
    *,
    domain: Domain,
    needed: int,
    why: str,
) -> tuple[tuple[Seed, ...], FloatArray, FloatArray]:
    """Two sets of run-level metrics, aligned by seed in the order of the first.

    Parameters
    ----------
    first, second : mapping of seed to float
        One run-level value per trace seed.
    names : (str, str)
        Argument names for the message.
    domain : {"real", "positive", "latency"}
        What a value may be.
    needed : int
        Fewest pairs that the method can use; `why` ends the message.

    Raises
    ------
    UnpairedRuns
        A seed is present on one side only; lists up to five a side.
    TooFewPairs
        Fewer than `needed` seeds.
    UsageError
        A side is not a mapping, or a value is outside `domain`.
    """
    for side, name in zip((first, second), names, strict=True):
        if not isinstance(side, Mapping):
            raise UsageError(
                "a mapping of seed to metric",
                f"{name} of type {type(side).__name__}",
                where=name,
                fix="Pairs are matched by seed, never by position: pass dict(zip(seeds, values)).",
            )
    if first.keys() != second.keys():
        raise UnpairedRuns(
            names, tuple(s for s in first if s not in second), tuple(s for s in second if s not in first)
        )
    seeds = tuple(first)
    if len(seeds) < needed:
        raise TooFewPairs(len(seeds), needed, where=" and ".join(names), why=why)
    left = as_sample([first[s] for s in seeds], names[0], domain=domain, labels=seeds)
    right = as_sample([second[s] for s in seeds], names[1], domain=domain, labels=seeds)
    return seeds, left, right


def seed_warnings(pairs: int) -> tuple[str, ...]:
    """What to print beside a paired result that rests on few seeds.

    >>> seed_warnings(8)
    ('8 seeds: fewer than 10, so the interval leans on normality',)
    """
    if pairs >= FEW_SEEDS:
        return ()
    return (f"{pairs} seeds: fewer than {FEW_SEEDS}, so the interval leans on normality",)


def rounding_of(*operands: FloatArray) -> float:
    """Largest error that rounding leaves in a sum or difference of these operands (logarithms among them).

    Spread below it is no spread: a t statistic on it would be rounding noise divided by itself.
    """
    return 16 * float(np.finfo(np.float64).eps) * max(float(np.abs(values).max()) for values in operands)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _missing_fix(domain: Domain) -> str:
    if domain == "latency":
        return (
            "A missing value is not a number: pass inf for a request that failed, and leave out what was not scheduled."
        )
    return "A missing value is not a number: leave the run out on every side and say so."


def _infinite_fix() -> str:
    return (
        "An infinite metric (too many failed requests) has no difference or ratio: compare failure counts or SLO "
        "attainment, or score every failure at the deadline."
    )


def _shortlist(seeds: tuple[Hashable, ...]) -> str:
    shown = ", ".join(repr(seed) for seed in seeds[:5])
    return shown if len(seeds) <= 5 else f"{shown} and {len(seeds) - 5} more"
