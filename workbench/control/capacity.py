"""Closed forms of what a stage can carry: behind a credit window, in a line of two, in batches.

``docs/stability.md`` derives them; the simulators of `workbench.testing.queues` reproduce them.
"""

from __future__ import annotations

import math
from typing import Literal

from workbench.control.ranges import MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_TIME_NS, number, within
from workbench.units import S_NS


def batch_sojourn_bound_ns(rate_per_s: float, fixed_ns: float, per_item_ns: float) -> float:
    """Upper bound on the mean time in a server that always takes all that waits, Poisson arrivals.

    A launch of ``b`` takes exactly ``fixed_ns + per_item_ns * b``; infinite when ``rate * per_item >= 1``, where no cap
    on the launch means no stability either.

    References
    ----------
    Inoue (2021), *Queueing analysis of GPU-based inference servers with dynamic batching*, Performance Evaluation 147.
    """
    number(rate_per_s, 0.0, math.inf, "rate_per_s")
    lam, a, t0 = rate_per_s / S_NS, per_item_ns, fixed_ns
    rho = lam * a
    if rho >= 1:
        return math.inf
    light = (a + t0) / (2 * (1 - rho)) * (1 + 2 * lam * t0 + (1 - lam * t0) / (1 + rho))
    heavy = 1.5 * t0 / (1 - rho) + a / 2 * (rho + 2) / (1 - rho * rho)
    return min(light, heavy)


def credit_hold_ns(
    service_ns: int,
    round_trip_ns: int,
    *,
    make_ns: int = 0,
    batch: int = 1,
    returned: Literal["start", "end"] = "end",
) -> int:
    """Time that a launch's credits are out when nothing else is in the way.

    From the reservation that precedes the making, over `make_ns` for each of `batch` chunks and the two ways of
    `round_trip_ns`, to the credit's return: when downstream starts on the chunks or when its launch of `service_ns`
    ends.
    """
    for name, value in {"service_ns": service_ns, "round_trip_ns": round_trip_ns, "make_ns": make_ns}.items():
        within(value, 0, MAX_TIME_NS, name)
    within(batch, 1, MAX_CHUNKS, "batch")
    return batch * make_ns + round_trip_ns + (service_ns if returned == "end" else 0)


def busy_window_items(service_ns: int, hold_ns: int, *, batch: int = 1) -> int:
    """Smallest credit window that never makes work wait for credit: ``batch * ceil(hold / service)``, at least one.

    Exact for constant times if `batch` is 1 or making a chunk takes no time, enough otherwise. With ``hold =
    service + round trip`` it is the bandwidth-delay product, rounded up, plus the one chunk in service.

    Parameters
    ----------
    service_ns : int
        Time of one launch of `batch` chunks downstream; if making a chunk takes longer, that time.
    hold_ns : int
        See `credit_hold_ns`.
    batch : int, keyword-only
        Chunks per launch; a launch that waits to be full never starts with a smaller window.

    Examples
    --------
    >>> busy_window_items(10, credit_hold_ns(10, 25))  # 25 on the way, 10 in service
    4
    """
    within(service_ns, 1, MAX_TIME_NS, "service_ns")
    within(hold_ns, 0, MAX_TIME_NS, "hold_ns")
    within(batch, 1, MAX_CHUNKS, "batch")
    return batch * max(1, -(-hold_ns // service_ns))


def busy_window_bytes(service_ns: int, hold_ns: int, chunk_bytes: int, *, batch: int = 1) -> int:
    """The same window in bytes, for chunks of at most `chunk_bytes`: exact if all are that large, enough otherwise."""
    within(chunk_bytes, 1, MAX_CHUNK_BYTES, "chunk_bytes")
    return busy_window_items(service_ns, hold_ns, batch=batch) * chunk_bytes


def window_capacity_per_s(rate_per_s: float, window_items: int, hold_ns: int) -> float:
    """Most items per second through a stage of rate `rate_per_s` behind a credit window: ``min(rate, window / hold)``.

    Reached with constant times. With random ones it is an upper bound (Little's law: throughput times mean hold is the
    mean number of credits out, which is at most the window); `tandem_capacity_per_s` is an example of less.
    """
    number(rate_per_s, 0.0, math.inf, "rate_per_s")
    within(window_items, 1, MAX_CHUNKS, "window_items")
    within(hold_ns, 0, MAX_TIME_NS, "hold_ns")
    return rate_per_s if hold_ns == 0 else min(rate_per_s, window_items * S_NS / hold_ns)


def tandem_capacity_per_s(up_per_s: float, down_per_s: float, places: int) -> float:
    """Throughput of two servers in a row with exponential service, the first never short of work, no travel time.

    Parameters
    ----------
    up_per_s, down_per_s : float
        Service rates.
    places : int
        Most items that the first server has finished and the second has not: the window if credit returns at the end of
        the second service, window + 1 if at its start, ``slots + 2`` for ``slots`` buffer slots between the servers
        when the first blocks after its service.

    Notes
    -----
    These items are an M/M/1/`places` queue: ``down * (1 - 1 / sum((up / down) ** i, i = 0..places))``, which is
    ``places / (places + 1)`` at equal rates of 1.

    Examples
    --------
    >>> round(tandem_capacity_per_s(1.0, 1.0, 2), 4)
    0.6667
    """
    number(up_per_s, math.ulp(0.0), math.inf, "up_per_s")
    number(down_per_s, math.ulp(0.0), math.inf, "down_per_s")
    within(places, 1, MAX_CHUNKS, "places")
    slow, fast = sorted((up_per_s, down_per_s))  # the law is the same with the servers exchanged; this way it converges
    ratio = slow / fast
    if ratio == 1.0:
        return slow * places / (places + 1)
    return slow * (1 - ratio**places) / (1 - ratio ** (places + 1))
