"""Completions with the prompts they continue, and their log-probabilities in memory-bounded pieces.

A prompt is processed once for all of its completions: they read its KV cache, through which their gradients flow back.
Equal completions of a prompt are processed once too: a small model often samples the same program. The
log-probabilities equal those of separate sequences. With 8 different completions half as long as their prompt the model
processes 5 tokens instead of 12.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.fused import rounded_products
from securecoderl_edge.models.sizes import logits_at_a_time
from securecoderl_edge.models.transformer import (
    Packing,
    Past,
    hidden_states,
    native_architecture,
    output_weight,
    without_adapters,
)
from securecoderl_edge.training.parallel import Team

TokenIds = tuple[int, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class TokenBatch:
    """Right-padded completions.

    Attributes:
        tokens: (B, T) token ids of the completions, end of sequence included.
        mask: (B, T), 1.0 on tokens, 0.0 on padding.
        sequences: B pairs of a prompt and its completion, without padding.
    """

    tokens: Tensor
    mask: Tensor
    sequences: tuple[tuple[TokenIds, TokenIds], ...]

    @property
    def lengths(self) -> list[int]:
        """Tokens of each completion. Known without reading the device, as is all that follows from it."""
        return [len(completion) for _, completion in self.sequences]

    def rows(self, indices: Sequence[int]) -> TokenBatch:
        """Some of the completions, cut to the longest among them."""
        sequences = tuple(self.sequences[row] for row in indices)
        width = max(len(completion) for _, completion in sequences)
        chosen = torch.tensor(indices, device=self.tokens.device)
        return TokenBatch(self.tokens[chosen, :width], self.mask[chosen, :width], sequences)

    def within(self, rows: int) -> TokenBatch:
        """For a model whose embedding has only ``rows`` rows: later ids, which no text has, become the last one."""
        if all(token < rows for sequence in self.sequences for part in sequence for token in part):
            return self
        most = rows - 1
        known = tuple(
            (tuple(min(token, most) for token in prompt), tuple(min(token, most) for token in completion))
            for prompt, completion in self.sequences
        )
        return TokenBatch(self.tokens.clamp(max=most), self.mask, known)

    @cached_property
    def packing(self) -> Packing:
        """Where the N tokens are, row by row."""
        return Packing.of(self.lengths, self.tokens)

    def spread(self, values: Tensor) -> Tensor:
        """(B, T) with ``values`` (N,) at the tokens, row by row, and 0 on padding."""
        return self.packing.spread(values[:, None])[..., 0]


def make_batch(pairs: Sequence[tuple[Sequence[int], Sequence[int]]], padding: int, device: Any) -> TokenBatch:
    """A batch of (prompt, completion) token ids; both must be non-empty."""
    tokens, mask = _padded([completion for _, completion in pairs], padding)
    sequences = tuple((tuple(prompt), tuple(completion)) for prompt, completion in pairs)
    return TokenBatch(tokens.to(device), mask.to(device), sequences)


def micro_batches(batch: TokenBatch, max_tokens: int, team: Team | None = None) -> Iterator[list[int]]:
    """Row indices of pieces that process at most ``max_tokens`` padded tokens each, of similar length.

    Each process of a team gets pieces of its part of the prompts; none if there are fewer prompts than processes.

    Copies of a prompt's KV cache for its completions are not counted. The completions of a prompt stay together if they
    fit, equal ones always. A single sequence longer than the bound makes a separate piece.
    """
    equal: defaultdict[tuple[TokenIds, TokenIds], list[int]] = defaultdict(list)
    for row, sequence in enumerate(batch.sequences):
        equal[sequence].append(row)
    groups: defaultdict[TokenIds, list[TokenIds]] = defaultdict(list)
    for prompt, completion in equal:
        groups[prompt].append(completion)

    def padded_size(piece: list[tuple[TokenIds, TokenIds]]) -> int:
        prompts = {prompt for prompt, _ in piece}
        longest = max(len(completion) for _, completion in piece)
        return max(map(len, prompts)) * len(prompts) + longest * len(piece)

    def rows(piece: list[tuple[TokenIds, TokenIds]]) -> list[int]:
        return [row for sequence in piece for row in equal[sequence]]

    piece: list[tuple[TokenIds, TokenIds]] = []
    by_length = sorted(groups, key=lambda prompt: len(prompt) + max(map(len, groups[prompt])))
    for prompt in (team or Team()).share(by_length):
        group = [(prompt, completion) for completion in groups[prompt]]
        if piece and padded_size(piece + group) > max_tokens:
            yield rows(piece)
            piece = []
        for sequence in group:
            if piece and padded_size([*piece, sequence]) > max_tokens:
                yield rows(piece)
                piece = []
            piece.append(sequence)
    if piece:
        yield rows(piece)


def completion_log_probs(
    model: Any, batch: TokenBatch, temperature: float, compute: Compute | None = None
) -> tuple[Tensor, Tensor]:
    """Log-probabilities of the completion tokens, and the hidden states that predicted them.

    Returns:
        log_probs: (B, T), 0 outside the mask.
        hidden: (N, H) hidden states at the N masked positions, row by row.
    """
    sequences, numbers = _numbered(batch.sequences)
    distinct = batch.rows([batch.sequences.index(sequence) for sequence in sequences])
    targets = distinct.packing.gather(distinct.tokens)[:, 0]
    shape = native_architecture(model)
    if shape is None:
        flat, hidden = _whole_sequences(model, distinct, targets, temperature, compute)
    else:
        hidden = _predicting_states(model, distinct, compute)
        products = compute.products if compute else None
        scale = temperature / shape.logit_scale
        flat = chunked_log_probs(hidden, output_weight(model), targets, scale, products=products)
    rows = torch.tensor(numbers, device=flat.device)
    ends = list(accumulate(distinct.lengths))
    states = _ranges(
        [(ends[number] - count, count) for number, count in zip(numbers, batch.lengths, strict=True)], flat
    )
    return distinct.spread(flat).index_select(0, rows), hidden.index_select(0, states)


class _ChunkedLogProbs(torch.autograd.Function):
    """Log-probabilities of target tokens with at most ``chunk`` rows and tokens of logits in memory.

    The forward pass has the probabilities at hand, so it also computes the derivatives, d log p(target) / d hidden,
    which the backward pass would otherwise compute the logits for again. Over parts of the vocabulary this is attention
    to the rows of the output projection, with a running softmax (arXiv:2205.14135). The projection is frozen and gets
    no gradient. For 512 rows and 151,936 tokens, one thread of an Intel Xeon so took 0.58 of the time of chunks of rows
    alone in float32, 0.78 with AVX2, and 0.32 with inputs rounded to bfloat16.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        targets: Tensor,
        temperature: float,
        chunk: tuple[int, int],
        products: torch.dtype | None,
    ) -> Tensor:
        needs_slopes, (count, tokens) = ctx.needs_input_grad[0], chunk
        largest = hidden.new_full((len(hidden), 1), float("-inf"))
        sums, chosen = torch.zeros_like(largest), torch.zeros_like(largest)
        # Sums over the vocabulary of exp(logit - largest) times its row of the projection, divided at the end.
        slopes = torch.zeros_like(hidden if needs_slopes else hidden[:0])
        # One block for all chunks: the pages of new memory would cost as much time as the product.
        block = hidden.new_empty(min(count, len(hidden)) * min(tokens, len(weight)))
        with rounded_products(products, hidden.device.type):
            for first in range(0, len(weight), tokens):
                some = weight[first : first + tokens].to(hidden.dtype)
                for start in range(0, len(hidden), count):
                    part = slice(start, start + count)
                    place = targets[part, None] - first
                    logits = block[: len(place) * len(some)].view(len(place), len(some))
                    scores = torch.mm(hidden[part] / temperature, some.T, out=logits)
                    found = scores.gather(-1, place.clamp(0, len(some) - 1))
                    chosen[part] = torch.where((place >= 0) & (place < len(some)), found, chosen[part])
                    before = largest[part].clone()
                    torch.maximum(before, scores.amax(-1, keepdim=True), out=largest[part])
                    fading = before.sub_(largest[part]).exp_()
                    scores.sub_(largest[part]).exp_()
                    sums[part] = sums[part] * fading + scores.sum(-1, keepdim=True)
                    if needs_slopes:
                        slopes[part].mul_(fading).addmm_(scores, some)
        if needs_slopes:
            # d log p(target) / d logits = onehot(target) - softmax(logits)
            torch.sub(weight[targets], slopes.div_(sums), out=slopes).div_(temperature)
        ctx.save_for_backward(slopes)
        return (chosen - largest - sums.log())[:, 0]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        (slopes,) = ctx.saved_tensors
        return slopes * gradients[0][:, None], None, None, None, None, None


