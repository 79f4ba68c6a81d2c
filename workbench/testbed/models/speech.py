"""All models of the linear speech graph, put together: pretrained where their weights are at hand, else random-init twins."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import torch

from workbench.testbed import weights
from workbench.testbed.models import code2wav, talker, thinker
from workbench.testbed.models.code2wav import Code2Wav, VocoderDims
from workbench.testbed.models.grammar import DigitGrammar
from workbench.testbed.models.phonemes import EspeakProcess, Phonemes
from workbench.testbed.models.rvq import Codebooks
from workbench.testbed.models.talker import Talker, load_talker, random_talker
from workbench.testbed.models.thinker import Thinker, ThinkerDims
from workbench.testbed.models.tokenizer import BpeTokenizer, Tokenizer, TwinTokenizer


@dataclass(frozen=True, slots=True)
class SpeechModels:
    """One set of models on one device.

    Attributes
    ----------
    thinker, tokenizer, grammar
        Text generation.
    phonemes
        Phrases to ids, on the host.
    talker, codebooks
        Codec tokens, and their way back to latent frames.
    code2wav
        Streaming decoder.
    revisions : dict
        Per stage, where its weights come from: package, version and hash, or ``"twin SEED"``. Quality may be judged only
        if none is a twin.
    """

    thinker: Thinker
    tokenizer: Tokenizer
    grammar: DigitGrammar
    phonemes: Phonemes
    talker: Talker
    codebooks: Codebooks
    code2wav: Code2Wav
    revisions: dict[str, str] = field(default_factory=dict)

    @property
    def is_twin(self) -> bool:
        """Whether any stage runs on random weights."""
        return any(revision.startswith("twin") for revision in self.revisions.values())


def load_speech(
    *,
    slots: int = 16,
    max_tokens: int = 128,
    max_phonemes: int = 256,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    cache: Path = weights.CACHE,
    free_text: bool = False,
) -> SpeechModels:
    """The pretrained models. A stage whose weights are absent gets a full-size random-init twin and says so.

    Parameters
    ----------
    slots, max_tokens, max_phonemes : int
        Requests in each stage at once, thinker tokens per request, phonemes per phrase.
    device, dtype : optional
        For all models.
    cache : Path
        Folder of converted weights.
    free_text : bool
        Attach a phonemizer process for text other than digits; needs the voice and piper-tts.
    """
    revisions = weights.revisions()
    available = weights.available(cache)
    used = {}
    if available["thinker"]:
        arrays = weights.load("thinker", cache)
        dims = ThinkerDims(**json.loads(arrays.pop("meta").tobytes()))
        tokenizer: Tokenizer = BpeTokenizer(**json.loads(arrays.pop("tokenizer").tobytes()))
        parameters = {name: torch.from_numpy(value) for name, value in arrays.items()}
        used["thinker"] = revisions["thinker"]
    else:
        dims, tokenizer = ThinkerDims(), TwinTokenizer()
        parameters = thinker.random_weights(dims, seed=0)
        used["thinker"] = "twin 0"
    mind = Thinker(dims, parameters, max_tokens=max_tokens, slots=slots, device=device, dtype=dtype)
    del parameters
    alphabet = None
    if available["voice"]:
        arrays = weights.load("voice", cache)
        alphabet = json.loads(arrays.pop("phonemes").tobytes())
        decoder = {name: torch.from_numpy(value) for name, value in arrays.items()}
        used["code2wav"] = revisions["voice"]
    else:
        decoder = code2wav.random_weights(VocoderDims(), seed=0)
        used["code2wav"] = "twin 0"
    net, codebooks = load_talker()
    used["talker"] = talker.asset_revision()
    return SpeechModels(
        thinker=mind,
        tokenizer=tokenizer,
        grammar=DigitGrammar(tokenizer),
        phonemes=Phonemes(alphabet, EspeakProcess() if free_text else None),
        talker=Talker(net, max_phonemes=max_phonemes, slots=slots, device=device, dtype=dtype),
        codebooks=codebooks.to(device, dtype),
        code2wav=Code2Wav(VocoderDims(), decoder, slots=slots, device=device, dtype=dtype),
        revisions=used,
    )


def twin_speech(
    *,
    seed: int = 0,
    slots: int = 4,
    max_tokens: int = 128,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> SpeechModels:
    """Small random-init models of the same classes: no weights, milliseconds a step, for tests and rehearsals."""
    tokenizer = TwinTokenizer()
    dims = code2wav.TWIN_DIMS
    speaker = talker.TWIN_DIMS
    books = Codebooks.random(
        channels=dims.latent, stack=4, count=speaker.codebooks, size=speaker.codes, seed=seed
    )
    return SpeechModels(
        thinker=Thinker(
            thinker.TWIN_DIMS,
            thinker.random_weights(thinker.TWIN_DIMS, seed),
            slots=slots,
            max_tokens=max_tokens,
            device=device,
            dtype=dtype,
        ),
        tokenizer=tokenizer,
        grammar=DigitGrammar(tokenizer),
        phonemes=Phonemes(),
        talker=Talker(random_talker(speaker, seed), slots=slots, device=device, dtype=dtype),
        codebooks=books.to(device, dtype),
        code2wav=Code2Wav(dims, code2wav.random_weights(dims, seed), slots=slots, device=device, dtype=dtype),
        revisions={stage: f"twin {seed}" for stage in ("thinker", "talker", "code2wav")},
    )
