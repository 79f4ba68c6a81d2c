"""The thinker stage: a LLaMA-style language model whose KV cache is cut into slots, for continuous batching.

A request holds one slot from prefill to its last token. Each decode step takes any set of slots at any positions;
rows do not see each other, so that in fp32 the greedy ids of a request are those of the request run alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from workbench.errors import UsageError


@dataclass(frozen=True, slots=True)
class ThinkerDims:
    """Shape of the language model; the default is that of SmolLM2-135M.

    Attributes
    ----------
    layers, width, heads, kv_heads, ffn, vocab : int
        Blocks, model width, query heads, key-value heads, hidden width of the gated feed-forward net, tokens.
    rope_base, eps : float
        Base of the rotary frequencies (dimensionless), and the epsilon of the RMS norms.
    """

    layers: int = 30
    width: int = 576
    heads: int = 9
    kv_heads: int = 3
    ffn: int = 1536
    vocab: int = 49_152
    rope_base: float = 100_000.0
    eps: float = 1e-5

    @property
    def head_width(self) -> int:
        """Channels of one attention head."""
        return self.width // self.heads

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name (as in GGUF files) and shape of every parameter, in a fixed order."""
        kv = self.kv_heads * self.head_width
        shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.vocab, self.width)}
        for layer in range(self.layers):
            shapes |= {
                f"blk.{layer}.attn_norm.weight": (self.width,),
                f"blk.{layer}.attn_q.weight": (self.width, self.width),
                f"blk.{layer}.attn_k.weight": (kv, self.width),
                f"blk.{layer}.attn_v.weight": (kv, self.width),
                f"blk.{layer}.attn_output.weight": (self.width, self.width),
                f"blk.{layer}.ffn_norm.weight": (self.width,),
                f"blk.{layer}.ffn_gate.weight": (self.ffn, self.width),
                f"blk.{layer}.ffn_up.weight": (self.ffn, self.width),
                f"blk.{layer}.ffn_down.weight": (self.width, self.ffn),
            }
        return shapes | {"output_norm.weight": (self.width,)}


TWIN_DIMS = ThinkerDims(layers=2, width=48, heads=6, kv_heads=2, ffn=96, vocab=272)


def random_weights(dims: ThinkerDims, seed: int) -> dict[str, Tensor]:
    """Weights of a random-init twin: same shapes and cost as a trained model, replies without meaning."""
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in dims.shapes().items():
        if len(shape) == 1:
            weights[name] = torch.ones(shape)
        else:
            weights[name] = torch.randn(shape, generator=generator) / math.sqrt(shape[1])
    return weights


class _Block:
    """Parameters of one layer, with the projections that read the same input fused."""

    def __init__(self, w: Mapping[str, Tensor], layer: int, device: torch.device, dtype: torch.dtype) -> None:
        def get(*names: str) -> Tensor:
            parts = [w[f"blk.{layer}.{name}.weight"].to(device, dtype) for name in names]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        self.attn_norm, self.ffn_norm = get("attn_norm"), get("ffn_norm")
        self.qkv = get("attn_q", "attn_k", "attn_v")
        self.out = get("attn_output")
        self.gate_up = get("ffn_gate", "ffn_up")
        self.down = get("ffn_down")


