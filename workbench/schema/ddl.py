"""The tables and views of a store as DuckDB statements, derived from the contract and from ``views/*.sql``.

Tables enforce structure (types, vocabularies, NOT NULL) and nothing else: a row that breaks a rule of meaning is kept
and reported by the validator, because a trace that refuses to load cannot be repaired. Every table leads with the
column ``run``, so that one store holds many runs. Names of runs, stages and edges become ENUM types of the store.

A view file starts with its catalog entry, four comment fields that may run over several lines::

    -- definition: what the number is
    -- unit: of the value columns
    -- denominator: over which rows
    -- source: where the definition comes from
"""

from __future__ import annotations

import functools
import graphlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

from workbench.schema.enums import ENUMS
from workbench.schema.tables import Column, Table

SQL_TYPES = {
    "int64": "BIGINT",
    "int32": "INTEGER",
    "int16": "SMALLINT",
    "float64": "DOUBLE",
    "bool": "BOOLEAN",
    "text": "VARCHAR",
    "json": "JSON",
}

# ENUM types whose values come from the runs in the store.
NAME_TYPES = ("run_name", "stage_name", "edge_name")

FIELDS = ("definition", "unit", "denominator", "source")


@dataclass(frozen=True, slots=True)
class View:
    """One view: its catalog entry, its query, and the views that it reads."""

    name: str
    definition: str
    unit: str
    denominator: str
    source: str
    sql: str
    reads: frozenset[str]

    @property
    def comment(self) -> str:
        """The catalog entry as the text that ``COMMENT ON VIEW`` stores."""
        return "\n".join(f"{field}: {getattr(self, field)}" for field in FIELDS)


def quote_name(name: str) -> str:
    """SQL identifier for any name: quoted, inner quotes doubled.

    >>> quote_name('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def quote_text(value: str) -> str:
    """SQL string literal for any text.

    >>> quote_text("it's")
    "'it''s'"
    """
    return "'" + value.replace("'", "''") + "'"


def name_type(table: Table, column: Column) -> str | None:
    """The store's own ENUM that a text column draws from (stage and edge names), or None."""
    if column.type != "text":
        return None
    if column.name == "stage" or (table.name == "edge" and column.name in ("source", "target")):
        return "stage_name"
    return "edge_name" if column.name == "edge" else None


def sql_type(table: Table, column: Column) -> str:
    """DuckDB type of a column."""
    if column.is_enum:
        return column.type
    return name_type(table, column) or SQL_TYPES[column.type]


def create_types(names: Mapping[str, Sequence[str]]) -> list[str]:
    """One CREATE TYPE per vocabulary; `names` holds the values of ``NAME_TYPES``, in the order they sort."""
    vocabularies = {**ENUMS, **{name: names[name] for name in NAME_TYPES}}
    return [
        f"CREATE TYPE {name} AS ENUM ({', '.join(map(quote_text, values))})" for name, values in vocabularies.items()
    ]


def create_table(table: Table) -> str:
    """CREATE TABLE with the leading column ``run``."""
    columns = ["run run_name NOT NULL"]
    columns += [
        f"{quote_name(column.name)} {sql_type(table, column)}{'' if column.null else ' NOT NULL'}"
        for column in table.columns
    ]
    return f"CREATE TABLE {quote_name(table.name)} (\n    " + ",\n    ".join(columns) + "\n)"


def comment_table(table: Table) -> list[str]:
    """The contract's words on the table and its columns, kept where a SQL user looks for them."""
    name = quote_name(table.name)
    comments = [f"COMMENT ON TABLE {name} IS {quote_text(table.doc)}"]
    comments += [
        f"COMMENT ON COLUMN {name}.{quote_name(column.name)} IS {quote_text(column.doc)}" for column in table.columns
    ]
    return comments


@functools.cache
def views() -> tuple[View, ...]:
    """Every metric view, each after the views that it reads.

    Returns
    -------
    tuple of View
        Name, definition, unit and denominator as the catalog shows them.
    """
    files = {
        entry.name.removesuffix(".sql"): entry.read_text(encoding="utf-8")
        for entry in resources.files("workbench.schema").joinpath("views").iterdir()
        if entry.name.endswith(".sql")
    }
    parsed = {name: _parse(name, files[name], frozenset(files)) for name in sorted(files)}
    order = graphlib.TopologicalSorter({name: sorted(view.reads) for name, view in parsed.items()}).static_order()
    return tuple(parsed[name] for name in order)


def create_views() -> list[str]:
    """CREATE VIEW and COMMENT ON VIEW of every metric view, in dependency order."""
    statements = []
    for view in views():
        statements.append(f"CREATE VIEW {view.name} AS\n{view.sql}")
        statements.append(f"COMMENT ON VIEW {view.name} IS {quote_text(view.comment)}")
    return statements


def _parse(name: str, text: str, names: frozenset[str]) -> View:
    """Split a view file into catalog entry and query; a file without its four fields is a defect of this package."""
    entry: dict[str, str] = {}
    lines = text.splitlines()
    field = ""
    while lines and lines[0].startswith("--"):
        words = lines.pop(0).removeprefix("--").strip()
        head, colon, rest = words.partition(": ")
        if colon and head in FIELDS:
            field, words = head, rest
        entry[field] = f"{entry[field]} {words}" if field in entry else words
    if tuple(entry) != FIELDS:
        raise ValueError(f"views/{name}.sql: expected the comment fields {', '.join(FIELDS)}, found {', '.join(entry)}")
    sql = "\n".join(lines).strip()
    reads = set(re.findall(r"\b(?:FROM|JOIN)\s+([a-z_]+)", sql)) & names
    return View(name=name, sql=sql, reads=frozenset(reads), **entry)
