"""The contract of a chunked audio stream, and a checker that proves it chunk by chunk in constant memory.

Perceptual scores do not notice a stream that loses, repeats or shifts samples; these rules do. Each has a fixed name:

====  ================================================================================================================
P1    the first ``sample_start`` is 0
P2    each ``sample_start`` is the previous ``sample_end``
P3    payload bytes are ``(sample_end - sample_start) * channels * sample width``, and match the CRC
P4    samples follow from frames: ``max(0, gain * frame_end - latency)`` before the end, ``length(frames)`` at the end
P5    ``is_final`` exactly once, on the last chunk
P6    sample rate, channels and sample format are those of the stream, on every chunk
P7    ``seq`` counts 0, 1, 2, ...
P8    frame intervals tile ``[0, frames)``
P9    request, epoch, state generation and model revision do not change within a stream
P10   after a cancel of epoch ``e`` nothing of an epoch up to ``e`` is delivered
P11   a stream without frames ends in a final chunk without samples
P12   each payload is a whole number of samples
====  ================================================================================================================

The rules bound length, order and identity, not values: only the comparison with an offline decode sees a wrong value.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Rule = Literal["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9", "P10", "P11", "P12"]
SAMPLE_BYTES = {"s16le": 2, "f32le": 4}


@dataclass(frozen=True, slots=True)
class ChunkHeader:
    """What a chunk of audio says about itself.

    Attributes
    ----------
    request_id : str
        Whose audio this is.
    epoch : int
        Attempt of the request; a cancel ends all epochs up to its own.
    seq : int
        Position of the chunk in the stream, from 0.
    sample_start, sample_end : int
        Absolute sample interval ``[start, end)`` per channel, in samples.
    frame_start, frame_end : int
        Codec frames taken in since the previous chunk: ``[start, end)``. A chunk may take frames in and emit nothing.
    sample_rate : int
        Samples per second.
    channels : int
        Interleaved channels.
    sample_format : str
        A key of ``SAMPLE_BYTES``.
    state_generation : int
        Counts each allocation of decoder state; a stream lives in one.
    latency_samples : int
        Samples that the decoder holds back before the end of the stream.
    model_rev : str
        Revision of the decoder weights.
    is_final : bool
        No chunk follows.
    pcm_crc32 : int
        ``zlib.crc32`` of the payload.
    """

    request_id: str
    epoch: int
    seq: int
    sample_start: int
    sample_end: int
    frame_start: int
    frame_end: int
    sample_rate: int
    channels: int
    sample_format: str
    state_generation: int
    latency_samples: int
    model_rev: str
    is_final: bool
    pcm_crc32: int


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """What the receiver knows beforehand about a stream.

    Attributes
    ----------
    gain, latency_samples : int
        Of the decoder: samples per frame, and samples held back before the end.
    length : callable
        Total samples of a stream of so many frames.
    sample_rate, channels, sample_format
        Format that every chunk must have.
    """

    gain: int
    latency_samples: int
    length: Callable[[int], int]
    sample_rate: int
    channels: int = 1
    sample_format: str = "s16le"


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its name, the chunk it broke on (-1: the stream as a whole), and expected against found."""

    rule: Rule
    seq: int
    expected: str
    found: str

    def __str__(self) -> str:
        place = f"chunk {self.seq}" if self.seq >= 0 else "stream"
        return f"{self.rule} {place}: expected {self.expected}, found {self.found}"


