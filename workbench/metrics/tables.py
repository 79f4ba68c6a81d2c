"""Columns of trace tables as NumPy arrays: ids and times as int64, names as numbers, missing values as -1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.errors import DataIntegrityError

Ints = npt.NDArray[np.integer[Any]]
Bools = npt.NDArray[np.bool_]
# A number in a compiled function: an int, or an element of an array.
Int = int | np.integer[Any]

NONE = -1  # no id, no number: ids of the contract are positive

# Columns that a task graph reads of each table.
COLUMNS = {
    "span": "span request stage replica epoch chunk kind start_ns end_ns cause cause_span batch".split(),
    "chunk": (
        "span edge request epoch seq units samples sent_ns received_ns taken_ns producer_span consumer_span final"
    ).split(),
    "stage": ["stage", "role"],
    "edge": ["edge", "source", "target", "modality"],
    "request": ["request", "scheduled_ns", "parent_request"],
    "outcome": ["request", "status"],
    "credit": ["edge", "request", "event", "at_ns"],
}


def need(frame: pl.DataFrame, table: str) -> None:
    """Raise DataIntegrityError unless `frame` has the COLUMNS of `table`."""
    missing = [name for name in COLUMNS[table] if name not in frame.columns]
    if missing:
        raise DataIntegrityError(
            f"columns {', '.join(COLUMNS[table])}",
            f"no {', '.join(missing)}",
            where=f"table {table}",
            fix="Take the frame from a validated run.",
        )


def whole(frame: pl.DataFrame, column: str, table: str, missing: int | None = None) -> Ints:
    """Column of integers as int64; NULL becomes `missing`, and raises DataIntegrityError where `missing` is None."""
    values = frame[column].cast(pl.Int64)
    if missing is None:
        _no_null(values, column, table)
    else:
        values = values.fill_null(missing)
    return values.to_numpy()


def codes(frame: pl.DataFrame, column: str, names: Sequence[str], table: str) -> Ints:
    """Column of names as positions in `names`, int16.

    Raises
    ------
    DataIntegrityError
        A value is NULL or not in `names`.
    """
    words = frame[column].cast(pl.String)
    _no_null(words, column, table)
    strange = sorted(set(words.unique()) - set(names))
    if strange:
        raise DataIntegrityError(f"one of {', '.join(names)}", repr(strange[0]), where=f"{table}.{column}")
    return words.cast(pl.Enum(list(names))).to_physical().cast(pl.Int16).to_numpy()


def _no_null(values: pl.Series, column: str, table: str) -> None:
    if values.null_count():
        raise DataIntegrityError(
            "a value in every row", f"NULL in row {values.is_null().arg_max()}", where=f"{table}.{column}"
        )


def named(numbers: Ints, names: Sequence[str]) -> pl.Series:
    """Numbers as an Enum column over `names`; a negative number becomes NULL."""
    enum = pl.Enum(list(names))
    physical = pl.Series([], dtype=enum).to_physical().dtype
    known = pl.when(pl.col("number") >= 0).then(pl.col("number")).cast(physical)
    return pl.DataFrame({"number": numbers}).select(known)["number"].cat.to(enum)


class Finder:
    """Positions of ids in an array, by binary search.

    Parameters
    ----------
    ids : ndarray of int64
        Ids in any order; of equal ones the first position is found.
    """

    def __init__(self, ids: Ints) -> None:
        self._order = np.argsort(ids, kind="stable")
        self._ids = ids[self._order]

    def __call__(self, wanted: Ints) -> Ints:
        """Position of every wanted id, -1 where it is -1 or absent; int64."""
        found = np.full(len(wanted), NONE, dtype=np.int64)
        asked = np.flatnonzero(wanted != NONE) if len(self._ids) else found[:0]
        # In order of id the search stays in the cache: three times faster on ten million ids, the sort included.
        asked = asked[np.argsort(wanted[asked])]
        ids = wanted[asked]
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        found[asked] = np.where(self._ids[at] == ids, self._order[at], NONE)
        return found

    def repeated(self) -> Ints:
        """Positions of all rows whose id occurs more than once."""
        repeated = np.zeros(len(self._ids), dtype=np.bool_)
        same = self._ids[1:] == self._ids[:-1]
        repeated[1:] |= same
        repeated[:-1] |= same
        return np.sort(self._order[repeated])
