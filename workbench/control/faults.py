"""Faults as decisions: does a fault act on this event, which one, and until when.

A plan of faults (`workbench.workload.fault_plan`) becomes one flat vector, the *table*; an engine keeps a second one,
the *counters*, and asks at every event. Time and random draws come from the caller, so that equal events and equal
draws give equal faults in every engine. Nothing acts at or after ``table[HEAL_NS]``: whatever is open ends there.

table : ``[HEAL_NS, ROWS]``, then from ``FIRST`` on ``FAULT_WIDTH`` fields per row, in the order of the plan
    ``FAULT_KIND`` (position in `workbench.schema.enums.FAULT`); target ``FAULT_MESSAGES`` (bit set of message kinds),
    ``FAULT_STAGE``, ``FAULT_REPLICA``, ``FAULT_EDGE``, ``FAULT_DIRECTION`` (0 along the edge, 1 against it); selector
    ``FAULT_CLASS``, ``FAULT_TENANT``, ``FAULT_REQUEST``; ``FAULT_TRIGGER`` and its ``FAULT_VALUE`` (AT: ns from the
    start; NTH: count, from 1; RATE: permille); what is counted, ``FAULT_EVENTS`` (bit set of event kinds) at
    ``FAULT_ON_STAGE`` / ``FAULT_ON_EDGE``; ``FAULT_BUDGET`` (how often it may act); ``FAULT_PARAMETER`` (see the plan;
    0 = none); ``FAULT_DURATION`` (ns; UNBOUNDED = to the heal; 0 = acts at once and is over). ANY (-1) in a target,
    selector or place restricts nothing.
counters : ``COUNT_WIDTH`` fields per row, all 0 at the start
    ``COUNT_SEEN`` events counted, ``COUNT_SPENT`` times it acted, ``COUNT_UNTIL`` end of its interval in ns.
event : ``EVENT_WIDTH`` fields
    ``EVENT_KIND`` (position in `workbench.schema.enums.FAULT_EVENT`), ``EVENT_EDGE`` (ANY for ``admit`` and ``start``),
    ``EVENT_DIRECTION`` (ANY for what is no message), ``EVENT_SOURCE`` / ``EVENT_TARGET`` (ends of the edge, not of the
    message; for ``admit``, ``start`` and ``take`` both are the stage where it happens) with the replica of each (ANY =
    not known), class, tenant and request of the event, ``EVENT_NOW`` in ns from the start of the run.
out : ``EFFECT_WIDTH`` fields per effect, room for one effect per row
    Kind and row of the fault, the target stage, replica and edge, the request (ANY = none), the parameter, and the end
    of its interval in ns (0 = none).
"""

from __future__ import annotations

from workbench.control.ranges import UNBOUNDED
from workbench.twin import Vector, rule

(KILL, LOSE, DELAY, DUPLICATE, REORDER, PARTITION, HEAL, PAUSE, RESUME) = range(9)
(LOST_BRANCH, CANCEL, DEADLINE, CLOCK_STEP, SLOW, RECONNECT) = range(9, 15)
DATA, ACK, CREDIT, CONTROL, ADMIT, START, TAKE = range(7)
AT, NTH, RATE = range(3)
ANY = -1

HEAL_NS, ROWS, FIRST = range(3)
(FAULT_KIND, FAULT_MESSAGES, FAULT_STAGE, FAULT_REPLICA, FAULT_EDGE, FAULT_DIRECTION) = range(6)
(FAULT_CLASS, FAULT_TENANT, FAULT_REQUEST, FAULT_TRIGGER, FAULT_VALUE, FAULT_EVENTS) = range(6, 12)
(FAULT_ON_STAGE, FAULT_ON_EDGE, FAULT_BUDGET, FAULT_PARAMETER, FAULT_DURATION, FAULT_WIDTH) = range(12, 18)
COUNT_SEEN, COUNT_SPENT, COUNT_UNTIL, COUNT_WIDTH = range(4)
(EVENT_KIND, EVENT_EDGE, EVENT_DIRECTION, EVENT_SOURCE, EVENT_SOURCE_REPLICA, EVENT_TARGET) = range(6)
(EVENT_TARGET_REPLICA, EVENT_CLASS, EVENT_TENANT, EVENT_REQUEST, EVENT_NOW, EVENT_WIDTH) = range(6, 12)
(EFFECT_KIND, EFFECT_ROW, EFFECT_STAGE, EFFECT_REPLICA, EFFECT_EDGE, EFFECT_REQUEST) = range(6)
EFFECT_PARAMETER, EFFECT_UNTIL, EFFECT_WIDTH = range(6, 9)


