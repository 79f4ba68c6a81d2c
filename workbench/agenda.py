"""The agenda ledger: every item of the research agenda, what serves it today, and what the others wait for.

``docs/agenda.toml`` holds one entry per item; ``docs/agenda.ids`` the frozen list of their ids. An entry either names
the targets that serve it, each of which must exist in this checkout, or says in one sentence why it is open. Nothing
here imports what a target names: files are looked at, not run.
"""

from __future__ import annotations

import ast
import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import notebook_form
from workbench.errors import DataIntegrityError, UsageError
from workbench.schema.tables import TABLES

LEDGER = "docs/agenda.toml"
FROZEN = "docs/agenda.ids"

# Kind -> the part of an id that stands for it; the two whose gap is the kind itself carry none.
KINDS: dict[str, str] = {
    "term": "term",
    "question": "que",
    "requirement": "req",
    "goal": "goal",
    "hypothesis": "hyp",
    "mechanism": "mech",
    "baseline": "base",
    "factor": "fac",
    "metric": "met",
    "invariant": "inv",
    "contribution": "con",
    "claim-limit": "claim",
    "evidence": "ev",
    "evidence-limit": "lim",
    "step": "step",
    "signal": "sig",
    "topology": "topo",
    "product": "prod",
    "continue": "cond",
    "stop": "stop",
}

# A verdict comes from a declared study; until an entry has one, this is what is known about it.
NOT_JUDGED = "not judged"


@dataclass(frozen=True, slots=True)
class Entry:
    """One item of the agenda.

    Attributes
    ----------
    id : str
        Stable name, e.g. ``G2.inv.4``.
    gap : str
        Section of the agenda: ``G1`` to ``G10``, ``MODEL``, ``ROUTE``, ``PHASE``, ``STOP``, ``LIMIT``.
    kind : str
        A key of ``KINDS``.
    text : str
        The item in short words.
    served : tuple of str
        Targets ``scheme:name``; empty for an open entry.
    open : str
        Why nothing serves it yet; empty for a served entry.
    """

    id: str
    gap: str
    kind: str
    text: str
    served: tuple[str, ...]
    open: str

    @property
    def where(self) -> str:
        """What serves it, or why nothing does."""
        return ", ".join(self.served) if self.served else f"open: {self.open}"


@dataclass(frozen=True, slots=True)
class Ledger:
    """All entries in agenda order, and the title of each gap."""

    titles: Mapping[str, str]
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """The ledger with every target checked.

    Attributes
    ----------
    ledger : Ledger
        What was checked.
    verdicts : mapping of str to str
        Entry id -> last verdict.
    """

    ledger: Ledger
    verdicts: Mapping[str, str]

    @property
    def totals(self) -> dict[str, dict[str, int]]:
        """Number of entries per gap: ``served``, ``open``."""
        totals = {gap: {"served": 0, "open": 0} for gap in self.ledger.titles}
        for entry in self.ledger.entries:
            totals[entry.gap]["served" if entry.served else "open"] += 1
        return totals

    def as_dict(self) -> dict[str, Any]:
        """Rows and totals as plain data, for ``--json``."""
        rows = [
            {
                "id": entry.id,
                "gap": entry.gap,
                "kind": entry.kind,
                "text": entry.text,
                "served": list(entry.served),
                "open": entry.open or None,
                "verdict": self.verdicts[entry.id],
            }
            for entry in self.ledger.entries
        ]
        return {"entries": rows, "totals": self.totals}

    def text(self) -> str:
        """Rows ``id, item, where, last verdict`` under each gap, then the totals."""
        lines: list[str] = []
        for gap, title in self.ledger.titles.items():
            lines.append(f"{gap}  {title}")
            for entry in self.ledger.entries:
                if entry.gap == gap:
                    item = textwrap.shorten(entry.text, 44, placeholder=" ...")
                    lines.append(f"  {entry.id:<15} {item:<44}  {entry.where}  [{self.verdicts[entry.id]}]")
            lines.append("")
        lines.append(f"{'gap':<6} {'served':>6} {'open':>6} {'all':>6}")
        for gap, count in self.totals.items():
            lines.append(_total(gap, count["served"], count["open"]))
        served = sum(bool(entry.served) for entry in self.ledger.entries)
        lines.append(_total("all", served, len(self.ledger.entries) - served))
        return "\n".join(lines)


def _total(name: str, served: int, open_: int) -> str:
    return f"{name:<6} {served:>6} {open_:>6} {served + open_:>6}"


