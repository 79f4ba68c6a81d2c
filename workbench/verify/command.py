"""What ``workbench explore`` does: small worlds explored, broken protocols hunted, and what was found in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from workbench.control.ranges import within
from workbench.errors import UsageError, WorkbenchError
from workbench.twin import Edit
from workbench.verify import catalog, mutants
from workbench.verify.explorer import explore
from workbench.verify.outcome import Exploration
from workbench.verify.scenario import Scenario
from workbench.verify.search import MAX_STATES
from workbench.verify.story import tell

Answer = tuple[int, str, dict[str, Any]]
Say = Callable[[str], None]

# Size of a world that is not in the catalog, and states that are searched before it is worth compiling.
OWN = "own"
FEW_STATES = 20_000
# States at which a search gives up unless told otherwise.
LIMIT_STATES = 10_000_000


@dataclass(frozen=True, slots=True)
class Order:
    """What to explore, as the command line says it.

    Attributes
    ----------
    scenarios : sequence of str
        Names of the catalog; empty: all small ones, or the one that shows `mutant`.
    mutant : str or None
        A mutant of `workbench.verify.mutants`.
    edits : sequence of (str, str, str)
        More changes: module, text, and what takes its place.
    limit : int
        States at which a search gives up.
    interpreted : bool
        Whether larger worlds are not compiled either.
    world : Scenario or None
        A world of one's own instead of those of the catalog.
    faults : mapping of str to int or None
        Budgets in the place of those of the scenarios.
    """

    scenarios: Sequence[str] = ()
    mutant: str | None = None
    edits: Sequence[tuple[str, str, str]] = ()
    limit: int = LIMIT_STATES
    interpreted: bool = False
    world: Scenario | None = None
    faults: Mapping[str, int] | None = None


def run(order: Order, say: Say) -> Answer:
    """Explore and report; exit code 1 if a property is violated or a search gave up."""
    within(order.limit, 1, MAX_STATES, "--limit")
    changed = mutants.named(order.mutant) if order.mutant is not None else None
    edits = (*(changed.edits if changed else ()), *(mutants.edit(*words) for words in order.edits))
    if order.faults is not None:
        say(f"faults on each path: {', '.join(f'{name}={n}' for name, n in order.faults.items()) or 'none'}")
    names = order.scenarios or ((changed.scenario,) if changed else [entry.name for entry in catalog.of_size("small")])
    entries = [catalog.named(name) for name in names]
    if order.world:
        entries = [catalog.Entry("own", "a world of your own", OWN, order.world)]
    if order.faults is not None:
        entries = [replace(e, size=OWN, scenario=replace(e.scenario, faults=order.faults)) for e in entries]
    wide = max(16, *(len(entry.name) for entry in entries)) + 2
    lines = [f"{'scenario':<{wide}}{'states':>12}{'transitions':>13}{'depth':>7}{'states/s':>11}  verdict"]
    rows, stories = [], []
    for number, entry in enumerate(entries, start=1):
        if len(entries) > 1:
            say(f"[{number}/{len(entries)}] {entry.name}")
        try:
            found = _explore(entry, edits, order, say)
        except WorkbenchError:
            raise
        except (Exception, SystemExit) as error:
            if not edits:
                raise
            said = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise UsageError("a change with which the rules still run", said, where=entry.name) from error
        rate = round(found.states / found.seconds) if found.seconds > 0 else 0
        verdict = f"violated: {mutants.property_name(found)}, {len(found.trace)} steps" if found.kind else found.verdict
        lines.append(
            f"{entry.name:<{wide}}{found.states:>12,}{found.transitions:>13,}{found.depth:>7}{rate:>11,}  {verdict}"
        )
        told = tell(entry.scenario, found.trace, found.kind, found.code, edits=edits) if found.kind else ""
        if told:
            stories.append(f"\n{entry.name}: {entry.why}.\n{told}")
        rows.append({**_numbers(entry, found), "rate": rate, "story": told.splitlines()})
    diff = mutants.Mutant("", "", "", edits).diff() if edits else ""
    if changed:
        lines.insert(0, f"{changed.name}: {changed.breaks}")
    if diff:
        lines[:0] = [*diff.splitlines(), ""]
    holds = all(row["verdict"] == "holds" for row in rows)
    data = {"holds": holds, "mutant": order.mutant, "diff": diff, "explorations": rows}
    return (0 if holds else 1), "\n".join([*lines, *stories]), data


def _explore(entry: catalog.Entry, edits: tuple[Edit, ...], order: Order, say: Say) -> Exploration:
    """Small worlds interpreted, since compiling takes longer than searching them; larger ones compiled.

    A changed protocol is looked at interpreted first: most breaks are near, and a change that goes astray in compiled
    code, past the end of a vector or round for ever, cannot be stopped there.
    """
    g, m = entry.scenario.vectors()
    compiled = entry.size != "small" and not order.interpreted
    if compiled:
        if edits or entry.size == OWN:
            few = min(order.limit, FEW_STATES)
            found = explore(mutants.WORLD, g, m, compiled=False, limit_states=few, edits=edits)
            if found.verdict != "limit" or order.limit == few:
                return found
        say("compiling the rules, up to a minute unless they are kept from before")
    return explore(mutants.WORLD, g, m, compiled=compiled, limit_states=order.limit, edits=edits, say=say)


def _numbers(entry: catalog.Entry, found: Exploration) -> dict[str, Any]:
    """One exploration for a program."""
    return {
        "scenario": entry.name,
        "why": entry.why,
        "size": entry.size,
        "verdict": found.verdict,
        "property": mutants.property_name(found),
        "steps": len(found.trace),
        "states": found.states,
        "transitions": found.transitions,
        "depth": found.depth,
        "goals": found.goals,
        "seconds": round(found.seconds, 3),
    }


def hunt_all() -> Answer:
    """Hunt every mutant; exit code 1 unless each violates the property that it is said to violate."""
    rows = mutants.table()
    lines = [f"{'mutant':<36}{'scenario':<22}{'violates':<17}{'steps':>6}{'states':>9}"]
    lines += [
        f"{row.name:<36}{row.scenario:<22}{row.property or 'NOTHING':<17}{row.steps:>6}{row.states:>9,}" for row in rows
    ]
    found = sum(row.is_expected for row in rows)
    lines.append(f"{found} of {len(rows)} mutants are found by the property that they violate.")
    return (
        (0 if found == len(rows) else 1),
        "\n".join(lines),
        {"found": found, "mutants": [asdict(row) for row in rows]},
    )


def listing() -> Answer:
    """Name what can be explored."""
    lines = []
    for size in catalog.SIZES:
        lines.append(f"{size} scenarios")
        lines += [f"  {entry.name:<18} {entry.why}" for entry in catalog.of_size(size)]
    kinds = {"mutants": mutants.MUTANTS, "survivors: changes that break nothing": mutants.SURVIVORS}
    for title, known in kinds.items():
        lines.append(title)
        lines += [f"  {mutant.name:<36} {mutant.breaks}" for mutant in known.values()]
    scenarios = [{"name": e.name, "size": e.size, "why": e.why} for e in catalog.CATALOG.values()]
    changed = [
        {"name": m.name, "scenario": m.scenario, "breaks": m.breaks, "violates": m.violates, "because": m.because}
        for known in kinds.values()
        for m in known.values()
    ]
    return 0, "\n".join(lines), {"scenarios": scenarios, "mutants": changed}
