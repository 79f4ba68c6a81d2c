"""The top level keeps its promises: documented targets, exact locks, an honest setup, nothing of one machine."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
MAKE = shutil.which("make") or "make"

TARGETS = {
    "clean",
    "coverage",
    "distclean",
    "figures",
    "help",
    "lab",
    "lint",
    "paper",
    "record",
    "smoke",
    "soak",
    "test",
    "weights",
}


def lock(name: str) -> dict[str, str]:
    """Package name -> exact version of a lock file, hashes left out."""
    pins = {}
    for line in (ROOT / "locks" / name).read_text().splitlines():
        if line and not line.startswith(("#", " ")):
            match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!]+)(?: +\\| +--hash=.*)?", line)
            assert match, f"locks/{name}: expected NAME==VERSION, found {line!r}"
            pins[canonicalize_name(match[1])] = match[2]
    return pins


def committed() -> list[Path]:
    """Files that git tracks, or every file that it would not ignore where there is no checkout to ask."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in listing.split("\0") if name and (path := ROOT / name).is_file()]


# --- Makefile and README ---


def test_every_target_has_a_line_of_help() -> None:
    makefile = (ROOT / "Makefile").read_text()
    phony = set(" ".join(re.findall(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)).split())
    documented = set(re.findall(r"^([a-z]+):.* ## .*\| \w", makefile, flags=re.MULTILINE))
    assert phony == documented == TARGETS
    shown = subprocess.run([MAKE, "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert set(re.findall(r"^  make (\w+)", shown, flags=re.MULTILINE)) == TARGETS


def test_documents_name_only_targets_that_exist() -> None:
    for path in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "data").rglob("*.md")]:
        named = set(re.findall(r"`make ([a-z]+)|^ *make ([a-z]+)", path.read_text(), flags=re.MULTILINE))
        unknown = {word for pair in named for word in pair if word} - TARGETS
        assert not unknown, f"{path.relative_to(ROOT)} names make targets that do not exist: {unknown}"


def test_the_readme_is_short_and_gives_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) <= 120
    assert any("make figures" in line for line in lines)
    assert any("make test" in line for line in lines)


# --- Locks ---


@pytest.mark.parametrize("name", ["base.txt", "torch.txt", "test.txt", "weights.txt"])
def test_locks_pin_exact_versions_and_name_no_address(name: str) -> None:
    assert lock(name)
    text = (ROOT / "locks" / name).read_text()
    assert "://" not in text
    assert not re.search(r"--(index|extra-index|find-links|trusted)", text)


def test_figures_need_no_torch_and_layers_do_not_overlap() -> None:
    base, torch, test, weights = (lock(f"{name}.txt") for name in ("base", "torch", "test", "weights"))
    assert torch == {"torch": "2.13.0"}
    names = [*base, *torch, *test, *weights]
    assert len(names) == len(set(names)), "a package is pinned in two layers"
    assert not {"torch", "onnxruntime", "pytest"} & set(base)


def test_every_weights_package_has_a_hash() -> None:
    text = (ROOT / "locks" / "weights.txt").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line


def test_locks_satisfy_the_declared_ranges() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = lock("base.txt")
    everything = base | lock("torch.txt") | lock("test.txt")
    for text in project["dependencies"]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(base[canonicalize_name(requirement.name)]), text
    for extra in project["optional-dependencies"].values():
        for text in extra:
            requirement = Requirement(text)
            if requirement.name != "workbench":
                assert requirement.specifier.contains(everything[canonicalize_name(requirement.name)]), text


def test_the_locks_are_what_runs_here() -> None:
    pins = lock("base.txt") | lock("torch.txt") | lock("test.txt")
    found = {name: metadata.version(name).partition("+")[0] for name in pins}
    assert found == pins


def test_installed_packages_agree_but_for_the_weights() -> None:
    """The weights are installed without the runtimes that their packages ask for."""
    result = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    complaints = [line for line in result.stdout.splitlines() if " requires " in line or " has requirement " in line]
    weights = lock("weights.txt")
    assert [line for line in complaints if canonicalize_name(line.split()[0]) not in weights] == []


# --- What a checkout may not contain ---


def test_no_committed_file_names_this_machine_or_a_registry() -> None:
    # Put together here, so that this file does not find itself.
    folders = [f"/{name}/" for name in ("work", "root", "farm", "home")]
    hosts = [f"{name}.org" for name in ("pypi", "files.pythonhosted", "download.pytorch", "registry.npmjs")]
    pattern = re.compile("|".join(rf"(?<![\w.]){re.escape(word)}" for word in folders + hosts))
    for path in committed():
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            match = pattern.search(data.decode("utf-8", errors="replace"))
            assert not match, f"{path.relative_to(ROOT)} contains {match[0]!r}"


def test_nothing_built_is_committed() -> None:
    built = [path.relative_to(ROOT) for path in committed() if path.suffix in {".duckdb", ".pyc", ".log", ".aux"}]
    assert built == []
    assert {path.name for path in committed() if path.parent == ROOT / "figures"} <= {"README.md"}


# --- Setup, with a Python that only pretends to install ---

