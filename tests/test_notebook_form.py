"""The committed form: stable, minimal, and required of every notebook of this project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench import notebook_form
from workbench.errors import UsageError

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"
GOOD = 'tier: str = "full"  # how much\nfigures: str = "figures"  # where'

cells = st.lists(
    st.fixed_dictionaries(
        {
            "cell_type": st.sampled_from(["code", "markdown", "raw"]),
            "source": st.one_of(st.text(max_size=30), st.lists(st.text(max_size=10), max_size=4)),
            "metadata": st.one_of(st.just({}), st.just({"tags": ["a"]}), st.just({"collapsed": True, "tags": []})),
        }
    ),
    max_size=6,
)


def notebook(*code: str, tag: int = 0) -> dict[str, Any]:
    made: list[dict[str, Any]] = [{"cell_type": "code", "metadata": {}, "source": text} for text in code]
    made[tag]["metadata"] = {"tags": ["parameters"]}
    return notebook_form.normalized({"cells": made})


@given(cells)
def test_the_form_is_valid_stable_and_keeps_the_sources(made: list[dict[str, Any]]) -> None:
    once = notebook_form.normalized({"cells": made})
    assert notebook_form.normalized(once) == once
    assert notebook_form.dumps(json.loads(notebook_form.dumps(once))) == notebook_form.dumps(once)
    parsed = nbformat.reads(notebook_form.dumps(once), as_version=4)
    nbformat.validate(parsed)
    assert len({cell.id for cell in parsed.cells}) == len(parsed.cells)
    kept = [notebook_form.source(cell) for cell in made][: len(parsed.cells)]
    assert [cell.source for cell in parsed.cells] == kept


def test_normalize_drops_what_a_run_leaves_and_says_whether_it_did(tmp_path: Path) -> None:
    path = tmp_path / "01.ipynb"
    clean = notebook_form.dumps(notebook(GOOD, "assert True"))
    used = json.loads(clean)
    used["cells"][1] |= {
        "execution_count": 7,
        "id": "random",
        "outputs": [{"output_type": "stream", "name": "stdout", "text": "x"}],
    }
    used["cells"][1]["metadata"] = {"execution": {"iopub.execute_input": "2026"}}
    used["metadata"] |= {"widgets": {}, "kernelspec": {"name": "mine", "display_name": "Mine"}}
    used["cells"].append({"cell_type": "code", "metadata": {}, "source": " \n", "outputs": [], "execution_count": None})
    path.write_text(json.dumps(used))
    assert notebook_form.problems(path) != []
    assert notebook_form.normalize(path)
    assert path.read_text() == clean
    assert notebook_form.problems(path) == []
    assert not notebook_form.normalize(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (notebook(GOOD, "x = 1"), "the last cell must be code that asserts"),
        (notebook(GOOD, "assert ("), "the last cell must be code that asserts"),
        (notebook(GOOD, GOOD, "assert True", tag=0), ""),
        (notebook('tier: str = "full"  # how much', "assert True"), "parameter `figures` is missing"),
        (notebook(GOOD + "\nseed: int = 1", "assert True"), "parameter `seed` has no comment"),
        (notebook(GOOD + "\nseed = 1  # untyped", "assert True"), "not `seed = 1  # untyped`"),
        (notebook(GOOD + "\nimport os", "assert True"), "not `import os`"),
        (notebook("not python (", "assert True"), "parameter `tier` is missing"),
    ],
)
def test_problems_are_named(tmp_path: Path, made: dict[str, Any], problem: str) -> None:
    path = tmp_path / "01.ipynb"
    path.write_text(notebook_form.dumps(made))
    found = notebook_form.problems(path)
    assert any(problem in line for line in found) if problem else found == []


def test_a_notebook_needs_exactly_one_parameters_cell(tmp_path: Path) -> None:
    path = tmp_path / "01.ipynb"
    for count in (0, 2):
        made = notebook(GOOD, GOOD, "assert True")
        for cell in made["cells"][:2]:
            cell["metadata"] = {"tags": ["parameters"]} if count else {}
        path.write_text(notebook_form.dumps(made))
        assert notebook_form.problems(path) == [f"exactly one cell must be tagged `parameters`, {count} are"]


def test_a_broken_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "01.ipynb"
    path.write_bytes(b"\xff\xfe{")
    with pytest.raises(UsageError, match="expected a Jupyter notebook, found UnicodeDecodeError"):
        notebook_form.normalize(path)
    assert path.read_bytes() == b"\xff\xfe{"


def test_the_committed_notebooks_are_in_form() -> None:
    found = {path.name: notebook_form.problems(path) for path in NOTEBOOKS.glob("*.ipynb")}
    assert {name: lines for name, lines in found.items() if lines} == {}
