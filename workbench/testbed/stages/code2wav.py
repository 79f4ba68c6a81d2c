"""The vocoder stage: codec frames into audio, equal chunk lengths in one launch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from workbench.testbed.contract import StreamSpec
from workbench.testbed.handoff import Handoff, Launch, Member, Stream
from workbench.testbed.models.code2wav import AudioChunk, Code2Wav, pcm_chunk
from workbench.testbed.models.rvq import Codebooks
from workbench.testbed.server import Server
from workbench.testbed.stages.port import SlotWorker


@dataclass(slots=True)
class _Decoding:
    """A job at the vocoder."""

    generation: int


class Code2WavWorker(SlotWorker):
    """Stateful vocoder: first chunks at once and alone in their size, later chunks of equal length in one launch.

    Parameters
    ----------
    timeout_ns : int
        How long a steady chunk may be held back for others of its length; 0 = never.
    """

    state_kind = "vocoder_state"

    def __init__(
        self,
        *args: Any,
        model: Code2Wav,
        codebooks: Codebooks,
        spec: StreamSpec,
        revision: str,
        timeout_ns: int,
        server: Server,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, model=model, slots=model.slots, **kwargs)
        self._codebooks = codebooks
        self._spec = spec
        self._revision = revision
        self._timeout_ns = timeout_ns
        self._server = server
        self._generation = 0

    def take(self, stream: Stream, handoff: Handoff) -> None:
        """A group of frames; a new job also waits for a slot."""
        if stream.memory is None:
            self._generation += 1
            stream.memory = _Decoding(self._generation)
            self._waiting.append(stream)
        stream.pending.append(handoff)

    def choose(self, time_ns: int) -> Launch | None:
        """A first chunk alone; else the bucket of equal length that holds the oldest chunk."""
        while (admitted := self.admit(lambda _: self._model.state_bytes)) is not None:
            self._model.start(admitted.slot)
            self._active.append(admitted)
        ready = sorted((s for s in self._active if s.pending), key=lambda s: s.pending[0].received_ns)
        if not ready:
            return None
        for stream in ready:
            if stream.next_task == 0:
                return self._bucket([stream], "first_chunk")
        units = ready[0].pending[0].units
        bucket = [stream for stream in ready if stream.pending[0].units == units][: self.limit]
        if len(bucket) == self.limit:
            return self._bucket(bucket, "full", held=True)
        closes_ns = ready[0].pending[0].received_ns + self._timeout_ns
        if any(stream.input_final for stream in bucket) or len(bucket) == len(self._active):
            return self._bucket(bucket, "drain", held=True)
        if time_ns < closes_ns:
            self.wake_ns = closes_ns
            return None
        return self._bucket(bucket, "timer", held=True, closes_ns=closes_ns)

    def _bucket(self, streams: list[Stream], closed_by: str, *, held: bool = False, closes_ns: int = 0) -> Launch:
        members = []
        for stream in streams:
            handoff = stream.pending.popleft()
            members.append(Member(stream, [handoff], handoff.units, handoff.bytes))
        launch = Launch(members, closed_by)
        if held and self._timeout_ns:
            if closed_by == "timer":
                launch.held_until_ns = closes_ns
            else:
                last = max((member.used[0] for member in members), key=lambda h: h.received_ns)
                launch.held_until_ns, launch.held_for = last.received_ns, last.span
        return launch

    def execute(self, launch: Launch) -> None:
        """Codes to latent frames to samples, for all members at once."""
        handoffs = [member.used[0] for member in launch.members]
        latent = self._codebooks.latent(torch.stack([handoff.payload for handoff in handoffs]))
        slots = [member.stream.slot for member in launch.members]
        chunks = self._model.push(slots, latent, [handoff.final for handoff in handoffs])
        for member, chunk in zip(launch.members, chunks, strict=True):
            member.result = replace(chunk, samples=chunk.samples.to("cpu"))

    def emit(self, launch: Launch, end_ns: int) -> None:
        """Send the audio, also when a chunk holds no samples yet: the client sees every sequence number."""
        for member in launch.members:
            stream, chunk = member.stream, member.result
            assert isinstance(chunk, AudioChunk)
            header, pcm = pcm_chunk(
                chunk, self._spec, request_id=str(stream.job.request), epoch=stream.job.epoch, seq=stream.next_seq,
                state_generation=stream.memory.generation, model_rev=self._revision,
            )  # fmt: skip
            stream.next_seq += 1
            self._server.deliver(
                stream.job, header, pcm, span=self.writer.new_id(), producer_span=member.span, emitted_ns=end_ns
            )
            if chunk.is_final:
                self.close(stream)
