"""What a run was made with: the truth where it can be had, None or nothing where it cannot."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from workbench.trace.environment import Environment, commit, hardware, versions


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    done = subprocess.run(("git", *identity, "-C", str(folder), *arguments), capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_hardware_and_versions_are_this_machines() -> None:
    found = hardware()
    assert found["cores"] == len(os.sched_getaffinity(0))
    assert found["memory_bytes"] > 1 << 28
    assert found["machine"] == platform.machine()
    assert isinstance(found["accelerators"], list)
    assert versions(["numpy", "no-such-package"]) == {
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
    }
    assert json.loads(json.dumps(Environment.here().hardware)) == found


def test_the_commit_says_whether_the_sources_differ_from_it(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    assert commit(package) is None
    git(tmp_path, "init", "-q")
    assert commit(package) is None
    (package / "module.py").write_text("x = 1\n")
    assert commit(package) is None
    git(tmp_path, "add", "package")
    git(tmp_path, "commit", "-q", "-m", "first")
    head = git(tmp_path, "rev-parse", "HEAD")
    assert commit(package) == head
    (tmp_path / "recording.bin").write_text("outside the sources")
    assert commit(package) == head
    (package / "new.py").write_text("")
    assert commit(package) == f"{head}+dirty"
    (package / "new.py").unlink()
    (package / "module.py").write_text("x = 2\n")
    assert commit(package) == f"{head}+dirty"


def test_an_installed_copy_has_no_commit(tmp_path: Path) -> None:
    """A package inside an ignored folder of someone's repository is not part of it."""
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("site-packages\n")
    git(tmp_path, "add", ".gitignore")
    git(tmp_path, "commit", "-q", "-m", "first")
    package = tmp_path / "site-packages" / "package"
    package.mkdir(parents=True)
    (package / "module.py").write_text("")
    assert commit(package) is None


def test_git_may_be_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit() is None
