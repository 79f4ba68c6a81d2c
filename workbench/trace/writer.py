"""The hot path: one method per trace table, generated from the contract, that appends one tuple to a buffer.

A row costs a number from a counter, a tuple and an append, each a single atomic step of the interpreter, so that no
lock is needed and a thread switch between them loses nothing. The row's number is also stored in memory that outlives
the process, so that after a kill the next reader knows exactly how many rows had been taken.

Identifiers are ``proc << 56 | writer << 44 | sequence``; the two highest bits of the sequence keep spans, chunks,
batches and reserved numbers apart.
"""

from __future__ import annotations

import functools
import itertools
import keyword
from collections import deque
from collections.abc import Callable
from typing import Any

from workbench.schema.tables import TABLES
from workbench.trace.calibration import now
from workbench.trace.columns import ID_COLUMN, RECORDED, Row, recorded_columns

PROC_SHIFT = 56
WRITER_SHIFT = 44
SPACE_SHIFT = 42
NUMBER_MASK = (1 << SPACE_SHIFT) - 1
PROC_LIMIT = 1 << (63 - PROC_SHIFT)
WRITER_LIMIT = 1024
RESERVED_SPACE = 3
SPACES = {"span": 0, "chunk": 1, "batch": 2}

# Slots per writer in the array of row counts: room for tables yet to come.
TABLE_SLOTS = 16


class Stream:
    """Buffered rows of one table from one writer, and what became of those that left the buffer.

    Attributes
    ----------
    rows : deque of tuple
        Rows not yet flushed, each beginning with its number; the oldest fall out when it is full.
    base : int
        What the first row's number exceeds by one.
    taken : int
        Rows taken up to the highest number that the flusher has seen.
    flushed, rejected : int
        Rows handed to the operating system; rows with a value that does not fit its column.
    """

    __slots__ = ("base", "flushed", "rejected", "rows", "slot", "table", "taken", "writer")

    def __init__(self, writer: int, table: int, base: int, capacity: int) -> None:
        self.writer = writer
        self.table = table
        self.slot = writer * TABLE_SLOTS + table
        self.base = base
        self.rows: deque[Row] = deque(maxlen=capacity)
        self.taken = self.flushed = self.rejected = 0

    @property
    def dropped(self) -> int:
        """Rows that fell out of the full buffer or could not be written."""
        return self.taken - self.flushed - self.rejected


class Writer:
    """Records rows of one thread; made by :meth:`Recorder.writer`.

    There is one method per recorded table (``help(writer.span)`` lists its arguments): the columns in the order of the
    contract without ``proc``; trailing columns that may be NULL are optional. ``span`` and ``chunk`` take ``span_id=``
    and ``batch`` takes ``batch_id=`` where the number was reserved with `new_id`; each returns the row's number.
    Stages, edges and vocabulary values are integer codes (``Recorder.stage_code``, ``Recorder.edge_code``,
    ``columns.CODE``).

    A writer that is off has the same methods and hands out numbers, but keeps nothing; test `on` before work that only
    serves the recording. Threads may share a writer without loss.

    Attributes
    ----------
    on : bool
        Whether rows are kept.
    now : callable
        The run's clock, integer nanoseconds.
    new_id : callable
        Reserves a number before its row is complete, or for a state object.
    """

    name: str
    on: bool
    now: Callable[[], int]
    new_id: Callable[[], int]
    clock_sync: Callable[..., None]
    request: Callable[..., None]
    outcome: Callable[..., None]
    span: Callable[..., int]
    batch: Callable[..., int]
    chunk: Callable[..., int]
    credit: Callable[..., None]
    decision: Callable[..., None]
    object: Callable[..., None]
    gauge: Callable[..., None]
    energy: Callable[..., None]
    host: Callable[..., None]
    event: Callable[..., None]

    __slots__ = ("name", "new_id", "now", "on", "streams", *RECORDED)

    def __init__(self, name: str, proc: int, index: int, taken: Any, *, capacity: int, on: bool) -> None:
        self.name = name
        self.on = on
        self.now = now
        base = proc << PROC_SHIFT | index << WRITER_SHIFT
        self.new_id = itertools.count((base | RESERVED_SPACE << SPACE_SHIFT) + 1).__next__
        self.streams: tuple[Stream, ...] = ()
        for number, table in enumerate(RECORDED):
            first = base | SPACES.get(table, 0) << SPACE_SHIFT
            take = itertools.count(first + 1).__next__
            stream = Stream(index, number, first, capacity)
            setattr(self, table, _method(table, on)(take, stream.rows.append, taken, stream.slot))
            if on:
                self.streams += (stream,)


@functools.cache
def _method(table: str, on: bool) -> Callable[..., Callable[..., Any]]:
    """Factory of the recording method of a table, compiled from the contract."""
    id_column = ID_COLUMN.get(table)
    columns = [column for column in recorded_columns(table) if column.name != id_column]
    names = [column.name + "_" if keyword.iskeyword(column.name) else column.name for column in columns]
    optional = len(columns)
    while optional and columns[optional - 1].null:
        optional -= 1
    arguments = names[:optional] + [f"{name}=None" for name in names[optional:]]
    row = ["number", *names]
    body = []
    if id_column:
        id_name = f"{id_column}_id"
        arguments.append(f"{id_name}=None")
        row.insert(1, id_name)
    if on:
        body += ["number = take()"]
        body += [f"if {id_name} is None: {id_name} = number"] if id_column else []
        body += [f"append(({', '.join(row)}))", "taken[slot] = number"]
        body += [f"return {id_name}"] if id_column else []
    else:
        body += [f"return take() if {id_name} is None else {id_name}" if id_column else "pass"]
    source = "\n    ".join(
        ["def make(take, append, taken, slot):", f"def {table}({', '.join(arguments)}):"]
        + ["    " + line for line in body]
        + [f"{table}.__doc__ = doc", f"return {table}"]
    )
    namespace: dict[str, Any] = {"doc": _doc(table)}
    exec(source, namespace)
    made: Callable[..., Callable[..., Any]] = namespace["make"]
    return made


def _doc(table: str) -> str:
    lines = [f"Record a row of `{table}`: {TABLES[table].doc}.", ""]
    lines += [f"{column.name} ({column.type}): {column.doc}" for column in recorded_columns(table)]
    return "\n".join(lines)
