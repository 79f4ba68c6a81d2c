"""How far a stack of (transposed) convolutions sees: gain, latency, length and receptive field from the layer list.

Interval arithmetic on absolute sample indices. For output sample ``n`` a convolution (kernel ``k``, dilation ``d``,
left padding ``p``) reads inputs ``n - p .. n - p + d (k - 1)``; a transposed convolution (kernel ``k``, stride ``s``,
left trim ``p``) reads ``ceil((n + p - k + 1) / s) .. floor((n + p) / s)``. All below follows from these two lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class Conv:
    """A stride-1 convolution: `kernel` taps `dilation` apart, zero padding `left` and `right`, all in samples."""

    kernel: int
    dilation: int = 1
    left: int = 0
    right: int = 0


@dataclass(frozen=True, slots=True)
class ConvTranspose:
    """An upsampling by `stride`: `kernel` taps, then `left` and `right` samples trimmed off the ends."""

    stride: int
    kernel: int
    left: int = 0
    right: int = 0


@dataclass(frozen=True, slots=True)
class Parallel:
    """Branches that read the same input and are summed: as late as the latest of them."""

    branches: tuple[tuple[Layer, ...], ...]


Layer = Conv | ConvTranspose | Parallel


def same(kernel: int, dilation: int = 1) -> Conv:
    """The convolution that keeps length: an odd kernel, padded equally on both sides."""
    if kernel % 2 == 0:
        raise UsageError("an odd kernel for a length-keeping convolution", f"kernel={kernel}")
    pad = dilation * (kernel - 1) // 2
    return Conv(kernel, dilation, pad, pad)


def frontier(layers: Sequence[Layer], *, gain: int = 1, latency: int = 0) -> tuple[int, int]:
    """Gain and latency of a stack: after ``T`` input frames exactly ``max(0, gain * T - latency)`` samples are final.

    A convolution adds the inputs it looks ahead, ``L + d (k - 1) - p``; a transposed one scales and adds its left
    trim, ``s L + p``; parallel branches take the latest. A left-trimmed causal stack therefore has a latency although
    no layer looks ahead.

    Parameters
    ----------
    layers : sequence of Layer
        In order from input to output.
    gain, latency : int
        Those of the stack before `layers`: output samples per input frame, and samples at the rate of its output.

    Returns
    -------
    (gain, latency) : tuple of int
        Output samples per input frame, and output samples that are held back until more input (or the end) arrives.

    Examples
    --------
    >>> frontier([same(7), ConvTranspose(8, 16, 4, 4)])
    (8, 28)
    """
    for layer in layers:
        match layer:
            case Conv(kernel, dilation, left, _):
                latency += dilation * (kernel - 1) - left
            case ConvTranspose(stride, _, left, _):
                gain, latency = gain * stride, stride * latency + left
            case Parallel(branches):
                ends = [frontier(branch, gain=gain, latency=latency) for branch in branches]
                if len({end_gain for end_gain, _ in ends}) != 1:
                    raise UsageError("branches of one gain", f"gains {[end_gain for end_gain, _ in ends]}")
                gain, latency = ends[0][0], max(end for _, end in ends)
    return gain, latency


def output_length(layers: Sequence[Layer], frames: int) -> int:
    """Samples that the offline stack makes of `frames` input frames, known without decoding; 0 if too few."""
    length = frames
    for layer in layers:
        if length <= 0:
            return 0
        match layer:
            case Conv(kernel, dilation, left, right):
                length += left + right - dilation * (kernel - 1)
            case ConvTranspose(stride, kernel, left, right):
                length = (length - 1) * stride + kernel - left - right
            case Parallel(branches):
                lengths = {output_length(branch, length) for branch in branches}
                if len(lengths) != 1:
                    raise UsageError("branches of one output length", f"lengths {sorted(lengths)}")
                length = lengths.pop()
    return max(0, length)


def receptive_field(layers: Sequence[Layer]) -> tuple[int, int]:
    """Input frames needed before and after a frame so that all output samples of that frame are exact."""
    gain, _ = frontier(layers)
    low, high = _reads(layers, 0, gain - 1)
    return -low, high


def _reads(layers: Sequence[Layer], low: int, high: int) -> tuple[int, int]:
    """First and last input index that output samples `low` to `high` depend on."""
    for layer in reversed(layers):
        match layer:
            case Conv(kernel, dilation, left, _):
                low, high = low - left, high - left + dilation * (kernel - 1)
            case ConvTranspose(stride, kernel, left, _):
                low, high = -((kernel - 1 - low - left) // stride), (high + left) // stride
            case Parallel(branches):
                spans = [_reads(branch, low, high) for branch in branches]
                low, high = min(first for first, _ in spans), max(last for _, last in spans)
    return low, high