@rule
def fate_rank(kind: int) -> int:
    """Strength of what can happen to one message, larger wins; 0 for a fault that is not the fate of a message."""
    if kind == LOST_BRANCH:
        return 5
    if kind == LOSE:
        return 4
    if kind == REORDER:
        return 3
    if kind == DELAY:
        return 2
    if kind == DUPLICATE:
        return 1
    return 0


@rule
def _agrees(wanted: int, found: int) -> int:
    """1 when a field of a row restricts nothing or names what is found."""
    return 1 if wanted in (ANY, found) else 0


@rule
def _selects(table: Vector, row: int, event: Vector) -> int:
    """1 when class, tenant and request of the event are those that the row wants."""
    if _agrees(table[row + FAULT_CLASS], event[EVENT_CLASS]) == 0:
        return 0
    if _agrees(table[row + FAULT_TENANT], event[EVENT_TENANT]) == 0:
        return 0
    return _agrees(table[row + FAULT_REQUEST], event[EVENT_REQUEST])


@rule
def _touches(stage: int, replica: int, event: Vector) -> int:
    """1 when the stage (and replica) is an end of the event's edge, or the stage of the event, or ANY."""
    if stage == ANY:
        return 1
    if stage == event[EVENT_SOURCE] and _agrees(replica, event[EVENT_SOURCE_REPLICA]) == 1:
        return 1
    if stage == event[EVENT_TARGET] and _agrees(replica, event[EVENT_TARGET_REPLICA]) == 1:
        return 1
    return 0


@rule
def _counts(table: Vector, row: int, event: Vector) -> int:
    """1 when the row counts this event. A fault of messages counts the very messages that it can act on."""
    if (table[row + FAULT_EVENTS] >> event[EVENT_KIND]) & 1 == 0:
        return 0
    if _agrees(table[row + FAULT_ON_EDGE], event[EVENT_EDGE]) == 0:
        return 0
    replica = ANY
    if fate_rank(table[row + FAULT_KIND]) > 0:
        replica = table[row + FAULT_REPLICA]
        if _agrees(table[row + FAULT_DIRECTION], event[EVENT_DIRECTION]) == 0:
            return 0
    if _touches(table[row + FAULT_ON_STAGE], replica, event) == 0:
        return 0
    return _selects(table, row, event)


@rule
def covers(table: Vector, row: int, event: Vector) -> int:
    """1 when an interval of this row, if open, bears on this event. A dead replica is dead for every request."""
    kind = table[row + FAULT_KIND]
    if kind != KILL and _selects(table, row, event) == 0:
        return 0
    if kind == PARTITION:
        if event[EVENT_KIND] > CONTROL or (table[row + FAULT_MESSAGES] >> event[EVENT_KIND]) & 1 == 0:
            return 0
        if _agrees(table[row + FAULT_DIRECTION], event[EVENT_DIRECTION]) == 0:
            return 0
    if _agrees(table[row + FAULT_EDGE], event[EVENT_EDGE]) == 0:
        return 0
    return _touches(table[row + FAULT_STAGE], table[row + FAULT_REPLICA], event)


@rule
def open_until(table: Vector, counters: Vector, kind: int, event: Vector) -> int:
    """Time in ns at which the last open interval of `kind` that bears on the event ends; 0 when none is open.

    Ask for KILL (is the replica down), PAUSE (may the consumer not take over) and PARTITION (is the message lost).
    """
    latest = 0
    for i in range(table[ROWS]):
        row = FIRST + i * FAULT_WIDTH
        until = counters[i * COUNT_WIDTH + COUNT_UNTIL]
        if table[row + FAULT_KIND] == kind and until > event[EVENT_NOW] and covers(table, row, event) == 1:
            latest = max(latest, until)
    return latest


