"""Residual vector quantization: latent frames to a few small integers and back, the tokens between talker and vocoder.

Stacks of frames are projected on their principal components and quantized by residual k-means. The projection loses
little and makes the codebooks a sixth of the size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from workbench.errors import UsageError


class Codebooks:
    """Residual codebooks over stacks of latent frames.

    Parameters
    ----------
    books : Tensor, shape (codebooks, codes, rank)
        Codewords in the projected space; codebook ``i`` holds what the ones before it left.
    basis : Tensor, shape (rank, stack * channels)
        Orthonormal rows.
    mean : Tensor, shape (stack * channels,)
        Added to every decoded stack.
    stack : int
        Latent frames per token frame.

    Attributes
    ----------
    count, size : int
        Codebooks, and codes in each: a token frame is `count` integers below `size`.
    """

    def __init__(self, books: Tensor, basis: Tensor, mean: Tensor, stack: int) -> None:
        if books.shape[2] != basis.shape[0] or basis.shape[1] != mean.shape[0] or mean.shape[0] % stack:
            raise UsageError(
                "books (n, codes, rank), basis (rank, stack * channels), mean (stack * channels,)",
                f"{tuple(books.shape)}, {tuple(basis.shape)}, {tuple(mean.shape)}, stack={stack}",
            )
        self.books, self.basis, self.mean, self.stack = books, basis, mean, stack
        self.count, self.size = int(books.shape[0]), int(books.shape[1])
        self.channels = int(mean.shape[0]) // stack

    @classmethod
    def random(cls, *, channels: int, stack: int = 4, count: int = 4, size: int = 512, seed: int = 0) -> Codebooks:
        """Codebooks of a random-init twin: each holds a quarter of the variance of the one before."""
        generator = torch.Generator().manual_seed(seed)
        width = channels * stack
        books = torch.randn(count, size, width, generator=generator) * (0.5 ** torch.arange(count))[:, None, None]
        return cls(books, torch.eye(width), torch.zeros(width), stack)

    @classmethod
    def fit(
        cls, latents: list[Tensor], *, stack: int, rank: int, count: int, size: int, rounds: int, seed: int
    ) -> Codebooks:
        """Fit codebooks by residual k-means on latents of shape (frames, channels).

        Parameters
        ----------
        latents : list of Tensor
            Training data; frames that do not fill a stack are left out.
        stack, rank, count, size : int
            See the class; `rank` is the number of principal components.
        rounds : int
            Lloyd iterations per codebook. A codeword that lost all its points restarts at a random one.
        seed : int
            Of the initial codewords.
        """
        generator = torch.Generator().manual_seed(seed)
        x = torch.cat([_stacked(latent, stack) for latent in latents])
        mean = x.mean(0)
        _, vectors = torch.linalg.eigh((x - mean).T @ (x - mean))
        basis = vectors[:, -rank:].T.flip(0).contiguous()
        rest = (x - mean) @ basis.T
        books = []
        for _ in range(count):
            book = rest[torch.randperm(len(rest), generator=generator)[:size]].clone()
            for _ in range(rounds):
                nearest = torch.cdist(rest, book).argmin(1)
                members = torch.bincount(nearest, minlength=size)
                book = torch.zeros_like(book).index_add_(0, nearest, rest) / members.clamp(min=1)[:, None]
                lost = (members == 0).nonzero()[:, 0]
                book[lost] = rest[torch.randint(len(rest), (len(lost),), generator=generator)]
            rest = rest - book[torch.cdist(rest, book).argmin(1)]
            books.append(book)
        return cls(torch.stack(books), basis, mean, stack)

    def to(self, device: torch.device | str, dtype: torch.dtype = torch.float32) -> Codebooks:
        """The same codebooks on another device or in another precision."""
        return Codebooks(
            self.books.to(device, dtype), self.basis.to(device, dtype), self.mean.to(device, dtype), self.stack
        )

    def encode(self, latent: Tensor) -> Tensor:
        """Codes of a latent: (frames, channels) to int64 (frames // stack, count); frames of half a stack are lost."""
        rest = (_stacked(latent, self.stack) - self.mean) @ self.basis.T
        codes = []
        for book in self.books:
            nearest = torch.cdist(rest, book).argmin(1)
            codes.append(nearest)
            rest = rest - book[nearest]
        return torch.stack(codes, 1)

    def latent(self, codes: Tensor) -> Tensor:
        """Latent frames of codes: int64 (rows, n, count) to (rows, channels, n * stack), as the vocoder takes them."""
        rows, n, _ = codes.shape
        total = sum((book[codes[..., index]] for index, book in enumerate(self.books)), start=self.books.new_zeros(()))
        if n == 0:
            return self.books.new_zeros(rows, self.channels, 0)
        frames = (total @ self.basis + self.mean).view(rows, n * self.stack, self.channels)
        return frames.transpose(1, 2)


def _stacked(latent: Tensor, stack: int) -> Tensor:
    whole = latent.shape[0] // stack * stack
    return latent[:whole].reshape(whole // stack, stack * latent.shape[1])
