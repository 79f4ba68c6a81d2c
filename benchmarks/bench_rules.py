"""What one rule costs where it runs: in a compiled loop, from a thread, and in the explorer.

Run from the top folder: python -m benchmarks.bench_rules. Three rules stand for all: a priority (score and choose over
32 candidates), a credit transition (reserve a chunk and return it) and a lifecycle transition (submit, cancel, drain,
close). Times are processor time per transition, best of five; with two threads, that of both over what both did.

What the numbers decided (two shared cores, Python 3.11, numba 0.68):

*   The replay engine runs the compiled form in compiled loops: 20 times sooner than Python for a priority, 70 for a
    lifecycle transition, 140 for a credit transition.
*   A compiled transition called from Python costs some 0.3 us more than in the loop, so it is sooner than Python too:
    the call does not eat the gain. Threads run the Python form all the same. A decision costs them 5 to 60 us, less
    than 1 % of a task of 10 ms; numba need not be there, and no start waits half a minute for the compiler; a list can
    be watched and a rule stepped through. A driver that decides among many candidates many thousand times per second
    should call `priority.choose` compiled: its answer is the same, and 32 candidates cost it 3 us instead of 58.
*   The explorer runs the compiled form for large worlds and the Python form for mutants: a mutant's machine code serves
    one search, and compiling its world (20 to 60 s) takes as long as searching 130,000 to 400,000 states in Python.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from workbench.control import credit, layout, ledger, lifecycle, priority
from workbench.control.effects import room
from workbench.control.layout import OUTCOME, PHASE, EdgePlan, Plan
from workbench.control.priorities import preset
from workbench.control.signals import FACT_RANGES, FACTS, INFORMATION, SIGNALS, build
from workbench.twin import Edit, twin
from workbench.verify.explorer import explore
from workbench.verify.outcome import Exploration
from workbench.verify.scenario import Scenario, bounded, chain

PRIORITY, CANDIDATES = "joint-repaired", 32
Step = Callable[..., int]


def candidates() -> list[int]:
    """Signals of 32 tasks, drawn once."""
    draw, row = random.Random(1), preset(PRIORITY)
    signals = [0] * (SIGNALS * CANDIDATES)
    for i in range(CANDIDATES):
        facts = [draw.randint(low, min(high, 10**6)) for _, low, high, _ in FACT_RANGES]
        assert len(facts) == FACTS
        build(facts, 0, INFORMATION.index(row.information), 10**6, signals, i * SIGNALS)
    return signals


def steps(rules: Callable[[str], Any]) -> dict[str, tuple[Step, list[Any]]]:
    """Three transitions, made of the rules that `rules` gives for a module, and their vectors as lists."""
    choose = rules("priority").choose
    fits, reserve, give_back = (getattr(rules("ledger"), name) for name in ("can_reserve", "reserve", "give_back"))
    learn, end = rules("credit").learn, rules("layout").sender
    submit, cancel, stopped = (getattr(rules("lifecycle"), name) for name in ("submit", "cancel", "stopped"))
    at = rules("layout").request

    def decide(spec, weights, signals, k):
        return choose(spec, weights, signals, 0, CANDIDATES, 1_000_000)

    def lend(g, m, k):
        if fits(g, m, 0, 0):
            reserve(g, m, 0, 0)
        learn(m, end(g, 0, 0), k, 4 * k, k + 1, 4 * k + 4)
        give_back(g, m, 0, 0, k, 4 * k)
        return m[0]

    def live(g, m, out, k):
        out[0] = 0
        submit(g, m, out, 1, -1, -1)
        cancel(g, m, out, 1)
        stopped(g, m, out, 1, 0, 0)
        stopped(g, m, out, 1, 1, 0)
        m[at(g, 1) + PHASE] = 0
        m[at(g, 1) + OUTCOME] = 0
        return out[0]

    plan = Plan(chain(2), 2, edges=dict.fromkeys(("s0>s1", "s1>client"), EdgePlan(4)))
    g, m, row = plan.configuration(), plan.memory(), preset(PRIORITY)
    ledger.admit(g, m, 0)
    return {
        f"choose among {CANDIDATES}": (decide, [list(row.spec), list(row.weights), candidates()]),
        "reserve and return a chunk": (lend, [g, m]),
        "submit, cancel, drain, close": (live, [g, list(m), [0] * room(g)]),
    }


def arrays(vectors: list[Any]) -> list[Any]:
    return [np.array(v, np.float64 if any(isinstance(x, float) for x in v) else np.int64) for v in vectors]


def copies(vectors: list[Any]) -> list[Any]:
    return [v.copy() for v in vectors]


def seconds_each(run: Callable[[int], object]) -> float:
    """Processor seconds of one transition: the best of five runs of at least 50 ms."""
    clock = time.process_time
    count = 100
    while True:
        began = clock()
        run(count)
        if clock() - began > 0.05:
            break
        count *= 4
    best = float("inf")
    for _ in range(5):
        began = clock()
        run(count)
        best = min(best, clock() - began)
    return best / count


def called(step: Step, vectors: list[Any]) -> Callable[[int], None]:
    """A Python loop around a transition, as a thread has it."""

    def run(count: int) -> None:
        mine = copies(vectors)
        for k in range(1, count + 1):
            step(*mine, k)

    return run


def two_threads(run: Callable[[int], None]) -> Callable[[int], None]:
    """Two threads that do half each, on memories of their own."""

    def both(count: int) -> None:
        threads = [threading.Thread(target=run, args=(count // 2,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return both


def in_loop(step: Step, vectors: list[Any]) -> Callable[[int], None]:
    """A compiled loop around a compiled transition."""
    if len(vectors) == 2:

        def loop(a, b, count):
            total = 0
            for k in range(1, count + 1):
                total += step(a, b, k)
            return total
    else:

        def loop(a, b, c, count):
            total = 0
            for k in range(1, count + 1):
                total += step(a, b, c, k)
            return total

    fast = numba.njit(nogil=True)(loop)
    fast(*copies(vectors), 1)
    return lambda count: fast(*copies(vectors), count)


def rules() -> None:
    plain = steps(
        {"priority": priority, "ledger": ledger, "credit": credit, "lifecycle": lifecycle, "layout": layout}.get
    )
    fast = steps(lambda name: twin(f"workbench.control.{name}"))
    head = ("compiled loop", "compiled call", "Python", "call, 2 threads", "Python, 2 threads")
    print(f"{'nanoseconds per transition':<30}" + "".join(f"{name:>18}" for name in head))
    for name, (step, vectors) in plain.items():
        compiled, flat = numba.njit(nogil=True)(fast[name][0]), arrays(vectors)
        compiled(*copies(flat), 1)
        loop = seconds_each(in_loop(compiled, flat))
        one, python = seconds_each(called(compiled, flat)), seconds_each(called(step, vectors))
        both, pair = (seconds_each(two_threads(run)) for run in (called(compiled, flat), called(step, vectors)))
        costs = (loop, one, python, both, pair)
        print(f"{name:<30}" + "".join(f"{1e9 * x:>18,.0f}" for x in costs))
        print(f"{'':<30}" + "".join(f"{x / loop:>17,.1f}x" for x in costs))


def explorer() -> None:
    scenario = Scenario(bounded(chain(2), 1, window=2), 2, {"cancel": 1, "lose-data": 1, "duplicate-data": 1})
    mutant = Edit("workbench.control.credit", "if taken > m[at + TAKEN_KNOWN]:", "if taken >= m[at + TAKEN_KNOWN]:")
    world = ("workbench.verify.world", *scenario.vectors())
    print(
        f"\n{'explorer':<30}{'states':>12}{'transitions':>13}{'states/s':>12}{'us/transition':>15}{'compiling s':>13}"
    )

    def show(what: str, found: Exploration) -> Exploration:
        rate, cost = found.states / found.cpu_seconds, 1e6 * found.cpu_seconds / found.transitions
        print(
            f"{what:<30}{found.states:>12,}{found.transitions:>13,}{rate:>12,.0f}{cost:>15.2f}"
            f"{found.compile_seconds:>13.1f}"
        )
        assert found.verdict == "holds", found
        return found

    plain = show("Python", explore(*world, compiled=False))
    explore(*world)
    show("compiled, code kept on disk", explore(*world))
    began = time.process_time()
    changed = show("compiled, a mutant", explore(*world, edits=[mutant]))
    compiling = time.process_time() - began - changed.cpu_seconds
    even = compiling * plain.states / plain.cpu_seconds
    print(f"compiling a mutant takes {compiling:.0f} s of processor time: worth it beyond some {even:,.0f} states")


def main() -> None:
    rules()
    explorer()


if __name__ == "__main__":
    main()
