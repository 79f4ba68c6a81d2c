"""The loop that every stage worker runs: take over, choose a batch, launch it, hand on, record why it ran when it did.

A subclass says what its stage does (`choose`, `execute`, `emit`, `release`); the loop owns everything that must be the
same for all stages: waits and their causes, launches, cancellation, errors. One worker is one replica and one thread.
"""

from __future__ import annotations

import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from workbench.schema.enums import BATCH_CLOSE, CAUSE, EVENT_KIND, OBJECT_EVENT, SPAN_KIND
from workbench.testbed.device import DeviceTimer
from workbench.testbed.handoff import Abort, Handoff, Inbox, Job, Launch, Stop, Stream, now_ns
from workbench.trace.writer import Writer

SERVICE, QUEUE, BATCH_WAIT = SPAN_KIND.index("service"), SPAN_KIND.index("queue"), SPAN_KIND.index("batch_wait")
DATA, STATE, RESOURCE = CAUSE.index("data"), CAUSE.index("state"), CAUSE.index("resource")
BATCH, TIMER = CAUSE.index("batch"), CAUSE.index("timer")
ALLOCATE, RELEASE = OBJECT_EVENT.index("allocate"), OBJECT_EVENT.index("release")
LEARNED = {
    "cancelled": EVENT_KIND.index("cancel"),
    "timeout": EVENT_KIND.index("deadline"),
    "error": EVENT_KIND.index("error"),
}


