"""The store: one DuckDB file built from run folders, opened read-only, with every metric as a view.

A store is derived data. It is built from immutable folders in one transaction into a temporary file that replaces the old
one only when complete, and it is rebuilt only when a folder or the contract changed. Files from outside are hostile until
read: each is checked against its manifest and the contract, names from it reach SQL only as quoted values, and the first
defect is one error that names file, column, row and value.
"""

from __future__ import annotations

import contextlib
import hashlib
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

# done rows, all rows, what was just loaded
Progress = Callable[[int, int, str], None]

# Tables without which a folder is not a run; the others are absent when they have no rows.
REQUIRED = ("run", "proc", "stage", "edge", "request", "outcome", "span", "chunk")

# A few bytes of Parquet can promise billions of equal rows; a real table of this size belongs in several runs.
MAX_ROWS = 200_000_000
MAX_NAMES = 10_000
MAX_NAME_LENGTH = 255

# A missing extension must fail at once: the default tries for seconds to download it.
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}

# Catalog name under which `open_store` attaches a store.
CATALOG = "store"

ACCEPTED: dict[str, Callable[[pa.DataType], bool]] = {
    "int64": pa.types.is_integer,
    "int32": pa.types.is_integer,
    "int16": pa.types.is_integer,
    "float64": lambda found: pa.types.is_floating(found) or pa.types.is_integer(found),
    "bool": pa.types.is_boolean,
}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of one table of one run before they are loaded: how SQL reads them and what an error calls them."""

    table: Table
    relation: str
    count: int
    where: str
    arrow: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class _Run:
    """One run to load: its label, the hash of what it was read from, and its tables."""

    label: str
    digest: str | None
    rows: dict[str, _Rows] = field(default_factory=dict)


def build(
    folders: Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str],
    *,
    progress: Progress | None = None,
    threads: int | None = None,
    max_rows: int = MAX_ROWS,
) -> bool:
    """Build the store at `path` from run folders, unless it already holds exactly these runs under this contract.

    Parameters
    ----------
    folders : sequence of path
        Folders of sealed runs, each with ``manifest.json``; their order is the order in which runs sort.
    path : path
        The ``.duckdb`` file. An older store is replaced once the new one is complete; readers that hold the old one open
        keep reading it. Any other file is left alone.
    progress : callable, optional
        Called with (rows loaded, rows in all, "run/table") after each table.
    threads : int, optional
        Threads of DuckDB; default: all cores.
    max_rows : int
        Refuse a table with more rows than this before reading it.

    Returns
    -------
    bool
        True if the store was built, False if it was up to date.

    Raises
    ------
    DataIntegrityError
        A folder, file, column or value does not match its manifest or the contract. Nothing is left behind.
    UsageError
        No folders, two runs of one name, or `path` is something else than a store.
    """
    path = Path(path)
    runs = _read_folders(folders, max_rows)
    key = _key(runs)
    if path.exists() and _info(path)[0] == key:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(path) as part, duckdb.connect(str(part), config=_config(threads)) as con:
        _load(con, runs, key, progress)
        con.execute("CHECKPOINT")
    return True


def open_store(path: str | os.PathLike[str], *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Open a store read-only, with its tables and views in scope.

    The file is attached to a fresh in-memory database as catalog ``store``: unlike a direct connection this sees a store
    that was rebuilt while the process still holds the old one. ``connection.cursor()`` starts in the empty in-memory
    catalog; open a second store connection, or say ``USE store`` there.

    Raises
    ------
    UsageError
        There is no store at `path`.
    DataIntegrityError
        The file was built under another version of the contract.
    """
    path = Path(path)
    if not path.exists():
        raise UsageError("a store", "no such file", where=str(path), fix="Build it from run folders first.")
    stored = _info(path)[1]
    if stored != _contract():
        raise DataIntegrityError(
            f"a store built under contract {_contract()[:12]}",
            f"one built under {stored[:12]}",
            where=str(path),
            fix="Build it again from its run folders.",
        )
    con = duckdb.connect(":memory:", config=_config(threads))
    con.execute(f"ATTACH {ddl.quote_text(str(path))} AS {CATALOG} (READ_ONLY)")
    con.execute(f"USE {CATALOG}")
    return con


