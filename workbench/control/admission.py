"""Admit, wait or reject: what happens to a request that asks to enter, and which bound decided.

`decide` looks at integers only: which bound is short now, which one is too small for ever, how many wait, and whether
the deadline can still be met. A verdict always comes with the reason that made it, so that a rejected client, a
recorded decision and a chart say the same word.

Three rules stand around it. `in_turn` keeps small requests from overtaking a large one for ever, `in_mode` says what
the decision is worth while the controller is not in charge, and `sojourn` is an optional row that turns newcomers away
when those who wait have waited too long. It is CoDel, and it may stand here only: the chunk of an accepted request is
never dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from workbench.control.ranges import MAX_SERVICE_NS, within
from workbench.errors import UsageError
from workbench.schema.enums import CONTROL_MODE
from workbench.twin import Vector, rule

ADMIT, WAIT, REJECT = range(3)
VERDICTS = ("admit", "wait", "reject")

# Reasons. The first ones name a bound, in the order in which `short` looks at them: the narrowest scope first, because
# the narrowest bound is the one that the request itself can do something about.
(
    FITS,
    REQUEST_BYTES,
    EDGE_BYTES,
    TENANT_BYTES,
    TOTAL_BYTES,
    SLOTS_TAKEN,
    QUEUE_FULL,
    DEADLINE,
    TURN,
    OVERLOAD,
    MODE,
) = range(11)
REASONS = (
    "fits",
    "request_bytes",
    "edge_bytes",
    "tenant_bytes",
    "total_bytes",
    "slots_taken",
    "queue_full",
    "deadline",
    "turn",
    "overload",
    "mode",
)

# The first mode in which the decision binds; below it the server's own limit alone decides.
_BINDS = CONTROL_MODE.index("admission_credit")

# Memory of `sojourn`: when the waits became too long for good, when the next newcomer is turned away, how many were.
ABOVE_UNTIL_NS, NEXT_NS, REFUSED, LAST_REFUSED, REFUSING, SOJOURN_STATE = range(6)


@rule
def decide(
    fits_now: int, fits_ever: int, accepted: int, waiting: int, waiting_limit: int, slack_ns: int, path_ns: int
) -> tuple[int, int]:
    """Verdict and reason for one request that asks to enter.

    Questions are asked in this order and the first that bites is the reason: can it ever fit, can it meet its deadline,
    does it fit now, is there room to wait. A request that was accepted before is past all of them but the third: it is
    admitted when it fits and waits otherwise, whatever the queue, and only its own deadline or a cancel ends it.

    Parameters
    ----------
    fits_now : int
        FITS, or the bound that is short at this moment (REQUEST_BYTES ... SLOTS_TAKEN).
    fits_ever : int
        FITS, or the bound that is smaller than the floor of the request even when nothing else runs.
    accepted : int
        1 if the request was accepted before (a retry after a failure), else 0.
    waiting : int
        Requests that wait for admission, this one not counted.
    waiting_limit : int
        Most requests that may wait; 0 = nobody waits.
    slack_ns : int
        Time from now to the deadline of the request, 0 if it has passed; -1 = no deadline.
    path_ns : int
        Estimate of the shortest way to the output that the deadline is for; -1 = unknown.

    Returns
    -------
    verdict, reason : int
        ADMIT with FITS; WAIT with the bound that is short; REJECT with the bound that can never hold the request,
        QUEUE_FULL or DEADLINE.

    Examples
    --------
    >>> verdict, reason = decide(TENANT_BYTES, FITS, 0, 3, 64, -1, -1)
    >>> VERDICTS[verdict], REASONS[reason]
    ('wait', 'tenant_bytes')
    >>> verdict, reason = decide(FITS, FITS, 0, 0, 64, 200_000_000, 350_000_000)
    >>> VERDICTS[verdict], REASONS[reason]
    ('reject', 'deadline')
    """
    if accepted == 0:
        if fits_ever != FITS:
            return REJECT, fits_ever
        if slack_ns == 0 or (slack_ns > 0 and path_ns > slack_ns):
            return REJECT, DEADLINE
    if fits_now == FITS:
        return ADMIT, FITS
    if accepted == 0 and waiting >= waiting_limit:
        return REJECT, QUEUE_FULL
    return WAIT, fits_now


@rule
def short(
    request_bytes: int,
    request_max: int,
    edge_bytes: int,
    edge_free: int,
    tenant_free: int,
    total_free: int,
    slots_free: int,
) -> int:
    """The first bound in which a request does not fit, or FITS.

    Parameters
    ----------
    request_bytes : int
        Sum over its edges of the floor that the request keeps for itself; what it needs of every shared bound.
    request_max : int
        Most bytes that one request may hold.
    edge_bytes, edge_free : int
        Floor on the tightest edge, and the bytes free there.
    tenant_free, total_free : int
        Bytes free in the tenant's share and in all. With whole capacities in place of what is free, the answer is
        whether the request can ever fit.
    slots_free : int
        Free places for resident state at the stage that has the fewest.
    """
    if request_bytes > request_max:
        return REQUEST_BYTES
    if edge_bytes > edge_free:
        return EDGE_BYTES
    if request_bytes > tenant_free:
        return TENANT_BYTES
    if request_bytes > total_free:
        return TOTAL_BYTES
    if slots_free < 1:
        return SLOTS_TAKEN
    return FITS


@rule
def in_turn(verdict: int, reason: int, ahead_wait_ns: int, patience_ns: int) -> tuple[int, int]:
    """`decide`'s answer for a request that would overtake another.

    A newcomer may use room that an older one cannot use, but only while the oldest one ahead has waited less than
    `patience_ns`; after that everybody behind waits (TURN), so that room gathers for it. Without this a request with a
    large floor starves behind small ones. `ahead_wait_ns` is -1 when nobody is ahead.
    """
    if verdict == ADMIT and ahead_wait_ns >= patience_ns:
        return WAIT, TURN
    return verdict, reason


@rule
def in_mode(mode: int, slot_free: int, verdict: int, reason: int) -> tuple[int, int]:
    """What becomes of `decide`'s answer under a control mode (position in CONTROL_MODE).

    From *admission_credit* on it binds. Below, the server does what it would do alone: it admits whenever a slot is
    free, with reason MODE where the rule would have said otherwise; without a slot the request waits or is rejected as
    the rule says.
    """
    if mode >= _BINDS or verdict == ADMIT or slot_free == 0:
        return verdict, reason
    return ADMIT, MODE


@rule
def sojourn(
    s: Vector, at: int, now_ns: int, wait_ns: int, waiting: int, target_ns: int, interval_ns: int
) -> tuple[int, int]:
    """Whether to turn one newcomer away because admission waits are too long: CoDel at the entrance.

    Asked whenever a waiting request is admitted, with the time it has waited. While that time stays above `target_ns`
    for `interval_ns` without a break, newcomers are refused, the n-th after ``interval / sqrt(n)``; one short wait, or
    nobody else waiting, ends it. A burst passes, a standing queue does not.

    Parameters
    ----------
    s, at : vector of int, int
        SOJOURN_STATE fields from `at`, all 0 at the start. Memory of this rule.
    now_ns : int
        Time, not earlier than at the call before.
    wait_ns : int
        How long the request that was admitted now had waited.
    waiting : int
        Requests that still wait.
    target_ns, interval_ns : int
        Wait that is acceptable for ever, and how long a longer one is. 0 as interval = never refuse.

    Returns
    -------
    verdict, reason : int
        ADMIT with FITS, or REJECT with OVERLOAD: refuse the next newcomer.

    References
    ----------
    RFC 8289, sections 4.1 and 5 (the pseudo-code, dequeue side); scaled from packets to requests: the interval is
    a worst-case time through the system, the target about a twentieth of it.
    """
    if interval_ns == 0:
        return ADMIT, FITS
    above = 0
    if wait_ns < target_ns or waiting == 0:
        s[at + ABOVE_UNTIL_NS] = 0
    elif s[at + ABOVE_UNTIL_NS] == 0:
        s[at + ABOVE_UNTIL_NS] = now_ns + interval_ns
    elif now_ns >= s[at + ABOVE_UNTIL_NS]:
        above = 1
    if above == 0:
        s[at + REFUSING] = 0
        return ADMIT, FITS
    if s[at + REFUSING] == 1:
        if now_ns < s[at + NEXT_NS]:
            return ADMIT, FITS
        s[at + REFUSED] += 1
        s[at + NEXT_NS] += paced(interval_ns, s[at + REFUSED])
        return REJECT, OVERLOAD
    s[at + REFUSING] = 1
    fresh = s[at + REFUSED] - s[at + LAST_REFUSED]
    recent = s[at + NEXT_NS] > 0 and now_ns - s[at + NEXT_NS] < 16 * interval_ns
    s[at + REFUSED] = fresh if recent and fresh > 1 else 1
    s[at + LAST_REFUSED] = s[at + REFUSED]
    s[at + NEXT_NS] = now_ns + paced(interval_ns, s[at + REFUSED])
    return REJECT, OVERLOAD


@rule
def paced(interval_ns: int, count: int) -> int:
    """``interval / sqrt(count)`` within a millionth, in integers: the control law of RFC 8289, section 4.1."""
    scaled = min(count, 1 << 20) << 40
    root = 1 << 20
    while root * root < scaled:
        root <<= 1
    # Newton's method from above, on integers, ends at the rounded-down square root.
    lower = (root + scaled // root) >> 1
    while lower < root:
        root = lower
        lower = (root + scaled // root) >> 1
    return (interval_ns << 20) // root


@dataclass(frozen=True, slots=True)
class Sojourn:
    """One row of `SOJOURNS`.

    Attributes
    ----------
    target_ns : int
        Wait for admission that is acceptable for ever.
    interval_ns : int
        How long waits may stay above the target before newcomers are refused; 0 = never refuse.
    """

    target_ns: int
    interval_ns: int

    def __post_init__(self) -> None:
        within(self.interval_ns, 0, MAX_SERVICE_NS, "interval_ns of a sojourn row")
        within(self.target_ns, 0, MAX_SERVICE_NS, "target_ns of a sojourn row")
        if self.interval_ns and not 0 < self.target_ns <= self.interval_ns:
            raise UsageError("a target from 1 ns to the interval", f"{self.target_ns} ns", where="a sojourn row")


# `codel` keeps RFC 8289's ratio of 1 to 20 around a 2 s way through a speech pipeline.
SOJOURNS = {"none": Sojourn(0, 0), "codel": Sojourn(100_000_000, 2_000_000_000)}
