"""What a plan must satisfy before any scheduling rule can keep up with a load: conditions, each with its numbers.

The conditions are those of ``docs/stability.md``, where each one is derived and linked to its test. None promises
stability: a rule that serves the last stage first can diverge at 70 % load.
Rates are per second, times are nanoseconds, sizes are bytes; a load is a share of one device's time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from workbench.control.layout import EdgePlan, Plan
from workbench.control.ranges import MAX_CHUNKS, MAX_TIME_NS, UNBOUNDED, number, within
from workbench.errors import UsageError
from workbench.units import S_NS, format_bytes, format_ns


@dataclass(frozen=True, slots=True)
class Visit:
    """Work of one class at one stage.

    Attributes
    ----------
    stage : str
        Name of the stage.
    tasks_per_request : float
        Mean number of tasks (chunks, decode steps) that an admitted request owes to the stage.
    attempts : float
        Mean number of runs per task that starts, at least 1: retries run again. See `mean_attempts`.
    dropped : float
        Share of the tasks owed that never start, as the request was cancelled or failed before; in 0..1.
    """

    stage: str
    tasks_per_request: float
    attempts: float = 1.0
    dropped: float = 0.0

    def __post_init__(self) -> None:
        where = f"visit to stage {self.stage!r}"
        number(self.tasks_per_request, 0.0, math.inf, f"{where}, tasks_per_request")
        number(self.attempts, 1.0, math.inf, f"{where}, attempts")
        number(self.dropped, 0.0, 1.0, f"{where}, dropped")


@dataclass(frozen=True, slots=True)
class TrafficClass:
    """Requests of one kind: offered rate, share refused at the door, and the work of those admitted.

    Attributes
    ----------
    name : str
        Name of the class.
    arrivals_per_s : float
        Long-run rate of client requests, refused ones included.
    visits : tuple of Visit
        At most one per stage.
    rejected : float
        Share refused at admission, in 0..1.
    """

    name: str
    arrivals_per_s: float
    visits: tuple[Visit, ...]
    rejected: float = 0.0

    def __post_init__(self) -> None:
        number(self.arrivals_per_s, 0.0, math.inf, f"class {self.name!r}, arrivals_per_s")
        number(self.rejected, 0.0, 1.0, f"class {self.name!r}, rejected")
        stages = [visit.stage for visit in self.visits]
        if len(set(stages)) < len(stages):
            raise UsageError("one visit per stage", f"stages {stages}", where=f"class {self.name!r}")


@dataclass(frozen=True, slots=True)
class StageService:
    """A stage on a device: a launch of ``b`` tasks takes ``fixed_ns + per_item_ns * b`` on average.

    Attributes
    ----------
    stage, device : str
        One row per replica; stages on one device share its time.
    fixed_ns, per_item_ns : float
        Mean cost of a launch whatever its size, and of each task in it; not both 0.
    batch_cap : int or None
        Largest launch; None = unlimited.
    share : float
        Part of the stage's tasks that this replica takes; the shares of a stage add up to 1.
    """

    stage: str
    device: str
    fixed_ns: float
    per_item_ns: float
    batch_cap: int | None = 1
    share: float = 1.0

    def __post_init__(self) -> None:
        where = f"stage {self.stage!r} on device {self.device!r}"
        number(self.fixed_ns, 0.0, MAX_TIME_NS, f"{where}, fixed_ns")
        number(self.per_item_ns, 0.0, MAX_TIME_NS, f"{where}, per_item_ns")
        number(self.share, 0.0, 1.0, f"{where}, share")
        if self.fixed_ns + self.per_item_ns <= 0:
            raise UsageError("a launch that takes time", "fixed_ns = per_item_ns = 0", where=where)
        if self.batch_cap is not None:
            within(self.batch_cap, 1, MAX_CHUNKS, f"{where}, batch_cap")

    @property
    def least_ns_per_task(self) -> float:
        """Device time per task in the largest launch: ``per_item_ns + fixed_ns / batch_cap``; no launch has less."""
        return self.per_item_ns + (0.0 if self.batch_cap is None else self.fixed_ns / self.batch_cap)


def mean_attempts(failure: float, attempts_max: int) -> float:
    """Mean runs of a task that fails with probability `failure` each time and is run at most `attempts_max` times.

    >>> mean_attempts(0.5, 3)
    1.75
    """
    number(failure, 0.0, 1.0, "failure")
    within(attempts_max, 1, MAX_CHUNKS, "attempts_max")
    return float(attempts_max) if failure == 1.0 else (1 - failure**attempts_max) / (1 - failure)


def effective_rates_per_s(classes: Iterable[TrafficClass]) -> dict[str, float]:
    """Tasks per second that each stage has to run in the long run: what is compared with its service rate.

    The sum over classes of ``arrivals * (1 - rejected) * tasks_per_request * (1 - dropped) * attempts``.

    >>> effective_rates_per_s([TrafficClass("talk", 2.0, (Visit("talker", 10, attempts=1.5),), rejected=0.5)])
    {'talker': 15.0}
    """
    rates: dict[str, float] = {}
    for traffic in classes:
        admitted_per_s = traffic.arrivals_per_s * (1 - traffic.rejected)
        for visit in traffic.visits:
            tasks_per_s = admitted_per_s * visit.tasks_per_request * (1 - visit.dropped) * visit.attempts
            rates[visit.stage] = rates.get(visit.stage, 0.0) + tasks_per_s
    return rates


def device_loads(rates_per_s: Mapping[str, float], services: Sequence[StageService]) -> dict[str, float]:
    """Least share of its time that each device must work: ``sum of rate * E[t(b) / b]`` with every launch at its cap.

    A launch of ``b <= cap`` tasks takes at least ``b * (per_item + fixed / cap)``, so no batching rule needs less.

    Raises
    ------
    UsageError
        A stage with tasks but no service, or shares of a stage that do not add up to 1.
    """
    shares: dict[str, float] = {}
    for row in services:
        shares[row.stage] = shares.get(row.stage, 0.0) + row.share
    for stage, rate in rates_per_s.items():
        if rate > 0 and stage not in shares:
            raise UsageError(f"a service for stage {stage!r}", f"services of {sorted(shares)}", where="services")
    for stage, share in shares.items():
        if abs(share - 1) > 1e-9:
            raise UsageError("shares that add up to 1", f"{share:g}", where=f"services of stage {stage!r}")
    loads: dict[str, float] = {}
    for row in services:
        load = rates_per_s.get(row.stage, 0.0) * row.share * row.least_ns_per_task / S_NS
        loads[row.device] = loads.get(row.device, 0.0) + load
    return loads


@dataclass(frozen=True, slots=True)
class Condition:
    """One inequality of a verdict.

    Attributes
    ----------
    name : {"device-load", "edge-rate", "edge-floor", "edge-window", "request-bytes", "edge-bytes", "total-bytes"}
        Which condition.
    subject : str
        Device or edge; "a request" or "all edges" where it is about sums.
    holds : bool
        Whether it is met.
    value, limit : float
        What there is and what it is compared with.
    text : str
        The inequality with its numbers and units, for a reader.
    """

    name: str
    subject: str
    holds: bool
    value: float
    limit: float
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What `feasible` found.

    Attributes
    ----------
    conditions : tuple of Condition
        Every condition that could be evaluated, met or not.
    unchecked : tuple of str
        What could not be evaluated, and why; never counted as met.
    requests_safe : int
        Most admitted requests whose floors fit under the bounds: the ledger lets the next one wait.
    requests_unhindered : int
        Most admitted requests whose whole windows fit under the bounds: up to it no bound ever delays a chunk.
    """

    conditions: tuple[Condition, ...]
    unchecked: tuple[str, ...]
    requests_safe: int
    requests_unhindered: int

    @property
    def violated(self) -> tuple[Condition, ...]:
        """The conditions that are not met."""
        return tuple(condition for condition in self.conditions if not condition.holds)

    @property
    def holds(self) -> bool:
        """Whether every condition that could be evaluated is met; that is not enough for stability."""
        return not self.violated

    def __str__(self) -> str:
        lines = [f"{'met' if c.holds else 'VIOLATED'}  {c.name} of {c.subject}: {c.text}" for c in self.conditions]
        return "\n".join([*lines, *(f"unknown  {text}" for text in self.unchecked)])


