"""Train the talker from the pretrained voice: ``python -m workbench.testbed.models.train_talker --out build/weights``.

The voice speaks digit phrases exactly as the splitter cuts them, of one to three words; the talker learns its codes and
its timing. The result depends on the recipe below, the seed and the voice alone, and is kept under their hash. Takes
about four minutes of one core.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from workbench.errors import UsageError
from workbench.testbed import weights
from workbench.testbed.models import phonemes
from workbench.testbed.models.code2wav import Code2Wav, VocoderDims
from workbench.testbed.models.grammar import DIGITS
from workbench.testbed.models.judge import Judge
from workbench.testbed.models.phonemes import EspeakProcess, Phonemes
from workbench.testbed.models.phrases import PhraseSplitter
from workbench.testbed.models.rvq import Codebooks
from workbench.testbed.models.talker import Talker, TalkerDims, TalkerNet, load_talker, save_talker
from workbench.testbed.models.voice import VoiceTeacher

# Open text for the codebooks only, so that forced tokens can speak what the talker itself was never taught.
_SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "Please call the station at seven fifteen this evening.",
    "A large size in stockings is hard to sell.",
    "The boy was there when the sun rose.",
    "Four hours of steady work faced us.",
    "The box was thrown beside the parked truck.",
    "Rice is often served in round bowls.",
    "The juice of lemons makes fine punch.",
    "The museum opens at nine, but leave the hotel before the rain begins.",
    "This laptop weighs less than two pounds and its battery lasts eleven hours.",
    "They measured the clouds, counted the stars and wrote careful notes.",
    "Morning water ran under the bridge through the green garden.",
    "Music from the school window made the children laugh.",
    "Paper boats sailed all summer on the small river.",
    "Yellow, orange and silver leaves covered the engine.",
    "The doctor answered every question with a short story.",
    "Great mountains always stand between us and the sea.",
    "People thought enough about the house, the world and the year.",
    "Good news came on the first day and bad news on the last night.",
    "Which of the old things would you rather own?",
    "She sells fresh vegetables near the village square.",
    "Thank you very much, I will join you shortly.",
    "Could you check whether the package has been shipped?",
    "Jupiter is the biggest planet, and Mars is the reddest one.",
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides the result, besides the code and the voice."""

    seed: int = 0
    stack: int = 4
    rank: int = 128
    rounds: int = 10
    pairs: int = 70
    triples: int = 130
    steps: int = 1400
    batch: int = 16
    rate: float = 2e-3
    corrupted: float = 0.15
    held_out: int = 12


@dataclass(frozen=True, slots=True)
class Example:
    """One phrase as the talker should say it: per frame its phoneme, codes, advance and steps on the phoneme."""

    ids: list[int]
    at: Tensor
    codes: Tensor
    advance: Tensor
    stay: Tensor


def fingerprint(recipe: Recipe, dims: TalkerDims) -> str:
    """SHA-256 over the code that decides the result, the recipe and the voice."""
    digest = hashlib.sha256()
    for source in (sys.modules[__name__], PhraseSplitter, TalkerNet, Codebooks, VoiceTeacher):
        digest.update(inspect.getsource(source).encode())
    digest.update(phonemes.TABLE.read_bytes())
    digest.update(json.dumps([asdict(recipe), asdict(dims), weights.revisions()["voice"]], sort_keys=True).encode())
    return digest.hexdigest()


def split(text: str) -> list[str]:
    """The phrases of a whole text, as long as the talker learns them."""
    splitter = PhraseSplitter(words=3)
    return splitter.push(text) + splitter.close()


def corpus(recipe: Recipe) -> tuple[list[str], list[str]]:
    """Training phrases, and held-out texts none of whose phrases of several words is among them."""
    draw = random.Random(recipe.seed)

    def phrase(count: int, end: str) -> str:
        return ", ".join(draw.choice(DIGITS) for _ in range(count)) + end

    kept = {word + end for word in DIGITS for end in ",."}
    for count, number in ((2, recipe.pairs), (3, recipe.triples)):
        for end in ",.":
            wanted = len(kept) + number
            while len(kept) < wanted:
                kept.add(phrase(count, end))
    held_out = list[str]()
    while len(held_out) < recipe.held_out:
        text = phrase(3 + len(held_out) % 6, ".")
        if not any(part in kept for part in split(text) if " " in part):
            held_out.append(text)
    return sorted(kept), held_out


