"""However a recording process ends, what it had flushed is there and what it had not is a number."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.trace.recordings import EDGE_ROWS, STAGE_ROWS
from workbench.trace import frames, manifest
from workbench.trace.environment import Environment
from workbench.trace.recording import read_segments
from workbench.trace.seal import RunInfo, seal

ROOT = Path(__file__).resolve().parents[2]
BEGIN = """
import mmap, os, resource, struct, sys, time
from pathlib import Path
from typing import Any
from workbench.trace.recorder import ProcInfo, Recorder
folder = Path(sys.argv[1])
recorder = Recorder(folder, ProcInfo.here(0, "p"), stages=("client", "thinker"), edges=(), flush_interval_s=0.05)
writer = recorder.writer("w")
def span(request):
    writer.span(request, 1, 0, 0, 0, 2, writer.now(), writer.now(), 1)
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + code, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(code: str, *arguments: str) -> tuple[int, str]:
    process = start(code, *arguments)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


def heartbeats(folder: Path) -> list[dict[str, Any]]:
    scan = frames.Scan(folder / "segment-0.wbseg")
    return [json.loads(frame.payload) for frame in scan if frame.kind == frames.HEARTBEAT]


def test_kill_9_loses_at_most_the_unflushed_buffer_and_says_how_much(tmp_path: Path) -> None:
    """The child keeps its own count in shared memory; the recording must account for every row of it."""
    segments, count = tmp_path / "segments", tmp_path / "count"
    count.write_bytes(bytes(8))
    process = start(
        """
counts = memoryview(mmap.mmap(os.open(sys.argv[2], os.O_RDWR), 8)).cast("q")
print("recording", flush=True)
while True:
    span(counts[0])
    counts[0] += 1
    if counts[0] % 10 == 0:
        time.sleep(0.0005)
""",
        str(segments),
        str(count),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "recording\n"
    until = time.monotonic() + 60
    while len(heartbeats(segments)) < 5 and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    [counted] = struct.unpack("<q", count.read_bytes())

    result = read_segments(segments)
    [segment] = result.segments
    spans = result.tables["span"]
    kept = spans.num_rows
    assert kept > 0
    assert spans["request"].to_pylist() == list(range(kept))
    # The child was killed at any instruction: between taking a row and counting it, or between counting and recording.
    assert segment.taken - result.tables["clock_sync"].num_rows - counted in (0, 1)
    assert segment.unflushed == segment.lost == segment.taken - segment.rows
    assert segment.footer is None
    # Whatever a heartbeat says was taken is there: the loss is what came after the last one.
    assert 0 < heartbeats(segments)[-1]["writers"][1]["span"][0] <= kept
    codes = {note["code"]: note for note in result.notes()}
    assert "segment-not-closed" in codes
    if segment.lost:
        assert codes["rows-unflushed"]["count"] == segment.lost
        assert f"{segment.taken} rows taken, {segment.rows} readable" in codes["rows-unflushed"]["sample"]
        assert "one every 0.05 s" in codes["rows-unflushed"]["sample"]

    run = seal(
        segments,
        tmp_path / "killed",
        RunInfo("killed", "test"),
        stages=STAGE_ROWS,
        edges=EDGE_ROWS,
        environment=Environment(),
    )
    record = manifest.load(run)["recorder"]
    assert (record["events"], record["lost"], record["unflushed"]) == (segment.taken, segment.lost, segment.lost)
    assert record["processes"][0]["closed"] is False


def test_a_program_that_forgets_to_close_loses_nothing(tmp_path: Path) -> None:
    code, errors = finish("[span(request) for request in range(1000)]; raise SystemExit(3)", str(tmp_path))
    assert code == 3, errors
    result = read_segments(tmp_path)
    assert result.tables["span"].num_rows == 1000
    assert result.notes() == []


def test_a_forked_child_leaves_the_recording_alone(tmp_path: Path) -> None:
    code, errors = finish(
        """
span(1)
if os.fork() == 0:
    recorder.close()
    os._exit(0)
os.wait()
span(2)
recorder.close()
""",
        str(tmp_path),
    )
    assert code == 0, errors
    result = read_segments(tmp_path)
    assert result.tables["span"]["request"].to_pylist() == [1, 2]
    assert result.notes() == []


def test_a_full_disk_is_reported_and_leaves_a_readable_file(tmp_path: Path) -> None:
    """A file size limit stands in for the full disk: the kernel refuses the write in the same way."""
    code, errors = finish(
        """
limit = os.path.getsize(folder / "segment-0.wbseg") + 200_000
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for request in range(20_000):
    span(request)
recorder.flush()
assert recorder.statistics().dropped > 0, recorder.statistics()
try:
    recorder.close()
except Exception as error:
    print(error, file=sys.stderr)
    raise SystemExit(error.exit_code)
""",
        str(tmp_path),
    )
    assert code == 4, errors
    assert "File too large" in errors
    assert "make room" in errors
    result = read_segments(tmp_path)
    [segment] = result.segments
    assert segment.damage is None
    assert 0 < segment.rows < 20_000
    assert segment.taken == 20_000 + 2
    assert segment.lost == segment.taken - segment.rows
    assert any(note["level"] == "error" for note in result.notes())


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_python_handles_flushes(tmp_path: Path, stop: signal.Signals) -> None:
    process = start(
        """
import signal
signal.signal(signal.SIGTERM, signal.default_int_handler)
span(1)
print("recording", flush=True)
time.sleep(60)
""",
        str(tmp_path),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "recording\n"
    process.send_signal(stop)
    process.communicate(timeout=60)
    result = read_segments(tmp_path)
    assert result.tables["span"].num_rows == 1
    assert result.segments[0].footer is not None
