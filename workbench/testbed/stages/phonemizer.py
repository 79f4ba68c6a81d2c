"""The phonemizer stage: token text into phrases, phrases into phoneme ids, on the host."""

from __future__ import annotations

from collections import deque
from typing import Any

from workbench.testbed.handoff import Handoff, Launch, Member, Stream
from workbench.testbed.models.phonemes import Phonemes
from workbench.testbed.models.phrases import PhraseSplitter
from workbench.testbed.stages.port import Port, hand_on
from workbench.testbed.worker import Worker


class PhonemizerWorker(Worker):
    """Host stage: collects token text into phrases and turns each phrase into phoneme ids, one phrase per launch."""

    def __init__(self, *args: Any, model: Phonemes, words_per_phrase: int, out: Port, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._model = model
        self._words_per_phrase = words_per_phrase
        self._out = out
        self._ready: deque[tuple[Stream, str, list[Handoff], bool]] = deque()

    def take(self, stream: Stream, handoff: Handoff) -> None:
        """Text of one token; it may complete phrases."""
        if stream.memory is None:
            stream.memory = PhraseSplitter(self._words_per_phrase)
        stream.pending.append(handoff)
        phrases = stream.memory.push(handoff.payload)
        if handoff.final:
            phrases = phrases + stream.memory.close()
        for i, phrase in enumerate(phrases):
            used = list(stream.pending) if i == 0 else []
            if i == 0:
                stream.pending.clear()
            self._ready.append((stream, phrase, used, handoff.final and i == len(phrases) - 1))
        if handoff.final and not phrases:
            self._ready.append((stream, "", list(stream.pending), True))
            stream.pending.clear()

    def choose(self, time_ns: int) -> Launch | None:
        """The oldest complete phrase."""
        if not self._ready:
            return None
        stream, phrase, used, final = self._ready.popleft()
        member = Member(stream, used, len(phrase), sum(h.bytes for h in used))
        member.result = (phrase, final)
        return Launch([member], "full")

    def execute(self, launch: Launch) -> None:
        """Look the phrase up, or ask the phonemizer process."""
        member = launch.members[0]
        phrase, final = member.result
        member.result = (self._model.ids(phrase) if phrase else [], final)

    def emit(self, launch: Launch, end_ns: int) -> None:
        """Hand the phoneme ids on."""
        for member in launch.members:
            ids, final = member.result
            hand_on(
                self, self._out, member.stream, ids, size_bytes=2 * len(ids), units=len(ids), emitted_ns=end_ns,
                producer_span=member.span, final=final,
            )  # fmt: skip
            if final:
                self.close(member.stream)

    def release(self, stream: Stream) -> None:
        """Drop phrases that wait."""
        self._ready = deque(entry for entry in self._ready if entry[0] is not stream)
