"""One notebook on its way through a kernel: staged, executed, and then published or set aside."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from workbench import notebook_form
from workbench.provenance import Scalar, file_sha256
from workbench.units import format_bytes

Tier = Literal["full", "smoke"]
Status = Literal["ran", "cached", "failed", "died"]

# Two kernels fill two cores; threads inside them only add noise, to times and to the last bits of float sums.
KERNEL_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "POLARS_MAX_THREADS": "1",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
}


def papermill_path(path: Path) -> str:
    """The path as papermill takes it: it applies ``str.format``, so braces in a folder name must be doubled."""
    return str(path).replace("{", "{{").replace("}", "}}")


# Jobs publish one at a time, so that two makers of one figure cannot both find it free.
_PUBLISHING = threading.Lock()


@dataclass(frozen=True, slots=True)
class NotebookResult:
    """What became of one notebook.

    Attributes
    ----------
    name : str
        File name without suffix.
    tier : str
        ``full`` or ``smoke``.
    status : str
        ``ran``, ``cached`` (nothing it depends on has changed), ``failed`` (a cell raised) or ``died`` (its kernel
        did).
    seconds : float
        Wall time of this run; for ``cached``, of the run that made the results.
    peak_bytes : int or None
        Largest resident size of the kernel; None where the system does not tell.
    notebook : Path
        The executed copy, or the ``.failed.ipynb`` with everything up to the failure.
    figures : tuple of str
        Names of the figure files it made.
    message : str
        Empty unless it failed: the cell, its first line, and the exception.
    """

    name: str
    tier: Tier
    status: Status
    seconds: float
    peak_bytes: int | None
    notebook: Path
    figures: tuple[str, ...] = ()
    message: str = ""

    def line(self) -> str:
        """The progress line of this notebook."""
        note = "" if self.status == "ran" else f"  {self.status}"
        return f"{self.name:<28} {self.tier:<5} {self.seconds:7.1f} s{note}{': ' if self.message else ''}{self.message}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where results go."""

    root: Path
    notebooks: Path
    figures: Path

    @classmethod
    def of(cls, root: Path, tier: Tier, out_dir: Path | None) -> Place:
        """The default folders of a tier below `root`, or those below `out_dir`."""
        if out_dir is not None:
            out_dir = out_dir.resolve()
            return cls(root, out_dir / "notebooks", out_dir / "figures")
        build = root / "build" if tier == "full" else root / "build" / "smoke"
        return cls(root, build / "notebooks", root / "figures" if tier == "full" else build / "figures")


