"""Gain, latency, length and receptive field follow from the layer list."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from workbench.errors import UsageError
from workbench.testbed.models.code2wav import VocoderDims
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

convs = st.builds(Conv, st.integers(1, 5), st.integers(1, 3), st.integers(0, 6), st.integers(0, 6))
ups = st.integers(1, 4).flatmap(
    lambda stride: st.builds(
        ConvTranspose, st.just(stride), st.integers(stride, 3 * stride), st.integers(0, 4), st.integers(0, 4)
    )
)
stacks = st.lists(convs | ups, min_size=1, max_size=4)


def run(layers: list[Layer], x: Tensor) -> Tensor:
    """The stack with all weights positive, so that a changed input always changes every output that reads it."""
    for layer in layers:
        match layer:
            case Conv(kernel, dilation, left, right):
                x = F.conv1d(F.pad(x, (left, right)), torch.ones(1, 1, kernel, dtype=x.dtype), dilation=dilation)
            case ConvTranspose(stride, kernel, left, right):
                x = F.conv_transpose1d(x, torch.ones(1, 1, kernel, dtype=x.dtype), stride=stride)
                x = x[..., left : x.shape[-1] - right]
            case Parallel(branches):
                x = torch.stack([run(list(branch), x) for branch in branches]).sum(0)
    return x


def test_a_causal_stack_with_left_trim_holds_back_555_samples() -> None:
    """The per-block numbers of a public decoder bug: rates 8, 5, 4, 3 with kernel 2r and r trimmed on each side."""
    stack: list[Layer] = [ConvTranspose(rate, 2 * rate, rate, rate) for rate in (8, 5, 4, 3)]
    assert [frontier(stack[: n + 1])[1] for n in range(4)] == [8, 45, 184, 555]
    assert frontier(stack)[0] == 480
    assert output_length(stack, 120) == 120 * 480 - 555


def test_the_medium_voice_decoder_holds_back_2582_samples() -> None:
    layers = VocoderDims().layers()
    assert frontier(layers) == (256, 2582)
    assert receptive_field(layers) == (11, 11)
    assert output_length(layers, 7) == 7 * 256


def first_changed(layers: list[Layer], frames: int, later: int) -> int | None:
    """The first output sample that input frames from `frames` on can change, tried with positive weights."""
    x = torch.zeros(1, 1, frames + later, dtype=torch.float64)
    changed = x.clone()
    changed[..., frames:] = 1.0
    differs = (run(layers, x) != run(layers, changed))[0, 0].nonzero()[:, 0].tolist()
    return differs[0] if differs else None


@given(stacks, st.integers(1, 12), st.integers(1, 12))
def test_samples_before_the_frontier_do_not_depend_on_later_frames(
    layers: list[Layer], frames: int, later: int
) -> None:
    if output_length(layers, frames + later):
        gain, latency = frontier(layers)
        first = first_changed(layers, frames, later)
        assert first is None or first >= max(0, gain * frames - latency)


@given(st.lists(st.builds(same, st.sampled_from([1, 3, 5])) | ups, min_size=1, max_size=4))
def test_the_sample_at_the_frontier_does(layers: list[Layer]) -> None:
    """The recursion is not one sample too careful (in stacks without holes in their kernels)."""
    gain, latency = frontier(layers)
    frames, later = 40, 40
    assert first_changed(layers, frames, later) == gain * frames - latency


@given(stacks, st.integers(1, 12))
def test_output_length_is_that_of_the_offline_stack(layers: list[Layer], frames: int) -> None:
    length = output_length(layers, frames)
    if length:
        assert run(layers, torch.zeros(1, 1, frames, dtype=torch.float64)).shape[-1] == length


@given(st.lists(st.builds(same, st.sampled_from([1, 3, 5]), st.integers(1, 3)), min_size=1, max_size=3))
def test_receptive_field_is_the_reach_of_an_impulse(layers: list[Layer]) -> None:
    left, right = receptive_field(layers)
    x = torch.zeros(1, 1, 101, dtype=torch.float64)
    x[..., 50] = 1.0
    reached = run(layers, x)[0, 0].nonzero()[:, 0].tolist()
    assert (reached[0], reached[-1]) == (50 - right, 50 + left)


def test_an_even_kernel_cannot_keep_length() -> None:
    with pytest.raises(UsageError, match="kernel=4"):
        same(4)


def test_branches_must_agree_in_rate_and_length() -> None:
    uneven = Parallel(((ConvTranspose(2, 2),), (ConvTranspose(3, 3),)))
    with pytest.raises(UsageError, match="gain"):
        frontier([uneven])
    with pytest.raises(UsageError, match="length"):
        output_length([uneven], 4)
