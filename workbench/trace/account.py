"""The account of a recording: what was taken, what was lost and why, what recording cost, how good the clocks were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

from workbench.errors import DataIntegrityError
from workbench.trace.recording import Recording, SegmentReport

COUNTS = ("events", "lost", "dropped", "rejected", "unflushed")


def recorder_record(recording: Recording) -> dict[str, Any]:
    """The manifest's ``recorder``: totals over all processes, then each process.

    ``events`` rows were taken and ``lost`` of them are not in the run: ``dropped`` by a full buffer or disk,
    ``rejected`` because a value did not fit its column, ``unflushed`` when the process was killed or its file damaged.
    ``ns_per_event`` is the calibrated cost of a row on the recording thread, mean of start and end, weighted by how
    many rows are spans (two clock readings) and others (one); ``flush_ns_per_event`` is spent on a thread of its own.

    Raises
    ------
    DataIntegrityError
        Some processes recorded with probes on and some with probes off.
    """
    processes = [_process(segment) for segment in recording.segments]
    probes = {header.probes for header in recording.headers}
    if len(probes) > 1:
        raise DataIntegrityError(
            "one setting of probes in all processes of a run",
            "both on and off",
            where=", ".join(segment.path.name for segment in recording.segments),
            fix="Start every process of a run with the same setting.",
        )
    spans = recording.tables["span"].num_rows
    rows = sum(table.num_rows for table in recording.tables.values())
    per_event = _mean([process["ns_per_event"] for process in processes])
    per_span = _mean([process["ns_per_span"] for process in processes])
    cost = None
    if rows and per_event is not None and per_span is not None:
        cost = round(((rows - spans) * per_event + spans * per_span) / rows, 1)
    return {
        **{key: sum(process[key] for process in processes) for key in COUNTS},
        "probes": min(probes, default="on"),
        "ns_per_event": cost,
        "processes": processes,
    }


def clocks_record(recording: Recording) -> dict[str, Any]:
    """The manifest's ``clocks``: reference clock, boots, readings, widest half bracket, drift of the wall clock.

    ``wall_drift_ns`` is the spread of wall minus local clock over the run: an adjusted or stepped wall clock shows.
    """
    readings = recording.tables["clock_sync"]
    offsets = pc.subtract(readings["wall_ns"], readings["local_ns"]).to_pylist()
    return {
        "reference": min((header.clock for header in recording.headers), default=None),
        "boot_ids": sorted({header.proc.boot_id for header in recording.headers if header.proc.boot_id is not None}),
        "readings": readings.num_rows,
        "max_err_ns": pc.max(readings["err_ns"]).as_py(),
        "wall_drift_ns": max(offsets) - min(offsets) if offsets else None,
    }


def _process(segment: SegmentReport) -> dict[str, Any]:
    footer: dict[str, Any] = segment.footer or {}
    costs = [segment.header.calibration] if segment.header else []
    costs += [footer["calibration"]] if "calibration" in footer else []
    return {
        "proc": segment.header.proc.proc if segment.header else None,
        "closed": segment.footer is not None,
        "events": segment.taken,
        "lost": segment.lost,
        "dropped": segment.dropped,
        "rejected": segment.rejected,
        "unflushed": segment.unflushed,
        "ns_per_event": _mean([cost["ns_per_event"] for cost in costs]),
        "ns_per_span": _mean([cost["ns_per_span"] for cost in costs]),
        "flush_ns_per_event": footer.get("statistics", {}).get("flush_ns_per_event"),
        "attached": footer.get("attached", {}),
    }


def _mean(values: Sequence[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return round(sum(present) / len(present), 1) if present else None
