"""Rules of the whole suite: one thread per library, fixed random examples, named skips, and a long tier that resumes.

Options: ``--allowed-skips FILE`` fails the run on a skip that the file does not list; ``--soak-budget 30m`` remembers
in ``build/soak.json`` which long tests passed with this code, runs the others, and starts none after the budget.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Before numpy or torch are imported: sums and timings must not depend on the number of cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(_name, "1")

ROOT = Path(__file__).resolve().parent.parent
SKIPS = ROOT / "build" / "skips.txt"
SOAK = ROOT / "build" / "soak.json"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")

hypothesis.settings.register_profile("test", derandomize=True, deadline=None, database=None, max_examples=25)
hypothesis.settings.register_profile("soak", derandomize=True, deadline=None, database=None, max_examples=1_000)


def budget_seconds(text: str) -> float:
    """Seconds of "90", "90s", "30m" or "2h"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text)
    if not match:
        raise pytest.UsageError(f"--soak-budget: expected a time such as 90s, 30m or 2h, found {text!r}")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def code_hash() -> str:
    """SHA-256 over everything a long test can depend on: a pass counts only for the code that passed."""
    digest = hashlib.sha256()
    files = [ROOT / "pyproject.toml"]
    for folder in ("data", "locks", "notebooks", "tests", "workbench"):
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    for path in sorted(files):
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def missing_weights() -> list[str]:
    """Packages of ``locks/weights.txt`` that are not installed at the version it pins."""
    lock = ROOT / "locks" / "weights.txt"
    missing = []
    for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", lock.read_text(), flags=re.MULTILINE):
        try:
            found = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found = ""
        if found != version:
            missing.append(f"{name}=={version}")
    return missing


def cuda_present() -> bool:
    """Whether torch is installed and sees a CUDA device."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("workbench")
    group.addoption("--allowed-skips", metavar="FILE", help="fail on any skip that FILE does not list")
    group.addoption("--soak-budget", metavar="TIME", help="resume the long tier and start no test after TIME")


def pytest_configure(config: pytest.Config) -> None:
    budget = config.getoption("--soak-budget")
    hypothesis.settings.load_profile("soak" if budget else "test")
    config.pluginmanager.register(SkipList(config), "workbench-skips")
    if budget:
        config.pluginmanager.register(Soak(config, budget_seconds(budget)), "workbench-soak")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("weights") and (missing := missing_weights()):
        pytest.skip(f"weights are not installed ({', '.join(missing)}): make weights")
    if item.get_closest_marker("chromium") and not any(map(shutil.which, CHROMIUM)):
        pytest.skip(f"no Chromium on the path ({', '.join(CHROMIUM)})")
    if item.get_closest_marker("device") and not cuda_present():
        pytest.skip("no CUDA device")


class SkipList:
    """Writes every skip with its reason to ``build/skips.txt`` and fails the run on one that is not allowed."""

    def __init__(self, config: pytest.Config) -> None:
        self.is_worker = hasattr(config, "workerinput")
        self.skips: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.allowed: list[str] | None = None
        if path := config.getoption("--allowed-skips"):
            lines = [line.split("#")[0].strip() for line in Path(path).read_text().splitlines()]
            self.allowed = [line.split(" | ")[0].strip() for line in lines if line]

    def note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skips[report.nodeid] = reason.removeprefix("Skipped: ")

    pytest_runtest_logreport = note
    pytest_collectreport = note

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.is_worker:
            return
        SKIPS.parent.mkdir(exist_ok=True)
        SKIPS.write_text("".join(f"{node} | {reason}\n" for node, reason in sorted(self.skips.items())))
        if self.allowed is not None:
            self.refused = {
                node: reason
                for node, reason in self.skips.items()
                if not any(fnmatch.fnmatchcase(node, pattern) for pattern in self.allowed)
            }
            if self.refused and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for node, reason in sorted(self.refused.items()):
            terminalreporter.write_line(f"SKIP NOT ALLOWED {node} | {reason}", red=True)


class Soak:
    """Runs the long tests that have not passed with this code yet, and starts none after the budget.

    With xdist the controller alone reads and writes the state; workers get the list of passed tests and the deadline
    when they start, so that all of them collect the same tests.
    """

    def __init__(self, config: pytest.Config, budget_s: float) -> None:
        given = getattr(config, "workerinput", {}).get("soak")
        self.is_worker = given is not None
        self.code = "" if given else code_hash()
        self.done: dict[str, float] = {} if given else self.read()
        self.before: set[str] = set(given["before"] if given else self.done)
        self.deadline: float = given["deadline"] if given else time.time() + budget_s
        self.collected: set[str] = set()
        self.ran: set[str] = set()

    def read(self) -> dict[str, float]:
        """Seconds of each test that passed with this code."""
        try:
            state = json.loads(SOAK.read_text())
        except (OSError, ValueError):
            return {}
        return state["passed"] if state.get("code") == self.code else {}

    def write(self) -> None:
        SOAK.parent.mkdir(exist_ok=True)
        partial = SOAK.with_suffix(".part")
        partial.write_text(json.dumps({"code": self.code, "passed": self.done}, indent=1, sort_keys=True))
        partial.replace(SOAK)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["soak"] = {"before": sorted(self.before), "deadline": self.deadline}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        passed = [item for item in items if item.nodeid in self.before]
        config.hook.pytest_deselected(items=passed)
        items[:] = [item for item in items if item.nodeid not in self.before]
        self.collected.update(item.nodeid for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.collected.update(ids)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        return True if time.time() > self.deadline else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran.add(report.nodeid)
        if self.is_worker or report.when == "setup":
            return
        if report.when == "call" and report.passed:
            self.done[report.nodeid] = round(report.duration, 3)
        elif report.failed:
            self.done.pop(report.nodeid, None)
        self.write()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        remaining = sorted(self.collected - self.ran)
        terminalreporter.section("long tier")
        terminalreporter.write_line(
            f"{len(self.before)} passed in earlier runs of this code, {len(self.ran)} ran now, {len(remaining)} remain"
        )
        for node in remaining:
            terminalreporter.write_line(f"  remains: {node}")
