"""Each structural fault of a chunked stream breaks the rule that names it, and a correct stream breaks none."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.testbed.contract import ChunkHeader, StreamChecker, Violation
from workbench.testbed.models.code2wav import TWIN_DIMS, Code2Wav, pcm_chunk, random_weights

Stream = list[tuple[ChunkHeader, bytes]]
VOCODER = Code2Wav(TWIN_DIMS, random_weights(TWIN_DIMS, seed=5), slots=1)
SPEC = VOCODER.stream_spec
TOLERANCE = 1e-5
LSB = 1 / 32767


def latent(frames: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(1, TWIN_DIMS.latent, frames, generator=torch.Generator().manual_seed(seed))


def streamed(schedule: list[int], seed: int = 0) -> Stream:
    """A correct stream of the twin, cut as the schedule says."""
    frames, done, chunks = latent(sum(schedule), seed), 0, []
    VOCODER.free(0)
    VOCODER.start(0)
    for seq, count in enumerate(schedule):
        [chunk] = VOCODER.push([0], frames[..., done : done + count], [seq == len(schedule) - 1])
        chunks.append(pcm_chunk(chunk, SPEC, request_id="r1", epoch=0, seq=seq, state_generation=1, model_rev="twin-5"))
        done += count
    return chunks


def check(stream: Stream, frames: int | None = None) -> list[Violation]:
    checker = StreamChecker(SPEC)
    found = [violation for header, payload in stream for violation in checker.push(header, payload)]
    return found + checker.close(frames=frames)


def rules(stream: Stream, frames: int | None = None) -> set[str]:
    return {violation.rule for violation in check(stream, frames)}


def differs(stream: Stream, frames: int, seed: int = 0) -> bool:
    """The differential: do the delivered samples differ from the offline decode by more than rounding?"""
    delivered = np.frombuffer(b"".join(payload for _, payload in stream), "<i2").astype(np.float64) * LSB
    offline = VOCODER.decode(latent(frames, seed))[0].numpy()
    shared = min(len(delivered), len(offline))
    return bool(np.abs(delivered[:shared] - offline[:shared]).max(initial=0.0) > TOLERANCE + LSB)


def signed(header: ChunkHeader, payload: bytes) -> tuple[ChunkHeader, bytes]:
    """A faulty server still signs what it sends: CRCs are right, so that other rules must find the fault."""
    return replace(header, pcm_crc32=zlib.crc32(payload)), payload


def honest(stream: Stream, change: Callable[[int, bytes], bytes]) -> Stream:
    """Change payloads as a server would that believes its own output: contiguous intervals, right sizes and CRCs."""
    out, start = Stream(), 0
    for position, (header, payload) in enumerate(stream):
        body = change(position, payload)
        end = start + len(body) // 2
        out.append(signed(replace(header, sample_start=start, sample_end=end), body))
        start = end
    return out


@given(st.lists(st.integers(0, 12), min_size=1, max_size=10), st.integers(0, 3))
def test_every_schedule_of_a_correct_stream_keeps_every_rule(schedule: list[int], seed: int) -> None:
    """Chunks without frames and a final chunk without frames included."""
    stream = streamed(schedule, seed)
    assert check(stream, frames=sum(schedule)) == []
    assert not differs(stream, sum(schedule), seed)


SCHEDULE = [10, 10, 10, 10, 10]
WIDTH = SPEC.gain * 2  # payload bytes of a frame


def drop_tail(count: int) -> Callable[[Stream], Stream]:
    return lambda stream: honest(stream, lambda _, body: body[: max(0, len(body) - 2 * count)])


def drop_last_chunk(stream: Stream) -> Stream:
    return stream[:-1]


def swap_chunks(stream: Stream) -> Stream:
    return [stream[0], stream[2], stream[1], *stream[3:]]


def repeat_chunk(stream: Stream) -> Stream:
    return [*stream[:2], stream[1], *stream[2:]]


def renumbered_repeat(stream: Stream) -> Stream:
    return [(replace(header, seq=seq), body) for seq, (header, body) in enumerate(repeat_chunk(stream))]


def stale_codes(stream: Stream) -> Stream:
    """Chunk 3 decodes the frames of chunk 2 again: right sample count, wrong content."""
    (second, body), (third, _) = stream[2], stream[3]
    again = replace(third, frame_start=second.frame_start, frame_end=second.frame_end)
    return [*stream[:3], signed(again, body), *stream[4:]]


def edit(position: int, **changes: object) -> Callable[[Stream], Stream]:
    def apply(stream: Stream) -> Stream:
        header, body = stream[position]
        return [*stream[:position], (replace(header, **changes), body), *stream[position + 1 :]]  # type: ignore[arg-type]

    return apply


def payload(position: int, change: Callable[[bytes], bytes]) -> Callable[[Stream], Stream]:
    def apply(stream: Stream) -> Stream:
        header, body = stream[position]
        return [*stream[:position], signed(header, change(body)), *stream[position + 1 :]]

    return apply


def normalize(_: int, body: bytes) -> bytes:
    samples = np.frombuffer(body, "<i2").astype(np.float64)
    return (samples * (32000 / max(1, np.abs(samples).max(initial=1)))).round().astype("<i2").tobytes()


def no_context(stream: Stream) -> Stream:
    """Each chunk decoded alone and joined hard: every length is right, every seam is wrong."""
    bodies, frames = [], latent(sum(SCHEDULE))
    for begin in range(0, 50, 10):
        whole = VOCODER.decode(frames[..., begin : begin + 10])[0]
        bodies.append((whole.clamp(-1, 1) * 32767).round().numpy().astype("<i2").tobytes())
    joined = b"".join(bodies)
    return [signed(header, joined[2 * header.sample_start : 2 * header.sample_end]) for header, _ in stream]


WAV_HEADER = b"RIFF" + bytes(40)
# Fault -> rules it must break (no other), and whether the sample differential must see it.
FAULTS: dict[str, tuple[Callable[[Stream], Stream], set[str], bool]] = {
    "37 samples dropped from each chunk": (drop_tail(37), {"P4"}, True),
    "1 sample dropped from each chunk": (drop_tail(1), {"P4"}, True),
    "a frame repeated at each seam": (lambda s: honest(s, lambda _, body: body[-WIDTH:] + body), {"P4"}, True),
    "a gap of zeros at each seam": (lambda s: honest(s, lambda _, body: body + bytes(2 * 40)), {"P4"}, True),
    "cross-fade that eats 16 samples": (drop_tail(16), {"P4"}, True),
    "last chunk missing": (drop_last_chunk, {"P4", "P5", "P8"}, False),
    "two chunks swapped": (swap_chunks, {"P2", "P7", "P8"}, True),
    "chunk sent twice": (repeat_chunk, {"P2", "P7", "P8"}, True),
    "chunk sent twice under a new number": (renumbered_repeat, {"P2", "P8"}, True),
    "stale codes, right sample count": (stale_codes, {"P4", "P8"}, True),
    "WAV header inside a chunk": (payload(2, lambda body: WAV_HEADER + body), {"P3"}, True),
    "one stray byte": (payload(2, lambda body: body + b"x"), {"P3", "P12"}, True),
    "byte lost on the way": (lambda s: [*s[:2], (s[2][0], s[2][1][:-1]), *s[3:]], {"P3", "P12"}, True),
    "bit flipped on the way": (lambda s: [*s[:2], (s[2][0], b"\0\1" + s[2][1][2:]), *s[3:]], {"P3"}, True),
    "declared 24 kHz from chunk 1 on": (edit(1, sample_rate=24_000), {"P6"}, False),
    "declared stereo": (edit(1, channels=2), {"P3", "P6"}, False),
    "declared float samples": (edit(1, sample_format="f32le"), {"P3", "P6"}, False),
    "starts at sample 5": (edit(0, sample_start=5), {"P1", "P3"}, False),
    "final twice": (edit(3, is_final=True), {"P4", "P5"}, False),
    "state of another generation": (edit(3, state_generation=2), {"P9"}, False),
    "chunk of another request": (edit(3, request_id="r2"), {"P9"}, False),
    "weights replaced in mid-stream": (edit(3, model_rev="twin-6"), {"P9"}, False),
    "wrong latency declared": (edit(3, latency_samples=0), {"P4"}, False),
    "each chunk normalized": (lambda s: honest(s, normalize), set(), True),
    "decoded without context": (no_context, set(), True),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_detector_matrix(fault: str) -> None:
    """Contract and differential together see all faults; the table says which of them sees which."""
    mutate, broken, audible = FAULTS[fault]
    mutant = mutate(streamed(SCHEDULE))
    assert rules(mutant, frames=sum(SCHEDULE)) == broken
    if all(len(body) % 2 == 0 for _, body in mutant):
        assert differs(mutant, sum(SCHEDULE)) == audible
    assert broken or audible


def test_a_missing_tail_is_invisible_to_the_differential_but_not_to_the_frame_count() -> None:
    """A decoder that never received the last frames closes its stream in good order."""
    shorter = streamed([10, 10, 10])
    assert check(shorter) == []
    assert rules(shorter, frames=50) == {"P4", "P8"}


def test_an_empty_stream_ends_in_a_final_chunk_without_samples() -> None:
    [empty] = streamed([0])
    assert check([empty], frames=0) == []
    header, _ = empty
    noise = signed(replace(header, sample_end=4), bytes(8))
    assert rules([noise], frames=0) == {"P4", "P11"}
    assert rules([], frames=0) == {"P5"}


def test_nothing_of_a_cancelled_epoch_may_arrive() -> None:
    stream = streamed(SCHEDULE)
    checker = StreamChecker(SPEC)
    assert checker.push(*stream[0]) == []
    checker.cancel(epoch=0)
    assert [violation.rule for violation in checker.push(*stream[1])] == ["P10"]
    assert checker.close(frames=50) == []
    retry = StreamChecker(SPEC)
    retry.cancel(epoch=0)
    assert retry.push(replace(stream[0][0], epoch=1), stream[0][1]) == []


def test_one_fault_is_reported_once() -> None:
    """After a violation the checker follows the stream, so later chunks are not blamed."""
    stream = streamed([5] * 8)
    found = check(stream[:3] + stream[4:], frames=40)
    assert [(violation.rule, violation.seq) for violation in found] == [("P2", 4), ("P7", 4), ("P8", 4)]
    assert "chunk 4" in str(found[0])
