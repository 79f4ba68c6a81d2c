"""What a trace that keeps the contract never holds: one set-based query per rule, returning the rows that break it.

The queries stand in ``rules/*.sql``, grouped by what they are about. A block that starts ``-- rule: id`` holds one
rule: its severity, the sentence that must hold, and a query for ``run, table_name, key, value``: the row at fault and
what was found there. A block that starts ``-- fact: name`` is computed once, as a temporary table, for several rules.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import resources
from typing import Literal

Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes
    ----------
    id : str
        Kebab-case name.
    severity : str
        "error": numbers that use the row are wrong. "warning": they are usable with the stated doubt.
    holds : str
        What is true of every row of a valid trace.
    sql : str
        Query for the rows that break it.
    """

    id: str
    severity: Severity
    holds: str
    sql: str


@dataclass(frozen=True, slots=True)
class Fact:
    """A temporary table that several rules read."""

    name: str
    sql: str


@functools.cache
def rules() -> tuple[Rule, ...]:
    """All rules, in the order of their files: identity first, since doubled rows make other rules fire."""
    return tuple(
        Rule(entry["rule"], _severity(entry["severity"]), entry["holds"], sql)
        for entry, sql in _blocks()
        if "rule" in entry
    )


@functools.cache
def facts() -> tuple[Fact, ...]:
    """All facts, to be created in this order before any rule runs."""
    return tuple(Fact(entry["fact"], sql) for entry, sql in _blocks() if "fact" in entry)


# In this order; a file may use facts of those before it.
FILES = ("identity", "interval", "outcome", "stream", "cause", "hand_off", "launch", "clock", "credit", "record")


def _blocks() -> list[tuple[dict[str, str], str]]:
    """Header fields and query of every block of every file."""
    blocks = []
    folder = resources.files("workbench.schema").joinpath("rules")
    for name in FILES:
        entry: dict[str, str] = {}
        lines: list[str] = []
        for line in folder.joinpath(f"{name}.sql").read_text(encoding="utf-8").splitlines():
            field, colon, text = line.removeprefix("-- ").partition(": ")
            if not (line.startswith("-- ") and colon):
                lines.append(line)
                continue
            if field in ("rule", "fact"):
                if entry:
                    blocks.append((entry, "\n".join(lines).strip()))
                entry, lines = {}, []
            entry[field] = text
        blocks.append((entry, "\n".join(lines).strip()))
    return blocks


def _severity(text: str) -> Severity:
    return "error" if text == "error" else "warning"
