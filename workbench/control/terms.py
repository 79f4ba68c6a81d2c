"""The numbers that priorities weigh: ratios and a few raw quantities made of the signals of a task.

A ratio has no unit, so that a weight means the same in a run of milliseconds and in one of minutes. The three `raw`
terms and the counts are there because rules that use them must be testable as they are written.
"""

from __future__ import annotations

from workbench.control.ranges import UNBOUNDED, clip
from workbench.control.signals import (
    ATTAINED,
    BLIND,
    BUDGET,
    CLASS_PATH,
    CLASS_STATISTICS,
    CREDIT_LIMIT,
    CREDIT_USED,
    DOWN_CHUNKS,
    DOWN_WORK,
    FAN_OUT,
    FIRST,
    OWN_CHUNKS,
    PATH,
    SERVICE,
    SIBLING,
    SLACK,
    TIME_LEFT,
    WAIT,
    WEIGHT,
    WORK,
    Entry,
)
from workbench.twin import Vector, rule
from workbench.units import S_NS

# Flat floats of a rule: a list in the interpreted form, a float64 array in the compiled one.
Floats = list[float]

# Beyond any term: the clip bound of a term that has none.
FAR = 1e40

(
    T_WAIT,
    T_PATH,
    T_CLASS_PATH,
    T_WEIGHTED_PATH,
    T_WORK,
    T_SIBLING,
    T_SLACK,
    T_TIME_LEFT,
    T_URGENCY,
    T_CREDIT,
    T_OWN_CHUNKS,
    T_DOWN_CHUNKS,
    T_DOWN_WORK,
    T_PRESSURE,
    T_FAN_OUT,
    T_ATTAINED,
    T_CLASS_ATTAINED,
    T_TENANT,
    T_FIRST,
    T_RAW_PATH,
    T_RAW_URGENCY,
    T_RAW_ATTAINED,
    TERMS,
) = range(23)

TERM_TABLE = (
    Entry("wait", "ratio", BLIND, "0", "wait / scale"),
    Entry("path", "ratio", CLASS_STATISTICS, "1", "path / scale"),
    Entry("class_path", "ratio", CLASS_STATISTICS, "1", "path / class_path: l"),
    Entry(
        "weighted_path", "ratio", CLASS_STATISTICS, "1", "path / (scale x weight / 1000); unknown weight counts as 1"
    ),
    Entry("work", "ratio", CLASS_STATISTICS, "1", "work / scale"),
    Entry("sibling", "ratio", CLASS_STATISTICS, "1", "sibling / scale"),
    Entry("slack", "ratio", CLASS_STATISTICS, "2^61 / scale", "slack / scale, negative when late"),
    Entry("time_left", "ratio", BLIND, "2^61 / scale", "time_left / scale, negative past the deadline"),
    Entry("urgency", "ratio", CLASS_STATISTICS, "0", "1 - slack / budget: f; above 1 when late"),
    Entry("credit", "ratio", BLIND, "0", "credit_used / credit_limit: q, never above 1; a limit of 0 counts as full"),
    Entry("own_chunks", "count", BLIND, "0", "own_chunks"),
    Entry("down_chunks", "count", BLIND, "0", "down_chunks"),
    Entry("down_work", "ratio", CLASS_STATISTICS, "0", "down_work / scale"),
    Entry(
        "pressure",
        "count",
        CLASS_STATISTICS,
        "0",
        "(own_chunks - down_chunks) x scale / service; 1 for the last factor if unknown",
    ),
    Entry("fan_out", "count", CLASS_STATISTICS, "0", "fan_out"),
    Entry("attained", "ratio", BLIND, "0", "attained / scale"),
    Entry("class_attained", "ratio", CLASS_STATISTICS, "0", "attained / class_path: b"),
    Entry("tenant", "ratio", BLIND, "1", "weight / 1000"),
    Entry("first", "0 or 1", BLIND, "0", "first"),
    Entry("raw_path", "s", CLASS_STATISTICS, "0", "path in seconds"),
    Entry(
        "raw_urgency",
        "1/s",
        CLASS_STATISTICS,
        "0",
        "1 / slack in seconds; a slack of 0 counts as 1 ns; negative when late",
    ),
    Entry("raw_attained", "s", BLIND, "0", "attained in seconds"),
)


