"""The backward walk in plain Python over dictionaries, written from the definition: slow and easy to check."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

Row = dict[str, Any]
Segment = tuple[int, str, str, int, int, int]  # request, terminal, kind, start, end, span

WAITS = ("queue", "batch_wait", "credit_stall", "join_wait")


@dataclass(eq=False)
class Activity:
    """A service, a hand-off, or the client's host span."""

    id: int
    request: int
    epoch: int
    chunk: int
    kind: str
    start: int
    end: int
    row: Row
    stage: str | None = None
    state: Activity | None = None
    inputs: list[Activity] = field(default_factory=list)
    sent: list[Activity] = field(default_factory=list)


class PlainRun:
    """Activities of a run by id, with their data and state."""

    def __init__(self, tables: Mapping[str, pl.DataFrame]) -> None:
        rows = {name: table.to_dicts() for name, table in tables.items()}
        roles = {row["stage"]: row["role"] for row in rows["stage"]}
        self.edges = {row["edge"]: row for row in rows["edge"]}
        self.to_client = {name for name, edge in self.edges.items() if roles[edge["target"]] == "client"}
        self.from_client = {name for name, edge in self.edges.items() if roles[edge["source"]] == "client"}
        self.scheduled = {row["request"]: row["scheduled_ns"] for row in rows["request"]}
        self.status = {row["request"]: row["status"] for row in rows.get("outcome", [])}
        self.credit = [row for row in rows.get("credit", []) if row["event"] in ("grant", "return", "refresh")]
        self.all: dict[int, Activity] = {}
        self.delivered: dict[int, list[Activity]] = defaultdict(list)
        self.waits: dict[tuple[int, str, int], list[Row]] = defaultdict(list)
        chains: dict[tuple[int, str, int], list[Activity]] = defaultdict(list)
        self.batches: dict[int | None, list[Activity]] = defaultdict(list)
        self.launches: dict[tuple[str, int], dict[tuple[str, int], Activity]] = defaultdict(dict)
        for row in rows["span"]:
            key = row["request"], row["stage"], row["epoch"]
            if row["kind"] in WAITS:
                self.waits[key].append(row)
            elif row["kind"] in ("service", "preprocess"):
                a = self._add(row, row["kind"], row["chunk"], row["start_ns"], row["end_ns"], row["stage"])
                chains[key].append(a)
                launch = ("span", a.id) if row["batch"] is None else ("batch", row["batch"])
                self.batches[row["batch"]].append(a)
                self.launches[row["stage"], row["replica"]].setdefault(launch, a)
            elif row["kind"] == "host" and roles[row["stage"]] == "client":
                self._add(row, "host", row["chunk"], row["start_ns"], row["end_ns"], row["stage"])
        for row in rows["chunk"]:
            if row["received_ns"] is not None:
                kind = "deliver" if row["edge"] in self.to_client else "transfer"
                self._add(row, kind, row["seq"], row["sent_ns"], row["received_ns"], None)
        for chain in chains.values():
            chain.sort(key=lambda a: (a.chunk, a.start, a.id))
            for before, after in itertools.pairwise(chain):
                after.state = before
        self.chains = chains
        for a in self.all.values():
            if a.stage is None:
                if a.row["consumer_span"] in self.all:
                    self.all[a.row["consumer_span"]].inputs.append(a)
                if a.row["producer_span"] in self.all:
                    a.inputs.append(self.all[a.row["producer_span"]])
                    self.all[a.row["producer_span"]].sent.append(a)

    def _add(self, row: Row, kind: str, chunk: int, start: int, end: int, stage: str | None) -> Activity:
        a = Activity(row["span"], row["request"], row["epoch"], chunk, kind, start, end, row, stage)
        self.all[a.id] = a
        if kind == "deliver":
            self.delivered[a.request].append(a)
        return a

    def explained(self, wait: Row) -> bool:
        """Whether the cause that a wait names ended it."""
        end, cause = wait["end_ns"], self.all.get(wait["cause_span"])
        if wait["cause"] in ("timer", "arrival"):
            return True
        if wait["cause"] == "credit" and any(
            row["at_ns"] == end
            and row["request"] in (None, wait["request"])
            and self.edges[row["edge"]]["source"] == wait["stage"]
            for row in self.credit
        ):
            return True
        if cause is None or wait["cause"] == "unknown":
            return False
        if cause.end == end:
            return True
        if cause.stage is None:
            return wait["cause"] in ("credit", "batch") and cause.row["taken_ns"] == end >= cause.end
        return wait["cause"] == "credit" and cause.start == end

    def waits_of(self, a: Activity) -> Iterator[Row]:
        """Wait rows that delayed an activity."""
        maker = a if a.stage is not None else self.all.get(a.row["producer_span"])
        if maker is None:
            return
        chain = self.chains.get((maker.request, maker.stage or "", maker.epoch), [])
        for wait in self.waits[maker.request, maker.stage or "", maker.epoch]:
            same = [b for b in chain if b.chunk == wait["chunk"]]
            later = [b for b in chain if b.start >= wait["end_ns"]]
            if wait["chunk"] < 0:
                same = later
            if not same:
                continue
            target = next((b for b in same if b.start >= wait["end_ns"]), same[-1])
            after = target.end <= wait["start_ns"] and target.start < wait["end_ns"]
            sending = wait["kind"] == "credit_stall" and after
            if not sending:
                held = a is target
            elif a.stage is None:
                held = maker is target and wait["end_ns"] <= a.start
            else:
                held = a.state is target and wait["end_ns"] <= a.start
            if held:
                yield wait

    def causes(self, a: Activity) -> list[tuple[int, int, int, Activity]]:
        """Data and state of an activity as (moment, order of ties, id, activity)."""
        found = [(b.end, 0, b.id, b) for b in a.inputs]
        if a.state is not None:
            found.append((a.state.end, 1, a.state.id, a.state))
        named = self.all.get(a.row["cause_span"]) if a.stage is not None else None
        if named is not None and a.row["cause"] in ("data", "state", "retry"):
            found.append((named.end, 0 if a.row["cause"] == "data" else 1, named.id, named))
        for wait in self.waits_of(a):
            named = self.all.get(wait["cause_span"])
            if named is not None and wait["cause"] in ("data", "state", "retry") and named.end == wait["end_ns"]:
                found.append((named.end, 0 if wait["cause"] == "data" else 1, named.id, named))
        return found

    def replica_before(self, a: Activity) -> tuple[int | None, bool]:
        """When the replica was last freed before an activity, and whether another launch was still running there."""
        if a.kind not in ("service", "preprocess"):
            return None, False
        ends = [b.end for b in self.launches[a.stage or "", a.row["replica"]].values() if b.start < a.start]
        latest = max(ends, default=None)
        return (latest, False) if latest is None or latest <= a.start else (None, True)

    def together(self, a: Activity) -> list[Activity]:
        """Members of an activity's launch."""
        batch = a.row.get("batch")
        return [a] if batch is None else self.batches[batch]

    def ended_by_cause(self, wait: Row, a: Activity) -> bool:
        return self.explained(wait) and wait["end_ns"] <= a.start

    def timer(self, a: Activity) -> int | None:
        """Timer wait of the member of a launch that began to wait first."""
        waits = [
            (wait["start_ns"], member.id, wait["span"])
            for member in self.together(a)
            for wait in self.waits_of(member)
            if wait["cause"] == "timer" and self.ended_by_cause(wait, member)
        ]
        return min(waits)[2] if waits else None

    def latest(self, a: Activity, low: int) -> int:
        """The last thing that an activity itself waited for."""
        moments = [low, self.scheduled[a.request], *(moment for moment, *_ in self.causes(a))]
        freed, _ = self.replica_before(a)
        if freed is not None:
            moments.append(freed)
        if a.stage is not None and a.row["cause"] == "resource" and a.row["cause_span"] in self.all:
            moments.append(self.all[a.row["cause_span"]].end)
        timer = self.timer(a)
        for wait in self.waits_of(a):
            if self.ended_by_cause(wait, a) and (wait["cause"] != "timer" or wait["span"] == timer):
                moments.append(wait["end_ns"])
        return max(moments)

    def path(self, terminal: Activity) -> list[tuple[str, int, int, int]]:
        """Segments (kind, start, end, span) from arrival to terminal."""
        low, a, out = self.scheduled[terminal.request], terminal, []
        while True:
            out.append((a.kind, max(a.start, low), a.end, a.id))
            if a.start <= low:
                break
            causes = self.causes(a)
            ready, _, _, following = min(causes, key=lambda c: (-c[0], c[1], c[2]), default=(low, 0, 0, None))
            ready = max(ready, low)
            waits = sorted(self.waits_of(a), key=lambda w: (w["start_ns"], w["span"]))
            _, busy = self.replica_before(a)
            latest = max(ready, *(self.latest(member, low) for member in self.together(a)))
            latest = max([latest] + [w["end_ns"] for w in waits if self.ended_by_cause(w, a)])
            rooted = a.kind == "host" or (
                a.row["cause"] == "arrival"
                if a.stage is not None
                else a.row["producer_span"] is None and a.row["edge"] in self.from_client
            )
            rest = "unattributed" if busy or (not causes and not rooted and latest == low) else "host"
            here, cursor = [], a.start
            for wait in reversed(waits):
                begin, stop = max(wait["start_ns"], ready), min(wait["end_ns"], cursor)
                if stop > begin:
                    here += self._gap(a, stop, cursor, latest, rest)
                    if self.ended_by_cause(wait, a):
                        here.append((wait["kind"], begin, stop, wait["span"]))
                    else:
                        here.append(("unattributed", begin, stop, a.id))
                    cursor = begin
            out += here + self._gap(a, ready, cursor, latest, rest)
            if following is None or ready <= low:
                break
            a = following
        return _merged([piece for piece in reversed(out) if piece[2] > piece[1]])

    def _gap(self, a: Activity, low: int, high: int, latest: int, rest: str) -> list[tuple[str, int, int, int]]:
        middle = min(max(low, latest), high)
        return [(rest, middle, high, a.id), ("unattributed", low, middle, a.id)]

    def terminal(self, request: int, name: str) -> Activity | None:
        """The delivery that ends a request's path."""
        done = []
        for a in self.delivered[request]:
            if name == "first":
                audio = self.edges[a.row["edge"]]["modality"] == "audio"
                if (a.row["samples" if audio else "units"] or 0) > 0:
                    done.append((a.end, a.id, a))
            elif a.row["final"] and self.status.get(request, "ok") == "ok":
                done.append((-a.end, a.id, a))
        return min(done)[2] if done else None


def _merged(pieces: list[tuple[str, int, int, int]]) -> list[tuple[str, int, int, int]]:
    """Join neighboring pieces of the same lag."""
    out: list[tuple[str, int, int, int]] = []
    for kind, start, end, span in pieces:
        if out and kind in ("host", "unattributed") and out[-1][0] == kind and out[-1][3] == span:
            start = out.pop()[1]
        out.append((kind, start, end, span))
    return out


def plain_paths(tables: Mapping[str, pl.DataFrame]) -> list[Segment]:
    """All segments of all requests to both terminals, in the order of `CriticalPaths.segments`."""
    run = PlainRun(tables)
    found: list[Segment] = []
    for terminal in ("first", "job"):
        for request in sorted(run.scheduled):
            end = run.terminal(request, terminal)
            for kind, start, stop, span in run.path(end) if end else ():
                found.append((request, terminal, kind, start, stop, span))
    return found
