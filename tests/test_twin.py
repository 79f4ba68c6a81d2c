from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from workbench import twin as module
from workbench.errors import UsageError
from workbench.twin import Edit, rule, twin

STEPS = """
from workbench.twin import rule
from {package}.sizes import SIZE, twice

@rule
def grow(m, n):
    m[0] = twice(m[0]) + n * SIZE
    return m[0]
"""
SIZES = """
from workbench.twin import rule

SIZE = 5

@rule
def twice(value):
    return 2 * value
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of rules that is not part of the workbench."""
    name = f"twin_of_{tmp_path.name}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    (tmp_path / name / "steps.py").write_text(STEPS.format(package=name))
    (tmp_path / name / "sizes.py").write_text(SIZES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


def test_a_rule_stays_a_plain_function() -> None:
    def three() -> int:
        return 3

    assert rule(three) is three


def test_rules_outside_the_package_run_plain_and_compiled(package: str) -> None:
    plain, fast = twin(f"{package}.steps", compiled=False), twin(f"{package}.steps")
    assert not hasattr(plain.grow, "py_func")
    assert hasattr(fast.grow, "py_func")
    assert hasattr(fast.twice, "py_func")
    assert plain.grow([7], 3) == fast.grow(np.array([7]), 3) == 29


def test_an_edit_changes_only_its_copy(package: str) -> None:
    double = Edit(f"{package}.sizes", "2 * value", "3 * value")
    assert twin(f"{package}.steps", edits=[double]).grow(np.array([7]), 3) == 36
    assert twin(f"{package}.steps", compiled=False, edits=[double]).grow([7], 3) == 36
    assert twin(f"{package}.steps").grow(np.array([7]), 3) == 29


def test_machine_code_is_kept_for_what_an_edit_does_not_reach(package: str) -> None:
    edited = twin(f"{package}.steps", edits=[Edit(f"{package}.steps", "+ n", "- n")])
    edited.grow(np.array([7]), 3)
    kept = {path.name.split("-")[0] for path in Path(edited.__file__).parent.rglob("*.nbi")}
    assert kept == {"sizes.twice"}


def test_a_changed_constant_drops_kept_machine_code(package: str, tmp_path: Path) -> None:
    folder = tmp_path / package
    (folder / "sizes.py").write_text("SIZE = 5\n")
    (folder / "steps.py").write_text(
        STEPS.format(package=package).replace(", twice", "").replace("twice(m[0])", "m[0]")
    )
    assert twin(f"{package}.steps").grow(np.array([7]), 3) == 22
    (folder / "sizes.py").write_text("SIZE = 6\n")
    for cached in (module._twin, module._digest, module._imported):
        cached.cache_clear()
    del sys.modules[f"{package}.sizes"]
    assert twin(f"{package}.steps").grow(np.array([7]), 3) == 25


@pytest.mark.parametrize(
    ("name", "edits", "complaint"),
    [
        ("workbench.units", (), "none in it"),
        ("no_such_package.rules", (), "a module with Python source"),
        ("math", (), "a module with Python source"),
        ("workbench.control.ranges", (Edit("workbench.units", "a", "b"),), "edit of 'a'"),
        ("workbench.control.ranges", (Edit("workbench.control.ranges", "no such line", ""),), "0 times"),
        ("workbench.control.ranges", (Edit("workbench.control.ranges", "return", ""),), "times 'return'"),
    ],
)
def test_what_cannot_be_copied_is_named(name: str, edits: tuple[Edit, ...], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        twin(name, edits=edits)
