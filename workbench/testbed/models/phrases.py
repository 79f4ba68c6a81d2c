"""Cutting a token stream into phrases to speak, deterministic in the text alone."""

from __future__ import annotations

import re

from workbench.errors import UsageError

_MARKED = re.compile(r"[^\s,.;:!?]+[,.;:!?]")


class PhraseSplitter:
    """Takes reply text as it is generated and yields phrases as soon as they are complete.

    The first phrase is the first word that a comma or period ends, or the first `words` words, whichever is sooner: it
    decides when the listener hears something. Later phrases hold `words` words, or fewer where a period ends them. How
    the text is cut into pushes does not matter.

    Parameters
    ----------
    words : int
        Words of a full phrase.
    first_words : int
        Words of the first phrase at which it ends even without a comma.

    Examples
    --------
    >>> splitter = PhraseSplitter(words=3)
    >>> [phrase for token in (" one", ",", " two", ",", " six", ".") for phrase in splitter.push(token)]
    ['one,', 'two, six.']
    >>> splitter.close()
    []
    """

    def __init__(self, words: int = 3, first_words: int = 3) -> None:
        if words < 1 or first_words < 1:
            raise UsageError("at least one word a phrase", f"words={words}, first_words={first_words}")
        self._limit = words
        self._first_limit = first_words
        self._rest = ""
        self._words: list[str] = []
        self._is_first = True
        self._is_closed = False

    def push(self, text: str) -> list[str]:
        """Add text and return the phrases that it completes."""
        if self._is_closed:
            raise UsageError("an open splitter", "one that is closed")
        self._rest += text
        return self._take(at_end=False)

    def close(self) -> list[str]:
        """No more text: return what is left as a last phrase, if anything is."""
        if self._is_closed:
            return []
        self._is_closed = True
        phrases = self._take(at_end=True)
        if self._words:
            phrases.append(" ".join(self._words))
            self._words = []
        return phrases

    def _take(self, *, at_end: bool) -> list[str]:
        phrases = list[str]()
        while True:
            self._rest = self._rest.lstrip()
            end = next((at for at, char in enumerate(self._rest) if char.isspace()), None)
            # A word without its punctuation could still grow; one that ends in a mark is complete.
            if mark := _MARKED.match(self._rest):
                end = mark.end()
            elif end is None:
                if not (at_end and self._rest):
                    return phrases
                end = len(self._rest)
            word, self._rest = self._rest[:end], self._rest[end:]
            if not any(char.isalnum() for char in word):
                continue
            self._words.append(word)
            limit = self._first_limit if self._is_first else self._limit
            stops = word[-1] in ".!?" or (self._is_first and word[-1] in ",;:")
            if stops or len(self._words) == limit:
                phrases.append(" ".join(self._words))
                self._words = []
                self._is_first = False
