"""Streaming equals offline decoding, whatever the chunks, the neighbors in the batch and the age of the stream."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from workbench.errors import UsageError
from workbench.testbed.models.code2wav import TWIN_DIMS, Code2Wav, VocoderDims, pcm16, random_weights

TOLERANCE = 1e-5
schedules = st.lists(st.integers(0, 12), min_size=1, max_size=12)


def twin(slots: int = 4, dtype: torch.dtype = torch.float32) -> Code2Wav:
    return Code2Wav(TWIN_DIMS, random_weights(TWIN_DIMS, seed=3), slots=slots, dtype=dtype)


def latent(rows: int, frames: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, TWIN_DIMS.latent, frames, generator=torch.Generator().manual_seed(seed))


def stream(vocoder: Code2Wav, slot: int, frames: Tensor, schedule: list[int], empty_end: bool) -> Tensor:
    """One stream alone, checking that intervals continue and that the frontier is exact."""
    vocoder.start(slot)
    pieces, done, emitted = [], 0, 0
    for position, count in enumerate(schedule):
        last = position == len(schedule) - 1 and not empty_end
        [chunk] = vocoder.push([slot], frames[None, :, done : done + count], [last])
        done += count
        assert chunk.sample_start == emitted
        emitted = chunk.sample_end
        assert emitted == (vocoder.length(done) if last else max(0, vocoder.gain * done - vocoder.latency_samples))
        pieces.append(chunk.samples)
    if empty_end:
        [chunk] = vocoder.push([slot], frames[None, :, done:done], [True])
        assert chunk.is_final
        pieces.append(chunk.samples)
    return torch.cat(pieces)


@given(schedules, st.booleans(), st.integers(0, 5))
def test_any_chunk_schedule_equals_the_offline_decode(schedule: list[int], empty_end: bool, seed: int) -> None:
    vocoder = twin()
    frames = latent(1, sum(schedule), seed)
    streamed = stream(vocoder, 1, frames[0], schedule, empty_end)
    offline = vocoder.decode(frames)[0]
    assert streamed.shape == offline.shape == (vocoder.length(sum(schedule)),)
    torch.testing.assert_close(streamed, offline, rtol=0, atol=TOLERANCE)


@given(st.randoms(use_true_random=False))
def test_streams_join_and_leave_a_batch_without_touching_each_other(random: Random) -> None:
    """Streams of different ages share launches in random company; each still equals its own offline decode."""
    vocoder = twin(slots=3)
    frames = [latent(1, random.randrange(20), seed)[0] for seed in range(4)]
    waiting, active = list(range(4)), dict[int, int]()  # slot -> stream
    done, pieces = [0] * 4, [list[Tensor]() for _ in range(4)]
    while waiting or active:
        while waiting and len(active) < 3 and random.random() < 0.7:
            slot = next(slot for slot in range(3) if slot not in active)
            active[slot] = waiting.pop(0)
            vocoder.start(slot)
        chosen = random.sample(sorted(active), random.randint(min(1, len(active)), len(active)))
        if not chosen:
            continue
        left = {slot: frames[active[slot]].shape[1] - done[active[slot]] for slot in chosen}
        count = min([random.randint(1, 12), *left.values()])
        batch = torch.stack([frames[active[slot]][:, done[active[slot]] :][:, :count] for slot in chosen])
        ends = [left[slot] == count for slot in chosen]
        for slot, chunk in zip(chosen, vocoder.push(chosen, batch, ends), strict=True):
            pieces[active[slot]].append(chunk.samples)
            done[active[slot]] += count
            if chunk.is_final:
                del active[slot]
    for row, streamed in zip(frames, pieces, strict=True):
        torch.testing.assert_close(torch.cat(streamed), vocoder.decode(row[None])[0], rtol=0, atol=TOLERANCE)


def test_full_size_twin_streams_exactly_and_batches_invariantly() -> None:
    dims = VocoderDims()
    vocoder = Code2Wav(dims, random_weights(dims, seed=0), slots=4)
    frames = torch.randn(4, dims.latent, 30, generator=torch.Generator().manual_seed(1))
    offline = vocoder.decode(frames)
    for slot in range(4):
        vocoder.start(slot)
    pieces = [list[Tensor]() for _ in range(4)]
    for begin in range(0, 30, 10):
        for row, chunk in enumerate(vocoder.push(range(4), frames[..., begin : begin + 10], [begin == 20] * 4)):
            pieces[row].append(chunk.samples)
    streamed = torch.stack([torch.cat(row) for row in pieces])
    torch.testing.assert_close(streamed, offline, rtol=0, atol=TOLERANCE)
    alone = stream(vocoder, 0, frames[2], [10, 10, 10], empty_end=False)
    torch.testing.assert_close(alone, streamed[2], rtol=0, atol=TOLERANCE)
    assert (vocoder.gain, vocoder.latency_samples, vocoder.state_bytes) == (256, 2582, 247_680)
    assert 0.05 < float(streamed.std()) < 0.9


def test_swapped_state_fails_the_differential() -> None:
    """The comparison would notice two streams that exchange their state: the oracle itself is alive."""
    vocoder = twin()
    frames = latent(2, 20)
    for slot in (0, 1):
        vocoder.start(slot)
    first = vocoder.push([0, 1], frames[..., :10], [False, False])
    saved = vocoder.snapshot(0), vocoder.snapshot(1)
    vocoder.restore(0, saved[1])
    vocoder.restore(1, saved[0])
    last = vocoder.push([0, 1], frames[..., 10:], [True, True])
    streamed = torch.cat([first[0].samples, last[0].samples])
    assert float((streamed - vocoder.decode(frames)[0]).abs().max()) > 100 * TOLERANCE


def test_a_stream_continues_from_a_snapshot_in_another_model() -> None:
    frames = latent(1, 20)
    here, there = twin(), twin()
    here.start(2)
    [first] = here.push([2], frames[..., :7], [False])
    there.restore(0, here.snapshot(2))
    [last] = there.push([0], frames[..., 7:], [True])
    streamed = torch.cat([first.samples, last.samples])
    torch.testing.assert_close(streamed, here.decode(frames)[0], rtol=0, atol=TOLERANCE)


def test_state_does_not_grow_and_a_slot_is_clean_after_reuse() -> None:
    vocoder = twin(slots=1)
    outputs = [stream(vocoder, 0, latent(1, 40)[0], [5] * 8, empty_end=False) for _ in range(2)]
    assert torch.equal(outputs[0], outputs[1])
    vocoder.start(0)
    for _ in range(3):
        vocoder.push([0], latent(1, 30), [False])
        _, state = vocoder.snapshot(0)
        assert state.numel() * state.element_size() == vocoder.state_bytes


def test_bfloat16_streaming_keeps_the_signal() -> None:
    """Rounding depends on the chunks in bfloat16, so the tolerance is a signal-to-noise ratio."""
    vocoder = twin(dtype=torch.bfloat16)
    frames = latent(1, 60)
    offline = vocoder.decode(frames)[0].float()
    streamed = stream(vocoder, 0, frames[0], [10] * 6, empty_end=False).float()
    noise = (streamed - offline).pow(2).mean().clamp(min=1e-20)
    assert 10 * torch.log10(offline.pow(2).mean() / noise) > 35


def test_an_empty_stream_is_one_final_chunk_without_samples() -> None:
    vocoder = twin()
    vocoder.start(0)
    [chunk] = vocoder.push([0], latent(1, 0), [True])
    assert (chunk.sample_start, chunk.sample_end, chunk.is_final) == (0, 0, True)
    vocoder.start(0)


def test_pcm_clips_and_rounds() -> None:
    samples = torch.tensor([0.0, 0.5, -1.0, 2.0, -2.0, 1e-9])
    values = np.frombuffer(pcm16(samples), "<i2").tolist()
    assert values == [0, 16384, -32767, 32767, -32767, 0]


@pytest.mark.parametrize(
    ("slots", "rows", "message"),
    [([0, 0], 2, "once per push"), ([1], 1, "no stream in slots"), ([0], 2, "latent of shape")],
)
def test_misuse_is_one_clear_error(slots: list[int], rows: int, message: str) -> None:
    vocoder = twin()
    vocoder.start(0)
    with pytest.raises(UsageError, match=message):
        vocoder.push(slots, latent(rows, 3), [False] * len(slots))
    with pytest.raises(UsageError, match="open stream"):
        vocoder.start(0)


def test_weights_of_another_shape_are_refused() -> None:
    weights = random_weights(TWIN_DIMS, seed=0)
    weights["conv_pre.bias"] = torch.zeros(3)
    with pytest.raises(UsageError, match=r"conv_pre\.bias"):
        Code2Wav(TWIN_DIMS, weights)
