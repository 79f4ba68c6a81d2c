"""Pareto fronts: which configurations no other beats on every count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workbench.errors import UsageError
from workbench.stats.samples import FloatArray

Sense = Literal["min", "max"]


@dataclass(frozen=True, slots=True, eq=False)
class ParetoFront:
    """Which rows are on the front, and who beats the others.

    Attributes
    ----------
    front : tuple of int
        Rows on the front, best first in the first column, then the second and so on, then by row number.
    dominated : ndarray of bool, shape (n,)
        Whether some row is at least as good everywhere and better somewhere.
    dominator : ndarray of int64, shape (n,)
        For a dominated row the first member of `front` that dominates it; -1 on the front.
    """

    front: tuple[int, ...]
    dominated: NDArray[np.bool_]
    dominator: NDArray[np.int64]


def pareto_front(columns: Mapping[str, ArrayLike], *, sense: Mapping[str, Sense]) -> ParetoFront:
    """Rows that no other row dominates.

    Row ``a`` dominates ``b`` if it is at least as good in every column and strictly better in one. Equal rows do not
    dominate each other: all of them are on the front or none. Comparison is exact; differences below the noise floor
    still count, so draw intervals beside the front.

    Parameters
    ----------
    columns : mapping of str to array_like, shape (n,)
        One column per objective, all of one length. Infinities are values (a censored p99 is worse than any other);
        NaN is not: drop what was not measured, and what failed its quality gate, before ranking.
    sense : mapping of str to {"min", "max"}
        Direction for exactly these columns. No default: throughput and latency look alike as numbers.

    Returns
    -------
    ParetoFront
        All empty for columns of length 0.

    Raises
    ------
    UsageError
        No column, columns of different length, a missing value, or directions that do not match.

    References
    ----------
    Kung, Luccio & Preparata (1975), "On finding the maxima of a set of vectors", *J. ACM* 22(4), 469-476. Rows are
    sorted lexicographically, so a row can only be dominated by an earlier one; O(n x front size).

    Examples
    --------
    >>> result = pareto_front(
    ...     {"p99_ms": [410, 380, 380, 520], "tokens_per_s": [90, 80, 85, 88]},
    ...     sense={"p99_ms": "min", "tokens_per_s": "max"},
    ... )
    >>> result.front, result.dominated.tolist(), result.dominator.tolist()
    ((2, 0), [False, True, False, True], [-1, 2, -1, 0])
    """
    costs = _costs(columns, sense)
    n = costs.shape[0]
    dominator = np.full(n, -1, dtype=np.int64)
    front: list[int] = []
    members = np.empty_like(costs)  # costs of the front found so far, filled from the top
    for row in np.lexsort((np.arange(n), *reversed(costs.T))):
        known = members[: len(front)]
        beaten_by = (known <= costs[row]).all(axis=1) & (known < costs[row]).any(axis=1)
        if beaten_by.any():
            dominator[row] = front[int(np.argmax(beaten_by))]
        else:
            members[len(front)] = costs[row]
            front.append(int(row))
    dominated = dominator >= 0
    for array in (dominated, dominator):
        array.setflags(write=False)
    return ParetoFront(tuple(front), dominated, dominator)


def _costs(columns: Mapping[str, ArrayLike], sense: Mapping[str, Sense]) -> FloatArray:
    if not columns:
        raise UsageError("at least one column", "none", where="columns")
    if columns.keys() != sense.keys():
        raise UsageError(f"a direction for exactly {sorted(columns)}", f"sense for {sorted(sense)}", where="sense")
    costs = []
    for name, values in columns.items():
        if sense[name] not in ("min", "max"):
            raise UsageError("'min' or 'max'", f"sense[{name!r}]={sense[name]!r}", where="sense")
        raw = np.asarray(values)
        if raw.ndim != 1 or (raw.size and raw.dtype.kind not in "iuf"):
            found = f"columns[{name!r}] with shape {raw.shape} and dtype {raw.dtype}"
            raise UsageError("one row of numbers, shape (n,)", found, where="columns")
        column = raw.astype(np.float64)
        missing = np.flatnonzero(np.isnan(column))
        if missing.size:
            found = f"columns[{name!r}][{missing[0]}]=nan"
            raise UsageError("a number in every row", found, where="columns", fix="Remove what was not measured.")
        costs.append(column if sense[name] == "min" else -column)
    sizes = {name: column.size for name, column in zip(columns, costs, strict=True)}
    if len(set(sizes.values())) > 1:
        raise UsageError("columns of one length", f"sizes {sizes}", where="columns")
    return np.column_stack(costs)
