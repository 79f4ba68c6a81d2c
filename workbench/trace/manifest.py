"""The manifest of a sealed run: the hash, size and row count of every file, and where the numbers come from.

A run folder is immutable. ``manifest.json`` stands beside the Parquet files; its own SHA-256 identifies the run.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.errors import DataIntegrityError
from workbench.schema.tables import SCHEMA_VERSION, TABLES

NAME = "manifest.json"
FILE_KEYS = frozenset({"sha256", "rows", "bytes"})
TABLE_FILES = frozenset(f"{name}.parquet" for name in TABLES)

# A manifest of this contract takes a few kilobytes; what is larger is something else.
MAX_BYTES = 4 << 20
BLOCK_BYTES = 1 << 20

Folder = str | os.PathLike[str]


def describe(path: Path) -> dict[str, Any]:
    """``sha256``, ``rows`` and ``bytes`` of one Parquet file, as its manifest states them."""
    return {"sha256": _sha256(path), "rows": pq.read_metadata(path).num_rows, "bytes": path.stat().st_size}


def write(folder: Folder, about: Mapping[str, Any]) -> None:
    """Write the manifest of all Parquet files in `folder`.

    Parameters
    ----------
    folder : path
        Complete folder that has no manifest yet.
    about : mapping
        JSON values stored beside ``schema_version`` and ``files``: hardware, versions, commit, models, clocks,
        recorder.
    """
    files = {path.name: describe(path) for path in sorted(Path(folder).glob("*.parquet"))}
    content = {**about, "schema_version": SCHEMA_VERSION, "files": files}
    with (Path(folder) / NAME).open("x", encoding="utf-8") as file:
        json.dump(content, file, indent=1, sort_keys=True, ensure_ascii=False)
        file.write("\n")


def load(folder: Folder) -> dict[str, Any]:
    """The manifest of a run folder, with the shape that `verify` relies on; the files are not read.

    Raises
    ------
    DataIntegrityError
        There is no manifest, it is not JSON of the expected shape, or it is of another schema version.
    """
    return _parse(_read(Path(folder)), Path(folder) / NAME)


def verify(folder: Folder) -> str:
    """Check every file of a run folder against its manifest.

    Returns
    -------
    str
        SHA-256 of the manifest itself, 64 hexadecimal digits: it changes whenever anything in the folder does.

    Raises
    ------
    DataIntegrityError
        As for :func:`load`; or a file is missing, is not in the manifest, or differs in bytes, hash or rows. The first
        difference is reported.
    """
    folder = Path(folder)
    text = _read(folder)
    files: dict[str, dict[str, Any]] = _parse(text, folder / NAME)["files"]
    present = {entry.name for entry in os.scandir(folder)} - {NAME}
    if missing := sorted(set(files) - present):
        raise DataIntegrityError(
            f"{len(files)} files", f"no {', '.join(missing)}", where=str(folder), fix=_restore(folder)
        )
    if extra := sorted(present - set(files)):
        raise DataIntegrityError(
            f"only the {len(files)} files of its manifest",
            f"also {', '.join(repr(name) for name in extra[:5])}" + (", ..." if extra[5:] else ""),
            where=str(folder),
            fix="Move them elsewhere; a run folder is immutable.",
        )
    for name, expected in sorted(files.items()):
        _verify_file(folder / name, expected)
    return hashlib.sha256(text).hexdigest()


def _verify_file(path: Path, expected: Mapping[str, Any]) -> None:
    if path.is_symlink() or not path.is_file():
        raise DataIntegrityError("a regular file", "something else", where=str(path), fix=_restore(path))
    found = {"sha256": _sha256(path), "bytes": path.stat().st_size, "rows": _rows(path)}
    if found != {key: expected[key] for key in FILE_KEYS}:
        raise DataIntegrityError(_stated(expected), _stated(found), where=str(path), fix=_restore(path))


def _read(folder: Path) -> bytes:
    path = folder / NAME
    fix = "Name the folder of a sealed run, or restore it as it was published."
    if not path.is_file():
        raise DataIntegrityError(f"a run folder with a {NAME}", "none", where=str(folder), fix=fix)
    if (size := path.stat().st_size) > MAX_BYTES:
        raise DataIntegrityError(f"a manifest of at most {MAX_BYTES} bytes", f"{size}", where=str(path), fix=fix)
    return path.read_bytes()


def _parse(text: bytes, path: Path) -> dict[str, Any]:
    def wrong(expected: str, found: str) -> DataIntegrityError:
        return DataIntegrityError(expected, found, where=str(path), fix=_restore(path))

    try:
        content: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise wrong("JSON", str(error)) from error
    version = content.get("schema_version") if isinstance(content, dict) else None
    if version != SCHEMA_VERSION:
        raise wrong(f"schema_version {SCHEMA_VERSION}", repr(version)[:80])
    files = content.get("files")
    if not isinstance(files, dict) or not files:
        raise wrong("files: an object with one entry per file", repr(files)[:80])
    for name, entry in files.items():
        if name not in TABLE_FILES:
            raise wrong("files named after the tables of the contract", repr(name)[:80])
        if not isinstance(entry, dict) or not entry.keys() >= FILE_KEYS:
            raise wrong(f"files[{name!r}] with {', '.join(sorted(FILE_KEYS))}", repr(entry)[:80])
    return content


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _rows(path: Path) -> int | None:
    """Row count from the footer; None if the file cannot be read as Parquet."""
    try:
        rows: int = pq.read_metadata(path).num_rows
    except (pa.ArrowException, OSError, ValueError):  # a damaged footer can even fail to decode as text
        return None
    return rows


def _stated(entry: Mapping[str, Any]) -> str:
    rows, size = entry["rows"], entry["bytes"]
    counted = f"{rows:,} rows" if isinstance(rows, int) else "not readable as Parquet"
    return (
        f"sha256 {str(entry['sha256'])[:64]} ({counted}, {size:,} bytes)"
        if isinstance(size, int)
        else repr(entry)[:160]
    )


def _restore(path: Path) -> str:
    return f"Restore it with `git checkout -- {path}`; a recording is never edited, a new one gets a folder of its own."
