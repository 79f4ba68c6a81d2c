"""Tables of a run as plain rows, to build, damage and write in tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.schema.tables import SCHEMA_VERSION, TABLES
from workbench.trace import manifest
from workbench.trace.columns import arrow_schema

Row = dict[str, Any]
Tables = dict[str, pa.Table]


def from_rows(rows: Mapping[str, list[Row]]) -> Tables:
    """Arrow tables of a run; a column that a row leaves out is NULL.

    Parameters
    ----------
    rows : mapping
        Table name -> rows. Tables that every run has are added empty when missing.
    """
    names = [
        name
        for name in TABLES
        if rows.get(name) or name in ("proc", "stage", "edge", "request", "outcome", "span", "chunk")
    ]
    return {name: pa.Table.from_pylist(rows.get(name, []), schema=arrow_schema(TABLES[name])) for name in names}


def to_rows(tables: Mapping[str, pa.Table], name: str) -> list[Row]:
    """Rows of one table, [] when the run does not have it."""
    return tables[name].to_pylist() if name in tables else []


def changed(tables: Mapping[str, pa.Table], name: str, change: Callable[[list[Row]], list[Row]]) -> Tables:
    """The tables with the rows of one of them replaced by ``change(rows)``."""
    rows = change(to_rows(tables, name))
    return {**tables, name: pa.Table.from_pylist(rows, schema=arrow_schema(TABLES[name]))}


def write_folder(tables: Mapping[str, pa.Table], folder: str | os.PathLike[str]) -> Path:
    """Write a run at rest: one Parquet file per table beside ``manifest.json``, in a folder that must be new."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet", compression="zstd", version="2.6")
    manifest.write(folder, {"note": "made by workbench.testing"})
    return folder


def run_row(label: str, first_ns: int, last_ns: int, **values: Any) -> Row:
    """The row of table ``run`` for a run that only a test knows; `values` override."""
    return {
        "label": label,
        "provenance": "measured",
        "source": "workbench.testing",
        "control_plan": "static",
        "probes": "on",
        "schema_version": SCHEMA_VERSION,
        "clock": "monotonic",
        "first_ns": first_ns,
        "last_ns": last_ns,
        "models": "{}",
        "hardware": "{}",
        "versions": "{}",
        "config": "{}",
        "seeds": "{}",
        "events": 0,
        "events_lost": 0,
        **values,
    }
