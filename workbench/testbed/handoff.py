"""What passes between stages: jobs, hand-offs, and the inboxes that carry them inside one process."""

from __future__ import annotations

import queue
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

now_ns = time.perf_counter_ns  # CLOCK_MONOTONIC on Linux, one clock for all processes of a host


@dataclass(slots=True)
class Job:
    """A request as the server knows it, shared by all stages.

    Attributes
    ----------
    request, epoch : int
        Identity.
    digits : tuple of int
        What the speech must say.
    tenant : str
        Owner of the state objects.
    deadline_ns : int or None
        Absolute; past it the job is aborted as a timeout.
    aborted : str or None
        None while it may run; otherwise the terminal status that every stage must honor. Set once, never cleared.
    unreleased : set of str
        Stages that may still hold something of an aborted job.
    """

    request: int
    epoch: int
    digits: tuple[int, ...]
    tenant: str
    deadline_ns: int | None
    aborted: str | None = None
    detail: str | None = None
    unreleased: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Handoff:
    """One chunk on one edge, from the moment the producer had it. Times are ns; 0 = has not happened."""

    span: int
    edge: int
    job: Job
    seq: int
    payload: Any
    bytes: int
    units: int
    emitted_ns: int
    producer_span: int
    final: bool
    sent_ns: int = 0
    received_ns: int = 0
    taken_ns: int = 0


@dataclass(frozen=True, slots=True)
class Abort:
    """Control message: give up this job, whatever its state, and acknowledge."""

    job: Job


@dataclass(frozen=True, slots=True)
class Stop:
    """Control message: no more work will come."""


Message = Handoff | Abort | Stop


class Inbox:
    """Unbounded queue of one worker. A hand-off is by reference, so sending takes as long as the call does."""

    __slots__ = ("_queue",)

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Message] = queue.SimpleQueue()

    def hand_over(self, handoff: Handoff) -> None:
        """Put a chunk where the consumer finds it and stamp the moment it lay there."""
        handoff.sent_ns = now_ns()
        handoff.received_ns = now_ns()
        self._queue.put(handoff)

    def post(self, message: Abort | Stop) -> None:
        """Put a control message."""
        self._queue.put(message)

    def put_received(self, handoff: Handoff) -> None:
        """Put a chunk whose times were stamped by a connector from outside the process."""
        self._queue.put(handoff)

    def get(self, timeout_s: float | None) -> Message | None:
        """Wait for a message; None after the timeout."""
        try:
            return self._queue.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def drain(self) -> list[Message]:
        """All messages there are, without waiting."""
        messages: list[Message] = []
        try:
            while True:
                messages.append(self._queue.get_nowait())
        except queue.Empty:
            return messages


@dataclass(slots=True)
class Stream:
    """What one stage knows of one job.

    Attributes
    ----------
    pending : deque of Handoff
        Taken over, not yet used by a launch.
    next_task, next_seq : int
        Number of the next launch of this job here, and of the next chunk it emits.
    last_span, last_end_ns : int
        The job's previous launch here: its state dependency. 0 before the first.
    input_final : bool
        The last input has been taken over.
    slot, object_id : int
        Row in the model's state, -1 while it holds none; number of that state object in the trace.
    memory : Any
        The stage's own state.
    """

    job: Job
    pending: deque[Handoff] = field(default_factory=deque)
    next_task: int = 0
    next_seq: int = 0
    last_span: int = 0
    last_end_ns: int = 0
    input_final: bool = False
    slot: int = -1
    object_id: int = 0
    memory: Any = None


@dataclass(slots=True)
class Member:
    """One job's part in a launch: which chunks it uses, how much work it is, and the span it becomes."""

    stream: Stream
    used: list[Handoff]
    units: int
    bytes: int = 0
    span: int = 0
    result: Any = None


@dataclass(slots=True)
class Launch:
    """A batch about to run.

    Attributes
    ----------
    closed_by : str
        One of `workbench.schema.enums.BATCH_CLOSE`.
    held_until_ns : int
        End of a deliberate wait for more members; 0 = nothing was held.
    held_for : int
        Chunk of the last member, which ended the deliberate wait; 0 = the timer did.
    kind : str
        What to run, where a stage has more than one kind of launch.
    """

    members: list[Member]
    closed_by: str
    held_until_ns: int = 0
    held_for: int = 0
    kind: str = ""
