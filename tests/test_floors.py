"""The rules on imports: a room imports only from floors below; recording needs no package but torch, numpy, pyarrow."""

from __future__ import annotations

import ast
import fnmatch
import graphlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "twin", "units"}),
    frozenset({"graph", "schema", "control", "stats", "charts", "provenance"}),
    frozenset({"trace", "workload"}),
    frozenset({"metrics", "testing"}),
    frozenset({"importers", "replay", "testbed", "verify"}),
    frozenset({"sweep", "shadow"}),
    frozenset({"studies"}),
    frozenset({"", "__main__", "agenda", "cli", "lab", "markup", "profile", "report", "verbs"})
    | frozenset({"notebook", "notebook_form", "notebook_job"}),
)
# Neighbors on one floor: graphs, charts and control speak the vocabulary of the tables; whoever fails says how.
NEIGHBORS = frozenset({("graph", "schema"), ("charts", "schema"), ("control", "schema"), ("control", "graph")}) | {
    ("twin", "errors")
}


# What must run on a machine that has nothing but these packages and the standard library.
BARE = (
    "workbench.errors",
    "workbench.units",
    "workbench.graph",
    "workbench.schema.enums",
    "workbench.schema.tables",
    "workbench.trace.recorder*",
    "workbench.testbed*",
)
BARE_PACKAGES = frozenset({"numpy", "pyarrow", "torch"})


@dataclass(frozen=True)
class Import:
    """One imported module, as a full dotted name."""

    importer: str
    target: str
    line: int
    runs_at_import: bool  # neither inside a function nor under TYPE_CHECKING


