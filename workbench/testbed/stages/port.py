"""What stages share: where chunks go, and rows of a model's state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workbench.testbed.handoff import Handoff, Inbox, Stream
from workbench.testbed.worker import Worker


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
