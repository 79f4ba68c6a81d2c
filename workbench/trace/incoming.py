"""Rows from outside before they are loaded: run folders and Arrow tables, checked against the contract.

Whatever is read here is hostile until it has passed: names reach SQL only as quoted values, and the first defect is one
error that names file, column, row and value.
"""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import DataIntegrityError, UsageError
from workbench.schema import ddl
from workbench.schema.enums import ENUMS
from workbench.schema.tables import SCHEMA_VERSION, TABLES, Column, Table
from workbench.trace import manifest

# Tables without which a folder is not a run; the others are absent when they have no rows.
REQUIRED = ("run", "proc", "stage", "edge", "request", "outcome", "span", "chunk")

# A few bytes of Parquet can promise billions of equal rows; a real table of this size belongs in several runs.
MAX_ROWS = 200_000_000
MAX_NAMES = 10_000
MAX_NAME_LENGTH = 255

# What pyarrow raises on a damaged file; names that are not UTF-8 are a ValueError.
UNREADABLE = (pa.ArrowException, OSError, ValueError)

# Arrow types that a column takes; whatever is not listed is text.
ACCEPTED: dict[str, Callable[[pa.DataType], bool]] = {
    "int64": lambda found: bool(pa.types.is_integer(found)),
    "int32": lambda found: bool(pa.types.is_integer(found)),
    "int16": lambda found: bool(pa.types.is_integer(found)),
    "float64": lambda found: bool(pa.types.is_floating(found) or pa.types.is_integer(found)),
    "bool": lambda found: bool(pa.types.is_boolean(found)),
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one table of one run before they are loaded: how SQL reads them and what an error calls them."""

    table: Table
    relation: str
    count: int
    where: str
    arrow: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class IncomingRun:
    """One run to load: its label, the hash of what it was read from, and its tables."""

    label: str
    digest: str | None
    rows: dict[str, Rows] = field(default_factory=dict)


def read_folders(folders: Sequence[str | os.PathLike[str]], max_rows: int) -> list[IncomingRun]:
    """Check run folders against their manifests and the contract's columns; the rows stay on disk."""
    if not folders:
        raise UsageError("at least one run folder", "none")
    return distinct([_read_folder(Path(folder), max_rows) for folder in folders])


def distinct(runs: list[IncomingRun]) -> list[IncomingRun]:
    """The runs, or an error if two of them would be one in the store."""
    places: dict[str, str] = {}
    for run in runs:
        where = run.rows["run"].where
        if run.label in places:
            raise DataIntegrityError(
                "runs with different labels",
                f"label {shown(run.label)} in {places[run.label]} too",
                where=where,
                fix="Load one of them.",
            )
        places[run.label] = where
    return runs


def _read_folder(folder: Path, max_rows: int) -> IncomingRun:
    digest = manifest.verify(folder)
    rows = {}
    for table in TABLES.values():
        path = folder / f"{table.name}.parquet"
        if path.exists():
            rows[table.name] = _read_file(table, path, max_rows)
    _require(rows, str(folder))
    try:
        about = pq.ParquetFile(folder / "run.parquet").read(columns=["label", "schema_version"])
    except UNREADABLE as err:
        raise _unreadable(rows["run"].where, err) from err
    return IncomingRun(_label(rows["run"], about), digest, rows)


def _read_file(table: Table, path: Path, max_rows: int) -> Rows:
    try:
        footer = pq.read_metadata(path)
        schema = footer.schema.to_arrow_schema()
    except UNREADABLE as err:
        raise _unreadable(str(path), err) from err
    if footer.num_rows > max_rows:
        raise DataIntegrityError(
            f"at most {max_rows} rows", f"{footer.num_rows}", where=str(path), fix="Raise max_rows if this is intended."
        )
    _check_schema(table, schema, str(path))
    relation = f"read_parquet({ddl.quote_text(_pattern(path))}, hive_partitioning=false)"
    return Rows(table, relation, footer.num_rows, str(path))


def _pattern(path: Path) -> str:
    """The pattern that matches this file alone: DuckDB takes every path for a pattern."""
    pattern = glob.escape(str(path))
    if pattern != str(path) and "\\" in pattern:
        raise UsageError("a folder path without both a backslash and '*', '?' or '['", "both", where=str(path))
    return pattern


def read_tables(tables: Mapping[str, pa.Table]) -> IncomingRun:
    """Check the columns of a run in memory."""
    if unknown := sorted(set(tables) - set(TABLES)):
        raise DataIntegrityError(f"tables named {', '.join(TABLES)}", ", ".join(map(shown, unknown)))
    rows = {}
    for name in TABLES:
        if name in tables:
            where = f"table {name}"
            _check_schema(TABLES[name], tables[name].schema, where)
            rows[name] = Rows(TABLES[name], f"incoming_{name}", tables[name].num_rows, where, tables[name])
    _require(rows, "tables in memory")
    return IncomingRun(_label(rows["run"], tables["run"]), None, rows)


def _require(rows: Mapping[str, Rows], where: str) -> None:
    if missing := [name for name in REQUIRED if name not in rows]:
        raise DataIntegrityError(f"tables {', '.join(REQUIRED)}", f"no {', '.join(missing)}", where=where)
    if rows["run"].count != 1:
        raise DataIntegrityError("one row", f"{rows['run'].count} rows", where=rows["run"].where)


def _label(rows: Rows, table: pa.Table) -> str:
    """The run's label, from a row that must be of this contract's version."""
    version = table.column("schema_version")[0].as_py()
    if version != SCHEMA_VERSION:
        raise DataIntegrityError(
            f"schema_version {SCHEMA_VERSION}", str(version), where=rows.where, fix="Use the release that wrote it."
        )
    label = table.column("label")[0].as_py()
    if not label or len(label) > MAX_NAME_LENGTH:
        raise DataIntegrityError(
            f"a label of 1 to {MAX_NAME_LENGTH} characters", shown(label), where=f"{rows.where}: column label"
        )
    return str(label)


def _check_schema(table: Table, schema: pa.Schema, where: str) -> None:
    """Compare names and types of a table's columns with the contract, whatever their order."""
    for column in table.columns:
        if (count := schema.names.count(column.name)) != 1:
            raise DataIntegrityError(
                f"one column {column.name} ({column.type})",
                f"{count}",
                where=where,
                fix="See workbench/schema/tables.py.",
            )
        found = schema.field(column.name).type
        if not _fits(column, found):
            raise DataIntegrityError(f"type {column.type}", str(found), where=f"{where}: column {column.name}")
    if unknown := sorted(set(schema.names) - set(table.names)):
        raise DataIntegrityError(
            f"columns {', '.join(table.names)}", f"also {', '.join(map(shown, unknown))}", where=where
        )


def _fits(column: Column, found: pa.DataType) -> bool:
    """Whether values of an Arrow type can be this column's; a column of nothing but NULL fits all."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return True
    return ACCEPTED[column.type](found) if column.type in ACCEPTED else _is_text(found)


def _is_text(found: pa.DataType) -> bool:
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found))


@contextlib.contextmanager
def readable(con: duckdb.DuckDBPyConnection, rows: Rows) -> Iterator[str]:
    """The rows as something to select from."""
    if rows.arrow is None:
        yield rows.relation
        return
    con.register(rows.relation, rows.arrow)
    yield rows.relation
    # Not after an error: unregistering in an aborted transaction would hide it behind its own.
    con.unregister(rows.relation)


def collect_names(con: duckdb.DuckDBPyConnection, rows: Rows, type_name: str, names: list[str]) -> None:
    """Append the stage or edge names of a table that `names` lacks: declared ones in order, then those only used.

    Undeclared names get in as well, so that the validator can list the rows that use them.
    """
    known = set(names)
    declared = rows.table.name in ("stage", "edge")
    for column in rows.table.columns:
        if ddl.name_type(rows.table, column) != type_name:
            continue
        if declared and rows.count > MAX_NAMES:
            raise DataIntegrityError(f"at most {MAX_NAMES} rows", f"{rows.count}", where=rows.where)
        quoted = ddl.quote_name(column.name)
        select, order = ("SELECT", "") if declared else ("SELECT DISTINCT", " ORDER BY 1")
        with readable(con, rows) as relation:
            found = con.execute(
                f"{select} {quoted}::VARCHAR FROM {relation} WHERE {quoted} IS NOT NULL{order} LIMIT {MAX_NAMES + 1}"
            ).fetchall()
        for (name,) in found:
            if len(name) > MAX_NAME_LENGTH:
                raise DataIntegrityError(
                    f"names of at most {MAX_NAME_LENGTH} characters",
                    f"one of {len(name)}: {shown(name)}",
                    where=f"{rows.where}: column {column.name}",
                )
            if name not in known:
                known.add(name)
                names.append(name)
        if len(names) > MAX_NAMES:
            raise DataIntegrityError(
                f"at most {MAX_NAMES} different names", "more", where=f"{rows.where}: column {column.name}"
            )


def diagnose(con: duckdb.DuckDBPyConnection, rows: Rows, err: duckdb.Error) -> DataIntegrityError:
    """The first value of a table that does not fit its column, or else what DuckDB said about the file."""
    with contextlib.suppress(duckdb.Error), readable(con, rows) as relation:
        for column in rows.table.columns:
            name = ddl.quote_name(column.name)
            bad = "false" if column.null else f"{name} IS NULL"
            if column.is_enum:
                allowed = ENUMS[column.type]
                bad += f" OR {name} NOT IN ({', '.join(map(ddl.quote_text, allowed))})"
            elif column.type in ddl.SQL_TYPES:
                bad += f" OR ({name} IS NOT NULL AND TRY_CAST({name} AS {ddl.SQL_TYPES[column.type]}) IS NULL)"
            numbered = f"SELECT row_number() OVER () - 1 AS row, {name}::VARCHAR AS value, {bad} AS bad FROM {relation}"
            found = con.execute(f"SELECT row, value FROM ({numbered}) WHERE bad ORDER BY row LIMIT 1").fetchall()
            for row, value in found:
                expected = f"one of {', '.join(ENUMS[column.type])}" if column.is_enum else column.type
                return DataIntegrityError(
                    f"{expected}{' or NULL' if column.null else ''}",
                    "NULL" if value is None else shown(value),
                    where=f"{rows.where}: column {column.name}, row {row} (the first is 0)",
                )
    return DataIntegrityError("rows that fit the contract", first_line(err), where=rows.where)


def _unreadable(where: str, err: Exception) -> DataIntegrityError:
    return DataIntegrityError("a readable Parquet file", first_line(err), where=where)


def first_line(err: Exception) -> str:
    """What another library said, without its picture of the query."""
    return str(err).strip().partition("\n")[0] or type(err).__name__


def shown(value: str | None) -> str:
    """A value from outside for a message: quoted, escaped, and cut."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
