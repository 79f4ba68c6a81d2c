"""Rows of a TOML file: named records of numbers that a rule reads, so that a user adds one without touching code.

Each top-level table of the file is one row and its name is the row's name; every key is checked against a column before
any rule sees it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.control.ranges import UNBOUNDED, shown, truth, within
from workbench.errors import UsageError

MAX_BYTES = 1 << 20  # 1,000 rows take about 300 KB
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Column:
    """What one key of a row may hold.

    Attributes
    ----------
    kind : type
        `int`, `bool`, `str`, or `tuple` for an ascending list of integers.
    low, high : int
        Range of an integer, or of each integer of a list.
    choices : tuple of str
        Texts that are allowed; empty = any text that is not blank.
    optional : bool
        Whether the key may be absent, which means what the reader of the rows says it means.
    """

    kind: type
    low: int = 0
    high: int = UNBOUNDED
    choices: tuple[str, ...] = ()
    optional: bool = False

    def check(self, value: Any, where: str) -> Any:
        """`value` as a rule takes it; UsageError names `where`."""
        if self.kind is int:
            return within(value, self.low, self.high, where)
        if self.kind is tuple:
            if not isinstance(value, list | tuple) or not value:
                raise UsageError("a list of integers", shown(value), where=where)
            checked = tuple(within(each, self.low, self.high, where) for each in value)
            if list(checked) != sorted(set(checked)):
                raise UsageError("integers that ascend", shown(value), where=where)
            return checked
        if self.kind is bool:
            return truth(value, where)
        if not isinstance(value, str) or (value not in self.choices if self.choices else not value.strip()):
            raise UsageError(f"one of {list(self.choices)}" if self.choices else "a text", shown(value), where=where)
        return value


def read(path: str | Path, columns: Mapping[str, Column]) -> dict[str, dict[str, Any]]:
    """The rows of a file by name, in the order of the file; absent optional keys are absent.

    Raises
    ------
    UsageError
        No such file, more than MAX_BYTES, no TOML, a name that is not kebab-case, a key that is missing, unknown or out
        of range.
    """
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as err:
        raise UsageError("a file of rows", getattr(err, "strerror", None) or str(err), where=str(path)) from err
    if len(raw) > MAX_BYTES:
        raise UsageError(f"at most {MAX_BYTES} bytes", "more", where=str(path))
    try:
        data = tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as err:
        raise UsageError("TOML", str(err)[:200], where=str(path)) from err
    rows = {}
    for name, row in data.items():
        where = f"{path}, row {shown(name)}"
        if not _NAME.fullmatch(name):
            raise UsageError("a name in kebab-case", shown(name), where=where)
        if not isinstance(row, dict):
            raise UsageError("a table", shown(row), where=where)
        for key in row:
            if key not in columns:
                raise UsageError(f"keys among {list(columns)}", shown(key), where=where)
        for key, column in columns.items():
            if key not in row and not column.optional:
                raise UsageError(f"key {key!r}", "none", where=where)
        rows[name] = {key: columns[key].check(value, f"{where}, {key}") for key, value in row.items()}
    return rows


def joined(shipped: Mapping[str, Any], own: Mapping[str, Any], path: str | Path) -> dict[str, Any]:
    """Both sets of rows; UsageError if a row of the user takes a shipped name, so that a name means one thing."""
    for name in own:
        if name in shipped:
            raise UsageError("a name of your own", f"{name!r}, which ships with the workbench", where=str(path))
    return {**shipped, **own}
