"""Sealing: the segment files of a run's processes become one immutable folder of Parquet files with a manifest.

Everything is written into a temporary folder beside the destination, which gets its name by one rename at the very end:
a sealed folder is complete or not there. What the recording lost is a number in the manifest, in the run's row and in
``import_note``; requests whose end nobody saw get the outcome ``unfinished``, so that every denominator is whole.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from workbench.errors import DataIntegrityError, UsageError
from workbench.schema.enums import ENUMS
from workbench.schema.tables import SCHEMA_VERSION, TABLES
from workbench.trace import manifest
from workbench.trace.account import clocks_record, recorder_record
from workbench.trace.columns import arrow_schema
from workbench.trace.environment import Environment
from workbench.trace.recording import Recording, read_segments

# Files that every run has, empty or not; the others exist if they have rows.
ALWAYS = ("run", "proc", "stage", "edge", "request", "outcome", "span", "chunk")

# Order of rows at rest: by time where a table has one, then by key. Rows that tie keep the order they were recorded in.
ORDER = {
    "proc": ("proc",),
    "clock_sync": ("proc", "local_ns"),
    "request": ("request",),
    "outcome": ("request",),
    "span": ("start_ns", "span"),
    "batch": ("dispatch_ns", "batch"),
    "chunk": ("sent_ns", "span"),
    "credit": ("at_ns", "seq"),
    "decision": ("at_ns",),
    "object": ("at_ns", "object"),
    "gauge": ("at_ns",),
    "energy": ("before_ns",),
    "host": ("at_ns",),
    "event": ("at_ns",),
}

Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What the recording itself cannot know about its run; see table ``run`` for the meaning of each field.

    Parameters
    ----------
    label : str
        Name of the run and of its folder.
    source : str
        What produced it, e.g. ``testbed:t1``.
    config, seeds, models : mapping
        JSON values: everything needed to run it again; seeds by purpose; model name -> revision.
    """

    label: str
    source: str
    provenance: str = "measured"
    parent_run: str | None = None
    isolated_run: str | None = None
    control_plan: str = "static"
    config: Mapping[str, Any] = field(default_factory=dict)
    seeds: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    load_kind: str | None = None
    rate_per_s: float | None = None


def seal(
    segments: Path | Sequence[Path],
    destination: Path,
    info: RunInfo,
    *,
    stages: Rows,
    edges: Rows,
    slo: Rows = (),
    environment: Environment | None = None,
) -> Path:
    """Merge the segments of a run into an immutable folder.

    Parameters
    ----------
    segments : Path or sequence of Path
        Folder or folders that the run's processes recorded into. They are read, never changed.
    destination : Path
        Folder to make. It must not exist and its name must be ``info.label``.
    info : RunInfo
    stages, edges, slo : iterable of mapping
        Rows of those tables, one value per column; columns that may be NULL can be left out.
    environment : Environment, optional
        Hardware, versions and commit; those of this process if not given.

    Returns
    -------
    Path
        `destination`.

    Raises
    ------
    UsageError
        The destination exists or has another name than the label; no segments; a row has unknown or missing columns.
    DataIntegrityError
        The segments cannot be read, or come from hosts that do not share a clock.
    """
    destination = Path(destination)
    if destination.name != info.label:
        raise UsageError(
            f"a destination named {info.label!r}", repr(destination.name), where="seal", fix="Use the label."
        )
    _refuse_existing(destination)
    folders = [segments] if isinstance(segments, (str, os.PathLike)) else list(segments)
    recording = read_segments(*map(Path, folders))
    _check_one_clock(recording)
    notes = recording.notes()
    tables = dict(recording.tables)
    tables["outcome"], outcome_notes = one_outcome_each(tables["request"], tables["outcome"])
    notes += outcome_notes
    recorder = recorder_record(recording)
    environment = environment or Environment.here()
    tables["proc"] = _table("proc", [asdict(header.proc) for header in recording.headers])
    tables["stage"] = _table("stage", stages)
    tables["edge"] = _table("edge", edges)
    tables["slo"] = _table("slo", slo)
    tables["import_note"] = _table("import_note", notes)
    clocks = clocks_record(recording)
    tables["run"] = _table("run", [_run_row(info, tables, recorder, environment, clocks["reference"])])
    about = {
        "hardware": environment.hardware,
        "versions": environment.versions,
        "commit": environment.commit,
        "models": dict(info.models),
        "clocks": clocks,
        "recorder": recorder,
    }
    _publish(destination, tables, about)
    return destination