class Worker(ABC):
    """One replica of one stage.

    Parameters
    ----------
    stage, code, replica : str, int, int
        Name, position in the run's stage list, and replica number.
    writer : Writer
        Recorder buffer of this worker's thread.
    timer : DeviceTimer
        Clock of the device that runs the launches.
    limit : int
        Largest number of members per launch.
    fail : callable
        Called with (job, detail) when a launch raised: the server aborts the job everywhere.
    released : callable
        Called with (job, stage) when an aborted job holds nothing here anymore.
    """

    state_kind = "buffer"  # what the stage keeps per job, for the table `object`

    def __init__(
        self,
        stage: str,
        code: int,
        replica: int,
        writer: Writer,
        timer: DeviceTimer,
        *,
        limit: int,
        fail: Callable[[Job, str], None],
        released: Callable[[Job, str], None],
    ) -> None:
        self.stage = stage
        self.code = code
        self.replica = replica
        self.writer = writer
        self.timer = timer
        self.limit = limit
        self.inbox = Inbox()
        self.streams: dict[int, Stream] = {}
        self.wake_ns: int | None = None  # set by `choose` when it holds a batch back: look again then
        self._fail = fail
        self._released = released
        self._last_end_ns = 0
        self._last_span = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"{stage}-{replica}", daemon=True)
        self.crashed: BaseException | None = None

    # What a stage must say -------------------------------------------------------------------------------------------

    @abstractmethod
    def take(self, stream: Stream, handoff: Handoff) -> None:
        """Take a chunk over into the job's state here."""

    @abstractmethod
    def choose(self, time_ns: int) -> Launch | None:
        """The next batch, or None when nothing may run now (then `wake_ns` may say when to look again)."""

    @abstractmethod
    def execute(self, launch: Launch) -> None:
        """Run the batch and leave each member's result on the host."""

    @abstractmethod
    def emit(self, launch: Launch, end_ns: int) -> None:
        """Hand results on, and close the streams that are complete."""

    @abstractmethod
    def release(self, stream: Stream) -> None:
        """Give back what the job holds here (slots, state)."""

    # What every stage shares -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end after a `Stop`."""
        self._thread.join(timeout_s)

    @property
    def native_id(self) -> int | None:
        """Thread id of the operating system, once started."""
        return self._thread.native_id

    def depth(self) -> int:
        """Chunks taken over and not yet used: a gauge, read from another thread."""
        return sum(len(stream.pending) for stream in list(self.streams.values()))

    def close(self, stream: Stream) -> None:
        """Forget a job whose work here is complete."""
        self.release(stream)
        del self.streams[stream.job.request]

    def held(self, stream: Stream, event: int, size_bytes: int, object_id: int) -> None:
        """Record that a state object of the job was allocated or released."""
        job = stream.job
        self.writer.object(
            object_id, event, now_ns(), job.request, self.code, self.state_kind, 0, None, None, job.tenant, size_bytes
        )

    def _run(self) -> None:
        try:
            while True:
                for message in self.inbox.drain():
                    self._on_message(message)
                self.wake_ns = None
                launch = self.choose(now_ns())
                if launch is not None:
                    self._launch(launch)
                    continue
                if self._stopping:
                    return
                timeout_s = None if self.wake_ns is None else max(0.0, (self.wake_ns - now_ns()) / 1e9)
                woken_by = self.inbox.get(timeout_s)
                if woken_by is not None:
                    self._on_message(woken_by)
        except BaseException as err:  # a dead worker must be seen by the server, whatever killed it
            self.crashed = err
            raise

    def _on_message(self, message: Any) -> None:
        if isinstance(message, Handoff):
            job = message.job
            if job.aborted is not None:
                self._record_chunk(message, consumer_span=None)
                return
            stream = self.streams.get(job.request)
            if stream is None:
                stream = self.streams[job.request] = Stream(job)
            message.taken_ns = now_ns()
            stream.input_final = message.final
            self.take(stream, message)
        elif isinstance(message, Abort):
            self._abort(message.job)
        elif isinstance(message, Stop):
            self._stopping = True

    def _abort(self, job: Job) -> None:
        assert job.aborted is not None
        stream = self.streams.get(job.request)
        if stream is not None:
            for handoff in stream.pending:
                self._record_chunk(handoff, consumer_span=None)
            self.close(stream)
        self.writer.event(now_ns(), LEARNED[job.aborted], job.request, self.code)
        self._released(job, self.stage)

    def _launch(self, launch: Launch) -> None:
        members = launch.members
        new_id = self.writer.new_id
        batch = new_id()
        for member in members:
            member.span = new_id()
        dispatch_ns = now_ns()
        self.timer.begin()
        try:
            self.execute(launch)
        except Exception:  # whatever a model raises ends these jobs with an explicit error, not the server
            detail = traceback.format_exc(limit=-1).strip().splitlines()[-1]
            for member in members:
                self._fail(member.stream.job, f"{self.stage}: {detail}")
        device_start_ns, device_end_ns = self.timer.end()
        end_ns = now_ns()
        self._record_launch(launch, batch, dispatch_ns, device_start_ns, device_end_ns, end_ns)
        launch.members = [member for member in members if member.stream.job.aborted is None]
        self.emit(launch, end_ns)

    def _record_launch(
        self,
        launch: Launch,
        batch: int,
        dispatch_ns: int,
        device_start_ns: int | None,
        device_end_ns: int | None,
        end_ns: int,
    ) -> None:
        w, code, replica = self.writer, self.code, self.replica
        units = 0
        for member in launch.members:
            stream = member.stream
            request, epoch, task = stream.job.request, stream.job.epoch, stream.next_task
            ready_ns, cause, cause_span = stream.last_end_ns, STATE, stream.last_span
            for handoff in member.used:
                if handoff.received_ns >= ready_ns:
                    ready_ns, cause, cause_span = handoff.received_ns, DATA, handoff.span
                self._record_chunk(handoff, consumer_span=member.span)
            if self._last_end_ns > ready_ns:
                cause, cause_span = RESOURCE, self._last_span
                w.span(
                    request, code, replica, epoch, task, QUEUE, ready_ns, self._last_end_ns, cause, cause_span,
                )  # fmt: skip
                ready_ns = self._last_end_ns
            if launch.held_until_ns > ready_ns:
                cause, cause_span = (BATCH, launch.held_for) if launch.held_for else (TIMER, 0)
                w.span(
                    request, code, replica, epoch, task, BATCH_WAIT, ready_ns, launch.held_until_ns, cause,
                    cause_span or None,
                )  # fmt: skip
            w.span(
                request, code, replica, epoch, task, SERVICE, dispatch_ns, end_ns, cause, cause_span or None,
                batch, member.bytes, member.units, span_id=member.span,
            )  # fmt: skip
            stream.next_task = task + 1
            stream.last_span, stream.last_end_ns = member.span, end_ns
            units += member.units
        w.batch(
            code, replica, len(launch.members), self.limit, units, BATCH_CLOSE.index(launch.closed_by), dispatch_ns,
            device_start_ns, device_end_ns, end_ns, batch_id=batch,
        )  # fmt: skip
        self._last_end_ns, self._last_span = end_ns, launch.members[0].span

    def _record_chunk(self, h: Handoff, *, consumer_span: int | None) -> None:
        self.writer.chunk(
            h.edge, h.job.request, h.job.epoch, h.seq, h.bytes, h.units, h.emitted_ns, h.sent_ns, h.received_ns,
            h.taken_ns or None, h.producer_span, consumer_span, h.final, span_id=h.span,
        )  # fmt: skip
