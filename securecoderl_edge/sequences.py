"""Token sequences as right-padded batches, and their log-probabilities in memory-bounded pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from securecoderl_edge.model import hidden_states, output_weight
from securecoderl_edge.ppo import chunked_log_probs


@dataclass(frozen=True)
class Batch:
    """Right-padded sequences of prompt and completion.

    Attributes:
        tokens: (B, T + 1).
        mask: (B, T), 1.0 where ``tokens[:, 1:]`` is a completion token, end of sequence included.
    """

    tokens: Tensor
    mask: Tensor

    def rows(self, indices: Sequence[int]) -> Batch:
        """Some of the sequences, cut to the longest among them."""
        mask = self.mask[list(indices)]
        width = int(mask.any(0).nonzero().max()) + 1 if mask.any() else 1
        return Batch(self.tokens[list(indices), : width + 1], mask[:, :width])


def make_batch(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], padding: int, device: Any) -> Batch:
    """A batch of (prompt, completion) token ids; every completion must be non-empty, prompts too."""
    width = max(len(prompt) + len(completion) for prompt, completion in pairs)
    tokens = torch.full((len(pairs), width), padding, dtype=torch.long)
    mask = torch.zeros(len(pairs), width - 1)
    for row, (prompt, completion) in enumerate(pairs):
        length = len(prompt) + len(completion)
        tokens[row, :length] = torch.tensor([*prompt, *completion])
        mask[row, len(prompt) - 1 : length - 1] = 1.0
    return Batch(tokens.to(device), mask.to(device))


def micro_batches(batch: Batch, max_tokens: int) -> Iterator[list[int]]:
    """Row indices of pieces that hold at most ``max_tokens`` padded tokens each, of similar length.

    A single sequence longer than the bound makes a piece of its own.
    """
    width = batch.mask.shape[1]
    ends = (torch.arange(1, width + 1, device=batch.mask.device) * (batch.mask > 0)).amax(1).tolist()
    piece: list[int] = []
    for row in sorted(range(len(ends)), key=ends.__getitem__):
        # Rows come in order of length, so the newest is the widest of its piece.
        if piece and (len(piece) + 1) * (ends[row] + 1) > max_tokens:
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
        hidden = hidden_states(model, batch.tokens[:, :-1])[chosen]
    flat = chunked_log_probs(hidden, output_weight(model), batch.tokens[:, 1:][chosen], temperature)
    log_probs = torch.zeros_like(batch.mask)
    return log_probs.masked_scatter(chosen, flat), hidden