class StreamChecker:
    """Checks one stream as it is delivered; state does not grow with the stream.

    After a violation the checker goes on from what the chunk says, so that one fault is not reported on every later
    chunk.

    Parameters
    ----------
    spec : StreamSpec
        What is known beforehand.

    Examples
    --------
    >>> spec = StreamSpec(gain=2, latency_samples=3, length=lambda frames: 2 * frames, sample_rate=8000)
    >>> checker = StreamChecker(spec)
    >>> chunk = ChunkHeader("r1", 0, 0, 0, 4, 0, 2, 8000, 1, "s16le", 0, 3, "twin", True, 0)
    >>> [violation.rule for violation in checker.push(chunk, bytes(6))]
    ['P3', 'P3']
    >>> checker.close(frames=2)
    []
    """

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        self._seq = 0
        self._samples = 0
        self._frames = 0
        self._identity: tuple[str, int, int, str] | None = None
        self._is_final = False
        self._cancelled_epoch: int | None = None

    def push(self, header: ChunkHeader, payload: bytes) -> list[Violation]:
        """Check the next delivered chunk and return the rules it breaks, in the order of the rules."""
        spec, seq, found = self.spec, header.seq, list[Violation]()

        def expect(rule: Rule, holds: bool, expected: object, actual: object) -> None:
            if not holds:
                found.append(Violation(rule, seq, str(expected), str(actual)))

        start, end, first = header.sample_start, header.sample_end, self._seq == 0
        rule: Rule = "P1" if first else "P2"
        expect(rule, start == self._samples, f"sample_start={self._samples}", f"sample_start={start}")

        sample_bytes = SAMPLE_BYTES.get(header.sample_format, 0) * header.channels
        size = (end - start) * sample_bytes
        expect("P3", len(payload) == size and end >= start, f"{size} payload bytes", f"{len(payload)}")
        crc = zlib.crc32(payload)
        expect("P3", crc == header.pcm_crc32, f"pcm_crc32={header.pcm_crc32}", f"{crc}")

        frames = header.frame_end
        due = spec.length(frames) if header.is_final else max(0, spec.gain * frames - spec.latency_samples)
        expect("P4", end == due, f"sample_end={due} after {frames} frames", f"sample_end={end}")
        held = spec.latency_samples
        expect("P4", header.latency_samples == held, f"latency_samples={held}", f"{header.latency_samples}")

        expect("P5", not self._is_final, "no chunk after the final one", f"seq={seq}")
        form, told = (spec.sample_rate, spec.channels, spec.sample_format), _form(header)
        expect("P6", told == form, form, told)
        expect("P7", seq == self._seq, f"seq={self._seq}", f"seq={seq}")
        tiles = header.frame_start == self._frames and frames >= header.frame_start
        expect("P8", tiles, f"frames from {self._frames}", f"[{header.frame_start}, {frames})")
        identity = (header.request_id, header.epoch, header.state_generation, header.model_rev)
        known = self._identity or identity
        expect("P9", identity == known, f"(request, epoch, generation, model)={known}", identity)
        dead = self._cancelled_epoch
        expect("P10", dead is None or header.epoch > dead, f"nothing up to cancelled epoch {dead}", f"{header.epoch}")
        empty = header.is_final and frames == 0
        expect("P11", not empty or start == end == 0, "no samples without frames", f"[{start}, {end})")
        width = SAMPLE_BYTES.get(header.sample_format, 1)
        expect("P12", len(payload) % width == 0, f"a multiple of {width} bytes", f"{len(payload)}")

        self._seq, self._samples, self._frames = seq + 1, end, frames
        self._identity = known
        self._is_final |= header.is_final
        return found

    def cancel(self, epoch: int) -> None:
        """The request was cancelled: chunks of `epoch` and before must not arrive any more, and none is missed."""
        self._cancelled_epoch = epoch if self._cancelled_epoch is None else max(epoch, self._cancelled_epoch)

    def close(self, *, frames: int | None = None) -> list[Violation]:
        """The stream is over: report what is missing from it.

        Parameters
        ----------
        frames : int, optional
            Codec frames that the source is known to have produced. Without it a decoder that never received the last
            frames cannot be told from a shorter stream.

        Returns
        -------
        list of Violation
            With ``seq`` -1. Empty after a cancel: a cancelled stream may stop anywhere.
        """
        if self._cancelled_epoch is not None:
            return []
        found = []
        if not self._is_final:
            found.append(Violation("P5", -1, "a final chunk", f"none in {self._seq} chunks"))
        total = self._frames if frames is None else frames
        if self._frames != total:
            found.append(Violation("P8", -1, f"frames [0, {total})", f"[0, {self._frames})"))
        due = self.spec.length(total)
        if self._samples != due:
            found.append(Violation("P4", -1, f"{due} samples for {total} frames", f"{self._samples}"))
        return found


def _form(header: ChunkHeader) -> tuple[int, int, str]:
    return header.sample_rate, header.channels, header.sample_format
