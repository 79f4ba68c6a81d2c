"""Run notebooks: one process drives papermill over many kernels, and what has not changed is not run again.

A notebook writes its figures into a folder of its own; only when its last cell has passed do the figures and the
executed copy take the places of the former ones. So a failure, a dead kernel or Ctrl-C leaves the last good results as
they were.
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import hashlib
import json
import logging
import os
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Literal

from workbench import notebook_form, provenance
from workbench.errors import UsageError
from workbench.notebook_job import Job, NotebookResult, Place, Tier, papermill_path
from workbench.provenance import Scalar, file_sha256

POLL_S = 0.25


def exit_code(results: Iterable[NotebookResult]) -> int:
    """0 when all ran or were cached, 138 when a kernel died, else 1."""
    states = {result.status for result in results}
    return 138 if "died" in states else 1 if "failed" in states else 0


def run_notebooks(
    names: Sequence[str] | Literal["all"] = "all",
    parameters: Mapping[str, Scalar] | None = None,
    *,
    tier: Tier = "full",
    jobs: int | None = None,
    force: bool = False,
    out_dir: Path | None = None,
    root: Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> list[NotebookResult]:
    """Execute notebooks, in parallel, and publish their figures.

    Parameters
    ----------
    names : sequence of str or "all"
        Names below ``notebooks/``: ``01_shadow_profile``, ``01``, or a path.
    parameters : mapping, optional
        Values for the notebooks' ``parameters`` cells; every notebook named must declare each one. Text is read by the
        declared type, so ``{"seed": "3"}`` from a command line works.
    tier : {"full", "smoke"}
        Passed to the notebooks, which take a tiny input for ``smoke``.
    jobs : int, optional
        Kernels at once; the usable cores by default.
    force : bool
        Run also what is cached.
    out_dir : Path, optional
        Executed copies go to ``out_dir/notebooks`` and figures to ``out_dir/figures``. By default ``build/notebooks``
        and ``figures`` for ``full``, ``build/smoke/notebooks`` and ``build/smoke/figures`` for ``smoke``.
    root : Path, optional
        Project root and working directory of the kernels; by default the checkout this package is in.
    progress : callable, optional
        Receives one line per finished notebook; standard error by default.

    Returns
    -------
    list of NotebookResult
        In the order of `names`. See `exit_code`.

    Raises
    ------
    UsageError
        An unknown notebook or parameter, a value of the wrong type, a notebook without its required parameters.
    KeyboardInterrupt
        After every kernel is gone and every unfinished result is removed.
    """
    say = progress or (lambda line: print(line, file=sys.stderr, flush=True))
    place = Place.of((root or Path(__file__).parent.parent).resolve(), tier, out_dir)
    notebooks = _find(place.root, names)
    for path in notebooks:
        _check_contract(path)
    given = {path: _accepted(path, parameters) if parameters else {} for path in notebooks}
    shared = _shared_key(place.root)
    with _alone(place, say):
        pending: list[Job] = []
        results: dict[Path, NotebookResult] = {}
        for path in notebooks:
            job = Job(path, place, tier, given[path], _key(path, given[path], tier, place.root, shared))
            if force or (cached := job.cached()) is None:
                job.key_file.unlink(missing_ok=True)
                pending.append(job)
            else:
                results[path] = cached
                say(cached.line())
        if pending:
            _run_all(pending, jobs or min(_cores(), len(pending)), results, say)
    return [results[path] for path in notebooks]


def _run_all(pending: list[Job], jobs: int, results: dict[Path, NotebookResult], say: Callable[[str], None]) -> None:
    """Run jobs in threads: the work is in the kernels, and importing papermill once serves all."""
    # What they say goes into results; without a handler Python would print it between the progress lines.
    for chatty in ("papermill", "asyncio"):
        logging.getLogger(chatty).addHandler(logging.NullHandler())
    with ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="notebook") as pool:
        running: dict[Future[NotebookResult], Job] = {pool.submit(job.run): job for job in pending}
        try:
            while running:
                done, _ = wait(running, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for job in running.values():
                    job.observe()
                for future in done:
                    job = running.pop(future)
                    results[job.path] = future.result()
                    say(results[job.path].line())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for job in running.values():
                job.kill()
            raise


def _check_contract(path: Path) -> None:
    """Refuse, before anything runs, a notebook that could not be told its tier or where its figures go."""
    cells = notebook_form.parameter_cells(notebook_form.read(path))
    declared = notebook_form.parameter_names(cells[0]) if cells else []
    if missing := [name for name in notebook_form.REQUIRED_PARAMETERS if name not in declared]:
        raise UsageError(
            "a cell tagged `parameters` that declares tier: str and figures: str",
            f"no {' and no '.join(missing)}",
            where=path.name,
        )


def _accepted(path: Path, parameters: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The parameters, read by the types that the notebook declares."""
    import papermill

    declared = papermill.inspect_notebook(papermill_path(path))
    accepted: dict[str, Scalar] = {}
    for name, value in parameters.items():
        if name in notebook_form.REQUIRED_PARAMETERS:
            raise UsageError(f"`{name}` as an option of the run", "a notebook parameter", where=path.name)
        if name not in declared:
            near = difflib.get_close_matches(name, declared, n=1)
            fix = f"Did you mean {near[0]}?" if near else ""
            raise UsageError(f"a parameter out of {', '.join(declared)}", repr(name), where=path.name, fix=fix)
        accepted[name] = _typed(name, value, declared[name]["inferred_type_name"], path.name)
    return accepted


