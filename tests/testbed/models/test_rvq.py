"""Codes and back: exact where codewords are hit, nearest otherwise, better with each codebook."""

from __future__ import annotations

import pytest
import torch

from workbench.errors import UsageError
from workbench.testbed.models.rvq import Codebooks


def test_each_code_is_the_codeword_nearest_to_what_is_left() -> None:
    books = Codebooks.random(channels=6, stack=2, count=3, size=8, seed=1)
    frames = torch.randn(10, 6, generator=torch.Generator().manual_seed(0))
    for stack, codes in zip(frames.reshape(5, 12), books.encode(frames), strict=True):
        rest = stack.clone()
        for book, code in zip(books.books, codes, strict=True):
            assert int(code) == int((book - rest).norm(dim=1).argmin())
            rest -= book[code]


def test_decoding_is_the_sum_of_the_codewords() -> None:
    books = Codebooks.random(channels=3, stack=2, count=2, size=4, seed=0)
    [frames] = books.latent(torch.tensor([[[1, 3], [0, 2]]]))
    expected = torch.stack([books.books[0, 1] + books.books[1, 3], books.books[0, 0] + books.books[1, 2]])
    torch.testing.assert_close(frames.T.reshape(2, 6), expected)
    assert books.latent(torch.zeros(2, 0, 2, dtype=torch.int64)).shape == (2, 3, 0)


def test_fitted_codebooks_explain_more_with_each_book() -> None:
    generator = torch.Generator().manual_seed(0)
    mixing = torch.randn(4, 12, generator=generator)
    data = [torch.randn(400, 4, generator=generator) @ mixing for _ in range(3)]
    residuals = []
    for count in (1, 2, 3):
        books = Codebooks.fit(data, stack=2, rank=8, count=count, size=32, rounds=5, seed=0)
        frames = books.latent(books.encode(data[0])[None])[0].T
        residuals.append(float((frames - data[0]).pow(2).mean() / data[0].pow(2).mean()))
    assert residuals[0] > residuals[1] > residuals[2]
    assert residuals[2] < 0.2
    again = Codebooks.fit(data, stack=2, rank=8, count=3, size=32, rounds=5, seed=0)
    assert torch.equal(again.books, books.books)


def test_frames_that_fill_no_stack_are_left_out() -> None:
    books = Codebooks.random(channels=3, stack=4, count=2, size=4)
    assert books.encode(torch.zeros(7, 3)).shape == (1, 2)
    assert books.encode(torch.zeros(3, 3)).shape == (0, 2)


def test_parts_must_fit() -> None:
    with pytest.raises(UsageError, match="stack=5"):
        Codebooks(torch.zeros(2, 4, 6), torch.zeros(6, 12), torch.zeros(12), stack=5)
