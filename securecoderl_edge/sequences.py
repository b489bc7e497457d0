"""Completions with the prompts they continue, and their log-probabilities in memory-bounded pieces.

A prompt is processed once for all of its completions: they read its keys and values, through which their gradients flow
back into it. The log-probabilities are those of separate sequences. With 8 completions half as long as their prompt the
model sees 5 tokens where it would otherwise see 12.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from securecoderl_edge.model import hidden_states, new_cache, output_weight
from securecoderl_edge.ppo import chunked_log_probs

TokenIds = tuple[int, ...]


@dataclass(frozen=True)
class Batch:
    """Right-padded completions.

    Attributes:
        tokens: (B, T) token ids of the completions, end of sequence included.
        mask: (B, T), 1.0 on tokens, 0.0 on padding.
        prompts: B prompts; equal ones are processed once.
    """

    tokens: Tensor
    mask: Tensor
    prompts: tuple[TokenIds, ...]

    def rows(self, indices: Sequence[int]) -> Batch:
        """Some of the completions, cut to the longest among them."""
        chosen = list(indices)
        mask = self.mask[chosen]
        width = int(mask.sum(1).max())
        return Batch(self.tokens[chosen, :width], mask[:, :width], tuple(self.prompts[row] for row in chosen))


def make_batch(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], padding: int, device: Any) -> Batch:
    """A batch of (prompt, completion) token ids; every completion must be non-empty, prompts too."""
    tokens, mask = _padded([completion for _, completion in pairs], padding)
    return Batch(tokens.to(device), mask.to(device), tuple(tuple(prompt) for prompt, _ in pairs))


def micro_batches(batch: Batch, max_tokens: int) -> Iterator[list[int]]:
    """Row indices of pieces that hold at most ``max_tokens`` padded tokens each, of similar length.

    The copies of a prompt's keys and values for its completions come on top. The completions of a prompt stay together
    where they fit. A single sequence longer than the bound makes a piece of its own.
    """
    lengths: list[int] = batch.mask.sum(1).int().tolist()
    groups: defaultdict[TokenIds, list[int]] = defaultdict(list)
    for row, prompt in enumerate(batch.prompts):
        groups[prompt].append(row)

    def padded_size(rows: list[int]) -> int:
        prompts = {batch.prompts[row] for row in rows}
        return max(map(len, prompts)) * len(prompts) + max(lengths[row] for row in rows) * len(rows)

    piece: list[int] = []
    for prompt in sorted(groups, key=lambda prompt: len(prompt) + max(lengths[row] for row in groups[prompt])):
        rows = groups[prompt]
        if piece and padded_size(piece + rows) > max_tokens:
            yield piece
            piece = []
        for row in rows:
            if piece and padded_size([*piece, row]) > max_tokens:
                yield piece
                piece = []
            piece.append(row)
    yield piece


def completion_log_probs(
    model: Any, batch: Batch, temperature: float, autocast: AbstractContextManager[Any] | None = None
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the completion tokens, and the hidden states that predicted them.

    Returns:
        log_probs: (B, T), 0 outside the mask.
        hidden: (N, H) hidden states at the N masked positions, row by row.
    """
    chosen = batch.mask > 0
    with autocast or nullcontext():
        hidden = _predicting_states(model, batch)[chosen]
    flat = chunked_log_probs(hidden, output_weight(model), batch.tokens[chosen], temperature)
    log_probs = torch.zeros_like(batch.mask)
    return log_probs.masked_scatter(chosen, flat), hidden


def _predicting_states(model: Any, batch: Batch) -> Tensor:
    """(B, T, H): the hidden state that predicts each completion token, which is the one before it."""
    device, width = batch.tokens.device, batch.tokens.shape[1]
    distinct = {prompt: index for index, prompt in enumerate(dict.fromkeys(batch.prompts))}
    owners = torch.tensor([distinct[prompt] for prompt in batch.prompts], device=device)
    tokens, present = (tensor.to(device) for tensor in _padded(list(distinct)))
    cache = new_cache()
    states = hidden_states(model, tokens, cache=cache)
    prompt_lengths = present.sum(1).long()
    first = states[torch.arange(len(tokens), device=device), prompt_lengths - 1][owners, None]
    if width == 1:
        return first
    cache.batch_select_indices(owners)
    # Nothing is predicted from a completion's last token.
    positions = prompt_lengths[owners, None] + torch.arange(width - 1, device=device)
    causal = torch.ones(width - 1, width - 1, dtype=torch.bool, device=device).tril()
    visible = torch.cat(
        [(present > 0)[owners, None].expand(-1, width - 1, -1), causal.expand(len(owners), -1, -1)], dim=2
    )
    later = hidden_states(model, batch.tokens[:, :-1], positions, visible[:, None], cache)
    return torch.cat([first, later], dim=1)


def _padded(sequences: Sequence[Sequence[int]], padding: int = 0) -> tuple[Tensor, Tensor]:
    """Right-padded token ids and the mask that is 1.0 on them."""
    width = max(map(len, sequences))
    tokens = torch.full((len(sequences), width), padding, dtype=torch.long)
    mask = torch.zeros(len(sequences), width)
    for row, sequence in enumerate(sequences):
        tokens[row, : len(sequence)] = torch.tensor(list(sequence))
        mask[row, : len(sequence)] = 1.0
    return tokens, mask
