"""When a batch closes, how large it should be, and what the boundary between two batches costs.

`close` is asked whenever a device could start, and again at a time that it names itself. Its answer is a reason of
`workbench.schema.enums.BATCH_CLOSE` and a number of members, or a wait that always ends: no row can wait without bound.
It never sees who the members are. The caller orders them by urgency and takes the first ones, so that no mode or
row can change what a chunk contains or the order of chunks within a stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from workbench.control.ranges import MAX_BATCH, MAX_CHUNKS, MAX_SERVICE_NS, UNBOUNDED, within
from workbench.control.rows import Column, joined, read
from workbench.errors import UsageError
from workbench.schema.enums import BATCH_CLOSE
from workbench.twin import Vector, rule

# Answers of `close`: positions in BATCH_CLOSE, then those that start nothing.
FULL, TIMER, DRAIN, FIRST_CHUNK, DEADLINE = map(
    BATCH_CLOSE.index, ("full", "timer", "drain", "first_chunk", "deadline")
)
HOLD = len(BATCH_CLOSE)
EMPTY = HOLD + 1

# Parameters of a batch.
LIMIT, FILL, TIMEOUT_NS, MARGIN_NS, FIRST_ALONE, DEADLINES, DRAINS, TOKEN_BUDGET, PARAMETERS = range(9)


@rule
def close(
    p: Vector,
    at: int,
    ready: int,
    first: int,
    oldest_wait_ns: int,
    slack_ns: int,
    alone_ns: int,
    next_ns: int,
    complete: int,
) -> tuple[int, int, int]:
    """Whether an idle device should start now, and with how many members.

    A first chunk leaves alone, unless a steady member could not wait that long or has waited past the timeout: then all
    leave together. Otherwise, in this order: full; a deadline that allows no further member; nobody to wait for; the
    oldest member's patience; else hold. With FIRST_CHUNK the caller takes the oldest first chunk, else the most urgent
    members.

    Parameters
    ----------
    p, at : vector of int, int
        PARAMETERS fields from `at`: one `Batching.vector`.
    ready : int
        Members that could go together now: all that are ready, or those of one length bucket.
    first : int
        How many of them are the first chunk of their request.
    oldest_wait_ns : int
        How long the one that has waited longest has waited.
    slack_ns : int
        Least `playback_slack` of the members, which may be negative; UNBOUNDED = no member has a deadline.
    alone_ns, next_ns : int
        Estimated service of a batch of one, and of one more member than could leave now.
    complete : int
        1 if no further member can come before a launch (every active stream is among the ready ones), else 0.

    Returns
    -------
    code, size, recheck_ns : int
        FULL ... DEADLINE with the members to take and 0. HOLD with 0 and the time, at least 1 ns, after which to ask
        again if nothing arrives before; a caller asks at every arrival too. EMPTY with 0 and 0 when nobody is ready.

    Examples
    --------
    >>> p = load()["first-chunk"].vector(base_ns=6_000_000, each_ns=3_000_000)
    >>> p[FILL]
    8
    >>> close(p, 0, 3, 0, 5_000_000, 30_000_000, 9_000_000, 18_000_000, 0)
    (5, 0, 10000000)
    >>> code, size, _ = close(p, 0, 3, 0, 15_000_000, 20_000_000, 9_000_000, 18_000_000, 0)
    >>> BATCH_CLOSE[code], size
    ('deadline', 3)
    """
    if ready <= 0:
        return EMPTY, 0, 0
    size = min(ready, p[at + LIMIT])
    alone = p[at + FIRST_ALONE] == 1 and first > 0
    spare_ns = slack_ns - next_ns - p[at + MARGIN_NS]
    due = p[at + DEADLINES] == 1 and spare_ns <= (alone_ns if alone and first < ready else 0)
    overdue = oldest_wait_ns >= p[at + TIMEOUT_NS]
    if alone and (first == ready or not (due or overdue)):
        return FIRST_CHUNK, 1, 0
    fill = p[at + FILL]
    if size == p[at + LIMIT] or (fill > 1 and size >= fill):
        return FULL, size, 0
    if due:
        return DEADLINE, size, 0
    if fill <= 1 or (p[at + DRAINS] == 1 and complete == 1):
        return DRAIN, size, 0
    if overdue:
        return TIMER, size, 0
    recheck_ns = p[at + TIMEOUT_NS] - oldest_wait_ns
    if p[at + DEADLINES] == 1:
        recheck_ns = min(recheck_ns, spare_ns)
    return HOLD, 0, recheck_ns


@rule
def playback_slack(start_ns: int, chunk: int, chunk_ns: int, now_ns: int, path_ns: int) -> int:
    """Time that chunk `chunk` may still spend here before a listener notices: ``T0 + k * d - now - path``.

    Parameters
    ----------
    start_ns : int
        When playback of the stream began; -1 = it has not, then nothing can be late and the slack is UNBOUNDED.
    chunk, chunk_ns : int
        Position of the chunk in the stream, from 0, and playing time of one chunk.
    now_ns : int
        Time now.
    path_ns : int
        Estimate of the way from the end of this service to the listener; 0 at the last stage.
    """
    if start_ns < 0:
        return UNBOUNDED
    return start_ns + chunk * chunk_ns - now_ns - path_ns


@rule
def prefill_share(budget: int, decodes: int, wanted: int, atomic: int) -> int:
    """Tokens of prefill that a step takes beside its decodes: every decode goes first, the sum stays in the budget.

    With `atomic` = 1 a chunk that does not fit whole is not taken at all, instead of being clipped: an encoder's output
    cut in the middle is what stopped a stage in vLLM-Omni issue 7438.
    """
    left = max(budget - decodes, 0)
    if atomic == 1 and wanted > left:
        return 0
    return min(wanted, left)


@rule
def bucket(edges: Vector, at: int, count: int, units: int) -> int:
    """Index of the first of `count` ascending upper ends that holds `units`; `count` if all are smaller."""
    for i in range(count):
        if units <= edges[at + i]:
            return i
    return count


@rule
def captured(sizes: Vector, at: int, count: int, members: int) -> int:
    """Members that a launch of `members` pays for: the next captured size, or `members` itself beyond the last one.

    With no captured sizes (`count` = 0) nothing is padded.
    """
    i = bucket(sizes, at, count, members)
    return members if i == count else sizes[at + i]


@rule
def service(base_ns: int, each_ns: int, sizes: Vector, at: int, count: int, members: int) -> int:
    """Service time of a batch: affine in the captured size, ``base + each * captured``."""
    return base_ns + each_ns * captured(sizes, at, count, members)


@rule
def efficient(base_ns: int, each_ns: int, over_permille: int, limit: int, sizes: Vector, at: int, count: int) -> int:
    """Smallest batch whose time per member is at most ``(1 + over / 1000)`` times `each_ns`; `limit` if none is.

    Between two captured sizes all batches take equally long, so the least that meets the bound is found per interval.
    Past the last captured size the same formula holds member by member.
    """
    if each_ns == 0:
        return limit if base_ns > 0 else 1
    share = (1000 + over_permille) * each_ns
    before = 0
    for i in range(count):
        size = sizes[at + i]
        wanted = max(before + 1, ((base_ns + each_ns * size) * 1000 + share - 1) // share)
        if wanted <= size:
            return min(wanted, limit)
        before = size
    if over_permille == 0:
        return limit if base_ns > 0 else min(before + 1, limit)
    wanted = (base_ns * 1000 + over_permille * each_ns - 1) // (over_permille * each_ns)
    return min(max(wanted, before + 1), limit)


@rule
def unfilled_permille(members: int, wanted: int) -> int:
    """Share of a batch that stayed empty, ``1 - members / wanted``: the bubble at a boundary between two stages."""
    return 1000 - min(members, wanted) * 1000 // wanted


@rule
def padded_permille(units: int, members: int, longest: int) -> int:
    """Share of the computed units that is padding when `members` of together `units` are padded to `longest`."""
    return 1000 - units * 1000 // (members * longest)


@dataclass(frozen=True, slots=True)
class Batching:
    """One row of ``batchings.toml``.

    Attributes
    ----------
    name, text, source : str
        Name in kebab-case, what it does, where it comes from.
    limit : int
        Most members of a batch.
    fill : int
        Members at which a batch is worth starting: 1 = at once. 0 = the efficient size, from `over_permille`.
    over_permille : int
        How much more time per member than a very large batch costs is accepted. 0 where `fill` is stated.
    timeout_ns : int
        Longest wait of a member for company; 0 only with `fill` = 1.
    margin_ns : int
        Time kept between a deadline and the end of the service. 0 = none.
    first_alone : bool
        Whether a first chunk leaves at once, by itself.
    deadline : bool
        Whether a batch closes when the playback slack of a member allows no further member.
    drain : bool
        Whether a batch closes when nobody else can come.
    token_budget : int
        Tokens per step, decodes and prefill together; 0 = no budget.
    bucket_units : tuple of int
        Upper ends of the length buckets; empty = all lengths go together.

    Raises
    ------
    UsageError
        A number out of range, a fill above the limit, a wait without a timeout, a token budget that decodes could use
        up, both or neither of `fill` and `over_permille`.
    """

    name: str
    text: str
    source: str
    limit: int
    timeout_ns: int
    first_alone: bool
    deadline: bool
    drain: bool
    fill: int = 0
    over_permille: int = 0
    margin_ns: int = 0
    token_budget: int = 0
    bucket_units: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        where = f"batching {self.name!r}"
        for each in fields(self):
            if each.name in _COLUMNS and getattr(self, each.name) != each.default:
                _COLUMNS[each.name].check(getattr(self, each.name), f"{where}, {each.name}")
        if bool(self.fill) == bool(self.over_permille):
            found = f"fill = {self.fill}, over_permille = {self.over_permille}"
            raise UsageError("either fill or over_permille", found, where=where)
        if self.fill > self.limit:
            raise UsageError(f"fill of at most limit = {self.limit}", str(self.fill), where=where)
        if self.fill != 1 and not self.timeout_ns:
            fix = "A member could wait for company for ever, or never wait at all; say fill = 1 for the latter."
            raise UsageError("timeout_ns of at least 1", "0", where=where, fix=fix)
        if self.token_budget and self.token_budget <= self.limit:
            fix = "Decodes alone would use the budget and no prefill would ever advance."
            raise UsageError(f"token_budget above limit = {self.limit}", str(self.token_budget), where=where, fix=fix)

    def vector(self, base_ns: int = 0, each_ns: int = 0, sizes: Sequence[int] = ()) -> list[int]:
        """The parameters for a stage.

        Parameters
        ----------
        base_ns, each_ns : int
            Affine service time of the stage, for rows that fill to the efficient size; both 0 = not known, then such a
            row fills to its limit.
        sizes : sequence of int
            Captured batch sizes, ascending; empty = nothing is padded.
        """
        where = f"batching {self.name!r}"
        within(base_ns, 0, MAX_SERVICE_NS, f"{where}, base_ns")
        within(each_ns, 0, MAX_SERVICE_NS, f"{where}, each_ns")
        if sizes:
            Column(tuple, 1, MAX_BATCH).check(list(sizes), f"{where}, captured sizes")
        fill = self.fill
        if not fill:
            known = base_ns or each_ns
            fill = (
                efficient(base_ns, each_ns, self.over_permille, self.limit, list(sizes), 0, len(sizes))
                if known
                else self.limit
            )
        p = [0] * PARAMETERS
        p[LIMIT], p[FILL], p[TIMEOUT_NS], p[MARGIN_NS] = self.limit, fill, self.timeout_ns, self.margin_ns
        p[FIRST_ALONE], p[DEADLINES], p[DRAINS] = int(self.first_alone), int(self.deadline), int(self.drain)
        p[TOKEN_BUDGET] = self.token_budget
        return p


_COLUMNS = {
    "text": Column(str),
    "source": Column(str),
    "limit": Column(int, 1, MAX_BATCH),
    "fill": Column(int, 1, MAX_BATCH, optional=True),
    "over_permille": Column(int, 1, 100_000, optional=True),
    "timeout_ns": Column(int, 0, MAX_SERVICE_NS),
    "margin_ns": Column(int, 0, MAX_SERVICE_NS, optional=True),
    "token_budget": Column(int, 1, MAX_CHUNKS, optional=True),
    "bucket_units": Column(tuple, 1, MAX_CHUNKS, optional=True),
    "first_alone": Column(bool),
    "deadline": Column(bool),
    "drain": Column(bool),
}
_SHIPPED = Path(__file__).with_name("batchings.toml")


def load(path: str | Path | None = None) -> dict[str, Batching]:
    """Batch rules by name: those that ship, and those of the file at `path`; UsageError names row and key."""
    shipped = _batchings(read(_SHIPPED, _COLUMNS))
    return shipped if path is None else joined(shipped, _batchings(read(path, _COLUMNS)), path)


def _batchings(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Batching]:
    return {name: Batching(name, **row) for name, row in rows.items()}
