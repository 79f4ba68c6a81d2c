"""A random streaming run whose true causes are known: every start is a maximum that this file takes itself.

The tasks run in one fixed order; each launch starts at the latest of its members' data, state and credits, of the
launch before on its replica and of its timer, plus a random lag. Nothing here knows how the package finds paths.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from workbench.schema.tables import TABLES

DATA, STATE, CREDIT, RESOURCE, BATCH = range(5)
KIND = {CREDIT: ("credit_stall", "credit"), RESOURCE: ("queue", "resource"), BATCH: ("batch_wait", "batch")}

Row = dict[str, Any]
Segment = tuple[str, int, int, int | None]  # kind, start, end, span (None: a wait row, whose id is of no interest)


@dataclass(eq=False, repr=False)
class Act:
    """An activity with the moments it waited for: (time, kind, act, by its start, trip)."""

    id: int
    request: int
    kind: str
    duration: int
    lag: int
    causes: list[Cause] = field(default_factory=list)
    stage: str | None = None
    chunk: int = -1
    edge: str | None = None
    replica: int = 0
    launch: Launch | None = None
    start: int = 0
    end: int = 0


@dataclass(eq=False, repr=False)
class Cause:
    """A moment that an activity waited for; without `act` the arrival of the request."""

    kind: int
    act: Act | None
    at_start: bool = False
    trip: int = 0
    told: int | None = None  # id that a wait row names, where it is not that of `act`

    def moment(self, scheduled: int) -> int:
        base = scheduled if self.act is None else self.act.start if self.at_start else self.act.end
        return base + self.trip

    @property
    def id(self) -> int:
        return -1 if self.act is None else self.act.id

    @property
    def name(self) -> int | None:
        return self.told or (None if self.act is None else self.act.id)


@dataclass(eq=False, repr=False)
class Launch:
    """Members that start together, after the launch before on the same replica."""

    members: list[Act]
    before: Launch | None
    lag: int
    timer: tuple[Act, Cause] | None = None


class Run:
    """A random run: a graph, requests, an order of launches, and the times that follow from them."""

    def __init__(self, seed: int, *, credits: bool = True, least: int = 0) -> None:
        self.rng = random.Random(seed)
        self.least = least
        rng = self.rng
        self.stages = [f"s{i}" for i in range(rng.randint(1, 4))]
        self.replicas = {stage: rng.randint(1, 2) for stage in self.stages}
        self.limit = {stage: rng.randint(1, 3) for stage in self.stages}
        chunks = rng.randint(1, 3)
        pairs = [
            (a, b)
            for i, a in enumerate(self.stages)
            for b in self.stages[i + 1 :]
            if rng.random() < 0.6 or b == self.stages[i + 1]
        ]
        self.edges = [("client", s) for s in self.stages if s not in [b for _, b in pairs]]
        self.edges += pairs
        self.edges += [(s, "client") for s in self.stages if s not in [a for a, _ in pairs] or rng.random() < 0.2]
        self.streams = {edge: "client" not in edge[:1] and rng.random() < 0.7 for edge in self.edges}
        self.tasks = dict.fromkeys(self.stages, chunks)
        whole = [a for a, b in pairs if not self.streams[a, b]]
        self.windows = {
            edge: rng.randint(1, 2)
            for edge in pairs
            if credits and self.streams[edge] and edge[0] not in whole and rng.random() < 0.5
        }
        self.returned_at_start = {edge: rng.random() < 0.5 for edge in pairs}
        self.trips = {edge: rng.choice((0, 0, 1, 4)) for edge in pairs}
        self.requests = list(range(1, rng.randint(2, 5)))
        self.scheduled = {r: 1_000 + rng.randint(0, 15) for r in self.requests}
        self.ids = list(range(1, 4_000))
        rng.shuffle(self.ids)
        self.acts: list[Act] = []
        self.launches: list[Launch] = []
        self.order: list[Act | Launch] = []
        self.sent: dict[tuple[int, str, str, int], Act] = {}
        self.served: dict[tuple[int, str, int], Act] = {}
        self.consumed: dict[int, Act] = {}
        self.build()
        for what in self.order:
            if isinstance(what, Launch):
                self.add_timer(what)
            self.place(what)

    def time(self) -> int:
        """A short time, 0 every third time."""
        return self.rng.choice((0, self.rng.randint(1, 4), self.rng.randint(1, 12)))

    def act(self, request: int, kind: str, causes: list[Cause], **where: Any) -> Act:
        lag = self.rng.choice((0, 0, 0, 1, 2))
        time = max(self.time(), self.least if kind == "service" else 0)
        made = Act(self.ids.pop(), request, kind, time, lag, causes, **where)
        self.acts.append(made)
        return made

    # --- structure ----------------------------------------------------------------------------------------------

    def build(self) -> None:
        last: dict[tuple[str, int], Launch] = {}
        for r in self.requests:
            client = self.act(r, "host", [], stage="client")
            client.lag = 0
            self.order.append(client)
            for edge in self.edges:
                if edge[0] == "client":
                    self.send(edge, r, 0, client)
        waiting = {(r, s, k) for r in self.requests for s in self.stages for k in range(self.tasks[s])}
        while waiting:
            able = sorted(task for task in waiting if self.can_run(task))
            if not able:
                # A window that waits for its own consumer: such a run would not end, so it has no windows.
                assert self.windows, "a run without credits always ends"
                stuck = self.windows.popitem()
                assert stuck
                continue
            chosen = self.rng.choice(able)
            stage = chosen[1]
            replica = self.rng.randrange(self.replicas[stage])
            others = [task for task in able if task[1] == stage and task[0] != chosen[0]]
            team = {chosen[0]: chosen} | {task[0]: task for task in others if self.rng.random() < 0.7}
            members = [self.task(team[r], replica) for r in list(team)[: self.limit[stage]]]
            launch = Launch(members, last.get((stage, replica)), self.rng.choice((0, 0, 1, 2)))
            for member in members:
                member.launch = launch
                member.duration = members[0].duration
                waiting.discard((member.request, stage, member.chunk))
            last[stage, replica] = launch
            self.launches.append(launch)
            self.order.append(launch)
            for member in members:
                for edge in self.edges:
                    if edge[0] == stage and (self.streams[edge] or member.chunk == self.tasks[stage] - 1):
                        self.send(edge, member.request, member.chunk if self.streams[edge] else 0, member)

    def needs(self, task: tuple[int, str, int]) -> list[tuple[int, str, str, int]]:
        r, s, k = task
        return [(r, *edge, k) for edge in self.edges if edge[1] == s and (self.streams[edge] or k == 0)]

    def credits(self, task: tuple[int, str, int]) -> list[tuple[tuple[str, str], tuple[int, str, int]]]:
        r, s, k = task
        return [(edge, (r, edge[1], k - n)) for edge, n in self.windows.items() if edge[0] == s and k >= n]

    def can_run(self, task: tuple[int, str, int]) -> bool:
        r, s, k = task
        return (
            all(need in self.sent for need in self.needs(task))
            and (k == 0 or (r, s, k - 1) in self.served)
            and all(taker in self.served for _, taker in self.credits(task))
        )

    def task(self, task: tuple[int, str, int], replica: int) -> Act:
        r, s, k = task
        inputs = [self.sent[need] for need in self.needs(task)]
        causes = [Cause(DATA, chunk) for chunk in inputs]
        if k:
            causes.append(Cause(STATE, self.served[r, s, k - 1]))
        for edge, taker in self.credits(task):
            early = self.returned_at_start[edge]
            chunk = self.sent[r, *edge, taker[2]].id
            causes.append(Cause(CREDIT, self.served[taker], early, self.trips[edge], chunk if early else None))
        made = self.act(r, "service", causes, stage=s, chunk=k, replica=replica)
        self.served[task] = made
        for chunk in inputs:
            self.consumed[chunk.id] = made
        return made

    def send(self, edge: tuple[str, str], r: int, seq: int, producer: Act) -> None:
        kind = "deliver" if edge[1] == "client" else "transfer"
        made = self.act(r, kind, [Cause(DATA, producer)], edge=f"{edge[0]}>{edge[1]}", chunk=seq)
        self.sent[r, *edge, seq] = made
        self.order.append(made)

    def add_timer(self, launch: Launch) -> None:
        """Close some launches by a timer of the member that began to wait first, from its latest cause until then."""
        if self.limit[launch.members[0].stage or ""] > 1 and self.rng.random() < 0.4:
            oldest = min(launch.members, key=lambda a: (self.own(a)[-1][0], a.id))
            since, _, cause = self.own(oldest)[-1]
            latest = max(self.own(member)[-1][0] for member in launch.members)
            wait = latest - since + self.rng.randint(1, 5)
            launch.timer = oldest, Cause(BATCH, cause.act, cause.at_start, cause.trip + wait)

    # --- times --------------------------------------------------------------------------------------------------

    def own(self, a: Act) -> list[tuple[int, int, Cause]]:
        """What an activity itself waited for, latest last; of equal moments the one that counts is last."""
        causes = list(a.causes)
        if a.launch is not None and a.launch.before is not None:
            first = min(a.launch.before.members, key=lambda m: m.id)
            causes.append(Cause(RESOURCE, first))
        found = [(c.moment(self.scheduled[a.request]), c) for c in causes]
        ordered = sorted(found, key=lambda f: (f[0], -f[1].kind, -f[1].id))
        arrival = (self.scheduled[a.request], -1, Cause(DATA, None))
        return [arrival] + [(moment, cause.kind, cause) for moment, cause in ordered]

    def released(self, what: Act | Launch) -> int:
        if isinstance(what, Act):
            return self.own(what)[-1][0]
        latest = max(self.own(member)[-1][0] for member in what.members)
        if what.before is not None:
            latest = max(latest, max(member.end for member in what.before.members))
        if what.timer is not None:
            latest = max(latest, self.fires(what.timer))
        return latest

    def fires(self, timer: tuple[Act, Cause]) -> int:
        oldest, cause = timer
        return cause.moment(self.scheduled[oldest.request])

    def evaluate(self, only: set[int] | None = None) -> None:
        """Times of all activities from durations and lags; with `only`, of the launches of these requests."""
        for what in self.order:
            members = [what] if isinstance(what, Act) else what.members
            if only is None or any(member.request in only for member in members):
                self.place(what)

    def place(self, what: Act | Launch) -> None:
        """Start and end of one activity or launch, after everything that it waits for."""
        start = self.released(what) + what.lag
        for member in [what] if isinstance(what, Act) else what.members:
            member.start, member.end = start, start + member.duration

    # --- truth --------------------------------------------------------------------------------------------------

    def terminal(self, request: int, name: str) -> Act:
        out = [a for a in self.acts if a.request == request and a.kind == "deliver"]
        if name == "first":
            return min(out, key=lambda a: (a.end, a.id))
        return min((a for a in out if self.is_final(a)), key=lambda a: (-a.end, a.id))

    def is_final(self, chunk: Act) -> bool:
        source, target = (chunk.edge or "").split(">")
        return not self.streams[source, target] or chunk.chunk == self.tasks[source] - 1

    def waits(self, a: Act) -> list[tuple[str, str, int, int, Cause | None, bool]]:
        """Wait rows of a service: (kind, cause, start, end, cause, whether the row can name what ended it)."""
        if a.launch is None:
            return []
        moments = self.own(a)
        cursor = max(m for m, kind, _ in moments if kind in (-1, DATA, STATE))
        rows = []
        for moment, kind, cause in sorted({m: (m, k, c) for m, k, c in moments}.values(), key=lambda f: f[0]):
            if moment > cursor:
                rows.append((*KIND[kind], cursor, moment, cause, True))
                cursor = moment
        released = a.start - a.launch.lag
        if released > cursor:
            if a.launch.timer is not None and self.fires(a.launch.timer) == released:
                rows.append(("batch_wait", "timer", cursor, released, None, True))
            else:
                last = max(a.launch.members, key=lambda m: (self.own(m)[-1][0], -m.id))
                cause = self.own(last)[-1][2]
                rows.append(("batch_wait", "batch", cursor, released, cause, released in self.moments(cause)))
        return rows

    def moments(self, cause: Cause) -> set[int]:
        """Moments of the row that a wait names: the end of a span; arrival and take-over of a chunk."""
        if cause.act is None:
            return set()
        if cause.told is None:
            return {cause.act.end}
        return {cause.act.start, next(chunk.end for chunk in self.acts if chunk.id == cause.told)}

    def path(self, request: int, terminal: str) -> list[Segment]:
        """Truth of the request view."""
        a: Act | None = self.terminal(request, terminal)
        low, out = self.scheduled[request], []
        while a is not None:
            out.append((a.kind, a.start, a.end, a.id))
            moment, _, cause = max(
                (f for f in self.own(a) if f[1] in (-1, DATA, STATE)), key=lambda f: (f[0], -f[1], -f[2].id)
            )
            cursor = a.start
            for kind, _, start, end, _, named in reversed(self.waits(a)):
                out.append(("host", end, cursor, a.id))
                out.append((kind, start, end, None) if named else ("unattributed", start, end, a.id))
                cursor = start
            out.append(("host", moment, cursor, a.id))
            a = cause.act
        assert out[-1][1] == low
        return [piece for piece in reversed(out) if piece[2] > piece[1]]

    def system_path(self, request: int, terminal: str) -> list[tuple[str, int, int]]:
        """Truth of the system view: (kind, start, end), cut at the arrival of the request."""
        a = self.terminal(request, terminal)
        low, out, through = self.scheduled[request], [], True
        while True:
            if through:
                out.append((a.kind, a.start, a.end))
            if a.start <= low:
                break
            moments = [f for member in (a.launch.members if a.launch else [a]) for f in self.own(member)[1:]]
            if a.launch is not None and a.launch.timer is not None:
                moments.append((self.fires(a.launch.timer), BATCH, a.launch.timer[1]))
            if not moments:
                out.append(("host", self.scheduled[a.request], a.start))
                out.append(("queue", low, self.scheduled[a.request]))
                break
            moment, kind, cause = max(moments, key=lambda f: (f[0], -f[1], -f[2].id))
            out.append(("host", moment, a.start))
            out.append(("credit_stall" if kind == CREDIT else "batch_wait", moment - cause.trip, moment))
            if cause.act is None:
                out.append(("queue", low, moment - cause.trip))
                break
            a, through = cause.act, not cause.at_start
        cut = [(kind, max(start, low), end) for kind, start, end in reversed(out)]
        return [piece for piece in cut if piece[2] > piece[1]]

    # --- tables -------------------------------------------------------------------------------------------------

    def tables(self) -> dict[str, pl.DataFrame]:
        spans, chunks, credits = [], [], []
        batches = {id(launch): number for number, launch in enumerate(self.launches, start=1)}
        for a in self.acts:
            if a.stage is not None:
                row = self.span(a, a.kind, a.start, a.end, "arrival" if a.kind == "host" else "unknown", None)
                if a.launch is not None:
                    row["batch"] = batches[id(a.launch)] if len(a.launch.members) > 1 or a.id % 2 else None
                spans.append(row)
                for kind, cause, start, end, by, _ in self.waits(a):
                    waited = self.span(a, kind, start, end, cause, by.name if by is not None else None)
                    spans.append(waited | {"span": self.ids.pop()})
                    if cause == "credit" and by is not None and by.trip:
                        edge = next(f"{x}>{y}" for x, y in self.edges if x == a.stage)
                        credits.append({"edge": edge, "request": a.request, "event": "grant", "at_ns": end})
            else:
                chunks.append(self.chunk(a))
        names = {
            "span": spans,
            "chunk": chunks,
            "credit": credits,
            "stage": [{"stage": s, "role": "client" if s == "client" else "ar"} for s in ["client", *self.stages]],
            "edge": [
                {"edge": f"{a}>{b}", "source": a, "target": b, "modality": "audio" if b == "client" else "tokens"}
                for a, b in self.edges
            ],
            "request": [{"request": r, "scheduled_ns": at} for r, at in self.scheduled.items()],
            "outcome": [{"request": r, "status": "ok"} for r in self.requests],
        }
        return {name: frame(name, rows) for name, rows in names.items()}

    def span(self, a: Act, kind: str, start: int, end: int, cause: str, by: int | None) -> Row:
        return {
            "span": a.id, "request": a.request, "stage": a.stage, "replica": a.replica, "epoch": 0, "chunk": a.chunk,
            "kind": kind, "start_ns": start, "end_ns": end, "cause": cause, "cause_span": by,
        }  # fmt: skip

    def chunk(self, a: Act) -> Row:
        taker = self.consumed.get(a.id)
        return {
            "span": a.id, "edge": a.edge, "request": a.request, "epoch": 0, "seq": a.chunk, "units": 1, "samples": 1,
            "sent_ns": a.start, "received_ns": a.end, "taken_ns": taker.start if taker else a.end,
            "producer_span": a.causes[0].id, "consumer_span": taker.id if taker else None,
            "final": a.kind == "deliver" and self.is_final(a),
        }  # fmt: skip


def frame(name: str, rows: list[Row]) -> pl.DataFrame:
    """Rows as a frame with all columns of the contract."""
    types = {"int64": pl.Int64, "int32": pl.Int32, "int16": pl.Int16, "float64": pl.Float64, "bool": pl.Boolean}
    schema = {column.name: types.get(column.type, pl.String) for column in TABLES[name].columns}
    return pl.DataFrame([{key: row.get(key) for key in schema} for row in rows], schema=schema)
