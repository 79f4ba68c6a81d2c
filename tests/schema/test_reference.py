"""The reference page is the contract, rendered: it is current, and it leaves nothing out."""

from __future__ import annotations

from pathlib import Path

from workbench.schema.ddl import views
from workbench.schema.reference import markdown
from workbench.schema.tables import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(), "run: python -m workbench info --reference > docs/tables.md"


def test_every_column_and_view_is_on_the_page() -> None:
    page = markdown()
    for table in TABLES.values():
        section = page.split(f"### {table.name}\n")[1].split("\n### ")[0]
        for column in table.columns:
            assert f"| `{column.name}` |" in section, (table.name, column.name)
    for view in views():
        assert f"### {view.name}\n" in page
