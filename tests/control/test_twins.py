"""Every rule of the machine and of its world does the same as plain Python and compiled, extremes included.

Walks compare the whole memory, the effects, the list of what can happen next and the laws after every step. Then each
rule alone is called on states of such walks, with arguments up to the ends of their ranges.
"""

from __future__ import annotations

import importlib
import inspect
import random
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.control.effects import EFFECT_SIZE
from workbench.control.layout import (
    EDGES,
    REQUESTS,
    SLOTS,
    STAGES,
    TENANTS,
    EdgePlan,
    account,
    receiver,
    sender,
    stage_row,
)
from workbench.control.ranges import MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_TIME_NS, UNBOUNDED
from workbench.graph import CLIENT, Edge, Stage, StageGraph
from workbench.twin import twin
from workbench.verify import wires
from workbench.verify.interface import ACTIONS_SPACE, MAX_EFFECTS, MAX_SCRATCH, PROGRESS, Rules, bind
from workbench.verify.scenario import FAULTS, Scenario, bounded, chain, fork_join

WORLD = "workbench.verify.world"
# Modules of rules whose twins have tests of their own.
OTHERS = {f"workbench.control.{name}" for name in ("admission", "ranges", "window")}


def modules(name: str) -> set[str]:
    """The modules of rules that a module is made of, itself included."""
    found, waiting = set(), {name}
    while waiting:
        here = importlib.import_module(waiting.pop())
        found.add(here.__name__)
        for value in vars(here).values():
            near = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            rules = isinstance(value, ModuleType) or getattr(value, "__rule__", False)
            if rules and str(near).startswith(("workbench.control.", "workbench.verify.")) and near not in found:
                waiting.add(near)
    return found - OTHERS


MODULES = sorted(modules(WORLD))
# Rules that have their twins compared where their vectors are made: what they call is tested in test_window.py.
ELSEWHERE = {("workbench.control.credit", "adapt")}


def two_outputs() -> StageGraph:
    """A fork whose branches both end at the client, one of them over a `whole` edge."""
    edges = [
        Edge(CLIENT, "a", "tokens", "stream"),
        Edge("a", "b", "tokens", "whole"),
        Edge("a", "c", "tokens", "stream"),
        Edge("b", CLIENT, "tokens", "stream"),
        Edge("c", CLIENT, "tokens", "stream"),
    ]
    return StageGraph(
        "two", "two outputs", "test", (Stage(CLIENT, "client"), *(Stage(x, "ar") for x in "abc")), tuple(edges)
    )


ALL_FAULTS = dict.fromkeys(FAULTS, 2)
HUGE = EdgePlan(MAX_CHUNK_BYTES, 1, 2, 2 * MAX_CHUNK_BYTES, UNBOUNDED)
SCENARIOS = {
    "chain": Scenario(bounded(chain(2), 2, window=2, spare_bytes=1, attempts=3), 3, ALL_FAULTS),
    "join": Scenario(bounded(fork_join(), 2, chunk_bytes=2, slots={"join": 1}), 2, ALL_FAULTS, short_last=True),
    "family": Scenario(bounded(chain(1), 3, tenants=3, replayable=False), 2, ALL_FAULTS, parents=(-1, 0, 0)),
    "tight": Scenario(
        bounded(chain(2), 3, window=2, tenants=2, tenant_bytes=3, request_bytes=3, waiting=1, total_bytes=5),
        2,
        ALL_FAULTS,
    ),
    "outputs": Scenario(bounded(two_outputs(), 2, window=3, spare_bytes=2), 2, ALL_FAULTS),
    "coarse": Scenario(bounded(fork_join(), 2), 2, ALL_FAULTS, coarse=True),
    "huge": Scenario(
        bounded(chain(2), 2, total_bytes=UNBOUNDED, edges={"s0>s1": HUGE, "s1>client": HUGE}),
        3,
        ALL_FAULTS,
        short_last=True,
    ),
}


@cache
def compiled() -> Any:
    return bind(WORLD, compiled=True)


def array(values: list[int]) -> Any:
    return np.array(values, np.int64)


def pick(rules: Rules, g: list[int], codes: list[int], draw: random.Random) -> int:
    """One of the actions; what is no progress is the exception."""
    calm = [code for code in codes if rules.kind(g, code) == PROGRESS]
    return draw.choice(calm if calm and draw.random() < 0.85 else codes)


