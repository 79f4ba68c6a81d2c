"""How much a controller may decide, and when it loses that right.

Modes are ordered as in `workbench.schema.enums.CONTROL_MODE`: *static* (the server alone), *shadow* (the controller
computes and nothing follows it), *admission_credit* (it decides who enters and how far senders run ahead), *joint* (it
also decides order, batches and replicas). Trouble costs one mode at once; a mode is gained back one at a time, each
after `hold_ns` without trouble; an order goes down any number of modes in one step. So the path up never skips a mode,
and *static* is one step away from everywhere.

What is in doubt loses: a controller that does not answer is stalled whether or not it would have been right, and an
answer that belongs to an earlier turn is not used. What was not measured is not in doubt: it is not measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.control.ranges import MAX_SERVICE_NS, within
from workbench.schema.enums import CONTROL_MODE
from workbench.twin import Vector, rule

STATIC, SHADOW, ADMISSION_CREDIT, JOINT = range(len(CONTROL_MODE))

# Why a mode is what it is. The faults of the controller itself come first, then the guards on what it achieves.
NONE, THREW, STALLED, LATE, MEMORY, QUALITY, THROUGHPUT, ORDERED, RECOVERED = range(9)
REASONS = ("none", "threw", "stalled", "late", "memory", "quality", "throughput", "ordered", "recovered")

# Parameters.
DEADLINE_NS, HOLD_NS, SETTLE_NS, KEEP_PERMILLE, PARAMETERS = range(5)

# Memory: mode in force, time of the latest change or trouble, time of the latest fall, number of changes.
MODE, QUIET_SINCE_NS, FELL_NS, TURN, STATE = range(5)


@rule
def begin(s: Vector, w: int, now_ns: int) -> None:
    """Start in *static*, at turn 0: a controller earns every mode."""
    s[w + MODE] = STATIC
    s[w + QUIET_SINCE_NS] = now_ns
    s[w + FELL_NS] = -1
    s[w + TURN] = 0


@rule
def trouble(
    p: Vector,
    at: int,
    threw: int,
    silent_ns: int,
    answer_ns: int,
    memory_bytes: int,
    memory_max: int,
    quality: int,
    throughput: int,
    reference: int,
) -> int:
    """The first thing that is wrong with the controller or with what it achieves, NONE if nothing is.

    Parameters
    ----------
    p, at : vector of int, int
        PARAMETERS fields from `at`: one `Limits.vector`.
    threw : int
        1 if the controller raised an error, else 0.
    silent_ns : int
        Time since the oldest question that it has not answered; -1 = none is open. STALLED from the deadline on.
    answer_ns : int
        Time that its latest answer took; -1 = none yet. LATE above the deadline.
    memory_bytes, memory_max : int
        Accounted bytes and their declared bound; -1 as bytes = not measured.
    quality : int
        1 the quality gate passes, 0 it fails, -1 not measured.
    throughput, reference : int
        Work finished in the latest window, and in a window of the same load under *static*, same unit, at most 2**50;
        -1 = not measured. A reference of 0 says nothing.
    """
    if threw == 1:
        return THREW
    if silent_ns >= p[at + DEADLINE_NS]:
        return STALLED
    if answer_ns > p[at + DEADLINE_NS]:
        return LATE
    if memory_bytes > memory_max:
        return MEMORY
    if quality == 0:
        return QUALITY
    if throughput >= 0 and throughput * 1000 < reference * p[at + KEEP_PERMILLE]:
        return THROUGHPUT
    return NONE


@rule
def step(p: Vector, at: int, s: Vector, w: int, now_ns: int, goal: int, found: int) -> tuple[int, int]:
    """The mode from now on, and why.

    Parameters
    ----------
    p, at : vector of int, int
        PARAMETERS fields from `at`.
    s, w : vector of int, int
        STATE fields from `w`, set by `begin`.
    now_ns : int
        Time. If it goes back, the hold starts again: a clock cannot give a mode back early.
    goal : int
        Highest mode that the operator allows. Lowering it acts at once and skips modes on the way down.
    found : int
        Answer of `trouble`.

    Returns
    -------
    mode, reason : int
        Reason of *this* step: ORDERED, RECOVERED (one up), a trouble that cost a mode or restarted the hold, else NONE.

    Notes
    -----
    A guard counts only where the controller can be the cause: MEMORY and QUALITY from *admission_credit* on (the memory
    of a server without control is what the controller is there to cure), THROUGHPUT from *shadow* on (its probes cost).
    Guards are averages over a window. For `settle_ns` after a fall that window still holds the mode before, so they
    cost no second mode, but they keep the hold from running.
    """
    mode = s[w + MODE]
    if now_ns < s[w + QUIET_SINCE_NS]:
        s[w + QUIET_SINCE_NS] = now_ns
    if now_ns < s[w + FELL_NS]:
        s[w + FELL_NS] = now_ns
    if goal < mode:
        _enter(s, w, goal, now_ns)
        return goal, ORDERED
    if _counts(mode, found):
        s[w + QUIET_SINCE_NS] = now_ns
        settling = s[w + FELL_NS] >= 0 and now_ns - s[w + FELL_NS] < p[at + SETTLE_NS]
        if mode > STATIC and (found < MEMORY or not settling):
            mode -= 1
            _enter(s, w, mode, now_ns)
            s[w + FELL_NS] = now_ns
        return mode, found
    if mode < goal and now_ns - s[w + QUIET_SINCE_NS] >= p[at + HOLD_NS]:
        mode += 1
        _enter(s, w, mode, now_ns)
        return mode, RECOVERED
    return mode, NONE


@rule
def _counts(mode: int, found: int) -> bool:
    """Whether a trouble can be the controller's doing in this mode."""
    if MEMORY <= found <= QUALITY:
        return mode >= ADMISSION_CREDIT
    if found == THROUGHPUT:
        return mode >= SHADOW
    return found != NONE