class Package:
    """The modules under `root`/workbench and what they import, read without running them."""

    def __init__(self, root: Path) -> None:
        self.files: dict[str, Path] = {}
        for path in sorted((root / "workbench").rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            self.files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        self.imports = [found for name in self.files for found in self.read(name)]

    def read(self, name: str) -> Iterator[Import]:
        tree = ast.parse(self.files[name].read_text(encoding="utf-8"))
        package = name if self.files[name].name == "__init__.py" else name.rpartition(".")[0]
        yield from self.walk(name, package, tree, True)

    def walk(self, name: str, package: str, node: ast.AST, runs: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, alias.name, node.lineno, runs)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level > 1 else package
            source = ".".join(filter(None, (base if node.level else "", node.module or "")))
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                yield Import(name, inner if inner in self.files else source, node.lineno, runs)
        inside = runs and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            inside = False
        for child in ast.iter_child_nodes(node):
            yield from self.walk(name, package, child, inside)

    def loaded_by(self, name: str) -> set[str]:
        """Modules of the package that importing `name` runs, packages above each one included."""
        loaded: set[str] = set()
        waiting = [name]
        while waiting:
            module = waiting.pop()
            if module in loaded or module not in self.files:
                continue
            loaded.add(module)
            waiting.append(module.rpartition(".")[0])
            waiting += [found.target for found in self.imports if found.importer == module and found.runs_at_import]
        return loaded


def room(module: str) -> str:
    """The room a module stands in: the part after ``workbench.``, "" for the package itself."""
    return module.partition(".")[2].partition(".")[0]


def floor(module: str) -> int:
    for number, rooms in enumerate(FLOORS, start=1):
        if room(module) in rooms:
            return number
    raise AssertionError(f"{module}: room {room(module)!r} has no floor; add it to FLOORS in {Path(__file__).name}")


def climbs(package: Package) -> list[str]:
    """Imports of another room that do not go down; on the top floor rooms may import each other."""
    found = []
    for item in package.imports:
        if item.target.partition(".")[0] != "workbench":
            continue
        rooms = (room(item.importer), room(item.target))
        here, there = floor(item.importer), floor(item.target)
        if rooms[0] != rooms[1] and rooms not in NEIGHBORS and here <= there and here < len(FLOORS):
            found.append(f"{item.importer}:{item.line} (floor {here}) imports {item.target} (floor {there})")
    return found


def circle(package: Package) -> list[str]:
    """Modules that import each other while they load, in order; empty when there are none."""
    graph: dict[str, set[str]] = {name: set() for name in package.files}
    for found in package.imports:
        if found.runs_at_import and found.target in package.files:
            graph[found.importer].add(found.target)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def not_bare(package: Package) -> list[str]:
    """Imports that a machine with only torch, numpy and pyarrow cannot run, reached from the recording side."""
    return sorted(
        f"{entry} loads {found.importer}:{found.line}, which imports {found.target}"
        for entry in package.files
        if any(fnmatch.fnmatchcase(entry, pattern) for pattern in BARE)
        for module in package.loaded_by(entry)
        for found in package.imports
        if found.importer == module
        and found.runs_at_import
        and found.target.partition(".")[0] not in sys.stdlib_module_names | BARE_PACKAGES | {"workbench"}
    )


@pytest.fixture(scope="module")
def workbench() -> Package:
    return Package(ROOT)


def test_modules_import_only_from_floors_below(workbench: Package) -> None:
    assert climbs(workbench) == []


def test_no_modules_import_each_other(workbench: Package) -> None:
    assert circle(workbench) == []


def test_recording_needs_only_torch_numpy_and_pyarrow(workbench: Package) -> None:
    covered = [pattern for pattern in BARE if any(fnmatch.fnmatchcase(name, pattern) for name in workbench.files)]
    assert covered == list(BARE), "a pattern of BARE matches no module"
    assert not_bare(workbench) == []


def house(root: Path, modules: dict[str, str]) -> Package:
    """A package of the given modules, named by their path below ``workbench/`` without the suffix."""
    for name in ("__init__", *modules):
        path = root / "workbench" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(modules.get(name, ""))
        (path.parent / "__init__.py").touch()
    return Package(root)


@pytest.mark.parametrize(
    ("modules", "complaint"),
    [
        ({"trace/store": "from workbench.metrics import path", "metrics/path": ""}, "trace.store:1 (floor 3)"),
        ({"stats/noise": "import workbench.charts.theme", "charts/theme": ""}, "stats.noise:1 (floor 2)"),
        ({"errors": "def f():\n    from . import units\n", "units": ""}, "errors:2 (floor 1)"),
        ({"testbed/run": "import workbench.cli", "cli": ""}, "testbed.run:1 (floor 5)"),
        ({"trace/store": "from workbench import open"}, "trace.store:1 (floor 3)"),
    ],
)
def test_an_import_that_climbs_is_found(tmp_path: Path, modules: dict[str, str], complaint: str) -> None:
    found = climbs(house(tmp_path, modules))
    assert len(found) == 1
    assert found[0].startswith(f"workbench.{complaint} imports ")


def test_an_import_that_goes_down_is_fine(tmp_path: Path) -> None:
    modules = {"cli": "from workbench import units, notebook", "notebook": "from .units import MS_NS", "units": ""}
    assert climbs(house(tmp_path, modules)) == []


def test_a_circle_is_found_and_a_late_import_is_none(tmp_path: Path) -> None:
    early = {"trace/a": "from workbench.trace import b", "trace/b": "from workbench.trace import a"}
    assert circle(house(tmp_path / "early", early))
    late = {"trace/a": "from . import b", "trace/b": "def f():\n    from . import a\n"}
    assert circle(house(tmp_path / "late", late)) == []


@pytest.mark.parametrize(
    "modules",
    [
        {"testbed/run": "import polars"},
        {"trace/recorder": "from workbench.trace import columns", "trace/columns": "import duckdb.typing"},
        {"graph": "from workbench.schema import enums", "schema/__init__": "import polars"},
    ],
    ids=["directly", "through another module", "through a package"],
)
def test_a_heavy_import_of_the_recording_side_is_found(tmp_path: Path, modules: dict[str, str]) -> None:
    assert len(not_bare(house(tmp_path, modules))) == 1


def test_a_late_import_of_the_recording_side_is_fine(tmp_path: Path) -> None:
    package = house(tmp_path, {"testbed/run": "import torch\ndef f():\n    import polars\n"})
    assert not_bare(package) == []
