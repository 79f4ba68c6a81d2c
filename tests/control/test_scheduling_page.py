"""docs/scheduling.md: the tables are current, the examples print what they say, and every test it names exists."""

from __future__ import annotations

import ast
import doctest
import re
from pathlib import Path

import pytest

from workbench.control import priorities

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scheduling.md").read_text(encoding="utf-8")
LINKS = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


def test_the_reference_is_current() -> None:
    found = PAGE[PAGE.index("## Reference") :]
    assert found == priorities.markdown(), "replace the page from '## Reference' on by priorities.markdown()"


def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = dict.fromkeys(re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    assert len(blocks) == 1
    (tmp_path / "own.toml").write_text(next(iter(blocks)))
    monkeypatch.chdir(tmp_path)
    examples = doctest.DocTestParser().get_doctest(PAGE.replace("```", ""), {}, "scheduling.md", None, 0)
    assert len(examples.examples) > 10
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(examples, out=report.append).failed == 0, "".join(report)


@pytest.mark.parametrize(("path", "name"), LINKS, ids=[name for _, name in LINKS])
def test_every_test_it_names_exists(path: str, name: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_pitfall_and_statement_names_a_test() -> None:
    for title in ("Pitfalls of the agenda's candidate", "Where theory has an answer"):
        rows = [line for line in PAGE.split(f"## {title}\n")[1].split("\n## ")[0].splitlines() if line.startswith("| ")]
        assert len(rows) >= 8
        assert all("::test_" in row for row in rows[1:]), title


def test_every_key_of_a_row_is_explained() -> None:
    section = PAGE.split("## A rule of your own\n")[1].split("\n## ")[0]
    assert set(priorities.COLUMNS) <= set(re.findall(r"`(\w+)`", section))
