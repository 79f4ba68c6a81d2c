"""The recorder of one process: writers for its threads, and a background thread that flushes them to a segment file."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from workbench.errors import DataIntegrityError, UsageError
from workbench.schema.enums import ENUMS
from workbench.trace import frames
from workbench.trace.calibration import cost_ns, now, read_clocks, reference_clock
from workbench.trace.columns import RECORDED, Row, encode
from workbench.trace.segments import Header, ProcInfo, SegmentWriter
from workbench.trace.writer import WRITER_LIMIT, Stream, Writer

__all__ = ["ProcInfo", "Recorder", "RecorderStatistics"]

# Rows per block. The interpreter lock is held while one is packed, about 0.3 ms, and given up while it is written:
# measured threads never wait longer for a flush. Twice the rows would cost 15 % less CPU and double the wait.
BLOCK_ROWS = 512
CLOCK_INTERVAL_NS = 10 * 1_000_000_000

Statistics = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RecorderStatistics:
    """What a recorder did so far.

    Attributes
    ----------
    taken, flushed, dropped, rejected, waiting : int
        Rows handed to writers; on disk; fallen out of a full buffer or not writable; with a value that does not fit its
        column; still buffered. While other threads record, the counts are of slightly different moments.
    ns_per_event, ns_per_span : float
        Calibrated cost on the recording thread: a row with one clock reading; a span row with two.
    flush_ns_per_event : float or None
        CPU time of the flushing thread per flushed row; None before the first one.
    written_bytes : int
        Size of the segment file.
    write_error : str or None
        First failure to write.
    """

    taken: int
    flushed: int
    dropped: int
    rejected: int
    waiting: int
    ns_per_event: float
    ns_per_span: float
    flush_ns_per_event: float | None
    written_bytes: int
    write_error: str | None


class Recorder:
    """Records the rows of one process into a segment file; see ``workbench.trace.segments`` for what survives what.

    Parameters
    ----------
    folder : Path
        Folder of the run's segments. Processes of a run may share it.
    proc : ProcInfo
        This process. Its number must be free in the folder.
    stages, edges : sequence of str
        Names in the order of the codes that rows carry.
    probes : {"on", "off"}
        "off": only writers made with ``always=True`` keep rows (the client's), the others merely hand out numbers.
    flush_interval_s : float
        Time between flushes: what ``kill -9`` can cost.
    sync_interval_s : float
        Time between fsyncs: what a crash of the machine can cost.
    capacity : int
        Rows per writer and table that wait for a flush; beyond it the oldest are dropped and counted.

    Examples
    --------
    >>> import tempfile
    >>> from workbench.trace.columns import CODE
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Recorder(Path(folder.name), ProcInfo.here(0, "server"), stages=("thinker",), edges=()) as recorder:
    ...     writer = recorder.writer("thinker-0")
    ...     start_ns = writer.now()
    ...     service, arrival = CODE["span_kind"]["service"], CODE["cause"]["arrival"]
    ...     span = writer.span(7, recorder.stage_code["thinker"], 0, 0, 0, service, start_ns, writer.now(), arrival)
    >>> recorder.statistics().dropped
    0
    """

    def __init__(
        self,
        folder: Path,
        proc: ProcInfo,
        *,
        stages: Sequence[str],
        edges: Sequence[str],
        probes: str = "on",
        flush_interval_s: float = 0.2,
        sync_interval_s: float = 5.0,
        capacity: int = 1_000_000,
    ) -> None:
        if probes not in ENUMS["probes"]:
            raise UsageError(f"probes in {ENUMS['probes']}", repr(probes), where="Recorder")
        if capacity < 1 or flush_interval_s <= 0:
            raise UsageError(
                "a positive capacity and flush interval", f"{capacity} rows, {flush_interval_s} s", where="Recorder"
            )
        self.proc = proc
        self.probes = probes
        self.stage_code = {name: code for code, name in enumerate(stages)}
        self.edge_code = {name: code for code, name in enumerate(edges)}
        self._names = {**ENUMS, "stage": tuple(stages), "edge": tuple(edges)}
        self._capacity = capacity
        self._flush_interval_s = flush_interval_s
        self._sync_interval_ns = round(sync_interval_s * 1e9)
        self._calibrations = [_calibrate()]
        self._segment = SegmentWriter(
            Path(folder), Header(proc, self._names, probes, reference_clock(), flush_interval_s, self._calibrations[0])
        )
        self._pid = os.getpid()
        self._writers: list[Writer] = []
        self._attached: dict[str, Callable[[], Statistics]] = {}
        self._flushing = threading.Lock()
        self._making = threading.Lock()
        self._flush_cpu_ns = 0
        self._first_rejection: str | None = None
        self._write_error: str | None = None
        self._next_clock_ns = 0
        self._last_sync_ns = now()
        self._own = self.writer("recorder", always=True)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder-flush", daemon=True)
        # Arrow prepares itself on first use, which takes up to a quarter of a second: not during the run.
        self.flush()
        self._flush_cpu_ns = 0
        self._thread.start()
        atexit.register(self.close)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def writer(self, name: str, *, always: bool = False) -> Writer:
        """A writer for one thread.

        Parameters
        ----------
        name : str
            Unique in this process; names the writer in loss reports.
        always : bool
            Keep rows with ``probes="off"`` too: for what the client sees.
        """
        with self._making:
            if any(writer.name == name for writer in self._writers):
                raise UsageError("writer names used once", repr(name), where="Recorder.writer")
            if len(self._writers) == WRITER_LIMIT:
                raise UsageError(
                    f"at most {WRITER_LIMIT} writers in a process", "one more", where="Recorder.writer",
                    fix="Keep one writer per thread, not per request.",
                )  # fmt: skip
            on = always or self.probes == "on"
            writer = Writer(
                name, self.proc.proc, len(self._writers), self._segment.taken, capacity=self._capacity, on=on
            )
            self._writers.append(writer)
            return writer

    def attach(self, name: str, statistics: Callable[[], Statistics]) -> None:
        """Store the result of `statistics` under `name` in the footer: what a sampler cost, for example."""
        self._attached[name] = statistics

    def flush(self) -> None:
        """Write everything buffered so far, then a heartbeat."""
        with self._flushing:
            start_ns = time.thread_time_ns()
            if now() >= self._next_clock_ns:
                self._sync_clock()
            for writer in tuple(self._writers):
                for stream in writer.streams:
                    self._drain(stream)
            self._guarded(lambda: self._segment.note(frames.HEARTBEAT, self._counts()))
            self._flush_cpu_ns += time.thread_time_ns() - start_ns
            if now() - self._last_sync_ns >= self._sync_interval_ns:
                self._guarded(self._segment.sync)
                self._last_sync_ns = now()

    def statistics(self) -> RecorderStatistics:
        """Counts and costs so far."""
        streams = [stream for writer in self._writers for stream in writer.streams]
        flushed = sum(stream.flushed for stream in streams)
        runs = len(self._calibrations)
        return RecorderStatistics(
            taken=sum(self._taken(stream) for stream in streams),
            flushed=flushed,
            dropped=sum(stream.dropped for stream in streams),
            rejected=sum(stream.rejected for stream in streams),
            waiting=sum(len(stream.rows) for stream in streams),
            ns_per_event=sum(cost["ns_per_event"] for cost in self._calibrations) / runs,
            ns_per_span=sum(cost["ns_per_span"] for cost in self._calibrations) / runs,
            flush_ns_per_event=self._flush_cpu_ns / flushed if flushed else None,
            written_bytes=self._segment.written_bytes,
            write_error=self._write_error,
        )

    def close(self) -> None:
        """Flush, write the footer and close the file. Does nothing the second time, or in a forked child.

        Raises
        ------
        DataIntegrityError
            Rows could not be written at some point; what could be is on disk.
        """
        if self._closed.is_set() or os.getpid() != self._pid:
            return
        self._closed.set()
        atexit.unregister(self.close)
        self._thread.join()
        self._calibrations.append(_calibrate())
        self._next_clock_ns = 0
        self.flush()
        footer = self._counts() | {
            "statistics": asdict(self.statistics()),
            "calibration": self._calibrations[-1],
            "attached": {name: dict(statistics()) for name, statistics in self._attached.items()},
        }
        self._guarded(lambda: self._segment.note(frames.FOOTER, footer))
        self._guarded(self._segment.sync)
        self._segment.close()
        if self._write_error is not None:
            raise DataIntegrityError(
                "every block of rows written",
                self._write_error,
                where=str(self._segment.path),
                fix=f"{self.statistics().dropped} rows are missing; make room and record again.",
            )

    def _taken(self, stream: Stream) -> int:
        return max(stream.taken, self._segment.taken[stream.slot] - stream.base) if stream.rows else stream.taken

    def _run(self) -> None:
        while not self._closed.wait(self._flush_interval_s):
            self.flush()

    def _sync_clock(self) -> None:
        reading = read_clocks()
        self._own.clock_sync(reading.local_ns, reading.wall_ns, reading.local_ns, reading.err_ns)
        self._next_clock_ns = reading.local_ns + CLOCK_INTERVAL_NS

    def _drain(self, stream: Stream) -> None:
        """Write what the stream holds now; rows that arrive meanwhile wait for the next flush."""
        left = len(stream.rows)
        pop = stream.rows.popleft
        while left > 0:
            rows = [pop() for _ in range(min(left, BLOCK_ROWS))]
            left -= len(rows)
            last = max(row[0] for row in rows)
            stream.taken = max(stream.taken, last - stream.base)
            self._write(stream, rows, last)

    def _write(self, stream: Stream, rows: list[Row], last: int) -> None:
        table = RECORDED[stream.table]
        try:
            payload = encode(table, rows, self._names)
        except (ValueError, TypeError, OverflowError):
            rows = self._valid(stream, rows)
            if not rows:
                return
            payload = encode(table, rows, self._names)
        if self._guarded(lambda: self._segment.rows(stream.table, stream.writer, len(rows), last, payload)):
            stream.flushed += len(rows)

    def _valid(self, stream: Stream, rows: list[Row]) -> list[Row]:
        """The rows that fit their table; the others are counted and the first is explained."""
        table = RECORDED[stream.table]
        kept = []
        for row in rows:
            row = tuple(_printable(value) if isinstance(value, str) else value for value in row)
            try:
                encode(table, [row], self._names)
            except (ValueError, TypeError, OverflowError) as error:
                stream.rejected += 1
                self._first_rejection = self._first_rejection or f"{table} row {row[1:]}: {error}"[:500]
            else:
                kept.append(row)
        return kept

    def _guarded(self, write: Callable[[], None]) -> bool:
        """Whether `write` succeeded; recording goes on without it, and `close` raises."""
        try:
            write()
        except OSError as error:
            self._write_error = self._write_error or f"{error.strerror} (errno {error.errno})"
            return False
        return True

    def _counts(self) -> dict[str, Any]:
        return {
            "at_ns": now(),
            "first_rejection": self._first_rejection,
            "writers": [
                {
                    RECORDED[stream.table]: (stream.taken, stream.dropped, stream.rejected)
                    for stream in writer.streams
                    if stream.taken
                }
                for writer in self._writers
            ],
        }


def _printable(text: str) -> str:
    """`text` with lone surrogates, which UTF-8 cannot hold, written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _calibrate() -> dict[str, float]:
    """Cost of recording, measured on a writer whose rows nobody reads."""
    writer = Writer("calibration", 0, 0, memoryview(bytearray(8 * 16)).cast("q"), capacity=4096, on=True)
    clock, event, span = writer.now, writer.event, writer.span

    def events(calls: int) -> None:
        for index in range(calls):
            event(clock(), 7, index)

    def spans(calls: int) -> None:
        for index in range(calls):
            start_ns = clock()
            end_ns = clock()
            span(index, 1, 0, 0, 3, 2, start_ns, end_ns, 1, None, None, 4096, 4)

    return {"ns_per_event": round(cost_ns(events), 1), "ns_per_span": round(cost_ns(spans), 1)}