_READ: dict[str, Callable[[str], Scalar]] = {
    "int": int,
    "float": float,
    "str": str,
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
}
_TYPES: dict[str, tuple[type, ...]] = {"int": (int,), "float": (float, int), "str": (str,), "bool": (bool,)}


def _typed(name: str, value: Scalar, declared: str, where: str) -> Scalar:
    if declared not in _READ:
        return value
    if isinstance(value, str):
        try:
            return _READ[declared](value)
        except (ValueError, KeyError) as err:
            raise UsageError(f"{name} of type {declared}", f"{name}={value!r}", where=where) from err
    if not isinstance(value, _TYPES[declared]) or (isinstance(value, bool) and declared != "bool"):
        raise UsageError(f"{name} of type {declared}", f"{name}={value!r}", where=where)
    return value


def _find(root: Path, names: Sequence[str] | Literal["all"]) -> list[Path]:
    """Notebook files by name, unambiguous prefix or path, each once, in the order named."""
    known = {path.stem: path for path in sorted((root / "notebooks").glob("*.ipynb"))}
    if names == "all":
        return list(known.values())
    found: dict[Path, None] = {}
    for name in [names] if isinstance(names, str) else names:
        stem = Path(name).name.removesuffix(".ipynb")
        matches = [stem] if stem in known else [other for other in known if other.startswith(stem)]
        if len(matches) != 1:
            near = difflib.get_close_matches(stem, known, n=1)
            fix = f"Did you mean {near[0]}?" if near else ""
            raise UsageError(f"one notebook out of {', '.join(known) or 'none'}", repr(name), fix=fix)
        found[known[matches[0]]] = None
    return list(found)


def _shared_key(root: Path) -> dict[str, str]:
    """Hashes of what every notebook depends on."""
    data = [*(root / "data").rglob("manifest.json"), *(root / "data" / "published").rglob("*")]
    return {
        "code": provenance.source_sha256(),
        "data": provenance.tree_sha256((file for file in set(data) if file.is_file()), root),
        "locks": provenance.tree_sha256((root / "locks").glob("*.txt"), root),
        "python": platform.python_version(),
    }


def _key(path: Path, parameters: Mapping[str, Scalar], tier: Tier, root: Path, shared: Mapping[str, str]) -> str:
    """SHA-256 over everything the result of a notebook depends on, runs named by a parameter included."""
    named: dict[str, str] = {}
    for name, value in parameters.items():
        if isinstance(value, str) and value and (manifest := root / value / "manifest.json").is_file():
            named[name] = file_sha256(manifest)
    content = {"notebook": file_sha256(path), "parameters": dict(parameters), "tier": tier, "named": named, **shared}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def _alone(place: Place, say: Callable[[str], None]) -> Iterator[None]:
    """One run at a time per output folder; a second one waits and then finds most of its work done."""
    place.notebooks.mkdir(parents=True, exist_ok=True)
    with open(place.notebooks / ".lock", "wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another run writes to {place.notebooks}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
