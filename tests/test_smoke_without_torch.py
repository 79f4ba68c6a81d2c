"""Every notebook runs on its smoke tier where there is no torch, and draws the same bytes in another process."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SUFFIXES = (".svg", ".pdf", ".png", ".csv", ".json")

# Python runs this in every process that has the folder on its path: in the driver, and in the kernels that it starts.
BLOCK = '''
import os
import sys


class Refusal:
    """There is no torch here; the module that asks for it is noted."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            frame = sys._getframe(1)
            while "importlib" in frame.f_code.co_filename:
                frame = frame.f_back
            note(f"asked by {frame.f_globals['__name__']}")
            raise ModuleNotFoundError(f"{name} is blocked", name=name)


def note(line):
    with open(os.environ["TORCH_LOG"], "a") as log:
        log.write(f"{os.getpid()} {line}\\n")


sys.meta_path.insert(0, Refusal())
note("blocked")
'''
# Looks at import whether torch is installed, to know its arrays when it meets them; does without.
INDIFFERENT = "polars._dependencies"
RUN = """
import json
import sys
from pathlib import Path
from workbench.notebook import run_notebooks

for result in run_notebooks("all", tier="smoke", out_dir=Path(sys.argv[1]), force=True):
    print(json.dumps([result.name, result.status, result.message, sorted(result.figures)]))
"""


@dataclass(frozen=True)
class Smoke:
    """Notebook -> (status, message, figures) of a run in its own process; what was written; who asked for torch."""

    results: dict[str, tuple[str, str, list[str]]]
    digests: dict[str, str]
    blocked: set[str]
    asked: list[str]


def blocked_python(tmp: Path, hash_seed: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python where torch cannot be imported; ``torch.log`` in `tmp` says who tried."""
    (tmp / "block").mkdir(parents=True)
    (tmp / "block" / "sitecustomize.py").write_text(BLOCK)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp / "block"), str(ROOT)]),
        "PYTHONHASHSEED": str(hash_seed),
        "TORCH_LOG": str(tmp / "torch.log"),
    }
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done


def asked(tmp: Path) -> list[str]:
    """Modules that wanted torch."""
    wanted = re.findall(r"asked by (\S+)", (tmp / "torch.log").read_text())
    return [module for module in wanted if module != INDIFFERENT]


def smoke(tmp: Path, hash_seed: int) -> Smoke:
    done = blocked_python(tmp, hash_seed, "-c", RUN, str(tmp / "out"))
    results: dict[str, Any] = {name: rest for name, *rest in map(json.loads, done.stdout.splitlines())}
    figures = tmp / "out" / "figures"
    files = sorted(figures.iterdir()) if figures.exists() else []
    blocked = {line.split()[0] for line in (tmp / "torch.log").read_text().splitlines() if line.endswith("blocked")}
    digests = {file.name: hashlib.sha256(without_code(file.read_bytes())).hexdigest() for file in files}
    return Smoke(results, digests, blocked, asked(tmp))


def without_code(content: bytes) -> bytes:
    """The content less the hash of the sources, which may be edited between two runs of this test."""
    return re.sub(rb'"code_sha256": "[0-9a-f]{64}"', b'"code_sha256": ""', content)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Smoke:
    return smoke(tmp_path_factory.mktemp("first"), 1)


def saved(notebook: Path) -> set[str]:
    """Files that the cells of a notebook say they write into the folder of figures."""
    cells = json.loads(notebook.read_text())["cells"]
    names = re.findall(r'out / "([\w.]+)"', "".join("".join(cell["source"]) for cell in cells))
    return {name for name in names if "." in name} | {
        name + suffix for name in names if "." not in name for suffix in SUFFIXES
    }


def test_the_package_and_the_command_line_need_no_torch(tmp_path: Path) -> None:
    code = "import sys, workbench, workbench.cli; assert 'torch' not in sys.modules"
    blocked_python(tmp_path, 0, "-c", code)
    assert asked(tmp_path) == []


def test_the_block_blocks(tmp_path: Path) -> None:
    code = """
try:
    import torch
except ModuleNotFoundError as err:
    assert err.name == "torch", err
else:
    raise SystemExit("torch was imported")
"""
    blocked_python(tmp_path, 0, "-c", code)
    assert asked(tmp_path) == ["__main__"]


def test_every_notebook_passes_without_torch(first: Smoke) -> None:
    assert list(first.results) == [notebook.stem for notebook in NOTEBOOKS] != []
    for name, (status, message, _) in first.results.items():
        assert status == "ran", f"{name}: {message}"
    assert len(first.blocked) >= 1 + len(NOTEBOOKS), "a kernel ran without the block"
    assert first.asked == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_figure_is_written(first: Smoke, notebook: Path) -> None:
    status, message, figures = first.results[notebook.stem]
    assert status == "ran", message
    assert saved(notebook) != set()
    assert set(figures) == saved(notebook) <= first.digests.keys()


def test_another_process_with_another_hash_seed_draws_the_same_bytes(first: Smoke, tmp_path: Path) -> None:
    second = smoke(tmp_path, 2)
    for name, (status, message, _) in (first.results | second.results).items():
        assert status == "ran", f"{name}: {message}"
    assert len(first.digests) > len(SUFFIXES)
    changed = {name for name in first.digests if second.digests.get(name) != first.digests[name]}
    assert changed == set()
    assert second.digests.keys() == first.digests.keys()
