"""Ranges of every quantity that enters a rule, so that no sum of them can leave a 64-bit integer.

Python integers do not overflow; in compiled code the result of an overflow is undefined, and silent. Whoever feeds the
rules (plan, testbed, importer) checks with `within`; the rules may then add without looking. The largest sum that a
rule forms is a byte count over all chunks of a stream over all edges, ``MAX_CHUNK_BYTES * MAX_CHUNKS * MAX_EDGES =
2**60``; times stay below ``2**61``, so the difference and the sum of two fit.
"""

from __future__ import annotations

from workbench.errors import UsageError
from workbench.twin import rule

MAX_TIME_NS = 1 << 61
MAX_CHUNK_BYTES = 1 << 34
MAX_CHUNKS = 1 << 20
MAX_EDGES = 1 << 6
# A service time is at most 18 minutes and a batch 1024 members, so that a batch's time in thousandths still fits.
MAX_SERVICE_NS = 1 << 40
MAX_BATCH = 1 << 10
# A consumer faster than 1 TB/s is one that never holds anything up.
MAX_BYTES_PER_S = 1 << 40
# Bound that never binds: above any sum that the ranges allow, low enough to be added to.
UNBOUNDED = 1 << 61


# Characters of a value that an error shows.
SHOWN = 80


def shown(value: object) -> str:
    """`value` as an error shows it: its `repr`, cut to `SHOWN` characters, whatever a file or a caller put there.

    >>> shown("a"), len(shown("a" * 1000)), shown(1 << 99_999)
    ("'a'", 80, 'int too large to show')
    """
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a table thousands of levels deep
        text = f"{type(value).__name__} too large to show"
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."


def within(value: int, low: int, high: int, where: str) -> int:
    """`value` itself; UsageError unless it is an integer in ``low..high``."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"an integer from {low} to {high}", shown(value), where=where)
    return value


def truth(value: bool, where: str) -> bool:
    """`value` itself; UsageError unless it is True or False."""
    if not isinstance(value, bool):
        raise UsageError("true or false", shown(value), where=where)
    return value


def number(value: float, low: float, high: float, where: str) -> float:
    """`value` itself; UsageError unless it is a number in ``low..high`` (not-a-number is in no range)."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise UsageError(f"a number from {low:g} to {high:g}", shown(value), where=where)
    return value


@rule
def clip(value: float, low: float, high: float) -> float:
    """`value` moved into ``low..high``; not-a-number becomes `low`, so that a score always orders."""
    if value >= high:
        return high
    if value > low:
        return value
    return low
