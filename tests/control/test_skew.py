"""Deadlock freedom of the floors: random graphs, on the ledger and the credit ends in force, in any order of work."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.control import credit, layout, ledger
from workbench.control.layout import EdgePlan, Plan
from workbench.control.skew import edge_skews, rate_floor_chunks
from workbench.graph import CLIENT, Edge, Stage, StageGraph, preset
from workbench.testing.queues import shared_device
from workbench.verify.explorer import explore
from workbench.verify.interface import GOAL, MAX_ACTIONS, MAX_EFFECTS, PROGRESS, bind
from workbench.verify.laws import CAUSE
from workbench.verify.scenario import Scenario

WORLD = "workbench.verify.world"


class Flow:
    """Requests that flow through a graph chunk by chunk under a plan; all messages arrive at once.

    A stage runs its next task when its inputs are there and the window and the ledger have room on every out-edge.
    """

    def __init__(
        self,
        plan: Plan,
        chunks: int,
        lookahead: Mapping[str, int] | None = None,
        gathering: Collection[str] = (),
    ) -> None:
        self.plan, self.chunks = plan, chunks
        self.lookahead, self.gathering = lookahead or {}, gathering
        self.g, self.m = plan.configuration(), plan.memory()
        self.number = {edge.name: i for i, edge in enumerate(plan.carried)}
        self.ready = {v: [e for e in plan.carried if e.target == v] for v in plan.stages}
        self.out = {v: [e for e in plan.carried if e.source == v] for v in plan.stages}
        self.done = [dict.fromkeys(plan.stages, 0) for _ in range(plan.requests)]
        self.admitted = 0
        for r in range(plan.requests):
            if ledger.short_of(self.g, self.m, r, 0) == 0:
                ledger.admit(self.g, self.m, r)
                self.admitted += 1
            for e in range(len(plan.carried)):
                credit.open_sender(self.g, self.m, r, e)
                credit.open_receiver(self.g, self.m, r, e)

    def take(self, r: int, edge: Edge, upto: int) -> None:
        """The target takes the first `upto` chunks over; the credit goes back."""
        e = self.number[edge.name]
        at, end = layout.receiver(self.g, r, e), layout.sender(self.g, r, e)
        chunk = self.g[layout.edge_row(self.g, e) + layout.CHUNK_BYTES]
        while self.m[at + layout.TAKEN] < min(upto, self.done[r][edge.source]):
            credit.take(self.m, at, chunk)
            taken, size = self.m[at + layout.TAKEN], self.m[at + layout.TAKEN_BYTES]
            credit.learn(self.m, end, taken, size, self.m[at + layout.ADVERTISED], self.m[at + layout.ADVERTISED_BYTES])
            ledger.give_back(self.g, self.m, r, e, taken, size)

    def at_once(self, edge: Edge) -> bool:
        return edge.kind == "whole" or edge.target == CLIENT or edge.target in self.gathering

    def settle(self, r: int) -> None:
        """Every target takes over what it takes over without running."""
        for edge in self.plan.carried:
            ahead = 0 if edge.target == CLIENT else self.done[r][edge.target] + self.lookahead.get(edge.target, 0)
            self.take(r, edge, self.chunks if self.at_once(edge) else ahead)

    def enabled(self, r: int, v: str) -> bool:
        k = self.done[r][v]
        if r >= self.admitted or k == self.chunks:
            return False
        last = min(k + self.lookahead.get(v, 0), self.chunks - 1)
        for edge in self.ready[v]:
            if self.done[r][edge.source] <= (self.chunks - 1 if edge.kind == "whole" else last):
                return False
        stage = self.plan.stages.index(v)
        return all(
            credit.may_send(self.g, self.m, r, self.number[edge.name]) for edge in self.out[v]
        ) and ledger.can_reserve(self.g, self.m, r, stage)

    def work(self, r: int, v: str) -> None:
        for edge in self.ready[v]:
            if not self.at_once(edge):
                self.take(r, edge, self.done[r][v] + 1 + self.lookahead.get(v, 0))
        for edge in self.out[v]:
            e = self.number[edge.name]
            end = layout.sender(self.g, r, e)
            ledger.reserve(self.g, self.m, r, e)
            self.m[end + layout.SENT] += 1
            self.m[end + layout.SENT_BYTES] += self.g[layout.edge_row(self.g, e) + layout.CHUNK_BYTES]
        self.done[r][v] += 1
        self.settle(r)

    def finishes(self, rng: random.Random) -> bool:
        """Work in random order until nothing can run; whether all admitted requests are done."""
        tasks = [(r, v) for r in range(self.plan.requests) for v in self.plan.stages]
        while ready := [task for task in tasks if self.enabled(*task)]:
            self.work(*rng.choice(ready))
            assert self.m[layout.USED] <= self.plan.total_bytes
        return all(self.done[r][v] == self.chunks for r in range(self.admitted) for v in self.plan.stages)


def graph_of(edges: list[tuple[str, str]], whole: Collection[tuple[str, str]] = ()) -> StageGraph:
    """A graph of these edges, fed by the client where nothing else feeds it, and answering it from its ends."""
    names = sorted({name for edge in edges for name in edge})
    firsts = [name for name in names if name not in {target for _, target in edges}]
    ends = [name for name in names if name not in {source for source, _ in edges}]
    rows = [Edge(CLIENT, name, "text", "whole") for name in firsts]
    rows += [Edge(a, b, "codes", "whole" if (a, b) in whole else "stream") for a, b in edges]
    rows += [Edge(name, CLIENT, "audio", "stream") for name in ends]
    joins = {name: tuple(f"{a}>{b}" for a, b in edges if b == name) for name in names}
    stages = [Stage(CLIENT, "client"), *(Stage(name, "ar", join=joins[name]) for name in names)]
    return StageGraph("g", "", "", tuple(stages), tuple(rows))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[StageGraph, dict[str, int], list[str], int]:
    """A connected graph of up to six stages, lookaheads, stages that gather, and a stream's length."""
    count = draw(st.integers(2, 6))
    names = "abcdef"[:count]
    edges = [(names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, count)]
    pairs = [(a, b) for a in names for b in names if a < b and (a, b) not in edges]
    if pairs:
        edges += draw(st.lists(st.sampled_from(pairs), unique=True, max_size=5))
    whole = draw(st.lists(st.sampled_from(edges), unique=True, max_size=2))
    lookahead = {name: draw(st.integers(0, 2)) for name in names}
    gathering = draw(st.lists(st.sampled_from(names), unique=True, max_size=1))
    return graph_of(edges, whole), lookahead, gathering, draw(st.integers(1, 7))


