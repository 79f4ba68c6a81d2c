"""Word error rate of spoken digits, heard by Whisper tiny.en. For tests and long runs, not for serving.

A judge of the models, not of the transport: it hardly notices lost samples or swapped state. Those are the business of
the chunk contract and of comparisons with a reference run.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from workbench.errors import MissingPrerequisite
from workbench.testbed import weights
from workbench.testbed.models.grammar import DIGITS

RATE = 16_000


def words(text: str) -> list[str]:
    """Lower-case words of a transcript, numerals spelled digit by digit.

    >>> words("Seven, 42; Three!")
    ['seven', 'four', 'two', 'three']
    """
    spelled = re.sub(r"[0-9]", lambda match: f" {DIGITS[int(match.group())]} ", text.lower())
    return re.findall(r"[a-z']+", spelled)


def edits(reference: Sequence[str], heard: Sequence[str]) -> int:
    """Levenshtein distance: fewest insertions, deletions and substitutions of words.

    >>> edits(["one", "two", "two"], ["two", "two", "four"])
    2
    """
    row = list(range(len(heard) + 1))
    for count, expected in enumerate(reference, 1):
        diagonal, row[0] = row[0], count
        for position, word in enumerate(heard, 1):
            diagonal, row[position] = (
                row[position],
                min(row[position] + 1, row[position - 1] + 1, diagonal + (expected != word)),
            )
    return row[-1]


class Judge:
    """Whisper tiny.en as a listener.

    Raises
    ------
    MissingPrerequisite
        The weights or faster-whisper are not installed.
    """

    def __init__(self) -> None:
        model, *_ = weights.locate("judge")
        try:
            whisper = importlib.import_module("faster_whisper")
        except ImportError as error:
            raise MissingPrerequisite("faster-whisper", str(error), fix="Install it with `make weights`.") from error
        self._model: Any = whisper.WhisperModel(
            str(model.parent), device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True
        )

    def listen(self, samples: npt.NDArray[np.float32], sample_rate: int) -> list[str]:
        """Words heard in mono float samples. Loudness is normalized first; silence has no words."""
        peak = float(np.abs(samples).max(initial=0.0))
        if peak == 0.0:
            return []
        signal = importlib.import_module("scipy.signal")
        divisor = int(np.gcd(sample_rate, RATE))
        sound = signal.resample_poly(samples * (0.9 / peak), RATE // divisor, sample_rate // divisor)
        segments, _ = self._model.transcribe(sound.astype(np.float32), beam_size=1, language="en")
        return words("".join(segment.text for segment in segments))

    def word_error_rate(
        self, spoken: Iterable[tuple[str, npt.NDArray[np.float32]]], sample_rate: int
    ) -> tuple[float, int]:
        """Edits over reference words of pairs (text, samples), and the number of reference words."""
        wrong = total = 0
        for text, samples in spoken:
            reference = words(text)
            wrong += edits(reference, self.listen(samples, sample_rate))
            total += len(reference)
        return wrong / max(1, total), total
