"""Random rows of every recorded table, as writers take them and as tables at rest must show them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from workbench.schema.enums import ENUMS
from workbench.schema.tables import TABLES, Column
from workbench.trace.columns import ID_COLUMN, dictionary_of, recorded_columns
from workbench.trace.recorder import ProcInfo, Recorder
from workbench.trace.writer import Writer

STAGES = ("client", "thinker", "Stufe ü")
EDGES = ("client>thinker", "thinker>Stufe ü")
NAMES = {**ENUMS, "stage": STAGES, "edge": EDGES}
STAGE_ROWS = [{"stage": name, "role": "ar", "replicas": 1, "device": "cpu", "weights": "none"} for name in STAGES]
EDGE_ROWS = [
    {
        "edge": name,
        "source": name.split(">")[0],
        "target": name.split(">")[1],
        "modality": "tokens",
        "kind": "stream",
        "transport": "in-process",
    }
    for name in EDGES
]
INTEGER_BITS = {"int64": 63, "int32": 31, "int16": 15}

# Rows in the recorder's own hand, which appear in every recording.
OWN = "clock_sync"


def recorder(folder: Path, proc: int = 0, **options: Any) -> Recorder:
    """A recorder that flushes only when asked, unless an option says otherwise."""
    options = {"flush_interval_s": 60.0, **options}
    return Recorder(folder, ProcInfo.here(proc, f"process-{proc}"), stages=STAGES, edges=EDGES, **options)


def values(column: Column) -> st.SearchStrategy[Any]:
    """Values that a writer accepts for a column: codes for names."""
    dictionary = dictionary_of(column)
    plain: st.SearchStrategy[Any]
    if dictionary is not None:
        plain = st.integers(0, len(NAMES[dictionary]) - 1)
    elif column.type in INTEGER_BITS:
        bound = 1 << INTEGER_BITS[column.type]
        plain = st.integers(-bound, bound - 1)
    elif column.type == "float64":
        plain = st.floats(allow_nan=False)
    elif column.type == "bool":
        plain = st.booleans()
    else:
        plain = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
    return st.none() | plain if column.null else plain


def rows(table: str) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """Lists of rows as a writer's method takes them: without proc, without the row's own number."""
    columns = [column for column in recorded_columns(table) if column.name != ID_COLUMN.get(table)]
    return st.lists(st.tuples(*map(values, columns)), max_size=6)


def record(writer: Writer, table: str, taken: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Record rows of one table; yields each with its number in front where the table has one."""
    for row in taken:
        number = getattr(writer, table)(*row)
        yield (number, *row) if table in ID_COLUMN else row


def at_rest(table: str, row: tuple[Any, ...], proc: int) -> dict[str, Any]:
    """The row as a table at rest must show it: names instead of codes, with proc."""
    shown: dict[str, Any] = {}
    for column, value in zip(recorded_columns(table), row, strict=True):
        dictionary = dictionary_of(column)
        shown[column.name] = value if dictionary is None or value is None else NAMES[dictionary][value]
    if "proc" in TABLES[table].names:
        shown["proc"] = proc
    return {name: shown[name] for name in TABLES[table].names}
