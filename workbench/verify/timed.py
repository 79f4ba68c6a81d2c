"""The protocol machine at work in simulated time: the reference driver, small enough to read in one sitting.

It calls the same rules as the explorer: a heap of moments instead of every order, one worker per stage, messages that
take a fixed time and are never lost. Which ready task a free worker takes is a priority of `workbench.control`; how far
a sender may run ahead is a credit protocol. It is no replay engine: service times are constants, and its purpose is to
show the machine, and to hand its rows to the views that judge recorded runs.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from workbench.control import credit, effects, ledger, lifecycle, machine, window
from workbench.control.effects import AT_EPOCH, EFFECT_SIZE, KIND, WHERE, WHO, A, B, C
from workbench.control.layout import (
    ADVERTISED,
    ADVERTISED_BYTES,
    OUT_AT,
    OUT_COUNT,
    PHASE,
    SENT,
    TAKEN,
    TAKEN_BYTES,
    USED,
    EdgePlan,
    Plan,
    receiver,
    request,
    sender,
    stage_row,
)
from workbench.control.phases import CLOSED_PHASE, WAITING_PHASE
from workbench.control.priorities import Priority, preset
from workbench.control.priority import INFORMATION_CLASS, choose
from workbench.control.ranges import MAX_SERVICE_NS, UNBOUNDED, within
from workbench.control.signals import SIGNALS, build, record, scale_ns
from workbench.control.window import Protocol
from workbench.errors import UsageError
from workbench.graph import CLIENT, StageGraph
from workbench.verify.journal import Journal

MAX_EVENTS = 200_000


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done, and how long each part takes.

    Attributes
    ----------
    service_ns : mapping of str to int
        Time of one launch at each stage; one chunk in, one chunk out.
    arrivals_ns : tuple of int
        Scheduled arrival of each request.
    chunks : int
        Chunks of each stream.
    chunk_bytes : mapping of str to int
        Size of a chunk on each edge ``source>target``.
    message_ns : int
        Time that every message takes.
    pause_ns : tuple of int
        From when until when the client does not read; chunks that reach it in between are taken at the end.
    cancels_ns : mapping of int to int
        Request -> when its client cancels.
    """

    service_ns: Mapping[str, int]
    arrivals_ns: tuple[int, ...]
    chunks: int
    chunk_bytes: Mapping[str, int]
    message_ns: int = 0
    pause_ns: tuple[int, int] = (0, 0)
    cancels_ns: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        within(self.chunks, 1, 10_000, "chunks")
        within(self.message_ns, 0, MAX_SERVICE_NS, "message_ns")
        for name, time_ns in self.service_ns.items():
            within(time_ns, 1, MAX_SERVICE_NS, f"service_ns of {name}")


@dataclass(frozen=True, slots=True)
class TimedRun:
    """A run of the timed driver.

    Attributes
    ----------
    tables : dict of str to pyarrow.Table
        The run as a trace.
    peak_bytes : int
        Most bytes that the ledger ever counted as promised: the high-water mark of B(t), floors included.
    end_ns : int
        When the last request was closed.
    """

    tables: dict[str, pa.Table]
    peak_bytes: int
    end_ns: int


def plan_of(graph: StageGraph, work: Work, protocol: Protocol, *, total_bytes: int = UNBOUNDED) -> Plan:
    """The machine's plan under a credit protocol; `total_bytes` is B_max and holds only under shared bounds."""
    edges = {}
    for edge in graph.edges:
        if edge.source == CLIENT:
            continue
        size = work.chunk_bytes[edge.name]
        state = [0] * window.STATE
        parameters = protocol.vector(size)
        window.begin(parameters, 0, state, 0)
        chunks, window_bytes = window.window(parameters, 0, state, 0)
        edges[edge.name] = EdgePlan(size, protocol.floor_chunks, chunks, window_bytes)
    bound = total_bytes if protocol.shared_bounds else UNBOUNDED
    return Plan(graph, len(work.arrivals_ns), edges=edges, total_bytes=bound)


