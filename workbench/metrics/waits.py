"""Recorded waits, each tied to the activity that it delayed, and judged by whether its cause really ended it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from workbench.metrics.activities import PREPROCESS, SERVICE, Activities, Places, Requests
from workbench.metrics.tables import NONE, Bools, Finder, Ints, codes, need, whole
from workbench.schema.enums import CAUSE, SPAN_KIND, WAIT_KINDS
from workbench.twin import compiled

BATCH_WAIT, CREDIT_STALL = SPAN_KIND.index("batch_wait"), SPAN_KIND.index("credit_stall")
CAUSE_CODE = {name: position for position, name in enumerate(CAUSE)}


@dataclass(frozen=True, slots=True)
class Waits:
    """Wait rows by activity: those of activity x are the entries ``ptr[x]`` to ``ptr[x + 1]``, in order of their start.

    A row stands twice when it delayed two activities: a sender that waits for credit holds back both the chunk in its
    hand and its own next task.

    Attributes
    ----------
    ptr : int64, length n_activities + 1
        Offsets.
    span, start_ns, end_ns : int64
        The wait row.
    kind, cause : int16
        Positions in SPAN_KIND and CAUSE.
    explained : bool
        Whether the named cause ended the wait: it is a timer or an arrival, or one of its moments equals `end_ns`.
    source : int64
        Activity that ended it; -1 for none, a timer, or one that is not in the graph.
    at_start : bool
        Whether the decisive moment of `source` is its start (a take-over) and not its end.
    offset_ns : int64
        `end_ns` minus that moment: 0, or the trip of a credit.
    """

    ptr: Ints
    span: Ints
    start_ns: Ints
    end_ns: Ints
    kind: Ints
    cause: Ints
    explained: Bools
    source: Ints
    at_start: Bools
    offset_ns: Ints

    def __len__(self) -> int:
        return len(self.span)


@dataclass(frozen=True, slots=True)
class Links:
    """Activities that other activities name by id: their positions, -1 where there is none in the graph."""

    find: Finder
    consumer: Ints
    cause: Ints

    @classmethod
    def of(cls, activities: Activities) -> Links:
        """Resolve the ids in `activities`."""
        find = Finder(activities.span)
        return cls(find, find(activities.consumer), find(activities.cause_span))


@dataclass(frozen=True, slots=True)
class Chains:
    """Services of each (request, stage) in order of (epoch, chunk): the order in which state passes between them."""

    ptr: Ints
    members: Ints
    n_stages: int

    @classmethod
    def of(cls, activities: Activities, n_requests: int, n_stages: int) -> Chains:
        """Chain the service and preprocess activities."""
        number = np.flatnonzero((activities.kind == SERVICE) | (activities.kind == PREPROCESS))
        group = activities.request[number] * n_stages + activities.stage[number]
        ptr, members = grouped(group, n_requests * n_stages)
        members = number[members]
        _sort_chains(ptr, members, activities.epoch, activities.chunk)
        return cls(ptr, members, n_stages)

    def predecessor(self, activities: Activities) -> Ints:
        """For every activity the one before it in its chain and epoch, -1 if none."""
        before = np.full(len(activities), NONE, dtype=np.int64)
        earlier, later = self.members[:-1], self.members[1:]
        same = activities.epoch[earlier] == activities.epoch[later]
        for name in ("request", "stage"):
            column = getattr(activities, name)
            same &= column[earlier] == column[later]
        before[later[same]] = earlier[same]
        return before


def read_waits(
    span: pl.DataFrame,
    credit: pl.DataFrame | None,
    activities: Activities,
    chains: Chains,
    places: Places,
    requests: Requests,
    links: Links,
) -> Waits:
    """Collect the wait rows of table `span` and judge them.

    A wait belongs to the service of its own (request, stage, epoch, chunk), one of a whole request (chunk -1) to the
    first service that starts after it. A credit stall that began after that service had ended held back what the
    service made: it belongs to the hand-overs that began after it, and to the next service of the waiting sender.
    """
    rows = span.filter(pl.col("kind").cast(pl.String).is_in(WAIT_KINDS)).sort("start_ns", "span")
    request = Finder(requests.request)(whole(rows, "request", "span"))
    known = (request >= 0) & (len(activities) > 0)
    rows, request = rows.filter(pl.Series(known)), request[known]
    stage, kind = codes(rows, "stage", places.stages, "span"), codes(rows, "kind", SPAN_KIND, "span")
    start, end = whole(rows, "start_ns", "span"), whole(rows, "end_ns", "span")
    epoch, chunk = whole(rows, "epoch", "span"), whole(rows, "chunk", "span")
    sent = np.flatnonzero((activities.edge >= 0) & (links.cause >= 0))
    sent_ptr, position = grouped(links.cause[sent], len(activities))
    wait_ptr, wait_order = grouped(request * chains.n_stages + stage, len(chains.ptr) - 1)
    arguments = (
        chains.ptr, chains.members, wait_ptr, wait_order, kind == CREDIT_STALL, epoch, chunk, start, end,
        activities.epoch, activities.chunk, activities.start_ns, activities.end_ns, sent_ptr, sent[position],
    )  # fmt: skip
    nothing = np.empty(0, dtype=np.int64)
    pairs = _attach(*arguments, nothing, nothing)
    node, row = np.empty(pairs, dtype=np.int64), np.empty(pairs, dtype=np.int64)
    _attach(*arguments, node, row)
    ptr, order = grouped(node, len(activities))
    row = row[order]

    cause = codes(rows, "cause", CAUSE, "span")
    source = links.find(whole(rows, "cause_span", "span", NONE))
    taker = np.where(source >= 0, links.consumer[source], NONE)
    returned = _returned(credit, rows, places) & (cause == CAUSE_CODE["credit"])
    explained, source, at_start, offset = _judge(activities, taker, cause, source, end, returned)
    return Waits(
        ptr=ptr,
        span=whole(rows, "span", "span")[row],
        start_ns=start[row],
        end_ns=end[row],
        kind=kind[row],
        cause=cause[row],
        explained=explained[row],
        source=source[row],
        at_start=at_start[row],
        offset_ns=offset[row],
    )


def grouped(group: Ints, n_groups: int) -> tuple[Ints, Ints]:
    """Positions of each group as (offsets of length n_groups + 1, positions), in order within a group."""
    ptr = np.zeros(n_groups + 1, dtype=np.int64)
    members = np.empty(len(group), dtype=np.int64)
    _count_sort(group, ptr, members)
    return ptr, members


def _judge(
    activities: Activities, taker: Ints, cause: Ints, source: Ints, end: Ints, returned: Bools
) -> tuple[Bools, Ints, Bools, Ints]:
    """Whether each wait is explained, and by what moment of what: (explained, source, at_start, offset_ns)."""
    there = source >= 0
    s = np.maximum(source, 0)
    t = np.maximum(taker, 0)
    is_credit, is_batch = cause == CAUSE_CODE["credit"], cause == CAUSE_CODE["batch"]
    ended, begun, taken = activities.end_ns[s], activities.start_ns[s], activities.taken_ns[s]
    is_chunk = there & (activities.edge[s] >= 0)
    is_work = there & ~is_chunk & is_credit
    took = is_chunk & is_credit & (taker >= 0) & (activities.start_ns[t] <= taken)
    names_span = ~np.isin(cause, [CAUSE_CODE[name] for name in ("timer", "arrival", "unknown")])
    explained = (
        np.isin(cause, [CAUSE_CODE[name] for name in ("timer", "arrival")])
        | (there & names_span & (ended == end))
        | (is_chunk & (is_credit | is_batch) & (taken == end) & (ended <= end))
        | (is_work & (begun == end))
        | returned
    )
    # The latest moment of the cause that is not after the wait carries re-timing; what is left of the way is the trip.
    moment = np.full(len(source), np.iinfo(np.int64).min)
    anchor = np.full(len(source), NONE, dtype=np.int64)
    at_start = np.zeros(len(source), dtype=np.bool_)
    for usable, node, when, start in (
        (took, t, activities.start_ns[t], True),
        (there & names_span, s, ended, False),
        (is_work, s, begun, True),
    ):
        later = explained & usable & (when <= end) & (when > moment)
        moment[later], anchor[later], at_start[later] = when[later], node[later], start
    return explained, anchor, at_start, np.where(anchor >= 0, end - moment, 0)


def _returned(credit: pl.DataFrame | None, rows: pl.DataFrame, places: Places) -> Bools:
    """Whether a credit event on an edge out of the waiting stage raised a limit at the very end of the wait."""
    if credit is None or not len(credit):
        return np.zeros(len(rows), dtype=np.bool_)
    need(credit, "credit")
    raised = credit.filter(pl.col("event").cast(pl.String).is_in(["grant", "return", "refresh"]))
    stage = places.source[codes(raised, "edge", places.edges, "credit")]
    raised = raised.select("request", pl.Series("stage", stage, dtype=pl.Int16), end_ns="at_ns")
    waits = rows.select("request", pl.Series("stage", codes(rows, "stage", places.stages, "span")), "end_ns")
    waits = waits.with_row_index("row")
    own = waits.join(raised, on=("request", "stage", "end_ns"), how="semi")
    pool = waits.join(raised.filter(pl.col("request").is_null()), on=("stage", "end_ns"), how="semi")
    found = np.zeros(len(rows), dtype=np.bool_)
    found[own["row"].to_numpy()] = True
    found[pool["row"].to_numpy()] = True
    return found


@compiled
def _count_sort(group: Ints, ptr: Ints, members: Ints) -> None:
    for g in group:
        ptr[g + 1] += 1
    for g in range(len(ptr) - 1):
        ptr[g + 1] += ptr[g]
    cursor = ptr[:-1].copy()
    for position in range(len(group)):
        g = group[position]
        members[cursor[g]] = position
        cursor[g] += 1


@compiled
def _sort_chains(ptr: Ints, members: Ints, epoch: Ints, chunk: Ints) -> None:
    """Insertion sort of each chain by (epoch, chunk): members come in order of time, so almost nothing moves."""
    for g in range(len(ptr) - 1):
        for i in range(ptr[g] + 1, ptr[g + 1]):
            x = members[i]
            j = i
            while j > ptr[g]:
                y = members[j - 1]
                if epoch[y] < epoch[x] or (epoch[y] == epoch[x] and chunk[y] <= chunk[x]):
                    break
                members[j] = y
                j -= 1
            members[j] = x


@compiled
def _attach(
    chain_ptr: Ints,
    chain: Ints,
    wait_ptr: Ints,
    waits: Ints,
    stall: Bools,
    wait_epoch: Ints,
    wait_chunk: Ints,
    wait_start: Ints,
    wait_end: Ints,
    epoch: Ints,
    chunk: Ints,
    start: Ints,
    end: Ints,
    sent_ptr: Ints,
    sent: Ints,
    node: Ints,
    row: Ints,
) -> int:
    """Pair waits with activities; returns the number of pairs and writes them where `node` has room."""
    pairs = 0
    fill = len(node) > 0
    for g in range(len(chain_ptr) - 1):
        low, high = chain_ptr[g], chain_ptr[g + 1]
        for k in range(wait_ptr[g], wait_ptr[g + 1]):
            w = waits[k]
            whole_request = wait_chunk[w] < 0
            # First service of the epoch that is not before the wait: by chunk, or by time for a whole request.
            i, j = low, high
            while i < j:
                middle = (i + j) // 2
                x = chain[middle]
                if epoch[x] != wait_epoch[w]:
                    before = epoch[x] < wait_epoch[w]
                elif whole_request:
                    before = start[x] < wait_end[w]
                else:
                    before = chunk[x] < wait_chunk[w]
                if before:
                    i = middle + 1
                else:
                    j = middle
            if i == high or epoch[chain[i]] != wait_epoch[w]:
                continue
            if not whole_request and chunk[chain[i]] != wait_chunk[w]:
                continue
            # A preprocess span and a service may share a chunk: the wait precedes the one that starts after it.
            while (
                not whole_request and i + 1 < high and start[chain[i]] < wait_end[w]
                and epoch[chain[i + 1]] == wait_epoch[w] and chunk[chain[i + 1]] == wait_chunk[w]
            ):  # fmt: skip
                i += 1
            x = chain[i]
            if not stall[w] or end[x] > wait_start[w] or start[x] >= wait_end[w]:
                if fill:
                    node[pairs], row[pairs] = x, w
                pairs += 1
                continue
            for c in range(sent_ptr[x], sent_ptr[x + 1]):
                if wait_end[w] <= start[sent[c]]:
                    if fill:
                        node[pairs], row[pairs] = sent[c], w
                    pairs += 1
            if i + 1 < high and epoch[chain[i + 1]] == wait_epoch[w] and wait_end[w] <= start[chain[i + 1]]:
                if fill:
                    node[pairs], row[pairs] = chain[i + 1], w
                pairs += 1
    return pairs
