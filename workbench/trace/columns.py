"""How rows of the trace tables are stored: integer codes while recording, Arrow columns at rest.

While a run is recorded, a value of a closed vocabulary is its position in ``workbench.schema.enums`` and a stage or
edge is its position in the recorder's tuple of names. A block of rows becomes one buffer per column, laid out as Arrow
lays them out, so that nothing is converted a second time; the codes turn into names when a segment is read.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from workbench.schema.enums import ENUMS
from workbench.schema.tables import TABLES, Column, Table

# Position of every value of every vocabulary: CODE["span_kind"]["service"].
CODE: dict[str, dict[str, int]] = {
    vocabulary: {value: position for position, value in enumerate(values)} for vocabulary, values in ENUMS.items()
}

# Tables that a running process writes, in the order of their numbers in segment files. Append, never reorder. The
# others (run, proc, stage, edge, slo, import_note) are written when the run is sealed.
RECORDED: tuple[str, ...] = (
    "clock_sync",
    "request",
    "outcome",
    "span",
    "batch",
    "chunk",
    "credit",
    "decision",
    "object",
    "gauge",
    "energy",
    "host",
    "event",
)

# Tables whose rows get a number of the run's id space from the recorder, and the column that holds it.
ID_COLUMN = {"span": "span", "chunk": "span", "batch": "batch"}

ALIGN = 8
PLAIN = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "int16": pa.int16(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "text": pa.string(),
    "json": pa.string(),
}

Row = tuple[Any, ...]
Names = Mapping[str, Sequence[str]]


def arrow_type(column: Column) -> pa.DataType:
    """Type of a column at rest: vocabularies are plain strings, which Parquet stores as a dictionary."""
    return pa.string() if column.is_enum else PLAIN[column.type]


def arrow_schema(table: Table) -> pa.Schema:
    """Arrow schema of a table at rest, with the contract's nullability."""
    return pa.schema([pa.field(column.name, arrow_type(column), nullable=column.null) for column in table.columns])


def dictionary_of(column: Column) -> str | None:
    """Name of the dictionary whose codes a recorded column holds, or None for a plain value.

    Vocabularies go by their own name; stages and edges by ``"stage"`` and ``"edge"``.
    """
    if column.is_enum:
        return column.type
    return column.name if column.name in ("stage", "edge") else None


def recorded_columns(name: str) -> tuple[Column, ...]:
    """Columns of a table that a recorded row carries: all but ``proc``, which the segment's header knows."""
    return tuple(column for column in TABLES[name].columns if column.name != "proc")


def encode(name: str, rows: Sequence[Row], names: Names) -> bytes:
    """Pack rows of one table into the bytes of a block.

    Layout, every part padded to 8 bytes: one flag byte per column (1 = it has a validity bitmap), then per column the
    bitmap if flagged, and the values; text is ``rows + 1`` int32 offsets, then UTF-8.

    Parameters
    ----------
    name : str
        Table, one of ``RECORDED``.
    rows : sequence of tuple
        The row's number, which is not stored, then one value per column of :func:`recorded_columns`; None = NULL.
    names : mapping
        Dictionary name -> its values; codes must lie inside.

    Raises
    ------
    ValueError, TypeError, OverflowError
        A value does not fit its column (Arrow's own errors are subclasses of these).
    """
    stored = _stored(name)
    flags = bytearray(len(stored))
    parts: list[Any] = [flags, bytes(-len(stored) % ALIGN)]
    _, *by_column = zip(*rows, strict=True)
    for index, (column, values) in enumerate(zip(stored, by_column, strict=True)):
        array = pa.array(values, column.type)
        if column.dictionary is not None and not set(values) <= {None, *range(len(names[column.dictionary]))}:
            raise ValueError(f"a code in {column.name} that is not one of {len(names[column.dictionary])} values")
        if array.null_count and not column.null:
            raise ValueError(f"NULL in {column.name}")
        validity, *data = array.buffers()
        if array.null_count:
            flags[index] = 1
            parts += _part(validity, _bits(len(rows)))
        if column.is_text:
            parts += _part(data[0], 4 * (len(rows) + 1))
            parts += _part(data[1], _last_offset(data[0], len(rows)))
        else:
            parts += _part(data[0], column.size(len(rows)))
    return b"".join(parts)