def chunked_log_probs(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    chunk: tuple[int, int] | None = None,
    products: torch.dtype | None = None,
) -> Tensor:
    """Log-probability of each target under ``softmax(hidden @ weight.T / temperature)``, in float32.

    Args:
        hidden: (N, H) last hidden states at the positions that predict the targets, float32.
        weight: (V, H) output projection, frozen.
        targets: (N,) token ids.
        temperature: the sampling temperature, so that old and new policy are the same function.
        chunk: rows and tokens of logits in memory at a time; by default `logits_at_a_time`.
        products: see `fused.rounded_products`.

    Returns:
        (N,) natural-log probabilities; differentiable once with respect to ``hidden``.
    """
    chunk = chunk or logits_at_a_time(hidden.device.type, len(weight))
    log_probs: Tensor = _ChunkedLogProbs.apply(hidden, weight, targets, temperature, chunk, products)  # type: ignore[no-untyped-call]
    return log_probs


def _numbered(items: Sequence[T]) -> tuple[list[T], list[int]]:
    """The distinct items in the order of their first appearance, and for every item its index among them."""
    index = {item: number for number, item in enumerate(dict.fromkeys(items))}
    return list(index), [index[item] for item in items]


def _ranges(ranges: Iterable[tuple[int, int]], like: Tensor) -> Tensor:
    """The numbers of ranges (start, count), one after the other, on the device of ``like``."""
    return torch.tensor([start + step for start, count in ranges for step in range(count)], device=like.device)


