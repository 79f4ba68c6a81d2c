"""The life of a request and of a chunk, as transitions that an exhaustive survey of small worlds has seen.

Nothing here says which transitions exist: a state is read off the memory of the machine, an edge is a pair of states
before and after one action, and its label is what that action was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import polars as pl

from workbench.control.layout import (
    CLIENT_EPOCH,
    EDGES,
    FROM,
    OUTCOME,
    PHASE,
    READY,
    RECEIVED,
    REQUESTS,
    RESERVED,
    RETURNED,
    RUNNING,
    SENT,
    STAGE_EPOCH,
    STAGES,
    STATUS,
    TAKEN,
    THEN,
    TO,
    account,
    client,
    edge_row,
    receiver,
    request,
    sender,
    stage,
)
from workbench.control.phases import AGAIN, DRAINING, OPEN, PHASES, RUNNING_PHASE, STOPPING
from workbench.schema.enums import OUTCOME_STATUS
from workbench.verify import wires
from workbench.verify.scenario import FAULTS, Scenario, bounded, chain
from workbench.verify.survey import transitions

# What the machine and its messages do, in a few words; what the environment does is named as in a scenario.
WORDS = {
    wires.SUBMIT: "submit",
    wires.ASK_AGAIN: "room again",
    wires.CONTROL: "start or stop arrives",
    wires.REPLY: "all stages have stopped",
    wires.DATA: "chunk arrives",
    wires.CREDIT: "credit arrives",
    wires.RESERVE: "reserve",
    wires.LAUNCH: "launch",
    wires.FINISH: "launch ends",
    wires.NOTICE_ARRIVES: "client is told",
    wires.CANCEL_ARRIVES: "cancel arrives",
    wires.RESEND: "timer: send again",
    wires.REFRESH: "timer: credit again",
    wires.START_AGAIN: "timer: start again",
    wires.STOP_AGAIN: "timer: stop again",
    wires.DETECT: "dead worker is noticed",
} | {action: name for name, action in FAULTS.items()}
WORDS[wires.EXPIRE] = "deadline"
WORDS[wires.FAIL] = "launch fails"

# Where a drawing puts the states: column and row.
REQUEST_PLACES = {
    "new": (0.0, 0.0), "waiting": (-1.2, 0.9), "running": (0.0, 2.0), "draining": (0.0, 3.6), "closed": (0.0, 5.0),
}  # fmt: skip
CHUNK_PLACES = {
    "not begun": (0.0, 0.0), "reserved": (0.0, 0.8), "being made": (0.0, 1.6), "under way": (0.0, 2.6),
    "lost": (-0.95, 2.6), "in the inbox": (0.0, 3.5), "taken over": (0.0, 4.3), "credit is back": (0.0, 5.2),
    "in the drain": (1.25, 4.3), "reclaimed": (1.25, 5.2),
}  # fmt: skip
CHUNK_STATES = (
    "not begun", "reserved", "being made", "under way", "lost", "in the inbox", "taken over", "credit is back",
    "in the drain", "reclaimed",
)  # fmt: skip
NOT_BEGUN, RESERVED_STATE, MADE, UNDER_WAY, LOST, INBOX, TAKEN_OVER, BACK, IN_DRAIN, RECLAIMED = range(10)


def request_worlds() -> tuple[Scenario, ...]:
    """Worlds in which a request meets everything that can end it: two at once, one of them waits, one is rejected."""
    graph = chain(1)
    tight = bounded(graph, 2, total_bytes=1)
    return (
        Scenario(tight, 1, {"cancel": 1, "deadline": 1}),
        Scenario(bounded(graph, 2, total_bytes=1, waiting=0), 1),
        Scenario(bounded(graph, 1), 1, {"kill": 2, "fail": 1}),
        Scenario(bounded(chain(2), 1), 1, {"kill": 1}),
    )


def chunk_worlds() -> tuple[Scenario, ...]:
    """Worlds in which a chunk meets every fate: a loss, a repeat, a cancel."""
    plan = bounded(chain(2), 1, window=2, spare_bytes=2)
    return (
        Scenario(plan, 2, {"lose-data": 1, "duplicate-data": 1}),
        Scenario(plan, 1, {"cancel": 1, "lose-data": 1}),
    )


def request_life(worlds: Sequence[Scenario]) -> pl.DataFrame:
    """Transitions between the phases of a request.

    Returns
    -------
    polars.DataFrame
        ``source``, ``target`` (phases), ``label`` (what happened, and the outcome written by it), ``cause``
        ("machine", or "environment" for faults and clients), ``transitions`` (steps of the survey that were this one).
    """
    seen: Counter[tuple[str, str, str, int]] = Counter()
    for g, before, action, after in _steps(worlds):
        for r in range(g[REQUESTS]):
            at = request(g, r)
            if before[at + PHASE] == after[at + PHASE]:
                continue
            label = WORDS[action]
            if before[at + OUTCOME] == 0 and after[at + OUTCOME] != 0:
                label += f": {OUTCOME_STATUS[after[at + OUTCOME] - 1]}"
            elif after[at + PHASE] == DRAINING and after[at + THEN] == AGAIN:
                label += ": next attempt"
            seen[PHASES[before[at + PHASE]], PHASES[after[at + PHASE]], label, action] += 1
    return _frame(seen)


def chunk_life(worlds: Sequence[Scenario]) -> pl.DataFrame:
    """Transitions between the states of a chunk (`CHUNK_STATES`); columns as `request_life`."""
    seen: Counter[tuple[str, str, str, int]] = Counter()
    for g, before, action, after in _steps(worlds):
        for e in range(g[EDGES]):
            for seq in range(wires.config(g, wires.CHUNKS)):
                old, new = (chunk_state(g, m, 0, e, seq) for m in (before, after))
                if old != new:
                    seen[CHUNK_STATES[old], CHUNK_STATES[new], WORDS[action], action] += 1
    return _frame(seen)


def chunk_state(g: list[int], m: list[int], r: int, e: int, seq: int) -> int:
    """State of chunk `seq` of (`r`, `e`) in the present attempt, read off both ends, the wire and the ledger."""
    phase, book = m[request(g, r) + PHASE], account(g, r, e)
    if m[book + RESERVED] <= seq:
        return NOT_BEGUN
    if phase == DRAINING:
        return BACK if m[book + RETURNED] > seq else IN_DRAIN
    if phase != RUNNING_PHASE:
        return RECLAIMED
    if m[book + RETURNED] > seq:
        return BACK
    u, v = g[edge_row(g, e) + FROM], g[edge_row(g, e) + TO]
    at = stage(g, r, u)
    epoch = m[at + STAGE_EPOCH]
    there = receiver(g, r, e)
    if v == g[STAGES]:
        open_there = m[client(g, r) + CLIENT_EPOCH] == epoch
    else:
        own = stage(g, r, v)
        open_there = m[own + STATUS] in (OPEN, STOPPING) and m[own + STAGE_EPOCH] == epoch
    if open_there:
        if m[there + TAKEN] > seq:
            return TAKEN_OVER
        if m[there + RECEIVED] > seq:
            return INBOX
    wire = wires.data_wire(g, r, e)
    if any(
        m[wire + i] == 1 + epoch * wires.config(g, wires.CHUNKS) + seq for i in range(wires.config(g, wires.DATA_ROOM))
    ):
        return UNDER_WAY
    if m[sender(g, r, e) + SENT] > seq:
        return LOST
    if m[at + READY] == 1:
        return RESERVED_STATE
    return MADE if m[at + RUNNING] == 1 else LOST


def _steps(worlds: Sequence[Scenario]) -> Iterator[tuple[list[int], list[int], int, list[int]]]:
    for scenario in worlds:
        g, m0 = scenario.vectors()
        for step in transitions(g, m0):
            yield g, list(step.before), wires.action_of(g, step.action), list(step.after)


def _frame(seen: Counter[tuple[str, str, str, int]]) -> pl.DataFrame:
    rows: list[dict[str, object]] = [
        {"source": source, "target": target, "label": label}
        | {"cause": "environment" if action >= wires.EXPIRE else "machine", "transitions": count}
        for (source, target, label, action), count in seen.items()
    ]
    return pl.DataFrame(rows).sort("source", "target", "label")
