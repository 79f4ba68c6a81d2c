"""Small machines for the tests of its modules: random graphs and plans, decoded effects, a stage made ready by hand."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from workbench.control import effects, lifecycle, machine
from workbench.control.effects import EFFECT_SIZE, room
from workbench.control.layout import EPOCH, EdgePlan, Plan, request
from workbench.graph import CLIENT, Edge, Stage, StageGraph


class Effect(NamedTuple):
    """One record of an effect list."""

    kind: int
    request: int
    where: int
    epoch: int
    a: int
    b: int
    c: int
    d: int


def listed(out: Any) -> list[Effect]:
    """The records of an effect list."""
    return [
        Effect(*(int(x) for x in out[at : at + EFFECT_SIZE])) for at in range(1, 1 + out[0] * EFFECT_SIZE, EFFECT_SIZE)
    ]


def kinds(out: Any) -> list[int]:
    """The kinds of the effects of a list."""
    return [effect.kind for effect in listed(out)]


class Machine:
    """Vectors of one plan, with the sizes of chunks that a driver would hand over."""

    def __init__(self, plan: Plan, **memory: Any) -> None:
        self.plan = plan
        self.g, self.m = plan.configuration(), plan.memory(**memory)
        self.edges = [edge.name for edge in plan.carried]
        self.out = [0] * room(self.g)
        self.sizes = [plan.edges.get(name, EdgePlan()).chunk_bytes for name in self.edges]

    def __call__(self, rule: Any, *args: Any) -> Any:
        """Call a rule of the machine, with an empty effect list if it wants one."""
        self.out[0] = 0
        names = rule.__code__.co_varnames[: rule.__code__.co_argcount]
        fixed = {"g": self.g, "m": self.m, "out": self.out}
        return rule(*(fixed[name] for name in names if name in fixed), *args)

    @property
    def effects(self) -> list[Effect]:
        return listed(self.out)

    def admit(self, r: int = 0) -> None:
        """Submit a request and let its first stages begin."""
        self(lifecycle.submit, r, -1, -1)
        for effect in self.effects:
            if effect.kind == effects.SEND_START:
                machine.on_start(self.g, self.m, r, effect.where, effect.epoch)

    def make(self, v: int, final: int = 0, r: int = 0) -> list[Effect]:
        """Reserve, launch and finish one task; the effects of its end."""
        assert self(machine.reserve, r, v) == machine.GO
        assert self(machine.launch, r, v, self.sizes) == machine.GO
        self(machine.finish, r, v, self.sizes, final, 0)
        return self.effects

    def epoch(self, r: int = 0) -> int:
        return self.m[request(self.g, r) + EPOCH]


@st.composite
def graphs(draw: st.DrawFn, most: int = 6, kinds: tuple[str, ...] = ("stream", "whole")) -> StageGraph:
    """Random acyclic graphs: 1 to `most` stages with forks, joins, several roots and several outputs."""
    count = draw(st.integers(1, most))
    names = [f"s{i}" for i in range(count)]
    edges = []
    for i, name in enumerate(names):
        sources = draw(st.sets(st.sampled_from(names[:i]), max_size=3)) if i else set()
        for source in sorted(sources) or [CLIENT]:
            edges.append(Edge(source, name, "tokens", draw(st.sampled_from(kinds)) if source != CLIENT else "stream"))
    for name in names:
        if not any(edge.source == name for edge in edges) or draw(st.integers(0, 7)) == 0:
            edges.append(Edge(name, CLIENT, "tokens", "stream"))
    joins = {
        name: tuple(edge.name for edge in edges if edge.target == name and edge.source != CLIENT) for name in names
    }
    stages = [Stage(CLIENT, "client"), *(Stage(name, "ar", join=joins[name]) for name in names)]
    return StageGraph("random", "a random graph", "drawn", tuple(stages), tuple(edges))


@st.composite
def plans(draw: st.DrawFn, most: int = 6, requests: int = 4, ahead: int = 4) -> Plan:
    """Random plans over `graphs`: some bounds tight, some absent; floors on every edge.

    With `whole` edges, floors and windows hold `ahead` chunks: what streams beside them must wait somewhere.
    """
    graph = draw(graphs(most, draw(st.sampled_from([("stream",), ("stream", "whole")]))))
    least = ahead if any(edge.kind == "whole" for edge in graph.edges) else 1
    count = draw(st.integers(1, requests))
    edges = {}
    for edge in graph.edges:
        if edge.source != CLIENT:
            chunk, window = draw(st.integers(1, 3)), draw(st.integers(least, 4))
            edges[edge.name] = EdgePlan(chunk, draw(st.integers(least, max(2, least))), window, window * chunk)
    floors = sum(bounds.floor_chunks * bounds.chunk_bytes for bounds in edges.values())
    bound = st.one_of(st.just(1 << 61), st.integers(floors, 2 * count * floors))
    return Plan(
        graph,
        count,
        tenants=draw(st.integers(1, count)),
        edges=edges,
        slots={name: draw(st.integers(1, count)) for name in graph.order},
        total_bytes=draw(bound),
        tenant_bytes=draw(bound),
        request_bytes=draw(bound),
        waiting=draw(st.integers(0, count)),
        attempts=draw(st.integers(1, 3)),
        replayable=draw(st.booleans()),
    )