def _whole_sequences(
    model: Any, batch: TokenBatch, targets: Tensor, temperature: float, compute: Compute | None
) -> tuple[Tensor, Tensor]:
    """As `completion_log_probs`, of each masked token, by the model's own forward pass over whole sequences."""
    tokens, present = (each.to(batch.tokens.device) for each in _padded([[*a, *b] for a, b in batch.sequences]))
    states: list[Tensor] = []
    hook = without_adapters(model).base_model.register_forward_hook(lambda _, __, output: states.append(output[0]))
    try:
        with compute.autocast() if compute else nullcontext(), interruptible_backward():
            logits = model(input_ids=tokens, attention_mask=present.long(), use_cache=False).logits
    finally:
        hook.remove()
    width = tokens.shape[1]
    predicting = _ranges(
        [(row * width + len(prompt) - 1, len(completion)) for row, (prompt, completion) in enumerate(batch.sequences)],
        tokens,
    )
    scores = (logits.flatten(0, 1).index_select(0, predicting).float() / temperature).log_softmax(-1)
    chosen = scores.gather(-1, targets[:, None])[:, 0]
    return chosen, states[0].flatten(0, 1).index_select(0, predicting)


def interruptible_backward() -> Any:
    """A context for a forward pass: its backward pass runs Python too, where alone the handler of a signal can run."""
    # `detach` avoids a cycle of references.
    return torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.detach(), lambda tensor: tensor)


def _predicting_states(model: Any, batch: TokenBatch, compute: Compute | None) -> Tensor:
    """(N, H): the hidden state that predicts each completion token, row by row; it is that of the token before."""
    device, width = batch.tokens.device, batch.tokens.shape[1] - 1
    prompts, numbers = _numbered([prompt for prompt, _ in batch.sequences])
    owners = torch.tensor(numbers, device=device)
    tokens, present = (tensor.to(device) for tensor in _padded(prompts))
    prompt_lengths = present.sum(1).long()
    how: dict[str, Any] = {"dtype": compute.products, "recompute": compute.recompute} if compute else {}
    packing = Packing.of(list(map(len, prompts)), tokens)
    first, kept = hidden_states(model, tokens, packing=packing, only=prompt_lengths - 1, **how)
    if not width:
        return first.index_select(0, owners)
    # The last token of a completion predicts nothing.
    tokens, counts = batch.tokens[:, :-1], [count - 1 for count in batch.lengths]
    positions = prompt_lengths[owners, None] + torch.arange(width, device=device)
    causal = torch.ones(width, width, dtype=torch.bool, device=device).tril()
    visible = torch.cat([(present > 0)[owners, None].expand(-1, width, -1), causal.expand(len(owners), -1, -1)], dim=2)
    past = Past(kept, owners, visible[:, None])
    later, _ = hidden_states(model, tokens, positions, past, packing=Packing.of(counts, tokens), **how)
    rows: list[tuple[int, int]] = []
    for number, start, count in zip(numbers, accumulate(counts, initial=len(prompts)), counts, strict=False):
        rows += [(number, 1), (start, count)]
    return torch.cat([first, later]).index_select(0, _ranges(rows, first))


def _padded(sequences: Sequence[Sequence[int]], padding: int = 0) -> tuple[Tensor, Tensor]:
    """Right-padded token ids and the mask that is 1.0 on them."""
    rows = [torch.tensor(sequence, dtype=torch.long) for sequence in sequences]
    tokens = pad_sequence(rows, batch_first=True, padding_value=padding)
    return tokens, pad_sequence([torch.ones(len(row)) for row in rows], batch_first=True)
