"""Random fault plans and events over a graph, and a plain model of what the faults do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from workbench.graph import CLIENT, StageGraph, preset
from workbench.schema.enums import FAULT, FAULT_EVENT
from workbench.workload.fault_plan import KINDS, MESSAGES, WAY, Fault, FaultPlan, Watch

GRAPH = preset("t3")
STAGES = [stage.name for stage in GRAPH.stages]
EDGES = [edge.name for edge in GRAPH.edges]
JOINED = [name for stage in GRAPH.stages for name in stage.join]
CLASSES, TENANTS = ("short", "long"), ("gold", "free")
HEAL = 400
BRIEF = ("talker", "code2wav", CLIENT)  # few places, so that faults and events meet
NEAR = ("talker>code2wav", "code2wav>mux", "mux>client")
OFTEN = (*FAULT_EVENT, *["data"] * 6)


@st.composite
def faults(draw: st.DrawFn) -> Fault:
    """A fault that fits GRAPH; its rate is small enough for eight of them to meet on one event."""

    def maybe(options: Any) -> Any:
        """Rarely one of the options, else None: what restricts much is seldom met."""
        return draw(st.sampled_from([None] * 3 * len(options) + list(options)))

    kind = draw(st.sampled_from(FAULT))
    target, values = KINDS[kind].target, dict[str, Any]()
    if target in ("message", "path"):
        if draw(st.booleans()):
            values["edge"] = maybe(NEAR)
        elif (stage := maybe(BRIEF)) is not None:
            values |= {"stage": stage, "replica": maybe((0, 1))}
        if target == "message" or kind == "partition":
            values["message"] = draw(st.sampled_from((*MESSAGES, *["any"] * 6)))
        ways = WAY.get(values.get("message", "any"), ("forward", "backward", "both"))
        values["direction"] = draw(st.sampled_from(ways))
    elif target == "stage":
        stage = draw(st.sampled_from([name for name in BRIEF if kind != "kill" or name != CLIENT]))
        values |= {"stage": stage, "replica": maybe((0, 1))}
    elif target == "branch":
        values["edge"] = draw(st.sampled_from([name for name in NEAR if name in JOINED]))
    trigger = draw(st.sampled_from(["at_ns", "nth", "rate_permille"]))
    values[trigger] = draw(
        {"at_ns": st.integers(0, HEAL - 1), "nth": st.integers(1, 3)}.get(trigger, st.integers(1, 125))
    )
    is_timed_act = trigger == "at_ns" and target != "message"
    if not is_timed_act:
        values["budget"] = draw(st.integers(1, 3)) if trigger != "nth" else draw(st.none() | st.integers(1, 3))
    if not (is_timed_act and kind in ("kill", "clock_step")):
        values |= {"request_class": maybe(CLASSES), "tenant": maybe(TENANTS)}
        values["request"] = maybe((0, 1))
    if is_timed_act and target in ("request", "branch"):
        values["request"] = draw(st.integers(0, 1))
    if trigger != "at_ns" and target not in ("message", "branch"):
        event = draw(st.sampled_from(OFTEN))
        where = draw(st.sampled_from(["stage", "edge", "none", "none", "none"]))
        if where == "edge" and event not in ("admit", "start"):
            values["on"] = Watch(event, edge=draw(st.sampled_from(NEAR)))
        elif where == "stage" and event != "admit":
            values["on"] = Watch(event, stage=draw(st.sampled_from(BRIEF)))
        else:
            values["on"] = Watch(event)
    parameter = {"delay_ns": (0, 50), "behind": (1, 3), "step_ns": (1, 90), "factor_permille": (1_001, 9_000)}
    if (name := KINDS[kind].parameter) is not None:
        values[name] = draw(st.integers(*parameter[name]))
    if KINDS[kind].lasts:
        values["duration_ns"] = draw(st.none() | st.integers(1, 120))
    return Fault(kind, **values)


def plans(least: int = 0) -> st.SearchStrategy[FaultPlan]:
    return st.builds(
        FaultPlan,
        st.sampled_from(["one", "two.3", "x-y_z"]),
        st.integers(0, 2**63 - 1),
        st.just(HEAL),
        st.lists(faults(), min_size=least, max_size=8).map(tuple),
    )


@dataclass
class Happening:
    """An event in words; `draw` is the random number that comes with it and `gap` the time since the one before."""

    kind: str
    stage: str
    edge: str | None
    backward: bool
    replicas: tuple[int, int]
    request: int
    request_class: int
    tenant: int
    gap: int
    draw: int


@st.composite
def happenings(draw: st.DrawFn) -> Happening:
    kind = draw(st.sampled_from(OFTEN))
    edge = None if kind in ("admit", "start") else draw(st.sampled_from(NEAR))
    stage = draw(st.sampled_from(BRIEF)) if kind == "start" else CLIENT
    replica = draw(st.integers(-1, 1))
    replicas = (replica, replica) if kind not in MESSAGES else (replica, draw(st.integers(-1, 1)))
    backward = draw(st.booleans()) if kind == "control" else kind in ("ack", "credit")
    request = draw(st.integers(0, 1))
    return Happening(
        kind, stage, edge, backward, replicas, request, request, draw(st.integers(0, 1)),
        draw(st.sampled_from([0, 1, 20, 90])), draw(st.integers(0, 250) | st.integers(0, 999)),
    )  # fmt: skip


FATES = ("lost_branch", "lose", "reorder", "delay", "duplicate")  # strongest first


@dataclass
class Model:
    """What `workbench.control.faults` must do, said once more over the plan itself, in words and without codes."""

    plan: FaultPlan
    graph: StageGraph
    seen: dict[int, int] = field(default_factory=dict)
    spent: dict[int, int] = field(default_factory=dict)
    until: dict[int, int] = field(default_factory=dict)

    def ends(self, happening: Happening) -> dict[str, set[int]]:
        """Stages that the event touches, each with the replicas of it."""
        if happening.edge is None:
            return {happening.stage: set(happening.replicas)}
        source, target = happening.edge.split(">")
        if happening.kind == "take":
            return {target: set(happening.replicas)}
        return {source: {happening.replicas[0]}, target: {happening.replicas[1]}}

    def selects(self, fault: Fault, happening: Happening) -> bool:
        return (
            fault.request_class in (None, CLASSES[happening.request_class])
            and fault.tenant in (None, TENANTS[happening.tenant])
            and fault.request in (None, happening.request)
        )

    def is_at(self, edge: str | None, stage: str | None, replica: int | None, happening: Happening) -> bool:
        ends = self.ends(happening)
        here = stage is None or (stage in ends and (replica is None or replica in ends[stage]))
        return here and edge in (None, happening.edge)

    def travels(self, fault: Fault, happening: Happening) -> bool:
        return fault.direction in ("both", "backward" if happening.backward else "forward")

    def counts(self, fault: Fault, happening: Happening) -> bool:
        if not self.selects(fault, happening):
            return False
        if KINDS[fault.kind].target == "message":
            place = self.is_at(fault.edge, fault.stage, fault.replica, happening)
            return (
                happening.kind in MESSAGES
                and fault.message in ("any", happening.kind)
                and place
                and self.travels(fault, happening)
            )
        if fault.kind == "lost_branch":
            return fault.at_ns is None and happening.kind == "data" and happening.edge == fault.edge
        on = fault.on
        return on is not None and on.event == happening.kind and self.is_at(on.edge, on.stage, None, happening)

    def covers(self, fault: Fault, happening: Happening) -> bool:
        if fault.kind == "partition" and not (
            happening.kind in MESSAGES and fault.message in ("any", happening.kind) and self.travels(fault, happening)
        ):
            return False
        if fault.kind != "kill" and not self.selects(fault, happening):
            return False
        return self.is_at(fault.edge, fault.stage, fault.replica, happening)

    def open(self, kind: str, happening: Happening, now: int) -> list[int]:
        return [
            i
            for i, fault in enumerate(self.plan.faults)
            if fault.kind == kind and self.until.get(i, 0) > now and self.covers(fault, happening)
        ]

    def act(self, i: int, start: int) -> tuple[str, int]:
        fault = self.plan.faults[i]
        self.spent[i] = self.spent.get(i, 0) + 1
        if KINDS[fault.kind].lasts:
            end = self.plan.heal_ns if fault.duration_ns is None else start + fault.duration_ns
            self.until[i] = min(end, self.plan.heal_ns)
        closes = {"heal": "partition", "resume": "pause"}.get(fault.kind)
        for j, other in enumerate(self.plan.faults):
            same = all(
                mine in (None, "both", theirs)
                for mine, theirs in (
                    (fault.stage, other.stage),
                    (fault.replica, other.replica),
                    (fault.edge, other.edge),
                    (fault.direction, other.direction),
                    (fault.request_class, other.request_class),
                    (fault.tenant, other.tenant),
                    (fault.request, other.request),
                )
            )
            if other.kind == closes and same:
                self.until[j] = min(self.until.get(j, 0), start)
        return fault.kind, i

    def strikes(self, happening: Happening, now: int) -> list[tuple[str, int]]:
        if now >= self.plan.heal_ns:
            return []
        effects, fates, low = [], [], 0
        for i, fault in enumerate(self.plan.faults):
            if not self.counts(fault, happening):
                continue
            self.seen[i] = self.seen.get(i, 0) + 1
            if fault.rate_permille is not None:
                is_due = low <= happening.draw < low + fault.rate_permille
                low += fault.rate_permille
            elif fault.nth is not None:
                is_due = self.seen[i] >= fault.nth
            else:
                is_due = fault.at_ns is not None and now >= fault.at_ns
            if not is_due or self.spent.get(i, 0) == fault.times:
                continue
            if fault.kind in FATES:
                fates.append(i)
            elif self.until.get(i, 0) <= now:
                effects.append(self.act(i, now))
        if happening.kind in MESSAGES:
            if cut := self.open("partition", happening, now):
                return [*effects, ("lose", cut[0])]
            if fates:
                best = min(fates, key=lambda i: (FATES.index(self.plan.faults[i].kind), i))
                effects.append(self.act(best, now))
        return effects

    def waiting(self) -> list[tuple[int, int]]:
        """Time and row of what acts at a time of its own and has not acted."""
        return sorted(
            (fault.at_ns, i)
            for i, fault in enumerate(self.plan.faults)
            if fault.at_ns is not None and KINDS[fault.kind].target != "message" and not self.spent.get(i)
        )

    def due(self, now: int) -> list[tuple[str, int]]:
        if now >= self.plan.heal_ns:
            return []
        return [self.act(i, at_ns) for at_ns, i in self.waiting() if at_ns <= now]

    def next_ns(self, now: int) -> int | None:
        times = [at_ns for at_ns, _ in self.waiting()] + list(self.until.values())
        return min((time for time in times if time > now), default=None)
