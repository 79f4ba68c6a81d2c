"""Admit, wait or reject: what happens to a request that asks to enter, and which bound decided.

`decide` looks at integers only: which bound is short now, which one is too small for ever, how many wait, and whether
the deadline can still be met. A verdict always comes with the reason that made it, so that a rejected client, a
recorded decision and a chart say the same word.
"""

from __future__ import annotations

from workbench.twin import rule

ADMIT, WAIT, REJECT = range(3)
VERDICTS = ("admit", "wait", "reject")

# Reasons. The first ones name a bound, in the order in which `short` looks at them: the narrowest scope first, because
# the narrowest bound is the one that the request itself can do something about.
FITS, REQUEST_BYTES, EDGE_BYTES, TENANT_BYTES, TOTAL_BYTES, SLOTS, QUEUE_FULL, DEADLINE = range(8)
REASONS = (
    "fits",
    "request_bytes",
    "edge_bytes",
    "tenant_bytes",
    "total_bytes",
    "slots",
    "queue_full",
    "deadline",
)


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
        FITS, or the bound that is short at this moment (REQUEST_BYTES ... SLOTS).
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
