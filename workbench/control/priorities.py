"""Priorities as data: rows of a TOML file, checked once, and the flat vectors that the rules read.

A user adds a priority by writing a row into a file of their own; engines take whatever `load` returns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from workbench.control import rows
from workbench.control.priority import (
    CLASS_ORDERS,
    NO_CLASSES,
    NO_SIBLINGS,
    ON_TIME_FIRST,
    REPLICA_CHOICES,
    SIBLING_ORDERS,
)
from workbench.control.ranges import shown
from workbench.control.signals import BLIND, CLASS_STATISTICS, INFORMATION, SIGNAL_TABLE
from workbench.control.terms import FAR, TERM_TABLE, Floats
from workbench.errors import UsageError
from workbench.twin import Vector

TERM_NAMES = tuple(entry.name for entry in TERM_TABLE)
# Greatest weight, aging rate or clip bound: scores stay far below FAR.
LARGEST = 1e6
# Least aging rate above 0: what ages add stays far above the least number that a float tells from 0.
LEAST_AGING = 1e-6


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a score: `weight` times the term moved into ``low..high``, minus and plus FAR if not given."""

    name: str
    weight: float
    low: float = -FAR
    high: float = FAR

    @property
    def bounded(self) -> bool:
        """Whether the row clips the term on both sides."""
        return self.low > -FAR and self.high < FAR


@dataclass(frozen=True, slots=True)
class Priority:
    """One rule: who runs next at a stage, and which replica takes a request.

    Attributes
    ----------
    name : str
        Kebab-case.
    title, source : str
        One line for a reader, and where the rule comes from.
    information : str
        Name of the information class: what the signals of this rule may hold.
    terms : tuple of Term
        In the order in which they are added up. None at all leaves aging alone.
    aging : float
        What an age of one scale adds to the score.
    class_order, sibling_order, replica_choice : str
        Names from `CLASS_ORDERS`, `SIBLING_ORDERS`, `REPLICA_CHOICES`.
    """

    name: str
    title: str
    information: str
    terms: tuple[Term, ...]
    aging: float
    class_order: str
    sibling_order: str
    replica_choice: str
    source: str

    @property
    def spec(self) -> Vector:
        """The integers that the rules of `priority` read."""
        codes = [TERM_NAMES.index(term.name) for term in self.terms]
        return [
            CLASS_ORDERS.index(self.class_order),
            SIBLING_ORDERS.index(self.sibling_order),
            REPLICA_CHOICES.index(self.replica_choice),
            INFORMATION.index(self.information),
            len(codes),
            *codes,
        ]

    @property
    def weights(self) -> Floats:
        """The floats that the rules of `priority` read."""
        return [self.aging, *(value for term in self.terms for value in (term.weight, term.low, term.high))]

    @property
    def needed(self) -> int:
        """Code of the least information class that feeds every part of the rule."""
        least = max((TERM_TABLE[TERM_NAMES.index(term.name)].information for term in self.terms), default=BLIND)
        by_slack = self.class_order == CLASS_ORDERS[ON_TIME_FIRST]
        by_path = self.sibling_order != SIBLING_ORDERS[NO_SIBLINGS]
        return max(least, CLASS_STATISTICS) if by_slack or by_path else least


def overtaking_bound_ns(priority: Priority, scale: int) -> int | None:
    """No request that arrives more than this after another is chosen before it, while both have a task to run.

    Let the clipped terms of a task sum to ``p0`` at least and ``p1`` at most, and let aging add ``rho`` per `scale`. If
    the newcomer's score is greater, then ``p1 + rho * age' / scale > p0 + rho * age / scale``, so it arrived less than
    ``(p1 - p0) / rho * scale`` later. At equal scores the earlier arrival wins. So what a request waits for is at most
    the work present at its arrival and the work that arrives within the bound: finite, whatever comes after.

    Parameters
    ----------
    priority : Priority
        The rule.
    scale : int
        Unit of time of the decisions in ns; where it changes, the largest one.

    Returns
    -------
    int or None
        Nanoseconds, rounded up, with what the rounding of scores can add at ages up to three days: 1 ns, and more where
        a clip is far from 0 and narrow. 0 for aging alone. None if there is no bound: no aging, a term without clip, or
        classes.
    """
    if priority.aging <= 0 or priority.class_order != CLASS_ORDERS[NO_CLASSES]:
        return None
    if not all(term.bounded for term in priority.terms):
        return None
    if not priority.terms:
        return 0
    # Exact fractions, since no float holds the bound of a small rate. A product and a sum per term are rounded, in both
    # scores; rounding the last sum keeps their order, and rounding ages adds less than half a nanosecond.
    terms = [(abs(Fraction(term.weight)), Fraction(term.low), Fraction(term.high)) for term in priority.terms]
    span = sum(weight * (high - low) for weight, low, high in terms)
    size = sum(weight * max(abs(low), abs(high)) for weight, low, high in terms)
    per_score = scale / Fraction(priority.aging)
    rounding = size * len(terms) * Fraction(2) ** -52
    return math.ceil(span * per_score) + math.ceil(rounding * per_score + Fraction(1, 2))


class _Rate(rows.Column):
    """0, or a number from LEAST_AGING to LARGEST."""

    def check(self, value: Any, where: str) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (value == 0 or LEAST_AGING <= value <= LARGEST):
            raise UsageError(f"0, or a number from {LEAST_AGING:f} to {LARGEST:.0f}", shown(value), where=where)
        return float(value)


