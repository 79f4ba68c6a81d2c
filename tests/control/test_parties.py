"""Locality: what one party does touches only its own memory, as the table of `workbench.control.layout` says.

A list that notes who reads and writes which address takes the place of the memory on random walks. A stage reaches the
controller's memory through calls of `ledger` and `lifecycle` alone; what it reads or writes there besides is named in
`DIRECT`, and a driver that is not one process must carry exactly that.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from functools import cache
from typing import Any

import pytest

from workbench.control import layout, lifecycle, machine
from workbench.control.layout import (
    EDGES,
    EXPOSED,
    FROM,
    REQUEST_HEAD,
    REQUESTS,
    SLOTS,
    STAGES,
    TENANT,
    TENANTS,
    TO,
    edge_row,
    stage_row,
)
from workbench.verify import options, world
from workbench.verify.interface import ACTIONS_SPACE, MAX_EFFECTS, PROGRESS
from workbench.verify.scenario import FAULTS, Scenario, bounded, chain, fork_join

CONTROLLER, CLIENT, WORLD = "controller", "client", "world"
# Handlers of the machine by the party whose they are; those of `lifecycle` are the controller's.
AT_STAGE = "on_start on_data reserve launch finish on_credit resend on_stop wipe"
AT_CLIENT = "on_delivery on_notice client_cancels"
AT_EITHER = "refresh"
SYNCHRONOUS = ("workbench.control.ledger", "workbench.control.lifecycle")
# What a stage touches of the controller's memory without such a call: (rule, field, how). Tenant and model revision
# are fixed while a stage works for a request, so a driver may send them with the start of the work; that a chunk may
# have been exposed goes with the reservation.
DIRECT = {
    ("reserve", "exposed", "write"),
    ("allocate", "tenant", "read"),
    ("allocate", "revision", "read"),
    ("check", "tenant", "read"),
    ("check", "revision", "read"),
}


class Ownership:
    """Whose each address is: a stage's name is its number."""

    def __init__(self, g: list[int]) -> None:
        self.party: dict[int, Any] = {}
        self.field: dict[int, str] = {}
        stages = range(g[STAGES])
        for r in range(g[REQUESTS]):
            at = layout.request(g, r)
            self.own(CONTROLLER, at, REQUEST_HEAD)
            self.field |= {at + TENANT: "tenant", at + EXPOSED: "exposed"}
            self.own(CLIENT, layout.client(g, r), layout.CLIENT_HEAD)
            for v in stages:
                self.own(CONTROLLER, layout.stage_control(g, r, v), layout.STAGE_CONTROL)
                self.own(v, layout.stage(g, r, v), layout.STAGE_SIZE)
            for e in range(g[EDGES]):
                near, far = g[edge_row(g, e) + FROM], g[edge_row(g, e) + TO]
                self.own(CONTROLLER, layout.account(g, r, e), layout.ACCOUNT_SIZE)
                self.own(CLIENT, layout.cursor(g, r, e), 1)
                self.own(near, layout.sender(g, r, e), layout.SENDER_SIZE)
                self.own(CLIENT if far == g[STAGES] else far, layout.receiver(g, r, e), layout.RECEIVER_SIZE)
        self.own(CONTROLLER, 0, layout.LEDGER_HEAD + g[TENANTS] + g[EDGES])
        for v in stages:
            self.own(CONTROLLER, layout.slots_used(g, v), 1)
            self.own(CONTROLLER, layout.revision_of(g, v), 1)
            self.field[layout.revision_of(g, v)] = "revision"
            for i in range(g[stage_row(g, v) + SLOTS]):
                self.own(v, layout.slot(g, v, i), layout.SLOT_SIZE)

    def own(self, party: Any, at: int, size: int) -> None:
        assert not any(at + i in self.party for i in range(size))
        self.party |= dict.fromkeys(range(at, at + size), party)

    def of(self, address: int) -> Any:
        return self.party.get(address, WORLD)


class Watched(list[int]):
    """A memory that notes, inside a handler, each touch: the address, how, the rule, and whether the controller ran."""

    def __init__(self, values: list[int]) -> None:
        super().__init__(values)
        self.touched: set[tuple[int, str, str, bool]] = set()
        self.watching = False

    def note(self, at: int, how: str) -> None:
        assert at >= 0
        frame = sys._getframe(2)
        rule, called = frame.f_code.co_name, False
        while frame.f_globals["__name__"].startswith("workbench.control"):
            called = called or frame.f_globals["__name__"] in SYNCHRONOUS
            frame = frame.f_back  # type: ignore[assignment]
        self.touched.add((at, how, rule, called))

    def __getitem__(self, at):
        if self.watching:
            self.note(at, "read")
        return super().__getitem__(at)

    def __setitem__(self, at, value) -> None:
        if self.watching:
            self.note(at, "write")
        super().__setitem__(at, value)


class Spy:
    """A module whose rules, called from the world, are watched and judged."""

    def __init__(self, module: Any, seen: list[tuple[str, tuple, set]]) -> None:
        self.module, self.seen = module, seen

    def __getattr__(self, name: str) -> Any:
        rule = getattr(self.module, name)
        if not callable(rule):
            return rule

        def watched(g, m, *args):
            m.touched, m.watching = set(), True
            try:
                return rule(g, m, *args)
            finally:
                m.watching = False
                self.seen.append((name, args, m.touched))

        return watched


