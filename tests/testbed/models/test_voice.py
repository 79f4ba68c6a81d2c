"""The pretrained voice: our decoder is the published one, streaming changes nothing, forced tokens speak any text."""

from __future__ import annotations

import json
from functools import cache
from itertools import cycle

import numpy as np
import pytest
import torch
from torch import Tensor

from workbench.errors import MissingPrerequisite
from workbench.testbed import weights
from workbench.testbed.models.code2wav import Code2Wav, VocoderDims
from workbench.testbed.models.judge import Judge
from workbench.testbed.models.phonemes import EspeakProcess, Phonemes
from workbench.testbed.models.talker import Talker, load_talker
from workbench.testbed.models.voice import VoiceTeacher


@cache
def teacher() -> VoiceTeacher:
    return VoiceTeacher()


def vocoder(slots: int = 4) -> Code2Wav:
    decoder = {name: torch.from_numpy(array) for name, array in weights.load("voice").items() if name != "phonemes"}
    return Code2Wav(VocoderDims(), decoder, slots=slots)


def test_a_missing_voice_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_installed", lambda name: "")
    with pytest.raises(MissingPrerequisite, match="make weights"):
        VoiceTeacher()


@pytest.mark.weights
def test_offline_decode_equals_the_published_model() -> None:
    ids = Phonemes().ids("nine, four.")
    feed = {
        "input": np.array([ids], np.int64),
        "input_lengths": np.array([len(ids)], np.int64),
        "scales": np.array([0.0, 1.0, 0.0], np.float32),
    }
    [expected] = teacher()._session.run(["output"], feed)
    latent, durations = teacher().latent(ids)
    assert sum(durations) == len(latent)
    got = vocoder(1).decode(latent.T[None])[0]
    torch.testing.assert_close(got, torch.from_numpy(expected.reshape(-1)), rtol=0, atol=1e-5)


@pytest.mark.weights
def test_streamed_speech_equals_the_offline_decode() -> None:
    """Four streams of one text in one batch, chunks of changing size, no sample missing and none differing."""
    latent, _ = teacher().latent(Phonemes().ids("seven, zero, three."))
    model, frames = vocoder(), len(latent)
    batch = latent.T[None].expand(4, -1, -1)
    for slot in range(4):
        model.start(slot)
    pieces: list[list[Tensor]] = [[] for _ in range(4)]
    done, sizes = 0, cycle([4, 0, 20, 1, 32])
    while done < frames:
        count = min(next(sizes), frames - done)
        for row, chunk in enumerate(
            model.push(range(4), batch[..., done : done + count], [done + count == frames] * 4)
        ):
            pieces[row].append(chunk.samples)
        done += count
    offline = model.decode(latent.T[None])[0]
    assert offline.shape == (256 * frames,)
    assert float(offline.abs().max()) > 0.1
    for row in pieces:
        torch.testing.assert_close(torch.cat(row), offline, rtol=0, atol=1e-5)


@pytest.mark.weights
def test_forced_tokens_speak_text_that_the_talker_was_never_taught() -> None:
    """Oracle codes of an unseen sentence through talker, codebooks and vocoder, heard by the judge."""
    text = "My friend opened the window and saw three birds in the tree."
    net, codebooks = load_talker()
    alphabet = json.loads(weights.load("voice")["phonemes"].tobytes())
    with EspeakProcess() as process:
        ids = Phonemes(alphabet, process).ids(text)
    codes = teacher().oracle_codes(ids, codebooks)
    talker, emitted, finished = Talker(net, slots=1), [], False
    talker.start(0, ids, codes)
    while not finished:
        frame, [finished] = talker.step([0])
        emitted.append(frame)
    spoken = torch.cat(emitted)
    assert torch.equal(spoken, codes)
    samples = vocoder(1).decode(codebooks.latent(spoken[None]))[0].numpy()
    rate, _ = Judge().word_error_rate([(text.replace("three", "3"), samples)], 22_050)
    assert rate <= 0.35
