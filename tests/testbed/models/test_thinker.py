"""Continuous batching changes no reply: greedy ids equal those of each request run alone."""

from __future__ import annotations

import json
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from workbench.errors import UsageError
from workbench.testbed import weights
from workbench.testbed.models.grammar import DigitGrammar, FreeReply
from workbench.testbed.models.thinker import TWIN_DIMS, Thinker, ThinkerDims, random_weights
from workbench.testbed.models.tokenizer import BpeTokenizer


def twin(slots: int = 4, max_tokens: int = 48) -> Thinker:
    return Thinker(TWIN_DIMS, random_weights(TWIN_DIMS, seed=1), slots=slots, max_tokens=max_tokens)


def alone(thinker: Thinker, prompt: list[int], count: int, allowed: Tensor | None = None) -> tuple[list[int], Tensor]:
    """Greedy choices of a request that has the model to itself, and the logits of each step."""
    logits = thinker.prefill(0, prompt, allowed)
    tokens, rows = list[int](), [logits]
    for _ in range(count - 1):
        tokens.append(int(logits.argmax()))
        token = tokens[-1] if allowed is None else int(allowed[tokens[-1]])
        [logits] = thinker.decode([0], [token], allowed)
        rows.append(logits)
    thinker.free(0)
    return [*tokens, int(logits.argmax())], torch.stack(rows)


def interleaved(
    thinker: Thinker, prompts: list[list[int]], counts: list[int], random: Random, allowed: Tensor | None = None
) -> tuple[list[list[int]], list[list[Tensor]]]:
    """The same requests joining and leaving random batches in random slots."""
    waiting, active = list(range(len(prompts))), dict[int, int]()  # request -> slot
    tokens: list[list[int]] = [[] for _ in prompts]
    rows: list[list[Tensor]] = [[] for _ in prompts]

    def take(request: int, logits: Tensor) -> None:
        rows[request].append(logits)
        tokens[request].append(int(logits.argmax()))
        if len(tokens[request]) == counts[request]:
            thinker.free(active.pop(request))

    while waiting or active:
        free = [slot for slot in range(thinker.slots) if slot not in active.values()]
        if waiting and free and random.random() < 0.6:
            request = waiting.pop(random.randrange(len(waiting)))
            active[request] = random.choice(free)
            take(request, thinker.prefill(active[request], prompts[request], allowed))
        if active:
            chosen = random.sample(sorted(active), random.randint(1, len(active)))
            last = [tokens[request][-1] for request in chosen]
            last = last if allowed is None else [int(allowed[column]) for column in last]
            logits = thinker.decode([active[request] for request in chosen], last, allowed)
            for request, row in zip(chosen, logits, strict=True):
                take(request, row)
    return tokens, rows


@given(st.randoms(use_true_random=False))
def test_batched_greedy_ids_equal_the_run_alone(random: Random) -> None:
    thinker = twin()
    prompts = [[random.randrange(TWIN_DIMS.vocab) for _ in range(random.randint(1, 12))] for _ in range(6)]
    counts = [random.randint(1, 8) for _ in prompts]
    tokens, rows = interleaved(thinker, prompts, counts, random)
    for prompt, count, got, logits in zip(prompts, counts, tokens, rows, strict=True):
        expected, reference = alone(thinker, prompt, count)
        assert got == expected
        torch.testing.assert_close(torch.stack(logits), reference, rtol=0, atol=1e-4)
    assert [thinker.tokens(slot) for slot in range(4)] == [0] * 4


def test_prefill_equals_decoding_the_same_tokens_one_by_one() -> None:
    thinker = twin()
    ids = [7, 100, 3, 250, 9]
    together = thinker.prefill(0, ids)
    thinker.prefill(1, ids[:1])
    for token in ids[1:]:
        [one_by_one] = thinker.decode([1], [token])
    torch.testing.assert_close(together, one_by_one, rtol=0, atol=1e-5)


