"""What recording costs, against appending a tuple to a list and against writing JSON, in one process.

    python benchmarks/bench_recorder.py [--batches 200]

Every case runs in short batches (about a millisecond, below a scheduler slice), the cases take turns, flushes happen
between rounds, and the empty loop is subtracted. The median is what a call costs on this machine as it is now; p5 is
near what it costs when nothing else runs. An event is one clock reading and a row; a span is two and a longer row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from workbench.trace.columns import CODE
from workbench.trace.environment import Environment
from workbench.trace.recorder import ProcInfo, Recorder
from workbench.trace.recording import read_segments
from workbench.trace.sampler import Sampler
from workbench.trace.seal import RunInfo, seal
from workbench.trace.writer import Writer

CALLS = 2_000
NOTE = CODE["event_kind"]["note"]
SERVICE = CODE["span_kind"]["service"]
DATA = CODE["cause"]["data"]

# Nanoseconds per call that the recorder promises on a quiet machine.
GOALS = {"event": 300, "span": 600, "off: method": 100, "off: if writer.on": 100}

Case = Callable[[int], None]
now = time.perf_counter_ns


def empty(calls: int) -> None:
    for _ in range(calls):
        pass


def clock(calls: int) -> None:
    for _ in range(calls):
        now()


def list_append(calls: int) -> None:
    rows: list[tuple[int, ...]] = []
    append = rows.append
    for index in range(calls):
        append((now(), NOTE, index, 2, 1, 0))


def json_lines(path: Path) -> Case:
    """A line of JSON per event into a line-buffered file, as serving stacks do."""
    file = path.open("w", buffering=1)

    def case(calls: int) -> None:
        for index in range(calls):
            event = {"timestamp_ns": now(), "event": "note", "request": index, "stage": "thinker", "chunk": 1}
            file.write(json.dumps(event) + "\n")

    return case


def event(writer: Writer) -> Case:
    record = writer.event

    def case(calls: int) -> None:
        for index in range(calls):
            record(now(), NOTE, index)

    return case


def span(writer: Writer) -> Case:
    record = writer.span

    def case(calls: int) -> None:
        for index in range(calls):
            start_ns = now()
            end_ns = now()
            record(index, 0, 0, 0, 3, SERVICE, start_ns, end_ns, DATA, None, None, 4096, 4)

    return case


def span_by_name(writer: Writer) -> Case:
    def case(calls: int) -> None:
        for index in range(calls):
            start_ns = writer.now()
            end_ns = writer.now()
            writer.span(index, 0, 0, 0, 3, SERVICE, start_ns, end_ns, DATA, cause_span=5, batch=7, bytes=4096, units=4)

    return case


def off_method(writer: Writer) -> Case:
    record = writer.span

    def case(calls: int) -> None:
        for index in range(calls):
            record(index, 0, 0, 0, 3, SERVICE, 1, 2, DATA, None, None, 4096, 4)

    return case


def off_check(writer: Writer) -> Case:
    def case(calls: int) -> None:
        for _ in range(calls):
            if writer.on:
                raise AssertionError

    return case


def measure(cases: dict[str, Case], batches: int, between: Callable[[], None]) -> dict[str, list[float]]:
    """Nanoseconds per call of every batch, sorted, the empty loop's median subtracted."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(batches):
        for name, case in cases.items():
            calls = CALLS // 10 if name.startswith("JSON") else CALLS
            start_ns = now()
            case(calls)
            times[name].append((now() - start_ns) / calls)
        between()
    loop = statistics.median(times.pop("empty loop"))
    return {name: sorted(max(0.0, value - loop) for value in values) for name, values in times.items()}


def in_threads(recorder: Recorder, threads: int, per_thread: int) -> float:
    """Wall-clock nanoseconds per span of `threads` threads that record as fast as they can."""
    writers = [recorder.writer(f"thread-{index}") for index in range(threads)]
    workers = [threading.Thread(target=span(writer), args=(per_thread,)) for writer in writers]
    start_ns = now()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return (now() - start_ns) / (threads * per_thread)


def table(times: dict[str, list[float]]) -> str:
    """p5 and median per case, how many list appends it costs, and how many times cheaper than JSON it is."""
    base = statistics.median(times["list.append(tuple)"])
    text = statistics.median(times["JSON line per event"])
    lines = [f"{'ns per call':20}{'p5':>8}{'median':>8}{'/ list':>8}{'JSON /':>8}   goal"]
    for name, values in times.items():
        p5, median = values[len(values) // 20], statistics.median(values)
        goal = f"< {GOALS[name]}: {'met' if median < GOALS[name] else 'NOT MET'}" if name in GOALS else ""
        cheaper = f"{text / median:8.0f}" if median else f"{'':8}"
        lines.append(f"{name:20}{p5:8.0f}{median:8.0f}{median / base:8.2f}{cheaper}   {goal}".rstrip())
    return "\n".join(lines)


def costs(folder: Path, batches: int) -> None:
    """Cost of a call on the recording thread."""
    on = Recorder(folder / "on", ProcInfo.here(0, "on"), stages=("thinker",), edges=(), flush_interval_s=3600)
    off = Recorder(folder / "off", ProcInfo.here(0, "off"), stages=("thinker",), edges=(), probes="off")
    cases = {
        "empty loop": empty,
        "clock reading": clock,
        "list.append(tuple)": list_append,
        "JSON line per event": json_lines(folder / "events.jsonl"),
        "event": event(on.writer("event")),
        "span": span(on.writer("span")),
        "span, by name": span_by_name(on.writer("named")),
        "off: method": off_method(off.writer("method")),
        "off: if writer.on": off_check(off.writer("check")),
    }
    print(table(measure(cases, batches, on.flush)))
    on.close()
    off.close()


def throughput(folder: Path) -> None:
    """Four threads at full speed, with flushing and sampling; then reading back and sealing."""
    recorder = Recorder(folder / "run", ProcInfo.here(0, "run"), stages=("thinker",), edges=())
    with Sampler(recorder, devices=()) as sampler:
        per_span = in_threads(recorder, 4, 50_000)
    recorder.close()
    counts, samples = recorder.statistics(), sampler.statistics()
    print(f"4 threads without pause: {per_span:.0f} ns per span, {counts.dropped} of {counts.taken} rows lost")
    print(f"background flush: {counts.flush_ns_per_event:.0f} ns of its own thread's CPU per row")
    print(f"sampler: {samples['cpu_ns'] / samples['samples'] / 1000:.0f} us of CPU per sample of /proc")
    start_ns = now()
    rows = read_segments(folder / "run").tables["span"].num_rows
    read_ns = now() - start_ns
    stages = [{"stage": "thinker", "role": "ar", "replicas": 1, "device": "cpu", "weights": "none"}]
    info = RunInfo("bench", "benchmark")
    seal(folder / "run", folder / "bench", info, stages=stages, edges=[], environment=Environment())
    seal_ns = now() - start_ns - read_ns
    print(f"reading back: {read_ns / rows:.0f} ns per span; sealing with reading: {seal_ns / rows:.0f} ns per span")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=200)
    batches = parser.parse_args().batches
    with tempfile.TemporaryDirectory() as folder:
        costs(Path(folder), batches)
        throughput(Path(folder))


if __name__ == "__main__":
    main()
