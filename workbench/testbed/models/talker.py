"""The talker stage: an autoregressive transducer from phonemes to codec tokens, stepped over slots.

Each step of a phrase sees the encoding of the phoneme it is on, its own previous codes and how long it has been there;
it emits one frame of codes and how many phonemes to advance. The phrase is over when the phonemes are used up.
Attention reaches back over a sliding window, so that the state of a slot has a fixed size.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.errors import DataIntegrityError, UsageError
from workbench.testbed.models.rvq import Codebooks

ASSET = Path(__file__).parent / "assets" / "talker.npz"


@dataclass(frozen=True, slots=True)
class TalkerDims:
    """Shape of the talker.

    Attributes
    ----------
    phonemes : int
        Size of the phoneme alphabet.
    width, layers, heads : int
        Of the transformer.
    codebooks, codes : int
        Codes per frame, and values of each.
    window : int
        Frames that attention reaches back, the present one included.
    advances : int
        Advance classes: 0 to ``advances - 1`` phonemes in one step.
    longest_stay : int
        Steps on one phoneme after which the talker must move on, so that every phrase ends.
    """

    phonemes: int = 160
    width: int = 160
    layers: int = 3
    heads: int = 4
    codebooks: int = 4
    codes: int = 512
    window: int = 64
    advances: int = 16
    longest_stay: int = 24


TWIN_DIMS = TalkerDims(width=32, layers=2, heads=2, codes=16, window=8, longest_stay=2)


class _Block(nn.Module):
    def __init__(self, dims: TalkerDims) -> None:
        super().__init__()
        width = dims.width
        self.attn_norm, self.ffn_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.distance = nn.Parameter(torch.zeros(dims.heads, dims.window))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, each (..., heads, head width)."""
        heads = self.distance.shape[0]
        parts = self.qkv(self.attn_norm(x)).chunk(3, -1)
        q, k, v = (part.view(*part.shape[:-1], heads, -1) for part in parts)
        return q, k, v

    def feed(self, x: Tensor, attended: Tensor) -> Tensor:
        x = x + self.out(attended)
        hidden: Tensor = self.down(F.gelu(self.up(self.ffn_norm(x))))
        return x + hidden


class TalkerNet(nn.Module):
    """Parameters of the talker, and the teacher-forced pass that training uses."""

    def __init__(self, dims: TalkerDims) -> None:
        super().__init__()
        self.dims = dims
        width = dims.width
        self.phoneme = nn.Embedding(dims.phonemes, width)
        self.near, self.far = nn.Conv1d(width, width, 5, padding=2), nn.Conv1d(width, width, 5, padding=2)
        # One more code than there are: the frame before the first.
        self.code = nn.ModuleList([nn.Embedding(dims.codes + 1, width) for _ in range(dims.codebooks)])
        self.stay = nn.Embedding(dims.longest_stay, width)
        self.blocks = nn.ModuleList([_Block(dims) for _ in range(dims.layers)])
        self.norm = nn.LayerNorm(width)
        self.heads = nn.ModuleList([nn.Linear(width, dims.codes) for _ in range(dims.codebooks)])
        self.depth = nn.ModuleList([nn.Linear(width, width) for _ in range(dims.codebooks - 1)])
        self.advance = nn.Linear(width, dims.advances)

    def encode(self, ids: Tensor, keep: Tensor) -> Tensor:
        """Phoneme encodings (rows, phonemes, width); `keep` is 1.0 for phonemes and 0.0 for padding."""
        x: Tensor = (self.phoneme(ids) * keep[..., None]).transpose(1, 2)
        for conv in (self.near, self.far):
            x = (x + F.gelu(conv(x))) * keep[:, None]
        return x.transpose(1, 2)

    def embed(self, at_phoneme: Tensor, codes: Tensor, stay: Tensor) -> Tensor:
        """Input of a step: its phoneme's encoding, the previous codes (..., codebooks), steps on this phoneme."""
        x: Tensor = at_phoneme + self.stay(stay)
        for index, table in enumerate(self.code):
            x = x + table(codes[..., index])
        return x

    def forward(
        self, ids: Tensor, keep: Tensor, at: Tensor, before: Tensor, stay: Tensor, codes: Tensor
    ) -> list[Tensor]:
        """Logits of all steps of whole phrases: one tensor per codebook, then the advance."""
        dims = self.dims
        rows, steps = at.shape
        encoded = self.encode(ids, keep)
        x = self.embed(encoded.gather(1, at[..., None].expand(-1, -1, dims.width)), before, stay)
        ago = torch.arange(steps)[:, None] - torch.arange(steps)
        hidden = (ago < 0) | (ago >= dims.window)
        for block in self.blocks:
            assert isinstance(block, _Block)
            q, k, v = (part.transpose(1, 2) for part in block.project(x))
            bias = block.distance[:, ago.clamp(0, dims.window - 1)].masked_fill(hidden, float("-inf"))
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None].to(q.dtype))
            x = block.feed(x, attended.transpose(1, 2).reshape(rows, steps, dims.width))
        x = self.norm(x)
        logits, advance = [], self.advance(x)
        for index, head in enumerate(self.heads):
            logits.append(head(x))
            if index + 1 < dims.codebooks:
                x = x + self.depth[index](self.code[index](codes[..., index]))
        return [*logits, advance]


