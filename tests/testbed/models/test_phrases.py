"""Phrases depend on the text alone, lose no word, and the first comes early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import UsageError
from workbench.testbed.models.phrases import PhraseSplitter


def split(parts: list[str], words: int = 3) -> list[str]:
    splitter = PhraseSplitter(words=words)
    return [phrase for part in parts for phrase in splitter.push(part)] + splitter.close()


tokens = st.lists(st.sampled_from([" one", " two", ",", ".", " Hi", "!", " ", "-", "7", "\n", " don't"]), max_size=20)


@given(tokens, st.data())
def test_how_the_text_is_cut_does_not_matter(parts: list[str], data: st.DataObject) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(pieces) == split([text]) == split(parts)


@given(tokens, st.integers(1, 4))
def test_no_letter_is_lost_or_moved(parts: list[str], words: int) -> None:
    def letters(text: str) -> str:
        return "".join(char for char in text if char.isalnum())

    phrases = split(parts, words)
    assert letters("".join(phrases)) == letters("".join(parts))
    assert all(any(char.isalnum() for char in phrase) for phrase in phrases)
    assert all(len(phrase.split()) <= max(words, 3) for phrase in phrases)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" three, one, four, one, five.", ["three,", "one, four, one,", "five."]),
        (" three.", ["three."]),
        ("The capital of France is Paris.", ["The capital of", "France is Paris."]),
        ("Yes. No, maybe so", ["Yes.", "No, maybe so"]),
        ("", []),
        (" , . !", []),
    ],
)
def test_examples(text: str, expected: list[str]) -> None:
    assert split([text]) == expected


def test_the_first_phrase_is_there_as_soon_as_its_comma() -> None:
    splitter = PhraseSplitter()
    assert splitter.push(" seven") == []
    assert splitter.push(",") == ["seven,"]


def test_misuse() -> None:
    splitter = PhraseSplitter()
    splitter.close()
    assert splitter.close() == []
    with pytest.raises(UsageError, match="closed"):
        splitter.push("a")
    with pytest.raises(UsageError, match="words=0"):
        PhraseSplitter(words=0)
