"""Protocols broken on purpose: each a change of a line or two to the real rules, and each found by the explorer.

A mutant is a list of edits to the sources of `workbench.control`, so nothing in the code that runs has a switch for it.
``mutants.toml`` lists them: what each breaks, the world of `workbench.verify.catalog` that shows it, and the property
that it violates there. Where a fault of a real system has the same cause, the sentence names its issue; docs/faults.md
describes these. How long the shortest counterexample is gets measured (`table`), never written down.

*Survivors* are changes that the explorer rightly does not find, each with the reason why nothing is lost by it.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from workbench.errors import UsageError
from workbench.twin import Edit
from workbench.verify import laws
from workbench.verify.catalog import named as catalog_entry
from workbench.verify.explorer import explore
from workbench.verify.outcome import Exploration
from workbench.verify.story import tell

WORLD = "workbench.verify.world"
LIMIT_STATES = 60_000

# Modules that an edit may name by their last part.
MODULES: dict[str, str] = {
    name: f"workbench.{package}.{name}"
    for package, names in (
        (
            "control",
            ("admission", "credit", "effects", "layout", "ledger", "lifecycle", "machine", "objects", "window"),
        ),
        ("verify", ("laws", "options", "readiness", "symmetry", "wires", "witness", "world")),
    )
    for name in names
}

# How the properties are called: the laws, by their code, and the kinds of `Exploration`.
PROPERTY_NAMES: dict[int, str] = {
    laws.BOUND: "bound",
    laws.CONSERVATION: "conservation",
    laws.HELD: "held",
    laws.LEAK: "leak",
    laws.TERMINAL: "terminal",
    laws.ORDER: "order",
    laws.AFTER_CANCEL: "after-cancel",
    laws.LATE_LAUNCH: "late-launch",
    laws.STATE_MISUSE: "state-misuse",
    laws.UNRECORDED: "unrecorded",
    laws.MIXED: "mixed",
    laws.ROOM: "room",
    laws.CAUSE: "cause",
    laws.COMPLETE: "complete",
    laws.OVERRUN: "overrun",
    laws.FAMILY: "family",
    laws.COLLATERAL: "collateral",
    laws.PROMPT: "prompt",
}


def text_of(module: str) -> str:
    """The source of a module."""
    return inspect.getsource(importlib.import_module(module))


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed protocol.

    Attributes
    ----------
    name : str
        Kebab-case.
    breaks : str
        What is no longer as it should be, in one sentence.
    scenario : str
        The world of the catalog that shows it.
    edits : tuple of Edit
        The change.
    violates : str
        The property that it violates there (see `property_name`); empty for a survivor.
    because : str
        Why a survivor breaks nothing; empty for all others.
    """

    name: str
    breaks: str
    scenario: str
    edits: tuple[Edit, ...]
    violates: str = ""
    because: str = ""

    def diff(self) -> str:
        """The change as a unified diff of the modules that it touches, with one line of context."""
        lines: list[str] = []
        for module in dict.fromkeys(edit.module for edit in self.edits):
            old = new = text_of(module)
            for edit in self.edits:
                new = edit.apply(new) if edit.module == module else new
            lines += difflib.unified_diff(old.splitlines(), new.splitlines(), module, module, n=1, lineterm="")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table of mutants: the mutant, what the explorer found, and how much it took."""

    name: str
    breaks: str
    scenario: str
    property: str
    steps: int
    states: int
    seconds: float
    is_expected: bool


def property_name(found: Exploration) -> str:
    """The violated property: the name of a law, or ``deadlock``, ``no-way-out`` or ``only-by-timeout``; "" if none."""
    return PROPERTY_NAMES.get(found.code, found.kind)


def edit(module: str, old: str, new: str) -> Edit:
    r"""A change that anybody may propose, checked against the source.

    Parameters
    ----------
    module : str
        A name of `MODULES`, or the full name of one of these modules.
    old, new : str
        Text that stands exactly once in the module, and what takes its place. ``\n`` in it stands for a line break.

    Raises
    ------
    UsageError
        No such module, or the text does not stand there exactly once; names the nearest line.

    Examples
    --------
    >>> edit("credit", "m[at + RECEIVED] += 1", "m[at + RECEIVED] += 2").module
    'workbench.control.credit'
    """
    full = MODULES.get(module, module)
    if full not in MODULES.values():
        raise UsageError(f"a module among {', '.join(sorted(MODULES))}", repr(module), where="edit")
    old, new = old.replace("\\n", "\n"), new.replace("\\n", "\n")
    text = text_of(full)
    if (count := text.count(old)) != 1 or not old:
        near = difflib.get_close_matches(old.strip(), [line.strip() for line in text.splitlines()], n=1)
        raise UsageError(
            "text that stands exactly once",
            f"{count} times {old!r}" if old else "an empty text",
            where=f"edit of module {full}",
            fix=f"The nearest line is {near[0]!r}." if near and count == 0 else "Give more of the text around it.",
        )
    return Edit(full, old, new)


def _read(rows: Iterable[Mapping[str, Any]]) -> dict[str, Mutant]:
    """Mutants by name, of the tables of the file."""
    found = {}
    for row in rows:
        edits = tuple(Edit(MODULES[one["module"]], one["old"], one["new"]) for one in row["edit"])
        more = {key: str(row.get(key, "")) for key in ("violates", "because")}
        found[row["name"]] = Mutant(row["name"], row["breaks"], row["scenario"], edits, **more)
    return found


_FILE = tomllib.loads(resources.files("workbench.verify").joinpath("mutants.toml").read_text("utf-8"))
MUTANTS: dict[str, Mutant] = _read(_FILE["mutant"])
SURVIVORS: dict[str, Mutant] = _read(_FILE["survivor"])


def named(name: str) -> Mutant:
    """The mutant or survivor of that name; UsageError with the nearest name if there is none."""
    known = {**MUTANTS, **SURVIVORS}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    raise UsageError(
        "a mutant",
        repr(name),
        where="--mutant",
        fix=f"Did you mean {near[0]}?" if near else "`workbench explore --list` names them.",
    )


def hunt(mutant: Mutant, *, compiled: bool = False, limit_states: int = LIMIT_STATES) -> Exploration:
    """Explore the mutant in its world; interpreted by default, since it would be compiled for one search."""
    g, m = catalog_entry(mutant.scenario).scenario.vectors()
    return explore(WORLD, g, m, compiled=compiled, limit_states=limit_states, edits=mutant.edits)


def story(mutant: Mutant, found: Exploration) -> str:
    """The counterexample in words."""
    return tell(catalog_entry(mutant.scenario).scenario, found.trace, found.kind, found.code, edits=mutant.edits)


def table(names: Sequence[str] = ()) -> list[Row]:
    """Hunt the mutants of these names, all if none is given: which property each violates, and after how many steps."""
    rows = []
    for mutant in [named(name) for name in names] or MUTANTS.values():
        found = hunt(mutant)
        violated = property_name(found)
        rows.append(
            Row(
                mutant.name,
                mutant.breaks,
                mutant.scenario,
                violated,
                len(found.trace),
                found.states,
                round(found.cpu_seconds, 3),
                violated == mutant.violates,
            )
        )
    return rows
