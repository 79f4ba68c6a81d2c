"""Which recorded runs a study reads, and the store that holds them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import duckdb

from workbench.errors import UsageError
from workbench.trace import manifest, store

ROOT = Path(__file__).resolve().parents[2]
STORES = ROOT / "build" / "stores"
SMOKE_RUNS = ("-light-", "-pair1-", "-pair2-", "-isolated")


def campaign_runs(raw: str | Path, prefix: str, *, tier: str) -> list[Path]:
    """Sealed runs of one campaign, by label.

    Parameters
    ----------
    raw : str or Path
        Folder of runs; a relative path counts from the project's root, wherever the notebook runs.
    prefix : str
        First part of the labels.
    tier : {"full", "smoke"}
        All runs, or a small part of them that still exercises every figure.

    Raises
    ------
    UsageError
        No run of that prefix; names those there are.
    """
    if tier not in ("full", "smoke"):
        raise UsageError("tier full or smoke", repr(tier))
    folder = ROOT / raw
    found = sorted(path.parent for path in folder.glob(f"*/{manifest.NAME}") if not path.parent.name.startswith("."))
    mine = [path for path in found if path.name.startswith(f"{prefix}-")]
    if tier == "smoke":
        mine = [path for path in mine if any(part in path.name for part in SMOKE_RUNS)]
    if not mine:
        raise UsageError(
            f"runs named {prefix}-...",
            f"{[path.name for path in found] or 'no run'}",
            where=str(raw),
            fix="Record some with `make record`, or name another prefix.",
        )
    return mine


def open_runs(folders: Sequence[Path], name: str) -> duckdb.DuckDBPyConnection:
    """Open the store of these runs read-only, building it first when a run or the contract changed.

    The file's name carries a hash of the folders, so that two sets of runs never share a store.
    """
    key = hashlib.sha256("\n".join(str(folder) for folder in folders).encode()).hexdigest()[:8]
    path = STORES / f"{name}-{key}.duckdb"
    store.build(folders, path)
    return store.open_store(path)
