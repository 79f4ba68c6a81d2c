"""Byte-level BPE in plain Python: the tokenizer of the thinker from its vocabulary and merges alone."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Protocol

from workbench.errors import UsageError

# White_Space of Unicode; str.isspace also takes the separators 0x1C-0x1F, which the published pattern does not.
_SPACE = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {chr(c) for c in range(0x2000, 0x200B)}
_CONTRACTIONS = ("'re", "'ve", "'ll", "'s", "'t", "'m", "'d")


class Tokenizer(Protocol):
    """Text to ids and back."""

    eos_id: int

    def encode(self, text: str) -> list[int]:
        """Ids of a text."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; bytes that are not UTF-8 become U+FFFD."""
        ...


def byte_letters() -> list[str]:
    """The letter that stands for each byte in the vocabulary: printable ones for themselves, the others from U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {value: chr(value) for value in printable}
    for value in range(256):
        letters.setdefault(value, chr(0x100 + len(letters) - len(printable)))
    return [letters[value] for value in range(256)]


def _kind(char: str) -> str:
    if char in _SPACE:
        return "space"
    return {"L": "letter", "N": "number"}.get(unicodedata.category(char)[0], "other")


def pieces(text: str) -> Iterator[str]:
    r"""Split text as the thinker was trained to: single numerals, then the GPT-2 pattern in what is between them.

    The pattern is ``'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+``. Characters that are
    younger than the Unicode tables of this Python are split as "other".

    >>> list(pieces("It's 42 , ok"))
    ['It', "'s", ' ', '4', '2', ' ,', ' ok']
    """
    kinds = [_kind(char) for char in text]
    at, size = 0, len(text)
    while at < size:
        if kinds[at] == "number":
            end = at + 1
        elif contraction := next((c for c in _CONTRACTIONS if text.startswith(c, at)), None):
            end = at + len(contraction)
        else:
            # One plain space belongs to the word or punctuation after it, but not to a numeral, which stands alone.
            lead = at + 1 if text[at] == " " and at + 1 < size and kinds[at + 1] in ("letter", "other") else at
            kind = kinds[lead]
            end = lead + 1
            while end < size and kinds[end] == kind:
                end += 1
            if kind == "space" and end < size and kinds[end] != "number" and end - at > 1:
                end -= 1  # leaves the last space to what follows
        yield text[at:end]
        at = end


class BpeTokenizer:
    """Byte-level byte-pair encoding.

    Parameters
    ----------
    tokens : sequence of str
        Vocabulary in byte letters; the index is the id.
    merges : sequence of str
        ``"left right"`` in order of rank.
    special : iterable of str
        Tokens that are matched in the text before anything else and never split.
    eos, unknown : str
        The token that ends a reply, and the one for a byte that the vocabulary lacks.

    Examples
    --------
    >>> letters = byte_letters()
    >>> tokenizer = BpeTokenizer([*letters, "hi", "<end>"], ["h i"], ["<end>"], "<end>", "<end>")
    >>> tokenizer.encode("hi!<end>"), tokenizer.decode([256, 66])
    ([256, 33, 257], 'hiB')
    """

    def __init__(
        self, tokens: Sequence[str], merges: Sequence[str], special: Iterable[str], eos: str, unknown: str
    ) -> None:
        self._tokens = list(tokens)
        self._ids = {token: index for index, token in enumerate(tokens)}
        self._ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self._special = sorted(special, key=len, reverse=True)
        self._letters = byte_letters()
        self._bytes = {letter: value for value, letter in enumerate(self._letters)}
        missing = [token for token in (*self._special, eos, unknown) if token not in self._ids]
        if missing:
            raise UsageError("special tokens of the vocabulary", f"{missing[:5]}", where="tokenizer")
        self.eos_id, self._unknown = self._ids[eos], self._ids[unknown]
        self._pattern = re.compile("|".join(map(re.escape, self._special)) or r"(?!)")
        self._word = lru_cache(maxsize=65_536)(self._merge)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`; special tokens written in it are recognized."""
        ids, at = list[int](), 0
        for match in self._pattern.finditer(text):
            ids += self._plain(text[at : match.start()])
            ids.append(self._ids[match.group()])
            at = match.end()
        return ids + self._plain(text[at:])

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens left out."""
        special = set(self._special)
        letters = "".join(token for token in (self._tokens[index] for index in ids) if token not in special)
        return bytes(self._bytes[letter] for letter in letters).decode("utf-8", "replace")

    def _plain(self, text: str) -> list[int]:
        return [index for piece in pieces(text) for index in self._word(piece)]

    def _merge(self, piece: str) -> tuple[int, ...]:
        parts = [self._letters[value] for value in piece.encode("utf-8", "surrogatepass")]
        while len(parts) > 1:
            ranked = [(self._ranks.get(pair), at) for at, pair in enumerate(pairwise(parts))]
            known = [(rank, at) for rank, at in ranked if rank is not None]
            if not known:
                break
            _, at = min(known)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
        return tuple(self._ids.get(part, self._unknown) for part in parts)


class TwinTokenizer:
    """Stand-in for random-init thinkers: 256 bytes, an end token and the digit words, so that replies look the same.

    >>> tokenizer = TwinTokenizer()
    >>> tokenizer.decode(tokenizer.encode("Say: three, one.")), tokenizer.encode(" three,")
    ('Say: three, one.', [260, 44])
    """

    def __init__(self, words: Sequence[str] = ()) -> None:
        digits = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
        self._words = [f" {word}" for word in (*digits, *words)]
        self._ids: Mapping[str, int] = {word: 257 + index for index, word in enumerate(self._words)}
        longest_first = sorted(self._words, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        self.eos_id = 256
        self.size = 257 + len(self._words)

    def encode(self, text: str) -> list[int]:
        """Ids of `text`: known words first, bytes for the rest."""
        ids, at = list[int](), 0
        for match in self._pattern.finditer(text):
            ids += text[at : match.start()].encode()
            ids.append(self._ids[match.group()])
            at = match.end()
        return ids + list(text[at:].encode())

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`; the end token is left out, ids past the vocabulary are bytes modulo 256."""
        parts = []
        for index in ids:
            if index != self.eos_id:
                known = 257 <= index < self.size
                parts.append(self._words[index - 257].encode() if known else bytes([index % 256]))
        return b"".join(parts).decode("utf-8", "replace")