def load_folders(
    folders: Sequence[str | os.PathLike[str]],
    *,
    progress: Progress | None = None,
    threads: int | None = None,
    max_rows: int = MAX_ROWS,
) -> duckdb.DuckDBPyConnection:
    """Load run folders into memory: the same tables and views without a file. Parameters and errors as in :func:`build`."""
    return _in_memory(_read_folders(folders, max_rows), progress, threads)


def load_folder(folder: str | os.PathLike[str], *, threads: int | None = None) -> duckdb.DuckDBPyConnection:
    """Load one run folder into memory."""
    return load_folders([folder], threads=threads)


def load_tables(
    runs: Sequence[Mapping[str, pa.Table]], *, path: str | os.PathLike[str] | None = None, threads: int | None = None
) -> duckdb.DuckDBPyConnection:
    """Load Arrow tables that were never written to disk, such as a replay's, through the same checks as files.

    Parameters
    ----------
    runs : sequence of mapping
        Per run: table name -> rows with the contract's columns, without ``run``.
    path : path, optional
        Keep the store in this new file instead of in memory; the connection is then read-write.

    Raises
    ------
    DataIntegrityError
        A column or value does not match the contract.
    UsageError
        `path` exists.
    """
    checked = _distinct([_read_tables(tables) for tables in runs])
    if path is None:
        return _in_memory(checked, None, threads)
    if Path(path).exists():
        raise UsageError("a path that does not exist yet", "a file", where=str(path))
    with _replacing(Path(path)) as part, duckdb.connect(str(part), config=_config(threads)) as con:
        _load(con, checked, _key(checked), None)
        con.execute("CHECKPOINT")
    return duckdb.connect(str(path), config=_config(threads))


def _in_memory(runs: list[_Run], progress: Progress | None, threads: int | None) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(":memory:", config=_config(threads))
    try:
        _load(con, runs, _key(runs), progress)
    except BaseException:
        con.close()
        raise
    return con


def _config(threads: int | None) -> dict[str, str | bool | int | float | list[str]]:
    return CONFIG if threads is None else {**CONFIG, "threads": threads}


def _contract() -> str:
    """Hash of all that decides what a store looks like."""
    statements = [ddl.create_table(table) for table in TABLES.values()] + ddl.create_views()
    text = "\n".join([str(SCHEMA_VERSION), repr(ENUMS), *statements])
    return hashlib.sha256(text.encode()).hexdigest()


def _key(runs: Sequence[_Run]) -> str:
    text = "\n".join([_contract(), *(f"{run.digest} {run.label}" for run in runs)])
    return hashlib.sha256(text.encode()).hexdigest()


def _info(path: Path) -> tuple[str, str]:
    """Key and contract hash of the store at `path`."""
    try:
        with duckdb.connect(":memory:", config=CONFIG) as con:
            con.execute(f"ATTACH {ddl.quote_text(str(path))} AS {CATALOG} (READ_ONLY)")
            row = con.execute(f"SELECT key, contract FROM {CATALOG}.store_info").fetchone()
    except duckdb.Error as err:
        raise UsageError(
            "a store or a path that does not exist yet",
            f"another file ({_first_line(err)})",
            where=str(path),
            fix="Name another path, or delete the file if it is a damaged store.",
        ) from err
    assert row is not None
    return str(row[0]), str(row[1])


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary sibling of `path` that takes its place if the block succeeds and vanishes if it does not."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    leftovers = (part, part.with_name(part.name + ".wal"))
    for leftover in leftovers:
        leftover.unlink(missing_ok=True)
    try:
        yield part
        os.replace(part, path)
    finally:
        for leftover in leftovers:
            leftover.unlink(missing_ok=True)


def _read_folders(folders: Sequence[str | os.PathLike[str]], max_rows: int) -> list[_Run]:
    if not folders:
        raise UsageError("at least one run folder", "none")
    return _distinct([_read_folder(Path(folder), max_rows) for folder in folders])


def _distinct(runs: list[_Run]) -> list[_Run]:
    labels = [run.label for run in runs]
    for label in labels:
        if labels.count(label) > 1:
            raise UsageError(
                "runs with different labels", f"{labels.count(label)} runs labelled {label!r}", fix="Load one of them."
            )
    return runs


def _read_folder(folder: Path, max_rows: int) -> _Run:
    digest = manifest.verify(folder)
    rows = {}
    for table in TABLES.values():
        path = folder / f"{table.name}.parquet"
        if path.exists():
            rows[table.name] = _read_file(table, path, max_rows)
    _require(rows, str(folder))
    return _Run(_label(rows["run"], pq.read_table(folder / "run.parquet")), digest, rows)


