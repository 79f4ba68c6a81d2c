"""The thinker stage: a language model with continuous batching."""

from __future__ import annotations

from typing import Any

import torch

from workbench.testbed.handoff import Handoff, Launch, Member, Stream
from workbench.testbed.models.grammar import DigitGrammar, DigitReply
from workbench.testbed.models.thinker import Thinker
from workbench.testbed.stages.port import Port, SlotWorker, hand_on


class ThinkerWorker(SlotWorker):
    """Language model with continuous batching: one prefill per launch before any decode step, then all active rows."""

    state_kind = "kv"

    def __init__(self, *args: Any, model: Thinker, grammar: DigitGrammar, out: Port, **kwargs: Any) -> None:
        super().__init__(*args, model=model, **kwargs)
        self._grammar = grammar
        self._allowed = torch.tensor(grammar.ids, device=model.device)
        self._out = out

    def take(self, stream: Stream, handoff: Handoff) -> None:
        """A request: it waits for a slot."""
        stream.pending.append(handoff)
        self._waiting.append(stream)

    def choose(self, time_ns: int) -> Launch | None:
        """The oldest waiting request if a slot is free, else a decode step of all active rows."""
        if (stream := self.admit(self._prompt_bytes)) is not None:
            ids = stream.memory[1]
            used = [stream.pending.popleft()]
            return Launch([Member(stream, used, len(ids), used[0].bytes)], "drain", kind="prefill")
        if self._active:
            closed_by = "full" if len(self._active) == self.limit else "drain"
            return Launch([Member(stream, [], 1) for stream in self._active], closed_by, kind="decode")
        return None

    def _prompt_bytes(self, stream: Stream) -> int:
        """Prepare the prompt and the reply; the size of the prompt's keys and values."""
        ids = self._grammar.prompt(stream.job.digits)
        stream.memory = (self._grammar.reply(len(stream.job.digits)), ids)
        size_bytes: int = len(ids) * self._model.kv_bytes_per_token
        return size_bytes

    def execute(self, launch: Launch) -> None:
        """Prefill one prompt, or one decode step; results are rows of logits over the closed vocabulary."""
        if launch.kind == "prefill":
            stream = launch.members[0].stream
            logits = self._model.prefill(stream.slot, stream.memory[1], self._allowed)[None]
        else:
            streams = [member.stream for member in launch.members]
            last = [stream.memory[0].tokens[-1] for stream in streams]
            logits = self._model.decode([stream.slot for stream in streams], last, self._allowed)
        for member, scores in zip(launch.members, logits.tolist(), strict=True):
            member.result = scores

    def emit(self, launch: Launch, end_ns: int) -> None:
        """Choose each row's token and hand its text on."""
        for member in launch.members:
            stream = member.stream
            reply: DigitReply = stream.memory[0]
            token = reply.choose(member.result)
            text = self._grammar.tokenizer.decode([token])
            hand_on(
                self, self._out, stream, text, size_bytes=len(text.encode()), units=1, emitted_ns=end_ns,
                producer_span=member.span, final=reply.is_done,
            )  # fmt: skip
            if reply.is_done:
                self.close(stream)
            elif launch.kind == "prefill":
                self._active.append(stream)
