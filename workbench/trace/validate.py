"""Judge a trace: every rule with the rows that break it, and every question with what the trace lacks to answer it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb

from workbench.errors import DataIntegrityError
from workbench.schema.rules import Severity, facts, rules
from workbench.schema.tables import SCHEMA_VERSION
from workbench.trace import store
from workbench.trace.answers import Answer, answers

ROWS = 20


@dataclass(frozen=True, slots=True)
class Violation:
    """One row that breaks a rule: the run, the table, the row's key in words, and what was found there."""

    run: str
    table: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken rule: how many rows break it, and the first of them in the order of their keys."""

    rule: str
    severity: Severity
    holds: str
    count: int
    rows: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """What :func:`validate` found.

    Attributes
    ----------
    runs : tuple of str
        Labels of the runs judged.
    rules : int
        Number of rules checked.
    findings : tuple of Finding
        Broken rules, in the order of the rules; empty for a valid trace.
    answers : tuple of Answer
        Per run and question, whether the trace can answer it.
    """

    runs: tuple[str, ...]
    rules: int
    findings: tuple[Finding, ...]
    answers: tuple[Answer, ...]

    @property
    def errors(self) -> int:
        """Rows that break a rule of severity error."""
        return sum(finding.count for finding in self.findings if finding.severity == "error")

    @property
    def warnings(self) -> int:
        """Rows that break a rule of severity warning."""
        return sum(finding.count for finding in self.findings if finding.severity == "warning")

    @property
    def is_valid(self) -> bool:
        """Whether no rule of severity error is broken."""
        return self.errors == 0

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "valid": self.is_valid,
            "errors": self.errors,
            "warnings": self.warnings,
        } | asdict(self)

    def text(self, *, shown_rows: int = 5) -> str:
        """The report for a terminal: broken rules, then what can be answered, of many runs with one as example."""
        verdict = "valid" if self.is_valid else "NOT valid"
        lines = [
            f"{', '.join(self.runs)}: {verdict}, {self.rules} rules, {self.errors} errors, {self.warnings} warnings"
        ]
        for finding in self.findings:
            lines.append(f"  {finding.severity} {finding.rule}: {finding.count} rows ({finding.holds})")
            lines += [f"    {row.run}, {row.key}: {row.value}" for row in finding.rows[:shown_rows]]
            if finding.count > shown_rows:
                lines.append(f"    ... and {finding.count - min(shown_rows, len(finding.rows))} more")
        lines.append("What can be answered:")
        questions: dict[tuple[str, str, str], list[Answer]] = {}
        for answer in self.answers:
            questions.setdefault((answer.question, answer.text, answer.state), []).append(answer)
        order = list(dict.fromkeys(answer.question for answer in self.answers))
        for (_, text, state), same in sorted(questions.items(), key=lambda item: order.index(item[0][0])):
            first = same[0]
            some = "" if len(self.runs) == 1 else f"{len(same)} of {len(self.runs)} runs, {first.run}: "
            lines.append(f"  {state:<6} {text} {some}{first.reason}")
        return "\n".join(lines)


def validate(source: duckdb.DuckDBPyConnection | str | os.PathLike[str], *, rows: int = ROWS) -> Report:
    """Judge a store, or one run folder.

    Parameters
    ----------
    source : connection or path
        A connection of :mod:`workbench.trace.store`, the folder of a sealed run, or a store file.
    rows : int
        Violations to keep per rule; all are counted.

    Returns
    -------
    Report

    Raises
    ------
    DataIntegrityError
        A folder that cannot be loaded at all: a file differs from its manifest, a column or value from the contract.

    Examples
    --------
    >>> from workbench.testing.example import worked_example
    >>> report = validate(store.load_tables([worked_example()]))
    >>> report.is_valid, [answer.reason for answer in report.answers if answer.question == "device"]
    (True, ['no device clock'])
    """
    with _opened(source) as con:
        findings = tuple(_findings(con, rows))
        labels = [str(run) for (run,) in con.execute("SELECT run FROM run ORDER BY run").fetchall()]
        return Report(tuple(labels), len(rules()), findings, answers(con))


@contextlib.contextmanager
def _opened(source: duckdb.DuckDBPyConnection | str | os.PathLike[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection; closed afterwards if it was opened here."""
    if isinstance(source, duckdb.DuckDBPyConnection):
        yield source
        return
    path = Path(source)
    with store.open_store(path) if path.is_file() else store.load_folder(path) as con:
        yield con


def _findings(con: duckdb.DuckDBPyConnection, rows: int) -> Iterator[Finding]:
    judging = "facts"
    try:
        for fact in facts():
            con.execute(f"CREATE TEMP TABLE {fact.name} AS {fact.sql}")
        for rule in rules():
            judging = f"rule {rule.id}"
            found = con.execute(
                f"SELECT run, table_name, key, value, count(*) OVER () AS total FROM ({rule.sql})"
                f" ORDER BY run, table_name, key, value LIMIT {max(rows, 1)}"
            ).fetchall()
            if found:
                shown = tuple(Violation(*map(str, row[:4])) for row in found[:rows])
                yield Finding(rule.id, rule.severity, rule.holds, int(found[0][4]), shown)
    except duckdb.OutOfRangeException as err:
        raise DataIntegrityError(
            "times whose differences fit 64 bits",
            str(err).splitlines()[0],
            where=judging,
            fix="Correct the clock values.",
        ) from err
    finally:
        for fact in facts():
            con.execute(f"DROP TABLE IF EXISTS temp.{fact.name}")