class Thinker:
    """Language model with a fixed pool of KV slots.

    Parameters
    ----------
    dims : ThinkerDims
        Shape of the model.
    weights : mapping of str to Tensor
        Parameters by the names of ``dims.shapes()``; see :func:`random_weights` and ``weights.load``.
    slots : int
        Requests that can hold a KV cache at once.
    max_tokens : int
        Prompt and reply tokens that a slot holds.
    device, dtype : optional
        Where and in which precision to compute. Only fp32 keeps greedy ids independent of the batch.

    Examples
    --------
    >>> thinker = Thinker(TWIN_DIMS, random_weights(TWIN_DIMS, seed=0), slots=2, max_tokens=16)
    >>> first = int(thinker.prefill(1, [5, 6, 7]).argmax())
    >>> thinker.decode([1], [first]).shape, thinker.tokens(1)
    (torch.Size([1, 272]), 4)
    """

    def __init__(
        self,
        dims: ThinkerDims,
        weights: Mapping[str, Tensor],
        *,
        slots: int = 16,
        max_tokens: int = 256,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        wrong = {name: shape for name, shape in dims.shapes().items() if tuple(weights[name].shape) != shape}
        if wrong:
            name, shape = next(iter(wrong.items()))
            raise UsageError(f"shape {shape} for {name}", f"{tuple(weights[name].shape)}", where="thinker weights")
        self.dims = dims
        self.slots = slots
        self.max_tokens = max_tokens
        self.device = torch.device(device)
        self.dtype = dtype
        self._embedding = weights["token_embd.weight"].to(self.device, dtype)
        self._norm = weights["output_norm.weight"].to(self.device, dtype)
        self._blocks = [_Block(weights, layer, self.device, dtype) for layer in range(dims.layers)]
        frequencies = dims.rope_base ** (-torch.arange(0, dims.head_width, 2, dtype=torch.float64) / dims.head_width)
        angles = torch.outer(torch.arange(max_tokens, dtype=torch.float64), frequencies)
        self._cos = angles.cos().to(self.device, dtype)
        self._sin = angles.sin().to(self.device, dtype)
        cache = (dims.layers, slots, dims.kv_heads, max_tokens, dims.head_width)
        self._keys = torch.zeros(cache, device=self.device, dtype=dtype)
        self._values = torch.zeros(cache, device=self.device, dtype=dtype)
        self._lengths = [0] * slots

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values that one token adds to its slot."""
        dims = self.dims
        return 2 * dims.layers * dims.kv_heads * dims.head_width * self._keys.element_size()

    def tokens(self, slot: int) -> int:
        """Tokens held in a slot; 0 means free."""
        return self._lengths[slot]

    def free(self, slot: int) -> None:
        """Give a slot back; one that is free already stays free."""
        self._lengths[slot] = 0

    @torch.inference_mode()
    def prefill(self, slot: int, ids: Sequence[int], allowed: Tensor | None = None) -> Tensor:
        """Take a prompt into a free slot.

        Parameters
        ----------
        slot : int
            A free slot.
        ids : sequence of int
            At least one token, at most ``max_tokens``.
        allowed : Tensor of int64, shape (choices,), optional
            Only these tokens are scored.

        Returns
        -------
        Tensor, shape (vocab,) or (choices,)
            Logits of the next token.

        Raises
        ------
        UsageError
            The slot is in use, or the prompt is empty or too long.
        """
        count = len(ids)
        if self._lengths[slot]:
            raise UsageError("a free slot", f"slot {slot} with {self._lengths[slot]} tokens", where="thinker")
        if not 0 < count <= self.max_tokens:
            raise UsageError(f"1 to max_tokens={self.max_tokens} prompt tokens", f"{count}", where="thinker")
        x = self._embedding[torch.tensor(ids, device=self.device)]
        cos, sin = self._cos[:count], self._sin[:count]
        group = self.dims.heads // self.dims.kv_heads
        for layer, block in enumerate(self._blocks):
            q, k, v = self._project(x, block)  # [tokens, heads, head_width]
            q, k = _rotate(q, cos[:, None], sin[:, None]), _rotate(k, cos[:, None], sin[:, None])
            k, v = k.transpose(0, 1), v.transpose(0, 1)
            self._keys[layer, slot, :, :count] = k
            self._values[layer, slot, :, :count] = v
            k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
            attended = F.scaled_dot_product_attention(q.transpose(0, 1)[None], k[None], v[None], is_causal=True)[0]
            x = self._feed(x, attended.transpose(0, 1).reshape(count, -1), block)
        self._lengths[slot] = count
        return self._logits(x[-1:], allowed)[0]

    @torch.inference_mode()
    def decode(self, slots: Sequence[int], tokens: Sequence[int], allowed: Tensor | None = None) -> Tensor:
        """Add one token to each of several slots, whatever their positions.

        Parameters
        ----------
        slots : sequence of int
            Slots in use, each at most once.
        tokens : sequence of int
            The token to add to each.
        allowed : Tensor of int64, shape (choices,), optional
            Only these tokens are scored, for all rows.

        Returns
        -------
        Tensor, shape (len(slots), vocab) or (len(slots), choices)
            Logits of the next token of each row.

        Raises
        ------
        UsageError
            A slot that is free, full or named twice.
        """
        lengths = [self._lengths[slot] for slot in slots]
        for slot, length in zip(slots, lengths, strict=True):
            if not 0 < length < self.max_tokens:
                raise UsageError(
                    f"1 to {self.max_tokens - 1} tokens in a slot before a decode step",
                    f"{length} in slot {slot}",
                    where="thinker",
                )
        if len(set(slots)) != len(slots) or len(tokens) != len(slots):
            raise UsageError("one token for each slot, each slot once", f"slots {list(slots)}, {len(tokens)} tokens")
        rows = torch.tensor(slots, device=self.device)
        at = torch.tensor(lengths, device=self.device)
        span = max(lengths) + 1
        visible = (torch.arange(span, device=self.device) <= at[:, None])[:, None, None]
        cos, sin = self._cos[at][:, None], self._sin[at][:, None]
        x = self._embedding[torch.tensor(tokens, device=self.device)]
        for layer, block in enumerate(self._blocks):
            q, k, v = self._project(x, block)  # [rows, heads, head_width]
            q, k = _rotate(q, cos, sin), _rotate(k, cos, sin)
            keys, values = self._keys[layer], self._values[layer]
            keys[rows, :, at] = k
            values[rows, :, at] = v
            # The query heads that share a key head stand in the place of query positions: no copy of keys per head.
            attended = F.scaled_dot_product_attention(
                q.reshape(len(slots), self.dims.kv_heads, -1, self.dims.head_width),
                keys[:, :, :span].index_select(0, rows),
                values[:, :, :span].index_select(0, rows),
                attn_mask=visible,
            )
            x = self._feed(x, attended.flatten(1), block)
        for slot in slots:
            self._lengths[slot] += 1
        return self._logits(x, allowed)

    def _project(self, x: Tensor, block: _Block) -> tuple[Tensor, Tensor, Tensor]:
        dims = self.dims
        heads = F.linear(F.rms_norm(x, (dims.width,), block.attn_norm, dims.eps), block.qkv)
        q, k, v = heads.view(x.shape[0], -1, dims.head_width).split([dims.heads, dims.kv_heads, dims.kv_heads], 1)
        return q, k, v

    def _feed(self, x: Tensor, attended: Tensor, block: _Block) -> Tensor:
        x = x + F.linear(attended, block.out)
        hidden = F.linear(F.rms_norm(x, (self.dims.width,), block.ffn_norm, self.dims.eps), block.gate_up)
        gate, up = hidden.chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, block.down)

    def _logits(self, x: Tensor, allowed: Tensor | None) -> Tensor:
        head = self._embedding if allowed is None else self._embedding[allowed]
        return F.linear(F.rms_norm(x, (self.dims.width,), self._norm, self.dims.eps), head)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on interleaved channel pairs, the order of LLaMA weights in GGUF files."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