class Talker:
    """Streaming talker with a fixed pool of slots; a slot holds one phrase at a time.

    Parameters
    ----------
    net : TalkerNet
        Parameters; see :func:`load_talker` and :func:`random_talker`.
    slots : int
        Phrases that can be in progress at once.
    max_phonemes : int
        Longest phrase.
    device, dtype : optional
        Where and in which precision to compute. Only fp32 keeps greedy codes independent of the batch.

    Examples
    --------
    >>> talker = Talker(random_talker(TWIN_DIMS, seed=0), slots=2)
    >>> talker.start(1, [1, 20, 30, 2])
    >>> codes, finished = talker.step([1])
    >>> codes.shape, len(finished)
    (torch.Size([1, 4]), 1)
    """

    def __init__(
        self,
        net: TalkerNet,
        *,
        slots: int = 16,
        max_phonemes: int = 256,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.dims = dims = net.dims
        self.slots = slots
        self.max_phonemes = max_phonemes
        self.device = torch.device(device)
        self.dtype = dtype
        self._net = net.to(self.device, dtype).eval()
        self._blocks = [block for block in self._net.blocks if isinstance(block, _Block)]
        self._encoded = torch.zeros(slots, max_phonemes, dims.width, device=self.device, dtype=dtype)
        cache = (dims.layers, slots, dims.window, dims.heads, dims.width // dims.heads)
        self._keys = torch.zeros(cache, device=self.device, dtype=dtype)
        self._values = torch.zeros(cache, device=self.device, dtype=dtype)
        # Per slot: phoneme position, phonemes, steps on this phoneme, steps done, previous codes.
        self._place = torch.zeros(slots, 4 + dims.codebooks, device=self.device, dtype=torch.int64)
        self._forced: dict[int, Tensor] = {}
        self._active = [False] * slots

    @property
    def state_bytes(self) -> int:
        """Bytes that one slot holds: phoneme encodings, keys and values, position."""
        per_slot = (self._encoded, self._keys, self._values, self._place)
        return sum(tensor.numel() * tensor.element_size() for tensor in per_slot) // self.slots

    @torch.inference_mode()
    def start(self, slot: int, phonemes: Sequence[int], forced: Tensor | None = None) -> None:
        """Begin a phrase in a free slot, with no memory of the phrase before.

        Parameters
        ----------
        slot : int
            A free slot.
        phonemes : sequence of int
            At least one, at most ``max_phonemes``.
        forced : Tensor of int64, shape (n, codebooks), optional
            Codes to emit and feed back in place of the talker's own, which computes the same work. The phrase then ends
            after n frames.

        Raises
        ------
        UsageError
            The slot is in use, or the phrase is empty or too long.
        """
        dims = self.dims
        if self._active[slot]:
            raise UsageError("a free slot", f"slot {slot} with a phrase in progress", where="talker")
        if not 0 < len(phonemes) <= self.max_phonemes:
            raise UsageError(f"1 to max_phonemes={self.max_phonemes} phonemes", f"{len(phonemes)}", where="talker")
        if forced is not None and (forced.ndim != 2 or forced.shape[0] == 0 or forced.shape[1] != dims.codebooks):
            raise UsageError(f"forced codes of shape (n > 0, {dims.codebooks})", f"{tuple(forced.shape)}")
        ids = torch.tensor([list(phonemes)], device=self.device)
        keep = torch.ones(ids.shape, device=self.device, dtype=self.dtype)
        self._encoded[slot, : len(phonemes)] = self._net.encode(ids, keep)[0]
        fresh = [0, len(phonemes), 0, 0] + [dims.codes] * dims.codebooks
        self._place[slot] = torch.tensor(fresh, device=self.device)
        if forced is not None:
            self._forced[slot] = forced.to(self.device)
        self._active[slot] = True

    def free(self, slot: int) -> None:
        """Drop a phrase; a slot that is free already stays free. Finished phrases free their slot themselves."""
        self._active[slot] = False
        self._forced.pop(slot, None)

    @torch.inference_mode()
    def step(self, slots: Sequence[int]) -> tuple[Tensor, list[bool]]:
        """Emit one frame of codes for each of several phrases.

        Parameters
        ----------
        slots : sequence of int
            Slots with a phrase in progress, each at most once.

        Returns
        -------
        codes : Tensor of int64, shape (len(slots), codebooks)
            On the model's device.
        finished : list of bool
            Per slot, whether this was the last frame of its phrase; its slot is then free again.
        """
        idle = [slot for slot in slots if not self._active[slot]]
        if idle or len(set(slots)) != len(slots):
            raise UsageError("slots with a phrase in progress, each once", f"{list(slots)}", where="talker")
        dims, net = self.dims, self._net
        rows = torch.tensor(slots, device=self.device)
        place = self._place[rows]
        at, total, stay, done = place[:, :4].unbind(1)
        x = net.embed(self._encoded[rows, at.clamp(max=total - 1)], place[:, 4:], stay.clamp(max=dims.longest_stay - 1))
        ring = done % dims.window
        # How many steps ago each cell of the ring was written; cells of the future hold an older phrase.
        ago = (ring[:, None] - torch.arange(dims.window, device=self.device)) % dims.window
        unseen = (ago > done[:, None])[:, None]
        for layer, block in enumerate(self._blocks):
            q, k, v = block.project(x)
            self._keys[layer, rows, ring], self._values[layer, rows, ring] = k, v
            bias = block.distance[:, ago].transpose(0, 1).masked_fill(unseen, float("-inf"))
            keys, values = self._keys[layer][rows], self._values[layer][rows]
            attended = F.scaled_dot_product_attention(
                q[:, :, None], keys.transpose(1, 2), values.transpose(1, 2), attn_mask=bias[:, :, None]
            )
            x = block.feed(x, attended.flatten(1))
        x = net.norm(x)
        hop = net.advance(x).argmax(-1)
        codes = []
        for index, head in enumerate(net.heads):
            codes.append(head(x).argmax(-1))
            if index + 1 < dims.codebooks:
                x = x + net.depth[index](net.code[index](codes[index]))
        frame = torch.stack(codes, 1)
        for row, slot in enumerate(slots):
            if slot in self._forced:
                frame[row] = self._forced[slot][int(done[row])]
        hop = torch.where(stay >= dims.longest_stay - 1, hop.clamp(min=1), hop)
        after = torch.stack([at + hop, total, torch.where(hop > 0, 0, stay + 1), done + 1], 1)
        self._place[rows] = torch.cat([after, frame], 1)
        finished = []
        for slot, position, phonemes, steps in zip(slots, *after[:, (0, 1, 3)].T.tolist(), strict=True):
            forced = self._forced.get(slot)
            finished.append(position >= phonemes if forced is None else steps == len(forced))
            if finished[-1]:
                self.free(slot)
        return frame, finished


def random_talker(dims: TalkerDims, seed: int) -> TalkerNet:
    """A random-init twin: same shape and cost, speaks noise at about the pace of people.

    Only its advance is tamed, to at most 3 phonemes a step: digit words then take some ten frames, as trained.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = TalkerNet(dims)
    with torch.no_grad():
        net.advance.bias[4:] -= 100.0
    return net


def save_talker(path: Path, net: TalkerNet, codebooks: Codebooks, provenance: dict[str, object]) -> None:
    """Write parameters and codebooks in half precision, and `provenance` with the file's SHA-256 beside it as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"net.{name}": value.detach().half().numpy() for name, value in net.state_dict().items()}
    for name in ("books", "basis", "mean"):
        arrays[f"rvq.{name}"] = getattr(codebooks, name).half().numpy()
    meta = json.dumps({"dims": asdict(net.dims), "stack": codebooks.stack}, sort_keys=True)
    np.savez_compressed(path, allow_pickle=False, meta=np.frombuffer(meta.encode(), np.uint8), **arrays)
    said = provenance | {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    path.with_suffix(".json").write_text(json.dumps(said, indent=2, sort_keys=True) + "\n")


def load_talker(path: Path = ASSET) -> tuple[TalkerNet, Codebooks]:
    """Read what :func:`save_talker` wrote; the default is the trained talker that comes with the package.

    Raises
    ------
    DataIntegrityError
        The file is damaged or does not hold a talker.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        meta = json.loads(arrays.pop("meta").tobytes())
        net = TalkerNet(TalkerDims(**meta["dims"]))
        tensors = {name: torch.from_numpy(value).float() for name, value in arrays.items()}
        net.load_state_dict({name[4:]: value for name, value in tensors.items() if name.startswith("net.")})
        return net.eval(), Codebooks(tensors["rvq.books"], tensors["rvq.basis"], tensors["rvq.mean"], meta["stack"])
    except (OSError, EOFError, KeyError, RuntimeError, TypeError, ValueError, UsageError, BadZipFile) as error:
        raise DataIntegrityError("a talker file", f"{type(error).__name__}: {error}", where=str(path)) from error