class _PerTerm(rows.Column):
    """A table from names of terms to numbers, or to pairs ``[low, high]`` where `kind` is `list`."""

    def check(self, value: Any, where: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise UsageError("a table of terms", shown(value), where=where)
        for name, item in value.items():
            if name not in TERM_NAMES:
                raise UsageError(f"terms among {list(TERM_NAMES)}", shown(name), where=where)
            at = f"{where}, {name}"
            numbers = item if self.kind is list and isinstance(item, list) else [item]
            for number in numbers:
                if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= LARGEST:
                    raise UsageError(f"numbers up to {LARGEST:.0f} in size", shown(item), where=at)
            if self.kind is list and (len(numbers) != 2 or not numbers[0] < numbers[1]):
                raise UsageError("[low, high] with low below high", shown(item), where=at)
            if self.kind is float and item == 0:
                raise UsageError("a weight other than 0", shown(item), where=at, fix="Leave the term out.")
        return value


COLUMNS = {
    "title": rows.Column(str),
    "information": rows.Column(str, choices=INFORMATION),
    "weights": _PerTerm(float, optional=True),
    "clip": _PerTerm(list, optional=True),
    "aging": _Rate(float, optional=True),
    "class_order": rows.Column(str, choices=CLASS_ORDERS, optional=True),
    "sibling_order": rows.Column(str, choices=SIBLING_ORDERS, optional=True),
    "replica_choice": rows.Column(str, choices=REPLICA_CHOICES, optional=True),
    "source": rows.Column(str),
}


def read(path: str | Path) -> dict[str, Priority]:
    """The priorities of one file alone; UsageError names the row and the key that cannot be used."""
    found = {}
    for name, row in rows.read(path, COLUMNS).items():
        where = f"{path}, row {name!r}"
        weights, clips = row.get("weights", {}), row.get("clip", {})
        for term in clips:
            if term not in weights:
                raise UsageError("a clip of a term that has a weight", repr(term), where=where)
        priority = Priority(
            name=name,
            title=row["title"],
            information=row["information"],
            terms=tuple(
                Term(term, float(weight), *map(float, clips.get(term, ()))) for term, weight in weights.items()
            ),
            aging=row.get("aging", 0.0),
            class_order=row.get("class_order", CLASS_ORDERS[0]),
            sibling_order=row.get("sibling_order", SIBLING_ORDERS[0]),
            replica_choice=row.get("replica_choice", REPLICA_CHOICES[0]),
            source=row["source"],
        )
        if INFORMATION.index(priority.information) < priority.needed:
            raise UsageError(
                f"information {INFORMATION[priority.needed]!r} or more", repr(priority.information), where=where
            )
        found[name] = priority
    return found


@lru_cache(maxsize=1)
def _shipped() -> dict[str, Priority]:
    with resources.as_file(resources.files("workbench") / "control" / "priorities.toml") as path:
        return read(path)


def load(path: str | Path | None = None) -> dict[str, Priority]:
    """All priorities by name: those that ship with the package, then those of the user's file.

    Raises
    ------
    UsageError
        No such file, no TOML, a key or term that does not exist, a value out of range, a rule that needs more
        information than it declares, or a name that a shipped rule has.

    Examples
    --------
    >>> load()["srpt-path"].terms
    (Term(name='path', weight=-1.0, low=-1e+40, high=1e+40),)
    """
    shipped = _shipped()
    return dict(shipped) if path is None else rows.joined(shipped, read(path), path)


def preset(name: str) -> Priority:
    """A priority that ships with the package; UsageError lists the names there are."""
    if name not in (shipped := _shipped()):
        raise UsageError(f"a priority among {list(shipped)}", repr(name))
    return shipped[name]


def formula(priority: Priority) -> str:
    """The score as a person writes it; aging is age over the scale."""
    parts = []
    for term in priority.terms:
        inner = f"clip({term.name}, {term.low:g}, {term.high:g})" if term.bounded else term.name
        size = "" if abs(term.weight) == 1 else f"{abs(term.weight):g} "
        parts.append(f"{'-' if term.weight < 0 else '+'} {size}{inner}")
    if priority.aging:
        parts.append(f"+ {'' if priority.aging == 1 else f'{priority.aging:g} '}age")
    return " ".join(parts).removeprefix("+ ")


def markdown(priorities: Iterable[Priority] | None = None) -> str:
    """The reference part of ``docs/scheduling.md``: signals, terms, one line per priority (the shipped by default)."""
    head = "Rendered by `workbench.control.priorities.markdown`; `make test` fails when it is not current."
    parts = ["## Reference", "", head, ""]
    for title, entries, known in (("Signals", SIGNAL_TABLE, "unknown"), ("Terms", TERM_TABLE, "when unknown")):
        cells = [(f"`{e.name}`", e.unit, INFORMATION[e.information], e.unknown, e.doc) for e in entries]
        parts += [f"### {title}", "", *_table(("name", "unit", "needs", known, "meaning"), cells), ""]
    rules = []
    for priority in _shipped().values() if priorities is None else priorities:
        bound = overtaking_bound_ns(priority, 1_000)
        shown = "none" if bound is None else f"{bound // 1_000} x scale"
        orders = [each for each in (priority.class_order, priority.sibling_order) if each != "none"]
        score, order = formula(priority) or "0", ", ".join(orders) or "-"
        name = f"`{priority.name}`"
        rules.append((name, score, order, priority.replica_choice, priority.information, shown, priority.source))
    columns = ("rule", "score", "classes, siblings", "replica", "information", "overtaken within", "source")
    parts += ["### Rules", "", *_table(columns, rules)]
    return "\n".join(parts) + "\n"


def _table(head: Sequence[str], cells: Iterable[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]
