"""Clocks of devices: when a launch began and ended on the device itself, where the device can tell.

On a CUDA device two events on the stream bracket each launch. Their times are placed on the host clock by a reference
event that is synchronized between two host readings; the half width of that bracket is the error of every device time.
On a CPU the host clock is the device clock and no separate reading exists: both times are None, not a copy.

The CUDA path has not run on a GPU yet; the README says so until it has.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch

from workbench.errors import MissingPrerequisite
from workbench.testbed.handoff import now_ns
from workbench.units import S_NS

REFERENCE_AGE_NS = 8 * S_NS  # float32 milliseconds resolve 0.5 us up to here


class DeviceTimer(Protocol):
    """Brackets one launch at a time."""

    def begin(self) -> None:
        """Just before the launch is dispatched."""

    def end(self) -> tuple[int | None, int | None]:
        """Wait for the launch to finish; device start and end in host nanoseconds, or None where unknown."""


class HostTimer:
    """For devices without a clock of their own."""

    def begin(self) -> None:
        """Nothing to do."""

    def end(self) -> tuple[int | None, int | None]:
        """The device keeps no clock: (None, None)."""
        return None, None


class CudaTimer:
    """CUDA events on the current stream.

    Attributes
    ----------
    err_ns : int
        Half width of the bracket that ties the device's clock to the host's.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event: Any = torch.cuda.Event
        self._first: Any = None
        self._last: Any = None
        self._reference: Any = None
        self._reference_ns = 0
        self.err_ns = 0
        self.synchronize_clocks()

    def synchronize_clocks(self) -> None:
        """Tie device to host again: the tightest of 20 brackets."""
        best: tuple[int, Any, int] | None = None
        for _ in range(20):
            event = self._event(enable_timing=True)
            torch.cuda.synchronize(self._device)
            before_ns = now_ns()
            event.record()
            event.synchronize()
            after_ns = now_ns()
            if best is None or after_ns - before_ns < best[0]:
                best = (after_ns - before_ns, event, (before_ns + after_ns) // 2)
        assert best is not None
        width_ns, self._reference, self._reference_ns = best
        self.err_ns = width_ns // 2

    def begin(self) -> None:
        """Record the first event; tie the clocks again when the reference is old: elapsed times are float32 ms."""
        if now_ns() - self._reference_ns > REFERENCE_AGE_NS:
            self.synchronize_clocks()
        self._first = self._event(enable_timing=True)
        self._last = self._event(enable_timing=True)
        self._first.record()

    def end(self) -> tuple[int | None, int | None]:
        """Record the last event, wait for it, and place both on the host clock."""
        self._last.record()
        self._last.synchronize()
        start_ns = self._reference_ns + round(self._reference.elapsed_time(self._first) * 1e6)
        end_ns = self._reference_ns + round(self._reference.elapsed_time(self._last) * 1e6)
        return start_ns, end_ns


def timer(device: torch.device) -> DeviceTimer:
    """The timer that fits a device."""
    return CudaTimer(device) if device.type == "cuda" else HostTimer()


def resolve(name: str) -> torch.device:
    """The device of that name.

    Raises
    ------
    MissingPrerequisite
        A CUDA device was asked for and there is none.
    """
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise MissingPrerequisite("a CUDA device", "none", where=f"device {name!r}", fix="Use --device cpu.")
    return device