def _read_file(table: Table, path: Path, max_rows: int) -> _Rows:
    try:
        footer = pq.read_metadata(path)
        schema = footer.schema.to_arrow_schema()
    except (pa.ArrowException, OSError) as err:
        raise DataIntegrityError("a readable Parquet file", _first_line(err), where=str(path)) from err
    if footer.num_rows > max_rows:
        raise DataIntegrityError(
            f"at most {max_rows} rows", f"{footer.num_rows}", where=str(path), fix="Raise max_rows if this is intended."
        )
    _check_schema(table, schema, str(path))
    relation = f"read_parquet({ddl.quote_text(str(path))}, hive_partitioning=false)"
    return _Rows(table, relation, footer.num_rows, str(path))


def _read_tables(tables: Mapping[str, pa.Table]) -> _Run:
    if unknown := sorted(set(tables) - set(TABLES)):
        raise DataIntegrityError(f"tables named {', '.join(TABLES)}", ", ".join(map(_shown, unknown)))
    rows = {}
    for name in TABLES:
        if name in tables:
            where = f"table {name}"
            _check_schema(TABLES[name], tables[name].schema, where)
            rows[name] = _Rows(TABLES[name], f"incoming_{name}", tables[name].num_rows, where, tables[name])
    _require(rows, "tables in memory")
    return _Run(_label(rows["run"], tables["run"]), None, rows)


def _require(rows: Mapping[str, _Rows], where: str) -> None:
    if missing := [name for name in REQUIRED if name not in rows]:
        raise DataIntegrityError(f"tables {', '.join(REQUIRED)}", f"no {', '.join(missing)}", where=where)
    if rows["run"].count != 1:
        raise DataIntegrityError("one row", f"{rows['run'].count} rows", where=rows["run"].where)


def _label(rows: _Rows, table: pa.Table) -> str:
    """The run's label, from a row that must be of this contract's version."""
    version = table.column("schema_version")[0].as_py()
    if version != SCHEMA_VERSION:
        raise DataIntegrityError(
            f"schema_version {SCHEMA_VERSION}", str(version), where=rows.where, fix="Use the release that wrote it."
        )
    label = table.column("label")[0].as_py()
    if not label or len(label) > MAX_NAME_LENGTH:
        raise DataIntegrityError(
            f"a label of 1 to {MAX_NAME_LENGTH} characters", _shown(label), where=f"{rows.where}: column label"
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
            f"columns {', '.join(table.names)}", f"also {', '.join(map(_shown, unknown))}", where=where
        )


def _fits(column: Column, found: pa.DataType) -> bool:
    """Whether values of an Arrow type can be this column's; a column of nothing but NULL fits all."""
    if pa.types.is_dictionary(found):
        found = found.value_type
    if pa.types.is_null(found):
        return True
    return ACCEPTED.get(column.type, lambda t: pa.types.is_string(t) or pa.types.is_large_string(t))(found)


def _load(con: duckdb.DuckDBPyConnection, runs: Sequence[_Run], key: str, progress: Progress | None) -> None:
    """Create and fill everything in one transaction."""
    total = sum(rows.count for run in runs for rows in run.rows.values())
    done = 0
    current: tuple[_Run, _Rows] | None = None
    con.execute("BEGIN")
    try:
        names = {"run_name": [run.label for run in runs]}
        for name in ("stage_name", "edge_name"):
            names[name] = []
            for run in runs:
                for rows in run.rows.values():
                    current = run, rows
                    _collect_names(con, rows, name, names[name])
        current = None
        for statement in ddl.create_types(names):
            con.execute(statement)
        for table in TABLES.values():
            con.execute(ddl.create_table(table))
            for comment in ddl.comment_table(table):
                con.execute(comment)
        for run in runs:
            for rows in run.rows.values():
                current = run, rows
                _insert(con, run, rows)
                done += rows.count
                if progress:
                    progress(done, total, f"{run.label}/{rows.table.name}")
        current = None
        con.execute("CREATE TABLE store_info AS SELECT ? AS key, ? AS contract", [key, _contract()])
        con.execute("CREATE TABLE store_run (run run_name NOT NULL, manifest_sha256 VARCHAR)")
        con.executemany("INSERT INTO store_run VALUES (?, ?)", [[run.label, run.digest] for run in runs])
        for statement in ddl.create_views():
            con.execute(statement)
        con.execute("COMMIT")
    except duckdb.Error as err:
        with contextlib.suppress(duckdb.Error):
            con.execute("ROLLBACK")
        if current is None:
            raise
        raise _diagnose(con, current[1], err) from err


