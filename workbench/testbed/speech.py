"""The models of the linear speech graph, loaded once and used by any number of runs, and the workers built on them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch

from workbench.errors import UsageError
from workbench.graph import CLIENT, StageGraph, preset
from workbench.testbed import weights
from workbench.testbed.contract import StreamSpec
from workbench.testbed.device import timer
from workbench.testbed.models import code2wav, talker, thinker
from workbench.testbed.models.code2wav import Code2Wav
from workbench.testbed.models.frontier import output_length
from workbench.testbed.models.grammar import DigitGrammar
from workbench.testbed.models.phonemes import Phonemes
from workbench.testbed.models.rvq import Codebooks
from workbench.testbed.models.talker import Talker
from workbench.testbed.models.thinker import Thinker, ThinkerDims
from workbench.testbed.models.tokenizer import BpeTokenizer, TwinTokenizer
from workbench.testbed.server import Server
from workbench.testbed.stages.code2wav import Code2WavWorker
from workbench.testbed.stages.phonemizer import PhonemizerWorker
from workbench.testbed.stages.port import Port
from workbench.testbed.stages.talker import TalkerWorker
from workbench.testbed.stages.thinker import ThinkerWorker
from workbench.testbed.worker import Worker
from workbench.trace.recorder import Recorder

WeightsKind = Literal["pretrained", "full-twin", "twin"]


@dataclass(frozen=True, slots=True)
class Limits:
    """Static control of the graph: how many requests a stage batches and how audio is cut into chunks.

    Attributes
    ----------
    thinker, talker, code2wav : int
        Largest number of requests per launch; for the autoregressive stages also the number of KV slots.
    words_per_phrase : int
        Words that the phonemizer collects after the first phrase.
    first_frames, steady_frames : int
        Talker frames in the first chunk and in later ones.
    code2wav_timeout_ms : float
        How long a steady chunk may wait for others of its length.
    vocoder_streams : int
        Decoder states, that is, requests that can be at the vocoder at once.
    """

    thinker: int = 8
    talker: int = 8
    code2wav: int = 4
    words_per_phrase: int = 2
    first_frames: int = 4
    steady_frames: int = 8
    code2wav_timeout_ms: float = 4.0
    vocoder_streams: int = 64


@dataclass(slots=True)
class SpeechModels:
    """Everything that serves the linear speech graph.

    Attributes
    ----------
    origin : dict of str to str
        Stage -> what its weights are, as in the table ``stage``.
    revisions : dict of str to str
        Model -> revision, as in the table ``run``.
    """

    graph: StageGraph
    limits: Limits
    device: torch.device
    grammar: DigitGrammar
    thinker: Thinker
    phonemes: Phonemes
    talker: Talker
    codebooks: Codebooks
    code2wav: Code2Wav
    origin: dict[str, str]
    revisions: dict[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> StreamSpec:
        """What every audio stream of this graph must be."""
        length = partial(output_length, self.code2wav.dims.layers())  # unlike a bound method it travels to the client
        return replace(self.code2wav.stream_spec, length=length)

    @property
    def longest_digits(self) -> int:
        """Most digits whose prompt and reply fit the thinker's cache; a reply is two tokens a digit."""
        count = 0
        while len(self.grammar.prompt((0,) * (count + 1))) + 2 * (count + 1) <= self.thinker.max_tokens:
            count += 1
        return count

    def batch_limit(self, stage: str) -> int | None:
        """Largest number of requests per launch of a stage."""
        limits = {"thinker": self.limits.thinker, "talker": self.limits.talker, "code2wav": self.limits.code2wav}
        return 1 if stage == "phonemizer" else limits.get(stage)

    def workers(self, server: Server, recorder: Recorder) -> dict[str, Worker]:
        """One worker per stage, wired along the edges of the graph, for one run."""
        limits, edge = self.limits, recorder.edge_code
        stage_timer = {name: timer(self.device) for name in ("thinker", "talker", "code2wav")}

        def common(name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
            place = timer(torch.device("cpu")) if name == "phonemizer" else stage_timer[name]
            positional = (name, recorder.stage_code[name], 0, recorder.writer(f"{name}-0"), place)
            limit = self.batch_limit(name)
            assert limit is not None
            return positional, {"limit": limit, "fail": server.fail, "released": server.released}

        args, options = common("code2wav")
        vocoder = Code2WavWorker(
            *args, model=self.code2wav, codebooks=self.codebooks, spec=self.spec,
            revision=self.revisions.get("voice", self.origin["code2wav"]),
            timeout_ns=round(limits.code2wav_timeout_ms * 1e6), server=server, **options,
        )  # fmt: skip
        args, options = common("talker")
        speaker = TalkerWorker(
            *args, model=self.talker, slots=min(limits.talker, self.talker.slots),
            first_frames=limits.first_frames, steady_frames=limits.steady_frames,
            out=Port(edge["talker>code2wav"], vocoder.inbox), **options,
        )  # fmt: skip
        args, options = common("phonemizer")
        phonemizer = PhonemizerWorker(
            *args, model=self.phonemes, words_per_phrase=limits.words_per_phrase,
            out=Port(edge["phonemizer>talker"], speaker.inbox), **options,
        )  # fmt: skip
        args, options = common("thinker")
        writer = ThinkerWorker(
            *args, model=self.thinker, slots=min(limits.thinker, self.thinker.slots), grammar=self.grammar,
            out=Port(edge["thinker>phonemizer"], phonemizer.inbox), **options,
        )  # fmt: skip
        return {"thinker": writer, "phonemizer": phonemizer, "talker": speaker, "code2wav": vocoder}

    def stage_rows(self) -> list[dict[str, Any]]:
        """Rows of the table ``stage``."""
        timeout_ns = round(self.limits.code2wav_timeout_ms * 1e6)
        on_device = ("thinker", "talker", "code2wav")
        return [
            {
                "stage": stage.name,
                "role": stage.role,
                "replicas": 1,
                "device": str(self.device) if stage.name in on_device else "cpu",
                "batch_limit": self.batch_limit(stage.name),
                "batch_timeout_ns": timeout_ns if stage.name == "code2wav" else None,
                "weights": self.origin.get(stage.name, "none"),
            }
            for stage in self.graph.stages
        ]

    def edge_rows(self) -> list[dict[str, Any]]:
        """Rows of the table ``edge``."""
        return [
            {
                "edge": edge.name,
                "source": edge.source,
                "target": edge.target,
                "modality": edge.modality,
                "kind": edge.kind,
                "transport": "unix-socket" if CLIENT in (edge.source, edge.target) else "in-process",
                "window_chunks": None,
                "window_bytes": None,
            }
            for edge in self.graph.edges
        ]


def load(kind: WeightsKind, *, limits: Limits, device: torch.device, seed: int = 0) -> SpeechModels:
    """Load the models in fp32.

    Parameters
    ----------
    kind : {"pretrained", "full-twin", "twin"}
        Pretrained weights of the installed packages with the trained talker; random-init thinker and decoder of the
        same size with the trained talker, for a machine to which the weights cannot travel; or small random-init twins
        of all three. All take the same path, and what was loaded is stamped on every run.
    limits : Limits
        Static control; sizes the slots.
    device : torch.device
        Where the thinker, the talker and the vocoder run.
    seed : int
        Seed of the twins' weights.

    Raises
    ------
    MissingPrerequisite
        Pretrained weights were asked for and are not installed.
    """
    # Streamed audio equals offline audio within 1e-5 in fp32 only; TF32 has 10 bits of mantissa.
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if kind == "pretrained":
        return _pretrained(limits, device)
    if kind in ("full-twin", "twin"):
        return _twin(limits, device, seed, is_full=kind == "full-twin")
    raise UsageError("pretrained, full-twin or twin", repr(kind), where="kind of weights")


def _pretrained(limits: Limits, device: torch.device) -> SpeechModels:
    language, voice = weights.load("thinker"), weights.load("voice")
    tokenizer = BpeTokenizer(**json.loads(language.pop("tokenizer").tobytes()))
    dims = ThinkerDims(**json.loads(language.pop("meta").tobytes()))
    alphabet = json.loads(voice.pop("phonemes").tobytes())
    net, codebooks = talker.load_talker()
    revisions = weights.revisions()
    trained = _trained_talker()
    return SpeechModels(
        graph=preset("t1"),
        limits=limits,
        device=device,
        grammar=DigitGrammar(tokenizer),
        thinker=Thinker(
            dims, {name: torch.from_numpy(value) for name, value in language.items()}, slots=limits.thinker,
            max_tokens=128, device=device,
        ),
        phonemes=Phonemes(alphabet),
        talker=Talker(net, slots=limits.talker, device=device),
        codebooks=codebooks.to(device),
        code2wav=Code2Wav(
            code2wav.VocoderDims(), {name: torch.from_numpy(value) for name, value in voice.items()},
            slots=limits.vocoder_streams, device=device,
        ),
        origin={
            "thinker": f"pretrained:{revisions['thinker']}",
            "phonemizer": "none",
            "talker": trained,
            "code2wav": f"pretrained:{revisions['voice']}",
        },
        revisions={"thinker": revisions["thinker"], "talker": trained, "voice": revisions["voice"]},
    )  # fmt: skip


def _twin(limits: Limits, device: torch.device, seed: int, *, is_full: bool) -> SpeechModels:
    thinker_dims = ThinkerDims() if is_full else thinker.TWIN_DIMS
    vocoder_dims = code2wav.VocoderDims() if is_full else code2wav.TWIN_DIMS
    origin = f"random:{seed}"
    if is_full:
        net, codebooks = talker.load_talker()
        speaks = _trained_talker()
    else:
        net = talker.random_talker(talker.TWIN_DIMS, seed)
        codebooks = Codebooks.random(
            channels=vocoder_dims.latent, count=net.dims.codebooks, size=net.dims.codes, seed=seed
        )
        speaks = origin
    return SpeechModels(
        graph=preset("t1"),
        limits=limits,
        device=device,
        grammar=DigitGrammar(TwinTokenizer()),
        thinker=Thinker(
            thinker_dims, thinker.random_weights(thinker_dims, seed), slots=limits.thinker, max_tokens=128,
            device=device,
        ),
        phonemes=Phonemes(),
        talker=Talker(net, slots=limits.talker, device=device),
        codebooks=codebooks.to(device),
        code2wav=Code2Wav(
            vocoder_dims, code2wav.random_weights(vocoder_dims, seed), slots=limits.vocoder_streams, device=device
        ),
        origin={"thinker": origin, "phonemizer": "none", "talker": speaks, "code2wav": origin},
        revisions={"thinker": origin, "talker": speaks, "voice": origin},
    )  # fmt: skip


def _trained_talker() -> str:
    return f"trained:talker sha256:{hashlib.sha256(talker.ASSET.read_bytes()).hexdigest()[:12]}"
