"""Columns of trace tables as NumPy arrays: ids and times as int64, names as numbers, missing values as -1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.errors import DataIntegrityError
from workbench.twin import compiled

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
    """Column of integers as a new int64 array.

    NULL becomes `missing`; where `missing` is None, it raises DataIntegrityError.
    """
    values = frame[column].cast(pl.Int64)
    if missing is None:
        _no_null(values, column, table)
    else:
        values = values.fill_null(missing)
    return values.to_numpy(writable=True)


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
    return words.cast(pl.Enum(list(names))).to_physical().cast(pl.Int16).to_numpy(writable=True)


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
    """Positions of ids in an array, by a hash table with linear probing.

    Parameters
    ----------
    ids : ndarray of int64
        Ids in any order; of equal ones the first position is found.
    """

    def __init__(self, ids: Ints) -> None:
        self._ids = ids
        bits = (2 * len(ids) + 1).bit_length()
        self._shift = 64 - bits
        self._slots = np.full(1 << bits, NONE, dtype=np.int32)
        self._twice = np.zeros(len(ids), dtype=np.bool_)
        _fill(self._ids, self._slots, self._shift, self._twice)

    def __call__(self, wanted: Ints) -> Ints:
        """Position of every wanted id, -1 where it is -1 or absent; int64."""
        found = np.empty(len(wanted), dtype=np.int64)
        _look_up(self._ids, self._slots, self._shift, wanted, found)
        return found

    def repeated(self) -> Ints:
        """Positions of all rows whose id occurs more than once."""
        return np.flatnonzero(self._twice)


@compiled
def _slot(id_: Int, shift: int) -> Int:
    """Fibonacci hashing: the upper bits of the product with 2**64 divided by the golden ratio."""
    return np.int64((np.uint64(id_) * np.uint64(11400714819323198485)) >> np.uint64(shift))


@compiled
def _fill(ids: Ints, slots: Ints, shift: int, twice: Bools) -> None:
    last = len(slots) - 1
    for i in range(len(ids)):
        slot = _slot(ids[i], shift)
        while slots[slot] >= 0 and ids[slots[slot]] != ids[i]:
            slot = (slot + 1) & last
        if slots[slot] < 0:
            slots[slot] = i
        else:
            twice[i] = True
            twice[slots[slot]] = True


@compiled
def _look_up(ids: Ints, slots: Ints, shift: int, wanted: Ints, found: Ints) -> None:
    last = len(slots) - 1
    for i in range(len(wanted)):
        found[i] = NONE
        if wanted[i] == NONE:
            continue
        slot = _slot(wanted[i], shift)
        while slots[slot] >= 0:
            if ids[slots[slot]] == wanted[i]:
                found[i] = slots[slot]
                break
            slot = (slot + 1) & last
