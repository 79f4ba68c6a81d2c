"""Readings against what the interpreter and the C interface say, and wrap-around taken out."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.trace import meters

HANDLE = 0xC0FFEE
NOT_SUPPORTED = 3


def test_proc_readings_agree_with_the_interpreter() -> None:
    thread = threading.get_native_id()
    before_ns = time.thread_time_ns()
    until = before_ns + 30_000_000
    start_ns = meters.thread_cpu_ns(thread)
    while time.thread_time_ns() < until:
        pass
    measured_ns = meters.thread_cpu_ns(thread) - start_ns
    assert 15_000_000 < measured_ns < 200_000_000
    voluntary, _ = meters.thread_switches(thread)
    time.sleep(0.002)
    assert meters.thread_switches(thread)[0] > voluntary
    assert meters.rss_bytes() > 10 << 20
    assert meters.machine_cpu_ns() > 0


def test_a_thread_that_is_gone_is_unreadable_with_its_path() -> None:
    with pytest.raises(meters.Unreadable, match="task/999999999/schedstat"):
        meters.thread_cpu_ns(999_999_999)


def zone(root: Path, name: str, counter_uj: int, range_uj: int) -> Path:
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "name").write_text("package-0\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    (folder / "energy_uj").write_text(f"{counter_uj}\n")
    return folder


@given(steps=st.lists(st.integers(0, 262_143_000_000 - 1), max_size=20), first=st.integers(0, 262_143_000_000 - 1))
def test_rapl_wraps_without_a_jump(tmp_path_factory: pytest.TempPathFactory, steps: list[int], first: int) -> None:
    """Any energy between readings, up to one full range less one, is counted exactly."""
    range_uj, total_uj = 262_143_000_000, 0
    folder = zone(tmp_path_factory.mktemp("rapl"), "intel-rapl:0", first, range_uj)
    counter = meters.Rapl(folder)
    for step in steps:
        total_uj += step
        (folder / "energy_uj").write_text(str((first + total_uj) % range_uj))
        assert counter.energy_mj() == total_uj // 1000


def test_only_package_zones_are_read(tmp_path: Path) -> None:
    for name in ("intel-rapl:1", "intel-rapl:0", "intel-rapl:0:0", "intel-rapl"):
        zone(tmp_path, name, 5, 100)
    assert [found.name for found in meters.rapl_zones(tmp_path)] == ["intel-rapl:0:package-0", "intel-rapl:1:package-0"]


def test_no_zone_or_no_permission_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(meters.Unreadable, match="no RAPL zone"):
        meters.rapl_zones(tmp_path)
    (zone(tmp_path, "intel-rapl:0", 5, 100) / "energy_uj").unlink()
    with pytest.raises(meters.Unreadable, match="energy_uj: No such file"):
        meters.rapl_zones(tmp_path)


class Nvml:
    """Functions with NVML's C signatures, called through ctypes as the driver's own would be."""

    def __init__(self) -> None:
        self.chosen: Any = None
        self.kept: list[Any] = []
        pointer, number, counter = ctypes.c_void_p, ctypes.c_uint, ctypes.c_ulonglong
        self.message = ctypes.create_string_buffer(b"Not Supported")
        self.nvmlErrorString = ctypes.CFUNCTYPE(pointer, ctypes.c_int)(lambda _: ctypes.addressof(self.message))
        self.nvmlInit_v2 = self.function(lambda: 0)
        self.nvmlDeviceGetHandleByIndex_v2 = self.function(self.by_index, number, pointer)
        self.nvmlDeviceGetHandleByUUID = self.function(self.by_uuid, ctypes.c_char_p, pointer)
        self.nvmlDeviceGetMemoryInfo = self.function(
            self.reading(counter, 80 << 30, 50 << 30, 30 << 30), pointer, pointer
        )
        self.nvmlDeviceGetUtilizationRates = self.function(self.reading(number, 37, 5), pointer, pointer)
        self.nvmlDeviceGetPowerUsage = self.function(self.reading(number, 412_345), pointer, pointer)
        self.nvmlDeviceGetTotalEnergyConsumption = self.function(lambda *_: NOT_SUPPORTED, pointer, pointer)
        self.nvmlDeviceGetName = self.function(self.name, pointer, pointer, number)

    def function(self, body: Any, *arguments: Any) -> Any:
        self.kept.append(ctypes.CFUNCTYPE(ctypes.c_int, *arguments)(body))
        return self.kept[-1]

    def by_index(self, index: int, handle: int) -> int:
        self.chosen, ctypes.c_void_p.from_address(handle).value = index, HANDLE
        return 0

    def by_uuid(self, uuid: bytes, handle: int) -> int:
        self.chosen, ctypes.c_void_p.from_address(handle).value = uuid, HANDLE
        return 0

    def reading(self, type_: Any, *values: int) -> Any:
        def read(handle: int, result: int) -> int:
            (type_ * len(values)).from_address(result)[:] = values
            return 0 if handle == HANDLE else NOT_SUPPORTED

        return read

    def name(self, handle: int, text: int, size: int) -> int:
        ctypes.memmove(text, b"Device 9000\0", 12)
        return 0 if (handle, size) == (HANDLE, 96) else NOT_SUPPORTED


def test_nvml_structures_units_and_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    nvml = Nvml()
    device = meters.Device(1, nvml)
    assert nvml.chosen == 1
    assert (device.memory_bytes(), device.total_memory_bytes()) == (30 << 30, 80 << 30)
    assert device.busy_permille() == 370
    assert device.power_mw() == 412_345
    assert device.model() == "Device 9000"
    with pytest.raises(meters.Unreadable, match="nvmlDeviceGetTotalEnergyConsumption: Not Supported"):
        device.energy_mj()
    with pytest.raises(meters.Unreadable, match="no nvmlSystemGetDriverVersion"):
        device.driver()


@pytest.mark.parametrize(
    ("visible", "index", "chosen"),
    [("", 0, 0), ("3,1", 1, 1), ("3,1", 0, 3), ("GPU-12ab, MIG-34", 1, b"MIG-34")],
)
def test_devices_are_numbered_as_cuda_does(
    monkeypatch: pytest.MonkeyPatch, visible: str, index: int, chosen: int | bytes
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvml = Nvml()
    meters.Device(index, nvml)
    assert nvml.chosen == chosen


def test_a_hidden_device_is_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(meters.Unreadable, match="CUDA_VISIBLE_DEVICES=0 has no device 1"):
        meters.Device(1, Nvml())


def test_page_and_tick_are_the_systems() -> None:
    assert os.sysconf("SC_PAGE_SIZE") == meters.PAGE_BYTES
    assert os.sysconf("SC_CLK_TCK") * meters.TICK_NS == 1_000_000_000