def plan_of(graph: StageGraph, skews: Mapping[str, int], requests: int, extra_bytes: int = 0) -> Plan:
    """Floors and windows of skew + 1 chunks, and a bound that holds these floors and `extra_bytes` more."""
    edges = {
        edge.name: EdgePlan(chunk_bytes=2, floor_chunks=skews[edge.name] + 1, window_chunks=skews[edge.name] + 1)
        for edge in graph.edges
        if edge.source != CLIENT
    }
    floors = sum(bounds.floor_chunks * bounds.chunk_bytes for bounds in edges.values())
    return Plan(graph, requests, edges=edges, total_bytes=requests * floors + extra_bytes)


@given(graphs(), st.integers(1, 3), st.integers(0, 5), st.randoms(use_true_random=False))
def test_floors_of_skew_plus_one_finish_every_request_in_any_order(
    case: tuple[StageGraph, dict[str, int], list[str], int], requests: int, extra_bytes: int, rng: random.Random
) -> None:
    graph, lookahead, gathering, chunks = case
    skews = edge_skews(graph, chunks, lookahead=lookahead, gathering=gathering)
    flow = Flow(plan_of(graph, skews, requests, extra_bytes), chunks, lookahead, gathering)
    assert flow.admitted == requests
    assert flow.finishes(rng)


@given(graphs(), st.integers(1, 3), st.randoms(use_true_random=False))
def test_one_chunk_is_enough_where_branches_are_alike(
    case: tuple[StageGraph, dict[str, int], list[str], int], requests: int, rng: random.Random
) -> None:
    graph = case[0]
    streams = StageGraph(
        "g", "", "", graph.stages, tuple(Edge(e.source, e.target, e.modality, "stream") for e in graph.edges)
    )
    skews = edge_skews(streams, case[3])
    assert set(skews.values()) == {0}
    assert Flow(plan_of(streams, skews, requests), case[3]).finishes(rng)


@given(st.integers(1, 4), st.integers(5, 8), st.integers(1, 3), st.randoms(use_true_random=False))
def test_one_chunk_less_than_skew_plus_one_stands_still(
    skew: int, chunks: int, requests: int, rng: random.Random
) -> None:
    graph = graph_of([("a", "b"), ("a", "z"), ("b", "z")])  # b looks ahead, so z needs its chunks of a that much later
    lookahead = {"b": skew}
    skews = edge_skews(graph, chunks, lookahead=lookahead)
    assert skews == {"client>a": 0, "a>b": 0, "b>z": 0, "a>z": skew, "z>client": 0}
    assert Flow(plan_of(graph, skews, requests), chunks, lookahead).finishes(rng)
    short = plan_of(graph, skews | {"a>z": skew - 1}, requests)
    assert not Flow(short, chunks, lookahead).finishes(rng)
    # A window that small stands still as well, however large the floor.
    floor = EdgePlan(chunk_bytes=2, floor_chunks=chunks, window_chunks=skew)
    narrow = Plan(graph, requests, edges=short.edges | {"a>z": floor})
    assert not Flow(narrow, chunks, lookahead).finishes(rng)


