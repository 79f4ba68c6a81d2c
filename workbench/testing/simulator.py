"""Random runs that keep every rule of the trace contract: what the views and rules are tested on.

A small event-driven pipeline with first-come-first-served batching, credits, joins, cancels, errors and retries. It
exists to produce valid rows of every kind, many of them at equal moments; it models no particular system and predicts
nothing.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from workbench.testing.tables import Row, Tables, from_rows, run_row
from workbench.units import MS_NS, US_NS

# What befalls a request on its way.
FATES = ("ok", "cancelled", "timeout", "error", "rejected", "retried")

SAMPLE_RATE = 24_000
FRAME_SAMPLES = 240

_SERVER, _CLIENT = 1, 2
_KIND_OF_EVENT = {"cancelled": "cancel", "timeout": "deadline", "error": "error"}


@dataclass(frozen=True, slots=True)
class StageSpec:
    """A stage: how long a launch takes at most, how many replicas, and how it batches."""

    name: str
    role: str
    service_ns: int = 4 * MS_NS
    replicas: int = 1
    batch_limit: int = 1
    batch_timeout_ns: int = 0


@dataclass(frozen=True, slots=True)
class EdgeSpec:
    """An edge; `window_chunks` bounds the chunks in flight per request."""

    source: str
    target: str
    modality: str
    kind: str = "stream"
    window_chunks: int | None = None

    @property
    def name(self) -> str:
        """``source>target``."""
        return f"{self.source}>{self.target}"


@dataclass(frozen=True, slots=True)
class GraphSpec:
    """Stages and edges in topological order, the client left out of `stages`."""

    stages: tuple[StageSpec, ...]
    edges: tuple[EdgeSpec, ...]


LINEAR = GraphSpec(
    (
        StageSpec("thinker", "ar", batch_limit=3, batch_timeout_ns=2 * MS_NS),
        StageSpec("talker", "ar", batch_limit=2),
        StageSpec("code2wav", "vocoder", replicas=2),
    ),
    (
        EdgeSpec("client", "thinker", "text", "whole"),
        EdgeSpec("thinker", "talker", "tokens"),
        EdgeSpec("talker", "code2wav", "codes", window_chunks=1),
        EdgeSpec("code2wav", "client", "audio"),
    ),
)

JOIN = GraphSpec(
    (
        StageSpec("audio-encoder", "encoder", batch_limit=2, batch_timeout_ns=3 * MS_NS),
        StageSpec("vision-encoder", "encoder", service_ns=9 * MS_NS),
        StageSpec("thinker", "ar", replicas=2),
        StageSpec("vocoder", "vocoder", batch_limit=4, batch_timeout_ns=1 * MS_NS),
    ),
    (
        EdgeSpec("client", "audio-encoder", "audio", "whole"),
        EdgeSpec("client", "vision-encoder", "image", "whole"),
        EdgeSpec("audio-encoder", "thinker", "features", "whole"),
        EdgeSpec("vision-encoder", "thinker", "features", "whole"),
        EdgeSpec("thinker", "client", "text"),
        EdgeSpec("thinker", "vocoder", "codes", window_chunks=2),
        EdgeSpec("vocoder", "client", "audio"),
    ),
)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: when it arrives after the run's start, the length of its streams, whose it is, what befalls it."""

    at_ns: int
    chunks: int = 3
    klass: str = "short"
    tenant: str = "a"
    weight: float = 1.0
    fate: str = "ok"


def simulate(
    graph: GraphSpec,
    arrivals: Sequence[Arrival],
    *,
    seed: int,
    label: str = "random",
    isolated_run: str | None = None,
    origin_ns: int = 1_000 * MS_NS,
) -> Tables:
    """Run the arrivals through the graph and return what a recorder would have written.

    Parameters
    ----------
    graph : GraphSpec
        ``LINEAR``, ``JOIN`` or another.
    arrivals : sequence of Arrival
        Requests 0, 1, ... Requests of equal length carry equal content keys.
    seed : int
        Fixes every drawn duration.
    label, isolated_run : str
        For the table ``run``.
    origin_ns : int
        Clock reading at which the run starts.

    Returns
    -------
    dict of str to pyarrow.Table
        All tables of the run, in the form that :func:`workbench.trace.store.load_tables` takes.
    """
    return _Simulation(graph, arrivals, random.Random(seed), origin_ns).run(label, isolated_run)


