"""A fault plan against one graph: checked, flattened for the rules, and counted for a world without time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from workbench.control import faults
from workbench.control.ranges import UNBOUNDED, shown
from workbench.errors import UsageError
from workbench.graph import CLIENT, StageGraph
from workbench.schema.enums import FAULT, FAULT_EVENT
from workbench.workload.fault_plan import DIRECTIONS, KINDS, MESSAGES, Fault, FaultPlan

Table = npt.NDArray[np.int64]  # see workbench.control.faults
# What a world without time contains anyway: there a message may stay away and a stage may rest as long as it likes, a
# timer may fire at any step, and faults may stop at any step.
UNTIMED = ("delay", "heal", "pause", "resume", "clock_step", "slow")


def check(plan: FaultPlan, graph: StageGraph) -> None:
    """Check that the plan fits the graph.

    Raises
    ------
    UsageError
        A stage or edge that the graph does not have, a lost branch on an edge that no join waits for, or rates that
        add up to more than 1,000 permille on the events of one kind at one place (selectors are not looked at).
    """
    stages = [stage.name for stage in graph.stages]
    edges = [edge.name for edge in graph.edges]
    joined = [name for stage in graph.stages for name in stage.join]
    for i, fault in enumerate(plan.faults):
        where = f"plan {plan.name!r}, fault {i} ({fault.kind})"
        on = fault.on
        for name, value, known in (
            ("stage", fault.stage, stages),
            ("on.stage", on.stage if on else None, stages),
            ("edge", fault.edge, edges),
            ("on.edge", on.edge if on else None, edges),
        ):
            if value is not None and value not in known:
                raise UsageError(f"one of {known}, the graph {graph.name!r}", shown(value), where=f"{where}, {name}")
        if KINDS[fault.kind].target == "branch" and fault.edge not in joined:
            raise UsageError(f"an edge of a join, one of {joined}", shown(fault.edge), where=f"{where}, edge")
    for (event, place), rate in sorted(_rates(plan, graph).items()):
        if rate > 1000:
            raise UsageError(
                "rates of at most 1000 permille", f"{rate}", where=f"plan {plan.name!r}, {event} at {place}"
            )


def _rates(plan: FaultPlan, graph: StageGraph) -> dict[tuple[str, str], int]:
    """Sum of the rates that draw on the events of one kind at one place, in permille."""
    rated = [fault for fault in plan.faults if fault.rate_permille is not None]
    total: dict[tuple[str, str], int] = {}
    for event in FAULT_EVENT:
        ends = {edge.name: (edge.source, edge.target) for edge in graph.edges}
        if event == "take":
            ends = {edge.name: (edge.target, edge.target) for edge in graph.edges}
        elif event not in MESSAGES:
            ends = {stage.name: (stage.name, stage.name) for stage in graph.stages}
        for place, touched in ends.items():
            for fault in rated:
                at = fault if fault.on is None else fault.on
                if event in _events(fault) and at.edge in (None, place) and at.stage in (None, *touched):
                    total[event, place] = total.get((event, place), 0) + (fault.rate_permille or 0)
    return total


def _messages(fault: Fault) -> tuple[str, ...]:
    """Kinds of messages that the fault hits."""
    if fault.kind == "lost_branch":
        return ("data",)
    return MESSAGES if fault.message == "any" else (fault.message,)


def _events(fault: Fault) -> tuple[str, ...]:
    """Kinds of events that the fault counts; none for what happens at a time of its own."""
    if KINDS[fault.kind].target == "message" or (fault.kind == "lost_branch" and fault.at_ns is None):
        return _messages(fault)
    return () if fault.on is None else (fault.on.event,)


def flatten(
    plan: FaultPlan, graph: StageGraph, *, classes: Sequence[str] = (), tenants: Sequence[str] = ()
) -> tuple[Table, Table]:
    """The plan as the rules read it, and the counters at the start of a run.

    Parameters
    ----------
    plan, graph
        Stages and edges are numbered as `graph` lists them.
    classes, tenants : sequence of str, keyword-only
        Names of the request classes and tenants of the run; an event carries positions in them.

    Returns
    -------
    table, counters : numpy.ndarray of int64, one-dimensional
        Laid out as `workbench.control.faults` says. An effect buffer needs ``EFFECT_WIDTH`` fields per fault and one
        effect more.

    Raises
    ------
    UsageError
        What `check` refuses, and a class or tenant that the run does not have.
    """
    check(plan, graph)
    stages = [stage.name for stage in graph.stages]
    edges = [edge.name for edge in graph.edges]
    flat = [plan.heal_ns, len(plan.faults)]
    for i, fault in enumerate(plan.faults):
        where = f"plan {plan.name!r}, fault {i} ({fault.kind})"
        own = KINDS[fault.kind].target in ("message", "branch")
        place = fault if own or fault.on is None else fault.on
        trigger, value = next(
            (code, given)
            for code, given in ((faults.AT, fault.at_ns), (faults.NTH, fault.nth), (faults.RATE, fault.rate_permille))
            if given is not None
        )
        duration = 0 if not KINDS[fault.kind].lasts else fault.duration_ns or UNBOUNDED
        row = [
            FAULT.index(fault.kind),
            sum(1 << FAULT_EVENT.index(name) for name in _messages(fault)),
            _code(fault.stage, stages, where),
            _any(fault.replica),
            _code(fault.edge, edges, where),
            faults.ANY if fault.direction == "both" else DIRECTIONS.index(fault.direction),
            _code(fault.request_class, classes, f"{where}, class"),
            _code(fault.tenant, tenants, f"{where}, tenant"),
            _any(fault.request),
            trigger,
            value,
            sum(1 << FAULT_EVENT.index(name) for name in _events(fault)),
            _code(place.stage, stages, where),
            _code(place.edge, edges, where),
            fault.times,
            fault.parameter,
            duration,
        ]
        flat += row
    return np.array(flat, np.int64), np.zeros(len(plan.faults) * faults.COUNT_WIDTH, np.int64)


def _any(value: int | None) -> int:
    return faults.ANY if value is None else value


def _code(name: str | None, names: Sequence[str], where: str) -> int:
    if name is None:
        return faults.ANY
    if name not in names:
        raise UsageError(f"one of {list(names)}", shown(name), where=where)
    return names.index(name)


def event(
    graph: StageGraph,
    kind: str,
    *,
    now_ns: int,
    stage: str = CLIENT,
    edge: str | None = None,
    backward: bool | None = None,
    replicas: tuple[int, int] = (faults.ANY, faults.ANY),
    request: int = faults.ANY,
    request_class: int = faults.ANY,
    tenant: int = faults.ANY,
) -> list[int]:
    """One event as the rules read it, by name: for engines that are not in a hurry, and for tests.

    Parameters
    ----------
    graph, kind
        `kind` is one of `workbench.schema.enums.FAULT_EVENT`.
    now_ns : int, keyword-only
        Time from the start of the run.
    stage, edge : str, keyword-only
        Where it happens: an edge for messages, for ``take`` the edge whose payload its target takes over, else a stage.
    backward : bool or None, keyword-only
        Whether a message travels against its edge; None = as its kind does (acks and credits do, data and control not).
    replicas : tuple of int, keyword-only
        Replica at the source and at the target of the edge, or twice that of the stage; ANY = not known.
    request, request_class, tenant : int, keyword-only
        Number of the request, positions of its class and tenant in the names given to `flatten`.
    """
    stages = [each.name for each in graph.stages]
    code, ends, direction = FAULT_EVENT.index(kind), (stage, stage), faults.ANY
    if edge is not None:
        found = next((each for each in graph.edges if each.name == edge), None)
        if found is None:
            raise UsageError(f"one of {[each.name for each in graph.edges]}", shown(edge), where="event")
        ends = (found.target, found.target) if kind == "take" else (found.source, found.target)
    if kind in MESSAGES:
        direction = int(kind in ("ack", "credit") if backward is None else backward)
    position = faults.ANY if edge is None else [each.name for each in graph.edges].index(edge)
    source, target = (_code(end, stages, "event") for end in ends)
    return [code, position, direction, source, replicas[0], target, replicas[1], request_class, tenant, request, now_ns]


def explorer_budgets(plan: FaultPlan, *, most: int | None = None) -> dict[str, int]:
    """How often each fault may happen in a world without time.

    Places, selectors, times and rates are dropped: the explorer tries them all, so a plan becomes the number of faults
    of each kind that may be spent along one path. Kinds in UNTIMED cost nothing there and are left out.

    Parameters
    ----------
    plan : FaultPlan
    most : int or None, keyword-only
        Upper limit for each number, since the number of states grows fast with it; None = as the plan says.

    Returns
    -------
    dict of str to int
        Kind, or for faults of messages the kind and the message ("lose ack", "lose any"), to a number above 0, in
        the order of the vocabulary.

    Examples
    --------
    >>> lost = Fault("lose", message="ack", rate_permille=50, budget=8)
    >>> plan = FaultPlan("two", 0, 10**9, (lost, Fault("kill", stage="talker", at_ns=5), Fault("lose", at_ns=9)))
    >>> explorer_budgets(plan, most=2)
    {'kill': 1, 'lose ack': 2, 'lose any': 1}
    """
    total: dict[str, int] = {}
    for fault in sorted(plan.faults, key=lambda each: (FAULT.index(each.kind), (*MESSAGES, "any").index(each.message))):
        if fault.kind not in UNTIMED:
            name = f"{fault.kind} {fault.message}" if KINDS[fault.kind].target == "message" else fault.kind
            total[name] = total.get(name, 0) + fault.times
    return {name: number if most is None else min(number, most) for name, number in total.items()}