@rule
def ratio(part: int, whole: int, unknown: float) -> float:
    """``part / whole`` as floats; `unknown` if `part` is, or if `whole` is negative; a whole of 0 counts as 1."""
    if part < 0 or whole < 0:
        return unknown
    if whole < 1:
        return float(part)
    # Each operand becomes a float first: plain Python would otherwise round the quotient of two large integers once,
    # compiled code twice.
    return float(part) / float(whole)


@rule
def term(signals: Vector, s: int, kind: int, scale: int) -> float:
    """One term of the task whose signals start at `s`; formula and value when unknown stand in `TERM_TABLE`.

    Parameters
    ----------
    signals : int vector
        Signals of one or more tasks.
    kind : int
        Code of the term, a position in `TERM_TABLE`.
    scale : int
        Unit of time in ns, at least 1, the same for all candidates of a decision.

    Returns
    -------
    float
        Finite, and smaller than `FAR` in size.
    """
    if kind == T_CLASS_PATH:
        return ratio(signals[s + PATH], signals[s + CLASS_PATH], 1.0)
    if kind == T_URGENCY:
        if signals[s + BUDGET] < 0 or signals[s + SLACK] == UNBOUNDED:
            return 0.0
        budget = signals[s + BUDGET] if signals[s + BUDGET] > 0 else 1
        return 1.0 - float(signals[s + SLACK]) / float(budget)
    if kind == T_CREDIT:
        if signals[s + CREDIT_LIMIT] == 0:
            return 1.0
        return clip(ratio(signals[s + CREDIT_USED], signals[s + CREDIT_LIMIT], 0.0), 0.0, 1.0)
    if kind == T_WAIT:
        return ratio(signals[s + WAIT], scale, 0.0)
    if kind == T_PATH:
        return ratio(signals[s + PATH], scale, 1.0)
    if kind == T_WEIGHTED_PATH:
        weight = signals[s + WEIGHT] if signals[s + WEIGHT] > 0 else 1000
        return ratio(signals[s + PATH], scale, 1.0) * 1000.0 / float(weight)
    if kind == T_WORK:
        return ratio(signals[s + WORK], scale, 1.0)
    if kind == T_SIBLING:
        return ratio(signals[s + SIBLING], scale, 1.0)
    if kind == T_SLACK:
        return float(signals[s + SLACK]) / float(scale)
    if kind == T_TIME_LEFT:
        return float(signals[s + TIME_LEFT]) / float(scale)
    if kind == T_OWN_CHUNKS:
        return ratio(signals[s + OWN_CHUNKS], 1, 0.0)
    if kind == T_DOWN_CHUNKS:
        return ratio(signals[s + DOWN_CHUNKS], 1, 0.0)
    if kind == T_DOWN_WORK:
        return ratio(signals[s + DOWN_WORK], scale, 0.0)
    if kind == T_PRESSURE:
        gap = ratio(signals[s + OWN_CHUNKS], 1, 0.0) - ratio(signals[s + DOWN_CHUNKS], 1, 0.0)
        return gap * ratio(scale, signals[s + SERVICE], 1.0)
    if kind == T_FAN_OUT:
        return ratio(signals[s + FAN_OUT], 1, 0.0)
    if kind == T_ATTAINED:
        return ratio(signals[s + ATTAINED], scale, 0.0)
    if kind == T_CLASS_ATTAINED:
        return ratio(signals[s + ATTAINED], signals[s + CLASS_PATH], 0.0)
    if kind == T_TENANT:
        return ratio(signals[s + WEIGHT], 1000, 1.0)
    if kind == T_FIRST:
        return ratio(signals[s + FIRST], 1, 0.0)
    if kind == T_RAW_PATH:
        return ratio(signals[s + PATH], S_NS, 0.0)
    if kind == T_RAW_URGENCY:
        if signals[s + SLACK] == UNBOUNDED:
            return 0.0
        slack = signals[s + SLACK] if signals[s + SLACK] != 0 else 1
        return float(S_NS) / float(slack)
    if kind == T_RAW_ATTAINED:
        return ratio(signals[s + ATTAINED], S_NS, 0.0)
    return 0.0


@rule
def normalize(signals: Vector, s: int, scale: int, terms: Floats, t: int) -> None:
    """Write all `TERMS` terms of one task from address `t` on, in the order of `TERM_TABLE`."""
    for kind in range(TERMS):
        terms[t + kind] = term(signals, s, kind, scale)