def example(ids: list[int], durations: Sequence[int], codes: Tensor, dims: TalkerDims, stack: int) -> Example:
    """Targets of one phrase: frame ``k`` belongs to the phoneme that sounds at latent frame ``k * stack``."""
    owner = np.repeat(np.arange(len(ids)), durations)
    at = owner[np.minimum(np.arange(len(codes)) * stack, len(owner) - 1)]
    advance = np.append(at[1:], len(ids)) - at
    stay = np.zeros(len(at), np.int64)
    for step in range(1, len(at)):
        stay[step] = stay[step - 1] + 1 if at[step] == at[step - 1] else 0
    if advance.max() >= dims.advances or stay.max() >= dims.longest_stay:
        raise UsageError(
            f"at most {dims.advances - 1} phonemes a step and {dims.longest_stay} steps a phoneme",
            f"{advance.max()} and {stay.max() + 1}",
            where="timing of a training phrase",
        )
    return Example(
        ids,
        torch.from_numpy(at.copy()),
        codes,
        torch.from_numpy(advance.copy()),
        torch.from_numpy(stay),
    )


def padded(rows: list[Tensor]) -> Tensor:
    """Rows of different length as one tensor, zeros after the end."""
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def train(examples: list[Example], recipe: Recipe, dims: TalkerDims) -> TalkerNet:
    """Teacher-forced cross-entropy on codes and advances, with some previous frames replaced by noise."""
    torch.manual_seed(recipe.seed)
    net = TalkerNet(dims)
    optimizer = torch.optim.AdamW(net.parameters(), recipe.rate, weight_decay=0.01)
    draw = np.random.default_rng(recipe.seed)
    begun_s = time.process_time()
    for step in range(recipe.steps):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * min(1.0, step / 40) * max(0.03, 1 - step / recipe.steps)
        chosen = [examples[index] for index in draw.integers(0, len(examples), recipe.batch)]
        ids = padded([torch.tensor(item.ids) for item in chosen])
        keep = padded([torch.ones(len(item.ids)) for item in chosen])
        codes = padded([item.codes for item in chosen])
        rows, steps, count = codes.shape
        mask = padded([torch.ones(len(item.codes)) for item in chosen]).bool()
        before = torch.cat([torch.full((rows, 1, count), dims.codes), codes[:, :-1]], 1)
        noisy = (torch.rand(rows, steps) < recipe.corrupted)[..., None]
        before = torch.where(noisy, torch.randint(0, dims.codes, before.shape), before)
        *logits, advance = net(
            ids, keep, padded([item.at for item in chosen]), before, padded([item.stay for item in chosen]), codes
        )
        loss = F.cross_entropy(advance[mask], padded([item.advance for item in chosen])[mask])
        for index, scores in enumerate(logits):
            loss = loss + F.cross_entropy(scores[mask], codes[..., index][mask])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        if step % 100 == 99:
            spent_s = time.process_time() - begun_s
            left_s = spent_s / (step + 1) * (recipe.steps - step - 1)
            print(f"step {step + 1}/{recipe.steps}  loss {loss.item():.3f}  {spent_s:.0f} s, about {left_s:.0f} s left")
    return net.eval()


def speak(text: str, talker: Talker, codebooks: Codebooks, vocoder: Code2Wav, speller: Phonemes) -> Tensor:
    """The whole streaming path for one text: its phrases one after the other into one vocoder stream."""
    vocoder.start(0)
    pending, pieces = list[Tensor](), list[Tensor]()
    for phrase in split(text):
        talker.start(0, speller.ids(phrase))
        finished = False
        while not finished:
            frame, [finished] = talker.step([0])
            pending.append(frame)
            if len(pending) == 5:
                pieces.append(vocoder.push([0], codebooks.latent(torch.stack(pending, 1)), [False])[0].samples)
                pending = []
    rest = torch.stack(pending, 1) if pending else torch.zeros(1, 0, codebooks.count, dtype=torch.int64)
    pieces.append(vocoder.push([0], codebooks.latent(rest), [True])[0].samples)
    return torch.cat(pieces)


