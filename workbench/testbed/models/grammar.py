"""How a reply is chosen from logits: digits spoken from a closed vocabulary, or free text. No model, no I/O."""

from __future__ import annotations

from collections.abc import Sequence

from workbench.errors import UsageError
from workbench.testbed.models.tokenizer import Tokenizer

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
# Of 22 phrasings tried on 32 strings of 2 to 8 digits this one is copied best: 31 strings right, 98.6 % of the digits.
_SAY, _ANSWER = "Say: {}.", "You said:"


class DigitGrammar:
    """Closed vocabulary of a thinker that reads digits aloud: ``" three, one, four."``.

    The model chooses the digits; commas and the final period follow from how many are asked for, so that the length of
    a reply is a property of the request and not of the model.

    Parameters
    ----------
    tokenizer : Tokenizer
        Must have one token for each digit word with a leading space, for the comma and for the period.

    Attributes
    ----------
    ids : list of int
        The closed vocabulary: digits 0 to 9, comma, period. Pass it as ``allowed`` to the thinker, so that column ``i``
        of the logits is ``ids[i]``.

    Examples
    --------
    >>> from workbench.testbed.models.tokenizer import TwinTokenizer
    >>> grammar = DigitGrammar(TwinTokenizer())
    >>> reply = grammar.reply(count=2)
    >>> scores = [0.0] * 12
    >>> scores[7] = 1.0
    >>> while not reply.is_done:
    ...     _ = reply.choose(scores)
    >>> reply.text
    ' seven, seven.'
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        spoken = [*(f" {word}" for word in DIGITS), ",", "."]
        encoded = [tokenizer.encode(text) for text in spoken]
        split = [text for text, ids in zip(spoken, encoded, strict=True) if len(ids) != 1]
        if split:
            raise UsageError("one token for each word of the closed vocabulary", f"several for {split}")
        self.ids = [ids[0] for ids in encoded]

    def prompt(self, digits: Sequence[int]) -> list[int]:
        """Prompt ids that ask the model to say these digits; the reply begins inside the prompt."""
        words = ", ".join(DIGITS[digit] for digit in digits)
        return self.tokenizer.encode(_CHAT.format(_SAY.format(words)) + _ANSWER)

    def reply(self, count: int) -> DigitReply:
        """A reply of `count` digits."""
        if count < 1:
            raise UsageError("at least one digit", f"count={count}")
        return DigitReply(self, count)


class DigitReply:
    """One reply in progress: tells which tokens may come, chooses greedily among them.

    Attributes
    ----------
    tokens : list of int
        Chosen so far.
    digits : list of int
        The digits among them.
    is_done : bool
        The final period has been chosen.
    """

    def __init__(self, grammar: DigitGrammar, count: int) -> None:
        self._grammar = grammar
        self._count = count
        self.tokens: list[int] = []
        self.digits: list[int] = []
        self.is_done = False

    @property
    def columns(self) -> range:
        """Positions in ``DigitGrammar.ids`` that may come next; empty when done."""
        if self.is_done:
            return range(0)
        if len(self.tokens) % 2 == 0:
            return range(10)
        return range(11, 12) if len(self.digits) == self._count else range(10, 11)

    @property
    def text(self) -> str:
        """The reply so far."""
        return self._grammar.tokenizer.decode(self.tokens)

    def choose(self, scores: Sequence[float]) -> int:
        """Take the best allowed token of one row of logits over ``DigitGrammar.ids``; the first of equals."""
        if self.is_done:
            raise UsageError("a reply in progress", "one that is done")
        column = max(self.columns, key=lambda index: (scores[index], -index))
        token = self._grammar.ids[column]
        self.tokens.append(token)
        if column < len(DIGITS):
            self.digits.append(column)
        self.is_done = column == len(DIGITS) + 1
        return token


class FreeReply:
    """A reply of free text: greedy over the whole vocabulary until the end token or `max_tokens`.

    Attributes
    ----------
    tokens : list of int
        Chosen so far, without the end token.
    is_done : bool
        The end token was chosen or `max_tokens` reached.
    """

    def __init__(self, tokenizer: Tokenizer, max_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self.tokens: list[int] = []
        self.is_done = False

    @staticmethod
    def prompt(tokenizer: Tokenizer, text: str) -> list[int]:
        """Prompt ids of a user message."""
        return tokenizer.encode(_CHAT.format(text))

    @property
    def text(self) -> str:
        """The reply so far."""
        return self._tokenizer.decode(self.tokens)

    def choose(self, scores: Sequence[float]) -> int:
        """Take the best token of one row of logits over the vocabulary; the first of equals."""
        token = max(range(len(scores)), key=scores.__getitem__)
        if token == self._tokenizer.eos_id:
            self.is_done = True
        else:
            self.tokens.append(token)
            self.is_done = len(self.tokens) >= self._max_tokens
        return token
