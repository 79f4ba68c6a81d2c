"""The open-loop load generator: a process of its own that sends on schedule and listens to the audio that comes back.

Latency counts from the *scheduled* arrival. The generator records requests, client-edge chunks and outcomes; every
stream is checked against the chunk contract while it arrives, and a violation ends the request as an error.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from workbench.schema.enums import CAUSE, EVENT_KIND, OUTCOME_STATUS, SPAN_KIND
from workbench.testbed.contract import StreamChecker, StreamSpec
from workbench.testbed.handoff import now_ns
from workbench.testbed.wire import Cancel, Finished, Goodbye, PcmChunk, Submit
from workbench.trace.recorder import ProcInfo, Recorder
from workbench.trace.writer import Writer
from workbench.units import S_NS
from workbench.workload.requests import PlannedRequest

CLIENT_PROC = 1
HOST = "localhost"  # both ends run on one machine, whose own name is nobody's business
STATUS = {name: code for code, name in enumerate(OUTCOME_STATUS)}
LAG, ARRIVAL, CANCEL = SPAN_KIND.index("host"), CAUSE.index("arrival"), EVENT_KIND.index("cancel")


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """Everything the generator needs, sent to its process at start.

    Attributes
    ----------
    planned : sequence of PlannedRequest
        The schedule.
    sequential : bool
        True = the isolated run: each request is scheduled when the one before it has ended.
    drain_s : float
        How long to wait for open requests after the last arrival; what is still open then is unfinished.
    input_edge, output_edge : int
        Positions of the client's edges in the run's edge list.
    stages, edges : tuple of str
        Names behind the codes.
    spec : StreamSpec
        What every audio stream must be.
    probes : {"on", "off"}
        Setting of the run. What the client sees is recorded either way.
    flush_interval_s : float
        Interval of the recorder's flusher.
    keep_audio : bool
        Write each request's PCM beside the segments.
    """

    planned: Sequence[PlannedRequest]
    sequential: bool
    drain_s: float
    input_edge: int
    output_edge: int
    stages: tuple[str, ...]
    edges: tuple[str, ...]
    spec: StreamSpec
    probes: str
    flush_interval_s: float
    keep_audio: bool = False


@dataclass(slots=True)
class _Open:
    """A request in flight."""

    planned: PlannedRequest
    scheduled_ns: int
    checker: StreamChecker
    first_output_ns: int | None = None
    cancel_ns: int | None = None
    samples: int = 0
    audio: list[bytes] = field(default_factory=list)


class LoadGenerator:
    """One run of the client side; `run` returns when every request has ended or the drain time is over."""

    def __init__(self, plan: ClientPlan, connection: Connection, recorder: Recorder) -> None:
        self._plan = plan
        self._connection = connection
        self._sender = recorder.writer("client-send", always=True)
        self._receiver = recorder.writer("client-receive", always=True)
        self._lock = threading.Lock()
        self._open: dict[int, _Open] = {}
        self._ended = threading.Condition(self._lock)
        self.audio: dict[int, bytes] = {}

    def run(self) -> None:
        """Send, listen, and give every request an outcome."""
        listener = threading.Thread(target=self._listen, name="client-receive", daemon=True)
        listener.start()
        if self._plan.sequential:
            self._send_one_by_one()
        else:
            self._send_on_schedule()
        give_up_ns = now_ns() + round(self._plan.drain_s * S_NS)
        with self._ended:
            while self._open and (left_ns := give_up_ns - now_ns()) > 0:
                self._ended.wait(left_ns / S_NS)
            leftover = list(self._open.values())
            self._open.clear()
        for open_ in leftover:
            self._outcome(self._sender, open_, "unfinished", None, "the run ended first")
        self._connection.send(Goodbye())
        listener.join(10.0)

    def _send_on_schedule(self) -> None:
        start_ns = now_ns() + S_NS // 2
        agenda: list[tuple[int, int, bool]] = []
        for planned in self._plan.planned:
            at_ns = start_ns + planned.offset_ns
            agenda.append((at_ns, planned.request, False))
            if planned.cancel_after_ns is not None:
                agenda.append((at_ns + planned.cancel_after_ns, planned.request, True))
        heapq.heapify(agenda)
        by_number = {planned.request: planned for planned in self._plan.planned}
        while agenda:
            at_ns, number, is_cancel = heapq.heappop(agenda)
            while (wait_ns := at_ns - now_ns()) > 0:
                time.sleep(wait_ns / S_NS)
            if is_cancel:
                self._cancel(number)
            else:
                self._submit(by_number[number], at_ns)

    def _send_one_by_one(self) -> None:
        for planned in self._plan.planned:
            self._submit(planned, now_ns())
            with self._ended:
                while planned.request in self._open:
                    self._ended.wait()

    def _submit(self, planned: PlannedRequest, scheduled_ns: int) -> None:
        w = self._sender
        deadline_ns = None if planned.deadline_after_ns is None else scheduled_ns + planned.deadline_after_ns
        with self._lock:
            self._open[planned.request] = _Open(planned, scheduled_ns, StreamChecker(self._plan.spec))
        lag_span, chunk = w.new_id(), w.new_id()
        arrival_ns = now_ns()
        self._connection.send(
            Submit(
                planned.request, planned.digits, planned.tenant, deadline_ns, arrival_ns, chunk,
                lag_span,
            )
        )  # fmt: skip
        w.span(
            planned.request, 0, 0, 0, -1, LAG, scheduled_ns, arrival_ns, ARRIVAL,
            span_id=lag_span,
        )  # fmt: skip
        w.request(
            planned.request, None, None, None, None, planned.request_class, planned.tenant, planned.weight,
            scheduled_ns, arrival_ns, None, deadline_ns, 4 * len(planned.digits), len(planned.digits), planned.content,
        )  # fmt: skip

    def _cancel(self, number: int) -> None:
        with self._lock:
            open_ = self._open.get(number)
            if open_ is None:
                return  # it ended before the client changed its mind
            open_.cancel_ns = now_ns()
        self._connection.send(Cancel(number))
        self._sender.event(open_.cancel_ns, CANCEL, number, 0)

    def _listen(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, ConnectionResetError):
                return
            received_ns = now_ns()
            if isinstance(message, PcmChunk):
                self._on_chunk(message, received_ns)
            elif isinstance(message, Finished):
                self._end(message.request, message.status, received_ns, message.detail)
            elif isinstance(message, Goodbye):
                return

    def _on_chunk(self, chunk: PcmChunk, received_ns: int) -> None:
        header = chunk.header
        number, samples = int(header.request_id), header.sample_end - header.sample_start
        with self._lock:
            open_ = self._open.get(number)
        self._receiver.chunk(
            self._plan.output_edge, number, header.epoch, header.seq, len(chunk.pcm), samples, chunk.emitted_ns,
            chunk.sent_ns, received_ns, None if open_ is None else received_ns, chunk.producer_span, None,
            header.is_final, header.sample_start, samples, header.sample_rate, header.frame_start,
            header.frame_end - header.frame_start, header.state_generation, header.pcm_crc32, span_id=chunk.span,
        )  # fmt: skip
        if open_ is None:
            return
        if open_.first_output_ns is None and samples:
            open_.first_output_ns = received_ns
        open_.samples += samples
        if self._plan.keep_audio:
            open_.audio.append(chunk.pcm)
        violations = open_.checker.push(header, chunk.pcm)
        if header.is_final:
            violations += open_.checker.close()
        if violations:
            self._end(number, "error", received_ns, f"chunk contract: {violations[0]}")
        elif header.is_final:
            self._end(number, "ok", received_ns, None)

    def _end(self, number: int, status: str, at_ns: int, detail: str | None) -> None:
        with self._ended:
            open_ = self._open.pop(number, None)
            self._ended.notify_all()
        if open_ is None:
            return
        if self._plan.keep_audio:
            self.audio[number] = b"".join(open_.audio)
        self._outcome(self._receiver, open_, status, at_ns, detail)

    @staticmethod
    def _outcome(w: Writer, open_: _Open, status: str, end_ns: int | None, detail: str | None) -> None:
        w.outcome(
            open_.planned.request, STATUS[status], open_.first_output_ns, end_ns, open_.samples, open_.cancel_ns, detail
        )  # fmt: skip


def main(plan: ClientPlan, connection: Connection, folder: str) -> None:
    """Entry point of the generator's process: run, leave segments (and audio, if asked) in `folder`."""
    # The generator must not queue behind the stages it measures. An unprivileged user gets the same run with more
    # submit lag, and the lag is judged.
    with contextlib.suppress(PermissionError):
        os.nice(-5)
    proc = replace(ProcInfo.here(CLIENT_PROC, "client"), host=HOST)
    recorder = Recorder(
        Path(folder), proc, stages=plan.stages, edges=plan.edges, probes=plan.probes,
        flush_interval_s=plan.flush_interval_s,
    )  # fmt: skip
    generator = LoadGenerator(plan, connection, recorder)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the server decides, and hangs up
    try:
        generator.run()
    except ConnectionError:
        recorder.close()
        sys.exit("the server hung up")
    recorder.close()
    if plan.keep_audio:
        np.savez(
            Path(folder) / "audio.npz",
            **{str(k): np.frombuffer(v, dtype="<i2") for k, v in generator.audio.items()},  # type: ignore[arg-type]
        )
