"""The store: one DuckDB file built from run folders, opened read-only, with every metric as a view.

A store is derived data. It is built from immutable folders in one transaction into a temporary file that replaces the
old one only when complete, and it is rebuilt only when a folder or the contract changed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from workbench.errors import DataIntegrityError, UsageError
from workbench.schema import ddl
from workbench.schema.enums import ENUMS
from workbench.schema.tables import SCHEMA_VERSION, TABLES
from workbench.trace.incoming import (
    MAX_ROWS,
    IncomingRun,
    Rows,
    collect_names,
    diagnose,
    distinct,
    first_line,
    read_folders,
    read_tables,
    readable,
)

# done rows, all rows, what was just loaded
Progress = Callable[[int, int, str], None]

# A missing extension must fail at once: the default tries for seconds to download it.
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}

# Catalog name under which `open_store` attaches a store.
CATALOG = "store"


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
        The ``.duckdb`` file. An older store is replaced once the new one is complete; readers that hold the old one
        open keep reading it. Any other file is left alone.
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
        A folder, file, column or value does not match its manifest or the contract, or two runs have one label. Nothing
        is left behind.
    UsageError
        No folders, or `path` is something else than a store.
    """
    path = _usable(path)
    runs = read_folders(folders, max_rows)
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

    The file is attached to a fresh in-memory database as catalog ``store``: unlike a direct connection this sees a
    store that was rebuilt while the process still holds the old one. ``connection.cursor()`` starts in the empty
    in-memory catalog; open a second store connection, or say ``USE store`` there.

    Raises
    ------
    UsageError
        There is no store at `path`.
    DataIntegrityError
        The file was built under another version of the contract.
    """
    path = _usable(path)
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
    """Load run folders into memory: the same tables and views without a file; otherwise as :func:`build`."""
    return _in_memory(read_folders(folders, max_rows), progress, threads)


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
    checked = distinct([read_tables(tables) for tables in runs])
    if path is None:
        return _in_memory(checked, None, threads)
    path = _usable(path)
    if path.exists():
        raise UsageError("a path that does not exist yet", "a file", where=str(path))
    with _replacing(path) as part, duckdb.connect(str(part), config=_config(threads)) as con:
        _load(con, checked, _key(checked), None)
        con.execute("CHECKPOINT")
    return duckdb.connect(str(path), config=_config(threads))


def _in_memory(runs: list[IncomingRun], progress: Progress | None, threads: int | None) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(":memory:", config=_config(threads))
    try:
        _load(con, runs, _key(runs), progress)
    except BaseException:
        con.close()
        raise
    return con


def _config(threads: int | None) -> dict[str, str | bool | int | float | list[str]]:
    return CONFIG if threads is None else {**CONFIG, "threads": threads}


def _usable(path: str | os.PathLike[str]) -> Path:
    """A store path that DuckDB takes as it is: it reads options after "?" and turns backslashes into slashes."""
    if bad := [character for character in "?\\" if character in str(path)]:
        raise UsageError("a store path without '?' and backslash", f"{' and '.join(bad)}", where=str(path))
    return Path(path)


def _contract() -> str:
    """Hash of all that decides what a store looks like."""
    statements = [ddl.create_table(table) for table in TABLES.values()] + ddl.create_views()
    text = "\n".join([str(SCHEMA_VERSION), repr(ENUMS), *statements])
    return hashlib.sha256(text.encode()).hexdigest()


def _key(runs: Sequence[IncomingRun]) -> str:
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
            f"another file ({first_line(err)})",
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


def _load(con: duckdb.DuckDBPyConnection, runs: Sequence[IncomingRun], key: str, progress: Progress | None) -> None:
    """Create and fill everything in one transaction."""
    total = sum(rows.count for run in runs for rows in run.rows.values())
    done = 0
    current: tuple[IncomingRun, Rows] | None = None
    con.execute("BEGIN")
    try:
        names = {"run_name": [run.label for run in runs]}
        for name in ("stage_name", "edge_name"):
            names[name] = []
            for run in runs:
                for rows in run.rows.values():
                    current = run, rows
                    collect_names(con, rows, name, names[name])
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
        raise diagnose(con, current[1], err) from err


def _insert(con: duckdb.DuckDBPyConnection, run: IncomingRun, rows: Rows) -> None:
    values = [f"{ddl.quote_text(run.label)}::run_name"]
    for column in rows.table.columns:
        name, type_ = ddl.quote_name(column.name), ddl.sql_type(rows.table, column)
        values.append(f"CAST({name} AS {type_})")
    with readable(con, rows) as relation:
        con.execute(f"INSERT INTO {ddl.quote_name(rows.table.name)} SELECT {', '.join(values)} FROM {relation}")