def feasible(
    plan: Plan,
    classes: Sequence[TrafficClass],
    services: Sequence[StageService],
    *,
    requests: int,
    holds_ns: Mapping[str, int] | None = None,
    skews: Mapping[str, int] | None = None,
) -> Verdict:
    """Judge a plan by the conditions for keeping up with a load, without deadlock, below its byte bounds.

    Loads and rates are necessary. Floors and windows are enough against deadlock, and necessary where a branch that has
    to wait for a slower one is a single edge. The byte conditions say whether so many requests fit at the same time.

    Parameters
    ----------
    plan : Plan
        Graph, floors, windows and bounds.
    classes, services : sequence
        The load and what serves it; every stage with tasks has a service.
    requests : int, keyword-only
        Requests that should be admitted at the same time.
    holds_ns : mapping of str to int, keyword-only
        Edge -> shortest time from a reservation to the return of its credit
        (`workbench.control.capacity.credit_hold_ns`); the rate of an edge that is missing is left unchecked.
    skews : mapping of str to int, keyword-only
        Edge -> chunks, from `workbench.control.skew.edge_skews`; 0 where missing.

    Returns
    -------
    Verdict
        Per device ``device-load`` < 1. Per edge ``edge-rate``: chunks per second < requests * window / hold;
        ``edge-floor`` and ``edge-window`` >= skew + 1 chunks. The floors of one request under the request's bound,
        those of all requests under the bound of each edge and under the total. Bounds per tenant depend on whose the
        requests are and are left to admission.

    Raises
    ------
    UsageError
        A stage, edge or service that is missing, unknown or named twice, or a number out of its range.
    """
    within(requests, 1, MAX_CHUNKS, "requests")
    holds_ns, skews = holds_ns or {}, skews or {}
    names = [edge.name for edge in plan.graph.edges]
    for name in (*holds_ns, *skews):
        if name not in names:
            raise UsageError(f"edges among {names}", repr(name), where="holds_ns, skews")
    rates = effective_rates_per_s(classes)
    for stage in (*rates, *(row.stage for row in services)):
        plan.graph.stage(stage)
    conditions = [
        Condition("device-load", device, load < 1, load, 1.0, f"busy {load:.3f} of the time < 1")
        for device, load in device_loads(rates, services).items()
    ]
    unchecked: list[str] = []
    for edge in plan.carried:
        bounds = plan.edges.get(edge.name, EdgePlan())
        needed = skews.get(edge.name, 0) + 1
        window = min(bounds.window_chunks, bounds.window_bytes // bounds.chunk_bytes)
        if edge.name in holds_ns:
            rate = rates.get(edge.source, 0.0)
            hold_ns = within(holds_ns[edge.name], 1, MAX_TIME_NS, f"hold of edge {edge.name}")
            limit = requests * window * S_NS / hold_ns
            text = f"{rate:.4g} chunks/s < {requests} requests * {window} chunks / {format_ns(hold_ns)} = {limit:.4g}"
            conditions.append(Condition("edge-rate", edge.name, rate < limit, rate, limit, text))
        else:
            unchecked.append(f"edge-rate of {edge.name}: how long a credit is out is not stated")
        for name, chunks in (("edge-floor", bounds.floor_chunks), ("edge-window", window)):
            text = f"{chunks} chunks >= {needed}"
            conditions.append(Condition(name, edge.name, chunks >= needed, chunks, needed, text))
    floors = {edge.name: _bytes(plan, edge.name, whole_window=False) for edge in plan.carried}
    one = sum(floors.values())
    conditions.append(_under("request-bytes", "a request", 1, one, plan.request_bytes))
    for name, floor in floors.items():
        bounds = plan.edges.get(name, EdgePlan())
        conditions.append(_under("edge-bytes", name, requests, floor, bounds.max_bytes))
    conditions.append(_under("total-bytes", "all edges", requests, one, plan.total_bytes))
    order = ("device-load", "edge-rate", "edge-floor", "edge-window", "request-bytes", "edge-bytes", "total-bytes")
    return Verdict(
        tuple(sorted(conditions, key=lambda condition: order.index(condition.name))),
        tuple(unchecked),
        admissible_requests(plan),
        admissible_requests(plan, whole_window=True),
    )


def admissible_requests(plan: Plan, *, whole_window: bool = False) -> int:
    """Most requests that fit under the bounds of a plan together, each with its floors or with its whole windows.

    Parameters
    ----------
    plan : Plan
        Bounds per tenant are not considered.
    whole_window : bool, keyword-only
        False: the largest N with N * (sum of floors) <= `total_bytes` and the same for each edge. True: with the
        larger of floor and window in place of each floor.

    Returns
    -------
    int
        0 if not even one request fits; at most `MAX_CHUNKS`.
    """
    needs = {edge.name: _bytes(plan, edge.name, whole_window) for edge in plan.carried}
    one = sum(needs.values())
    if one > plan.request_bytes:
        return 0
    fits = [plan.total_bytes // max(1, one)]
    fits += [plan.edges.get(name, EdgePlan()).max_bytes // max(1, need) for name, need in needs.items()]
    return min(*fits, MAX_CHUNKS)


def _bytes(plan: Plan, name: str, whole_window: bool) -> int:
    bounds = plan.edges.get(name, EdgePlan())
    floor = bounds.floor_chunks * bounds.chunk_bytes
    window = min(bounds.window_chunks * bounds.chunk_bytes, bounds.window_bytes)
    return max(floor, window) if whole_window else floor


def _under(name: str, subject: str, requests: int, each: int, bound: int) -> Condition:
    value = requests * each
    text = f"{requests} * {format_bytes(each)} <= {'no bound' if bound == UNBOUNDED else format_bytes(bound)}"
    return Condition(name, subject, value <= bound, value, bound, text)
