"""Phrases to phoneme ids on the host: a committed table for digits, an espeak process for any other text.

The phonemizer (piper-tts with espeak inside) is under the GPL. It runs as a process of its own and is reached only by
lines of JSON; nothing of it is imported here. Digit phrases need neither it nor any weights.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

from workbench.errors import DataIntegrityError, MissingPrerequisite, UsageError, WorkbenchError
from workbench.testbed.models.grammar import DIGITS

TABLE = Path(__file__).parent / "assets" / "digit_phonemes.json"
_CHILD = Path(__file__).parent / "phonemizer_child.py"
_BEGIN, _PAD, _END = "^", "_", "$"


class PhonemizerFailed(WorkbenchError):
    """The phonemizer process died, was too slow, or refused a text."""

    exit_code = 3


class EspeakProcess:
    """A phonemizer in its own process, started at first use and again after it died. Safe to share between threads.

    Parameters
    ----------
    timeout_s : float
        Longest wait for one answer; the first includes the start of the process.
    command : sequence of str, optional
        What to run in place of the piper-tts child.
    """

    def __init__(self, *, timeout_s: float = 20.0, command: Sequence[str] | None = None) -> None:
        self._timeout_s = timeout_s
        self._command = list(command or (sys.executable, str(_CHILD)))
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self.version = ""

    def phonemes(self, text: str) -> list[str]:
        """Phonemes of a text, sentences joined.

        Raises
        ------
        MissingPrerequisite
            piper-tts is not installed.
        PhonemizerFailed
            The process died twice on this text, gave no answer in time, or could not treat the text.
        """
        with self._lock:
            for attempt in (1, 2):
                try:
                    answer = self._ask(text)
                    break
                except (BrokenPipeError, EOFError) as error:
                    self._stop()
                    if attempt == 2:
                        raise PhonemizerFailed(
                            "an answer from the phonemizer", "a process that died twice", where=f"text {text!r}"
                        ) from error
        if "phonemes" not in answer:
            raise PhonemizerFailed("phonemes", str(answer.get("error", answer)), where=f"text {text!r}")
        return [str(phoneme) for phoneme in answer["phonemes"]]

    def close(self) -> None:
        """Stop the process; the next call starts it again."""
        with self._lock:
            self._stop()

    def __enter__(self) -> EspeakProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, text: str) -> dict[str, list[str]]:
        deadline_s = time.monotonic() + self._timeout_s
        if self._process is None or self._process.poll() is not None:
            self._stop()
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
            hello = self._read(deadline_s)
            if "ready" not in hello:
                self._stop()
                raise MissingPrerequisite(
                    "the package piper-tts for text that is not digits",
                    str(hello.get("error", hello)),
                    fix="Install it with `make weights`, or speak digits, which need no phonemizer.",
                )
            self.version = str(hello["ready"])
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"text": text}).encode() + b"\n")
        self._process.stdin.flush()
        return self._read(deadline_s)

    def _read(self, deadline_s: float) -> dict[str, list[str]]:
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline_s - time.monotonic()))
            if not ready:
                self._stop()
                raise PhonemizerFailed(f"an answer within {self._timeout_s} s", "none", where="phonemizer process")
            block = os.read(pipe, 65_536)
            if not block:
                raise EOFError
            self._unread += block
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            answer = json.loads(line)
        except ValueError as error:
            self._stop()
            raise PhonemizerFailed("a line of JSON", repr(line[:80]), where="phonemizer process") from error
        return answer if isinstance(answer, dict) else {"error": answer}

    def _stop(self) -> None:
        process, self._process, self._unread = self._process, None, b""
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    # What was buffered for a process that died cannot be delivered any more.
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


class Phonemes:
    """Phoneme ids of phrases, as the voice was trained on: begin, then each phoneme and a pad, then end.

    Parameters
    ----------
    alphabet : mapping of str to ids, optional
        Phoneme alphabet of the voice, the JSON in ``weights.load("voice")["phonemes"]``. Needed for text that is not
        digits.
    process : EspeakProcess, optional
        Phonemizer for text other than digits.

    Examples
    --------
    >>> Phonemes().ids("two,")[:6]
    [1, 0, 32, 0, 120, 0]
    """

    def __init__(
        self, alphabet: Mapping[str, Sequence[int]] | None = None, process: EspeakProcess | None = None
    ) -> None:
        try:
            table = json.loads(TABLE.read_text())
            self._words: dict[str, list[str]] = table["words"]
            self._marks: dict[str, list[str]] = table["marks"]
            self._alphabet: dict[str, list[int]] = table["alphabet"]
        except (OSError, ValueError, KeyError) as error:
            raise DataIntegrityError("a phoneme table", f"{type(error).__name__}: {error}", where=str(TABLE)) from error
        self._process = process
        self.size = 1 + max(index for ids in self._alphabet.values() for index in ids)
        if alphabet is not None:
            self._alphabet = {phoneme: list(ids) for phoneme, ids in alphabet.items()}
            self.size = 1 + max(index for ids in self._alphabet.values() for index in ids)

    def ids(self, phrase: str) -> list[int]:
        """Ids of a phrase; phonemes that the voice does not know are left out.

        Raises
        ------
        MissingPrerequisite
            The phrase is not made of digit words and no phonemizer is at hand.
        """
        phonemes = self._spell(phrase)
        if phonemes is None:
            if self._process is None:
                raise MissingPrerequisite(
                    "a phonemizer for text other than digits",
                    f"none, for {phrase!r}",
                    fix="Pass an EspeakProcess and the alphabet of the voice.",
                )
            phonemes = self._process.phonemes(phrase)
        ids = [*self._alphabet[_BEGIN], *self._alphabet[_PAD]]
        for phoneme in phonemes:
            if phoneme in self._alphabet:
                ids += [*self._alphabet[phoneme], *self._alphabet[_PAD]]
        return ids + self._alphabet[_END]

    def _spell(self, phrase: str) -> list[str] | None:
        """Phonemes from the table, or None if a word is not in it."""
        phonemes = list[str]()
        for word in phrase.split():
            stem, mark = (word[:-1], word[-1]) if word[-1] in self._marks else (word, "")
            if stem.lower() not in self._words or not mark:
                return None
            phonemes += self._words[stem.lower()] + self._marks[mark]
        return phonemes or None


def digit_table(process: EspeakProcess, alphabet: Mapping[str, Sequence[int]]) -> dict[str, object]:
    """Phonemes of the digit words, checked to compose: each phrase of one and two words is the sum of its parts.

    Returns
    -------
    dict
        ``words``, ``marks``, the part of the ``alphabet`` that they use, and ``provenance``.
    """
    marks = {",": [",", " "], ".": ["."]}
    words = {}
    for word in DIGITS:
        spoken = process.phonemes(f"{word}.")
        words[word] = spoken[: -len(marks["."])]
    for length in (1, 2):
        for chosen, mark in product(product(DIGITS, repeat=length), marks):
            ends = [","] * (length - 1) + [mark]
            parts = [p for word, end in zip(chosen, ends, strict=True) for p in words[word] + marks[end]]
            phrase = " ".join(word + end for word, end in zip(chosen, ends, strict=True))
            if (spoken := process.phonemes(phrase)) != parts:
                raise UsageError(f"phonemes {parts}", f"{spoken}", where=f"phrase {phrase!r}")
    used = {_BEGIN, _PAD, _END, *(p for parts in (*words.values(), *marks.values()) for p in parts)}
    return {
        "words": words,
        "marks": marks,
        "alphabet": {phoneme: list(alphabet[phoneme]) for phoneme in sorted(used)},
        "provenance": f"espeak-ng phonemes, voice en-us, by piper-tts {process.version}; ids of voice en_US-joe-medium",
    }


def main() -> None:
    """Write the digit table: ``python -m workbench.testbed.models.phonemes``. Needs piper-tts and the voice."""
    from workbench.testbed import weights

    argparse.ArgumentParser(description=main.__doc__).parse_args()
    alphabet = json.loads(weights.load("voice")["phonemes"].tobytes())
    with EspeakProcess() as process:
        table = digit_table(process, alphabet)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(json.dumps(table, ensure_ascii=False, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
