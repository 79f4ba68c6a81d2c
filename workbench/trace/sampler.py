"""The sampler: a background thread that reads gauges, energy counters and host costs at a fixed interval.

What cannot be read is written once as NULL, with an ``unavailable`` event that says why, and not tried again. The
sampler's own CPU time is part of its statistics and, through them, of the manifest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from workbench.errors import UsageError
from workbench.trace import meters
from workbench.trace.calibration import now
from workbench.trace.columns import CODE
from workbench.trace.recorder import Recorder

GAUGE = CODE["gauge_name"]
SOURCE = CODE["energy_source"]
UNAVAILABLE = CODE["event_kind"]["unavailable"]

# Enough for a cumulative counter: per-thread CPU and context switches are written at every tenth sample.
HOST_EVERY = 10

Write = Callable[[Any], None]


class Sampler:
    """Samples one process and, if `devices` are given, their memory, use, power and energy.

    With probes off nothing is sampled. Stop it before the recorder is closed.

    Parameters
    ----------
    recorder : Recorder
    interval_s : float
        Time between samples, 20 to 50 ms for energy counters that advance every 10 to 100 ms.
    devices : sequence of int
        CUDA device numbers. Gauges of a device carry its number as `replica`.
    host_energy : bool
        Read RAPL package counters.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from workbench.trace.recorder import ProcInfo
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Recorder(Path(folder.name), ProcInfo.here(0, "server"), stages=("thinker",), edges=()) as recorder:
    ...     with Sampler(recorder, devices=()) as sampler:
    ...         sampler.add_gauge("queue_depth", lambda: 3, stage=recorder.stage_code["thinker"], replica=0)
    >>> sampler.statistics()["samples"] >= 1
    True
    """

    def __init__(
        self, recorder: Recorder, *, interval_s: float = 0.05, devices: Sequence[int] = (0,), host_energy: bool = True
    ) -> None:
        if interval_s <= 0:
            raise UsageError("a positive interval", f"{interval_s} s", where="Sampler")
        self._writer = recorder.writer("sampler")
        self._interval_ns = round(interval_s * 1e9)
        self._readings: list[_Reading] = []
        self._threads: list[_WatchedThread] = []
        self._changing = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)
        self._samples = self._cpu_ns = self._late = self._latest_ns = 0
        self._devices = tuple(devices)
        self._host_energy = host_energy
        recorder.attach("sampler", self.statistics)

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to sample; does nothing with probes off."""
        if not self._writer.on:
            return
        self.add_gauge("rss_bytes", meters.rss_bytes)
        self.add_gauge("process_cpu_ns", time.process_time_ns)
        self.add_gauge("machine_cpu_ns", meters.machine_cpu_ns)
        for index in self._devices:
            self._add_device(index)
        if self._host_energy:
            self._add_rapl()
        self._thread.start()

    def stop(self) -> None:
        """Take a last sample and end the thread. Does nothing the second time."""
        if self._stopped.is_set():
            return
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def add_gauge(
        self, name: str, read: Callable[[], int], *, stage: int | None = None, replica: int | None = None
    ) -> None:
        """Sample `read` as gauge `name` from now on.

        Parameters
        ----------
        name : str
            Value of the vocabulary ``gauge_name``.
        read : callable
            Returns an integer. It runs on the sampler's thread, so that it must not block; if it raises, that is
            recorded as ``unavailable`` and it is not called again.
        stage, replica : int, optional
            Stage code and replica that it describes.
        """
        if name not in GAUGE:
            raise UsageError(f"a gauge in {tuple(GAUGE)}", repr(name), where="Sampler.add_gauge")
        code, gauge = GAUGE[name], self._writer.gauge
        self._add(name, read, lambda value: gauge(now(), code, stage, replica, value), stage)

    def add_model(self, device: str, modeled_mj: Callable[[], int]) -> None:
        """Sample a cumulative modeled energy, millijoule; it never shares a column with a measured one."""
        energy = self._writer.energy

        def write(value: int | None) -> None:
            at_ns = now()
            energy(SOURCE["model"], device, at_ns, at_ns, None, None, value)

        self._add(f"modeled energy of {device}", modeled_mj, write, None)

    def watch_thread(self, *, stage: int | None = None, replica: int | None = None, thread: int | None = None) -> None:
        """Write ``host`` rows for a thread from now on: the calling one, or the one with native id `thread`."""
        watched = _WatchedThread(thread if thread is not None else threading.get_native_id(), stage, replica)
        try:
            watched.advance()
        except meters.Unreadable as error:
            self._miss(f"thread {watched.thread}", str(error), stage, lambda _: self._write_host(watched, 0, None))
            return
        with self._changing:
            self._threads.append(watched)

    def statistics(self) -> dict[str, Any]:
        """``samples`` taken, ``cpu_ns`` they cost, how many began over one interval ``late``, ``max_late_ns``."""
        return {
            "interval_ns": self._interval_ns,
            "samples": self._samples,
            "cpu_ns": self._cpu_ns,
            "late": self._late,
            "max_late_ns": self._latest_ns,
        }

    def _add(self, name: str, read: Callable[[], int], write: Write, stage: int | None) -> None:
        with self._changing:
            self._readings.append(_Reading(name, read, write, stage))

    def _add_device(self, index: int) -> None:
        name = f"cuda:{index}"
        try:
            device = meters.Device(index)
        except meters.Unreadable as error:
            for gauge in ("device_memory_bytes", "device_busy_permille"):
                self._writer.gauge(now(), GAUGE[gauge], None, index, None)
            self._miss(f"energy and gauges of {name}", str(error), None, self._energy(SOURCE["nvml"], name))
            return
        self.add_gauge("device_memory_bytes", device.memory_bytes, replica=index)
        self.add_gauge("device_busy_permille", device.busy_permille, replica=index)
        self._add(f"energy counter of {name}", *self._timed(SOURCE["nvml"], name, device.energy_mj), None)
        self._add(f"power of {name}", *self._timed(SOURCE["nvml"], name, device.power_mw, power=True), None)

    def _add_rapl(self) -> None:
        try:
            zones = meters.rapl_zones()
        except meters.Unreadable as error:
            self._miss("energy of the CPU", str(error), None, self._energy(SOURCE["rapl"], "cpu"))
            return
        for zone in zones:
            self._add(f"energy counter of {zone.name}", *self._timed(SOURCE["rapl"], zone.name, zone.energy_mj), None)

    def _timed(
        self, source: int, device: str, read: Callable[[], int], *, power: bool = False
    ) -> tuple[Callable[[], int], Write]:
        """A reading that keeps the clock around itself, and the writer of its energy row."""
        begin_ns = [0]

        def timed() -> int:
            begin_ns[0] = now()
            return read()

        def write(value: int | None) -> None:
            counter_mj, power_mw = (None, value) if power else (value, None)
            self._writer.energy(source, device, begin_ns[0], now(), counter_mj, power_mw)

        return timed, write

    def _energy(self, source: int, device: str) -> Write:
        def write(value: Any) -> None:
            at_ns = now()
            self._writer.energy(source, device, at_ns, at_ns, value)

        return write

    def _run(self) -> None:
        due_ns = now()
        last = False
        while not last:
            last = self._stopped.wait(max(0, due_ns - now()) / 1e9)
            start_ns = now()
            late_ns = 0 if last else start_ns - due_ns
            self._latest_ns = max(self._latest_ns, late_ns)
            self._late += late_ns > self._interval_ns
            cpu_ns = time.thread_time_ns()
            self._sample(last)
            self._cpu_ns += time.thread_time_ns() - cpu_ns
            self._samples += 1
            # A sample that came late is not made up for by a burst.
            due_ns = max(due_ns + self._interval_ns, start_ns)

    def _sample(self, last: bool) -> None:
        with self._changing:
            readings, threads = tuple(self._readings), tuple(self._threads)
        for reading in readings:
            try:
                value = reading.read()
            except Exception as error:  # whatever a registered gauge raises must not end the others
                reason = str(error) if isinstance(error, meters.Unreadable) else repr(error)
                self._miss(reading.name, reason, reading.stage, reading.write)
                with self._changing:
                    self._readings.remove(reading)
            else:
                reading.write(value)
        if last or self._samples % HOST_EVERY == HOST_EVERY - 1:
            for watched in threads:
                self._sample_thread(watched)

    def _sample_thread(self, watched: _WatchedThread) -> None:
        try:
            interval_ns, costs = watched.advance()
        except meters.Unreadable as error:
            self._miss(f"thread {watched.thread}", str(error), watched.stage, None)
            with self._changing:
                self._threads.remove(watched)
        else:
            self._write_host(watched, interval_ns, costs)

    def _write_host(self, watched: _WatchedThread, interval_ns: int, costs: tuple[int, int, int] | None) -> None:
        self._writer.host(now(), interval_ns, watched.stage, watched.replica, *(costs or (None, None, None)))

    def _miss(self, name: str, reason: str, stage: int | None, write: Write | None) -> None:
        """Say once that a reading cannot be had."""
        if write is not None:
            write(None)
        self._writer.event(now(), UNAVAILABLE, None, stage, f"{name}: {reason}")


class _Reading:
    """Something to sample: how to read it, where its values go."""

    __slots__ = ("name", "read", "stage", "write")

    def __init__(self, name: str, read: Callable[[], int], write: Write, stage: int | None) -> None:
        self.name, self.read, self.write, self.stage = name, read, write, stage


class _WatchedThread:
    """A thread and what it had used at the last look."""

    __slots__ = ("_at_ns", "_costs", "replica", "stage", "thread")

    def __init__(self, thread: int, stage: int | None, replica: int | None) -> None:
        self.thread, self.stage, self.replica = thread, stage, replica
        self._at_ns = 0
        self._costs = (0, 0, 0)

    def advance(self) -> tuple[int, tuple[int, int, int]]:
        """Nanoseconds since the last look, and CPU ns, voluntary and involuntary switches in them."""
        at_ns, costs = now(), (meters.thread_cpu_ns(self.thread), *meters.thread_switches(self.thread))
        interval_ns, before = at_ns - self._at_ns, self._costs
        self._at_ns, self._costs = at_ns, costs
        return interval_ns, (costs[0] - before[0], costs[1] - before[1], costs[2] - before[2])
