"""What the talker is taught, and that the committed one still speaks."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
import torch

from workbench.testbed import weights
from workbench.testbed.models.phrases import PhraseSplitter
from workbench.testbed.models.talker import ASSET, TWIN_DIMS, TalkerDims, load_talker
from workbench.testbed.models.train_talker import Recipe, corpus, example, fingerprint, measure, split, train

SHORT = Recipe(steps=30, batch=4, rate=5e-3)


def test_training_phrases_are_what_the_splitter_makes() -> None:
    """Phrases of one to three words with either end, each a fixed point of the splitter that serves."""
    phrases, held_out = corpus(Recipe())
    assert len(phrases) == 20 + 2 * (Recipe().pairs + Recipe().triples)
    for phrase in phrases:
        splitter = PhraseSplitter(words=3)
        splitter.push("zero,")
        assert splitter.push(f" {phrase}") + splitter.close() == [phrase]
    assert corpus(Recipe()) == (phrases, held_out)
    assert corpus(Recipe(seed=1)) != (phrases, held_out)


def test_held_out_texts_share_no_longer_phrase_with_training() -> None:
    phrases, held_out = corpus(Recipe())
    assert len(held_out) == 12
    assert not {part for text in held_out for part in split(text) if " " in part} & set(phrases)


def test_targets_follow_the_durations() -> None:
    codes = torch.zeros(4, 2, dtype=torch.int64)
    item = example([1, 0, 5, 2], [3, 0, 9, 5], codes, TalkerDims(), stack=4)
    assert item.at.tolist() == [0, 2, 2, 3]
    assert item.advance.tolist() == [2, 0, 1, 1]
    assert item.stay.tolist() == [0, 0, 1, 0]


def test_training_is_repeatable_and_learns() -> None:
    dims = replace(TWIN_DIMS, width=16)
    ids, durations = [1, 0, 5, 0, 2], [4, 4, 8, 4, 4]
    codes = torch.arange(6)[:, None].expand(-1, dims.codebooks).contiguous()
    item = example(ids, durations, codes, dims, stack=4)
    first, second = train([item], SHORT, dims), train([item], SHORT, dims)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    longer = train([item], replace(SHORT, steps=200), dims)
    keep = torch.ones(1, len(ids))
    before = torch.cat([torch.full((1, 1, dims.codebooks), dims.codes), codes[None, :-1]], 1)
    logits = longer(torch.tensor([ids]), keep, item.at[None], before, item.stay[None], codes[None])
    assert [scores.argmax(-1)[0].tolist() for scores in logits[:-1]] == [codes[:, 0].tolist()] * dims.codebooks


def test_the_cache_key_depends_on_the_recipe() -> None:
    dims = TalkerDims()
    key = fingerprint(Recipe(), dims)
    assert key == fingerprint(Recipe(), TalkerDims())
    assert key != fingerprint(Recipe(seed=1), dims)
    assert key != fingerprint(Recipe(), replace(dims, heads=2))


def test_the_committed_talker_says_where_it_is_from() -> None:
    provenance = json.loads(ASSET.with_suffix(".json").read_text())
    net, _ = load_talker()
    assert ASSET.stat().st_size < 6_000_000
    assert provenance["held_out_wer"] <= 0.05
    assert provenance["held_out_words"] >= 60
    assert provenance["teacher"] == weights.revisions()["voice"]
    assert provenance["parameters"] == sum(value.numel() for value in net.parameters())
    assert provenance["sha256"] == hashlib.sha256(ASSET.read_bytes()).hexdigest()


@pytest.mark.weights
@pytest.mark.parametrize("count", [2, pytest.param(12, marks=pytest.mark.soak)])
def test_the_committed_talker_is_understood(count: int) -> None:
    """Word error rate of held-out strings through the whole streaming path, as claimed at training."""
    provenance = json.loads(ASSET.with_suffix(".json").read_text())
    rate, _ = measure(ASSET, provenance["held_out"][:count])
    assert rate <= 0.05
