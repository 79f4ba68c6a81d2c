"""The suite's own rules, checked on a small project of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

Run = Callable[..., "subprocess.CompletedProcess[str]"]

TESTS = """
import pytest

def test_plain():
    pass

def test_skipped():
    pytest.skip("needs the moon")

@pytest.mark.weights
def test_weights():
    pass

@pytest.mark.soak
def test_long_one():
    pass

@pytest.mark.soak
def test_long_two():
    pass

@pytest.mark.soak
def test_long_broken():
    assert False
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with this suite's conftest and configuration, and six tests."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "weights.txt").write_text("no-such-weights==1.0 --hash=sha256:00\n")
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests" / "conftest.py")
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    (tmp_path / "tests" / "test_small.py").write_text(TESTS)
    return tmp_path


@pytest.fixture
def run(project: Path) -> Run:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "tests", *arguments]
        return subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)

    return call


def test_skips_are_listed_with_their_reasons(project: Path, run: Run) -> None:
    result = run()
    assert result.returncode == 0, result.stdout
    assert (project / "build" / "skips.txt").read_text().splitlines() == [
        "tests/test_small.py::test_skipped | needs the moon",
        "tests/test_small.py::test_weights | weights are not installed (no-such-weights==1.0): make weights",
    ]


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_a_skip_outside_the_list_fails_the_run(project: Path, run: Run, workers: tuple[str, ...]) -> None:
    allowed = project / "allowed.txt"
    allowed.write_text("# comment\n*::test_weights | no weights here\n")
    refused = run("--allowed-skips", str(allowed), *workers)
    assert refused.returncode == 1
    assert "SKIP NOT ALLOWED tests/test_small.py::test_skipped | needs the moon" in refused.stdout
    assert "test_weights | weights" not in refused.stdout.split("SKIP NOT ALLOWED")[1]
    allowed.write_text("*::test_weights | no weights here\n*::test_skipped | no moon here\n")
    assert run("--allowed-skips", str(allowed), *workers).returncode == 0


def test_long_tests_resume_until_the_code_changes(project: Path, run: Run) -> None:
    def soak() -> subprocess.CompletedProcess[str]:
        return run("-m", "soak", "--soak-budget", "10m")

    first = soak()
    assert first.returncode == 1
    assert "0 passed in earlier runs of this code, 3 ran now, 0 remain" in first.stdout
    second = soak()
    assert second.returncode == 1, "what failed runs again"
    assert "2 passed in earlier runs of this code, 1 ran now, 0 remain" in second.stdout

    (project / "tests" / "test_small.py").write_text(TESTS.replace("assert False", "assert True"))
    mended = soak()
    assert mended.returncode == 0, mended.stdout
    assert "0 passed in earlier runs of this code, 3 ran now, 0 remain" in mended.stdout
    assert len(json.loads((project / "build" / "soak.json").read_text())["passed"]) == 3
    nothing_left = soak()
    assert nothing_left.returncode == 0
    assert "3 passed in earlier runs of this code, 0 ran now, 0 remain" in nothing_left.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_no_long_test_starts_after_the_budget(project: Path, run: Run, workers: tuple[str, ...]) -> None:
    spent = run("-m", "soak", "--soak-budget", "0s", *workers)
    assert spent.returncode == 0, spent.stdout
    assert "0 passed in earlier runs of this code, 0 ran now, 3 remain" in spent.stdout
    assert "remains: tests/test_small.py::test_long_one" in spent.stdout
    assert not (project / "build" / "soak.json").exists()


def test_workers_resume_too(project: Path, run: Run) -> None:
    arguments = ("-m", "soak", "--soak-budget", "10m", "-n", "2")
    assert "3 ran now, 0 remain" in run(*arguments).stdout
    assert "2 passed in earlier runs of this code, 1 ran now, 0 remain" in run(*arguments).stdout


def test_a_budget_without_meaning_is_refused(run: Run) -> None:
    result = run("-m", "soak", "--soak-budget", "soon")
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "expected a time such as 90s, 30m or 2h, found 'soon'" in result.stderr
