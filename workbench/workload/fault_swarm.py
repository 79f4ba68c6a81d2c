"""Swarms of fault plans: every seed draws which faults there are and how likely each one is."""

from __future__ import annotations

import numpy as np

from workbench.control.ranges import MAX_TIME_NS, within
from workbench.graph import CLIENT, StageGraph
from workbench.units import MS_NS, S_NS
from workbench.workload.fault_plan import MESSAGES, Fault, FaultPlan, Watch

# Ranges of TigerBeetle's simulator, whose tick is 10 ms: `options_swarm` in src/vopr.zig, read at commit 00020e24.
LOSE_PERCENT = 30  # packet loss 0-30 %
DUPLICATE_PERCENT = 50  # packet replay 0-50 %
DELAY_PERCENT = 2  # path clogged 0-2 %
CLOG_NS = 5 * S_NS  # for 0-500 ticks in the mean
COPY_NS = (30 * MS_NS, 100 * MS_NS)  # one-way delay 3-10 ticks in the mean: how far behind a copy comes
PARTITION_PERCENT = 3  # partition 0-3 %, in both directions or in one
PARTITION_NS = (S_NS, 2 * S_NS)  # which lasts 100-200 ticks at least
# The simulator has no counterpart of what follows; the ranges are ours. All rates of one event add up to 980 permille.
REORDER_PERCENT = 10
BRANCH_PERCENT, CANCEL_PERCENT, END_PERMILLE = 1, 1, 5
MOST_KILLS = 2


def swarm(seed: int, graph: StageGraph, *, heal_ns: int, budget: int = 1_000) -> FaultPlan:
    """Draw a plan: each kind of fault is in it with chance one half, at a rate or a time drawn from its range.

    A plan that has everything hides what only shows when something is absent (Groce et al. (2012), *Swarm Testing*,
    ISSTA), so the sets differ from seed to seed as well as the rates. Losses and copies are drawn for each kind of
    message. The plan always fits `graph`.

    Parameters
    ----------
    seed : int
        Also the seed of the plan's own draws.
    graph : StageGraph
    heal_ns : int, keyword-only
        End of the safety phase, ns from the start of the run; at least 1 ms. Kills, pauses, slow stages and clock steps
        fall before it.
    budget : int, keyword-only
        How often each fault by rate may act.

    Examples
    --------
    >>> from workbench.graph import preset
    >>> plan = swarm(3, preset("t1"), heal_ns=20 * S_NS)
    >>> plan == swarm(3, preset("t1"), heal_ns=20 * S_NS)
    True
    """
    within(heal_ns, MS_NS, MAX_TIME_NS, "heal_ns")
    rng = np.random.default_rng(seed)
    serving = [stage.name for stage in graph.stages if stage.name != CLIENT]
    joined = [name for stage in graph.stages for name in stage.join]
    faults: list[Fault] = []

    def number(low: int, high: int) -> int:
        return int(rng.integers(low, high + 1))

    def chosen(names: list[str]) -> str:
        return names[number(0, len(names) - 1)]

    def is_in() -> bool:
        return bool(number(0, 1))

    def moment() -> int:
        return number(0, heal_ns - 1)

    def span() -> int:
        return number(min(100 * MS_NS, heal_ns), min(2 * S_NS, heal_ns))

    for message in MESSAGES:
        if is_in() and (rate := number(0, LOSE_PERCENT) * 10):
            faults.append(Fault("lose", message=message, rate_permille=rate, budget=budget))
        if is_in() and (rate := number(0, DUPLICATE_PERCENT) * 10):
            later = number(*COPY_NS)
            faults.append(Fault("duplicate", message=message, rate_permille=rate, budget=budget, delay_ns=later))
    if is_in() and (rate := number(0, DELAY_PERCENT) * 10):
        faults.append(Fault("delay", rate_permille=rate, budget=budget, delay_ns=number(1, CLOG_NS)))
    if is_in() and (rate := number(0, REORDER_PERCENT) * 10):
        faults.append(Fault("reorder", rate_permille=rate, budget=budget, behind=number(1, 3)))
    if is_in() and (rate := number(0, PARTITION_PERCENT) * 10):
        edge, direction = chosen([each.name for each in graph.edges]), chosen(["forward", "backward", "both"])
        on, lasts = Watch("data", edge=edge), number(*PARTITION_NS)
        faults.append(
            Fault(
                "partition", edge=edge, direction=direction, on=on, rate_permille=rate, budget=budget, duration_ns=lasts
            )
        )
    if joined and is_in():
        rate = number(1, BRANCH_PERCENT * 10)
        faults.append(Fault("lost_branch", edge=chosen(joined), rate_permille=rate, budget=budget))
    if is_in():
        rate = number(1, CANCEL_PERCENT * 10)
        faults.append(Fault("cancel", on=Watch("data"), rate_permille=rate, budget=budget))
    if is_in():
        faults.append(Fault("deadline", on=Watch("data"), rate_permille=number(1, END_PERMILLE), budget=budget))
    if is_in():
        on, absent = Watch("data", stage=CLIENT), number(0, S_NS)
        rate = number(1, END_PERMILLE)
        faults.append(Fault("reconnect", on=on, rate_permille=rate, budget=budget, delay_ns=absent))
    if is_in():
        for _ in range(number(1, MOST_KILLS)):
            faults.append(Fault("kill", stage=chosen(serving), at_ns=moment(), duration_ns=span()))
    if is_in():
        faults.append(Fault("pause", stage=chosen([*serving, CLIENT]), at_ns=moment(), duration_ns=span()))
    if is_in():
        factor = number(1_001, 10_000)
        faults.append(Fault("slow", stage=chosen(serving), at_ns=moment(), factor_permille=factor, duration_ns=span()))
    if is_in():
        step = number(1, S_NS) * (1 if is_in() else -1)
        faults.append(Fault("clock_step", stage=chosen(serving), at_ns=moment(), step_ns=step))
    return FaultPlan(f"swarm-{seed}", seed, heal_ns, tuple(faults))
