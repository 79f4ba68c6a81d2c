"""What a run was made on and with: hardware, package versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from workbench.trace.meters import PAGE_BYTES, PROC, Device, Unreadable

# Packages that can change what a recording holds.
PACKAGES = (
    "faster-whisper",
    "gguf",
    "numpy",
    "onnxruntime",
    "piper-tts",
    "pyarrow",
    "tokenizers",
    "torch",
    "workbench",
)


@dataclass(frozen=True, slots=True)
class Environment:
    """Hardware (JSON values), versions by package, and commit; the commit is None outside a repository."""

    hardware: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    commit: str | None = None

    @classmethod
    def here(cls) -> Environment:
        """The machine, packages and source of the calling process."""
        return cls(hardware(), versions(), commit())


def hardware() -> dict[str, Any]:
    """CPU model, usable cores, memory and accelerators of this machine; None where the system does not tell."""
    return {
        "accelerators": _accelerators(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "cpu": _cpu_model(),
        "machine": platform.machine(),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES,
        "system": f"{platform.system()} {platform.release()}",
    }


def versions(packages: Sequence[str] = PACKAGES) -> dict[str, str]:
    """Versions of Python and of those `packages` that are installed."""
    found = {"python": platform.python_version()}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit(folder: Path | None = None) -> str | None:
    """Commit of the sources in `folder` (this package by default), with ``+dirty`` if any differ from it.

    None if git or the repository is absent, or the folder is not part of the repository it lies in.
    """
    folder = folder or Path(__file__).parents[1]
    if not _git(folder, "ls-files", "--", "."):
        return None
    head = _git(folder, "rev-parse", "HEAD")
    changed = _git(folder, "status", "--porcelain", "--", ".")
    if not head or changed is None:
        return None
    return head + ("+dirty" if changed else "")


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of a git command, or None if it failed."""
    try:
        done = subprocess.run(
            ("git", "-C", str(folder), *arguments), capture_output=True, text=True, check=False, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _cpu_model() -> str | None:
    path = PROC / "cpuinfo"
    if not path.is_file():
        return platform.processor() or None
    for line in path.read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return None


def _accelerators() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while True:
        try:
            device = Device(len(found))
            memory_bytes = device.total_memory_bytes()
            found.append({"driver": device.driver(), "memory_bytes": memory_bytes, "name": device.model()})
        except Unreadable:
            return found
