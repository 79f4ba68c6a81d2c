"""The rules of faults equal a plain model, interpreted and compiled; each kind acts; nothing acts after the heal."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workload.plans import CLASSES, GRAPH, HEAL, TENANTS, Happening, Model, happenings, plans
from workbench.control import faults
from workbench.control.ranges import UNBOUNDED
from workbench.schema.enums import FAULT, FAULT_EVENT
from workbench.twin import twin
from workbench.workload.fault_plan import KINDS, Fault, FaultPlan, Watch
from workbench.workload.fault_table import event, flatten


class Engine:
    """One run of a plan under one form of the rules."""

    def __init__(self, plan: FaultPlan, rules: ModuleType, *, arrays: bool) -> None:
        table, counters = flatten(plan, GRAPH, classes=CLASSES, tenants=TENANTS)
        self.rules, self.arrays, self.plan = rules, arrays, plan
        out = np.full((len(plan.faults) + 1) * faults.EFFECT_WIDTH, -7)
        self.table, self.counters, self.out = self.vector(table), self.vector(counters), self.vector(out)

    def vector(self, values: Any) -> Any:
        return np.array(values, np.int64) if self.arrays else [int(value) for value in values]

    def effects(self, number: int) -> list[list[int]]:
        width = faults.EFFECT_WIDTH
        return [[int(v) for v in self.out[i * width : (i + 1) * width]] for i in range(int(number))]

    def strikes(self, row: list[int], draw: int) -> list[list[int]]:
        return self.effects(self.rules.strikes(self.table, self.counters, self.vector(row), draw, self.out))

    def due(self, now: int) -> list[list[int]]:
        return self.effects(self.rules.due(self.table, self.counters, now, self.out))

    def next_ns(self, now: int) -> int:
        return int(self.rules.next_ns(self.table, self.counters, now))

    def open_until(self, kind: int, row: list[int]) -> int:
        return int(self.rules.open_until(self.table, self.counters, kind, self.vector(row)))

    def slowdown(self, row: list[int]) -> int:
        return int(self.rules.slowdown(self.table, self.counters, self.vector(row)))

    def state(self) -> list[int]:
        return [int(value) for value in self.counters]


def plain(*rows: Fault, heal_ns: int = HEAL) -> Engine:
    return Engine(FaultPlan("test", 0, heal_ns, rows), faults, arrays=False)


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    return twin("workbench.control.faults")


def words(effects: list[list[int]]) -> list[tuple[str, int]]:
    return [(FAULT[effect[faults.EFFECT_KIND]], effect[faults.EFFECT_ROW]) for effect in effects]


def coded(happening: Happening, now_ns: int) -> list[int]:
    return event(
        GRAPH,
        happening.kind,
        now_ns=now_ns,
        stage=happening.stage,
        edge=happening.edge,
        backward=happening.backward,
        replicas=happening.replicas,
        request=happening.request,
        request_class=happening.request_class,
        tenant=happening.tenant,
    )


def data(now_ns: int = 0, edge: str = "talker>code2wav", **more: Any) -> list[int]:
    return event(GRAPH, "data", now_ns=now_ns, edge=edge, **more)


def test_codes_are_positions_in_the_vocabulary() -> None:
    assert [getattr(faults, name.upper()) for name in FAULT] == list(range(len(FAULT)))
    assert [getattr(faults, name.upper()) for name in FAULT_EVENT] == list(range(len(FAULT_EVENT)))
    assert set(KINDS) == set(FAULT)


@given(plans(least=4), st.lists(happenings(), min_size=15, max_size=25))
def test_interpreted_and_compiled_rules_equal_the_model(
    compiled: ModuleType, plan: FaultPlan, story: list[Happening]
) -> None:
    engines = [Engine(plan, faults, arrays=False), Engine(plan, compiled, arrays=True)]
    model, now = Model(plan, GRAPH), 0
    for happening in story:
        now += happening.gap
        expected = model.due(now)
        timed = [engine.due(now) for engine in engines]
        assert timed[0] == timed[1]
        assert words(timed[0]) == expected
        row = coded(happening, now)
        expected = model.strikes(happening, now)
        struck = [engine.strikes(row, happening.draw) for engine in engines]
        assert struck[0] == struck[1]
        assert words(struck[0]) == expected
        assert engines[0].state() == engines[1].state()
        for kind in ("kill", "pause", "partition"):
            ends = [model.until[i] for i in model.open(kind, happening, now)]
            assert {e.open_until(FAULT.index(kind), row) for e in engines} == {max(ends, default=0)}
        factors = [plan.faults[i].parameter for i in model.open("slow", happening, now)]
        assert {e.slowdown(row) for e in engines} == {max(factors, default=1000)}
        assert {e.next_ns(now) for e in engines} == {model.next_ns(now) or UNBOUNDED}


@given(plans(least=4), st.lists(happenings(), min_size=15, max_size=25), st.integers(0, HEAL))
def test_no_budget_is_exceeded_and_nothing_acts_after_the_heal(
    plan: FaultPlan, story: list[Happening], start: int
) -> None:
    engine, now = Engine(plan, faults, arrays=False), start
    for happening in story:
        now += happening.gap
        before, row = engine.state(), coded(happening, now)
        acted = engine.due(now) + engine.strikes(row, happening.draw)
        for i, fault in enumerate(plan.faults):
            assert engine.counters[i * faults.COUNT_WIDTH + faults.COUNT_SPENT] <= fault.times
            assert engine.counters[i * faults.COUNT_WIDTH + faults.COUNT_UNTIL] <= plan.heal_ns
        if now >= plan.heal_ns:
            assert not acted
            assert engine.state() == before
            assert engine.next_ns(now) == UNBOUNDED
            assert engine.slowdown(row) == 1000
            assert not any(engine.open_until(kind, row) for kind in range(len(FAULT)))


@given(st.lists(happenings(), max_size=10))
def test_a_plan_without_faults_changes_nothing(story: list[Happening]) -> None:
    engine, now = plain(), 0
    for happening in story:
        now += happening.gap
        row = coded(happening, now)
        assert engine.due(now) == engine.strikes(row, happening.draw) == []
        assert engine.slowdown(row) == 1000
        assert engine.open_until(faults.PARTITION, row) == 0
    assert engine.state() == []
    assert set(engine.out) == {-7}


ON = Watch("data", edge="talker>code2wav")
ACTING = {
    "kill": Fault("kill", stage="code2wav", on=ON, nth=1, duration_ns=50),
    "lose": Fault("lose", edge="talker>code2wav", nth=1),
    "delay": Fault("delay", edge="talker>code2wav", nth=1, delay_ns=30),
    "duplicate": Fault("duplicate", edge="talker>code2wav", nth=1, delay_ns=20),
    "reorder": Fault("reorder", edge="talker>code2wav", nth=1, behind=2),
    "partition": Fault("partition", edge="talker>code2wav", direction="backward", on=ON, nth=1, duration_ns=50),
    "heal": Fault("heal", on=ON, nth=1),
    "pause": Fault("pause", stage="code2wav", on=ON, nth=1, duration_ns=50),
    "resume": Fault("resume", stage="code2wav", on=ON, nth=1),
    "cancel": Fault("cancel", on=ON, nth=1),
    "deadline": Fault("deadline", on=ON, nth=1),
    "clock_step": Fault("clock_step", stage="code2wav", on=ON, nth=1, step_ns=-40),
    "slow": Fault("slow", stage="code2wav", on=ON, nth=1, factor_permille=3_000, duration_ns=50),
    "reconnect": Fault("reconnect", on=ON, nth=1, delay_ns=60),
    "lost_branch": Fault("lost_branch", edge="code2wav>mux", nth=1),
}


@pytest.mark.parametrize("kind", FAULT)
def test_each_kind_acts_once_and_says_what_it_does(kind: str) -> None:
    fault = ACTING[kind]
    engine = plain(fault)
    row = data(10, edge="code2wav>mux" if kind == "lost_branch" else "talker>code2wav", request=5)
    (effect,) = engine.strikes(row, 0)
    assert engine.strikes(row, 0) == []
    assert FAULT[effect[faults.EFFECT_KIND]] == kind
    assert effect[faults.EFFECT_REQUEST] == 5
    assert effect[faults.EFFECT_PARAMETER] == fault.parameter
    assert effect[faults.EFFECT_UNTIL] == (60 if KINDS[kind].lasts else 0)


def test_a_kill_holds_for_every_request_of_its_replica_until_its_end() -> None:
    engine = plain(Fault("kill", stage="code2wav", replica=1, request_class="long", on=ON, nth=1, duration_ns=50))
    engine.strikes(data(10, request_class=1), 0)

    def down(now_ns: int, replica: int) -> int:
        row = event(GRAPH, "start", now_ns=now_ns, stage="code2wav", replicas=(replica, replica), request_class=0)
        return engine.open_until(faults.KILL, row)

    assert [down(10, 1), down(59, 1), down(60, 1), down(10, 0)] == [60, 60, 0, 0]


def test_a_partition_loses_what_crosses_it_in_its_direction_and_spends_nothing_on_it() -> None:
    engine = plain(
        Fault("partition", edge="talker>code2wav", direction="backward", message="ack", at_ns=5, duration_ns=50),
        Fault("lose", edge="talker>code2wav", message="ack", nth=1, budget=1),
    )
    assert words(engine.due(5)) == [("partition", 0)]
    ack = event(GRAPH, "ack", now_ns=6, edge="talker>code2wav")
    assert [words(engine.strikes(ack, 0)) for _ in range(3)] == [[("lose", 0)]] * 3
    assert engine.strikes(data(7), 0) == []
    assert words(engine.strikes(event(GRAPH, "ack", now_ns=55, edge="talker>code2wav"), 0)) == [("lose", 1)]


@pytest.mark.parametrize(
    ("opener", "closer", "kind"),
    [
        (Fault("partition", at_ns=0), Fault("heal", at_ns=9), faults.PARTITION),
        (Fault("pause", stage="code2wav", at_ns=0), Fault("resume", stage="code2wav", at_ns=9), faults.PAUSE),
    ],
)
def test_what_is_closed_ends_at_once_and_only_that(opener: Fault, closer: Fault, kind: int) -> None:
    other = Fault("partition" if kind == faults.PAUSE else "pause", stage="code2wav", at_ns=0)
    engine = plain(opener, closer, other)
    row = data(9)
    engine.due(8)
    assert engine.open_until(kind, data(8)) == HEAL
    engine.due(9)
    assert engine.open_until(kind, row) == 0
    assert engine.open_until(faults.PARTITION + faults.PAUSE - kind, row) == HEAL


def test_a_heal_of_one_edge_leaves_the_partition_of_another() -> None:
    engine = plain(Fault("partition", edge="thinker>mux", at_ns=0), Fault("heal", edge="mux>client", at_ns=9))
    engine.due(9)
    assert engine.open_until(faults.PARTITION, data(9, edge="thinker>mux")) == HEAL


def test_the_strongest_fate_wins_and_the_outranked_count_is_due_again() -> None:
    rows = [
        Fault("duplicate", nth=1),
        Fault("delay", nth=1, delay_ns=1),
        Fault("reorder", nth=1, behind=1),
        Fault("lose", nth=1),
        Fault("lost_branch", edge="code2wav>mux", nth=1),
    ]
    engine = plain(*rows)
    order = [words(engine.strikes(data(0, edge="code2wav>mux"), 0)) for _ in range(6)]
    assert order == [[("lost_branch", 4)], [("lose", 3)], [("reorder", 2)], [("delay", 1)], [("duplicate", 0)], []]


def test_state_changes_come_first_and_the_message_meets_the_state_after() -> None:
    watch = Watch("data")
    engine = plain(
        Fault("lose", nth=1), Fault("kill", stage="talker", on=watch, nth=1), Fault("partition", on=watch, nth=1)
    )
    assert words(engine.strikes(data(), 0)) == [("kill", 1), ("partition", 2), ("lose", 2)]


def test_rates_own_adjoining_ranges_of_the_draw_whatever_their_budget() -> None:
    engine = plain(
        Fault("lose", message="data", rate_permille=100, budget=1),
        Fault("lose", message="ack", rate_permille=500, budget=1),
        Fault("duplicate", message="data", rate_permille=250, budget=1_000),
    )
    struck = [words(engine.strikes(data(), draw)) for draw in range(1000)]
    assert struck[0] == [("lose", 0)]
    assert struck[1:100] == [[]] * 99
    assert struck[100:350] == [[("duplicate", 2)]] * 250
    assert struck[350:] == [[]] * 650


def test_a_late_call_does_not_lengthen_an_interval() -> None:
    engine = plain(Fault("pause", stage="code2wav", at_ns=10, duration_ns=20), Fault("resume", stage="talker", at_ns=3))
    assert [engine.next_ns(0), engine.next_ns(3)] == [3, 10]
    effects = engine.due(25)
    assert words(effects) == [("resume", 1), ("pause", 0)]
    assert effects[1][faults.EFFECT_UNTIL] == 30
    assert engine.next_ns(25) == 30
    assert engine.next_ns(30) == UNBOUNDED


def test_a_consumer_of_one_tenant_is_paused_alone() -> None:
    engine = plain(Fault("pause", stage="client", tenant="free", at_ns=0, duration_ns=20))
    engine.due(0)
    take = [event(GRAPH, "take", now_ns=1, edge="mux>client", tenant=tenant) for tenant in (0, 1)]
    assert [engine.open_until(faults.PAUSE, row) for row in take] == [0, 20]


def test_the_greatest_times_stay_inside_64_bits(compiled: ModuleType) -> None:
    heal_ns = 1 << 61
    last = Fault("pause", stage="client", at_ns=heal_ns - 1, duration_ns=heal_ns)
    plan = FaultPlan("late", 0, heal_ns, (last, Fault("kill", stage="talker", at_ns=heal_ns - 2)))
    engines = [Engine(plan, faults, arrays=False), Engine(plan, compiled, arrays=True)]
    assert engines[0].due(heal_ns - 1) == engines[1].due(heal_ns - 1)
    assert [effect[faults.EFFECT_UNTIL] for effect in engines[0].effects(2)] == [heal_ns, heal_ns]


@pytest.mark.parametrize(
    ("old", "new", "shows"),
    [
        ("    if now >= table[HEAL_NS]:\n        return 0\n    found, fate", "    found, fate", "heal"),
        ("or counters[count + COUNT_SPENT] >= table[row + FAULT_BUDGET]", "", "budget"),
    ],
)
def test_a_broken_rule_is_noticed(old: str, new: str, shows: str) -> None:
    from workbench.twin import Edit

    broken = twin("workbench.control.faults", compiled=False, edits=[Edit("workbench.control.faults", old, new)])
    engine = Engine(FaultPlan("one", 0, 100, (Fault("lose", nth=1),)), broken, arrays=False)
    times = (200,) if shows == "heal" else (0, 1)
    assert sum(len(engine.strikes(data(now), 0)) for now in times) > (shows == "budget")


def test_a_loss_at_a_time_takes_the_first_message_from_then_on() -> None:
    engine = plain(Fault("lose", message="data", at_ns=10))
    assert engine.due(10) == []
    assert [words(engine.strikes(data(now), 0)) for now in (9, 10, 11)] == [[], [("lose", 0)], []]


def test_a_loss_at_one_replica_leaves_the_messages_of_the_other() -> None:
    engine = plain(Fault("lose", stage="code2wav", replica=1, nth=1, budget=2))
    rows = [data(replicas=(1, 0)), data(replicas=(0, 1)), data(edge="code2wav>mux", replicas=(1, 0))]
    assert [words(engine.strikes(row, 0)) for row in rows] == [[], [("lose", 0)], [("lose", 0)]]


def test_a_resume_of_one_tenant_leaves_the_pause_of_another() -> None:
    engine = plain(
        Fault("pause", stage="client", tenant="free", at_ns=0),
        Fault("pause", stage="client", tenant="gold", at_ns=0),
        Fault("resume", stage="client", tenant="gold", at_ns=5),
    )
    engine.due(5)
    take = [event(GRAPH, "take", now_ns=5, edge="mux>client", tenant=tenant) for tenant in (0, 1)]
    assert [engine.open_until(faults.PAUSE, row) for row in take] == [0, HEAL]
