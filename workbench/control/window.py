"""Windows: how far a sender may run ahead of what its consumer has taken over, for every credit protocol.

A receiver advertises ``limit = taken + window`` as an absolute number that never falls, so a message may be lost,
repeated or late. What differs between protocols is the *window* alone, and it has three laws: it stays (`fixed`), it
probes (`aimd`), or it follows the consumer's service rate (`predict`). The rest of a protocol is which guarantees of
the ledger it uses: bounds that requests share, and a floor for each request. Two things hold in every protocol: room is
reserved before work starts, and credit comes back when the consumer takes a chunk over or discards it. A queue of N
places whose producer computes first and then waits for a place is a window of N + 2 (`docs/stability.md`).

Whatever the law says, a window holds at least one chunk of the largest size: a stream with nothing on the way can
always send, so no window deadlocks by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from workbench.control.ranges import MAX_BYTES_PER_S, MAX_CHUNK_BYTES, MAX_CHUNKS, MAX_SERVICE_NS, UNBOUNDED, within
from workbench.control.rows import Column, joined, read
from workbench.errors import UsageError
from workbench.twin import Vector, rule

LAWS = ("fixed", "aimd", "predict")
FIXED, AIMD, PREDICT = range(3)

# Parameters of a window.
(
    LAW,
    CHUNK_BYTES,  # largest chunk of the edge
    MAX_WINDOW_CHUNKS,
    MAX_WINDOW_BYTES,
    START_CHUNKS,
    STEP_CHUNKS,
    KEEP_PERMILLE,
    TARGET_NS,
    HORIZON_NS,
    WEIGHT_PERMILLE,
    PARAMETERS,
) = range(11)

# Memory of a window. A `fixed` one never writes to it.
(
    NOW_CHUNKS,  # aimd: the window
    HELD,  # aimd: takeovers since the last step at which the sender stood still for want of credit
    TAKEN_CHUNKS,  # aimd: takeovers so far
    RECOVERED_AT,  # aimd: number of takeovers after which the window may shrink again
    RATE,  # predict: service rate of the consumer, bytes/s; 0 = unknown
    LAST_NS,  # predict: time of the latest takeover
    LAST_BYTES,  # predict: what was taken over at that time
    STATE,
) = range(8)

# Bytes of one moment that a rate can be formed of: times 10^6 they still fit.
_MAX_AT_ONCE = 1 << 40


@rule
def begin(p: Vector, at: int, s: Vector, w: int) -> None:
    """Set the memory of a window at `w` to that of a stream of which nothing has been taken over."""
    for field in range(STATE):
        s[w + field] = 0
    if p[at + LAW] == AIMD:
        s[w + NOW_CHUNKS] = p[at + START_CHUNKS]


@rule
def window(p: Vector, at: int, s: Vector, w: int) -> tuple[int, int]:
    """Chunks and bytes by which the sender may be ahead of what was taken over; at least one largest chunk.

    Everything beyond the takeover counts: what waits at the consumer, what is on the way and what is granted but not
    yet used. UNBOUNDED in a place means that nothing is bounded there.

    Parameters
    ----------
    p, at : vector of int, int
        PARAMETERS fields from `at`: one `Protocol.vector`.
    s, w : vector of int, int
        STATE fields from `w`: memory kept by `begin` and `observe`.

    Returns
    -------
    chunks, bytes : int
        Both hold at the same time.

    Notes
    -----
    ``predict`` is the one-step model-predictive form of Flink's buffer debloating. The backlog that the consumer will
    see after `horizon_ns`, ``waiting + on the way + granted - rate * horizon``, is kept at ``rate * target`` or less;
    as the first three together are the window, it is ``rate * (target + horizon)``, rounded up.
    """
    chunks = p[at + MAX_WINDOW_CHUNKS]
    window_bytes = p[at + MAX_WINDOW_BYTES]
    if p[at + LAW] == AIMD:
        chunks = min(chunks, s[w + NOW_CHUNKS])
    elif p[at + LAW] == PREDICT:
        window_bytes = min(window_bytes, served(s[w + RATE], p[at + TARGET_NS] + p[at + HORIZON_NS]))
    return max(chunks, 1), max(window_bytes, p[at + CHUNK_BYTES])


@rule
def observe(
    p: Vector, at: int, s: Vector, w: int, now_ns: int, taken_bytes: int, queue_delay_ns: int, stalled: int
) -> None:
    """Learn from one takeover.

    Parameters
    ----------
    p, at, s, w
        As for `window`.
    now_ns : int
        Time of the takeover. An earlier time than before (a clock that was set back) teaches nothing.
    taken_bytes : int
        Size of the chunk taken over.
    queue_delay_ns : int
        How long the chunk lay ready at the consumer.
    stalled : int
        1 if the sender has stood still for want of credit since the takeover before, else 0.

    Notes
    -----
    ``aimd``: with a delay up to the target, every window's worth of takeovers that found the sender held by its credit
    adds a step (a window that does not bind is not enlarged, RFC 7661); a delay above the target keeps a share of the
    window, and then not again before everything that was on the way has been taken over (RFC 6582's *recover*).

    ``predict``: what was taken over at the moment before, divided by the time since, is a service rate if this chunk
    had to wait. If it had not, the consumer was idle in between and the quotient is a lower bound: it counts only if it
    is above the estimate (BBR's rule for application-limited samples).
    """
    if p[at + LAW] == AIMD:
        _probe(p, at, s, w, queue_delay_ns, stalled)
    elif p[at + LAW] == PREDICT:
        _measure(p, at, s, w, now_ns, taken_bytes, queue_delay_ns)


@rule
def raised(limit: int, taken: int, width: int) -> int:
    """The absolute limit after a takeover: ``taken + width``, but never below the `limit` advertised before."""
    return max(limit, taken + width)


@rule
def served(rate: int, time_ns: int) -> int:
    """Bytes that a consumer of `rate` bytes/s takes over in a time, rounded up; at microsecond resolution."""
    seconds = time_ns // 1_000_000_000
    micros = (time_ns - seconds * 1_000_000_000 + 999) // 1_000
    return rate * seconds + (rate * micros + 999_999) // 1_000_000


@rule
def _probe(p: Vector, at: int, s: Vector, w: int, queue_delay_ns: int, stalled: int) -> None:
    size = s[w + NOW_CHUNKS]
    s[w + TAKEN_CHUNKS] += 1
    if queue_delay_ns > p[at + TARGET_NS]:
        s[w + HELD] = 0
        if s[w + TAKEN_CHUNKS] > s[w + RECOVERED_AT]:
            s[w + RECOVERED_AT] = s[w + TAKEN_CHUNKS] + size
            s[w + NOW_CHUNKS] = max(1, size * p[at + KEEP_PERMILLE] // 1000)
        return
    s[w + HELD] += stalled
    if s[w + HELD] >= size:
        s[w + HELD] = 0
        s[w + NOW_CHUNKS] = min(size + p[at + STEP_CHUNKS], p[at + MAX_WINDOW_CHUNKS])


@rule
def _measure(p: Vector, at: int, s: Vector, w: int, now_ns: int, taken_bytes: int, queue_delay_ns: int) -> None:
    micros = (now_ns - s[w + LAST_NS]) // 1_000 if now_ns > s[w + LAST_NS] else 0
    if micros == 0 and now_ns >= s[w + LAST_NS]:
        s[w + LAST_BYTES] = min(s[w + LAST_BYTES] + taken_bytes, _MAX_AT_ONCE)
        return
    before = s[w + LAST_BYTES]
    s[w + LAST_NS] = now_ns
    s[w + LAST_BYTES] = taken_bytes
    if micros == 0 or before == 0:
        return
    rate = s[w + RATE]
    sample = min(before * 1_000_000 // micros, MAX_BYTES_PER_S)
    if rate == 0:
        s[w + RATE] = sample
    elif queue_delay_ns > 0 or sample > rate:
        weight = p[at + WEIGHT_PERMILLE]
        s[w + RATE] = (rate * (1000 - weight) + sample * weight + 500) // 1000


@dataclass(frozen=True, slots=True)
class Protocol:
    """One row of ``protocols.toml``.

    Attributes
    ----------
    name, text, source : str
        Name in kebab-case, what it does, where it comes from.
    law : str
        One of LAWS.
    window_chunks, window_bytes : int
        The window (`fixed`) or its upper end; UNBOUNDED if the row states none.
    start_chunks, step_chunks, keep_permille : int
        `aimd`: window at the start, chunks added per window, thousandths kept on a decrease. 0 for other laws.
    target_ns : int
        `aimd`: queue delay above which the window shrinks; `predict`: queue delay to hold. 0 for `fixed`.
    horizon_ns : int
        `predict`: age of the estimate when it takes effect, at least one round trip. 0 for other laws.
    weight_permille : int
        `predict`: weight of the newest sample, ``2000 / (samples + 1)``. 0 for other laws.
    shared_bounds : bool
        Whether the bounds per request, edge, tenant and in all are enforced.
    floor_chunks : int
        Chunks per (request, edge) set aside at admission under shared bounds; at least 1 there.

    Raises
    ------
    UsageError
        A number out of range; a parameter that the law does not use, or lacks; shared bounds without a floor.
    """

    name: str
    text: str
    source: str
    law: str
    shared_bounds: bool
    floor_chunks: int
    window_chunks: int = UNBOUNDED
    window_bytes: int = UNBOUNDED
    start_chunks: int = 0
    step_chunks: int = 0
    keep_permille: int = 0
    target_ns: int = 0
    horizon_ns: int = 0
    weight_permille: int = 0

    def __post_init__(self) -> None:
        where = f"protocol {self.name!r}"
        for each in fields(self):
            if each.name in _COLUMNS and getattr(self, each.name) != each.default:
                _COLUMNS[each.name].check(getattr(self, each.name), f"{where}, {each.name}")
        used = _OF_LAW[self.law]
        for key in sorted({key for keys in _OF_LAW.values() for key in keys}):
            if bool(getattr(self, key)) != (key in used):
                found = f"{key} = {getattr(self, key)}"
                raise UsageError(f"{' and '.join(used) or 'none of its keys'} for law {self.law!r}", found, where=where)
        if self.law == "aimd" and not self.start_chunks <= self.window_chunks <= MAX_CHUNKS:
            raise UsageError(f"window_chunks from start_chunks to {MAX_CHUNKS}", f"{self.window_chunks}", where=where)
        if self.shared_bounds and not self.floor_chunks:
            raise UsageError(
                "a floor of at least 1 chunk under shared bounds",
                "floor_chunks = 0",
                where=where,
                fix="Without it the branches of a join can eat each other's room and stand still for ever.",
            )

    def vector(self, chunk_bytes: int) -> list[int]:
        """The parameters on an edge whose largest chunk has `chunk_bytes`."""
        within(chunk_bytes, 1, MAX_CHUNK_BYTES, f"protocol {self.name!r}, chunk_bytes")
        p = [0] * PARAMETERS
        p[LAW], p[CHUNK_BYTES] = LAWS.index(self.law), chunk_bytes
        p[MAX_WINDOW_CHUNKS], p[MAX_WINDOW_BYTES] = self.window_chunks, self.window_bytes
        p[START_CHUNKS], p[STEP_CHUNKS], p[KEEP_PERMILLE] = self.start_chunks, self.step_chunks, self.keep_permille
        p[TARGET_NS], p[HORIZON_NS], p[WEIGHT_PERMILLE] = self.target_ns, self.horizon_ns, self.weight_permille
        return p


_OF_LAW = {
    "fixed": (),
    "aimd": ("start_chunks", "step_chunks", "keep_permille", "target_ns"),
    "predict": ("target_ns", "horizon_ns", "weight_permille"),
}
_COLUMNS = {
    "text": Column(str),
    "source": Column(str),
    "law": Column(str, choices=LAWS),
    "window_chunks": Column(int, 1, MAX_CHUNKS, optional=True),
    "window_bytes": Column(int, 1, UNBOUNDED, optional=True),
    "start_chunks": Column(int, 1, MAX_CHUNKS, optional=True),
    "step_chunks": Column(int, 1, MAX_CHUNKS, optional=True),
    "keep_permille": Column(int, 1, 999, optional=True),
    "target_ns": Column(int, 1, MAX_SERVICE_NS, optional=True),
    "horizon_ns": Column(int, 1, MAX_SERVICE_NS, optional=True),
    "weight_permille": Column(int, 1, 1000, optional=True),
    "shared_bounds": Column(bool),
    "floor_chunks": Column(int, 0, MAX_CHUNKS),
}
_SHIPPED = Path(__file__).with_name("protocols.toml")


def load(path: str | Path | None = None) -> dict[str, Protocol]:
    """Protocols by name: those that ship, and those of the file at `path`.

    Raises
    ------
    UsageError
        A file or row that cannot be used, with the row and the key.

    Examples
    --------
    >>> p = load()["closed-loop"].vector(chunk_bytes=65_536)
    >>> window(p, 0, [0] * STATE, 0)
    (4, 1048576)
    """
    shipped = _protocols(read(_SHIPPED, _COLUMNS))
    return shipped if path is None else joined(shipped, _protocols(read(path, _COLUMNS)), path)


def _protocols(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Protocol]:
    return {name: Protocol(name, **row) for name, row in rows.items()}
