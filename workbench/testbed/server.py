"""The server side of one run: a connection to the load generator, one worker per stage, deadlines, cancellation.

Every accepted job ends exactly once: by its final chunk, or by an abort (cancelled, timeout, error) that reaches every
stage and is reported to the client when the last stage holds nothing of it anymore.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection

from workbench.errors import CheckFailed
from workbench.testbed.contract import ChunkHeader
from workbench.testbed.handoff import Abort, Handoff, Job, Stop, now_ns
from workbench.testbed.wire import Cancel, Finished, Goodbye, PcmChunk, Submit
from workbench.testbed.worker import Worker
from workbench.units import S_NS

IDLE_POLL_S = 0.5  # how often the ingress looks whether a worker died while no message comes


class Server:
    """One run.

    Parameters
    ----------
    connection : Connection
        To the load generator.
    input_edge : int
        Code of the edge client>first stage.
    longest_digits : int
        Most digits that the first stage can take in and say; a longer request is refused with an error.
    """

    def __init__(self, connection: Connection, *, input_edge: int, longest_digits: int) -> None:
        self._connection = connection
        self._input_edge = input_edge
        self._longest_digits = longest_digits
        self._workers: Sequence[Worker] = ()
        self._entry: Worker | None = None
        self._lock = threading.Lock()  # sending, and the sets below
        self._jobs: dict[int, Job] = {}
        self._deadlines: list[tuple[int, int]] = []
        self._is_listened_to = True

    def start(self, workers: Mapping[str, Worker], *, entry: str) -> None:
        """Start the workers; `entry` names the one that takes requests."""
        self._workers = tuple(workers.values())
        self._entry = workers[entry]
        for worker in self._workers:
            worker.start()

    def serve(self) -> None:
        """Run until the client says goodbye, then stop the workers.

        Raises
        ------
        CheckFailed
            A worker thread or the load generator died: the run cannot be trusted.
        """
        try:
            self._receive()
        finally:
            self._abandon()
            for worker in self._workers:
                worker.inbox.post(Stop())
            for worker in self._workers:
                worker.join(30.0)
        self._check_workers()
        with self._lock:
            self._connection.send(Goodbye())

    def _receive(self) -> None:
        while True:
            wait_s = IDLE_POLL_S
            if self._deadlines:
                wait_s = min(wait_s, max(0.0, (self._deadlines[0][0] - now_ns()) / S_NS))
            if self._connection.poll(wait_s):
                try:
                    message = self._connection.recv()
                except EOFError as err:
                    raise CheckFailed(
                        "a load generator that says goodbye", "a closed connection", where="testbed server"
                    ) from err
                received_ns = now_ns()
                if isinstance(message, Submit):
                    self._submit(message, received_ns)
                elif isinstance(message, Cancel):
                    self._abort_number(message.request, "cancelled", None)
                elif isinstance(message, Goodbye):
                    return
            else:
                self._check_workers()
            while self._deadlines and self._deadlines[0][0] <= now_ns():
                self._abort_number(heapq.heappop(self._deadlines)[1], "timeout", "deadline passed")

    def _check_workers(self) -> None:
        for worker in self._workers:
            if worker.crashed is not None:
                raise CheckFailed(
                    "every stage worker alive",
                    f"{worker.stage}-{worker.replica} died: {worker.crashed!r}",
                    where="testbed server",
                    fix="The run was not kept.",
                ) from worker.crashed

    def _submit(self, message: Submit, received_ns: int) -> None:
        assert self._entry is not None
        if len(message.digits) > self._longest_digits:
            detail = f"{len(message.digits)} digits, more than the {self._longest_digits} that fit"
            with self._lock:
                self._connection.send(Finished(message.request, "error", detail))
            return
        job = Job(
            message.request,
            0,
            message.digits,
            message.tenant,
            message.deadline_ns,
            unreleased={worker.stage for worker in self._workers},
        )
        with self._lock:
            self._jobs[job.request] = job
        if job.deadline_ns is not None:
            heapq.heappush(self._deadlines, (job.deadline_ns, job.request))
        self._entry.inbox.put_received(
            Handoff(
                span=message.chunk,
                edge=self._input_edge,
                job=job,
                seq=0,
                payload=message.digits,
                bytes=4 * len(message.digits),
                units=len(message.digits),
                emitted_ns=message.sent_ns,
                producer_span=message.lag_span,
                final=True,
                sent_ns=message.sent_ns,
                received_ns=received_ns,
            )
        )

    def _abandon(self) -> None:
        """No client listens anymore: what is still open is given up in silence, so that the models are free again."""
        with self._lock:
            self._is_listened_to = False
            jobs = list(self._jobs.values())
        for job in jobs:
            self.abort(job, "cancelled", "the run ended")

    def _abort_number(self, request: int, status: str, detail: str | None) -> None:
        with self._lock:
            job = self._jobs.get(request)
        if job is not None:
            self.abort(job, status, detail)

    def abort(self, job: Job, status: str, detail: str | None) -> None:
        """Give a job up everywhere; a job that has ended, or is being aborted already, is left alone."""
        with self._lock:
            if job.aborted is not None or job.request not in self._jobs:
                return
            job.aborted, job.detail = status, detail
        for worker in self._workers:
            worker.inbox.post(Abort(job))

    def fail(self, job: Job, detail: str) -> None:
        """A launch with this job raised."""
        self.abort(job, "error", detail)

    def released(self, job: Job, stage: str) -> None:
        """A stage holds nothing of an aborted job anymore; after the last one the client is told."""
        with self._lock:
            job.unreleased.discard(stage)
            if job.unreleased or job.aborted is None or self._jobs.pop(job.request, None) is None:
                return
            if self._is_listened_to:
                self._connection.send(Finished(job.request, job.aborted, job.detail))

    def deliver(
        self, job: Job, header: ChunkHeader, pcm: bytes, *, span: int, producer_span: int, emitted_ns: int
    ) -> None:
        """Send audio to the client; nothing is sent for a job that was aborted or has ended."""
        with self._lock:
            if job.aborted is not None or job.request not in self._jobs or not self._is_listened_to:
                return
            if header.is_final:
                del self._jobs[job.request]
            self._connection.send(PcmChunk(header, pcm, span, producer_span, emitted_ns, now_ns()))
