"""The plain-Python tokenizer equals the reference implementation, id for id."""

from __future__ import annotations

import json
import unicodedata
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from workbench.errors import UsageError
from workbench.testbed import weights
from workbench.testbed.models.tokenizer import BpeTokenizer, TwinTokenizer, byte_letters, pieces

# Letters that every Unicode table in use agrees on: those of version 3.2.
AGREED = [chr(c) for c in range(0x3000) if unicodedata.ucd_3_2_0.category(chr(c)) not in ("Cn", "Cs", "Co")]
CONTESTED = [char for char in AGREED if unicodedata.category(char)[0] != unicodedata.ucd_3_2_0.category(char)[0]]
texts = st.text(st.sampled_from([char for char in AGREED if char not in CONTESTED]), max_size=40)
ascii_texts = st.text(st.sampled_from(" \n\t'.,!?stmdlrevaXY019<|>_-"), max_size=60)

TRICKY = [
    "",
    " ",
    "  ",
    "Hello world",
    "  two  spaces  ",
    "don't can't we've I'll he'd they're I'm 's",
    "a1b22c333",
    "3.14 and 1,000",
    "x  1",
    "tab\tand\nnewline\n\n end",
    "\u00a0non\u2009breaking\u3000spaces",
    "na\u00efve caf\u00e9 \u4f60\u597d \u041f\u0440\u0438\u0432\u0435\u0442",
    "\U0001f600 \U0001f468\u200d\U0001f469",
    "<|im_start|>user\nhi<|im_end|>\n",
    "a<|im_end|>b <|endoftext|> c",
    "<|im_start",
    "'S 'T",
    " '\"",
    "\u00bd \u2167 \u0663",
    "e\u0301",
]


def reference(tokens: list[str], merges: list[str], special: list[str], unknown: str) -> Tokenizer:
    """The published tokenizer configuration: single digits, then byte-level BPE."""
    model = models.BPE(
        vocab={token: index for index, token in enumerate(tokens)},
        merges=[tuple(merge.split(" ")) for merge in merges],  # type: ignore[misc]
        unk_token=unknown,
    )
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return tokenizer


@cache
def small() -> tuple[BpeTokenizer, Tokenizer]:
    """A vocabulary made here: bytes, a few merges that compete, special tokens, and two bytes missing."""
    letters = [letter for letter in byte_letters() if letter not in "\u0104\u0106"]
    merges = ["t h", "h e", "th e", "\u0120 the", "' s", "a a", "aa a", "\u0120 \u0120", "e r", "the r", "x y"]
    special = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
    tokens = [*special, *letters, *(merge.replace(" ", "") for merge in merges)]
    ours = BpeTokenizer(tokens, merges, special, "<|im_end|>", "<|endoftext|>")
    return ours, reference(tokens, merges, special, "<|endoftext|>")


@pytest.mark.parametrize("text", TRICKY)
def test_tricky_texts(text: str) -> None:
    ours, theirs = small()
    assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids


@given(texts | ascii_texts)
def test_any_text(text: str) -> None:
    ours, theirs = small()
    ids = ours.encode(text)
    assert ids == theirs.encode(text, add_special_tokens=False).ids
    assert ours.decode(ids) == theirs.decode(ids)


@given(st.lists(st.integers(0, 260), max_size=30))
def test_any_ids_decode_as_the_reference_does(ids: list[int]) -> None:
    ours, theirs = small()
    assert ours.decode(ids) == theirs.decode(ids)


@given(st.text(max_size=60))
def test_pieces_are_the_text(text: str) -> None:
    assert "".join(pieces(text)) == text


def test_special_tokens_must_exist() -> None:
    with pytest.raises(UsageError, match="<end>"):
        BpeTokenizer(byte_letters(), [], ["<end>"], "<end>", "<end>")


@given(st.text(max_size=30), st.lists(st.sampled_from([" three", ",", ".", " zero"]), max_size=6))
def test_twin_tokenizer_returns_its_text(text: str, words: list[str]) -> None:
    tokenizer = TwinTokenizer()
    whole = text.encode("utf-8", "ignore").decode() + "".join(words)
    assert tokenizer.decode(tokenizer.encode(whole)) == whole


@cache
def pretrained() -> tuple[BpeTokenizer, Tokenizer]:
    parts = json.loads(weights.load("thinker")["tokenizer"].tobytes())
    return BpeTokenizer(**parts), reference(parts["tokens"], parts["merges"], parts["special"], parts["unknown"])


@pytest.mark.weights
@pytest.mark.parametrize("text", [*TRICKY, "The quick brown fox jumps over 13 lazy dogs; isn't it?\n\n\tdef f(x):\n"])
def test_pretrained_vocabulary_on_tricky_texts(text: str) -> None:
    ours, theirs = pretrained()
    ids = ours.encode(text)
    assert ids == theirs.encode(text, add_special_tokens=False).ids
    assert ours.decode(ids) == theirs.decode(ids)


@pytest.mark.weights
@given(texts | ascii_texts)
def test_pretrained_vocabulary_on_any_text(text: str) -> None:
    ours, theirs = pretrained()
    assert ours.encode(text) == theirs.encode(text, add_special_tokens=False).ids
