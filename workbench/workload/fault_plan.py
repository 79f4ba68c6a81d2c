"""Fault plans: what breaks, where, when and how often, written once for explorer, replay and testbed.

A plan is data: a name, a seed for the draws, a time after which nothing is broken any more, and a list of faults.
`workbench.workload.fault_file` reads and writes it, `workbench.workload.fault_table` checks it against a graph and
makes the flat form that the rules of `workbench.control.faults` read. ``docs/faults.md`` describes the format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from workbench.control.ranges import MAX_TIME_NS, shown, within
from workbench.errors import UsageError
from workbench.graph import CLIENT
from workbench.schema.enums import FAULT, FAULT_EVENT
from workbench.units import format_ns

MESSAGES = FAULT_EVENT[:4]
DIRECTIONS = ("forward", "backward", "both")
MAX_FAULTS = 1_000
MAX_COUNT = 1 << 40  # events, acts
MAX_ID = 1 << 31  # replicas, requests
MAX_FACTOR_PERMILLE = 1_000_000
# The way that a message travels on its edge; a control message (cancel, deadline, epoch) goes both ways.
WAY = {"data": ("forward", "both"), "ack": ("backward", "both"), "credit": ("backward", "both")}


@dataclass(frozen=True, slots=True)
class Kind:
    """What one word of the vocabulary needs: its target, its parameter (unit in the name) and whether it lasts."""

    target: str  # message, path, stage, branch or request
    meaning: str
    parameter: str | None = None
    lasts: bool = False


KINDS: dict[str, Kind] = {
    "kill": Kind("stage", "the replica dies and comes back, empty, after the duration", lasts=True),
    "lose": Kind("message", "the message is never delivered"),
    "delay": Kind("message", "the message is delivered that much later", "delay_ns"),
    "duplicate": Kind("message", "the message is delivered, and once more that much later", "delay_ns"),
    "reorder": Kind("message", "that many later messages of its edge and direction overtake the message", "behind"),
    "partition": Kind("path", "messages that cross are lost for the duration", lasts=True),
    "heal": Kind("path", "partitions that it covers end"),
    "pause": Kind("stage", "the consumer takes nothing over for the duration", lasts=True),
    "resume": Kind("stage", "pauses that it covers end"),
    "lost_branch": Kind(
        "branch", "this and every later message of the request on a join's edge vanish, without an error"
    ),
    "cancel": Kind("request", "the client cancels the request"),
    "deadline": Kind("request", "the deadline of the request passes now"),
    "clock_step": Kind("stage", "the local clock jumps by the step, backward if negative", "step_ns"),
    "slow": Kind("stage", "every service takes that much of its time, for the duration", "factor_permille", lasts=True),
    "reconnect": Kind("request", "the client's connection breaks and comes back after the delay", "delay_ns"),
}
PARAMETERS = {
    "delay_ns": (0, MAX_TIME_NS),
    "behind": (1, MAX_COUNT),
    "step_ns": (-MAX_TIME_NS, MAX_TIME_NS),
    "factor_permille": (1_001, MAX_FACTOR_PERMILLE),
}


@dataclass(frozen=True, slots=True)
class Watch:
    """Events that trigger a fault of something else: one of FAULT_EVENT, at a stage, on an edge, or anywhere."""

    event: str
    stage: str | None = None
    edge: str | None = None

    def __post_init__(self) -> None:
        _one_of(self.event, FAULT_EVENT, "on.event")
        if self.edge is not None and self.event in ("admit", "start"):
            raise UsageError(f"no edge with event {self.event!r}", shown(self.edge), where="on.edge")
        if self.stage is not None and (self.event == "admit" or self.edge is not None):
            raise UsageError("a stage only without an edge, and not with admit", shown(self.stage), where="on.stage")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: what happens, to what, triggered by what, how often.

    Attributes
    ----------
    kind : str
        One of `workbench.schema.enums.FAULT`; KINDS says what it targets and which parameter it takes.
    stage, replica, edge, direction, message : str, int or None
        Target. A stage with no replica means all of them; neither stage nor edge means every edge; a stage as target
        of messages means every edge that touches it. `direction` is along the edge, against it, or both; `message` is
        data, ack, credit, control or any.
    request_class, tenant, request : str, int or None
        Selector: which events are counted and which requests are hit; None selects all. `request` counts arrivals
        from 0. A killed replica is dead for everyone.
    at_ns, nth, rate_permille : int or None
        Trigger, exactly one: a time from the start of the run (messages: the first that match from then on), the n-th
        counted event (from 1) and those after it, or a chance per counted event.
    on : Watch or None
        What `nth` and `rate_permille` count. Faults of messages and of branches count what they hit, and have none.
    budget : int or None
        How often it may act; None = once. Must be given with a rate.
    delay_ns, behind, step_ns, factor_permille : int or None
        The parameter of the kind.
    duration_ns : int or None
        How long it lasts; None = until the plan heals.

    Raises
    ------
    UsageError
        A field that the kind does not have, one that it needs, or a value out of range.

    Examples
    --------
    >>> print(Fault("lose", edge="talker>code2wav", message="ack", nth=3, request_class="long"))
    lose: ack on talker>code2wav, class long; from the 3rd counted on, once
    >>> print(Fault("kill", stage="code2wav", replica=0, on=Watch("data", edge="talker>code2wav"), nth=2))
    kill: code2wav replica 0; from the 2nd data on talker>code2wav on, once; until the heal
    """

    kind: str
    stage: str | None = None
    replica: int | None = None
    edge: str | None = None
    direction: str = "both"
    message: str = "any"
    request_class: str | None = None
    tenant: str | None = None
    request: int | None = None
    at_ns: int | None = None
    nth: int | None = None
    rate_permille: int | None = None
    on: Watch | None = None
    budget: int | None = None
    delay_ns: int | None = None
    behind: int | None = None
    step_ns: int | None = None
    factor_permille: int | None = None
    duration_ns: int | None = None

    def __post_init__(self) -> None:
        _one_of(self.kind, FAULT, "kind")
        for name in ("stage", "edge"):
            if not isinstance(getattr(self, name), str | None):
                raise UsageError(f"the name of one {name}", shown(getattr(self, name)), where=name)
        if not isinstance(self.on, Watch | None):
            raise UsageError("a Watch", shown(self.on), where="on")
        self._check_target()
        self._check_trigger()
        self._check_parameter()

    def _check_target(self) -> None:
        target = KINDS[self.kind].target
        _one_of(self.direction, DIRECTIONS, "direction")
        _one_of(self.message, (*MESSAGES, "any"), "message")
        has_path = target in ("message", "path")
        unwanted = {
            "stage": self.stage is not None and not (has_path or target == "stage"),
            "edge": self.edge is not None and not (has_path or target == "branch"),
            "replica": self.replica is not None and self.stage is None,
            "direction": self.direction != "both" and not has_path,
            "message": self.message != "any" and self.kind != "partition" and target != "message",
        }
        for name, is_unwanted in unwanted.items():
            if is_unwanted:
                raise UsageError(f"no {name} here for {self.kind}", shown(getattr(self, name)), where=name)
        if self.stage is not None and self.edge is not None:
            raise UsageError("a stage or an edge, not both", f"{self.stage!r} and {self.edge!r}", where=self.kind)
        if target == "stage" and self.stage is None:
            raise UsageError(f"a stage for {self.kind}", "none", where="stage")
        if target == "branch" and self.edge is None:
            raise UsageError(f"an edge for {self.kind}", "none", where="edge")
        if self.kind == "kill" and self.stage == CLIENT:
            raise UsageError("a stage that serves", shown(CLIENT), where="stage", fix="Use reconnect or cancel.")
        if self.direction not in WAY.get(self.message, DIRECTIONS):
            raise UsageError(f"{self.message} to travel {WAY[self.message][0]}", self.direction, where="direction")
        for name in ("request_class", "tenant"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and 0 < len(value) <= 200 and value.isprintable()):
                raise UsageError("1 to 200 printable characters", shown(value), where=name)
        for name in ("replica", "request"):
            if getattr(self, name) is not None:
                within(getattr(self, name), 0, MAX_ID, name)

    def _check_trigger(self) -> None:
        target = KINDS[self.kind].target
        given = [name for name in ("at_ns", "nth", "rate_permille") if getattr(self, name) is not None]
        if len(given) != 1:
            raise UsageError("exactly one of at_ns, nth, rate_permille", f"{given}", where=self.kind)
        ranges = {"at_ns": (0, MAX_TIME_NS), "nth": (1, MAX_COUNT), "rate_permille": (1, 1000)}
        within(getattr(self, given[0]), *ranges[given[0]], given[0])
        if self.budget is not None:
            within(self.budget, 1, MAX_COUNT, "budget")
        elif self.rate_permille is not None:
            raise UsageError("a budget with a rate", "none", where="budget", fix="Say how often it may act at most.")
        counts_own = target in ("message", "branch")
        if (self.on is not None) == (counts_own or self.at_ns is not None):
            wanted = "nothing to count for" if self.on is not None else "what to count (on) for"
            raise UsageError(f"{wanted} {self.kind} by {given[0]}", shown(self.on), where="on")
        if self.at_ns is None or target == "message":
            return
        if self.times != 1:
            raise UsageError("a budget of 1 at a time", shown(self.budget), where="budget")
        if target in ("request", "branch") and self.request is None:
            raise UsageError(f"the request that {self.kind} hits at a time", "none", where="request")
        if self.kind in ("kill", "clock_step") and (self.request_class, self.tenant, self.request) != (None,) * 3:
            raise UsageError(f"no selector for {self.kind} at a time", "one", where=self.kind)

    def _check_parameter(self) -> None:
        kind = KINDS[self.kind]
        for name, (low, high) in PARAMETERS.items():
            value = getattr(self, name)
            if value is None:
                if name == kind.parameter and self.kind != "duplicate":
                    raise UsageError(f"{name} for {self.kind}", "none", where=name)
                continue
            if name != kind.parameter:
                raise UsageError(f"no {name} for {self.kind}", shown(value), where=name)
            within(value, low, high, name)
        if self.step_ns == 0:
            raise UsageError("a step other than 0", "0", where="step_ns")
        if self.duration_ns is not None:
            if not kind.lasts:
                raise UsageError(f"no duration_ns for {self.kind}", shown(self.duration_ns), where="duration_ns")
            within(self.duration_ns, 1, MAX_TIME_NS, "duration_ns")

    @property
    def times(self) -> int:
        """How often it may act at most."""
        return 1 if self.budget is None else self.budget

    @property
    def parameter(self) -> int:
        """Value of the parameter of its kind, 0 when it has none."""
        name = KINDS[self.kind].parameter
        return 0 if name is None else getattr(self, name) or 0

    def __str__(self) -> str:
        """One line for a person."""
        parts = [f"{self.kind}: {self._hits()}", f"{self._trigger()}, {_often(self.times)}"]
        kind = KINDS[self.kind]
        if kind.parameter in ("delay_ns", "step_ns"):
            parts.append(f"{kind.parameter.removesuffix('_ns')} {format_ns(self.parameter)}")
        elif kind.parameter is not None:
            parts.append(
                {"behind": "behind {} later ones", "factor_permille": "to {} permille"}[kind.parameter].format(
                    self.parameter
                )
            )
        if kind.lasts:
            parts.append("until the heal" if self.duration_ns is None else f"for {format_ns(self.duration_ns)}")
        return "; ".join(parts)

    def _hits(self) -> str:
        target = KINDS[self.kind].target
        words = []
        if target == "message" or self.kind == "partition":
            words.append(f"{self.message if self.message != 'any' else 'any message'} on")
        if target in ("message", "path", "branch"):
            words.append(self.edge or (f"every edge of {self.stage}" if self.stage else "every edge"))
        if target == "stage":
            words.append(str(self.stage))
        if self.replica is not None:
            words.append(f"replica {self.replica}")
        if self.direction != "both":
            words.append(self.direction)
        selector = {"class": self.request_class, "tenant": self.tenant, "request": self.request}
        chosen = [f"{name} {value}" for name, value in selector.items() if value is not None]
        return ", ".join([" ".join(words), *chosen] if words else chosen or ["any request"])

    def _trigger(self) -> str:
        if self.at_ns is not None:
            return f"at {format_ns(self.at_ns)}"
        place = "" if self.on is None else f" {self.on.event}"
        if self.on is not None and (self.on.edge or self.on.stage):
            place += f" on {self.on.edge}" if self.on.edge else f" at {self.on.stage}"
        if self.nth is not None:
            return f"from the {_ordinal(self.nth)}{place or ' counted'} on"
        return f"each{place or ' one'} with {self.rate_permille} permille"


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """A named list of faults.

    Attributes
    ----------
    name : str
        Lower-case letters, digits and ``._-``, at most 100.
    seed : int
        Seed of the draws that faults by rate need, in 0 .. 2**63 - 1; whoever runs the plan makes the draws.
    heal_ns : int
        Time from the start of the run at which every fault ends and after which none acts: the liveness phase.
    faults : tuple of Fault
        At most MAX_FAULTS. Their order is the order in which they act on one event.

    Raises
    ------
    UsageError
        A value out of range, or a fault at a time that is not before the heal.
    """

    name: str
    seed: int
    heal_ns: int
    faults: tuple[Fault, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,99}", self.name):
            raise UsageError(
                "a name of lower-case letters, digits and ._-, at most 100", shown(self.name), where="name"
            )
        within(self.seed, 0, (1 << 63) - 1, "seed")
        within(self.heal_ns, 0, MAX_TIME_NS, "heal_ns")
        if not isinstance(self.faults, tuple):
            raise UsageError("a tuple of faults", shown(self.faults), where=f"plan {self.name!r}")
        if len(self.faults) > MAX_FAULTS:
            raise UsageError(f"at most {MAX_FAULTS} faults", f"{len(self.faults)}", where=f"plan {self.name!r}")
        for i, fault in enumerate(self.faults):
            if not isinstance(fault, Fault):
                raise UsageError("a Fault", shown(fault), where=f"fault {i}")
            if self.heal_ns == 0:
                raise UsageError("a time after 0, before which faults act", "0", where="heal_ns")
            if fault.at_ns is not None and fault.at_ns >= self.heal_ns:
                raise UsageError(
                    f"a time before the heal at {self.heal_ns} ns", shown(fault.at_ns), where=f"fault {i}, at_ns"
                )


def _one_of(value: str, allowed: tuple[str, ...], where: str) -> None:
    if value not in allowed:
        raise UsageError(f"one of {list(allowed)}", shown(value), where=where)


def _ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st ..."""
    suffix = "th" if 10 < n % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"


def _often(times: int) -> str:
    return "once" if times == 1 else f"at most {times} times"