@rule
def slowdown(table: Vector, counters: Vector, event: Vector) -> int:
    """Service time of the event's stage in permille of its own: the largest open factor; 1000 when none is open."""
    factor = 1000
    for i in range(table[ROWS]):
        row = FIRST + i * FAULT_WIDTH
        is_open = counters[i * COUNT_WIDTH + COUNT_UNTIL] > event[EVENT_NOW]
        if table[row + FAULT_KIND] == SLOW and is_open and covers(table, row, event) == 1:
            factor = max(factor, table[row + FAULT_PARAMETER])
    return factor


@rule
def _ends(table: Vector, closer: int, row: int) -> int:
    """1 when a heal or resume covers a whole partition or pause: each of its fields is ANY or the same."""
    if table[closer + FAULT_KIND] == HEAL and table[row + FAULT_KIND] != PARTITION:
        return 0
    if table[closer + FAULT_KIND] == RESUME and table[row + FAULT_KIND] != PAUSE:
        return 0
    for field in range(FAULT_STAGE, FAULT_TRIGGER):
        if _agrees(table[closer + field], table[row + field]) == 0:
            return 0
    return 1


@rule
def _act(table: Vector, counters: Vector, i: int, start_ns: int, request: int, out: Vector, found: int) -> int:
    """Spend one act of row `i` that begins at `start_ns`, open or end intervals, write the effect; effects so far."""
    row, count = FIRST + i * FAULT_WIDTH, i * COUNT_WIDTH
    counters[count + COUNT_SPENT] += 1
    until = 0
    if table[row + FAULT_DURATION] > 0:
        until = min(start_ns + table[row + FAULT_DURATION], table[HEAL_NS])
        counters[count + COUNT_UNTIL] = until
    if table[row + FAULT_KIND] == HEAL or table[row + FAULT_KIND] == RESUME:
        for j in range(table[ROWS]):
            if _ends(table, row, FIRST + j * FAULT_WIDTH) == 1:
                end = j * COUNT_WIDTH + COUNT_UNTIL
                counters[end] = min(counters[end], start_ns)
    effect = found * EFFECT_WIDTH
    out[effect + EFFECT_KIND] = table[row + FAULT_KIND]
    out[effect + EFFECT_ROW] = i
    out[effect + EFFECT_STAGE] = table[row + FAULT_STAGE]
    out[effect + EFFECT_REPLICA] = table[row + FAULT_REPLICA]
    out[effect + EFFECT_EDGE] = table[row + FAULT_EDGE]
    out[effect + EFFECT_REQUEST] = request
    out[effect + EFFECT_PARAMETER] = table[row + FAULT_PARAMETER]
    out[effect + EFFECT_UNTIL] = until
    return found + 1


@rule
def strikes(table: Vector, counters: Vector, event: Vector, draw: int, out: Vector) -> int:
    """Faults that act on an event, written to `out`; returns their number.

    Order: first what changes the state of the system (kill, partition, heal, pause, ...), in the order of the plan;
    then, for a message, at most one fate: lost in an open partition, else the strongest due of lost_branch, lose,
    reorder, delay, duplicate (equal ones: the first of the plan). A row whose fault was outranked spends nothing, and
    one triggered by count is due again at the next event that it counts. An interval that is open is not opened again.

    `draw` is a uniform integer in 0..999, one per event. Rows by rate that count the event own adjoining ranges of it,
    in the order of the plan, whether their budget is spent or not; so at most one of them acts on an event, each with
    exactly its rate, and none depends on the budget of another.
    """
    now = event[EVENT_NOW]
    if now >= table[HEAL_NS]:
        return 0
    found, fate, taken = 0, ANY, 0
    for i in range(table[ROWS]):
        row, count = FIRST + i * FAULT_WIDTH, i * COUNT_WIDTH
        if _counts(table, row, event) == 0:
            continue
        counters[count + COUNT_SEEN] += 1
        value = table[row + FAULT_VALUE]
        if table[row + FAULT_TRIGGER] == RATE:
            is_due = taken <= draw and draw < taken + value
            taken += value
        elif table[row + FAULT_TRIGGER] == NTH:
            is_due = counters[count + COUNT_SEEN] >= value
        else:
            is_due = now >= value
        if not is_due or counters[count + COUNT_SPENT] >= table[row + FAULT_BUDGET]:
            continue
        rank = fate_rank(table[row + FAULT_KIND])
        if rank > 0:
            if fate == ANY or rank > fate_rank(table[FIRST + fate * FAULT_WIDTH + FAULT_KIND]):
                fate = i
        elif counters[count + COUNT_UNTIL] <= now:
            found = _act(table, counters, i, now, event[EVENT_REQUEST], out, found)
    if event[EVENT_KIND] <= CONTROL:
        if open_until(table, counters, PARTITION, event) > now:
            return _cut(table, counters, event, out, found)
        if fate != ANY:
            found = _act(table, counters, fate, now, event[EVENT_REQUEST], out, found)
    return found


