"""The talker stage: phonemes into codec frames, autoregressively, grouped into chunks for the vocoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from workbench.testbed.handoff import Handoff, Launch, Member, Stream
from workbench.testbed.models.talker import Talker
from workbench.testbed.stages.port import Port, SlotWorker, hand_on


@dataclass(slots=True)
class _Speaking:
    """A job at the talker: the group of frames being filled, and whether a phrase is being spoken."""

    group: list[Any] = field(default_factory=list)
    groups: int = 0
    speaking: bool = False


class TalkerWorker(SlotWorker):
    """Autoregressive talker with continuous batching over requests; speaks a request's phrases one after another.

    The first group of frames is short, so that sound starts early; later groups are longer, so that the vocoder runs
    efficiently.
    """

    state_kind = "kv"

    def __init__(
        self, *args: Any, model: Talker, first_frames: int, steady_frames: int, out: Port, **kwargs: Any
    ) -> None:
        super().__init__(*args, model=model, **kwargs)
        self._first_frames = first_frames
        self._steady_frames = steady_frames
        self._out = out
        self._no_frames = torch.zeros(0, model.dims.codebooks, dtype=torch.int64, device=model.device)

    def take(self, stream: Stream, handoff: Handoff) -> None:
        """A phrase; a new job also waits for a slot."""
        if stream.memory is None:
            stream.memory = _Speaking()
            self._waiting.append(stream)
        stream.pending.append(handoff)

    def choose(self, time_ns: int) -> Launch | None:
        """One step of every job that has something to say."""
        while (admitted := self.admit(lambda _: self._model.state_bytes)) is not None:
            self._active.append(admitted)
        members = []
        for stream in self._active:
            if stream.memory.speaking:
                members.append(Member(stream, [], 1))
            elif stream.pending:
                handoff = stream.pending.popleft()
                member = Member(stream, [handoff], 1, handoff.bytes)
                member.result = handoff.payload
                members.append(member)
        if not members:
            return None
        return Launch(members, "full" if len(members) == self.limit else "drain")

    def execute(self, launch: Launch) -> None:
        """Begin the phrases that are new, then step all rows that have phonemes left."""
        stepping = []
        for member in launch.members:
            memory = member.stream.memory
            if not memory.speaking:
                phonemes = member.result
                member.result = None
                memory.speaking = bool(phonemes)
                if phonemes:
                    self._model.start(member.stream.slot, phonemes)
            if memory.speaking:
                stepping.append(member)
        if not stepping:
            return
        codes, finished = self._model.step([member.stream.slot for member in stepping])
        for member, row, end in zip(stepping, codes, finished, strict=True):
            member.result = (row, end)

    def emit(self, launch: Launch, end_ns: int) -> None:
        """Add each row's frame to its group and hand full groups on."""
        for member in launch.members:
            stream, memory = member.stream, member.stream.memory
            if member.result is not None:
                row, end = member.result
                memory.group.append(row)
                if end:
                    memory.speaking = False
            final = not memory.speaking and not stream.pending and stream.input_final
            size = self._first_frames if memory.groups == 0 else self._steady_frames
            if len(memory.group) >= size or final:
                group = torch.stack(memory.group) if memory.group else self._no_frames
                hand_on(
                    self, self._out, stream, group, size_bytes=2 * len(memory.group) * self._model.dims.codebooks,
                    units=len(memory.group), emitted_ns=end_ns, producer_span=member.span, final=final,
                )  # fmt: skip
                memory.group = []
                memory.groups += 1
            if final:
                self.close(stream)