def run(
    graph: StageGraph,
    work: Work,
    protocol: Protocol,
    *,
    priority: Priority | None = None,
    total_bytes: int = UNBOUNDED,
    label: str = "timed",
) -> TimedRun:
    """Drive the machine until every request is closed.

    Parameters
    ----------
    graph : StageGraph
        Stages and edges.
    work : Work
        Requests and times.
    protocol : Protocol
        Row of ``protocols.toml``.
    priority : Priority, keyword-only
        Who goes first at a stage; ``stage-local`` if not given.
    total_bytes : int, keyword-only
        B_max, for a protocol with shared bounds.
    label : str, keyword-only
        Label of the run.

    Raises
    ------
    UsageError
        A stage without a service time, an edge without a chunk size, or a run that does not end: nothing was about to
        happen, or more than `MAX_EVENTS` things did.
    """
    for name in graph.order:
        if name not in work.service_ns:
            raise UsageError(f"a service time of each stage of {graph.order}", f"none of {name!r}", where="timed run")
    driver = _Driver(plan_of(graph, work, protocol, total_bytes=total_bytes), work, protocol, priority)
    driver.drive()
    tables = driver.journal.tables(
        driver.now,
        label=label,
        source=f"timed:{graph.name}",
        clock="model: simulated ns",
        control_plan=protocol.name,
        config={"protocol": protocol.name, "message_ns": work.message_ns, "service_ns": dict(work.service_ns)},
    )
    return TimedRun(tables, driver.peak_bytes, driver.now)