def measure(path: Path, texts: Sequence[str]) -> tuple[float, int]:
    """Word error rate of a saved talker on `texts` through the streaming path, and the number of words."""
    net, codebooks = load_talker(path)
    talker = Talker(net, slots=1)
    decoder = {name: torch.from_numpy(value) for name, value in weights.load("voice").items() if name != "phonemes"}
    vocoder = Code2Wav(VocoderDims(), decoder, slots=1)
    speller = Phonemes()
    spoken = [(text, speak(text, talker, codebooks, vocoder, speller).numpy()) for text in texts]
    return Judge().word_error_rate(spoken, vocoder.sample_rate)


def build(path: Path, recipe: Recipe, dims: TalkerDims) -> dict[str, object]:
    """Train, save and judge a talker; returns its provenance, which is saved beside it."""
    begun_s, key = time.process_time(), fingerprint(recipe, dims)
    texts, held_out = corpus(recipe)
    teacher, speller = VoiceTeacher(), Phonemes()
    spoken = [(ids, *teacher.latent(ids)) for ids in map(speller.ids, texts)]
    alphabet = json.loads(weights.load("voice")["phonemes"].tobytes())
    with EspeakProcess() as process:
        open_text = Phonemes(alphabet, process)
        others = [teacher.latent(open_text.ids(part))[0] for text in _SENTENCES for part in split(text)]
    print(f"{len(texts)} phrases from the voice, {time.process_time() - begun_s:.0f} s")
    codebooks = Codebooks.fit(
        [latent for _, latent, _ in spoken] + others,
        stack=recipe.stack,
        rank=recipe.rank,
        count=dims.codebooks,
        size=dims.codes,
        rounds=recipe.rounds,
        seed=recipe.seed,
    )
    examples = [
        example(ids, durations, codebooks.encode(latent), dims, recipe.stack) for ids, latent, durations in spoken
    ]
    print(f"{sum(len(item.codes) for item in examples)} frames, {time.process_time() - begun_s:.0f} s")
    net = train(examples, recipe, dims)
    provenance: dict[str, object] = {
        "recipe": asdict(recipe) | {"dims": asdict(dims)},
        "fingerprint": key,
        "teacher": weights.revisions()["voice"],
        "torch": torch.__version__,
        "parameters": sum(value.numel() for value in net.parameters()),
        "train_cpu_s": round(time.process_time() - begun_s, 1),
        "license": "Apache-2.0. Learned from speech of the teacher; holds no weights of it. The package of the teacher "
        "is MIT, its voice data CC0; it was fine-tuned from a voice whose license the package does not state.",
    }
    save_talker(path, net, codebooks, provenance)
    rate, count = measure(path, held_out)
    provenance |= {"held_out": held_out, "held_out_words": count, "held_out_wer": round(rate, 4)}
    save_talker(path, net, codebooks, provenance)
    return provenance


def main(arguments: Sequence[str] | None = None) -> int:
    """Train unless a talker of this recipe is there already; returns 1 if its word error rate is over 0.05."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=weights.CACHE, help="folder of the result (default %(default)s)")
    parser.add_argument("--steps", type=int, default=Recipe().steps, help="training steps (default %(default)s)")
    options = parser.parse_args(arguments)
    recipe, dims = Recipe(steps=options.steps), TalkerDims()
    path = options.out / f"talker-{fingerprint(recipe, dims)[:16]}.npz"
    provenance = path.with_suffix(".json")
    result = json.loads(provenance.read_text()) if path.is_file() and provenance.is_file() else None
    if result is None or "held_out_wer" not in result:
        result = build(path, recipe, dims)
    rate = float(str(result["held_out_wer"]))
    print(f"{path}  held-out WER {rate} over {result['held_out_words']} words")
    return int(rate > 0.05)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
