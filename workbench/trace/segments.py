"""Segment files: what a recording process appends while it runs, and what is left of it whatever ended it.

A process writes two files. ``segment-<proc>.wbseg`` holds frames: a header (process, names of all codes, calibration),
blocks of rows, a heartbeat per flush and a footer at an orderly end. ``segment-<proc>.wbcount`` is an array of int64 in
shared memory, one per (writer, table), that the hot path sets to the number of the row just taken; it belongs to the
kernel as soon as it is written, so that even after ``kill -9`` the reader knows how many rows never reached the disk.

Durability: every flush hands its frames to the kernel, which survives the death of the process; fsync follows every
``sync_interval_s`` and at the end, so that a crash of the machine costs at most that much more.
"""

from __future__ import annotations

import json
import mmap
import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from workbench.errors import DataIntegrityError, UsageError
from workbench.schema.tables import SCHEMA_VERSION, TABLES
from workbench.trace import frames
from workbench.trace.columns import RECORDED, arrow_schema, decode, recorded_columns
from workbench.trace.writer import NUMBER_MASK, TABLE_SLOTS, WRITER_LIMIT

SUFFIX = ".wbseg"
COUNT_SUFFIX = ".wbcount"
COUNT_BYTES = 8 * WRITER_LIMIT * TABLE_SLOTS


class SegmentWriter:
    """The two files of one recording process.

    Parameters
    ----------
    folder : Path
        Made if missing. A file of the same process must not be there already.
    proc : int
        Process number, part of the file names.
    header : mapping
        What a reader needs before the first row; see :meth:`Recorder`.

    Attributes
    ----------
    taken : memoryview of int64
        The shared array of row numbers.
    written_bytes : int
        Size of the segment file.
    """

    def __init__(self, folder: Path, proc: int, header: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"segment-{proc}{SUFFIX}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            self._file = os.open(self.path, flags, 0o644)
        except FileExistsError as error:
            raise UsageError(
                f"no recording of process {proc} in the folder",
                f"{self.path.name}",
                where=str(folder),
                fix="Record into a new folder, or give each process its own number.",
            ) from error
        with (folder / f"segment-{proc}{COUNT_SUFFIX}").open("w+b") as counts:
            # Written out, not left sparse: a hole that cannot be filled would kill the process on a full disk.
            counts.write(bytes(COUNT_BYTES))
            counts.flush()
            self.taken = memoryview(mmap.mmap(counts.fileno(), COUNT_BYTES)).cast("q")
        self.written_bytes = 0
        self._append(frames.preamble())
        self.note(frames.HEADER, header)

    def rows(self, table: int, writer: int, rows: int, last: int, payload: bytes) -> None:
        """Append a block of rows; `last` is the highest row number in it."""
        self._append(frames.pack(frames.ROWS, payload, table=table, writer=writer, rows=rows, last=last))

    def note(self, kind: int, content: Mapping[str, Any]) -> None:
        """Append a header, heartbeat or footer."""
        self._append(frames.pack(kind, json.dumps(content).encode()))

    def sync(self) -> None:
        """Wait until the disk has everything appended so far."""
        os.fsync(self._file)

    def close(self) -> None:
        """Close the segment file. The array of counts stays mapped: a late writer must find memory there."""
        os.close(self._file)

    def _append(self, content: bytes) -> None:
        """Append all of `content`, or nothing: a torn frame would hide the ones after it from every reader."""
        left = memoryview(content)
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError:
            os.ftruncate(self._file, self.written_bytes)
            os.lseek(self._file, self.written_bytes, os.SEEK_SET)
            raise
        self.written_bytes += len(content)


@dataclass(slots=True)
class SegmentReport:
    """What one process left behind.

    Attributes
    ----------
    path : Path
    header : dict
        As written by the recorder: ``proc``, ``names``, ``calibration``, ``probes``, ``flush_interval_s``.
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
    header: dict[str, Any]
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
    def headers(self) -> list[dict[str, Any]]:
        """Headers of the processes that came to write one."""
        return [segment.header for segment in self.segments if segment.header]

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
    procs = Counter(header["proc"]["proc"] for header in recording.headers)
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
    report = SegmentReport(path, header={})
    last: dict[int, int] = defaultdict(int)
    for frame in scan:
        try:
            if not report.header:
                report.header = _header(path, frame)
            elif frame.kind == frames.ROWS:
                name = RECORDED[frame.table]
                names, proc = report.header["names"], report.header["proc"]["proc"]
                parts[name].append(decode(name, frame.payload, frame.rows, names, proc))
                report.rows += frame.rows
                slot = frame.writer * TABLE_SLOTS + frame.table
                last[slot] = max(last[slot], frame.last & NUMBER_MASK)
            else:
                _take_note(report, frame, last)
        except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
            # The checksum held, so the file was made this way: nothing after it is believed.
            scan.damage = f"a frame of {len(frame.payload)} bytes holds what no recorder writes: {error}"
            scan.good_bytes = frame.offset
            break
    report.damage, report.good_bytes, report.size_bytes = scan.damage, scan.good_bytes, scan.size_bytes
    for slot, number in _counts(path.with_suffix(COUNT_SUFFIX)).items():
        last[slot] = max(last[slot], number)
    report.taken = sum(last.values())
    return report


def _header(path: Path, frame: frames.Frame) -> dict[str, Any]:
    """The header, if it was written under this contract."""
    header: dict[str, Any] = {}
    if frame.kind == frames.HEADER:
        header = json.loads(frame.payload)
    columns = {name: [column.name for column in recorded_columns(name)] for name in RECORDED}
    for key, expected, what in (("schema_version", SCHEMA_VERSION, "another"), ("columns", columns, "other columns")):
        if header.get(key) != expected:
            raise DataIntegrityError(
                f"a recording of schema version {SCHEMA_VERSION} with its columns",
                f"{what} (version {header.get('schema_version')!r})",
                where=str(path),
                fix="Seal it with the version of the workbench that recorded it.",
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
    for writer, streams in enumerate(content["writers"]):
        for name, (taken, dropped, rejected) in streams.items():
            slot = writer * TABLE_SLOTS + RECORDED.index(name)
            last[slot] = max(last[slot], int(taken))
            report.dropped += int(dropped)
            report.rejected += int(rejected)


def _counts(path: Path) -> dict[int, int]:
    """Row numbers of the shared array by slot, without those never used; empty if the file is not there or is cut."""
    if not path.is_file() or path.stat().st_size != COUNT_BYTES:
        return {}
    counts = memoryview(path.read_bytes()).cast("q")
    return {slot: number & NUMBER_MASK for slot, number in enumerate(counts) if number > 0}


def _note(level: str, code: str, count: int, sample: str) -> dict[str, Any]:
    return {"level": level, "code": code, "count": count, "sample": sample}


def _window(segment: SegmentReport) -> str:
    if segment.last_heartbeat_ns is None:
        return "no heartbeat was written"
    return (
        f"last heartbeat at {segment.last_heartbeat_ns} ns, flush interval "
        f"{segment.header['flush_interval_s'] * 1000:.0f} ms"
    )