@contextlib.contextmanager
def _readable(con: duckdb.DuckDBPyConnection, rows: _Rows) -> Iterator[str]:
    """The rows as something to select from."""
    if rows.arrow is None:
        yield rows.relation
        return
    con.register(rows.relation, rows.arrow)
    try:
        yield rows.relation
    finally:
        con.unregister(rows.relation)


def _collect_names(con: duckdb.DuckDBPyConnection, rows: _Rows, type_name: str, names: list[str]) -> None:
    """Append the stage or edge names of a table that `names` lacks: declared ones in order, then those only used.

    Undeclared names get in as well, so that the validator can list the rows that use them.
    """
    known = set(names)
    declared = rows.table.name in ("stage", "edge")
    for column in rows.table.columns:
        if ddl.name_type(rows.table, column) != type_name:
            continue
        quoted = ddl.quote_name(column.name)
        select, order = ("SELECT", "") if declared else ("SELECT DISTINCT", " ORDER BY 1")
        with _readable(con, rows) as relation:
            found = con.execute(
                f"{select} {quoted}::VARCHAR FROM {relation} WHERE {quoted} IS NOT NULL{order} LIMIT {MAX_NAMES + 1}"
            ).fetchall()
        for (name,) in found:
            if len(name) > MAX_NAME_LENGTH:
                raise DataIntegrityError(
                    f"names of at most {MAX_NAME_LENGTH} characters",
                    f"one of {len(name)}: {_shown(name)}",
                    where=f"{rows.where}: column {column.name}",
                )
            if name not in known:
                known.add(name)
                names.append(name)
        if len(names) > MAX_NAMES:
            raise DataIntegrityError(
                f"at most {MAX_NAMES} different names", "more", where=f"{rows.where}: column {column.name}"
            )


def _insert(con: duckdb.DuckDBPyConnection, run: _Run, rows: _Rows) -> None:
    values = [f"{ddl.quote_text(run.label)}::run_name"]
    for column in rows.table.columns:
        name, type_ = ddl.quote_name(column.name), ddl.sql_type(rows.table, column)
        values.append(f"CAST({name} AS {type_})")
    with _readable(con, rows) as relation:
        con.execute(f"INSERT INTO {ddl.quote_name(rows.table.name)} SELECT {', '.join(values)} FROM {relation}")


def _diagnose(con: duckdb.DuckDBPyConnection, rows: _Rows, err: duckdb.Error) -> DataIntegrityError:
    """The first value of a table that does not fit its column, or else what DuckDB said about the file."""
    with contextlib.suppress(duckdb.Error), _readable(con, rows) as relation:
        for column in rows.table.columns:
            name = ddl.quote_name(column.name)
            bad = "false" if column.null else f"{name} IS NULL"
            if column.is_enum:
                allowed = ENUMS[column.type]
                bad += f" OR {name} NOT IN ({', '.join(map(ddl.quote_text, allowed))})"
            elif column.type in ddl.SQL_TYPES:
                bad += f" OR ({name} IS NOT NULL AND TRY_CAST({name} AS {ddl.SQL_TYPES[column.type]}) IS NULL)"
            row = con.execute(
                f"SELECT row, value FROM (SELECT row_number() OVER () - 1 AS row, {name}::VARCHAR AS value, {bad} AS bad"
                f" FROM {relation}) WHERE bad ORDER BY row LIMIT 1"
            ).fetchone()
            if row is not None:
                expected = f"one of {', '.join(ENUMS[column.type])}" if column.is_enum else column.type
                return DataIntegrityError(
                    f"{expected}{' or NULL' if column.null else ''}",
                    "NULL" if row[1] is None else _shown(row[1]),
                    where=f"{rows.where}: column {column.name}, row {row[0]} (the first is 0)",
                )
    return DataIntegrityError("rows that fit the contract", _first_line(err), where=rows.where)


def _first_line(err: Exception) -> str:
    return str(err).strip().partition("\n")[0] or type(err).__name__


def _shown(value: str | None) -> str:
    """A value from outside for a message: quoted, escaped, and cut."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
