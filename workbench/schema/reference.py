"""The reference page of the trace contract, rendered from the contract itself so that the two cannot drift."""

from __future__ import annotations

from workbench.schema.ddl import views
from workbench.schema.enums import ENUMS
from workbench.schema.tables import SCHEMA_VERSION, TABLES

HEAD = f"""# Tables and views of a trace

Rendered from `workbench/schema`; `make test` fails when this page is not current. Schema version {SCHEMA_VERSION}.

A run at rest is a folder of Parquet files, one per table, beside `manifest.json`. In a store every table and view
leads with the column `run`. Times are int64 nanoseconds on the run's reference clock, sizes are bytes, NULL means *not
known*.
To bring your own trace, write these tables with `workbench.trace.seal` and check them with `workbench validate FOLDER`.
"""


def markdown() -> str:
    """The whole page: tables with every column, closed vocabularies, and each metric view with its definition."""
    parts = [HEAD, "## Tables", ""]
    for table in TABLES.values():
        key = f" Key: {', '.join(f'`{name}`' for name in table.key)}." if table.key else ""
        parts += [f"### {table.name}", "", f"{_sentence(table.doc)}{key}", ""]
        parts += ["| column | type | meaning |", "|---|---|---|"]
        for column in table.columns:
            null = ", may be NULL" if column.null else ""
            parts.append(f"| `{column.name}` | {column.type}{null} | {_cell(column.doc)} |")
        parts.append("")
    parts += ["## Vocabularies", "", "| name | values |", "|---|---|"]
    parts += [f"| {name} | {', '.join(values)} |" for name, values in ENUMS.items()]
    parts += ["", "## Views", ""]
    for view in sorted(views(), key=lambda view: view.name):
        parts += [
            f"### {view.name}",
            "",
            _sentence(view.definition),
            "",
            f"*Unit*: {view.unit}  ",
            f"*Denominator*: {view.denominator}  ",
            f"*Source*: {view.source}",
            "",
        ]
    return "\n".join(parts).rstrip() + "\n"


def _sentence(text: str) -> str:
    text = text[0].upper() + text[1:]
    return text if text.endswith((".", "?")) else text + "."


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