def test_logits_equal_a_plain_forward_pass() -> None:
    """Against attention written out from the textbook, without cache, fusion or shared key heads."""
    dims, w = TWIN_DIMS, random_weights(TWIN_DIMS, seed=1)
    ids = [5, 17, 200, 33]

    def norm(x: Tensor, name: str) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + dims.eps).sqrt() * w[name]

    def rotate(vector: Tensor, position: int) -> Tensor:
        out = vector.clone()
        for pair in range(dims.head_width // 2):
            angle = torch.tensor(position * dims.rope_base ** (-2 * pair / dims.head_width))
            a, b = vector[2 * pair], vector[2 * pair + 1]
            out[2 * pair], out[2 * pair + 1] = a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()
        return out

    x = w["token_embd.weight"][torch.tensor(ids)]
    for layer in range(dims.layers):
        p = f"blk.{layer}."
        h = norm(x, p + "attn_norm.weight")
        q, k, v = (h @ w[f"{p}attn_{name}.weight"].T for name in "qkv")
        out = torch.zeros(len(ids), dims.width)
        for head in range(dims.heads):
            mine = slice(head * dims.head_width, (head + 1) * dims.head_width)
            shared = head // (dims.heads // dims.kv_heads)
            theirs = slice(shared * dims.head_width, (shared + 1) * dims.head_width)
            for t in range(len(ids)):
                scores = torch.stack([rotate(q[t, mine], t) @ rotate(k[s, theirs], s) for s in range(t + 1)])
                out[t, mine] = (scores / dims.head_width**0.5).softmax(0) @ v[: t + 1, theirs]
        x = x + out @ w[p + "attn_output.weight"].T
        h = norm(x, p + "ffn_norm.weight")
        gate, up = h @ w[p + "ffn_gate.weight"].T, h @ w[p + "ffn_up.weight"].T
        x = x + (gate * gate.sigmoid() * up) @ w[p + "ffn_down.weight"].T
    expected = norm(x[-1], "output_norm.weight") @ w["token_embd.weight"].T
    torch.testing.assert_close(twin().prefill(2, ids), expected, rtol=1e-4, atol=1e-4)


def test_closed_vocabulary_scores_are_columns_of_the_full_ones() -> None:
    thinker, allowed = twin(), torch.tensor([3, 250, 44])
    full = thinker.prefill(0, [1, 2, 3])
    torch.testing.assert_close(thinker.prefill(1, [1, 2, 3], allowed), full[allowed])
    full = thinker.decode([0, 1], [9, 9])
    thinker.free(1)
    thinker.prefill(1, [1, 2, 3])
    torch.testing.assert_close(thinker.decode([1], [9], allowed)[0], full[1][allowed], rtol=0, atol=1e-5)


def test_a_slot_forgets_its_former_request() -> None:
    thinker = twin(slots=1)
    first, _ = alone(thinker, [4, 5, 6], 5)
    alone(thinker, [9] * 20, 10)
    assert alone(thinker, [4, 5, 6], 5)[0] == first


def test_cache_size_is_two_vectors_per_layer_and_key_head() -> None:
    assert twin().kv_bytes_per_token == 2 * 2 * 2 * 8 * 4
    assert 2 * ThinkerDims().layers * ThinkerDims().kv_heads * ThinkerDims().head_width * 2 == 23_040


def test_misuse_is_one_clear_error() -> None:
    thinker = twin(slots=2, max_tokens=4)
    thinker.prefill(0, [1, 2, 3])
    with pytest.raises(UsageError, match="slot 0 with 3 tokens"):
        thinker.prefill(0, [1])
    with pytest.raises(UsageError, match="max_tokens=4"):
        thinker.prefill(1, [1] * 5)
    with pytest.raises(UsageError, match="0 in slot 1"):
        thinker.decode([1], [5])
    with pytest.raises(UsageError, match="each slot once"):
        thinker.decode([0, 0], [5, 5])
    thinker.decode([0], [5])
    with pytest.raises(UsageError, match="4 in slot 0"):
        thinker.decode([0], [5])
    with pytest.raises(UsageError, match=r"output_norm\.weight"):
        Thinker(TWIN_DIMS, random_weights(TWIN_DIMS, seed=0) | {"output_norm.weight": torch.ones(3)})


def pretrained(slots: int) -> tuple[Thinker, BpeTokenizer]:
    arrays = weights.load("thinker")
    dims = ThinkerDims(**json.loads(arrays.pop("meta").tobytes()))
    tokenizer = BpeTokenizer(**json.loads(arrays.pop("tokenizer").tobytes()))
    return Thinker(dims, {k: torch.from_numpy(v) for k, v in arrays.items()}, slots=slots, max_tokens=96), tokenizer


@pytest.mark.weights
def test_pretrained_thinker_answers_in_free_text() -> None:
    thinker, tokenizer = pretrained(slots=1)
    reply = FreeReply(tokenizer, max_tokens=20)
    scores = thinker.prefill(0, FreeReply.prompt(tokenizer, "What is the capital of France? Answer in one sentence."))
    while not reply.is_done:
        token = reply.choose(scores.tolist())
        if not reply.is_done:
            [scores] = thinker.decode([0], [token])
    assert reply.text == "The capital of France is Paris."


@pytest.mark.weights
@pytest.mark.parametrize("requests", [4, pytest.param(32, marks=pytest.mark.soak)])
def test_pretrained_thinker_copies_digits_in_any_company(requests: int) -> None:
    """Greedy replies in random batches equal those alone, and most say the digits of the prompt."""
    thinker, tokenizer = pretrained(slots=4)
    grammar, random = DigitGrammar(tokenizer), Random(0)
    allowed = torch.tensor(grammar.ids)
    strings = [[random.randrange(10) for _ in range(random.randint(1, 5))] for _ in range(requests)]
    prompts = [grammar.prompt(digits) for digits in strings]
    counts = [2 * len(digits) for digits in strings]
    tokens, rows = interleaved(thinker, prompts, counts, random, allowed)
    copied = 0
    for digits, prompt, count, got, logits in zip(strings, prompts, counts, tokens, rows, strict=True):
        expected, reference = alone(thinker, prompt, count, allowed)
        assert got == expected
        assert float((torch.stack(logits) - reference).abs().max()) < 1e-3
        copied += got[0::2] == digits
    assert copied >= 0.75 * requests