@pytest.mark.parametrize("name", SCENARIOS)
def test_walks_are_equal_step_by_step(name: str) -> None:
    plain, fast = bind(WORLD, compiled=False), compiled()
    g, start = SCENARIOS[name].vectors()
    ga = array(g)
    steps = 0
    for seed in range(12):
        draw = random.Random(f"{name} {seed}")
        m, ma = list(start), array(start)
        acts, out, scratch = [0] * ACTIONS_SPACE, [0] * MAX_EFFECTS, [0] * MAX_SCRATCH
        fast_acts, fast_out, fast_scratch = array(acts), array(out), array(scratch)
        for _ in range(150):
            count = plain.actions(g, m, acts)
            assert fast.actions(ga, ma, fast_acts) == count
            assert fast_acts[:count].tolist() == acts[:count]
            if count == 0:
                break
            which = pick(plain, g, acts[:count], draw)
            assert fast.kind(ga, which) == plain.kind(g, which)
            assert fast.apply(ga, ma, which, fast_out) == plain.apply(g, m, which, out)
            assert fast_out[0] == out[0]
            length = 1 + out[0] * EFFECT_SIZE
            assert fast_out[:length].tolist() == out[:length]
            assert ma.tolist() == m
            assert fast.broken(ga, ma) == plain.broken(g, m)
            assert fast.flags(ga, ma) == plain.flags(g, m)
            folded, fast_folded = list(m), array(m)
            plain.canonical(g, folded, scratch)
            fast.canonical(ga, fast_folded, fast_scratch)
            assert fast_folded.tolist() == folded
            steps += 1
    assert steps > 200


@cache
def states(name: str) -> tuple[tuple[int, ...], ...]:
    """States along walks through a scenario."""
    rules = bind(WORLD, compiled=False)
    g, start = SCENARIOS[name].vectors()
    found = [tuple(start)]
    for seed in range(4):
        draw, m = random.Random(f"states of {name} {seed}"), list(start)
        acts, out = [0] * ACTIONS_SPACE, [0] * MAX_EFFECTS
        for _ in range(120):
            count = rules.actions(g, m, acts)
            if count == 0:
                break
            rules.apply(g, m, pick(rules, g, acts[:count], draw), out)
            found.append(tuple(m))
    return tuple(found)


def rules_of(module: str) -> dict[str, Callable[..., Any]]:
    """The rules that a module defines."""
    here = importlib.import_module(module)
    return {
        name: rule
        for name, rule in vars(here).items()
        if getattr(rule, "__rule__", False) and rule.__module__ == module and (module, name) not in ELSEWHERE
    }


RULES = [(module, name) for module in MODULES for name in rules_of(module)]

NUMBERS = st.one_of(
    st.integers(0, 4),
    st.sampled_from([-1, -UNBOUNDED, UNBOUNDED, MAX_CHUNK_BYTES * MAX_CHUNKS, MAX_CHUNK_BYTES, MAX_TIME_NS]),
    st.integers(-UNBOUNDED, UNBOUNDED),
)
FLAG = st.integers(0, 1)
# Arguments that are plain numbers, up to the ends of their ranges.
FREE = (
    *("taken", "taken_bytes", "limit", "limit_bytes", "size_bytes", "spare_bytes", "width", "width_bytes", "change"),
    *("slack_ns", "path_ns", "lease_until_ns", "now_ns", "dependants", "generation"),
    *("a", "b", "c", "d", "number", "second"),
)


def argument(data: st.DataObject, module: str, rule: str, name: str, g: list[int], m: list[int], so_far: dict) -> Any:
    """A value for one parameter of a rule; whatever names a place names one that exists."""
    stages, edges, requests = g[STAGES], g[EDGES], g[REQUESTS]
    short = module.rpartition(".")[2]

    def below(count: int) -> int:
        return data.draw(st.integers(0, count - 1))

    if (rule, name) == ("witness", "number"):
        return below(3)
    if name in FREE:
        return data.draw(NUMBERS)
    if name in ("empty", "final", "failed", "ended", "waited", "used", "oversize", "changed"):
        flag = data.draw(FLAG)
        return bool(flag) if (short, rule, name) == ("world", "finish", "failed") else flag
    if name == "v":
        return below(stages)
    if name == "e":
        return below(edges)
    if name == "child":
        return below(requests)
    if name == "r":
        return (
            below(requests - 1) if (short, rule) in (("symmetry", "follows"), ("symmetry", "swap")) else below(requests)
        )
    if name == "parent":
        return data.draw(st.integers(-1, requests - 1))
    if name in ("t", "tenant"):
        return below(g[TENANTS])
    if name in ("place", "where"):
        return below(min(stages, edges))
    if name == "epoch":
        return data.draw(st.integers(-1, 3))
    if name in ("seq", "arg"):
        return below(wires.config(g, wires.CHUNKS))
    if name == "which":
        return data.draw(st.sampled_from(so_far["codes"]))
    if name == "action":
        if (short, rule) == ("world", "message"):
            return data.draw(st.sampled_from([wires.action_of(g, code) for code in so_far["codes"]]))
        return data.draw(st.integers(wires.EXPIRE if rule in ("budget", "spent", "harm") else 1, wires.ACTIONS - 1))
    if name == "kind" or name == "what":
        return data.draw(st.integers(1, 16))
    if name == "outcome":
        return data.draw(st.integers(1, 5))
    if name in ("n", "count"):
        return below(4)
    if name == "first":
        return below(so_far["out"][0] + 1)
    if name == "before":
        return data.draw(NUMBERS)
    if name == "field":
        return below(wires.WORLD_CONFIG)
    if name == "room":
        return wires.config(g, wires.DATA_ROOM)
    if name == "i":
        if short == "wires":
            return below(wires.config(g, wires.DATA_ROOM))
        return below(g[stage_row(g, so_far["v"]) + SLOTS])
    if name == "at":
        r, e = below(requests), below(edges)
        if short == "wires":
            return wires.data_wire(g, r, e)
        if rule == "outstanding":
            return account(g, r, e)
        return sender(g, r, e) if rule == "learn" else receiver(g, r, e)
    raise AssertionError(f"say above what {name} of {module}.{rule} may be")


