"""Counterexamples for a reader: one broken protocol each, as a message sequence, a timeline and a story."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from workbench.verify import catalog, mutants, story, wires
from workbench.verify.counterexample import Counterexample, counterexample
from workbench.verify.messages import CLIENT, CONTROLLER, messages
from workbench.verify.story import Teller, letter


def lanes(example: Counterexample) -> list[str]:
    """Parties of a run from left to right: controller, stages, client."""
    return [CONTROLLER, *example.scenario.plan.stages, CLIENT]


def sequence_rows(example: Counterexample) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Lines, messages and launches of a counterexample, as `workbench.charts.sequence.sequence` draws them."""
    teller = Teller(example.scenario)
    lines = []
    for number, step in enumerate(example.steps, start=1):
        environment = wires.action_of(teller.g, step.action) >= wires.EXPIRE
        kind = "fault" if environment else "step"
        lines.append({"step": number, "kind": kind, "text": _plain(teller.action(step.action, step.before))})
        lines += [{"step": number, "kind": "after", "text": text} for text in teller.consequences(step)]
    last = len(example.steps) + 1
    if example.steps and wires.action_of(teller.g, example.steps[-1].action) == wires.EXPIRE:
        # Nothing but a deadline could happen: say what everything stood waiting for.
        lines += [{"step": last, "kind": "after", "text": f"until then {text}"} for text in example.standstill()]
    if example.violated:
        lines.append({"step": last, "kind": "wrong", "text": f"violated: {example.violated}"})
    sent = pl.DataFrame(
        [
            {"request": letter(m.request), "source": m.source, "target": m.target, "text": m.text}
            | {"sent": m.sent, "arrived": m.arrived, "lost": m.lost}
            for m in messages(example.scenario, example.steps)
        ],
        schema={"request": pl.String, "source": pl.String, "target": pl.String, "text": pl.String}
        | {"sent": pl.Int64, "arrived": pl.Int64, "lost": pl.Boolean},
    )
    launches = pl.DataFrame(
        [
            {"request": letter(row["request"]), "stage": row["stage"]}
            | {"start": row["start_ns"] // 1_000_000, "end": row["end_ns"] // 1_000_000}
            for row in example.tables()["span"].to_pylist()
            if row["kind"] == "service"
        ],
        schema={"request": pl.String, "stage": pl.String, "start": pl.Int64, "end": pl.Int64},
    )
    return pl.DataFrame(lines, schema={"step": pl.Int64, "kind": pl.String, "text": pl.String}), sent, launches


def _plain(sentence: str) -> str:
    """A sentence without what its color says."""
    return sentence.removeprefix("FAULT: ").replace("CLIENT cancels", "client cancels")


def found(names: Sequence[str] = ()) -> pl.DataFrame:
    """Hunt the mutants of these names, all if none is given.

    Returns
    -------
    polars.DataFrame
        ``mutant``, ``property`` (violated first), ``steps`` (of the shortest counterexample), ``states`` (visited until
        then), ``scenario``, ``expected`` (whether it is the property that the mutant is known to violate), ``breaks``.
    """
    rows = [
        {
            "mutant": row.name,
            "property": row.property,
            "steps": row.steps,
            "states": row.states,
            "scenario": row.scenario,
        }
        | {"expected": row.is_expected, "breaks": row.breaks}
        for row in mutants.table(names)
    ]
    return pl.DataFrame(rows).sort("property", "steps", "mutant")


def example(name: str) -> Counterexample:
    """The shortest counterexample of one mutant."""
    mutant = mutants.named(name)
    scenario = catalog.named(mutant.scenario).scenario
    return counterexample(name, scenario, mutants.hunt(mutant), edits=mutant.edits)


def breaks(name: str) -> str:
    """What a mutant breaks, in one sentence."""
    return mutants.named(name).breaks


def properties() -> pl.DataFrame:
    """What each ``property`` says: ``property``, ``says``."""
    named = {name: story.PROPERTIES[code] for code, name in mutants.PROPERTY_NAMES.items()} | story.KINDS
    return pl.DataFrame({"property": list(named), "says": list(named.values())}).sort("property")