class Job:
    """One notebook on its way: staged, executed in a kernel of its own, and published or set aside."""

    def __init__(self, path: Path, place: Place, tier: Tier, parameters: Mapping[str, Scalar], key: str) -> None:
        self.path, self.place, self.tier, self.key = path, place, tier, key
        self.parameters = dict(parameters)
        self.name = path.stem
        self.staging = place.notebooks / f".{self.name}.partial"
        self.output = place.notebooks / f"{self.name}.ipynb"
        self.failed = place.notebooks / f"{self.name}.failed.ipynb"
        self.key_file = place.notebooks / f"{self.name}.key"
        self.kernel_pid: int | None = None
        self.peak_bytes: int | None = None
        self.stopped = threading.Event()

    def cached(self) -> NotebookResult | None:
        """The former result, if its key is this job's key and all its files are still what it wrote."""
        try:
            record = json.loads(self.key_file.read_text())
            if record["key"] != self.key or record["notebook"] != file_sha256(self.output):
                return None
            for name, sha256 in record["figures"].items():
                if file_sha256(self.place.figures / name) != sha256:
                    return None
            figures = tuple(sorted(record["figures"]))
            seconds, peak_bytes = record["seconds"], record["peak_bytes"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return NotebookResult(self.name, self.tier, "cached", seconds, peak_bytes, self.output, figures)

    def run(self) -> NotebookResult:
        """Execute and publish. Called in a worker thread; raises only what is a defect of this module."""
        started = time.monotonic()
        shutil.rmtree(self.staging, ignore_errors=True)
        (self.staging / "figures").mkdir(parents=True)
        try:
            status, message = self._execute()
            seconds = round(time.monotonic() - started, 1)
            if status == "ran":
                return self._publish(seconds)
            if (partial := self.staging / "notebook.ipynb").exists() and not self.stopped.is_set():
                os.replace(partial, self.failed)
            return self._result(status, seconds, message=message)
        finally:
            shutil.rmtree(self.staging, ignore_errors=True)

    def kill(self) -> None:
        """End the kernel, and keep one that is just starting from living."""
        self.stopped.set()
        if (pid := self.kernel_pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def observe(self) -> None:
        """Note the kernel's largest resident size so far; it is gone with the process."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            status = Path(f"/proc/{self.kernel_pid}/status").read_text()
            self.peak_bytes = int(status.split("VmHWM:")[1].split()[0]) << 10

    def _execute(self) -> tuple[Status, str]:
        import papermill
        from nbclient.exceptions import DeadKernelError
        from nbformat import ValidationError
        from papermill.exceptions import PapermillExecutionError

        output = self.staging / "notebook.ipynb"
        figures = self.staging / "figures"
        root = self.place.root
        shown = figures.relative_to(root) if figures.is_relative_to(root) else figures
        values = self.parameters | {"tier": self.tier, "figures": shown.as_posix()}
        # Kernels talk over files in a short path of their own: no port to race for, and socket paths end at 107 bytes.
        with tempfile.TemporaryDirectory(prefix="nb-") as private, open(self.staging / "stderr", "w+b") as errors:
            try:
                papermill.execute_notebook(
                    papermill_path(self.path),
                    papermill_path(output),
                    values,
                    kernel_name="python3",
                    progress_bar=False,
                    coalesce_streams=True,
                    kernel_manager_class=_kernel_manager(self, Path(private), errors),
                )
            except PapermillExecutionError as err:
                _settle(output)
                reason = f"{err.ename}: {_first_line(err.evalue)}"
                return "failed", f"In [{err.exec_count}] `{_first_line(err.source)}` raised {reason}"
            except ValidationError as err:
                return "failed", f"a cell made an output that no notebook may hold: {_first_line(str(err))}"
            except (DeadKernelError, RuntimeError) as err:
                if self.stopped.is_set():
                    return "died", "interrupted"
                if output.exists():
                    _settle(output)
                errors.seek(0)
                return "died", self._obituary(err, errors.read())
        if unrun := _settle(output):
            return "failed", f"it left early: cell {unrun} was never run"
        return "ran", ""

    def _obituary(self, err: Exception, stderr: bytes) -> str:
        last = stderr.decode(errors="replace").strip().splitlines()[-1:]
        cause = f" Its last words: {last[0]}" if last else ""
        return (
            f"the kernel died ({err}), most often because memory ran out: its peak was "
            f"{format_bytes(self.peak_bytes)}.{cause}"
        )

    def _publish(self, seconds: float) -> NotebookResult:
        files = sorted(file for file in (self.staging / "figures").iterdir() if file.is_file())
        record = {
            "key": self.key,
            "seconds": seconds,
            "peak_bytes": self.peak_bytes,
            "notebook": file_sha256(self.staging / "notebook.ipynb"),
            "figures": {file.name: file_sha256(file) for file in files},
        }
        (self.staging / "key").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
        figures = tuple(file.name for file in files)
        with _PUBLISHING:
            if owner := self._other_owner(figures):
                os.replace(self.staging / "notebook.ipynb", self.failed)
                return self._result("failed", seconds, message=owner)
            self.place.figures.mkdir(parents=True, exist_ok=True)
            for file in files:
                os.replace(file, self.place.figures / file.name)
            os.replace(self.staging / "notebook.ipynb", self.output)
            os.replace(self.staging / "key", self.key_file)
        self.failed.unlink(missing_ok=True)
        return self._result("ran", seconds, figures=figures)

    def _other_owner(self, figures: tuple[str, ...]) -> str:
        """Why these figures may not be published: another notebook makes one of them, too. Empty if none does."""
        for file in sorted(self.place.notebooks.glob("*.key")):
            if file != self.key_file and (both := set(json.loads(file.read_text())["figures"]).intersection(figures)):
                return f"{file.stem} makes a figure of the same name: {min(both)}"
        return ""

    def _result(
        self, status: Status, seconds: float, *, figures: tuple[str, ...] = (), message: str = ""
    ) -> NotebookResult:
        notebook = self.output if status == "ran" else self.failed
        return NotebookResult(self.name, self.tier, status, seconds, self.peak_bytes, notebook, figures, message)


def _kernel_manager(job: Job, private: Path, errors: IO[bytes]) -> type:
    """A kernel manager class for one job: this interpreter, file sockets, our environment, and known to the job."""
    from ipykernel.kernelspec import RESOURCES, get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    class JobKernelManager(AsyncKernelManager):
        @property
        def kernel_spec(self) -> KernelSpec:
            # Not the registered "python3": on a reader's machine that may be another environment.
            return KernelSpec(resource_dir=str(RESOURCES), **get_kernel_dict())

        async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]  # it is declared too wide
            self.transport = "ipc"
            self.connection_file = str(private / "kernel.json")
            options["cwd"] = str(job.place.root)
            options["env"] = {**os.environ, **KERNEL_ENVIRONMENT, "IPYTHONDIR": str(private / "ipython")}
            options["stdout"] = options["stderr"] = errors
            await super().start_kernel(**options)
            job.kernel_pid = getattr(self.provisioner, "pid", None)
            if job.stopped.is_set():
                job.kill()

    return JobKernelManager


def _settle(path: Path) -> int | None:
    """Drop what differs between equal runs (times, random ids); return the position of a code cell that was not run."""
    notebook = notebook_form.read(path)
    notebook["metadata"] = notebook_form.METADATA
    unrun = None
    for position, cell in enumerate(notebook["cells"]):
        text = notebook_form.source(cell)
        cell["id"] = notebook_form.cell_id(position, text)
        cell["metadata"] = {"tags": tags} if (tags := cell["metadata"].get("tags")) else {}
        if cell["cell_type"] == "code" and text.strip() and cell["execution_count"] is None and unrun is None:
            unrun = position
    path.write_text(notebook_form.dumps(notebook), encoding="utf-8")
    return unrun


def _first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("#")]
    return lines[0] if lines else ""
