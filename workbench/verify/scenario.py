"""Scenarios: a small world to explore, described in words and bounds instead of vectors."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from workbench.control.effects import room
from workbench.control.layout import EDGES, REQUESTS, STAGES, WINDOW, EdgePlan, Plan, edge_row
from workbench.control.ranges import shown, truth, within
from workbench.control.skew import edge_skews
from workbench.errors import UsageError
from workbench.graph import CLIENT, Edge, Stage, StageGraph, preset, presets
from workbench.verify import wires
from workbench.verify.interface import MAX_CODE, MAX_EFFECTS
from workbench.workload.fault_plan import FaultPlan
from workbench.workload.fault_table import explorer_budgets

# What the environment may do in a scenario: name -> action. Each needs a budget to happen.
FAULTS: dict[str, int] = {
    "deadline": wires.EXPIRE,
    "cancel": wires.CANCEL,
    "lose-data": wires.LOSE_DATA,
    "lose-credit": wires.LOSE_CREDIT,
    "lose-control": wires.LOSE_CONTROL,
    "lose-reply": wires.LOSE_REPLY,
    "duplicate-data": wires.DUPLICATE_DATA,
    "duplicate-credit": wires.DUPLICATE_CREDIT,
    "duplicate-control": wires.DUPLICATE_CONTROL,
    "duplicate-reply": wires.DUPLICATE_REPLY,
    "reorder-data": wires.REORDER_DATA,
    "reorder-credit": wires.REORDER_CREDIT,
    "kill": wires.KILL,
    "upgrade": wires.UPGRADE,
    "lost-branch": wires.LOST_BRANCH,
    "fail": wires.FAIL,
    "reconnect": wires.RECONNECT,
    "resize": wires.RESIZE,
}


# What one fault of a plan becomes in a world without time; kinds that are missing cost nothing there.
_WORTH: dict[str, tuple[str, ...]] = {
    "kill": ("kill",),
    "lose data": ("lose-data",),
    "lose ack": ("lose-credit",),
    "lose credit": ("lose-credit",),
    "lose control": ("lose-control", "lose-reply"),
    "lose any": ("lose-data", "lose-credit", "lose-control", "lose-reply"),
    "duplicate data": ("duplicate-data",),
    "duplicate ack": ("duplicate-credit",),
    "duplicate credit": ("duplicate-credit",),
    "duplicate control": ("duplicate-control", "duplicate-reply"),
    "duplicate any": ("duplicate-data", "duplicate-credit", "duplicate-control", "duplicate-reply"),
    "reorder data": ("reorder-data",),
    "reorder ack": ("reorder-credit",),
    "reorder credit": ("reorder-credit",),
    "reorder any": ("reorder-data", "reorder-credit"),
    "partition": ("lose-data", "lose-credit", "lose-control", "lose-reply"),
    "lost_branch": ("lost-branch",),
    "cancel": ("cancel",),
    "deadline": ("deadline",),
    "reconnect": ("reconnect",),
}


def budgets(plan: FaultPlan, most: int = 1) -> dict[str, int]:
    """Budgets of a scenario that stand for a fault plan; each at most `most`, since states multiply with them.

    Places, selectors and times of the plan are dropped: the explorer tries all of them. An ack is a credit message
    here. A partition becomes a loss of each kind of message, since one that loses nothing is only a delay.
    """
    found: dict[str, int] = {}
    for name, count in explorer_budgets(plan).items():
        for fault in _WORTH.get(name, ()):
            found[fault] = min(found.get(fault, 0) + count, most)
    return found


# Chunks of the widest window: a state is stored as bytes, and a limit is a window beyond up to 8 chunks taken.
MAX_WINDOW = 119


@dataclass(frozen=True, slots=True)
class Scenario:
    """One small world.

    Attributes
    ----------
    plan : Plan
        Graph, requests and bounds, as for any machine. Window bytes must be at most window chunks times chunk bytes,
        and equal to that with the fault *resize*: a credit message on the wire states chunks, and bytes follow.
    chunks : int
        Chunks of each stream.
    faults : mapping of str to int
        Budget of each name in `FAULTS`; a name that is missing does not happen.
    short_last : bool
        Whether the last chunk is one byte smaller than what was reserved for it.
    tenants, parents : tuple of int
        As in `Plan.memory`.
    coarse : bool
        Whether credit, starts and answers travel at once and a task is launched as soon as it is reserved: fewer
        states for larger worlds, and blind to what happens in between.
    """

    plan: Plan
    chunks: int = 2
    faults: Mapping[str, int] = field(default_factory=dict)
    short_last: bool = False
    tenants: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    coarse: bool = False

    def __post_init__(self) -> None:
        within(self.chunks, 1, 8, "chunks")
        for name in ("short_last", "coarse"):
            truth(getattr(self, name), f"scenario, {name}")
        if not isinstance(self.faults, Mapping):
            raise UsageError("a table of faults and their budgets", shown(self.faults), where="scenario")
        for name, count in self.faults.items():
            if name not in FAULTS:
                raise UsageError(f"faults among {sorted(FAULTS)}", shown(name), where="scenario")
            within(count, 0, 8, f"budget of {name}")
        for edge in self.plan.carried:
            bounds = self.plan.edges.get(edge.name, EdgePlan())
            at, whole_chunks = f"scenario, edge {edge.name}", bounds.window_chunks * bounds.chunk_bytes
            within(bounds.window_chunks, 1, MAX_WINDOW, f"{at}, window_chunks")
            within(bounds.window_bytes, 1, whole_chunks, f"{at}, window_bytes")
            if self.faults.get("resize", 0) and bounds.window_bytes != whole_chunks:
                raise UsageError(
                    "window_bytes = window_chunks * chunk_bytes where windows change", str(bounds), where=at
                )
        if self.short_last and any(self.plan.edges[edge.name].chunk_bytes < 2 for edge in self.plan.carried):
            raise UsageError("chunks of at least 2 bytes", "smaller ones", where="scenario with a short last chunk")
        g = self.plan.configuration()
        codes = wires.ACTIONS * self.plan.requests * max(g[STAGES], g[EDGES]) * self.chunks
        if room(g) > MAX_EFFECTS or codes > MAX_CODE:
            raise UsageError(
                "a small world",
                f"{self.plan.requests} requests, {g[STAGES]} stages, {g[EDGES]} edges, {self.chunks} chunks",
                where="scenario",
                fix="The explorer has no room for what one of its steps can do. Take fewer requests.",
            )

    def vectors(self) -> tuple[list[int], list[int]]:
        """Configuration `g` and initial state `m` of the world."""
        g = self.plan.configuration()
        m = self.plan.memory(self.tenants, self.parents)
        alike = not self.parents and len(set(self.tenants or range(self.plan.tenants))) == 1
        edges, stages = g[EDGES], g[STAGES]
        data_room = 1 + max(g[edge_row(g, e) + WINDOW] for e in range(edges))
        credit_room = 2
        size = wires.WORLD_HEAD + edges * (data_room + credit_room + 1) + 5 * stages
        budget_at = len(m)
        dead_at = budget_at + wires.FAULTS
        world_at = dead_at + stages
        g += [self.chunks, int(self.short_last), int(self.coarse), data_room, credit_room]
        g += [int(alike), budget_at, dead_at, world_at, size]
        m += [0] * (wires.FAULTS + stages + g[REQUESTS] * size)
        for name, count in self.faults.items():
            m[budget_at + FAULTS[name] - wires.EXPIRE] = count
        g += m[budget_at:dead_at]
        return g, m


def chain(stages: int) -> StageGraph:
    """A linear graph: s0 > s1 > ... > client."""
    names = [f"s{i}" for i in range(stages)]
    path = [CLIENT, *names, CLIENT]
    return StageGraph(
        f"chain-{stages}",
        f"{stages} stages in a row",
        "small world",
        (Stage(CLIENT, "client"), *(Stage(name, "ar") for name in names)),
        tuple(Edge(a, b, "tokens", "stream") for a, b in itertools.pairwise(path)),
    )


def fork_join() -> StageGraph:
    """One stage feeds two, and a last one joins them: source > left, right > join > client."""
    names = ("source", "left", "right", "join")
    edges = ((CLIENT, "source"), ("source", "left"), ("source", "right"), ("left", "join"), ("right", "join"))
    return StageGraph(
        "fork-join",
        "a fork and a join",
        "small world",
        (Stage(CLIENT, "client"), *(Stage(name, "ar", join=()) for name in names[:3]))
        + (Stage("join", "ar", join=("left>join", "right>join")),),
        tuple(Edge(a, b, "tokens", "stream") for a, b in (*edges, ("join", CLIENT))),
    )


def joined() -> StageGraph:
    """Two first stages and a third that joins them: left, right > join > client."""
    edges = ((CLIENT, "left"), (CLIENT, "right"), ("left", "join"), ("right", "join"), ("join", CLIENT))
    return StageGraph(
        "join",
        "two branches from the client and their join",
        "small world",
        (
            Stage(CLIENT, "client"),
            Stage("left", "ar"),
            Stage("right", "ar"),
            Stage("join", "ar", join=("left>join", "right>join")),
        ),
        tuple(Edge(a, b, "tokens", "stream") for a, b in edges),
    )


def split() -> StageGraph:
    """One stage that feeds two others, each with an output of its own: source > left, right > client."""
    edges = ((CLIENT, "source"), ("source", "left"), ("source", "right"), ("left", CLIENT), ("right", CLIENT))
    return StageGraph(
        "split",
        "one stage, two branches, two outputs",
        "small world",
        (Stage(CLIENT, "client"), *(Stage(name, "ar") for name in ("source", "left", "right"))),
        tuple(Edge(a, b, "tokens", "stream") for a, b in edges),
    )


def whole() -> StageGraph:
    """Two stages with a `whole` edge between them: the second starts when all of the payload is there."""
    graph = chain(2)
    edges = tuple(replace(edge, kind="whole") if edge.source == "s0" else edge for edge in graph.edges)
    return replace(graph, name="whole", title="two stages, the second waits for the whole payload", edges=edges)


def graph_named(name: str) -> StageGraph:
    """A small graph by name: ``chain-N``, ``fork-join``, ``join``, ``split``, ``whole``, or a preset.

    Raises
    ------
    UsageError
        No such graph.
    """
    small = {"fork-join": fork_join, "join": joined, "split": split, "whole": whole}
    if name in small:
        return small[name]()
    if row := re.fullmatch(r"chain-([0-9]{1,9})", name):
        return chain(within(int(row[1]), 1, 8, "stages of a chain"))
    if name in presets():
        return preset(name)
    raise UsageError(f"a graph among {['chain-N', *small, *presets()]}", shown(name))


def own_world(
    graph: StageGraph,
    *,
    requests: int = 1,
    chunks: int = 2,
    window: int = 1,
    spare: int = 0,
    coarse: bool = False,
    faults: Mapping[str, int] | None = None,
) -> Scenario:
    """A world on any graph: floors and windows cover the skew of its branches, and `spare` chunks of room remain.

    Parameters
    ----------
    graph : StageGraph
        Any graph whose stages join all their inputs.
    requests, chunks, window, spare : int, keyword-only
        Requests at once, chunks of a stream, least window of an edge, room beyond the floors, in chunks of one byte.
    coarse, faults : keyword-only
        As in `Scenario`.
    """
    skews = edge_skews(graph, chunks)
    edges = {}
    for edge in graph.edges:
        if edge.source != CLIENT:
            floor = skews[edge.name] + 1
            edges[edge.name] = EdgePlan(1, floor, max(window, floor), max(window, floor))
    total = requests * sum(bounds.floor_chunks for bounds in edges.values()) + spare
    return Scenario(Plan(graph, requests, edges=edges, total_bytes=total), chunks, faults or {}, coarse=coarse)


def bounded(
    graph: StageGraph, requests: int, *, window: int = 1, chunk_bytes: int = 1, spare_bytes: int = 0, **plan: object
) -> Plan:
    """A plan for `requests` requests at once with room for their floors and `spare_bytes` more.

    Every edge has a floor of one chunk and the given window.
    """
    carried = [edge.name for edge in graph.edges if edge.source != CLIENT]
    edge = EdgePlan(chunk_bytes, 1, window, window * chunk_bytes)
    total = requests * len(carried) * chunk_bytes + spare_bytes
    options: dict[str, object] = {"total_bytes": total, "edges": dict.fromkeys(carried, edge), **plan}
    return Plan(graph, requests, **options)  # type: ignore[arg-type]
