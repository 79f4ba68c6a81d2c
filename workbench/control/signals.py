"""What a scheduling rule may know about a candidate task.

Two flat records of integers, each a stretch of a vector from an address: *facts* are what replay engine or testbed
knows, sizes twice, as estimated from the past and as they truly are; *signals* are what `build` lets through at an
information class, relative to the present. The first fields of both are the same.

The clairvoyant class knows arrivals to come as well; no signal of one task can carry them, so only oracles use it.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.control.ranges import MAX_CHUNKS, MAX_EDGES, MAX_TIME_NS, UNBOUNDED, within
from workbench.errors import UsageError
from workbench.twin import Vector, rule
from workbench.units import S_NS

# Information classes, each including those before it; the position is the code.
INFORMATION = ("blind", "class-statistics", "predicted", "true-sizes", "clairvoyant")
BLIND, CLASS_STATISTICS, PREDICTED, TRUE_SIZES, CLAIRVOYANT = range(len(INFORMATION))

UNKNOWN = -1

# Fields that facts and signals share.
SHARED = 10
REQUEST, ORDER, TASK, ATTAINED, WEIGHT, FIRST, OWN_CHUNKS, DOWN_CHUNKS, CREDIT_USED, CREDIT_LIMIT = range(SHARED)

# Facts alone. Sizes stand in one order: estimated from MEAN on, true from TRUE on.
ARRIVAL_AT, READY_AT, DEADLINE_AT, CLASS_MEAN, FACTOR = range(SHARED, SHARED + 5)
SIZES = 6
MEAN = SHARED + 5
TRUE = MEAN + SIZES
FACTS = TRUE + SIZES

# Signals alone: six sizes in the order of the facts, then times relative to the present.
PATH, WORK, SIBLING, SERVICE, FAN_OUT, DOWN_WORK = range(SHARED, SHARED + SIZES)
CLASS_PATH, AGE, WAIT, TIME_LEFT, BUDGET, SLACK = range(SHARED + SIZES, SHARED + SIZES + 6)
SIGNALS = SHARED + SIZES + 6


@dataclass(frozen=True, slots=True)
class Entry:
    """One field of a record for readers: its name, unit, least information class, value when unknown, and meaning."""

    name: str
    unit: str
    information: int
    unknown: str
    doc: str


SIGNAL_TABLE = (
    Entry("request", "id", BLIND, "never", "the request; tasks of one request are siblings"),
    Entry("order", "rank", BLIND, "never", "place of the request in order of scheduled arrival; unique per request"),
    Entry("task", "id", BLIND, "never", "the task; unique among candidates, smaller for earlier chunks of a stream"),
    Entry("attained", "ns", BLIND, "-1", "service that the request has received at all stages: B_r"),
    Entry("weight", "thousandths", BLIND, "-1", "share of the tenant; 1000 is neutral"),
    Entry("first", "0 or 1", BLIND, "-1", "1 while the task leads to the first consumable output, 0 in steady state"),
    Entry("own_chunks", "tasks", BLIND, "-1", "ready tasks in the queue that the candidate stands in"),
    Entry("down_chunks", "chunks", BLIND, "-1", "chunks that wait at the next stage: Q_down as a count"),
    Entry("credit_used", "bytes", BLIND, "-1", "credit of the out-edge in use (chunks, if the window counts chunks)"),
    Entry("credit_limit", "bytes", BLIND, "-1", "limit of the out-edge, same unit as its use; 2^61 = no limit"),
    Entry("path", "ns", CLASS_STATISTICS, "-1", "longest chain of work that the request still needs: L_r"),
    Entry("work", "ns", CLASS_STATISTICS, "-1", "sum of the work that the request still needs"),
    Entry("sibling", "ns", CLASS_STATISTICS, "-1", "longest chain from the start of this very task to the end"),
    Entry("service", "ns", CLASS_STATISTICS, "-1", "service of this task at this stage, alone"),
    Entry("fan_out", "tasks", CLASS_STATISTICS, "-1", "tasks of the request that need this one, directly or not"),
    Entry("down_work", "ns", CLASS_STATISTICS, "-1", "work that waits at the next stage: Q_down as time"),
    Entry("class_path", "ns", CLASS_STATISTICS, "-1", "mean whole path of the request's class, from the past"),
    Entry("age", "ns", BLIND, "never", "time since the scheduled arrival of the request; 0 before it"),
    Entry("wait", "ns", BLIND, "-1", "time since the task became ready at this stage"),
    Entry("time_left", "ns, signed", BLIND, "2^61", "deadline minus now; 2^61 = no deadline"),
    Entry("budget", "ns", BLIND, "-1", "deadline minus scheduled arrival: D; -1 = no deadline"),
    Entry("slack", "ns, signed", CLASS_STATISTICS, "2^61", "deadline minus now minus path; 2^61 = one is unknown"),
)


@rule
def sized(information: int, mean: int, true: int, factor: int) -> int:
    """A size as an information class may see it.

    Parameters
    ----------
    information : int
        Code of the class.
    mean, true : int
        The size estimated from the past and as it is; `UNKNOWN` where it is not known.
    factor : int
        Prediction error in thousandths of the true size (1000 = exact); drawn by the caller, for example
        ``round(1000 * exp(normal(0, sigma)))`` for a lognormal error, once per request.

    Returns
    -------
    int
        `UNKNOWN` below class statistics; a predicted size never above `MAX_TIME_NS`.
    """
    if information < CLASS_STATISTICS:
        return UNKNOWN
    if information == CLASS_STATISTICS or true < 0:
        return mean
    if information > PREDICTED or factor < 0:
        return true
    if true // 1000 >= MAX_TIME_NS // (factor + 1):
        return MAX_TIME_NS
    return true // 1000 * factor + true % 1000 * factor // 1000


@rule
def scale_ns(information: int, mean_path_ns: int) -> int:
    """The unit of time of a decision, common to all its candidates: mean whole path of past requests, at least 1 ns.

    Blind rules get one second. A unit per candidate would let one class age faster than another, and the bound on
    overtaking would be gone.
    """
    if information < CLASS_STATISTICS or mean_path_ns < 0:
        return S_NS
    if mean_path_ns < 1:
        return 1
    return mean_path_ns


@rule
def build(facts: Vector, f: int, information: int, now_ns: int, signals: Vector, s: int) -> None:
    """Write the signals of one task: what `information` allows and nothing else.

    Parameters
    ----------
    facts : int vector
        Holds the task's facts from address `f`, within the ranges of `record`.
    information : int
        Code of the class. What it does not cover is written as unknown.
    now_ns : int
        The present, on the clock of the facts.
    signals : int vector
        Receives the signals from address `s`.
    """
    for field in range(SHARED):
        signals[s + field] = facts[f + field]
    factor = facts[f + FACTOR]
    for size in range(SIZES):
        # An error of a request's own size says nothing on the queue behind it or on its number of tasks.
        error = factor if size < FAN_OUT - PATH else UNKNOWN
        true = facts[f + TRUE + size]
        if error < 0 and information == PREDICTED:
            true = UNKNOWN
        signals[s + PATH + size] = sized(information, facts[f + MEAN + size], true, error)
    signals[s + CLASS_PATH] = facts[f + CLASS_MEAN] if information >= CLASS_STATISTICS else UNKNOWN
    arrival = facts[f + ARRIVAL_AT]
    ready = facts[f + READY_AT]
    deadline = facts[f + DEADLINE_AT]
    signals[s + AGE] = now_ns - arrival if now_ns > arrival else 0
    signals[s + WAIT] = UNKNOWN if ready < 0 else (now_ns - ready if now_ns > ready else 0)
    signals[s + TIME_LEFT] = UNBOUNDED
    signals[s + BUDGET] = UNKNOWN
    signals[s + SLACK] = UNBOUNDED
    if deadline >= 0:
        signals[s + TIME_LEFT] = deadline - now_ns
        signals[s + BUDGET] = deadline - arrival if deadline > arrival else 0
        if signals[s + PATH] >= 0:
            signals[s + SLACK] = deadline - now_ns - signals[s + PATH]


_COUNT = MAX_CHUNKS * MAX_EDGES
_SIZE_NAMES = ("path_ns", "work_ns", "sibling_ns", "service_ns", "fan_out", "down_work_ns")
_SIZE_HIGH = (MAX_TIME_NS, MAX_TIME_NS, MAX_TIME_NS, MAX_TIME_NS, _COUNT, MAX_TIME_NS)
# Name, least value, greatest value, default (None = must be given), in the order of the record.
FACT_RANGES: tuple[tuple[str, int, int, int | None], ...] = (
    ("request", 0, MAX_TIME_NS, None),
    ("order", 0, MAX_TIME_NS, None),
    ("task", 0, MAX_TIME_NS, 0),
    ("attained_ns", UNKNOWN, MAX_TIME_NS, UNKNOWN),
    ("weight", UNKNOWN, 1_000_000_000, UNKNOWN),
    ("first", UNKNOWN, 1, UNKNOWN),
    ("own_chunks", UNKNOWN, _COUNT, UNKNOWN),
    ("down_chunks", UNKNOWN, _COUNT, UNKNOWN),
    ("credit_used", UNKNOWN, UNBOUNDED, UNKNOWN),
    ("credit_limit", UNKNOWN, UNBOUNDED, UNKNOWN),
    ("arrival_ns", 0, MAX_TIME_NS, None),
    ("ready_ns", UNKNOWN, MAX_TIME_NS, UNKNOWN),
    ("deadline_ns", UNKNOWN, MAX_TIME_NS, UNKNOWN),
    ("class_path_ns", UNKNOWN, MAX_TIME_NS, UNKNOWN),
    ("factor", UNKNOWN, 1_000_000, UNKNOWN),
    *((name, UNKNOWN, high, UNKNOWN) for name, high in zip(_SIZE_NAMES, _SIZE_HIGH, strict=True)),
    *((f"true_{name}", UNKNOWN, high, UNKNOWN) for name, high in zip(_SIZE_NAMES, _SIZE_HIGH, strict=True)),
)


def record(**given: int) -> list[int]:
    """The facts of one task as a record, checked; what is not given is unknown.

    Names and ranges stand in `FACT_RANGES`: absolute times as ``arrival_ns``, ``ready_ns``, ``deadline_ns``, sizes
    estimated from the past as ``path_ns`` and so on, true sizes as ``true_path_ns`` and so on.

    Raises
    ------
    UsageError
        An unknown name, a missing ``request``, ``order`` or ``arrival_ns``, or a value outside its range.

    Examples
    --------
    >>> facts = record(request=7, order=0, arrival_ns=0, path_ns=400, true_path_ns=900)
    >>> signals = [0] * SIGNALS
    >>> build(facts, 0, CLASS_STATISTICS, 1_000, signals, 0)
    >>> signals[AGE], signals[PATH], signals[SLACK] == UNBOUNDED
    (1000, 400, True)
    """
    names = [name for name, *_ in FACT_RANGES]
    for name in given:
        if name not in names:
            raise UsageError(f"facts among {names}", repr(name), where="facts of a task")
    facts = []
    for name, low, high, default in FACT_RANGES:
        if (value := given.get(name, default)) is None:
            raise UsageError(f"fact {name!r}", "none", where="facts of a task")
        facts.append(within(value, low, high, f"fact {name!r}"))
    return facts
