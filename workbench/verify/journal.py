"""The rows of a trace, written from what the protocol machine did: one journal for every driver of the machine.

A driver tells the journal each step: the time, the memory before and after, and the effects. Launches become service
spans, obstacles become waits (the kinds of a wait follow from `machine.obstacle`), chunks, credit, state objects and
outcomes become rows of their tables. Nothing is invented: what no step said stays NULL, and a launch or chunk that the
driver never saw end has no end.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from workbench.control import effects, machine
from workbench.control.effects import AT_EPOCH, EFFECT_SIZE, KIND, WHERE, WHO, A, B, C
from workbench.control.layout import (
    CHUNK_BYTES,
    EPOCH,
    IN_AT,
    IN_COUNT,
    LIMIT,
    PARENT,
    READY,
    RECEIVED,
    REQUESTS,
    RESERVED,
    RETURNED,
    RUNNING,
    SENT,
    SLOT,
    SLOT_GENERATION,
    STAGE_EPOCH,
    STAGES,
    STATUS,
    TAKEN,
    TENANT,
    Plan,
    account,
    edge_row,
    receiver,
    request,
    sender,
    stage,
    stage_row,
)
from workbench.control.phases import OPEN
from workbench.graph import CLIENT
from workbench.schema.enums import OUTCOME_STATUS
from workbench.verify import model_run
from workbench.verify.model_run import INT32, PROC, Row

Memory = Sequence[int]


class Journal:
    """Rows of one run.

    Parameters
    ----------
    plan : Plan
        What the machine was built from.
    g : sequence of int
        Its configuration.
    concurrent : bool
        True where a stage may have launches of several requests on its device at once, as in the explorer: each request
        then counts as a replica of its own.
    obstacle : function
        The rule that says what a task waits for; another one than `machine.obstacle` for a changed protocol.
    """

    def __init__(
        self,
        plan: Plan,
        g: Sequence[int],
        *,
        concurrent: bool,
        obstacle: Callable[[list[int], list[int], int, int], int] = machine.obstacle,
    ) -> None:
        self.plan, self.g, self.concurrent, self.obstacle = plan, list(g), concurrent, obstacle
        self.stages, self.edges = plan.stages, tuple(edge.name for edge in plan.carried)
        self.terminal = {i for i, edge in enumerate(plan.carried) if edge.target == CLIENT}
        self.ids = itertools.count()
        self.rows: dict[str, list[Row]] = {name: [] for name in ("span", "chunk", "credit", "object", "event")}
        self.requests: dict[int, Row] = {}
        self.outcomes: dict[int, Row] = {}
        self._services: dict[tuple[int, int], Row] = {}
        self._waits: dict[tuple[int, int], Row] = {}
        self._last: dict[tuple[int, int], Row] = {}  # the latest span of a (request, stage), waits included
        self._freed: dict[tuple[int, int], Row] = {}  # the latest launch that ended at a (stage, replica)
        self._chunks: dict[tuple[int, int, int, int], Row] = {}
        self._tasks: dict[tuple[int, int, int], int] = {}
        self._credits: dict[tuple[int, int, int], int] = {}
        self._objects: dict[tuple[int, int], int] = {}
        self._latest_chunk: dict[tuple[int, int], Row] = {}

    # --- what a driver tells ------------------------------------------------------------------------------------------

    def submitted(self, at_ns: int, r: int, m: Memory, *, scheduled_ns: int | None = None) -> None:
        """Request `r` was submitted now; its latency counts from `scheduled_ns`, by default the same moment."""
        parent = m[request(self.g, r) + PARENT]
        self.requests[r] = {
            "scheduled_ns": at_ns if scheduled_ns is None else scheduled_ns,
            "arrival_ns": at_ns,
            "parent_request": parent - 1 if parent else None,
            "tenant": f"tenant-{m[request(self.g, r) + TENANT]}",
        }
        self.outcomes.setdefault(r, {"status": "unfinished"})

    def cancelled(self, at_ns: int, r: int) -> None:
        """The client asked to cancel request `r`."""
        self.outcomes[r]["cancel_ns"] = at_ns

    def told(self, at_ns: int, r: int) -> None:
        """The client heard that request `r` has ended."""
        self.outcomes[r].setdefault("told_ns", at_ns)

    def event(self, at_ns: int, kind: str, detail: str, r: int | None = None, place: str | None = None) -> None:
        """Something else happened: a row of table ``event``."""
        self.rows["event"].append(
            {"at_ns": at_ns, "kind": kind, "request": r, "stage": place, "proc": PROC, "detail": detail}
        )

    def step(
        self,
        at_ns: int,
        before: Memory,
        after: Memory,
        out: Sequence[int],
        *,
        arrived: tuple[int, int, int, int] | None = None,
    ) -> None:
        """The machine took a step.

        Parameters
        ----------
        at_ns : int
            When.
        before, after : sequence of int
            Its memory.
        out : sequence of int
            The effect list of the step.
        arrived : tuple of int, optional
            (request, edge, epoch, sequence number) of the chunk that this step brought to its consumer.
        """
        listed = [out[1 + i * EFFECT_SIZE : 1 + (i + 1) * EFFECT_SIZE] for i in range(out[0])]
        dropped = any(effect[KIND] == effects.DROPPED for effect in listed)
        if arrived is not None and not dropped:
            self._receive(at_ns, arrived, whole=after[receiver(self.g, *arrived[:2]) + TAKEN] > 0)
        self._reserve(at_ns, before, after)
        for effect in listed:
            self._effect(at_ns, effect, before, after)
        self._notice(at_ns, before, after)
        self._wait(at_ns, after)

    # --- from steps to rows -------------------------------------------------------------------------------------------

    def _each(self) -> Iterator[tuple[int, int]]:
        return itertools.product(range(self.g[REQUESTS]), range(self.g[STAGES]))

    def _receive(self, at_ns: int, key: tuple[int, int, int, int], *, whole: bool) -> None:
        r, e, _, _ = key
        if (chunk := self._chunks.get(key)) is None or chunk["received_ns"] is not None:
            return
        chunk["received_ns"] = at_ns
        self._latest_chunk[r, e] = chunk
        if e in self.terminal or (whole and self.plan.carried[e].kind == "whole"):
            chunk["taken_ns"] = at_ns

    def _reserve(self, at_ns: int, before: Memory, after: Memory) -> None:
        g = self.g
        for r, e in itertools.product(range(g[REQUESTS]), range(len(self.edges))):
            at = account(g, r, e)
            epoch = after[request(g, r) + EPOCH]
            if after[at + RESERVED] > before[at + RESERVED]:
                if (r, e, epoch) not in self._credits:
                    self._limit(at_ns, r, e, epoch, after)
                self._credit(at_ns, r, e, epoch, "reserve", 1, g[edge_row(g, e) + CHUNK_BYTES])

    def _effect(self, at_ns: int, effect: Sequence[int], before: Memory, after: Memory) -> None:
        kind, r, where, epoch = effect[KIND], effect[WHO], effect[WHERE], effect[AT_EPOCH]
        if kind == effects.LAUNCHED:
            self._launch(at_ns, r, where, epoch, before, after)
        elif kind == effects.RECORDED:
            self._end(at_ns, r, where)
            if effect[A] == 1:
                self.event(at_ns, "note", "the result of the launch is thrown away", r, self.stages[where])
        elif kind == effects.SEND_DATA:
            self._send(at_ns, r, where, epoch, effect)
        elif kind == effects.RELEASED:
            self._release(at_ns, r, where, effect[A], effect[B])
        elif kind == effects.COMMITTED:
            outcome = self.outcomes[r]
            outcome.setdefault("first_output_ns", at_ns)
            outcome["output_units"] = outcome.get("output_units", 0) + 1
        elif kind == effects.ENDED:
            self.outcomes[r]["status"] = OUTCOME_STATUS[effect[A] - 1]
            self.outcomes[r]["ended_ns"] = at_ns
        elif kind == effects.ADMITTED and epoch > 0:
            self.event(at_ns, "epoch", f"attempt {epoch} begins", r)

    def _launch(self, at_ns: int, r: int, v: int, epoch: int, before: Memory, after: Memory) -> None:
        g = self.g
        self._close_wait(at_ns, r, v, launched=True)
        row = stage_row(g, v)
        used = []
        for i in range(g[row + IN_COUNT]):
            e = g[g[row + IN_AT] + i]
            for seq in range(before[receiver(g, r, e) + TAKEN], after[receiver(g, r, e) + TAKEN]):
                if (chunk := self._chunks.get((r, e, epoch, seq))) is not None:
                    used.append(chunk)
        last = self._last.get((r, v))
        cause, cause_span = "arrival", None
        if last is not None and last["kind"] != "service" and last["end_ns"] == at_ns:
            cause, cause_span = last["cause"], last["cause_span"]
        elif heard := [chunk for chunk in used if chunk["received_ns"] is not None]:
            newest = max(heard, key=lambda chunk: (chunk["received_ns"], chunk["span"]))
            cause, cause_span = "data", newest["span"]
        elif last is not None and last["epoch"] == epoch:
            cause, cause_span = "state", last["span"]
        number = self._tasks.get((r, v, epoch), 0)
        self._tasks[r, v, epoch] = number + 1
        span = self._span(r, v, epoch, number, "service", at_ns, cause, cause_span)
        self._services[r, v] = span
        for chunk in used:
            chunk["taken_ns"], chunk["consumer_span"] = at_ns, span["span"]
        slot, generation = after[stage(g, r, v) + SLOT], after[stage(g, r, v) + SLOT_GENERATION]
        self._object(at_ns, "use", r, v, slot, generation)

    def _end(self, at_ns: int, r: int, v: int) -> None:
        if (span := self._services.pop((r, v), None)) is not None:
            span["end_ns"] = at_ns
            self.rows["span"].append(span)
            self._last[r, v] = span
            self._freed[v, span["replica"]] = span

    def _send(self, at_ns: int, r: int, e: int, epoch: int, effect: Sequence[int]) -> None:
        key = (r, e, epoch, effect[A])
        if key in self._chunks:
            self.event(at_ns, "note", f"chunk {effect[A]} is sent again", r, self.plan.carried[e].source)
            return
        source = self.stages.index(self.plan.carried[e].source)
        made = self._last.get((r, source))
        self._chunks[key] = {
            "span": next(self.ids), "edge": self.edges[e], "request": r, "epoch": epoch, "seq": effect[A],
            "bytes": effect[B], "units": 1, "emitted_ns": at_ns, "sent_ns": at_ns, "received_ns": None,
            "taken_ns": None, "producer_span": made["span"] if made and made["kind"] == "service" else None,
            "consumer_span": None, "final": bool(effect[C]),
        }  # fmt: skip
        self.rows["chunk"].append(self._chunks[key])
        self._credit(at_ns, r, e, epoch, "take", 1, effect[B])

    def _notice(self, at_ns: int, before: Memory, after: Memory) -> None:
        """What no effect tells: launches and state that died with a worker, slots, and credit that came back."""
        g = self.g
        for r, v in self._each():
            at = stage(g, r, v)
            if (r, v) in self._services and after[at + RUNNING] == 0:
                self._end(at_ns, r, v)
            had, has = before[at + SLOT], after[at + SLOT]
            if has != had and had >= 0:
                self._release(at_ns, r, v, had, before[at + SLOT_GENERATION])
            if has != had and has >= 0:
                self._object(at_ns, "allocate", r, v, has, after[at + SLOT_GENERATION])
        for r, e in itertools.product(range(g[REQUESTS]), range(len(self.edges))):
            at, epoch = account(g, r, e), before[request(g, r) + EPOCH]
            back = after[at + RETURNED] - before[at + RETURNED]
            if back > 0 and before[at + RESERVED] == after[at + RESERVED]:
                end = sender(g, r, e)
                # A reclaim takes back more than was reported: what was sent and never known to be taken is discarded.
                sent = sum(1 for key in self._chunks if key[:3] == (r, e, epoch))
                moved = min(back, sent - before[at + RETURNED])
                reclaimed = after[end + SENT] == 0
                if moved > 0:
                    self._credit(at_ns, r, e, epoch, "discard" if reclaimed else "return", moved, None)
            if after[sender(g, r, e) + LIMIT] > before[sender(g, r, e) + LIMIT] and (r, e, epoch) in self._credits:
                self._limit(at_ns, r, e, epoch, after)

    def _limit(self, at_ns: int, r: int, e: int, epoch: int, m: Memory) -> None:
        """The absolute limit that the sender knows now; none where the window has no bound on chunks."""
        limit = m[sender(self.g, r, e) + LIMIT]
        if limit <= INT32:
            self._credit(at_ns, r, e, epoch, "grant", limit, None)

    def _credit(self, at_ns: int, r: int, e: int, epoch: int, event: str, chunks: int, size_bytes: int | None) -> None:
        seq = self._credits[r, e, epoch] = self._credits.get((r, e, epoch), -1) + 1
        self.rows["credit"].append(
            {"edge": self.edges[e], "request": r, "epoch": epoch, "event": event, "seq": seq, "at_ns": at_ns}
            | {"chunks": chunks, "bytes": size_bytes}
        )

    def _object(self, at_ns: int, event: str, r: int, v: int, slot: int, generation: int) -> None:
        if event == "allocate":
            self._objects[v, slot] = next(self.ids)
        if (v, slot) in self._objects:
            self.rows["object"].append(
                {"object": self._objects[v, slot], "event": event, "at_ns": at_ns, "request": r}
                | {"stage": self.stages[v], "kind": "kv", "generation": generation}
            )

    def _release(self, at_ns: int, r: int, v: int, slot: int, generation: int) -> None:
        self._object(at_ns, "release", r, v, slot, generation)
        self._objects.pop((v, slot), None)

    def _wait(self, at_ns: int, m: Memory) -> None:
        for r, v in self._each():
            kind = self._obstacle(m, r, v)
            open_wait = self._waits.get((r, v))
            if open_wait is not None and open_wait["kind"] != kind:
                self._close_wait(at_ns, r, v, launched=False)
                open_wait = None
            if kind and open_wait is None:
                epoch = m[stage(self.g, r, v) + STAGE_EPOCH]
                number = self._tasks.get((r, v, epoch), 0)
                self._waits[r, v] = self._span(r, v, epoch, number, kind, at_ns, "unknown", None)

    def _obstacle(self, m: Memory, r: int, v: int) -> str:
        """Kind of the wait that request `r` is in at stage `v`; empty for none."""
        g, memory = self.g, list(m)
        at = stage(g, r, v)
        if m[at + STATUS] != OPEN or m[at + RUNNING] == 1:
            return ""
        if m[at + READY] == 1:
            return "queue"
        why = self.obstacle(g, memory, r, v)
        if why in (machine.NO_WINDOW, machine.NO_ROOM):
            return "credit_stall"
        if why == machine.NO_INPUT:
            row = stage_row(g, v)
            there = [receiver(g, r, g[g[row + IN_AT] + i]) for i in range(g[row + IN_COUNT])]
            return "join_wait" if any(m[end + RECEIVED] > m[end + TAKEN] for end in there) else ""
        return "queue" if why in (machine.GO, machine.NO_SLOT) else ""

    def _close_wait(self, at_ns: int, r: int, v: int, *, launched: bool) -> None:
        wait = self._waits.pop((r, v), None)
        if wait is None or wait["start_ns"] == at_ns:
            return
        wait["end_ns"] = at_ns
        freed = self._freed.get((v, wait["replica"]))
        if wait["kind"] == "credit_stall":
            wait["cause"] = "credit"
        elif wait["kind"] == "join_wait":
            row = stage_row(self.g, v)
            ends = [self._latest_chunk.get((r, self.g[self.g[row + IN_AT] + i])) for i in range(self.g[row + IN_COUNT])]
            if newest := [chunk for chunk in ends if chunk and chunk["received_ns"] == at_ns]:
                wait["cause"], wait["cause_span"] = "data", newest[-1]["span"]
        elif launched and freed is not None and freed["end_ns"] == at_ns:
            wait["cause"], wait["cause_span"] = "resource", freed["span"]
        self.rows["span"].append(wait)
        self._last[r, v] = wait

    def _span(
        self, r: int, v: int, epoch: int, number: int, kind: str, at_ns: int, cause: str, cause_span: int | None
    ) -> Row:
        return {
            "span": next(self.ids), "request": r, "stage": self.stages[v], "replica": r if self.concurrent else 0,
            "epoch": epoch, "chunk": number, "kind": kind, "start_ns": at_ns, "end_ns": at_ns, "cause": cause,
            "cause_span": cause_span, "proc": PROC,
        }  # fmt: skip

    # --- the run ------------------------------------------------------------------------------------------------------

    def tables(self, end_ns: int, **run: Any) -> dict[str, pa.Table]:
        """All tables of the run, closed at `end_ns`; `run` are columns of its ``run`` row, ``label`` at least."""
        for r, v in list(self._services):
            self._end(end_ns, r, v)
        for r, v in list(self._waits):
            self._close_wait(end_ns, r, v, launched=False)
        requests, outcomes = [], []
        for r in range(self.g[REQUESTS]):
            known = self.requests.get(r, {"scheduled_ns": end_ns, "tenant": "tenant-0"})
            requests.append({"request": r, "class": "small", "weight": 1.0, **known})
            outcomes.append(self._outcome(r))
        rows: dict[str, list[Row]] = {
            **self.rows,
            "run": [model_run.run_row(run, min(row["scheduled_ns"] for row in requests), end_ns, self.rows)],
            "proc": [{"proc": PROC, "name": "model", "host": "model"}],
            "stage": model_run.stage_rows(self.plan, self.plan.requests if self.concurrent else 1),
            "edge": model_run.edge_rows(self.plan),
            "request": requests,
            "outcome": outcomes,
        }
        rows["span"].sort(key=lambda row: (row["start_ns"], row["span"]))
        return model_run.as_tables(rows)

    def _outcome(self, r: int) -> Row:
        known = self.outcomes.get(r, {"status": "unfinished"})
        row = {"request": r, "status": known["status"], "cancel_ns": known.get("cancel_ns")}
        row |= {"first_output_ns": known.get("first_output_ns"), "output_units": known.get("output_units")}
        finals = [
            chunk["received_ns"]
            for (who, e, _, _), chunk in self._chunks.items()
            if who == r and e in self.terminal and chunk["final"] and chunk["taken_ns"] is not None
        ]
        if row["status"] == "ok" and finals:
            row["end_ns"] = max(finals)
        elif row["status"] != "unfinished":
            # A client that cancelled knows at once, any other when it is told.
            when = ("cancel_ns", "told_ns", "ended_ns") if row["status"] == "cancelled" else ("told_ns", "ended_ns")
            row["end_ns"] = next(known[name] for name in when if name in known)
        return row