def test_without_floors_a_shared_bound_of_the_same_size_stands_still() -> None:
    # Branch b trails by two chunks. Without floors the chunks on a>z can fill the whole bound, and b gets no room.
    graph = graph_of([("a", "b"), ("a", "z"), ("b", "z")])
    lookahead, chunks, requests = {"b": 2}, 8, 2
    skews = edge_skews(graph, chunks, lookahead=lookahead)
    floors = {name: skew + 1 for name, skew in skews.items() if name != "client>a"}

    def outcomes(with_floors: int) -> set[bool]:
        edges = {name: EdgePlan(floor_chunks=with_floors * n, window_chunks=chunks) for name, n in floors.items()}
        plan = Plan(graph, requests, edges=edges, total_bytes=requests * sum(floors.values()))
        return {Flow(plan, chunks, lookahead).finishes(random.Random(seed)) for seed in range(40)}

    assert False in outcomes(0)
    assert outcomes(1) == {True}


def test_a_whole_edge_beside_a_stream_needs_room_for_the_stream() -> None:
    # In t3 the image is made after the thinker's last chunk, and the mux starts with the image.
    graph, chunks = preset("t3"), 4
    skews = edge_skews(graph, chunks)
    assert {name: skew for name, skew in skews.items() if skew} == {"thinker>mux": 3, "code2wav>mux": 3}
    assert Flow(plan_of(graph, skews, 2), chunks).finishes(random.Random(1))
    assert not Flow(plan_of(graph, dict.fromkeys(skews, 0), 2), chunks).finishes(random.Random(1))
    gathered = edge_skews(graph, chunks, gathering=["mux"])
    assert set(gathered.values()) == {0}
    assert Flow(plan_of(graph, gathered, 2), chunks, gathering=["mux"]).finishes(random.Random(1))
    for name in ("t1", "t2", "cfg-join"):
        assert set(edge_skews(preset(name), 100).values()) == {0}


def machine_world(*, skewed: bool) -> tuple[list[int], list[int]]:
    """The protocol machine on a graph whose stage z takes a stream of a, and of b, which waits for all of a."""
    graph, chunks = graph_of([("a", "b"), ("a", "z"), ("b", "z")], whole=[("a", "b")]), 2
    skews = edge_skews(graph, chunks)
    assert skews["a>z"] == 1
    plan = plan_of(graph, skews if skewed else dict.fromkeys(skews, 0), 1)
    edges = {
        name: replace(bounds, window_bytes=bounds.window_chunks * bounds.chunk_bytes)
        for name, bounds in plan.edges.items()
    }
    return Scenario(replace(plan, edges=edges), chunks).vectors()


def test_the_protocol_machine_needs_the_skew_as_well() -> None:
    found = explore(WORLD, *machine_world(skewed=False), compiled=False)
    assert (found.verdict, found.kind, found.code) == ("violated", "step", CAUSE), "a deadline ends it, nothing else"
    rules = bind(WORLD, compiled=False)
    for seed in range(20):
        rng, (g, m) = random.Random(seed), machine_world(skewed=True)
        acts, out = [0] * MAX_ACTIONS, [0] * MAX_EFFECTS
        while not rules.flags(g, m) & GOAL:
            count = rules.actions(g, m, acts)
            steps = [act for act in acts[:count] if rules.kind(g, act) == PROGRESS]
            out[0] = 0
            assert rules.apply(g, m, rng.choice(steps), out) == 0


@pytest.mark.soak
def test_the_protocol_machine_with_the_skew_needs_no_deadline_from_any_state() -> None:
    assert explore(WORLD, *machine_world(skewed=True), compiled=False).verdict == "holds"


@pytest.mark.parametrize("produced", range(1, 7))
@pytest.mark.parametrize("consumed", range(1, 7))
def test_unequal_rates_need_both_sizes_less_their_common_divisor(produced: int, consumed: int) -> None:
    def finishes(room: int) -> bool:
        total = 4 * produced * consumed
        made = taken = 0
        while taken < total:
            if made < total and made - taken + produced <= room:
                made += produced
            elif made - taken >= consumed:
                taken += consumed
            else:
                return False
        return True

    floor = rate_floor_chunks(produced, consumed)
    assert finishes(floor)
    assert not finishes(floor - 1)


def test_a_stage_that_waits_for_room_on_the_device_of_its_consumer_stands_still() -> None:
    for slots in (1, 3):
        assert shared_device(10, slots, reserve_first=True) == 10
        assert shared_device(10, slots, reserve_first=False) == 0
