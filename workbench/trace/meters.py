"""Readings of the machine: /proc, RAPL and NVML, each by the shortest way and without packages.

A reading that cannot be had raises `Unreadable` with the reason; it is never zero and never guessed. NVML's energy
counter advances every 10 to 100 ms depending on the part, and its power reading is an average of up to 1 s, so that
neither says anything about a single chunk. RAPL's counter wraps and is usually readable by root only.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

PROC = Path("/proc")
POWERCAP = Path("/sys/class/powercap")
NVML_LIBRARY = "libnvidia-ml.so.1"

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Unreadable(Exception):
    """A reading cannot be had here; the message says why."""


def rss_bytes() -> int:
    """Resident memory of this process."""
    return int(_text(PROC / "self/statm").split()[1]) * PAGE_BYTES


def machine_cpu_ns() -> int:
    """Busy CPU time of all cores since boot, in steps of a scheduler tick (usually 10 ms)."""
    user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, _text(PROC / "stat").split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) * TICK_NS


def thread_cpu_ns(thread: int) -> int:
    """CPU time of one thread of this process, by its native id."""
    return int(_text(PROC / f"self/task/{thread}/schedstat").split()[0])


def thread_switches(thread: int) -> tuple[int, int]:
    """Voluntary and involuntary context switches of one thread of this process."""
    lines = dict(line.split(":", 1) for line in _text(PROC / f"self/task/{thread}/status").splitlines() if ":" in line)
    return int(lines["voluntary_ctxt_switches"]), int(lines["nonvoluntary_ctxt_switches"])


class Rapl:
    """Energy of one RAPL package zone since this object was made, in millijoule.

    Parameters
    ----------
    zone : Path
        Folder with ``energy_uj`` and ``max_energy_range_uj``; read it more often than it wraps (minutes at least).
    """

    def __init__(self, zone: Path) -> None:
        self.name = f"{zone.name}:{_text(zone / 'name').strip()}"
        self._zone = zone
        self._range_uj = int(_text(zone / "max_energy_range_uj"))
        self._last_uj = self._counter_uj()
        self._total_uj = 0

    def energy_mj(self) -> int:
        """Millijoule so far, wrap-around taken out."""
        counter_uj = self._counter_uj()
        step_uj = counter_uj - self._last_uj
        self._total_uj += step_uj if step_uj >= 0 else step_uj + self._range_uj
        self._last_uj = counter_uj
        return self._total_uj // 1000

    def _counter_uj(self) -> int:
        return int(_text(self._zone / "energy_uj"))


def rapl_zones(root: Path = POWERCAP) -> list[Rapl]:
    """All package zones (``intel-rapl:0``, not their sub-zones).

    Raises
    ------
    Unreadable
        There is none, or the counters may not be read.
    """
    zones = sorted(zone for zone in root.glob("*-rapl:*") if zone.name.count(":") == 1)
    if not zones:
        raise Unreadable(f"no RAPL zone in {root}")
    return [Rapl(zone) for zone in zones]


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class Device:
    """One NVIDIA device.

    Parameters
    ----------
    index : int
        Number as CUDA counts, that is, after ``CUDA_VISIBLE_DEVICES``.
    nvml : optional
        The loaded library; the driver's own if not given.

    Raises
    ------
    Unreadable
        NVML, its driver or the device is not there; from the readings, if the part does not offer one.
    """

    def __init__(self, index: int, nvml: Any = None) -> None:
        self._handle = ctypes.c_void_p()
        self._nvml = nvml if nvml is not None else _load_nvml()
        self._nvml.nvmlErrorString.restype = ctypes.c_char_p
        self._call("nvmlInit_v2")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        entries = [entry.strip() for entry in visible.split(",")] if visible.strip() else []
        if entries and index >= len(entries):
            raise Unreadable(f"CUDA_VISIBLE_DEVICES={visible} has no device {index}")
        entry = entries[index] if entries else str(index)
        if entry.isdecimal():
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(entry)), ctypes.byref(self._handle))
        else:
            self._call("nvmlDeviceGetHandleByUUID", entry.encode(), ctypes.byref(self._handle))

    def memory_bytes(self) -> int:
        """Device memory in use, by all processes."""
        return int(self._memory().used)

    def total_memory_bytes(self) -> int:
        """Device memory in all."""
        return int(self._memory().total)

    def busy_permille(self) -> int:
        """Share of the driver's last sample period in which a kernel ran; its resolution is 10."""
        utilization = _Utilization()
        self._call("nvmlDeviceGetUtilizationRates", self._handle, ctypes.byref(utilization))
        return 10 * int(utilization.gpu)

    def power_mw(self) -> int:
        """Power, milliwatt."""
        value = ctypes.c_uint()
        self._call("nvmlDeviceGetPowerUsage", self._handle, ctypes.byref(value))
        return value.value

    def energy_mj(self) -> int:
        """Energy since the driver was loaded, millijoule."""
        value = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self._handle, ctypes.byref(value))
        return value.value

    def model(self) -> str:
        """Product name."""
        return self._string("nvmlDeviceGetName", self._handle)

    def driver(self) -> str:
        """Version of the driver."""
        return self._string("nvmlSystemGetDriverVersion")

    def _memory(self) -> _Memory:
        memory = _Memory()
        self._call("nvmlDeviceGetMemoryInfo", self._handle, ctypes.byref(memory))
        return memory

    def _string(self, function: str, *arguments: object) -> str:
        text = ctypes.create_string_buffer(96)
        self._call(function, *arguments, text, ctypes.c_uint(len(text)))
        return text.value.decode(errors="replace")

    def _call(self, function: str, *arguments: object) -> None:
        try:
            status = getattr(self._nvml, function)(*arguments)
        except AttributeError as error:
            raise Unreadable(f"this NVML has no {function}") from error
        if status:
            raise Unreadable(f"{function}: {self._nvml.nvmlErrorString(status).decode(errors='replace')}")


def _load_nvml() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(NVML_LIBRARY)
    except OSError as error:
        raise Unreadable(f"NVML cannot be loaded: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from error
