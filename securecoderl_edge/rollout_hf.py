"""The plain sampler: Hugging Face's ``generate`` on the adapted model, to compare our own with."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from securecoderl_edge.rollout import Sampled


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
    """Draw ``samples`` completions of each prompt by temperature alone; 0 takes the most likely token.

    Returns:
        as `rollout.sample`, without log-probabilities: ``generate`` would hold the logits of all tokens for them.
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