@rule
def _cut(table: Vector, counters: Vector, event: Vector, out: Vector, found: int) -> int:
    """Write the loss of a message in the first open partition that bears on it; spends nothing."""
    for i in range(table[ROWS]):
        row = FIRST + i * FAULT_WIDTH
        until = counters[i * COUNT_WIDTH + COUNT_UNTIL]
        if table[row + FAULT_KIND] == PARTITION and until > event[EVENT_NOW] and covers(table, row, event) == 1:
            effect = found * EFFECT_WIDTH
            out[effect + EFFECT_KIND] = LOSE
            out[effect + EFFECT_ROW] = i
            out[effect + EFFECT_STAGE] = table[row + FAULT_STAGE]
            out[effect + EFFECT_REPLICA] = table[row + FAULT_REPLICA]
            out[effect + EFFECT_EDGE] = event[EVENT_EDGE]
            out[effect + EFFECT_REQUEST] = event[EVENT_REQUEST]
            out[effect + EFFECT_PARAMETER] = 0
            out[effect + EFFECT_UNTIL] = until
            return found + 1
    return found


@rule
def _is_timed(table: Vector, counters: Vector, i: int) -> int:
    """1 when row `i` acts at a time of its own and has not acted; faults of messages wait for a message instead."""
    row = FIRST + i * FAULT_WIDTH
    if table[row + FAULT_TRIGGER] != AT or table[row + FAULT_EVENTS] != 0:
        return 0
    return 1 if counters[i * COUNT_WIDTH + COUNT_SPENT] < table[row + FAULT_BUDGET] else 0


@rule
def due(table: Vector, counters: Vector, now: int, out: Vector) -> int:
    """Faults whose time has come, written to `out` by time and then in the order of the plan; returns their number.

    An interval starts at the time of the plan, not at that of the call, so that a late call does not lengthen it.
    """
    if now >= table[HEAL_NS]:
        return 0
    found = 0
    while True:
        first, when = ANY, 0
        for i in range(table[ROWS]):
            at_ns = table[FIRST + i * FAULT_WIDTH + FAULT_VALUE]
            if _is_timed(table, counters, i) == 1 and at_ns <= now and (first == ANY or at_ns < when):
                first, when = i, at_ns
        if first == ANY:
            return found
        request = table[FIRST + first * FAULT_WIDTH + FAULT_REQUEST]
        found = _act(table, counters, first, when, request, out, found)


@rule
def next_ns(table: Vector, counters: Vector, now: int) -> int:
    """Next time in ns, after `now`, at which `due` has something to say or an interval ends; UNBOUNDED when none."""
    nearest = UNBOUNDED
    for i in range(table[ROWS]):
        at_ns = table[FIRST + i * FAULT_WIDTH + FAULT_VALUE]
        if _is_timed(table, counters, i) == 1 and at_ns > now:
            nearest = min(nearest, at_ns)
        until = counters[i * COUNT_WIDTH + COUNT_UNTIL]
        if until > now:
            nearest = min(nearest, until)
    return nearest