FAKE_PYTHON = """#!/bin/bash
# Stands in for Python: notes each call, makes an environment of itself, and fails where FAIL says so.
echo "$*" >> "$CALLS"
case "$*" in
  *"version_info < (3, 11)"*) exit "${TOO_OLD:-0}" ;;
  *"import ensurepip, venv"*) exit "${NO_VENV:-0}" ;;
  *"print(\\"python"*) echo python3.11-venv ;;
  --version) echo Python 3.9.2 ;;
  *" pip "*--version) [ -e .venv/pyvenv.cfg ] ;;
  "-m venv "*) mkdir -p .venv/bin && cp "$0" .venv/bin/python && touch .venv/pyvenv.cfg ;;
  *) [ -z "${FAIL:-}" ] || case "$*" in *"$FAIL"*) exit 1 ;; esac ;;
esac
"""


class Checkout:
    """A copy of what setup reads, and a PATH on which ``python3`` is the stand-in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "check out"
        self.bin = folder / "bin"
        self.calls = folder / "calls"
        (self.folder / "locks").mkdir(parents=True)
        self.bin.mkdir()
        for name in ("Makefile", "pyproject.toml", *(f"locks/{path.name}" for path in (ROOT / "locks").glob("*.txt"))):
            shutil.copy(ROOT / name, self.folder / name)
        for tool in ("awk", "bash", "cat", "cksum", "cp", "cut", "git", "grep", "head", "mkdir", "rm", "sed", "touch"):
            found = shutil.which(tool)
            assert found, f"{tool} is missing"
            (self.bin / tool).symlink_to(found)
        python = self.bin / "python3"
        python.write_text(FAKE_PYTHON)
        python.chmod(python.stat().st_mode | stat.S_IXUSR)

    def make(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        self.calls.write_text("")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHON"))}
        environment = inherited | {"PATH": str(self.bin), "CALLS": str(self.calls)} | variables
        command = [MAKE, "--no-print-directory", *arguments]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def installs(self) -> list[str]:
        """Requirement files and folders that the last call installed."""
        return re.findall(r"install .*?(?:-r|--editable) (\S+)", self.calls.read_text())

    def stamps(self) -> set[str]:
        return {path.name.split("-")[0] for path in (self.folder / ".venv").glob(".*-*")}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_each_layer_is_installed_once_and_torch_before_what_depends_on_it(checkout: Checkout) -> None:
    assert checkout.make("figures").returncode == 0
    assert checkout.installs() == ["locks/base.txt", "."]
    assert checkout.make("lint").returncode == 0
    assert checkout.installs() == ["locks/torch.txt", "locks/test.txt"]
    assert checkout.make("weights").returncode == 0
    assert checkout.installs() == ["locks/weights.txt"]
    for target in ("figures", "lint", "weights", "coverage", "record"):
        again = checkout.make(target)
        assert again.returncode == 0, again.stderr
        assert checkout.installs() == []
        assert again.stdout == "", "quiet when there is nothing to do"


def test_a_changed_lock_installs_again(checkout: Checkout) -> None:
    checkout.make("lint")
    with (checkout.folder / "locks" / "test.txt").open("a") as file:
        file.write("one-more==1.0\n")
    assert checkout.make("figures").returncode == 0
    assert checkout.installs() == []
    assert checkout.make("lint").returncode == 0
    assert checkout.installs() == ["locks/torch.txt", "locks/test.txt"]


@pytest.mark.parametrize("fail", ["-r locks/base.txt", "--editable"])
def test_an_install_that_fails_leaves_no_stamp(checkout: Checkout, fail: str) -> None:
    broken = checkout.make("figures", FAIL=fail)
    assert broken.returncode != 0
    assert checkout.stamps() == set()
    assert checkout.make("figures").returncode == 0
    assert checkout.stamps() == {".base"}


def test_record_goes_on_without_the_weights_and_says_so(checkout: Checkout) -> None:
    result = checkout.make("record", "DEVICE=cpu", "BUDGET=1m", FAIL="locks/weights.txt")
    assert result.returncode == 0, result.stderr
    assert "random-init twin takes their place" in result.stdout
    assert "-m workbench record --device cpu --budget 1m" in checkout.calls.read_text()
    assert checkout.stamps() == {".base", ".test"}


def test_a_missing_git_is_named(checkout: Checkout) -> None:
    (checkout.bin / "git").unlink()
    result = checkout.make("figures")
    assert result.returncode == 2, "make's own exit code; the recipe's is 3"
    assert "git is missing. Debian or Ubuntu: apt-get install git" in result.stderr
    assert "Error 3" in result.stderr
    assert "git is missing" in checkout.make().stdout
    assert not (checkout.folder / ".venv").exists()


def test_a_missing_or_old_python_is_named(checkout: Checkout) -> None:
    old = checkout.make("figures", TOO_OLD="1")
    assert "Python 3.11 or newer is missing (Python 3.9.2 found)" in old.stderr
    assert "apt-get install python3 python3-venv" in old.stderr
    named = checkout.make("figures", f"PYTHON={checkout.bin}/python3", TOO_OLD="1")
    assert "is not Python 3.11 or newer (Python 3.9.2)" in named.stderr
    (checkout.bin / "python3").unlink()
    assert "Python 3.11 or newer is missing (no python3 found)" in checkout.make("figures").stderr


def test_a_missing_venv_module_is_named_with_its_package(checkout: Checkout) -> None:
    result = checkout.make("figures", NO_VENV="1")
    assert "Module venv is missing from" in result.stderr
    assert "apt-get install python3.11-venv" in result.stderr


def test_an_absent_latex_is_named_with_its_packages(checkout: Checkout) -> None:
    result = checkout.make("paper")
    assert "latexmk is missing. Debian or Ubuntu: apt-get install --no-install-recommends latexmk" in result.stdout
    assert "Error 3" in result.stderr
