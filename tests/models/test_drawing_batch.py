"""Rounds of tokens that are drawn before the host reads them, against each completion decoded alone, token by token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from decoded import PROMPTS, sampled
from once import Once
from quick import few
from tiny_families import FAMILIES, VARIED, build_family

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.adapters import LoraSettings, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.drawing import draw_tokens
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.running_batch import RunningBatch
from securecoderl_edge.models.sampling import Sampler, TokenCompletion, sample
from securecoderl_edge.models.sizes import CACHE_GROWTH, CPU_PACE, GPU_PACE

SAMPLES, LENGTH = 5, CACHE_GROWTH + 9
# None of them is so near the border of two tokens that rounding, which depends on the number of rows, moves it over.
UNIFORMS = torch.rand(len(PROMPTS) * SAMPLES, LENGTH, generator=torch.Generator().manual_seed(4))


def adapted(folder: Any) -> Any:
    """A model whose policy adapter does something."""
    model = add_adapters(load_base(folder), LoraSettings(rank=4), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B.default" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


@pytest.fixture(params=few(["llama", "gemma3"], "llama"))
def model(request: pytest.FixtureRequest, once: Once) -> Any:
    return adapted(once(f"family-{request.param}", lambda folder: build_family(folder, request.param)))


def without_one_in_three(scores: torch.Tensor) -> torch.Tensor:
    return scores.index_fill(-1, torch.arange(0, scores.shape[-1], 3), -torch.inf)


PLAIN = Sampler(1.0, LENGTH, frozenset(range(0, 400, 37)), UNIFORMS)
HOWS: dict[str, Sampler] = {
    "end tokens": PLAIN,
    "greedy": replace(PLAIN, temperature=0.0, end_tokens=frozenset()),
    "tempered": replace(PLAIN, temperature=0.7, tempered=True),
    "truncated": replace(PLAIN, truncate=without_one_in_three),
    "limits": replace(PLAIN, limits=(3, LENGTH, 17)),
}
Heard = tuple[list[TokenCompletion], dict[tuple[int, int], list[int]], dict[tuple[int, int], int]]


@torch.no_grad()
def alone(decoder: Decoder, how: Sampler) -> Heard:
    """The slow reference: one row, one token at a time."""
    decoder.refresh()
    done, tokens_of = [], {}
    for owner in range(len(UNIFORMS)):
        prompt, number = divmod(owner, SAMPLES)
        batch, tokens, log_probs = RunningBatch(decoder), [], []
        batch.admit([0], [PROMPTS[prompt]])
        limit = how.max_tokens if how.limits is None else how.limits[prompt]
        while not tokens or (len(tokens) < limit and tokens[-1] not in how.end_tokens):
            if tokens:
                batch.step(torch.tensor(tokens[-1:]))
            uniform = how.uniforms[owner, len(tokens)][None]
            token, log_prob = draw_tokens(batch.logits, how.temperature, uniform, how.truncate, tempered=how.tempered)
            tokens.append(int(token))
            log_probs.append(float(log_prob))
        finished = tokens[-1] in how.end_tokens
        done.append(TokenCompletion(prompt, number, tuple(tokens), tuple(log_probs), finished))
        tokens_of[prompt, number] = tokens
    return done, tokens_of, dict.fromkeys(tokens_of, 1)


def heard(decoder: Decoder, how: Sampler, parallel: int | None = None) -> Heard:
    """The completions, the tokens that ``on_token`` was told, and how often ``on_finished`` was called."""
    tokens, ends = defaultdict(list), defaultdict(int)

    def finish(done: TokenCompletion) -> None:
        assert tokens[done.prompt, done.sample] == list(done.token_ids)
        ends[done.prompt, done.sample] += 1

    def hear(prompt: int, number: int, token: int) -> bool:
        assert not ends[prompt, number]
        tokens[prompt, number].append(token)
        return False

    done = sample(decoder, PROMPTS, SAMPLES, replace(how, on_token=hear, on_finished=finish), parallel)
    return done, dict(tokens), {key: count for key, count in ends.items() if count}


def assert_equal(found: Heard, expected: Heard) -> None:
    assert found[1:] == expected[1:]
    for one, other in zip(found[0], expected[0], strict=True):
        assert replace(one, log_probs=()) == replace(other, log_probs=())
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-4)


@pytest.mark.parametrize("how", HOWS)
def test_rounds_give_what_each_completion_gets_alone(model: Any, how: str) -> None:
    decoder = Decoder(model, torch.float32)
    expected = alone(decoder, HOWS[how])
    lengths = {len(done.token_ids) for done in expected[0]}
    assert how == "greedy" or len(lengths) > 1
    assert max(lengths) > CACHE_GROWTH, "the cache must grow twice"
    for decoder.pace in (CPU_PACE, replace(CPU_PACE, rounds=3), GPU_PACE):
        for parallel in (None, 4):  # rows are dropped; others take their places
            assert_equal(heard(decoder, HOWS[how], parallel), expected)


def test_rounds_change_no_bit_where_the_rows_are_the_same(model: Any) -> None:
    decoder = Decoder(model, torch.float32)
    found = []
    for rounds in (1, 3, 8):
        decoder.pace = replace(CPU_PACE, rounds=rounds, drop_at=1.1)
        found.append(heard(decoder, replace(PLAIN, limits=(LENGTH - 1, LENGTH, LENGTH))))
    assert found[0] == found[1] == found[2]


def with_nan(decoder: Decoder, prompt: Sequence[int], behind: int) -> Decoder:
    """Its logits are no numbers for rows of ``prompt`` once they have more than ``behind`` tokens."""
    forward = decoder.forward
    position = len(prompt) + behind - 1

    def broken(tokens: Any, positions: Any, *rest: Any) -> Any:
        logits = forward(tokens, positions, *rest)
        if tokens.shape[1] > 1:
            return logits
        return logits.masked_fill(positions[:, -1:] >= position, torch.nan)

    decoder.forward = broken  # type: ignore[method-assign]
    return decoder


def test_nan_ends_sampling_after_the_same_tokens_and_not_behind_an_end(model: Any) -> None:
    longest = max(PROMPTS, key=len)
    how = replace(PLAIN, end_tokens=frozenset(), limits=tuple(20 - len(prompt) for prompt in PROMPTS))
    lengths = [20 - len(prompt) for prompt in PROMPTS for _ in range(SAMPLES)]

    def tokens_until_it_fails(rounds: int, behind: int) -> list[tuple[int, int, int]]:
        decoder = with_nan(Decoder(model, torch.float32), longest, behind)
        decoder.pace = replace(GPU_PACE, rounds=rounds)
        told: list[tuple[int, int, int]] = []
        done = sample(decoder, PROMPTS, SAMPLES, replace(how, on_token=lambda *token: bool(told.append(token))))
        assert [len(each.token_ids) for each in done] == lengths
        return told

    # Every row ends at its 20th entry: what is drawn behind it counts for nothing.
    assert tokens_until_it_fails(8, 20 - len(longest)) == tokens_until_it_fails(1, 20 - len(longest))
    for rounds in (1, 3, 8):
        with pytest.raises(SceError, match="NaN or Inf in the logits with float32"):
            tokens_until_it_fails(rounds, 6)


def test_the_pace_of_a_gpu_makes_few_shapes(model: Any) -> None:
    """Each is recorded anew. Twelve rows end one after the other, while the cache grows."""
    shapes: list[set[tuple[int, ...]]] = []
    for pace in (CPU_PACE, GPU_PACE):
        decoder, seen = Decoder(model, torch.float32), set[tuple[int, ...]]()
        decoder.pace = pace
        forward = decoder.forward

        def watched(*arguments: Any, forward: Any = forward, seen: Any = seen) -> Any:
            seen.add(tuple(arguments[2].shape))
            return forward(*arguments)

        decoder.forward = watched  # type: ignore[method-assign]
        sampled(decoder)
        shapes.append(seen)
    assert 2 * len(shapes[1]) < len(shapes[0])


@pytest.mark.parametrize("family", few(FAMILIES, *VARIED))
@pytest.mark.parametrize("merge", [False, True])
def test_few_kernels_compute_the_same_logits(family: str, merge: bool, once: Once) -> None:
    model = adapted(once(f"family-{family}", lambda folder: build_family(folder, family)))
    torch.testing.assert_close(
        logits_of(model, torch.float32, merge, on_card=True), logits_of(model, torch.float32, merge), atol=1e-4, rtol=0
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_few_kernels_round_no_more(model: Any, dtype: torch.dtype) -> None:
    true = logits_of(model, torch.float32, merge=False)
    errors = [
        float((logits_of(model, dtype, merge=False, on_card=card) - true).square().mean()) for card in (False, True)
    ]
    assert errors[1] < 1.5 * errors[0]


def test_int8_layers_compute_the_same_with_few_kernels(model: Any) -> None:
    found = [logits_of(model, torch.float32, merge=True, on_card=card, int8=True) for card in (False, True)]
    torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=0)


@torch.no_grad()
def logits_of(
    model: Any, dtype: torch.dtype, merge: bool, *, on_card: bool = False, int8: bool = False
) -> torch.Tensor:
    """(rows, T, V) along fixed tokens, behind prompts of several lengths, while the cache grows."""
    decoder = Decoder(model, dtype, merge=merge, int8=int8)
    decoder.on_card = on_card
    decoder.refresh()
    batch, seen = RunningBatch(decoder), []
    tokens = torch.randint(3, 300, (len(PROMPTS), LENGTH), generator=torch.Generator().manual_seed(5))
    batch.admit([0, 1, 2], PROMPTS)
    for place in range(LENGTH):
        seen.append(batch.logits.float())
        batch.step(tokens[:, place])
        if place == 5:
            batch.keep([0, 2])
            tokens = tokens[[0, 2]]
    return torch.cat([each.flatten() for each in seen])