class Checkout:
    """A folder that targets are looked up in; each source file is parsed once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._symbols: dict[Path, frozenset[str]] = {}

    def lacks(self, name: str) -> str:
        """Empty if the file `name`, relative to the root, exists inside it; what is wrong otherwise."""
        inside = (self.root / name).resolve().is_relative_to(self.root.resolve())
        return "" if inside and (self.root / name).is_file() else f"no file {name}"

    def lacks_symbol(self, name: str, symbol: str) -> str:
        """Empty if the Python file `name` defines `symbol` (``function``, ``Class`` or ``Class::method``)."""
        if lack := self.lacks(name):
            return lack
        path = self.root / name
        if path not in self._symbols:
            try:
                self._symbols[path] = frozenset(_symbols(ast.parse(path.read_bytes(), name).body))
            except SyntaxError as error:
                return f"{name} does not parse, line {error.lineno}"
        return "" if symbol in self._symbols[path] else f"no {symbol} in {name}"


def _symbols(body: Iterable[ast.stmt], prefix: str = "") -> Iterable[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
        if isinstance(node, ast.ClassDef) and not prefix:
            yield from _symbols(node.body, f"{node.name}::")
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (prefix + target.id for target in targets if isinstance(target, ast.Name))


def _file(pattern: str) -> Callable[[Checkout, str], str]:
    """A resolver for targets that are one file each."""
    return lambda checkout, name: checkout.lacks(pattern.format(name))


def _table(checkout: Checkout, name: str) -> str:
    table, _, column = name.partition(".")
    if table not in TABLES:
        return f"no table {table}"
    return f"no column {column} in table {table}" if column and column not in TABLES[table].names else ""


def _module(checkout: Checkout, name: str) -> str:
    dotted, _, symbol = name.partition("::")
    path = dotted.replace(".", "/")
    file = f"{path}.py" if not checkout.lacks(f"{path}.py") else f"{path}/__init__.py"
    if checkout.lacks(file):
        return f"no module {dotted}"
    return checkout.lacks_symbol(file, symbol) if symbol else ""


def _test(checkout: Checkout, name: str) -> str:
    path, _, function = name.partition("::")
    if not function.rpartition("::")[2].startswith("test_"):
        return f"no test function named in {name!r}"
    return checkout.lacks_symbol(path, function)


def _rule(checkout: Checkout, name: str) -> str:
    table, _, row = name.partition(".")
    file = f"workbench/control/{table}.toml"
    if lack := checkout.lacks(file):
        return lack
    try:
        rows = tomllib.loads((checkout.root / file).read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return f"{file} is not TOML"
    return "" if row in rows else f"no row {row!r} in {file}"


def _figure(checkout: Checkout, name: str) -> str:
    quoted = re.compile(rf"""["'](?:[^"'\s]*/)?{re.escape(name)}["']""")
    for path in sorted((checkout.root / "notebooks").glob("*.ipynb")):
        code = (cell for cell in notebook_form.read(path)["cells"] if cell["cell_type"] == "code")
        if any(quoted.search(notebook_form.source(cell)) for cell in code):
            return ""
    return f"no notebook that draws {name}"


def _doc(checkout: Checkout, name: str) -> str:
    path, _, heading = name.partition("#")
    if (lack := checkout.lacks(path)) or not heading:
        return lack
    titles = re.findall(r"^#+ +(.+?) *$", (checkout.root / path).read_text("utf-8"), re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
    return "" if heading in slugs else f"no heading #{heading} in {path}"


# Scheme -> function that says what a target of that scheme lacks in a checkout; the empty string if nothing.
RESOLVERS: dict[str, Callable[[Checkout, str], str]] = {
    "view": _file("workbench/schema/views/{}.sql"),
    "table": _table,
    "module": _module,
    "test": _test,
    "rule": _rule,
    "notebook": _file("notebooks/{}.ipynb"),
    "figure": _figure,
    "graph": _file("workbench/graphs/{}.toml"),
    "study": _file("workbench/studies/{}.py"),
    "run": _file("data/raw/{}/manifest.json"),
    "doc": _doc,
}


def _entry(row: object, number: int, titles: Mapping[str, str]) -> Entry:
    """One validated entry; the first thing wrong with it is the error."""
    label = row.get("id") if isinstance(row, dict) else None
    where = f"{LEDGER}, entry {number}" + (f" ({label})" if label else "")

    def refuse(expected: str, found: str) -> DataIntegrityError:
        return DataIntegrityError(expected, found, where=where)

    if not isinstance(row, dict):
        raise refuse("a table", repr(row))
    if unknown := sorted(set(row) - {"id", "gap", "kind", "text", "served", "open"}):
        raise refuse("the fields id, gap, kind, text and served or open", f"field {unknown[0]!r}")
    for field in ("id", "gap", "kind", "text"):
        if not isinstance(row.get(field), str) or not row[field].strip():
            raise refuse(f"a text in field {field!r}", repr(row.get(field)))
    id_, gap, kind = row["id"], row["gap"], row["kind"]
    if gap not in titles:
        raise refuse(f"a gap of {', '.join(titles)}", repr(gap))
    if kind not in KINDS:
        raise refuse(f"a kind of {', '.join(KINDS)}", repr(kind))
    part = "" if gap in ("STOP", "LIMIT") else rf"\.{KINDS[kind]}"
    if not re.fullmatch(rf"{gap}(\.\d+)?{part}\.\d+", id_):
        raise refuse(f"an id of gap {gap} and kind {kind}, such as {gap}{part.replace(chr(92), '')}.1", repr(id_))
    if ("served" in row) == ("open" in row):
        raise refuse("either served or open", "both" if "served" in row else "neither")
    if "open" in row:
        if not isinstance(row["open"], str) or not row["open"].strip():
            raise refuse("a reason in field 'open'", repr(row["open"]))
        return Entry(id_, gap, kind, row["text"], (), row["open"])
    served = row["served"]
    if not isinstance(served, list) or not served:
        raise refuse("at least one target in field 'served'", repr(served))
    for target in served:
        scheme, _, name = target.partition(":") if isinstance(target, str) else ("", "", "")
        if scheme not in RESOLVERS or not name:
            raise refuse(f"targets SCHEME:NAME with a scheme of {', '.join(RESOLVERS)}", repr(target))
    return Entry(id_, gap, kind, row["text"], tuple(served), "")


def load(root: Path) -> Ledger:
    """Read and validate the ledger of the checkout at `root`; targets are not looked up.

    Raises
    ------
    UsageError
        `root` is not a checkout: it has no ledger.
    DataIntegrityError
        The ledger is not TOML, an entry breaks a rule, an id occurs twice, or the ids differ from the frozen list.
    """
    path = root / LEDGER
    if not path.is_file():
        raise UsageError(f"a checkout that holds {LEDGER}", f"none in {root}", fix="Run this inside a clone.")
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataIntegrityError("valid TOML", str(error), where=LEDGER) from error
    titles, rows = data.get("gaps"), data.get("entry")
    if not isinstance(titles, dict) or not isinstance(rows, list):
        raise DataIntegrityError("a table [gaps] and entries [[entry]]", f"keys {sorted(data)}", where=LEDGER)
    entries = tuple(_entry(row, number, titles) for number, row in enumerate(rows, start=1))
    ids = [entry.id for entry in entries]
    if twice := sorted({id_ for id_ in ids if ids.count(id_) > 1}):
        raise DataIntegrityError("each id once", f"{twice[0]} twice", where=LEDGER)
    frozen = (root / FROZEN).read_text("utf-8").split() if (root / FROZEN).is_file() else []
    if frozen != sorted(set(frozen)):
        raise DataIntegrityError("sorted ids, each once", "another order", where=FROZEN)
    if gone := sorted(set(frozen) - set(ids)):
        raise DataIntegrityError("every frozen id", f"no entry {gone[0]}", where=LEDGER, fix="Ids are never deleted.")
    if new := sorted(set(ids) - set(frozen)):
        raise DataIntegrityError("every id of the ledger", f"no line {new[0]}", where=FROZEN, fix="Add the line.")
    return Ledger(titles, entries)


def coverage(root: Path) -> Coverage:
    """Check the ledger of the checkout at `root` and every target in it.

    Raises
    ------
    UsageError, DataIntegrityError
        As `load`; and a target that does not exist, listing up to five.
    """
    ledger = load(root)
    checkout = Checkout(root)
    lacks = []
    for entry, target in ((row, name) for row in ledger.entries for name in row.served):
        scheme, _, name = target.partition(":")
        if lack := RESOLVERS[scheme](checkout, name):
            lacks.append(f"{entry.id} -> {target}: {lack}")
    if lacks:
        more = f"; and {len(lacks) - 5} more" if len(lacks) > 5 else ""
        raise DataIntegrityError(
            "every served target to exist",
            "; ".join(lacks[:5]) + more,
            where=LEDGER,
            fix="Point the entry at what serves it now, or say why it is open.",
        )
    return Coverage(ledger, {entry.id: NOT_JUDGED for entry in ledger.entries})
