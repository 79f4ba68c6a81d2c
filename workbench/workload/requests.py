"""Requests of the speech graph: classes, contents, tenants, planned cancellations and deadlines.

The closed vocabulary (digit strings) makes the audio gradable; a pool of contents makes requests comparable across
runs, so that slowdown against an isolated run compares equal work.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from workbench.errors import UsageError
from workbench.units import S_NS
from workbench.workload.arrivals import Offsets

OVERSIZED_DIGITS = 64  # twice as many as fit the 128 tokens of the testbed's thinker


@dataclass(frozen=True, slots=True)
class RequestClass:
    """A class of requests.

    Attributes
    ----------
    name : str
        Short name.
    share : float
        Part of all requests, in (0, 1].
    digits : tuple of int
        Fewest and most digits to speak.
    contents : int
        Number of different contents in the pool.
    job_deadline_s : float or None
        Time from scheduled arrival after which the job is given up; None = never.
    """

    name: str
    share: float
    digits: tuple[int, int]
    contents: int
    job_deadline_s: float | None


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who pays, the weight of its share, and the part of the requests that it sends."""

    name: str
    weight: float
    share: float


@dataclass(frozen=True, slots=True)
class Mix:
    """What is asked for: classes, tenants, and the parts that are cancelled or malformed on purpose.

    Attributes
    ----------
    cancel_share : float
        Part of requests that the client cancels.
    cancel_after_s : tuple of float
        Earliest and latest cancellation after the scheduled arrival, uniform.
    oversized_share : float
        Part of requests whose prompt exceeds what the thinker accepts; they must end in an explicit error.
    """

    classes: tuple[RequestClass, ...]
    tenants: tuple[Tenant, ...]
    cancel_share: float = 0.0
    cancel_after_s: tuple[float, float] = (0.2, 2.0)
    oversized_share: float = 0.0

    def __post_init__(self) -> None:
        parts = {"classes": [c.share for c in self.classes], "tenants": [t.share for t in self.tenants]}
        for what, shares in parts.items():
            if not shares or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-9:
                raise UsageError("positive shares that sum to 1", f"{what} with shares {shares}")
        if self.cancel_share < 0 or self.oversized_share < 0 or self.cancel_share + self.oversized_share > 1:
            raise UsageError(
                "cancel_share and oversized_share in [0, 1] together",
                f"cancel_share={self.cancel_share}, oversized_share={self.oversized_share}",
            )
        for c in self.classes:
            if not 1 <= c.digits[0] <= c.digits[1] or c.contents < 1:
                raise UsageError("1 <= fewest <= most digits and at least one content", f"class {c}")


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request before it is sent.

    Attributes
    ----------
    request : int
        Number, position in the schedule.
    offset_ns : int
        Scheduled arrival from the start of the run.
    request_class, tenant, weight : str, str, float
        As in the tables.
    digits : tuple of int
        What to say; `OVERSIZED_DIGITS` of them for an oversized request.
    content : str
        Equal content asks for equal work, in any run.
    cancel_after_ns, deadline_after_ns : int or None
        Relative to the scheduled arrival.
    oversized : bool
        Malformed on purpose.
    """

    request: int
    offset_ns: int
    request_class: str
    tenant: str
    weight: float
    digits: tuple[int, ...]
    content: str
    cancel_after_ns: int | None
    deadline_after_ns: int | None
    oversized: bool


SPEECH_MIX = Mix(
    classes=(
        RequestClass("short", share=0.7, digits=(2, 3), contents=12, job_deadline_s=12.0),
        RequestClass("long", share=0.3, digits=(6, 8), contents=12, job_deadline_s=30.0),
    ),
    tenants=(Tenant("gold", weight=2.0, share=0.5), Tenant("silver", weight=1.0, share=0.5)),
    cancel_share=0.04,
    oversized_share=0.01,
)


def contents(mix: Mix, *, seed: int) -> dict[str, list[tuple[int, ...]]]:
    """The content pool of every class: distinct digit strings where there are enough of them.

    Examples
    --------
    >>> pool = contents(SPEECH_MIX, seed=0)
    >>> len(pool["short"]), {len(d) for d in pool["long"]} <= {6, 7, 8}
    (12, True)
    """
    pool: dict[str, list[tuple[int, ...]]] = {}
    rng = np.random.default_rng(seed)
    for c in mix.classes:
        available = sum(10**n for n in range(c.digits[0], c.digits[1] + 1))
        if available < c.contents:
            raise UsageError(f"at most {available} contents", f"contents={c.contents}", where=f"class {c.name!r}")
        seen: dict[tuple[int, ...], None] = {}
        while len(seen) < c.contents:
            n = int(rng.integers(c.digits[0], c.digits[1] + 1))
            seen.setdefault(tuple(int(d) for d in rng.integers(0, 10, n)))
        pool[c.name] = list(seen)
    return pool


def plan(
    offsets: Offsets, mix: Mix, *, length_seed: int, content_seed: int, pool_seed: int = 0
) -> list[PlannedRequest]:
    """Fill a schedule with requests.

    Parameters
    ----------
    offsets : numpy.ndarray of int64
        Scheduled arrivals, ns from the start.
    mix : Mix
        What is asked for.
    length_seed, content_seed, pool_seed : int
        Separate streams: classes, tenants and cancellations; choice from the pool; the pool itself.

    Returns
    -------
    list of PlannedRequest
        One per offset, in order.
    """
    pool = contents(mix, seed=pool_seed)
    shape = np.random.default_rng(length_seed)
    choose = np.random.default_rng(content_seed)
    classes = shape.choice(len(mix.classes), len(offsets), p=[c.share for c in mix.classes])
    tenants = shape.choice(len(mix.tenants), len(offsets), p=[t.share for t in mix.tenants])
    fate = shape.random(len(offsets))
    cancel_s = shape.uniform(*mix.cancel_after_s, len(offsets))
    planned = []
    for i, offset_ns in enumerate(offsets.tolist()):
        c, t = mix.classes[int(classes[i])], mix.tenants[int(tenants[i])]
        digits = pool[c.name][int(choose.integers(len(pool[c.name])))]
        oversized = bool(fate[i] < mix.oversized_share)
        cancelled = not oversized and fate[i] < mix.oversized_share + mix.cancel_share
        planned.append(
            PlannedRequest(
                request=i,
                offset_ns=offset_ns,
                request_class=c.name,
                tenant=t.name,
                weight=t.weight,
                digits=(0,) * OVERSIZED_DIGITS if oversized else digits,
                content="oversized" if oversized else "digits:" + "".join(map(str, digits)),
                cancel_after_ns=round(cancel_s[i] * S_NS) if cancelled else None,
                deadline_after_ns=None if c.job_deadline_s is None else round(c.job_deadline_s * S_NS),
                oversized=oversized,
            )
        )
    return planned
