"""Segment files: what a recording process appends while it runs.

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
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.errors import UsageError
from workbench.schema.enums import ENUMS
from workbench.schema.tables import SCHEMA_VERSION
from workbench.trace import frames
from workbench.trace.columns import RECORDED, recorded_columns
from workbench.trace.writer import PROC_LIMIT, TABLE_SLOTS, WRITER_LIMIT

SUFFIX = ".wbseg"
COUNT_SUFFIX = ".wbcount"
COUNT_BYTES = 8 * WRITER_LIMIT * TABLE_SLOTS
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# What a reader must agree on before it can read the first row.
CONTRACT = {
    "schema_version": SCHEMA_VERSION,
    "columns": {name: [column.name for column in recorded_columns(name)] for name in RECORDED},
}


@dataclass(frozen=True, slots=True)
class ProcInfo:
    """Process that records, as table ``proc`` describes it. Numbers are unique in the run, 0 to 127."""

    proc: int
    name: str
    host: str
    pid: int | None
    boot_id: str | None

    def __post_init__(self) -> None:
        if not 0 <= self.proc < PROC_LIMIT:
            raise UsageError(f"a process number from 0 to {PROC_LIMIT - 1}", str(self.proc), where="ProcInfo")

    @classmethod
    def here(cls, proc: int, name: str) -> ProcInfo:
        """The calling process."""
        boot_id = BOOT_ID.read_text().strip() if BOOT_ID.is_file() else None
        return cls(proc, name, platform.node(), os.getpid(), boot_id)


@dataclass(frozen=True, slots=True)
class Header:
    r"""First frame of a segment: what the codes in its rows mean and how it was recorded.

    Attributes
    ----------
    proc : ProcInfo
    names : mapping
        Dictionary name -> values in the order of their codes: every vocabulary, ``"stage"`` and ``"edge"``.
    probes : {"on", "off"}
    clock : str
        Clock of all \*_ns columns.
    flush_interval_s : float
    calibration : mapping
        ``ns_per_event`` and ``ns_per_span`` measured before the run.
    """

    proc: ProcInfo
    names: Mapping[str, Sequence[str]]
    probes: str
    clock: str
    flush_interval_s: float
    calibration: Mapping[str, float]

    def as_json(self) -> dict[str, Any]:
        """The header as JSON values, with the contract it was written under."""
        return {**CONTRACT, **asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Header:
        """The header from JSON values whose contract was checked; ValueError if any has another shape."""
        proc, names = content["proc"], content["names"]
        if names.keys() != {*ENUMS, "stage", "edge"} or not all(
            isinstance(value, str) for values in names.values() for value in values
        ):
            raise ValueError("names are not a list of text for each vocabulary, stage and edge")
        if content["probes"] not in ENUMS["probes"]:
            raise ValueError(f"probes {content['probes']!r}")
        return cls(
            ProcInfo(int(proc["proc"]), str(proc["name"]), str(proc["host"]), proc["pid"], proc["boot_id"]),
            names,
            content["probes"],
            str(content["clock"]),
            float(content["flush_interval_s"]),
            {key: float(content["calibration"][key]) for key in ("ns_per_event", "ns_per_span")},
        )


class SegmentWriter:
    """The two files of one recording process.

    Parameters
    ----------
    folder : Path
        Made if missing. A file of the same process must not be there already.
    header : Header
        Its process number is part of the file names.

    Attributes
    ----------
    taken : memoryview of int64
        The shared array of row numbers.
    written_bytes : int
        Size of the segment file.
    """

    def __init__(self, folder: Path, header: Header) -> None:
        proc = header.proc.proc
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
        self.note(frames.HEADER, header.as_json())

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
