"""The tables of a run that a model made: what describes it, and how it is kept."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from workbench.control.layout import EdgePlan, Plan
from workbench.control.ranges import shown
from workbench.errors import UsageError
from workbench.graph import CLIENT
from workbench.schema.tables import SCHEMA_VERSION, TABLES
from workbench.trace import manifest
from workbench.trace.columns import arrow_schema

Row = dict[str, Any]

# A model is one process.
PROC = 0
# Largest number of chunks that a column of chunks can state; more is no bound.
INT32 = (1 << 31) - 1
_ALWAYS = ("run", "proc", "stage", "edge", "request", "outcome", "span", "chunk")


def run_row(given: Mapping[str, Any], first_ns: int, last_ns: int, rows: Mapping[str, Sequence[Row]]) -> Row:
    """The row of table ``run``: no hardware, no versions, no recorder; `given` columns override, ``config`` is JSON."""
    row = {
        "provenance": "emulated", "control_plan": "none", "probes": "on", "schema_version": SCHEMA_VERSION,
        "clock": "model", "first_ns": first_ns, "last_ns": last_ns, "models": "{}", "hardware": "{}", "versions": "{}",
        "seeds": "{}", "events": sum(map(len, rows.values())), "events_lost": 0,
    }  # fmt: skip
    return row | dict(given) | {"config": json.dumps(given.get("config", {}), sort_keys=True)}


def stage_rows(plan: Plan, replicas: int) -> list[Row]:
    """The rows of table ``stage``: the client, then the stages of the plan."""
    roles = {each.name: each.role for each in plan.graph.stages}
    made_up = {"device": "model", "weights": "none"}
    rows: list[Row] = [{"stage": CLIENT, "role": "client", "replicas": 1, **made_up}]
    return rows + [{"stage": name, "role": roles[name], "replicas": replicas, **made_up} for name in plan.stages]


def edge_rows(plan: Plan) -> list[Row]:
    """The rows of table ``edge``, with the window that a stream begins with where it bounds chunks."""
    rows = []
    for edge in plan.graph.edges:
        window = plan.edges.get(edge.name, EdgePlan()).window_chunks
        rows.append(
            {"edge": edge.name, "source": edge.source, "target": edge.target, "modality": edge.modality}
            | {"kind": edge.kind, "transport": "model"}
            | {"window_chunks": window if edge.source != CLIENT and window <= INT32 else None}
        )
    return rows


def as_tables(rows: Mapping[str, Sequence[Row]]) -> dict[str, pa.Table]:
    """Rows as tables of the contract; those that every run has are there even if empty."""
    return {
        name: pa.Table.from_pylist(list(rows.get(name, ())), schema=arrow_schema(TABLES[name]))
        for name in TABLES
        if rows.get(name) or name in _ALWAYS
    }


def save(tables: Mapping[str, pa.Table], below: Path, name: str) -> Path:
    """Write a run at rest: one Parquet file per table beside its manifest, in a new folder `name` below another one.

    The folder gets its name when all of it is there, so that an interruption leaves nothing that looks like a run.

    Raises
    ------
    UsageError
        A name with other than letters, digits, ``.``, ``_`` and ``-``, or one that is taken: a run at rest is never
        changed.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise UsageError(
            "a name of letters, digits, '.', '_' and '-', at most 100", shown(name), where="name of the run"
        )
    folder = below / name
    if folder.exists():
        raise UsageError("a new folder", str(folder), where="run", fix="A run at rest is never changed: name another.")
    below.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{name}.partial-", dir=below))
    try:
        for table_name, table in tables.items():
            pq.write_table(table, partial / f"{table_name}.parquet", compression="zstd", version="2.6")
        manifest.write(partial, {"note": "made by a model, not measured"})
        partial.chmod(0o755)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return folder