def decode(name: str, payload: bytes, rows: int, names: Names, proc: int) -> pa.Table:
    """Rows of one block as an Arrow table with the contract's columns; codes become names.

    Every length is derived from `rows` and checked against the payload, so that a wrong one cannot allocate or read
    outside it.

    Raises
    ------
    ValueError
        The payload does not hold `rows` valid rows of this table.
    """
    stored = _stored(name)
    cursor = _Cursor(payload)
    flags = cursor.take(len(stored)).to_pybytes()
    decoded = {
        column.name: column.checked(_read(column, cursor, rows, bool(flag)), names)
        for column, flag in zip(stored, flags, strict=True)
    }
    if cursor.left:
        raise ValueError(f"{cursor.left} bytes after the last column")
    for column in stored:
        if column.dictionary is not None:
            decoded[column.name] = pc.take(pa.array(names[column.dictionary], pa.string()), decoded[column.name])
    if "proc" in TABLES[name].names:
        decoded["proc"] = pa.repeat(pa.scalar(proc, pa.int16()), rows)
    schema = arrow_schema(TABLES[name])
    return pa.table([decoded[column] for column in schema.names], schema=schema)


@dataclass(frozen=True, slots=True)
class _Stored:
    """How a column lies in a block: its Arrow type, and the dictionary of its codes if it holds any."""

    name: str
    type: pa.DataType
    dictionary: str | None
    null: bool
    is_text: bool

    def size(self, rows: int) -> int:
        """Bytes of the values, for all but text."""
        return rows * int(self.type.bit_width) // 8 if self.type.bit_width >= 8 else _bits(rows)

    def checked(self, array: pa.Array, names: Names) -> pa.Array:
        """`array` if it keeps the column's NULL rule and every code is in the dictionary; ValueError if not."""
        if array.null_count and not self.null:
            raise ValueError(f"NULL in {self.name}")
        if self.dictionary is not None and array.null_count < len(array):
            low, high = pc.min_max(array).values()
            if low.as_py() < 0 or high.as_py() >= len(names[self.dictionary]):
                raise ValueError(f"codes {low} to {high} in {self.name} of {len(names[self.dictionary])} values")
        return array


@functools.cache
def _stored(name: str) -> tuple[_Stored, ...]:
    found = []
    for column in recorded_columns(name):
        dictionary = dictionary_of(column)
        type_ = PLAIN[column.type] if dictionary is None else pa.int16()
        found.append(_Stored(column.name, type_, dictionary, column.null, type_ == pa.string()))
    return tuple(found)


def _bits(rows: int) -> int:
    return (rows + 7) // 8


def _last_offset(offsets: pa.Buffer, rows: int) -> int:
    return int.from_bytes(offsets[4 * rows : 4 * rows + 4], "little", signed=True)


def _part(buffer: pa.Buffer | None, size: int) -> tuple[pa.Buffer | bytes, bytes]:
    """The first `size` bytes of a buffer, and the padding that follows them."""
    return b"" if buffer is None else buffer.slice(0, size), bytes(-size % ALIGN)


def _read(column: _Stored, cursor: _Cursor, rows: int, has_nulls: bool) -> pa.Array:
    validity = cursor.take(_bits(rows)) if has_nulls else None
    if column.is_text:
        offsets = cursor.take(4 * (rows + 1))
        data = [offsets, cursor.take(_last_offset(offsets, rows))]
    else:
        data = [cursor.take(column.size(rows))]
    array = pa.Array.from_buffers(column.type, rows, [validity, *data])
    array.validate(full=True)
    return array


class _Cursor:
    """Position in a payload; refuses to read past its end."""

    def __init__(self, payload: bytes) -> None:
        self._buffer = pa.py_buffer(payload)
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._buffer) - self._at

    def take(self, size: int) -> pa.Buffer:
        padded = size + -size % ALIGN
        if size < 0 or padded > self.left:
            raise ValueError(f"a column of {size} bytes where {self.left} are left")
        part = self._buffer.slice(self._at, size)
        self._at += padded
        return part
