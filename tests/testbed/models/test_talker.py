"""Batched talking equals talking alone; state faults are seen by the codes, not by ear."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import DataIntegrityError, UsageError
from workbench.testbed.models.phonemes import Phonemes
from workbench.testbed.models.rvq import Codebooks
from workbench.testbed.models.talker import (
    TWIN_DIMS,
    Talker,
    TalkerNet,
    load_talker,
    random_talker,
    save_talker,
)

NET = random_talker(TWIN_DIMS, seed=2)
Codes = list[list[int]]


def alone(net: TalkerNet, phonemes: list[int]) -> Codes:
    talker = Talker(net, slots=1)
    talker.start(0, phonemes)
    codes, finished = Codes(), False
    while not finished:
        frame, [finished] = talker.step([0])
        codes += frame.tolist()
    return codes


def interleaved(net: TalkerNet, phrases: list[list[int]], random: Random, slots: int = 3) -> list[Codes]:
    """The same phrases starting and ending in random batches and slots."""
    talker = Talker(net, slots=slots)
    waiting, active = list(range(len(phrases))), dict[int, int]()  # phrase -> slot
    codes: list[Codes] = [[] for _ in phrases]
    while waiting or active:
        free = [slot for slot in range(slots) if slot not in active.values()]
        if waiting and free and random.random() < 0.6:
            phrase = waiting.pop(random.randrange(len(waiting)))
            active[phrase] = random.choice(free)
            talker.start(active[phrase], phrases[phrase])
        if active:
            chosen = random.sample(sorted(active), random.randint(1, len(active)))
            frames, finished = talker.step([active[phrase] for phrase in chosen])
            for phrase, frame, end in zip(chosen, frames.tolist(), finished, strict=True):
                codes[phrase].append(frame)
                if end:
                    del active[phrase]
    return codes


@given(st.randoms(use_true_random=False))
def test_batched_codes_equal_the_phrase_alone(random: Random) -> None:
    phrases = [[random.randrange(TWIN_DIMS.phonemes) for _ in range(random.randint(1, 30))] for _ in range(5)]
    assert interleaved(NET, phrases, random) == [alone(NET, phrase) for phrase in phrases]


@given(st.lists(st.integers(0, TWIN_DIMS.phonemes - 1), min_size=1, max_size=40))
def test_steps_equal_one_pass_over_the_whole_phrase(phonemes: list[int]) -> None:
    """The cached, windowed, slot-wise steps compute what the training pass computes."""
    codes = torch.tensor(alone(NET, phonemes))
    talker = Talker(NET, slots=1)
    talker.start(0, phonemes)
    at, stay = [], []
    for _ in range(len(codes)):
        place = talker._place[0]
        at.append(int(place[0]))
        stay.append(min(int(place[2]), TWIN_DIMS.longest_stay - 1))
        talker.step([0])
    before = torch.cat([torch.full((1, TWIN_DIMS.codebooks), TWIN_DIMS.codes), codes[:-1]])
    with torch.no_grad():
        *logits, _ = NET(
            torch.tensor([phonemes]),
            torch.ones(1, len(phonemes)),
            torch.tensor([at]),
            before[None],
            torch.tensor([stay]),
            codes[None],
        )
    best = torch.stack([scores.argmax(-1)[0] for scores in logits], 1)
    assert float((best == codes).float().mean()) > 0.99


def test_every_phrase_ends() -> None:
    """Whatever the weights say, no phoneme is held longer than the limit."""
    for seed in range(5):
        net = random_talker(TWIN_DIMS, seed)
        with torch.no_grad():
            net.advance.bias[0] += 100.0  # a talker that never wants to move on
        assert len(alone(net, [5] * 10)) == 10 * TWIN_DIMS.longest_stay


def test_forced_codes_are_emitted_and_fed_back() -> None:
    forced = torch.randint(0, TWIN_DIMS.codes, (9, TWIN_DIMS.codebooks), generator=torch.Generator().manual_seed(0))
    talker = Talker(NET, slots=2)
    talker.start(0, [3, 4, 5], forced)
    talker.start(1, [3, 4, 5])
    emitted, own, running = [], [], [0, 1]
    while running:
        frames, finished = talker.step(running)
        for slot, frame, end in zip(list(running), frames.tolist(), finished, strict=True):
            (emitted if slot == 0 else own).append(frame)
            if end:
                running.remove(slot)
    assert emitted == forced.tolist()
    assert own == alone(NET, [3, 4, 5])


@pytest.mark.parametrize("fault", ["keys swapped", "keys lost", "previous codes swapped", "position swapped"])
def test_state_faults_change_the_codes(fault: str) -> None:
    """The equality above can fail: exchanging or losing state in mid-phrase does not go unnoticed."""
    phrases = [[7, 30, 8, 31, 9, 32] * 4, [50, 11, 60, 12, 70, 13] * 4]
    expected = [alone(NET, phrase) for phrase in phrases]
    talker = Talker(NET, slots=2)
    for slot, phrase in enumerate(phrases):
        talker.start(slot, phrase)
    codes: list[Codes] = [[], []]
    running = [0, 1]
    for step in range(200):
        if step == 4:
            flip = torch.tensor([1, 0])
            match fault:
                case "keys swapped":
                    talker._keys, talker._values = talker._keys[:, flip], talker._values[:, flip]
                case "keys lost":
                    talker._keys, talker._values = torch.zeros_like(talker._keys), torch.zeros_like(talker._values)
                case "previous codes swapped":
                    talker._place[:, 4:] = talker._place[flip, 4:]
                case "position swapped":
                    talker._place[:, 0] = talker._place[flip, 0]
        if not running:
            break
        frames, finished = talker.step(running)
        for slot, frame, end in zip(list(running), frames.tolist(), finished, strict=True):
            codes[slot].append(frame)
            if end:
                running.remove(slot)
    assert codes != expected


def test_a_slot_forgets_its_former_phrase() -> None:
    talker = Talker(NET, slots=1)
    runs = []
    for _ in range(2):
        talker.start(0, [9, 8, 7, 6])
        codes, finished = Codes(), False
        while not finished:
            frame, [finished] = talker.step([0])
            codes += frame.tolist()
        runs.append(codes)
        talker.start(0, [1] * 20)
        talker.step([0])
        talker.free(0)
    assert runs[0] == runs[1]


def test_misuse_is_one_clear_error() -> None:
    talker = Talker(NET, slots=2, max_phonemes=4)
    talker.start(0, [1, 2])
    for slot, phonemes, message in ((0, [1], "slot 0"), (1, [], "0"), (1, [1] * 5, "max_phonemes=4")):
        with pytest.raises(UsageError, match=message):
            talker.start(slot, phonemes)
    with pytest.raises(UsageError, match="forced codes"):
        talker.start(1, [1], torch.zeros(3, 1, dtype=torch.int64))
    for slots in ([1], [0, 0]):
        with pytest.raises(UsageError, match="in progress"):
            talker.step(slots)


def test_a_saved_talker_is_the_same_in_half_precision(tmp_path: Path) -> None:
    books = Codebooks.random(channels=6, count=TWIN_DIMS.codebooks, size=TWIN_DIMS.codes)
    path = tmp_path / "talker.npz"
    save_talker(path, NET, books, {"seed": 2})
    net, again = load_talker(path)
    assert net.dims == TWIN_DIMS
    assert again.stack == books.stack
    torch.testing.assert_close(again.books, books.books, atol=1e-2, rtol=1e-3)
    for name, value in NET.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], value, atol=1e-3, rtol=1e-3)
    written = path.read_bytes()
    save_talker(path, NET, books, {"seed": 2})
    assert path.read_bytes() == written
    path.write_bytes(written[: len(written) // 2])
    with pytest.raises(DataIntegrityError, match=r"talker\.npz"):
        load_talker(path)


def test_the_trained_talker_batches_invariantly_and_keeps_time() -> None:
    """Committed weights on digit phrases: greedy codes alone and in company, at a speaking rate of people."""
    net, codebooks = load_talker()
    speller, random = Phonemes(), Random(1)
    phrases = [speller.ids(text) for text in ("three,", "one, four, one,", "five, nine,", "two.", "six, five, three.")]
    expected = [alone(net, phrase) for phrase in phrases]
    assert interleaved(net, phrases, random) == expected
    seconds = [len(codes) * codebooks.stack * 256 / 22_050 for codes in expected]
    for words, duration in zip((1, 3, 2, 1, 3), seconds, strict=True):
        assert 0.25 * words < duration < 1.2 * words
