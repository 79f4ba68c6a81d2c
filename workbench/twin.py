"""One source, two executions: rules run as plain Python, or compiled, from the same text.

A *rule* is a function marked `rule`: integers, floats and flat vectors only, no objects, so that numba compiles it. The
marked function itself stays plain Python; threads and small explorations call it as it is. `twin` reads the modules
that hold rules a second time and gives a copy in which every rule is compiled, or in which one line is changed, which
is how a protocol is broken on purpose without a switch in the code that runs.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

from workbench.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

# Flat integers that rules read and write: a list in the interpreted form, an int64 array in the compiled one.
Vector = list[int]

_ROOT = Path(__file__).resolve().parent


def rule(function: F) -> F:
    """Mark a function whose source runs interpreted and compiled; the function itself is unchanged."""
    function.__rule__ = True  # type: ignore[attr-defined]
    return function


@dataclass(frozen=True, slots=True)
class Edit:
    """A change to the source of one module: `old` must occur exactly once and gives way to `new`."""

    module: str
    old: str
    new: str

    def apply(self, source: str) -> str:
        """The changed source; UsageError if `old` does not occur exactly once."""
        if (count := source.count(self.old)) != 1:
            raise UsageError(
                "the edited text exactly once", f"{count} times {self.old!r}", where=f"module {self.module}"
            )
        return source.replace(self.old, self.new)


def twin(name: str, *, compiled: bool = True, edits: Sequence[Edit] = ()) -> ModuleType:
    """A second copy of a module of rules and of every module of rules that it imports.

    Parameters
    ----------
    name : str
        Full name of a module that holds rules, of this package or another.
    compiled : bool, keyword-only
        Whether the rules of the copy are compiled (at their first call) or plain Python.
    edits : sequence of Edit, keyword-only
        Changes to the source of the copy. The machine code of an edited module, and of those that import it, is not
        kept on disk.

    Raises
    ------
    UsageError
        The module holds no rule, an edit names a module that the copy does not contain, or its text is not found once.

    Examples
    --------
    >>> fast = twin("workbench.control.ranges")
    >>> fast.clip(3.0, 0.0, 2.0)
    2.0
    """
    return _twin(name, compiled, tuple(edits))


@lru_cache(maxsize=64)
def _twin(name: str, compiled: bool, edits: tuple[Edit, ...]) -> ModuleType:
    names = [each for each in _imported(name) if "@rule" in _source(each)]
    if name not in names:
        raise UsageError("a module that holds rules", "none in it", where=f"module {name}")
    for edit in edits:
        if edit.module not in names:
            raise UsageError(f"a module among {names}", repr(edit.module), where=f"edit of {edit.old!r}")
    copies: dict[str, ModuleType] = {}
    for each in names:
        needed = _imported(each)
        stamp = "" if any(edit.module in needed for edit in edits) else _digest(needed)
        copies[each] = _copy(each, copies, compiled, stamp, [edit for edit in edits if edit.module == each])
    return copies[name]


def _path(name: str) -> Path | None:
    """The source file of a module, of this package or another; None for anything else."""
    if name.partition(".")[0] != "workbench":
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            return None
        return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None
    base = _ROOT.joinpath(*name.split(".")[1:])
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def _source(name: str) -> str:
    path = _path(name)
    if path is None:
        raise UsageError("a module with Python source", repr(name))
    return path.read_text("utf-8")


@lru_cache(maxsize=256)
def _imported(name: str) -> tuple[str, ...]:
    """The modules that `name` imports at its top, directly or not, each after those it needs itself.

    Those of this package and of the package of `name`; other packages hold no rules.
    """
    packages = ("workbench", name.partition(".")[0])
    found: dict[str, None] = {}
    for node in ast.parse(_source(name)).body:
        wanted = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in packages:
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            wanted = [each for each in inner if _path(each)] or [str(node.module)]
        elif isinstance(node, ast.Import):
            wanted = [
                alias.name for alias in node.names if "." in alias.name and alias.name.partition(".")[0] in packages
            ]
        for each in wanted:
            found.update(dict.fromkeys(_imported(each)))
    return (*found, name)


@lru_cache(maxsize=256)
def _digest(names: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(_source(name) for name in names).encode()).hexdigest()


def _copy(name: str, copies: dict[str, ModuleType], compiled: bool, stamp: str, edits: Sequence[Edit]) -> ModuleType:
    """Run the source of a module again, with the copies made so far in place of what it imports."""
    # A dataclass looks its module up by name while it is made: the original answers.
    importlib.import_module(name)
    path, source = str(_path(name)), _source(name)
    for edit in edits:
        source = edit.apply(source)

    def mark(function: Callable[..., Any]) -> Callable[..., Any]:
        return _njit(function, stamp) if compiled else function

    own_twin = ModuleType("workbench.twin")
    own_twin.__dict__.update(vars(sys.modules[__name__]), rule=mark)

    def find(module: str, *args: Any, **kwargs: Any) -> Any:
        if module == "workbench.twin":
            return own_twin
        if module in copies:
            return copies[module]
        found = builtins.__import__(module, *args, **kwargs)
        wanted = args[2] if len(args) > 2 else kwargs.get("fromlist")
        if wanted and any(f"{module}.{item}" in copies for item in wanted):
            mixed = ModuleType(module)
            mixed.__dict__.update(vars(found))
            for item in wanted:
                if f"{module}.{item}" in copies:
                    setattr(mixed, item, copies[f"{module}.{item}"])
            return mixed
        return found

    copy = ModuleType(name)
    copy.__file__ = path
    copy.__dict__["__builtins__"] = {**vars(builtins), "__import__": find}
    exec(compile(source, path, "exec"), copy.__dict__)
    return copy


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile `function` at its first call and keep the result beside the source or in the user's cache folder.

    The kept code is dropped when the source of its module, or of any workbench module that this one imports, changes.
    Where no folder can be written (a read-only install without a home), the code is compiled once per process;
    ``NUMBA_CACHE_DIR`` names a better place.
    """
    return cast("Callable[P, R]", _njit(function, None))


def _njit(function: Callable[..., Any], stamp: str | None) -> Callable[..., Any]:
    """A compiled `function`; `stamp` "" keeps nothing on disk, None stands for the sources that its module imports."""
    import numba

    dispatcher: Any = numba.njit(nogil=True)(function)
    if stamp != "":
        try:
            dispatcher.enable_caching()
        except RuntimeError:
            return cast("Callable[..., Any]", dispatcher)
        if stamp is None:
            stamp = _digest(_imported(function.__module__))
        # numba itself looks at the file of the function alone, not at those of the constants and functions it uses.
        dispatcher._cache._cache_file._source_stamp = stamp
    return cast("Callable[..., Any]", dispatcher)
