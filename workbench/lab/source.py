"""What a path names: one run, in a sealed folder or in a store, with a connection that holds it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import DataIntegrityError, UsageError, WorkbenchError
from workbench.trace import manifest, store

MAX_NAMED = 40
SUFFIX = ".duckdb"


@dataclass(frozen=True, slots=True)
class Source:
    """One run and where it came from.

    Attributes
    ----------
    connection : duckdb.DuckDBPyConnection
        Holds the run, and its isolated run where that was found.
    catalog : str
        Catalog that a fresh cursor has to use; empty for the default one.
    label : str
        Label of the run.
    path : Path
        Run folder or store file.
    notes : tuple of str
        What a reader should know: an isolated run that is loaded beside it, or could not be.
    """

    connection: duckdb.DuckDBPyConnection
    catalog: str
    label: str
    path: Path
    notes: tuple[str, ...] = ()

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own to the same data, so that no two readers share a result."""
        cursor = self.connection.cursor()
        if self.catalog:
            cursor.execute(f"USE {self.catalog}")
        return cursor


def run_folders(folder: Path) -> list[Path]:
    """Sealed runs directly below a folder, by name; their content is not read."""
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and (entry / manifest.NAME).is_file())


def find(path: str | os.PathLike[str], run: str | None = None) -> Source:
    """Open the run that `path` names.

    Parameters
    ----------
    path : path
        A sealed run folder, a folder of such folders, or a store.
    run : str, optional
        Label of the run; needed where there are several.

    Raises
    ------
    UsageError
        Nothing there, or not one run: the message lists the labels.
    DataIntegrityError
        A file does not match its manifest or the contract.
    """
    path = Path(path)
    if not path.exists():
        raise UsageError("a run folder, a folder of runs or a store", "no such path", where=str(path), fix=_near(path))
    if path.is_file():
        if path.suffix != SUFFIX:
            raise UsageError(
                "a run folder, a folder of runs or a store",
                f"a file without the suffix {SUFFIX}",
                where=str(path),
                fix="Name the folder that holds it." if path.suffix in (".parquet", ".json") else "",
            )
        return _in_store(path, run)
    if (path / manifest.NAME).is_file():
        return _in_folder(path, run)
    runs = run_folders(path)
    if not runs:
        raise UsageError(
            f"a run folder (with {manifest.NAME}), a folder of runs or a store",
            "a folder without any",
            where=str(path),
            fix="`make record` records runs under data/raw.",
        )
    return _in_folder(path / choose([folder.name for folder in runs], run, str(path)), None)


def choose(labels: Sequence[str], run: str | None, where: str) -> str:
    """The one run of several that is meant.

    Raises
    ------
    UsageError
        `run` is not among them, or is None and there are several.
    """
    listed = ", ".join(labels[:MAX_NAMED]) + (f" and {len(labels) - MAX_NAMED} more" if len(labels) > MAX_NAMED else "")
    if run is None:
        if len(labels) == 1:
            return labels[0]
        raise UsageError(
            "one run", f"{len(labels)}: {listed}", where=where, fix=f'Name one: run="{labels[0]}" (--run {labels[0]}).'
        )
    if run not in labels:
        near = difflib.get_close_matches(run, labels, n=1)
        fix = f"Did you mean {near[0]!r}?" if near else ""
        raise UsageError(f"a run out of {listed}", repr(run), where=where, fix=fix)
    return run


def _in_store(path: Path, run: str | None) -> Source:
    connection = store.open_store(path)
    labels = [label for (label,) in connection.execute("SELECT label FROM run ORDER BY run").fetchall()]
    try:
        return Source(connection, store.CATALOG, choose(labels, run, str(path)), path)
    except UsageError:
        connection.close()
        raise


def _in_folder(folder: Path, run: str | None) -> Source:
    isolated = _isolated_run(folder)
    beside = folder.resolve().parent / isolated if isolated else None
    found = beside is not None and Path(isolated).name == isolated and (beside / manifest.NAME).is_file()
    notes: tuple[str, ...] = ()
    if isolated and not found:
        notes = (f"Its isolated run {isolated!r} is not beside it: slowdown is not known.",)
    connection = None
    if beside is not None and found:
        try:
            connection = store.load_folders([folder, beside])
            notes = (f"Its isolated run {isolated!r} is loaded with it, for slowdown.",)
        except (DataIntegrityError, UsageError) as error:
            notes = (f"Its isolated run could not be loaded, so slowdown is not known. {error}",)
    connection = connection or store.load_folder(folder)
    label = connection.execute("SELECT label FROM run ORDER BY run LIMIT 1").fetchall()[0][0]
    if run is not None:
        choose([label], run, str(folder))
    return Source(connection, "", label, folder, notes)


def _isolated_run(folder: Path) -> str:
    """Label of the isolated run that a run names, empty if none; a damaged folder is reported when it is loaded."""
    try:
        named = pq.read_table(folder / "run.parquet", columns=["isolated_run"])["isolated_run"].to_pylist()
    except (pa.ArrowException, OSError, KeyError):
        return ""
    return str(named[0]) if named and named[0] else ""


def _near(path: Path) -> str:
    """A hint at what may have been meant."""
    try:
        siblings = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return "`make record` records runs under data/raw."
    near = difflib.get_close_matches(path.name, siblings, n=1)
    return f"Did you mean {path.parent / near[0]}?" if near else "`make record` records runs under data/raw."


def as_query_error(error: duckdb.Error, known: Sequence[str]) -> WorkbenchError:
    """What DuckDB said about a query, as an error of ours that lists what could have been queried."""
    said = str(error).strip().partition("\n")[0] or type(error).__name__
    return UsageError("a query that DuckDB can answer", said, where="sql", fix=f"There are {', '.join(known)}.")