@dataclass(slots=True)
class _Job:
    """One attempt at a request."""

    request: int
    epoch: int
    chunks: int
    alive: bool = True
    next_task: dict[str, int] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)
    last_end: dict[str, tuple[int, int]] = field(default_factory=dict)  # stage -> end, span
    inbox: dict[tuple[str, int], Row] = field(default_factory=dict)  # (edge, seq) -> chunk
    in_flight: dict[str, int] = field(default_factory=dict)
    finals: dict[str, int] = field(default_factory=dict)  # client edge -> arrival of its final chunk
    last_sent: dict[str, int] = field(default_factory=dict)
    last_received: dict[str, int] = field(default_factory=dict)
    samples: dict[str, int] = field(default_factory=dict)
    objects: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Task:
    """A task whose input and state are there."""

    job: _Job
    stage: StageSpec
    chunk: int
    ready_ns: int
    cause: str
    cause_span: int
    inputs: list[Row]
    waits: list[tuple[str, int, int, str, int | None]]
    eligible_ns: int = 0


@dataclass(slots=True)
class _Replica:
    free_ns: int
    last_span: int | None = None
    busy: bool = False


class _Simulation:
    def __init__(self, graph: GraphSpec, arrivals: Sequence[Arrival], rng: random.Random, origin_ns: int) -> None:
        self.graph = graph
        self.arrivals = arrivals
        self.rng = rng
        self.origin_ns = origin_ns
        self.ids = itertools.count(1)
        self.events: list[tuple[int, int, Callable[[int], None]]] = []
        self.order = itertools.count()
        self.rows: dict[str, list[Row]] = {
            name: [] for name in ("request", "outcome", "span", "batch", "chunk", "credit", "object", "event")
        }
        self.queues: dict[str, list[_Task]] = {stage.name: [] for stage in graph.stages}
        self.stalled: list[_Task] = []
        self.replicas = {stage.name: [_Replica(origin_ns) for _ in range(stage.replicas)] for stage in graph.stages}
        self.credit_seq: dict[tuple[str, int, int], int] = {}
        self.out = {stage.name: [e for e in graph.edges if e.source == stage.name] for stage in graph.stages}
        self.into = {stage.name: [e for e in graph.edges if e.target == stage.name] for stage in graph.stages}
        self.done: dict[int, Row] = {}

    # --- time ---------------------------------------------------------------------------------------------------

    def at(self, moment_ns: int, action: Callable[[int], None]) -> None:
        heapq.heappush(self.events, (moment_ns, next(self.order), action))

    def lag(self) -> int:
        """A short delay, often none, so that many things happen at once."""
        return self.rng.choice((0, 0, self.rng.randint(1, 300) * US_NS))

    def span_id(self) -> int:
        return _SERVER << 56 | next(self.ids)

    # --- requests -----------------------------------------------------------------------------------------------

    def run(self, label: str, isolated_run: str | None) -> Tables:
        for request, arrival in enumerate(self.arrivals):
            self.submit(request, arrival)
        while self.events:
            moment, _, action = heapq.heappop(self.events)
            action(moment)
        for request in range(len(self.arrivals)):
            self.rows["outcome"].append(self.done.get(request, {"request": request, "status": "unfinished"}))
        return self.tables(label, isolated_run)

    def submit(self, request: int, arrival: Arrival) -> None:
        scheduled = self.origin_ns + arrival.at_ns
        rejected = arrival.fate == "rejected"
        submitted = None if rejected else scheduled + self.lag()
        give_up = scheduled + self.rng.randint(0, 40) * MS_NS
        self.rows["request"].append(
            {
                "request": request,
                "class": arrival.klass,
                "tenant": arrival.tenant,
                "weight": arrival.weight,
                "scheduled_ns": scheduled,
                "arrival_ns": submitted,
                "deadline_ns": max(give_up, submitted or 0) if arrival.fate == "timeout" else None,
                "content": f"c{arrival.chunks}",
            }
        )
        if submitted is None:
            self.done[request] = {"request": request, "status": "rejected", "end_ns": scheduled, "detail": "full"}
            return
        job = self.start(request, 0, arrival.chunks, scheduled, submitted, "arrival", None)
        if arrival.fate in ("cancelled", "timeout"):
            self.at(max(give_up, submitted), lambda now: self.stop(job, arrival.fate, now))

    def start(
        self, request: int, epoch: int, chunks: int, from_ns: int, at_ns: int, cause: str, cause_span: int | None
    ) -> _Job:
        """The client hands an attempt to the first stages."""
        job = _Job(request, epoch, chunks)
        host = _CLIENT << 56 | next(self.ids)
        self.rows["span"].append(
            self.span(host, job, "client", -1, "host", from_ns, at_ns, cause, cause_span, proc=_CLIENT)
        )
        for edge in self.graph.edges:
            if edge.window_chunks is not None:
                self.credit(edge, job, "grant", at_ns, edge.window_chunks)
        for edge in self.graph.edges:
            if edge.source == "client":
                self.send(edge, job, 0, at_ns, host, True, lag=0)
        return job

    def stop(self, job: _Job, status: str, now: int) -> None:
        """The request ends before its time; its waiting work is dropped, its running work is not."""
        if job.request in self.done or not job.alive:
            return
        job.alive = False
        self.done[job.request] = {"request": job.request, "status": status, "end_ns": now} | self.delivered(job.request)
        if status == "cancelled":
            self.done[job.request]["cancel_ns"] = now
        self.rows["event"].append(
            {"at_ns": now, "kind": _KIND_OF_EVENT[status], "request": job.request, "proc": _CLIENT, "detail": status}
        )
        self.drop(job, now)

    def drop(self, job: _Job, now: int) -> None:
        for queue in self.queues.values():
            queue[:] = [task for task in queue if task.job is not job]
        self.stalled[:] = [task for task in self.stalled if task.job is not job]
        for chunk in job.inbox.values():
            if chunk["taken_ns"] is None:
                self.discard(job, chunk, now)
        self.release(job, now + self.lag())

    def discard(self, job: _Job, chunk: Row, now: int) -> None:
        edge = next(edge for edge in self.graph.edges if edge.name == chunk["edge"])
        if edge.window_chunks is not None:
            self.credit(edge, job, "discard", now, 1)

    def release(self, job: _Job, now: int) -> None:
        for number in job.objects:
            self.object_event(job, number, "release", now, 0)
        job.objects.clear()

    def delivered(self, request: int) -> Row:
        """What the client has got so far."""
        edges = {edge.name: edge for edge in self.graph.edges if edge.target == "client"}
        chunks = [
            chunk
            for chunk in self.rows["chunk"]
            if chunk["request"] == request and chunk["edge"] in edges and chunk["taken_ns"] is not None
        ]
        consumable = [
            chunk["received_ns"]
            for chunk in chunks
            if chunk["samples"] or (edges[chunk["edge"]].modality != "audio" and chunk["units"])
        ]
        return {
            "first_output_ns": min(consumable, default=None),
            "output_units": sum(chunk["samples"] or 0 for chunk in chunks),
        }

    # --- hand-offs ----------------------------------------------------------------------------------------------

    def send(
        self, edge: EdgeSpec, job: _Job, seq: int, made_ns: int, producer: int, final: bool, lag: int | None = None
    ) -> None:
        sent = made_ns + (self.lag() if lag is None else lag)
        sent = max(sent, job.last_sent.get(edge.name, 0))
        received = sent + self.rng.choice((0, self.rng.randint(1, 2_000) * US_NS))
        received = max(received, job.last_received.get(edge.name, 0))
        job.last_sent[edge.name], job.last_received[edge.name] = sent, received
        chunk: Row = {
            "span": (_CLIENT if edge.target == "client" else _SERVER) << 56 | next(self.ids),
            "edge": edge.name,
            "request": job.request,
            "epoch": job.epoch,
            "seq": seq,
            "bytes": self.rng.randint(0, 5_000),
            "units": self.rng.randint(0, 4),
            "emitted_ns": made_ns,
            "sent_ns": sent,
            "received_ns": received,
            "taken_ns": None,
            "producer_span": producer,
            "consumer_span": None,
            "final": final,
            "samples": None,
        }
        if edge.target == "client" and edge.modality == "audio":
            start = job.samples.get(edge.name, 0)
            frames = self.rng.randint(0 if seq == 0 else 1, 6)
            job.samples[edge.name] = start + frames * FRAME_SAMPLES
            chunk |= {"sample_start": start, "samples": frames * FRAME_SAMPLES, "sample_rate": SAMPLE_RATE}
            chunk |= {"frame_start": start // FRAME_SAMPLES, "frames": frames, "state_generation": 0}
        if edge.window_chunks is not None:
            self.credit(edge, job, "take", sent, 1)
        self.rows["chunk"].append(chunk)
        self.at(received, lambda now: self.receive(edge, job, chunk, now))

    def receive(self, edge: EdgeSpec, job: _Job, chunk: Row, now: int) -> None:
        if not job.alive:
            self.discard(job, chunk, now)
            return
        if edge.target != "client":
            job.inbox[edge.name, chunk["seq"]] = chunk
            self.poll(job, edge.target, now)
            return
        chunk["taken_ns"] = now
        if chunk["final"]:
            job.finals[edge.name] = now
        if len(job.finals) == sum(edge.target == "client" for edge in self.graph.edges):
            self.done[job.request] = {"request": job.request, "status": "ok", "end_ns": now}
            self.done[job.request] |= self.delivered(job.request)
            self.release(job, now)

    def credit(self, edge: EdgeSpec, job: _Job, event: str, at_ns: int, chunks: int) -> None:
        key = (edge.name, job.request, job.epoch)
        self.credit_seq[key] = self.credit_seq.get(key, -1) + 1
        row = {"edge": edge.name, "request": job.request, "epoch": job.epoch, "event": event}
        self.rows["credit"].append(row | {"seq": self.credit_seq[key], "at_ns": at_ns, "chunks": chunks})
        if event == "take":
            job.in_flight[edge.name] = job.in_flight.get(edge.name, 0) + 1
        elif event in ("return", "discard"):
            job.in_flight[edge.name] -= 1

    # --- tasks --------------------------------------------------------------------------------------------------

    def tasks(self, job: _Job, stage: str) -> int:
        return job.chunks if any(edge.kind == "stream" for edge in self.out[stage]) else 1

    def poll(self, job: _Job, name: str, now: int) -> None:
        """Queue the next task of (job, stage) if its input and the task before it are there."""
        number = job.next_task.get(name, 0)
        if name in job.busy or number >= self.tasks(job, name):
            return
        needed = [(edge.name, number) for edge in self.into[name] if edge.kind == "stream" or number == 0]
        if any(key not in job.inbox for key in needed):
            return
        inputs = [job.inbox[key] for key in needed]
        stage = next(stage for stage in self.graph.stages if stage.name == name)
        causes = [(chunk["received_ns"], 1, "data", chunk["span"]) for chunk in inputs]
        waits: list[tuple[str, int, int, str, int | None]] = []
        if len(inputs) > 1:
            first = min(chunk["received_ns"] for chunk in inputs)
            last_ns, _, _, last = max(causes)
            if last_ns > first:
                waits.append(("join_wait", first, last_ns, "data", last))
        if number > 0:
            causes.append((job.last_end[name][0], 0, "state", job.last_end[name][1]))
        ready, _, cause, cause_span = max(causes)
        job.busy.add(name)
        job.next_task[name] = number + 1
        task = _Task(job, stage, number, ready, cause, cause_span, inputs, waits, ready)
        if self.has_credit(task):
            self.enqueue(task, now)
        else:
            self.stalled.append(task)

    def has_credit(self, task: _Task) -> bool:
        return all(
            edge.window_chunks is None or task.job.in_flight.get(edge.name, 0) < edge.window_chunks
            for edge in self.out[task.stage.name]
        )

    def enqueue(self, task: _Task, now: int) -> None:
        self.queues[task.stage.name].append(task)
        self.dispatch(task.stage, now)

    def dispatch(self, stage: StageSpec, now: int) -> None:
        queue = self.queues[stage.name]
        while queue:
            idle = [replica for replica in self.replicas[stage.name] if not replica.busy]
            if not idle:
                return
            expires = queue[0].eligible_ns + stage.batch_timeout_ns
            if len(queue) < stage.batch_limit and now < expires:
                self.at(expires, lambda later: self.dispatch(stage, later))
                return
            members, queue[:] = queue[: stage.batch_limit], queue[stage.batch_limit :]
            full = len(members) == stage.batch_limit
            closed_by = "full" if full else "timer" if stage.batch_timeout_ns else "drain"
            self.launch(stage, min(idle, key=lambda replica: replica.free_ns), members, closed_by, now)

    def launch(self, stage: StageSpec, replica: _Replica, members: list[_Task], closed_by: str, now: int) -> None:
        number = self.replicas[stage.name].index(replica)
        start = now + self.lag()
        end = start + self.rng.randint(1, 4) * stage.service_ns // 4
        batch = self.span_id()
        last = max(members, key=lambda task: task.eligible_ns)
        spans = []
        for task in members:
            queued = task.eligible_ns
            if replica.last_span is not None and replica.free_ns > queued:
                task.waits.append(("queue", queued, replica.free_ns, "resource", replica.last_span))
                task.cause, task.cause_span, queued = "resource", replica.last_span, replica.free_ns
            cause, cause_span = task.cause, task.cause_span
            by: int | None = cause_span
            if now > queued:
                cause, by = ("batch", last.cause_span) if closed_by == "full" else ("timer", None)
                task.waits.append(("batch_wait", queued, now, cause, by))
            spans.append(self.serve(task, number, start, end, cause, by, batch))
        self.rows["batch"].append(
            {
                "batch": batch,
                "stage": stage.name,
                "replica": number,
                "members": len(members),
                "limit": stage.batch_limit,
                "closed_by": closed_by,
                "dispatch_ns": start,
                "end_ns": end,
            }
        )
        replica.busy, replica.last_span = True, spans[0]
        self.at(start, lambda at: self.take(members, spans, at))
        self.at(end, lambda at: self.finish(stage, replica, members, spans, at))

    def serve(self, task: _Task, replica: int, start: int, end: int, cause: str, by: int | None, batch: int) -> int:
        """Write the waits and the service of one member; returns the service's id."""
        job, name = task.job, task.stage.name
        for kind, from_ns, to_ns, why, who in task.waits:
            row = self.span(self.span_id(), job, name, task.chunk, kind, from_ns, to_ns, why, who)
            self.rows["span"].append(row | {"replica": replica})
        span = self.span_id()
        row = self.span(span, job, name, task.chunk, "service", start, end, cause, by)
        self.rows["span"].append(row | {"replica": replica, "batch": batch, "units": 1})
        if task.stage.role == "ar" and task.chunk == 0:
            number = self.span_id()
            job.objects.append(number)
            self.object_event(job, number, "allocate", start, self.rng.randint(1, 9) * 1_000, name)
        return span

    def take(self, members: list[_Task], spans: list[int], now: int) -> None:
        """The launch begins: its inputs are taken over, which gives their credits back."""
        for task, span in zip(members, spans, strict=True):
            for chunk in task.inputs:
                chunk["taken_ns"], chunk["consumer_span"] = now, span
                edge = next(edge for edge in self.into[task.stage.name] if edge.name == chunk["edge"])
                if edge.window_chunks is not None and task.job.alive:
                    self.credit(edge, task.job, "return", now, 1)
                    self.unstall(task.job, chunk["span"], now)

    def unstall(self, job: _Job, by: int, now: int) -> None:
        for task in [task for task in self.stalled if task.job is job and self.has_credit(task)]:
            self.stalled.remove(task)
            if now > task.ready_ns:
                task.waits.append(("credit_stall", task.ready_ns, now, "credit", by))
                task.cause, task.cause_span = "credit", by
            task.eligible_ns = now
            self.enqueue(task, now)

    def finish(self, stage: StageSpec, replica: _Replica, members: list[_Task], spans: list[int], now: int) -> None:
        replica.busy, replica.free_ns = False, now
        for task, span in zip(members, spans, strict=True):
            job = task.job
            job.last_end[stage.name] = now, span
            job.busy.discard(stage.name)
            if not job.alive or self.fails(task, span, now):
                continue
            final = task.chunk == self.tasks(job, stage.name) - 1
            for edge in self.out[stage.name]:
                if edge.kind == "stream":
                    self.send(edge, job, task.chunk, now, span, final)
                elif final:
                    self.send(edge, job, 0, now, span, True)
            self.poll(job, stage.name, now)
        self.dispatch(stage, now)

    def fails(self, task: _Task, span: int, now: int) -> bool:
        """Whether this task breaks its request: the first stage's first task of a request whose fate says so."""
        job, fate = task.job, self.arrivals[task.job.request].fate
        if job.epoch > 0 or task.chunk > 0 or task.stage is not self.graph.stages[0]:
            return False
        if fate == "error":
            self.stop(job, "error", now)
        elif fate == "retried":
            job.alive = False
            self.drop(job, now)
            again = now + self.lag()
            self.at(again, lambda at: self.retry(job, span, now, at))
        return not job.alive

    def retry(self, job: _Job, span: int, failed_ns: int, now: int) -> None:
        self.start(job.request, job.epoch + 1, job.chunks, failed_ns, now, "retry", span)

    # --- rows ---------------------------------------------------------------------------------------------------

    def span(
        self,
        span: int,
        job: _Job,
        stage: str,
        chunk: int,
        kind: str,
        start: int,
        end: int,
        cause: str,
        cause_span: int | None,
        proc: int = _SERVER,
    ) -> Row:
        return {
            "span": span,
            "request": job.request,
            "stage": stage,
            "replica": 0,
            "epoch": job.epoch,
            "chunk": chunk,
            "kind": kind,
            "start_ns": start,
            "end_ns": end,
            "cause": cause,
            "cause_span": cause_span,
            "proc": proc,
        }

    def object_event(self, job: _Job, number: int, event: str, at_ns: int, size: int, stage: str | None = None) -> None:
        held = next((row for row in self.rows["object"] if row["object"] == number), None)
        self.rows["object"].append(
            {
                "object": number,
                "event": event,
                "at_ns": max(at_ns, held["at_ns"]) if held else at_ns,
                "request": job.request,
                "stage": held["stage"] if held else stage,
                "kind": "kv",
                "generation": 0,
                "bytes": size,
            }
        )

    def tables(self, label: str, isolated_run: str | None) -> Tables:
        first = min(row["scheduled_ns"] for row in self.rows["request"])
        last = max((row["end_ns"] for row in self.done.values()), default=first)
        count = sum(map(len, self.rows.values()))
        classes = sorted({arrival.klass for arrival in self.arrivals})
        return from_rows(
            {
                **self.rows,
                "run": [run_row(label, first, last, isolated_run=isolated_run, events=count, probe_ns_per_event=250.0)],
                "proc": [
                    {"proc": _SERVER, "name": "server", "host": "here", "boot_id": "0"},
                    {"proc": _CLIENT, "name": "client", "host": "here", "boot_id": "0"},
                ],
                "clock_sync": [
                    {"proc": proc, "local_ns": at, "wall_ns": at + 10**18, "ref_ns": at, "err_ns": 200}
                    for at in (first, last)
                    for proc in (_SERVER, _CLIENT)
                ],
                "stage": [
                    {"stage": "client", "role": "client", "replicas": 1, "device": "cpu", "weights": "none"},
                    *(
                        {
                            "stage": stage.name,
                            "role": stage.role,
                            "replicas": stage.replicas,
                            "device": "cpu",
                            "batch_limit": stage.batch_limit,
                            "batch_timeout_ns": stage.batch_timeout_ns,
                            "weights": "none",
                        }
                        for stage in self.graph.stages
                    ),
                ],
                "edge": [
                    {
                        "edge": edge.name,
                        "source": edge.source,
                        "target": edge.target,
                        "modality": edge.modality,
                        "kind": edge.kind,
                        "transport": "in-process",
                        "window_chunks": edge.window_chunks,
                    }
                    for edge in self.graph.edges
                ],
                "slo": [
                    {"class": name, "metric": metric, "limit_value": float(limit)}
                    for name in classes
                    for metric, limit in (("ttfa", 30 * MS_NS), ("jct", 60 * MS_NS))
                ],
            }
        )