class _Driver:
    """One run. Every handler is one step of the machine followed by the delivery of its effects."""

    def __init__(self, plan: Plan, work: Work, protocol: Protocol, priority: Priority | None) -> None:
        self.plan, self.work, self.priority = plan, work, priority or preset("stage-local")
        self.g, self.m = plan.configuration(), plan.memory()
        self.out = [0] * effects.room(self.g)
        self.journal = Journal(plan, self.g, concurrent=False)
        self.now = self.peak_bytes = 0
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.busy: set[int] = set()
        self.requests, self.edges = len(work.arrivals_ns), plan.carried
        self.sizes = [work.chunk_bytes[edge.name] for edge in self.edges]
        self.service = [work.service_ns[name] for name in plan.stages]
        # One window per receiving end, as the protocol's law keeps it.
        self.laws = [protocol.vector(size) for size in self.sizes]
        self.windows = {(r, e): [0] * window.STATE for r in range(self.requests) for e in range(len(self.edges))}
        for (_, e), state in self.windows.items():
            window.begin(self.laws[e], 0, state, 0)
        self.inbox: dict[tuple[int, int], list[int]] = {key: [] for key in self.windows}  # arrival of what waits there
        self.stalled: set[tuple[int, int]] = set()
        self.ready: dict[tuple[int, int], int] = {}
        self.attained = [0] * self.requests

    # --- time ---------------------------------------------------------------------------------------------------------

    def at(self, moment_ns: int, do: Callable[[], None]) -> None:
        heapq.heappush(self.heap, (moment_ns, next(self.order), do))

    def drive(self) -> None:
        for r, arrival_ns in enumerate(self.work.arrivals_ns):
            self.at(arrival_ns, partial(self.submit, r))
        for r, cancel_ns in self.work.cancels_ns.items():
            self.at(cancel_ns, partial(self.cancel, r))
        done = 0
        while self.heap:
            self.now = self.heap[0][0]
            # Whatever happens at one moment has happened before a worker chooses.
            while self.heap and self.heap[0][0] == self.now:
                heapq.heappop(self.heap)[2]()
                if (done := done + 1) > MAX_EVENTS:
                    raise UsageError(f"an end within {MAX_EVENTS:,} events", "none", where="timed run")
            self.admit()
            for v in range(len(self.service)):
                if v not in self.busy:
                    self.dispatch(v)
        left = [r for r in range(self.requests) if self.m[request(self.g, r) + PHASE] != CLOSED_PHASE]
        if left:
            raise UsageError("every request closed at the end", f"requests {left} stand still", where="timed run")

    def step(self, do: Callable[[], object], arrived: tuple[int, int, int, int] | None = None) -> None:
        """One step of the machine: its rows, and its effects on their way."""
        before = list(self.m)
        self.out[0] = 0
        do()
        self.journal.step(self.now, before, self.m, self.out, arrived=arrived)
        self.peak_bytes = max(self.peak_bytes, self.m[USED])
        self.learn(before)
        for i in range(self.out[0]):
            self.send(self.out[1 + i * EFFECT_SIZE : 1 + (i + 1) * EFFECT_SIZE])

    # --- messages -----------------------------------------------------------------------------------------------------

    def send(self, effect: list[int]) -> None:
        kind, r, where, epoch = effect[KIND], effect[WHO], effect[WHERE], effect[AT_EPOCH]
        g, m, out, soon = self.g, self.m, self.out, self.now + self.work.message_ns
        if kind == effects.SEND_START:
            self.at(soon, lambda: self.step(lambda: machine.on_start(g, m, r, where, epoch)))
        elif kind == effects.SEND_STOP:
            self.at(soon, lambda: self.step(lambda: machine.on_stop(g, m, out, r, where, epoch)))
        elif kind == effects.SEND_STOPPED:
            self.at(soon, lambda: self.step(lambda: lifecycle.stopped(g, m, out, r, where, epoch)))
        elif kind == effects.SEND_NOTICE:
            self.at(soon, lambda: self.notice(r))
        elif kind == effects.SEND_DATA:
            chunk = (r, where, epoch, effect[A])
            self.at(soon, lambda: self.arrive(chunk, effect[B], effect[C]))
        elif kind == effects.SEND_CREDIT:
            # The numbers of this moment: the window law may have changed them since the machine stated them.
            end = receiver(g, r, where)
            taken, size, limit, room = (m[end + each] for each in (TAKEN, TAKEN_BYTES, ADVERTISED, ADVERTISED_BYTES))
            self.at(
                soon,
                lambda: self.step(lambda: machine.on_credit(g, m, out, r, where, epoch, taken, size, limit, room)),
            )

    def submit(self, r: int) -> None:
        self.journal.submitted(self.now, r, self.m, scheduled_ns=self.work.arrivals_ns[r])
        self.step(lambda: lifecycle.submit(self.g, self.m, self.out, r, -1, -1))

    def cancel(self, r: int) -> None:
        self.journal.cancelled(self.now, r)
        self.journal.event(self.now, "cancel", "the client cancels", r, CLIENT)
        self.step(lambda: machine.client_cancels(self.g, self.m, r))
        arrives = self.now + self.work.message_ns
        self.at(arrives, lambda: self.step(lambda: lifecycle.cancel(self.g, self.m, self.out, r)))

    def notice(self, r: int) -> None:
        self.journal.told(self.now, r)
        self.step(lambda: machine.on_notice(self.g, self.m, r))
        self.at(self.now + self.work.message_ns, lambda: self.step(lambda: lifecycle.told(self.g, self.m, r)))

    def arrive(self, chunk: tuple[int, int, int, int], size: int, final: int) -> None:
        r, e, epoch, seq = chunk
        g, m, out = self.g, self.m, self.out
        if self.edges[e].target == CLIENT:
            begin, end = self.work.pause_ns
            if begin <= self.now < end:
                self.at(end, lambda: self.arrive(chunk, size, final))
                return
            self.inbox[r, e].append(self.now)
            self.step(lambda: machine.on_delivery(g, m, out, r, e, epoch, seq, size, final), chunk)
        else:
            self.inbox[r, e].append(self.now)
            self.step(lambda: machine.on_data(g, m, out, r, e, epoch, seq, size, final), chunk)

    def learn(self, before: list[int]) -> None:
        """Let the window law learn from each takeover of this step, before its credit message leaves."""
        for (r, e), state in self.windows.items():
            at = receiver(self.g, r, e)
            for _ in range(before[at + TAKEN], self.m[at + TAKEN]):
                waited_ns = self.now - self.inbox[r, e].pop(0)
                stalled = int((r, e) in self.stalled)
                self.stalled.discard((r, e))
                law = self.laws[e]
                credit.adapt(law, 0, state, 0, self.m, at, self.now, self.sizes[e], waited_ns, stalled)

    # --- work ---------------------------------------------------------------------------------------------------------

    def admit(self) -> None:
        """Ask again for those that wait, in order of arrival."""
        for r in range(self.requests):
            if self.m[request(self.g, r) + PHASE] == WAITING_PHASE and ledger.short_of(self.g, self.m, r, 0) == 0:
                self.step(partial(lifecycle.ask_again, self.g, self.m, self.out, r, -1, -1))

    def dispatch(self, v: int) -> None:
        """A free worker takes the task that the priority puts first."""
        able = []
        for r in range(self.requests):
            why = machine.obstacle(self.g, self.m, r, v)
            if why == machine.GO:
                self.ready.setdefault((r, v), self.now)
                able.append(r)
            elif why == machine.NO_WINDOW:
                self.stalled.update((r, e) for e in self.out_edges(v) if not credit.may_send(self.g, self.m, r, e))
        while able:
            r = able.pop(self.first(able, v))
            if self.start(r, v):
                return

    def first(self, able: list[int], v: int) -> int:
        """Place of the request that goes first among `able`."""
        spec, weights = self.priority.spec, self.priority.weights
        signals = [0] * (SIGNALS * len(able))
        for i, r in enumerate(able):
            facts = self.facts(r, v)
            build(facts, 0, spec[INFORMATION_CLASS], self.now, signals, i * SIGNALS)
        scale = scale_ns(spec[INFORMATION_CLASS], self.work.chunks * sum(self.service))
        return choose(spec, weights, signals, 0, len(able), scale)

    def facts(self, r: int, v: int) -> list[int]:
        """What is known of the next task of request `r` at stage `v`; times are constants, so estimates are exact."""
        made = self.m[sender(self.g, r, self.out_edges(v)[0]) + SENT]
        left = (self.work.chunks - made) * self.service[v] + sum(self.service[v + 1 :])
        return record(
            request=r, order=r, task=made, arrival_ns=self.work.arrivals_ns[r], ready_ns=self.ready[r, v],
            attained_ns=self.attained[r], first=int(made == 0), path_ns=left, true_path_ns=left,
            service_ns=self.service[v], true_service_ns=self.service[v],
        )  # fmt: skip

    def start(self, r: int, v: int) -> bool:
        """Reserve and launch; False if the room went to another launch of this moment."""
        g, m, out = self.g, self.m, self.out
        if machine.obstacle(g, m, r, v) != machine.GO:
            return False
        self.step(lambda: machine.reserve(g, m, r, v))
        inputs = list(self.sizes)
        self.step(lambda: machine.launch(g, m, out, r, v, inputs))
        del self.ready[r, v]
        self.busy.add(v)
        self.at(self.now + self.service[v], lambda: self.finish(r, v))
        return True

    def finish(self, r: int, v: int) -> None:
        self.busy.discard(v)
        self.attained[r] += self.service[v]
        made = self.m[sender(self.g, r, self.out_edges(v)[0]) + SENT]
        final = int(made + 1 == self.work.chunks)
        self.step(lambda: machine.finish(self.g, self.m, self.out, r, v, list(self.sizes), final, 0))

    def out_edges(self, v: int) -> list[int]:
        row = stage_row(self.g, v)
        return [self.g[self.g[row + OUT_AT] + i] for i in range(self.g[row + OUT_COUNT])]
