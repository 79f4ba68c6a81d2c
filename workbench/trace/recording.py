"""Segment files read back: Arrow tables, and an exact account of what is not in them.

What a file holds before its first damaged byte is kept; nothing after it is believed. A file that is not a segment file
of this contract is an error, because its codes could mean anything.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from workbench.errors import DataIntegrityError, UsageError
from workbench.schema.tables import SCHEMA_VERSION, TABLES
from workbench.trace import frames
from workbench.trace.columns import RECORDED, arrow_schema, decode
from workbench.trace.segments import CONTRACT, COUNT_BYTES, COUNT_SUFFIX, SUFFIX, Header
from workbench.trace.writer import NUMBER_MASK, TABLE_SLOTS, WRITER_LIMIT

READ_AS_WRITTEN = "Seal it with the version of the workbench that recorded it."

# What reading hostile content can raise before it is known to be hostile.
MALFORMED = (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


@dataclass(slots=True)
class SegmentReport:
    """What one process left behind.

    Attributes
    ----------
    path : Path
    header : Header or None
        None if the process was killed before it had written one.
    footer : dict or None
        Statistics and calibration of an orderly end; None if the process was killed or the file is cut.
    rows, taken : int
        Rows that could be read; rows that the process had taken when it ended.
    dropped, rejected : int
        Rows the recorder gave up, as of the last heartbeat: its buffer was full; a value did not fit its column.
    first_rejection : str or None
        Why the first row was rejected.
    last_heartbeat_ns : int or None
        Local clock at the last readable heartbeat.
    damage : str or None
        Why the reading stopped early.
    good_bytes, size_bytes : int
        Bytes that could be used, and bytes of the file.
    """

    path: Path
    header: Header | None = None
    footer: dict[str, Any] | None = None
    rows: int = 0
    taken: int = 0
    dropped: int = 0
    rejected: int = 0
    first_rejection: str | None = None
    last_heartbeat_ns: int | None = None
    damage: str | None = None
    good_bytes: int = 0
    size_bytes: int = 0

    @property
    def lost(self) -> int:
        """Rows taken that are not here, for whatever reason."""
        return self.taken - self.rows

    @property
    def unflushed(self) -> int:
        """Rows lost because the process or its file ended before they were written, or were damaged since."""
        return max(0, self.lost - self.dropped - self.rejected)


@dataclass(slots=True)
class Recording:
    """All segments of a run, read: Arrow tables by name (every recorded table, empty ones included) and reports."""

    tables: dict[str, pa.Table]
    segments: list[SegmentReport]

    @property
    def headers(self) -> list[Header]:
        """Headers of the processes that came to write one."""
        return [segment.header for segment in self.segments if segment.header is not None]

    @property
    def taken(self) -> int:
        """Rows that all processes had taken."""
        return sum(segment.taken for segment in self.segments)

    @property
    def lost(self) -> int:
        """Rows taken that are not in the tables."""
        return sum(segment.lost for segment in self.segments)

    def notes(self) -> list[dict[str, Any]]:
        """Rows of ``import_note``: one per segment and kind of loss; empty for a whole recording."""
        found = []
        for segment in self.segments:
            name = segment.path.name
            if segment.damage is not None:
                sample = (
                    f"{name}: read up to byte {segment.good_bytes} of {segment.size_bytes}, then {segment.damage}; "
                    f"{segment.rows} rows kept"
                )
                found.append(_note("error", "segment-damaged", segment.size_bytes - segment.good_bytes, sample))
            if segment.footer is None:
                sample = f"{name}: no footer, the process was killed or the file was cut; {_window(segment)}"
                found.append(_note("warning", "segment-not-closed", 1, sample))
            if segment.unflushed:
                sample = f"{name}: {segment.taken} rows taken, {segment.rows} readable; {_window(segment)}"
                found.append(_note("error", "rows-unflushed", segment.unflushed, sample))
            if segment.dropped:
                found.append(_note("error", "rows-dropped", segment.dropped, f"{name}: buffer full or disk full"))
            if segment.rejected:
                found.append(_note("error", "rows-rejected", segment.rejected, f"{name}: {segment.first_rejection}"))
        return found


def read_segments(*folders: Path) -> Recording:
    """Read every segment file of one run.

    What a damaged file holds before the damage is kept; `Recording.segments` and `Recording.notes` say what is missing.

    Parameters
    ----------
    *folders : Path
        Folders that the processes of the run recorded into.

    Raises
    ------
    UsageError
        There is no segment file.
    DataIntegrityError
        A file is not a segment file of this format and schema, its header cannot be read, or two files come from
        processes of the same number.
    """
    paths = [path for folder in folders for path in sorted(Path(folder).glob(f"segment-*{SUFFIX}"))]
    if not paths:
        raise UsageError(f"segment files (segment-*{SUFFIX})", "none", where=", ".join(map(str, folders)))
    parts: dict[str, list[pa.Table]] = {name: [arrow_schema(TABLES[name]).empty_table()] for name in RECORDED}
    segments = [_read_segment(path, parts) for path in paths]
    recording = Recording({name: pa.concat_tables(tables) for name, tables in parts.items()}, segments)
    procs = Counter(header.proc.proc for header in recording.headers)
    if twice := [proc for proc, count in procs.items() if count > 1]:
        raise DataIntegrityError(
            "one segment file per process number",
            f"several of process {twice[0]}",
            where=", ".join(str(path) for path in paths),
            fix="Seal the folders of one run only.",
        )
    return recording


def _read_segment(path: Path, parts: dict[str, list[pa.Table]]) -> SegmentReport:
    scan = frames.Scan(path)
    report = SegmentReport(path)
    last: dict[int, int] = defaultdict(int)
    for frame in scan:
        if report.header is None:
            report.header = _header(path, frame)
            continue
        try:
            if frame.kind == frames.ROWS:
                parts[RECORDED[frame.table]].append(_rows(report.header, frame))
                report.rows += frame.rows
                slot = frame.writer * TABLE_SLOTS + frame.table
                last[slot] = max(last[slot], frame.last & NUMBER_MASK)
            else:
                _take_note(report, frame, last)
        except MALFORMED as error:
            # The checksum held, so the file was made this way.
            scan.damage = f"a frame of {len(frame.payload)} bytes holds what no recorder writes: {str(error)[:200]}"
            scan.good_bytes = frame.offset
            break
    report.damage, report.good_bytes, report.size_bytes = scan.damage, scan.good_bytes, scan.size_bytes
    for slot, number in _counts(path.with_suffix(COUNT_SUFFIX)).items():
        last[slot] = max(last[slot], number)
    report.taken = max(report.rows, sum(last.values()))
    return report


def _rows(header: Header, frame: frames.Frame) -> pa.Table:
    return decode(RECORDED[frame.table], frame.payload, frame.rows, header.names, header.proc.proc)


def _header(path: Path, frame: frames.Frame) -> Header:
    """The header, if it was written under this contract."""
    try:
        content = json.loads(frame.payload) if frame.kind == frames.HEADER else {}
        found = {key: content.get(key) for key in CONTRACT}
        header = Header.from_json(content) if found == CONTRACT else None
    except (*MALFORMED, UsageError) as error:
        raise DataIntegrityError(
            "a header of process, names and calibration", repr(error)[:200], where=str(path), fix=READ_AS_WRITTEN
        ) from error
    if header is None:
        version = found["schema_version"]
        raise DataIntegrityError(
            f"a recording of schema version {SCHEMA_VERSION}",
            "one with other columns" if version == SCHEMA_VERSION else f"version {str(version)[:20]}",
            where=str(path),
            fix=READ_AS_WRITTEN,
        )
    return header


def _take_note(report: SegmentReport, frame: frames.Frame, last: dict[int, int]) -> None:
    """Take over a heartbeat or footer: counts as of then."""
    content = json.loads(frame.payload)
    if frame.kind == frames.FOOTER:
        report.footer = content
    elif frame.kind != frames.HEARTBEAT:
        raise ValueError(f"frame kind {frame.kind}")
    report.last_heartbeat_ns = int(content["at_ns"])
    report.dropped = report.rejected = 0
    report.first_rejection = content["first_rejection"]
    if len(content["writers"]) > WRITER_LIMIT:
        raise ValueError(f"{len(content['writers'])} writers")
    for writer, streams in enumerate(content["writers"]):
        for name, counts in streams.items():
            taken, dropped, rejected = map(int, counts)
            if not 0 <= max(dropped, rejected) <= taken <= NUMBER_MASK:
                raise ValueError(f"counts {counts}")
            slot = writer * TABLE_SLOTS + RECORDED.index(name)
            last[slot] = max(last[slot], taken)
            report.dropped += dropped
            report.rejected += rejected


def _counts(path: Path) -> dict[int, int]:
    """Row numbers of the shared array by slot, without those never used; empty if the file is not there or is cut."""
    if not path.is_file() or path.stat().st_size != COUNT_BYTES:
        return {}
    counts = memoryview(path.read_bytes()).cast("q")
    return {slot: number & NUMBER_MASK for slot, number in enumerate(counts) if number > 0}


def _note(level: str, code: str, count: int, sample: str) -> dict[str, Any]:
    return {"level": level, "code": code, "count": count, "sample": sample}


def _window(segment: SegmentReport) -> str:
    if segment.header is None or segment.last_heartbeat_ns is None:
        return "no heartbeat was written"
    return f"last heartbeat at {segment.last_heartbeat_ns} ns, one every {segment.header.flush_interval_s:g} s"
