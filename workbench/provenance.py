"""What a result was made from: hashes of the raw data and of this package's sources, parameters, package versions.

Only inputs are recorded, never a time, a host name or a path, so that the same inputs give the same bytes.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from workbench.errors import DataIntegrityError, UsageError

PACKAGES = ("altair", "duckdb", "numpy", "pikepdf", "polars", "pyarrow", "scipy", "statsmodels", "vl-convert-python")
SOURCE_SUFFIXES = frozenset({".py", ".sql", ".toml"})

Scalar = str | int | float | bool | None


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def tree_sha256(files: Iterable[Path], root: Path) -> str:
    """SHA-256 over the relative POSIX names and the contents of `files`, in name order.

    Parameters
    ----------
    files : iterable of Path
        Regular files below `root`; the order given does not matter.
    root : Path
        Folder the names are taken relative to, so that the hash is the same in every clone.
    """
    total = hashlib.sha256()
    for name, file in sorted((file.relative_to(root).as_posix(), file) for file in files):
        total.update(f"{name}\0{file_sha256(file)}\n".encode())
    return total.hexdigest()


def source_sha256() -> str:
    """SHA-256 over every source file of this package: Python, SQL and TOML."""
    package = Path(__file__).parent
    return tree_sha256((file for file in package.rglob("*") if file.suffix in SOURCE_SUFFIXES), package)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change a figure; absent packages are left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def inputs(runs: Iterable[Path], parameters: Mapping[str, Scalar]) -> dict[str, object]:
    """The provenance record of one result.

    Parameters
    ----------
    runs : iterable of Path
        Run folders, each with a ``manifest.json`` that names the SHA-256 of every Parquet file in it.
    parameters : mapping
        What was asked for: notebook parameters, seeds, thresholds. Leave paths out.

    Returns
    -------
    dict
        ``raw`` (folder name -> SHA-256 of its manifest), ``parameters``, ``code_sha256`` and ``versions``.

    Raises
    ------
    DataIntegrityError
        A folder has no manifest.
    UsageError
        Two runs share a folder name, so that their hashes could not be told apart.
    """
    raw: dict[str, str] = {}
    for run in runs:
        manifest = run / "manifest.json"
        if not manifest.is_file():
            raise DataIntegrityError(
                "a run folder with a manifest.json",
                "none",
                where=str(run),
                fix="Restore the folder as it was published.",
            )
        if run.name in raw:
            raise UsageError("runs with different folder names", f"{run.name!r} twice", fix="Rename one of them.")
        raw[run.name] = file_sha256(manifest)
    return {
        "raw": dict(sorted(raw.items())),
        "parameters": dict(sorted(parameters.items())),
        "code_sha256": source_sha256(),
        "versions": versions(),
    }