VECTORS = ("g", "m", "out", "acts", "scratch", "input_bytes", "output_bytes")


@pytest.mark.parametrize(
    ("module", "rule"), RULES, ids=[f"{module.rpartition('.')[2]}-{rule}" for module, rule in RULES]
)
@given(data=st.data())
def test_every_rule_is_equal_in_both_executions(module: str, rule: str, data: st.DataObject) -> None:
    plain = rules_of(module)[rule]
    fast = getattr(twin(module), rule)
    name = data.draw(st.sampled_from(sorted(SCENARIOS)))
    g = SCENARIOS[name].vectors()[0]
    m = list(states(name)[data.draw(st.integers(0, len(states(name)) - 1))])
    world = bind(WORLD, compiled=False)
    acts, out = [0] * ACTIONS_SPACE, [0] * MAX_EFFECTS
    codes = acts[: world.actions(g, m, acts)]
    if module == WORLD and rule in ("message", "route", "apply", "kind") and not codes:
        return
    if rule == "route":
        world.apply(g, list(m), data.draw(st.sampled_from(codes)), out)
    so_far: dict[str, Any] = {"codes": codes or [wires.code(g, 1, 0, 0, 0)], "out": out}
    given_values: dict[str, Any] = {"g": g, "m": m, "out": out, "acts": acts, "scratch": [0] * MAX_SCRATCH}
    given_values["input_bytes"] = given_values["output_bytes"] = data.draw(
        st.lists(NUMBERS, min_size=g[EDGES], max_size=g[EDGES])
    )
    if (module, rule) == (WORLD, "message"):
        code = data.draw(st.sampled_from(codes))
        so_far["codes"] = [code]
        given_values |= {"r": wires.request_of(g, code), "place": wires.place_of(g, code)}
        if not wires.CONTROL <= wires.action_of(g, code) <= wires.CREDIT:
            return
    args, fast_args = [], []
    for parameter in inspect.signature(plain).parameters:
        if parameter not in given_values:
            so_far[parameter] = argument(data, module, rule, parameter, g, m, so_far)
        value = given_values.get(parameter, so_far.get(parameter))
        args.append(value)
        fast_args.append(array(value) if parameter in VECTORS else value)
    with np.errstate(all="raise"):
        found, fast_found = plain(*args), fast(*fast_args)
    if isinstance(found, tuple):
        assert tuple(int(x) for x in fast_found) == tuple(int(x) for x in found)
    else:
        assert (fast_found is None) == (found is None)
        assert fast_found is None or int(fast_found) == int(found)
    for parameter, value, fast_value in zip(inspect.signature(plain).parameters, args, fast_args, strict=True):
        if isinstance(value, list):
            # Behind its records an effect list is scratch: a slice of it is a copy of a list and a view of an array.
            length = 1 + out[0] * EFFECT_SIZE if parameter == "out" else len(value)
            assert fast_value[:length].tolist() == value[:length]


def test_no_module_of_rules_is_left_out() -> None:
    expected = {
        f"workbench.control.{name}" for name in "effects layout ledger credit objects lifecycle machine".split()
    }
    expected |= {f"workbench.verify.{name}" for name in "wires options laws symmetry world".split()}
    assert set(MODULES) >= expected
    assert len(RULES) > 100
