"""The form in which notebooks are committed: readable diffs, no outputs, nothing that changes without an edit.

A committed notebook is an ordinary ``.ipynb`` that reviewers' tools open directly. It holds no output and no execution
count; every cell id follows from the cell's position and source; its metadata name the kernel ``python3`` and nothing
else. Exactly one cell is tagged ``parameters`` and the last cell asserts what the notebook claims.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from workbench.errors import UsageError

METADATA: dict[str, Any] = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# Every notebook is told how much to do and where its figures go.
REQUIRED_PARAMETERS = ("tier", "figures")


def cell_id(position: int, source: str) -> str:
    """Id of the cell at `position` (0-based): 16 hex digits of the SHA-256 over position and source."""
    return hashlib.sha256(f"{position}\0{source}".encode()).hexdigest()[:16]


def read(path: Path) -> dict[str, Any]:
    """Parse a notebook.

    Raises
    ------
    UsageError
        Not a JSON notebook of format 4.
    """
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:
        raise UsageError("a Jupyter notebook", f"{type(err).__name__}: {err}", where=str(path)) from err
    if not isinstance(notebook, dict) or notebook.get("nbformat") != 4 or not isinstance(notebook.get("cells"), list):
        raise UsageError("a notebook of format 4 with cells", "another document", where=str(path))
    return notebook


def source(cell: dict[str, Any]) -> str:
    """Source of a cell; the format allows a string or a list of lines."""
    text = cell.get("source", "")
    return text if isinstance(text, str) else "".join(text)


def dumps(notebook: dict[str, Any]) -> str:
    """Serialize a notebook as Jupyter does, with sorted keys, so that equal notebooks are equal bytes."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def normalized(notebook: dict[str, Any]) -> dict[str, Any]:
    """The committed form of a notebook: sources and tags only. Trailing blank cells are dropped."""
    kept = list(notebook["cells"])
    while kept and not source(kept[-1]).strip():
        kept.pop()
    cells: list[dict[str, Any]] = []
    for position, cell in enumerate(kept):
        text = source(cell)
        tags = cell.get("metadata", {}).get("tags", [])
        plain: dict[str, Any] = {
            "cell_type": cell["cell_type"],
            "id": cell_id(position, text),
            "metadata": {"tags": tags} if tags else {},
            "source": text.splitlines(keepends=True),
        }
        if cell["cell_type"] == "code":
            plain |= {"execution_count": None, "outputs": []}
        cells.append(plain)
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def normalize(path: Path) -> bool:
    """Rewrite a notebook in its committed form; whole or not at all.

    Returns
    -------
    bool
        Whether the file changed.
    """
    text = dumps(normalized(read(path)))
    if text == path.read_text(encoding="utf-8"):
        return False
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def problems(path: Path) -> list[str]:
    """What keeps a notebook from being committed, one sentence each; an empty list when it is in form."""
    notebook = read(path)
    found: list[str] = []
    if dumps(normalized(notebook)) != path.read_text(encoding="utf-8"):
        found.append("it has outputs, unstable ids or stray metadata: apply workbench.notebook_form.normalize to it")
    cells = notebook["cells"]
    tagged = parameter_cells(notebook)
    if len(tagged) == 1:
        found.extend(_parameter_problems(tagged[0]))
    else:
        found.append(f"exactly one cell must be tagged `parameters`, {len(tagged)} are")
    if not cells or cells[-1]["cell_type"] != "code" or not _asserts(source(cells[-1])):
        found.append("the last cell must be code that asserts what the notebook claims")
    return found


def parameter_cells(notebook: dict[str, Any]) -> list[str]:
    """Sources of the cells tagged ``parameters``."""
    return [source(cell) for cell in notebook["cells"] if "parameters" in cell.get("metadata", {}).get("tags", [])]


def parameter_names(text: str) -> list[str]:
    """Names that a parameters cell declares with a type; empty if it is not Python."""
    return [name for name, _ in _declarations(text)]


def _declarations(text: str) -> list[tuple[str, int]]:
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return []
    return [
        (statement.target.id, statement.end_lineno or statement.lineno)
        for statement in body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]


def _parameter_problems(text: str) -> list[str]:
    """Parameters need a type (papermill infers nothing without one) and a comment (papermill shows it as help)."""
    declared = _declarations(text)
    lines = text.splitlines()
    found = [
        f"parameter `{name}` has no comment that says what it is" for name, at in declared if "#" not in lines[at - 1]
    ]
    found.extend(f"parameter `{name}` is missing" for name in REQUIRED_PARAMETERS if name not in dict(declared))
    stray = [
        line
        for number, line in enumerate(lines, 1)
        if line.split("#")[0].strip() and number not in dict(declared).values()
    ]
    found.extend(f"the parameters cell may only hold `name: type = value  # meaning`, not `{line}`" for line in stray)
    return found


def _asserts(text: str) -> bool:
    try:
        return any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(text)))
    except SyntaxError:
        return False
