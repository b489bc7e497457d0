"""Batched sampling with a KV cache, on a merged copy of the policy; or, for comparison, with Hugging Face's generate.

In training `sample` uses only the temperature, so that it samples the distribution whose log-probabilities PPO
computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.fused import score_bias
from securecoderl_edge.models.sizes import CACHE_GROWTH, PREFILL_TOKENS

# Rows of finished sequences are dropped once they make up this fraction of the batch: dropping copies the cache.
_COMPACT_SHARE = 0.25


@dataclass(frozen=True)
class Sampled:
    """One completion as token ids.

    Attributes:
        prompt: index of the prompt it continues.
        sample: index among the samples of that prompt.
        token_ids: with the end-of-sequence token if it was sampled.
        log_probs: at temperature 1, for ranking and reports; PPO recomputes its own. Empty if the sampler does not
            return them.
        finished: False if the length limit cut it off.
    """

    prompt: int
    sample: int
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finished: bool


@torch.no_grad()
def sample(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    samples: int,
    temperature: float,
    max_tokens: int,
    end_tokens: frozenset[int],
    uniforms: Tensor,
    on_finished: Callable[[Sampled], None] | None = None,
    on_token: Callable[[int, int, int], bool] | None = None,
    truncate: Callable[[Tensor], Tensor] | None = None,
) -> list[Sampled]:
    """Sample ``samples`` completions of each prompt; each prompt is processed once for all its samples.

    Args:
        prompts: token ids; each must be non-empty and leave room for ``max_tokens`` in the context.
        temperature: 0 takes the most likely token.
        end_tokens: ids that finish a completion.
        uniforms: (prompts x samples, ``max_tokens``) numbers from [0, 1), the only source of randomness. Every
            completion has its own row, so it does not depend on the rest of the batch.
        on_finished: called with each completion as soon as it ends, while the others are still being decoded.
        on_token: called with (prompt index, sample index, token id) for every sampled token; True ends the completion.
        truncate: given logits (B, V) over the temperature, returns them with minus infinity for excluded tokens.

    Returns:
        all completions, ordered by prompt, then by sample.

    Raises:
        SceError: NaN or Inf in the logits, from the weights or from a dtype that is too narrow for them.
    """
    longest = max(len(prompt) for prompt in prompts)
    tokens = torch.zeros(len(prompts), longest, dtype=torch.long, device=decoder.device)
    present = torch.zeros(len(prompts), longest, dtype=torch.bool, device=decoder.device)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = torch.tensor(list(prompt), device=decoder.device)
        present[row, longest - len(prompt) :] = True
    if not decoder.is_ready:
        decoder.refresh()
    logits, cache = _prefill(decoder, tokens, present)

    # One row for each sample of each prompt.
    logits = logits.repeat_interleave(samples, 0)
    _change(cache, lambda entries: entries.repeat_interleave(samples, 0))
    next_position = present.sum(1).repeat_interleave(samples)
    bias = score_bias(present, decoder.dtype).repeat_interleave(samples, 0)
    owners = [(prompt, index) for prompt in range(len(prompts)) for index in range(samples)]
    drawn: list[list[int]] = [[] for _ in owners]
    log_probs: list[list[float]] = [[] for _ in owners]
    done: dict[tuple[int, int], Sampled] = {}
    live = list(range(len(owners)))  # the owner of each row of the batch; -1 once it has finished
    uniforms = uniforms.to(decoder.device)

    for step in range(max_tokens):
        chosen, chosen_log_probs = draw_tokens(logits, temperature, uniforms[:, step], truncate)
        for row, (token, log_prob) in enumerate(zip(chosen.tolist(), chosen_log_probs.tolist(), strict=True)):
            owner = live[row]
            if owner < 0:
                continue
            if not math.isfinite(log_prob):
                dtype = str(decoder.dtype).removeprefix("torch.")
                fix = "check the weights" if dtype == "float32" else "use --base-precision fp32 or bf16"
                raise SceError(f"NaN or Inf in the logits with {dtype}; {fix}")
            drawn[owner].append(token)
            log_probs[owner].append(log_prob)
            key = owners[owner]
            is_finished = on_token is not None and on_token(*key, token)
            is_finished = is_finished or token in end_tokens
            if is_finished or step == max_tokens - 1:
                done[key] = Sampled(*key, tuple(drawn[owner]), tuple(log_probs[owner]), is_finished)
                live[row] = -1
                if on_finished:
                    on_finished(done[key])
        remaining = [row for row, owner in enumerate(live) if owner >= 0]
        if not remaining:
            break
        if len(remaining) <= len(live) * (1 - _COMPACT_SHARE):
            kept = torch.tensor(remaining, device=decoder.device)
            chosen, bias, next_position = chosen[kept], bias[kept], next_position[kept]
            uniforms = uniforms[kept]
            _change(cache, lambda entries, kept=kept: entries[kept])  # type: ignore[misc]
            live = [live[row] for row in remaining]
        place = longest + step
        if place == bias.shape[1]:
            bias = functional.pad(bias, (0, CACHE_GROWTH), value=float("-inf"))
            _change(cache, lambda entries: functional.pad(entries, (0, 0, 0, CACHE_GROWTH)))
        bias[:, place] = 0.0
        logits = decoder.forward(chosen[:, None], next_position[:, None], bias[:, None, None], place, cache)
        next_position = next_position + 1
    return [done[owner] for owner in owners]


def _prefill(decoder: Decoder, tokens: Tensor, present: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
    """Process left-padded prompts, some at a time; returns the next token's logits and the full cache."""
    width = tokens.shape[1]
    cache = decoder.new_cache(len(tokens), width)
    positions = (present.cumsum(1) - 1).clamp_min(0)
    causal = torch.ones(width, width, dtype=torch.bool, device=tokens.device).tril()
    # A padding row would see nothing and become NaN; it may see itself, since its result is not used.
    itself = torch.eye(width, dtype=torch.bool, device=tokens.device)
    logits = []
    at_a_time = max(1, PREFILL_TOKENS // width)
    for start in range(0, len(tokens), at_a_time):
        rows = slice(start, start + at_a_time)
        bias = score_bias((causal & present[rows, None, :]) | itself, decoder.dtype)
        part = [(keys[rows], values[rows]) for keys, values in cache]
        logits.append(decoder.forward(tokens[rows], positions[rows], bias[:, None], 0, part))
    return torch.cat(logits), cache


def _change(cache: list[tuple[Tensor, Tensor]], change: Callable[[Tensor], Tensor]) -> None:
    """Replace the KV cache layer by layer, so that memory never holds two of them."""
    for number, (keys, values) in enumerate(cache):
        cache[number] = change(keys), change(values)


def draw_tokens(
    logits: Tensor, temperature: float, uniforms: Tensor, truncate: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Sample one token per row of ``logits`` (B, V); returns it and its log-probability at temperature 1.

    A temperature of 0 takes the most likely token.

    Args:
        uniforms: (B,) numbers from [0, 1).
        truncate: see `sample`.
    """
    logits = logits.float()
    if temperature == 0:
        chosen = logits.argmax(-1)
    else:
        # Inverse transform sampling: one random number per row; multinomial needs one per token of the vocabulary.
        scores = logits / temperature
        below = (scores if truncate is None else truncate(scores)).softmax(-1).cumsum(-1)
        chosen = (below <= uniforms[:, None] * below[:, -1:]).sum(-1).clamp_max(logits.shape[-1] - 1)
    log_probs = logits.gather(-1, chosen[:, None])[:, 0] - logits.logsumexp(-1)
    return chosen, log_probs


@torch.no_grad()
def sample_with_generate(
    model: Any,
    prompts: Sequence[Sequence[int]],
    samples: int,
    temperature: float,
    max_tokens: int,
    end_tokens: frozenset[int],
    padding: int,
    seed: int,
    autocast: AbstractContextManager[Any],
) -> list[Sampled]:
    """Sample ``samples`` completions of each prompt, by temperature alone; 0 takes the most likely token.

    Returns:
        as `sample`, without log-probabilities: ``generate`` would keep the logits of all tokens for them.
    """
    from transformers import GenerationConfig

    longest = max(map(len, prompts))
    tokens = torch.full((len(prompts), longest), padding, dtype=torch.long)
    present = torch.zeros_like(tokens)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = torch.tensor(list(prompt))
        present[row, longest - len(prompt) :] = 1
    drawing = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature else {}
    config = GenerationConfig(
        max_new_tokens=max_tokens, num_return_sequences=samples if temperature else 1,
        eos_token_id=sorted(end_tokens), pad_token_id=padding, **drawing,
    )  # fmt: skip
    devices = [model.device] if model.device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices), autocast:
        torch.manual_seed(seed)
        whole = model.generate(
            input_ids=tokens.to(model.device), attention_mask=present.to(model.device), generation_config=config
        )
    rows = whole[:, longest:].tolist()
    if not temperature:
        rows = [row for row in rows for _ in range(samples)]
    completions = []
    for number, row in enumerate(rows):
        end = next((place for place, token in enumerate(row) if token in end_tokens), None)
        kept = row if end is None else row[: end + 1]
        completions.append(Sampled(*divmod(number, samples), tuple(kept), (), end is not None))
    return completions
