"""The vocoder stage: a HiFi-GAN decoder as exact stateful streaming, many streams a launch, absolute sample intervals.

Every layer keeps only what the next push needs, in a shape that does not depend on the age of the stream, so that
streams of any age share a launch as long as their chunks have equal frame counts. Each layer therefore produces samples
at a fixed delay; those before the first or past the last sample of the stream, which the offline decoder pads with
zeros, are set to zero. Emitted samples equal the offline decode of the whole stream up to float rounding.

The decoder is that of Kong, Kim and Bae (2020), *HiFi-GAN*, with the reduced residual blocks ("type 2") of VITS voices.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from workbench.errors import UsageError
from workbench.testbed.contract import ChunkHeader, StreamSpec
from workbench.testbed.models.frontier import (
    Conv,
    ConvTranspose,
    Layer,
    Parallel,
    frontier,
    output_length,
    receptive_field,
    same,
)

_SLOPE = 0.1
_LAST_SLOPE = 0.01  # the published decoder leaves the final activation at torch's default


@dataclass(frozen=True, slots=True)
class VocoderDims:
    """Shape of a HiFi-GAN decoder; the default is that of the medium Piper voices (1.66 M parameters).

    Attributes
    ----------
    latent : int
        Channels of the input frames.
    channels : int
        Channels after the first convolution; each upsampling halves them.
    upsamplings : tuple of (stride, kernel)
        ``kernel - stride`` is even, so that lengths stay exact multiples.
    blocks : tuple of (kernel, dilations)
        Parallel residual branches after each upsampling, one convolution per dilation.
    edge_kernel : int
        Taps of the first and last convolution.
    sample_rate : int
        Samples per second of the output.
    """

    latent: int = 192
    channels: int = 256
    upsamplings: tuple[tuple[int, int], ...] = ((8, 16), (8, 16), (4, 8))
    blocks: tuple[tuple[int, tuple[int, ...]], ...] = ((3, (1, 2)), (5, (2, 6)), (7, (3, 12)))
    edge_kernel: int = 7
    sample_rate: int = 22_050

    def layers(self) -> list[Layer]:
        """The layer list from which gain, latency and receptive field follow."""
        stack: list[Layer] = [same(self.edge_kernel)]
        for stride, kernel in self.upsamplings:
            trim, odd = divmod(kernel - stride, 2)
            if odd or trim < 0:
                raise UsageError("kernel - stride even and not negative", f"stride={stride}, kernel={kernel}")
            stack.append(ConvTranspose(stride, kernel, trim, trim))
            stack.append(Parallel(tuple(tuple(same(k, d) for d in dilations) for k, dilations in self.blocks)))
        stack.append(same(self.edge_kernel))
        return stack

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name and shape of every parameter, in a fixed order."""
        shapes: dict[str, tuple[int, ...]] = {
            "conv_pre.weight": (self.channels, self.latent, self.edge_kernel),
            "conv_pre.bias": (self.channels,),
        }
        width, block = self.channels, 0
        for level, (_, kernel) in enumerate(self.upsamplings):
            shapes[f"ups.{level}.weight"] = (width, width // 2, kernel)
            width //= 2
            shapes[f"ups.{level}.bias"] = (width,)
            for taps, dilations in self.blocks:
                for position in range(len(dilations)):
                    shapes[f"resblocks.{block}.convs.{position}.weight"] = (width, width, taps)
                    shapes[f"resblocks.{block}.convs.{position}.bias"] = (width,)
                block += 1
        shapes["conv_post.weight"] = (1, width, self.edge_kernel)
        return shapes


TWIN_DIMS = VocoderDims(latent=6, channels=16, upsamplings=((4, 8), (2, 4)), blocks=((3, (1, 2)), (5, (2, 3))))


def random_weights(dims: VocoderDims, seed: int) -> dict[str, Tensor]:
    """Weights of a random-init twin: same shapes and same cost as a trained decoder, audible nonsense.

    Variance-preserving scales keep the output within about +-0.9, so that no fault hides in silence or in clipping.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in dims.shapes().items():
        fan_in = shape[0] if name.endswith("bias") else math.prod(shape[1:])
        if name.startswith("ups.") and name.endswith("weight"):
            fan_in = shape[0] * 2  # two input frames reach each output sample when kernel = 2 stride
        scale = 0.1 if name.endswith("bias") else 1.0 / math.sqrt(fan_in)
        weights[name] = torch.randn(shape, generator=generator) * scale
    return weights


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """Samples that became final in one push.

    Attributes
    ----------
    sample_start : int
        Absolute index of the first sample in the stream.
    samples : Tensor, shape (n,)
        Float samples in [-1, 1] on the model's device; n may be 0.
    frame_start, frame_end : int
        The latent frames that this push took in: ``[frame_start, frame_end)``.
    is_final : bool
        The stream is complete; its slot is free again.
    """

    sample_start: int
    samples: Tensor
    frame_start: int
    frame_end: int
    is_final: bool

    @property
    def sample_end(self) -> int:
        """Absolute index after the last sample."""
        return self.sample_start + int(self.samples.shape[0])


class _Pass:
    """One launch over a group of streams: where each row is, and a cursor over the rows' states."""

    def __init__(self, state: Tensor, frames_in: list[int], ends: bool, frames_new: int) -> None:
        self.old = state
        self.new: list[Tensor] = []
        self._offset = 0
        self._frames_in = frames_in
        self._youngest = min(frames_in)
        self._totals = [count + frames_new for count in frames_in] if ends else None

    def swap(self, channels: int, length: int) -> Tensor:
        """The next piece of state, shape (rows, channels, length). The caller appends its successor to `new`."""
        size = channels * length
        piece = self.old[:, self._offset : self._offset + size]
        self._offset += size
        return piece.view(-1, channels, length)

    def inside(self, x: Tensor, gain: int, latency: int) -> Tensor:
        """Set samples before the start or past the end of each stream to zero, as the offline padding does."""
        if self._totals is None and self._youngest * gain >= latency:
            return x
        starts = torch.tensor([count * gain - latency for count in self._frames_in], device=x.device)
        index = starts[:, None] + torch.arange(x.shape[-1], device=x.device)
        keep = index >= 0
        if self._totals is not None:
            keep &= index < torch.tensor([total * gain for total in self._totals], device=x.device)[:, None]
        return x * keep[:, None].to(x.dtype)


class Code2Wav:
    """Streaming decoder from latent frames to samples with a fixed number of stream slots.

    Parameters
    ----------
    dims : VocoderDims
        Shape of the decoder.
    weights : mapping of str to Tensor
        Parameters by the names of ``dims.shapes()``; see :func:`random_weights` and ``weights.load``.
    slots : int
        Streams that can be open at once.
    device, dtype : optional
        Where and in which precision to compute; state has the same dtype. On a CUDA device streaming is exact only with
        ``torch.backends.cudnn.allow_tf32`` off, which is not torch's default.

    Attributes
    ----------
    gain : int
        Samples per latent frame.
    latency_samples : int
        Samples held back until more frames, or the end, arrive: after ``T`` frames
        ``max(0, gain * T - latency_samples)`` samples have been emitted.
    flush_frames : int
        Frames of computing that the end of a stream adds.
    state_bytes : int
        Size of the state of one stream, constant in its length.

    Examples
    --------
    >>> vocoder = Code2Wav(TWIN_DIMS, random_weights(TWIN_DIMS, seed=0), slots=2)
    >>> vocoder.start(0)
    >>> [chunk] = vocoder.push([0], torch.zeros(1, TWIN_DIMS.latent, 5), [True])
    >>> chunk.sample_start, chunk.sample_end, chunk.is_final
    (0, 40, True)
    """

    def __init__(
        self,
        dims: VocoderDims,
        weights: Mapping[str, Tensor],
        *,
        slots: int = 16,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        wrong = {name: shape for name, shape in dims.shapes().items() if tuple(weights[name].shape) != shape}
        if wrong:
            name, shape = next(iter(wrong.items()))
            raise UsageError(f"shape {shape} for {name}", f"{tuple(weights[name].shape)}", where="vocoder weights")
        self.dims = dims
        self.sample_rate = dims.sample_rate
        self.slots = slots
        self.device = torch.device(device)
        self.dtype = dtype
        self._weights = {name: weights[name].to(self.device, dtype) for name in dims.shapes()}
        self._layers = dims.layers()
        self.gain, self.latency_samples = frontier(self._layers)
        self.flush_frames = -(-self.latency_samples // self.gain)
        self.receptive_frames = receptive_field(self._layers)
        self._frames_in: list[int | None] = [None] * slots
        self._state = torch.zeros(slots, self._state_size(), device=self.device, dtype=dtype)

    @property
    def state_bytes(self) -> int:
        """Bytes of state of one open stream."""
        return int(self._state.shape[1]) * self._state.element_size()

    @property
    def stream_spec(self) -> StreamSpec:
        """What a receiver must know to check a mono 16-bit stream of this decoder."""
        return StreamSpec(self.gain, self.latency_samples, self.length, self.sample_rate)

    def length(self, frames: int) -> int:
        """Samples of a stream of `frames` latent frames, known from the count alone."""
        return output_length(self._layers, frames)

    def start(self, slot: int) -> None:
        """Open a stream in a free slot, with cleared state."""
        if self._frames_in[slot] is not None:
            raise UsageError("a free slot", f"slot {slot} with an open stream", where="code2wav", fix="free it first.")
        self._frames_in[slot] = 0
        self._state[slot].zero_()

    def free(self, slot: int) -> None:
        """Drop a stream; a slot that is free already stays free."""
        self._frames_in[slot] = None

    @torch.inference_mode()
    def push(self, slots: Sequence[int], latent: Tensor, final: Sequence[bool]) -> list[AudioChunk]:
        """Take in one chunk of equal length for each of several streams and emit all samples that became final.

        Parameters
        ----------
        slots : sequence of int
            Open streams, each at most once.
        latent : Tensor, shape (len(slots), latent channels, frames)
            `frames` may be 0.
        final : sequence of bool
            Per stream, whether no frame follows. A final push emits the rest and frees the slot; its rows cost
            ``flush_frames`` more and run as a launch of their own if other rows go on.

        Returns
        -------
        list of AudioChunk
            In the order of `slots`.

        Raises
        ------
        UsageError
            A slot without a stream or named twice, or a shape that does not fit.
        """
        frames = int(latent.shape[-1])
        if tuple(latent.shape) != (len(slots), self.dims.latent, frames) or len(final) != len(slots):
            raise UsageError(
                f"latent of shape ({len(slots)}, {self.dims.latent}, frames) and {len(slots)} final flags",
                f"shape {tuple(latent.shape)} and {len(final)} flags",
                where="code2wav",
            )
        if len(set(slots)) != len(slots):
            raise UsageError("each stream once per push", f"slots {list(slots)}", where="code2wav")
        counts = [self._frames_in[slot] for slot in slots]
        if None in counts:
            closed = [slot for slot, count in zip(slots, counts, strict=True) if count is None]
            raise UsageError("open streams", f"no stream in slots {closed}", where="code2wav", fix="call start first.")
        chunks: dict[int, AudioChunk] = {}
        for ends in (False, True):
            rows = [row for row, flag in enumerate(final) if flag == ends]
            if rows:
                group = latent if len(rows) == len(slots) else latent[rows]
                chunks.update(zip(rows, self._launch([slots[row] for row in rows], group, ends), strict=True))
        return [chunks[row] for row in range(len(slots))]

    @torch.inference_mode()
    def decode(self, latent: Tensor) -> Tensor:
        """Decode whole streams offline: the reference that streaming must equal.

        Parameters
        ----------
        latent : Tensor, shape (rows, latent channels, frames)

        Returns
        -------
        Tensor, shape (rows, length(frames))
        """
        if latent.shape[-1] == 0:
            return latent.new_zeros(latent.shape[0], 0)
        w = self._weights
        pad = self.dims.edge_kernel // 2
        x = F.conv1d(latent.to(self.device, self.dtype), w["conv_pre.weight"], w["conv_pre.bias"], padding=pad)
        block = 0
        for level, (stride, kernel) in enumerate(self.dims.upsamplings):
            x = F.leaky_relu(x, _SLOPE)
            x = F.conv_transpose1d(
                x, w[f"ups.{level}.weight"], w[f"ups.{level}.bias"], stride=stride, padding=(kernel - stride) // 2
            )
            branches = []
            for taps, dilations in self.dims.blocks:
                y = x
                for position, dilation in enumerate(dilations):
                    name = f"resblocks.{block}.convs.{position}"
                    y = y + F.conv1d(
                        F.leaky_relu(y, _SLOPE),
                        w[f"{name}.weight"],
                        w[f"{name}.bias"],
                        dilation=dilation,
                        padding=dilation * (taps - 1) // 2,
                    )
                branches.append(y)
                block += 1
            x = torch.stack(branches).sum(0) / len(branches)
        return torch.tanh(F.conv1d(F.leaky_relu(x, _LAST_SLOPE), w["conv_post.weight"], padding=pad))[:, 0]

    def snapshot(self, slot: int) -> tuple[int, Tensor]:
        """The state of an open stream: frames taken in, and a copy of its ``state_bytes`` of buffers."""
        count = self._frames_in[slot]
        if count is None:
            raise UsageError("an open stream", f"no stream in slot {slot}", where="code2wav")
        return count, self._state[slot].clone()

    def restore(self, slot: int, snapshot: tuple[int, Tensor]) -> None:
        """Continue a stream from a :meth:`snapshot` in this slot, on this or another equal model."""
        self._frames_in[slot], state = snapshot
        self._state[slot] = state.to(self.device, self.dtype)

    def _launch(self, slots: list[int], latent: Tensor, ends: bool) -> list[AudioChunk]:
        """Run one group of streams that all go on, or all end, with this push."""
        counts = [self._frames_in[slot] or 0 for slot in slots]
        frames = int(latent.shape[-1])
        x = latent.to(self.device, self.dtype)
        if ends:
            x = F.pad(x, (0, self.flush_frames))
        if x.shape[-1]:
            rows = torch.tensor(slots, device=self.device)
            step = _Pass(self._state[rows], counts, ends, frames)
            wave = self._run(x, step)
            if not ends:
                self._state[rows] = torch.cat([piece.flatten(1) for piece in step.new], 1)
        else:
            wave = x.new_zeros(len(slots), 0)
        chunks = []
        for slot, count, row in zip(slots, counts, wave, strict=True):
            base = count * self.gain - self.latency_samples
            total = count + frames
            stop = self.length(total) if ends else max(0, total * self.gain - self.latency_samples)
            begin = max(0, base)
            chunks.append(AudioChunk(begin, row[begin - base : max(begin, stop) - base], count, total, ends))
            self._frames_in[slot] = None if ends else total
        return chunks

    def _run(self, x: Tensor, step: _Pass) -> Tensor:
        """Samples at the fixed delay of the stack for a block of frames, state swapped through `step`."""
        edge = same(self.dims.edge_kernel)
        gain, latency = frontier([edge])
        x = step.inside(self._conv(x, "conv_pre", edge, step), gain, latency)
        block = 0
        for level, (stride, kernel) in enumerate(self.dims.upsamplings):
            up = ConvTranspose(stride, kernel, (kernel - stride) // 2, (kernel - stride) // 2)
            gain, latency = frontier([up], gain=gain, latency=latency)
            x = step.inside(self._upsample(F.leaky_relu(x, _SLOPE), f"ups.{level}", up, step), gain, latency)
            stacks = [[same(taps, dilation) for dilation in dilations] for taps, dilations in self.dims.blocks]
            latest = max(frontier(stack, gain=gain, latency=latency)[1] for stack in stacks)
            total: Tensor | None = None
            for stack in stacks:
                y, late = x, latency
                for position, conv in enumerate(stack):
                    name = f"resblocks.{block}.convs.{position}"
                    _, late = frontier([conv], gain=gain, latency=late)
                    branch = step.inside(self._conv(F.leaky_relu(y, _SLOPE), name, conv, step), gain, late)
                    y = self._delay(y, conv.right, step) + branch
                y = self._delay(y, latest - late, step)
                total = y if total is None else total + y
                block += 1
            assert total is not None
            x, latency = total / len(stacks), latest
        return torch.tanh(self._conv(F.leaky_relu(x, _LAST_SLOPE), "conv_post", edge, step))[:, 0]

    def _conv(self, x: Tensor, name: str, conv: Conv, step: _Pass) -> Tensor:
        keep = conv.dilation * (conv.kernel - 1)
        x = torch.cat([step.swap(x.shape[1], keep), x], -1)
        step.new.append(x[..., x.shape[-1] - keep :])
        bias = self._weights.get(f"{name}.bias")
        return F.conv1d(x, self._weights[f"{name}.weight"], bias, dilation=conv.dilation)

    def _upsample(self, x: Tensor, name: str, up: ConvTranspose, step: _Pass) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        overlap = up.kernel - up.stride
        y = F.conv_transpose1d(x, weight, None, stride=up.stride)
        y[..., :overlap] += step.swap(y.shape[1], overlap)
        done = x.shape[-1] * up.stride
        step.new.append(y[..., done:])
        return y[..., :done] + bias[:, None]

    def _delay(self, x: Tensor, samples: int, step: _Pass) -> Tensor:
        if samples == 0:
            return x
        x = torch.cat([step.swap(x.shape[1], samples), x], -1)
        step.new.append(x[..., x.shape[-1] - samples :])
        return x[..., : x.shape[-1] - samples]

    def _state_size(self) -> int:
        """Floats of state per stream, from the layer list."""
        size = self.dims.latent * (self.dims.edge_kernel - 1)
        width = self.dims.channels
        for stride, kernel in self.dims.upsamplings:
            width //= 2
            reach = [sum(d * (k - 1) for d in dilations) for k, dilations in self.dims.blocks]
            delays = [total // 2 for total in reach]
            size += width * (kernel - stride + sum(reach) + sum(delays) + sum(max(delays) - late for late in delays))
        return size + width * (self.dims.edge_kernel - 1)


def pcm16(samples: Tensor) -> bytes:
    """Float samples in [-1, 1] as little-endian 16-bit PCM: clipped, scaled by 32767, rounded half to even.

    >>> pcm16(torch.tensor([0.0, 1.0, -1.5])).hex()
    '0000ff7f0180'
    """
    scaled = (samples.detach().float().clamp(-1.0, 1.0) * 32767.0).round()
    return scaled.to("cpu").numpy().astype(np.dtype("<i2")).tobytes()


def pcm_chunk(
    chunk: AudioChunk,
    spec: StreamSpec,
    *,
    request_id: str,
    epoch: int,
    seq: int,
    state_generation: int,
    model_rev: str,
) -> tuple[ChunkHeader, bytes]:
    """The header and 16-bit mono payload that the client receives for an emitted chunk."""
    payload = pcm16(chunk.samples)
    header = ChunkHeader(
        request_id=request_id,
        epoch=epoch,
        seq=seq,
        sample_start=chunk.sample_start,
        sample_end=chunk.sample_end,
        frame_start=chunk.frame_start,
        frame_end=chunk.frame_end,
        sample_rate=spec.sample_rate,
        channels=spec.channels,
        sample_format=spec.sample_format,
        state_generation=state_generation,
        latency_samples=spec.latency_samples,
        model_rev=model_rev,
        is_final=chunk.is_final,
        pcm_crc32=zlib.crc32(payload),
    )
    return header, payload
