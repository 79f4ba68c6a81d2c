"""Replies over a closed vocabulary, and free ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import UsageError
from workbench.testbed.models.grammar import DIGITS, DigitGrammar, FreeReply
from workbench.testbed.models.tokenizer import BpeTokenizer, TwinTokenizer, byte_letters

GRAMMAR = DigitGrammar(TwinTokenizer())


@given(st.integers(1, 9), st.lists(st.lists(st.floats(-9, 9), min_size=12, max_size=12), min_size=20, max_size=20))
def test_any_scores_give_a_well_formed_reply(count: int, rows: list[list[float]]) -> None:
    """The model picks the digits; length, commas and the period follow from the request."""
    reply = GRAMMAR.reply(count)
    for step in range(2 * count):
        assert not reply.is_done
        before = len(reply.digits)
        token = reply.choose(rows[step])
        assert token in GRAMMAR.ids
        if step % 2 == 0:
            assert reply.digits[before:] == [rows[step].index(max(rows[step][:10]))]
    assert reply.is_done
    assert reply.text == "".join(f" {DIGITS[digit]}," for digit in reply.digits)[:-1] + "."
    with pytest.raises(UsageError, match="done"):
        reply.choose(rows[0])


def test_prompt_names_the_digits() -> None:
    text = GRAMMAR.tokenizer.decode(GRAMMAR.prompt([3, 0]))
    assert "Say: three, zero." in text
    assert text.endswith("assistant\nYou said:")


def test_a_tokenizer_that_splits_digit_words_is_refused() -> None:
    tokenizer = BpeTokenizer([*byte_letters(), "<end>"], [], ["<end>"], "<end>", "<end>")
    with pytest.raises(UsageError, match="' zero'"):
        DigitGrammar(tokenizer)


def test_at_least_one_digit() -> None:
    with pytest.raises(UsageError, match="count=0"):
        GRAMMAR.reply(0)


def test_a_free_reply_ends_at_the_end_token_or_the_limit() -> None:
    tokenizer = TwinTokenizer()
    scores = [0.0] * tokenizer.size
    scores[ord("a")] = 1.0
    reply = FreeReply(tokenizer, max_tokens=3)
    while not reply.is_done:
        reply.choose(scores)
    assert reply.text == "aaa"
    scores[tokenizer.eos_id] = 2.0
    reply = FreeReply(tokenizer, max_tokens=3)
    assert reply.choose(scores) == tokenizer.eos_id
    assert (reply.is_done, reply.text) == (True, "")
    assert FreeReply.prompt(tokenizer, "hi")
