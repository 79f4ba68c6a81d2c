"""Every error the workbench raises on purpose, and the exit code each one means on the command line.

An error says what was expected, what was found with its value, where, and what to do. Subclasses keep those parts as
fields, so that ``workbench --json`` prints them as data and the message stays one readable paragraph.
"""

from __future__ import annotations

from typing import ClassVar


class WorkbenchError(Exception):
    """Base of all deliberate errors.

    Parameters
    ----------
    expected : str
        What the code needed, as the end of "expected ...".
    found : str
        What it got, with the value.
    where : str
        File and line, table and row, argument name: whatever finds the spot. Empty if the message needs none.
    fix : str
        What the reader can do next. Empty when nothing can be done.

    Attributes
    ----------
    exit_code : int
        Process exit code of the command line: 1 check failed, 2 usage, 3 prerequisite missing, 4 data integrity.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, expected: str, found: str, *, where: str = "", fix: str = "") -> None:
        self.expected = expected
        self.found = found
        self.where = where
        self.fix = fix
        head = f"{where}: " if where else ""
        tail = f" {fix}" if fix else ""
        super().__init__(f"{head}expected {expected}, found {found}.{tail}")

    def as_dict(self) -> dict[str, str]:
        """The parts of the message, for ``--json`` output."""
        return {
            "error": type(self).__name__,
            "expected": self.expected,
            "found": self.found,
            "where": self.where,
            "fix": self.fix,
        }


class UsageError(WorkbenchError):
    """An argument, parameter or option that cannot be used as given."""

    exit_code = 2


class MissingPrerequisite(WorkbenchError):
    """Something that must be installed or present is not: a package, a device, model weights."""

    exit_code = 3


class DataIntegrityError(WorkbenchError):
    """Data that does not match its manifest, schema or contract."""

    exit_code = 4


class CheckFailed(WorkbenchError):
    """A claim, gate or validation was computed and did not hold."""

    exit_code = 1