FAULT_BUDGET = dict.fromkeys(FAULTS, 3)
SCENARIOS = {
    "chain": Scenario(bounded(chain(3), 3, window=2, spare_bytes=3, attempts=4, tenants=2), 3, FAULT_BUDGET),
    "join": Scenario(bounded(fork_join(), 2, attempts=4, slots={"join": 1}), 2, FAULT_BUDGET),
    "family": Scenario(bounded(chain(1), 3, attempts=4), 2, FAULT_BUDGET, parents=(-1, 0, 0)),
}


@cache
def walked(name: str) -> tuple[list[int], list]:
    """The walks through a scenario."""
    return walk(SCENARIOS[name], machine)


def walk(scenario: Scenario, module: Any) -> tuple[list[int], list]:
    """All handler calls of some random walks, with what each touched."""
    with pytest.MonkeyPatch.context() as patch:
        return wander(scenario, module, patch)


def wander(scenario: Scenario, module: Any, patch: pytest.MonkeyPatch) -> tuple[list[int], list]:
    seen: list[tuple[str, tuple, set]] = []
    for name, real in (("machine", module), ("lifecycle", lifecycle)):
        patch.setattr(world, name, Spy(real, seen))
    g, start = scenario.vectors()
    acts, out = [0] * ACTIONS_SPACE, [0] * MAX_EFFECTS
    for seed in range(12):
        draw, m = random.Random(seed), Watched(start)
        for _ in range(200):
            count = options.actions(g, m, acts)
            if count == 0:
                break
            calm = [code for code in acts[:count] if world.kind(g, code) == PROGRESS]
            world.apply(g, m, draw.choice(calm if calm and draw.random() < 0.9 else acts[:count]), out)
    return g, seen


def place(g: list[int], name: str, args: tuple) -> Any:
    """The party that a handler of the machine runs at."""
    args = args[1:] if isinstance(args[0], list) else args
    if name in AT_CLIENT.split():
        return CLIENT
    where = args[0] if name == "wipe" else args[1]
    if name in ("on_data", "refresh"):
        where = g[edge_row(g, where) + TO]
    elif name in ("on_credit", "resend"):
        where = g[edge_row(g, where) + FROM]
    return CLIENT if where == g[STAGES] else where


def strangers(g: list[int], seen: list) -> Counter:
    """Touches outside of a party's memory and of the controller's answers: rule, owner or field, how."""
    ownership = Ownership(g)
    found: Counter = Counter()
    for name, args, touched in seen:
        controller = hasattr(lifecycle, name)
        mine = CONTROLLER if controller else place(g, name, args)
        for at, how, rule, called in touched:
            owner = ownership.of(at)
            if owner != mine and not (owner == CONTROLLER and called):
                found[rule, ownership.field.get(at, owner), how] += 1
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_handler_stays_in_its_own_memory(name: str) -> None:
    g, seen = walked(name)
    assert set(strangers(g, seen)) <= DIRECT
    called = Counter(name for name, _, _ in seen)
    handlers = {*AT_STAGE.split(), *AT_CLIENT.split(), AT_EITHER}
    assert {rule for rule in called if not hasattr(lifecycle, rule)} <= handlers
    assert sum(called.values()) > 500


def test_what_crosses_without_a_call_is_known_exactly() -> None:
    found = set()
    for name in SCENARIOS:
        found |= set(strangers(*walked(name)))
    assert found == DIRECT


def test_every_handler_is_walked_through() -> None:
    called = {name for scenario in SCENARIOS for name, _, _ in walked(scenario)[1]}
    assert called >= {*AT_STAGE.split(), *AT_CLIENT.split(), AT_EITHER}


def test_a_stage_that_looks_at_another_is_seen() -> None:
    """The watch can fail: a stage that reads the sender's end of the stream it receives."""

    def nosy(g, m, out, r, e, *rest):
        assert m[layout.sender(g, r, e) + layout.SENT] >= 0
        machine.on_data(g, m, out, r, e, *rest)

    class Nosy:
        on_data = staticmethod(nosy)

        def __getattr__(self, name: str) -> Any:
            return getattr(machine, name)

    g, seen = walk(SCENARIOS["chain"], Nosy())
    assert {(rule, how) for rule, owner, how in set(strangers(g, seen)) - DIRECT if owner in (0, 1)} == {
        ("nosy", "read")
    }


def test_the_client_and_the_wires_are_beyond_the_controller() -> None:
    """What the controller touches is its own, on every event: it learns of stages by their words alone."""
    g, seen = walked("join")
    ownership = Ownership(g)
    events = Counter()
    for name, _, touched in seen:
        if hasattr(lifecycle, name):
            events[name] += 1
            assert {ownership.of(at) for at, _, _, _ in touched} <= {CONTROLLER}
    assert {"submit", "lost", "stopped", "cancel", "expire", "told", "start"} <= set(events)
