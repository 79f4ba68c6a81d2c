"""What stages share: where chunks go, and rows of a model's state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.testbed.handoff import Handoff, Inbox, Stream
from workbench.testbed.worker import ALLOCATE, RELEASE, Worker


@dataclass(frozen=True, slots=True)
class Port:
    """Where a stage puts what it makes: the edge's code and the consumer's inbox."""

    edge: int
    inbox: Inbox


def hand_on(
    worker: Worker,
    port: Port,
    stream: Stream,
    payload: Any,
    *,
    size_bytes: int,
    units: int,
    emitted_ns: int,
    producer_span: int,
    final: bool,
) -> None:
    """Send the next chunk of a stream."""
    port.inbox.hand_over(
        Handoff(
            worker.writer.new_id(), port.edge, stream.job, stream.next_seq, payload, size_bytes, units, emitted_ns,
            producer_span, final,
        )
    )  # fmt: skip
    stream.next_seq += 1


class Slots:
    """Rows of a model's state, handed out lowest first."""

    def __init__(self, count: int) -> None:
        self._free = list(range(count))

    def take(self) -> int | None:
        """A free row, or None."""
        return self._free.pop(0) if self._free else None

    def give_back(self, slot: int) -> None:
        """Return a row."""
        self._free.append(slot)
        self._free.sort()


class SlotWorker(Worker):
    """A stage whose model keeps a row of state per request: jobs wait for a row, hold it, and give it back.

    Parameters
    ----------
    model : object
        Has ``free(slot)``, which is harmless for a row that is free.
    slots : int
        Rows.
    """

    _model: Any

    def __init__(self, *args: Any, model: Any, slots: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._model = model
        self._slots = Slots(slots)
        self._waiting: deque[Stream] = deque()  # jobs without a row
        self._active: list[Stream] = []  # jobs with a row that take part in launches

    def admit(self, size_bytes: Callable[[Stream], int]) -> Stream | None:
        """Give the job that waits longest a row, if there is one, and record the state it now holds."""
        if not self._waiting or (slot := self._slots.take()) is None:
            return None
        stream = self._waiting.popleft()
        stream.slot, stream.object_id = slot, self.writer.new_id()
        self.held(stream, ALLOCATE, size_bytes(stream), stream.object_id)
        return stream

    def release(self, stream: Stream) -> None:
        """Give the row back and leave the queues."""
        if stream in self._waiting:
            self._waiting.remove(stream)
        if stream in self._active:
            self._active.remove(stream)
        if stream.slot >= 0:
            self.held(stream, RELEASE, 0, stream.object_id)
            self._model.free(stream.slot)
            self._slots.give_back(stream.slot)
            stream.slot = -1