@rule
def usable(s: Vector, w: int, turn: int, needed: int) -> int:
    """1 if an answer may act: asked in the turn that is still running, in a mode of at least `needed`; else 0."""
    return 1 if turn == s[w + TURN] and s[w + MODE] >= needed else 0


@rule
def _enter(s: Vector, w: int, mode: int, now_ns: int) -> None:
    s[w + MODE] = mode
    s[w + QUIET_SINCE_NS] = now_ns
    s[w + TURN] += 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What a controller must keep to.

    Attributes
    ----------
    deadline_ns : int
        Longest time for one answer; default 5 ms, a tenth of a short stage service.
    hold_ns : int
        Time without trouble before one mode is gained back; default 30 s.
    settle_ns : int
        Window of the guards' averages; default 5 s. Shorter than the hold, so that every mode is judged on its own.
    keep_permille : int
        Least share of the static throughput in thousandths; default 900.

    Raises
    ------
    UsageError
        A number out of range, or a window that is not shorter than the hold.
    """

    deadline_ns: int = 5_000_000
    hold_ns: int = 30_000_000_000
    settle_ns: int = 5_000_000_000
    keep_permille: int = 900

    def __post_init__(self) -> None:
        within(self.deadline_ns, 1, MAX_SERVICE_NS, "deadline_ns of the fallback limits")
        within(self.hold_ns, 1, MAX_SERVICE_NS, "hold_ns of the fallback limits")
        within(self.settle_ns, 0, self.hold_ns - 1, "settle_ns of the fallback limits (below hold_ns)")
        within(self.keep_permille, 0, 1000, "keep_permille of the fallback limits")

    def vector(self) -> list[int]:
        """The parameters of `trouble` and `step`."""
        return [self.deadline_ns, self.hold_ns, self.settle_ns, self.keep_permille]
