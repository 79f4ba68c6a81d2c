"""What the README shows works: its Python runs on the committed recordings, its figures and files exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import polars as pl
import pytest

from workbench.schema.ddl import views

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {}
    shown = 0
    for statement in ast.parse(code).body:
        part = ast.unparse(statement)
        if isinstance(statement, ast.Expr):
            value = eval(part, names)
            if isinstance(value, pl.LazyFrame):
                value = value.collect()
            assert value is not None
            shown += 1
        else:
            exec(part, names)
    assert shown >= 4


def test_every_figure_and_metric_it_names_exists() -> None:
    table = README.split("## What it answers today")[1].split("##")[0]
    cells = [row.split("|")[2] for row in table.splitlines() if row.count("|") == 4]
    figures = set(re.findall(r"`([a-z_0-9]+)`", "".join(cells)))
    notebook = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "notebooks").glob("*.ipynb")))
    assert figures
    assert all(f'out / \\"{figure}\\"' in notebook for figure in figures)
    known = {view.name for view in views()}
    assert set(re.findall(r'run\.metric\("(\w+)"\)', README)) <= known


def test_every_file_it_names_exists() -> None:
    for path in re.findall(r"`((?:data|docs|locks|notebooks|paper|workbench|figures|\.ci)/[\w./-]*)`", README):
        assert (ROOT / path.rstrip("/")).exists(), path
