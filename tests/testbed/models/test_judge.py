"""The listener counts words as a person would, and hears what the voice says."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import MissingPrerequisite
from workbench.testbed import weights
from workbench.testbed.models.code2wav import Code2Wav, VocoderDims
from workbench.testbed.models.judge import Judge, edits, words
from workbench.testbed.models.phonemes import Phonemes
from workbench.testbed.models.voice import VoiceTeacher

sentences = st.lists(st.sampled_from("abc"), max_size=6)


def test_words_of_a_transcript() -> None:
    assert words(" 1-800, FOUR. It's") == ["one", "eight", "zero", "zero", "four", "it's"]


@given(sentences, sentences, sentences)
def test_edits_are_a_distance(a: list[str], b: list[str], c: list[str]) -> None:
    assert (edits(a, b) == 0) == (a == b)
    assert edits(a, b) == edits(b, a)
    assert edits(a, c) <= edits(a, b) + edits(b, c)
    assert abs(len(a) - len(b)) <= edits(a, b) <= max(len(a), len(b))


@given(sentences, sentences)
def test_edits_equal_the_recursive_definition(a: list[str], b: list[str]) -> None:
    def slow(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        return min(slow(i - 1, j) + 1, slow(i, j - 1) + 1, slow(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    if len(a) + len(b) <= 8:
        assert edits(a, b) == slow(len(a), len(b))


def test_a_missing_judge_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_installed", lambda name: "")
    with pytest.raises(MissingPrerequisite, match="make weights"):
        Judge()


@pytest.mark.weights
def test_the_judge_hears_the_voice_and_nothing_in_silence() -> None:
    text = "four, two, seven, nine, eight."
    latent, _ = VoiceTeacher().latent(Phonemes().ids(text))
    decoder = {name: torch.from_numpy(array) for name, array in weights.load("voice").items() if name != "phonemes"}
    vocoder = Code2Wav(VocoderDims(), decoder, slots=1)
    samples = vocoder.decode(latent.T[None])[0].numpy()
    judge = Judge()
    silence = np.zeros(22_050, np.float32)
    assert judge.word_error_rate([(text, samples)], vocoder.sample_rate) == (0.0, 5)
    assert judge.listen(silence, 16_000) == []
    assert judge.word_error_rate([("one, two.", silence)], 16_000) == (1.0, 2)