def one_outcome_each(requests: pa.Table, outcomes: pa.Table) -> tuple[pa.Table, list[dict[str, Any]]]:
    """Exactly one outcome per request, with notes on what had to be done for it.

    A request without one gets ``unfinished``; of several the one that ended first stays; one without a request goes.
    """
    known = set(requests["request"].to_pylist())
    kept: dict[int, tuple[int, int]] = {}
    twice, stray = [], []
    ends = outcomes["end_ns"].to_pylist()
    for row, request in enumerate(outcomes["request"].to_pylist()):
        rank = (ends[row] if ends[row] is not None else 2**63, row)
        if request not in known:
            stray.append(request)
        elif request in kept:
            twice.append(request)
            kept[request] = min(kept[request], rank)
        else:
            kept[request] = rank
    missing = sorted(known - set(kept))
    unfinished = _table("outcome", [{"request": request, "status": "unfinished"} for request in missing])
    rows = pa.array(sorted(row for _, row in kept.values()), pa.int64())
    whole = pa.concat_tables([outcomes.take(rows), unfinished])
    notes = [
        {"level": level, "code": code, "count": len(found), "sample": f"request {found[0]}"}
        for level, code, found in (
            ("warning", "outcome-missing", missing),
            ("error", "outcome-duplicate", twice),
            ("error", "outcome-without-request", stray),
        )
        if found
    ]
    return whole, notes


def _table(name: str, rows: Rows) -> pa.Table:
    """Rows as a table of the contract; UsageError if one has an unknown column, lacks one or breaks its type."""
    rows = [dict(row) for row in rows]
    for row in rows:
        if unknown := sorted(row.keys() - set(TABLES[name].names)):
            raise UsageError(f"columns of table {name}", f"also {', '.join(unknown)}", where="seal")
        for column in TABLES[name].columns:
            value = row.get(column.name)
            if value is None and not column.null:
                raise UsageError(f"a value of {name}.{column.name}", "none", where="seal")
            if column.is_enum and value is not None and value not in ENUMS[column.type]:
                raise UsageError(f"{name}.{column.name} in {ENUMS[column.type]}", repr(value), where="seal")
    try:
        return pa.Table.from_pylist(rows, schema=arrow_schema(TABLES[name]))
    except (pa.ArrowException, OverflowError) as error:
        raise UsageError(f"values that fit table {name}", str(error), where="seal") from error


def _refuse_existing(destination: Path) -> None:
    if destination.exists() or destination.is_symlink():
        raise UsageError(
            "a destination that does not exist",
            "one that does",
            where=str(destination),
            fix="A sealed run is immutable: choose another label, or remove the folder yourself.",
        )


def _check_one_clock(recording: Recording) -> None:
    boots = {header.proc.boot_id for header in recording.headers if header.proc.boot_id is not None}
    if len(boots) > 1:
        raise DataIntegrityError(
            "processes that share one monotonic clock (equal boot ids)",
            f"{len(boots)} boot ids: {', '.join(sorted(boots))}",
            where=", ".join(segment.path.name for segment in recording.segments),
            fix="Record all processes of a run on one host.",
        )


def _run_row(
    info: RunInfo,
    tables: Mapping[str, pa.Table],
    recorder: Mapping[str, Any],
    environment: Environment,
    clock: str | None,
) -> dict[str, Any]:
    readings = tables["clock_sync"].sort_by("local_ns").slice(0, 1).to_pylist()
    first_ns = pc.min(tables["request"]["scheduled_ns"]).as_py()
    if first_ns is None:
        first_ns = readings[0]["local_ns"] if readings else 0
    last_ns = pc.max(tables["outcome"]["end_ns"]).as_py()
    if last_ns is None:
        last_ns = pc.max(tables["span"]["end_ns"]).as_py()
    return {
        "label": info.label,
        "provenance": info.provenance,
        "source": info.source,
        "parent_run": info.parent_run,
        "isolated_run": info.isolated_run,
        "control_plan": info.control_plan,
        "probes": recorder["probes"],
        "schema_version": SCHEMA_VERSION,
        "clock": clock or "unknown",
        "started_wall_ns": readings[0]["wall_ns"] if readings else None,
        "first_ns": first_ns,
        "last_ns": first_ns if last_ns is None else max(first_ns, last_ns),
        "commit": environment.commit,
        "models": _json(info.models),
        "hardware": _json(environment.hardware),
        "versions": _json(environment.versions),
        "config": _json(info.config),
        "seeds": _json(info.seeds),
        "load_kind": info.load_kind,
        "rate_per_s": info.rate_per_s,
        "events": recorder["events"],
        "events_lost": recorder["lost"],
        "probe_ns_per_event": recorder["ns_per_event"],
    }


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _publish(destination: Path, tables: Mapping[str, pa.Table], about: Mapping[str, Any]) -> None:
    """Write all files into a temporary folder, force them to disk, and give the folder its name."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{destination.name}.partial-", dir=destination.parent))
    try:
        for name, table in tables.items():
            if table.num_rows or name in ALWAYS:
                _write(partial / f"{name}.parquet", _sorted(name, table))
        manifest.write(partial, about)
        for path in (*partial.iterdir(), partial):
            _sync(path)
        partial.chmod(0o755)
        _refuse_existing(destination)
        partial.rename(destination)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _sync(destination.parent)


def _sorted(name: str, table: pa.Table) -> pa.Table:
    order = ORDER.get(name)
    return table.sort_by([(column, "ascending") for column in order]) if order else table


def _write(path: Path, table: pa.Table) -> None:
    pq.write_table(table, path, compression="zstd", version="2.6", data_page_version="2.0")


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
