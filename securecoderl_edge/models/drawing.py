"""The next token from its logits: of one sequence in NumPy, for runtimes without torch, or of a batch in torch.

Both draw by inverse transform sampling, with one random number per token: the token is the first up to which the
weights (the exponentials of the logits over the temperature, without excluded tokens) add up to more than this part of
their sum. The sums are those of blocks, then of one block's tokens: over a whole vocabulary they take longer than the
product that makes the logits. NumPy adds in float64; torch in float32, and reads nothing from its device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from securecoderl_edge.models.sizes import drawn_at_a_time

if TYPE_CHECKING:
    from torch import Tensor

# Below this temperature the most likely token is taken: dividing by it would overflow.
_LOWEST_TEMPERATURE = 1e-6
# Tokens whose weights are summed at a time; the largest float32 below 1.
_BLOCK, _BELOW_ONE = 256, 1 - 2**-24

Floats = np.ndarray[Any, np.dtype[Any]]
Scores = TypeVar("Scores", "Floats", "Tensor")


def truncated(scores: Scores, top_k: int, top_p: float, min_p: float = 0.0) -> Scores:
    """``scores`` (..., V), logits over the temperature, with minus infinity for excluded tokens, in NumPy or torch.

    The steps are those of llama.cpp, after the temperature as in transformers. Ties at a limit are all kept.

    Args:
        top_k, top_p, min_p: as in `runtimes.protocol.Sampling`, in this order; 0, 1 and 0 keep all tokens.
    """
    library, kth_largest, descending = _operations(scores)
    kept: Any = scores
    if 0 < top_k < kept.shape[-1]:
        kept = library.where(kept < kth_largest(kept, top_k), -math.inf, kept)
    if top_p < 1:
        ordered = descending(kept)
        shares = library.exp(ordered - ordered[..., :1])
        before = library.cumsum(shares, axis=-1) - shares
        inside = before < top_p * library.sum(shares, axis=-1, keepdims=True)
        inside[..., 0] = True  # the most likely token stays, however small top_p is
        least = library.amin(library.where(inside, ordered, math.inf), axis=-1, keepdims=True)
        kept = library.where(kept < least, -math.inf, kept)
    if min_p > 0:
        least = library.amax(kept, axis=-1, keepdims=True) + math.log(min_p)
        kept = library.where(kept < least, -math.inf, kept)
    return kept  # type: ignore[no-any-return]


def _operations(scores: Any) -> tuple[Any, Callable[[Any, int], Any], Callable[[Any], Any]]:
    """The library of an array, and the two operations on its last axis that NumPy and torch name differently."""
    if isinstance(scores, np.ndarray):
        return (
            np,
            lambda values, k: np.partition(values, -k, axis=-1)[..., [-k]],
            lambda values: np.sort(values, axis=-1)[..., ::-1],
        )
    import torch

    return (
        torch,
        lambda values, k: values.topk(k).values[..., -1:],
        lambda values: values.sort(descending=True).values,
    )


def draw(
    logits: Floats,
    temperature: float,
    random: np.random.Generator,
    truncate: Callable[[Floats], Floats] | None = None,
) -> tuple[int, float]:
    """A token, and the natural logarithm of its probability at temperature 1.

    Args:
        logits: (V,) float32.
        temperature: 0 takes the most likely token.
        random: gives one number per token; greedy decoding takes none.
        truncate: see `sampling.Sampler`.
    """
    scores = logits - logits.max()
    weights = np.exp(scores)
    if temperature < _LOWEST_TEMPERATURE:
        token = int(scores.argmax())
    elif temperature == 1 and truncate is None:
        token = first_above(weights, random.random())
    else:
        tempered = scores / temperature
        token = first_above(np.exp(tempered if truncate is None else truncate(tempered)), random.random())
    # Rounding could make the only likely token more than certain.
    return token, min(float(scores[token]) - float(np.log(weights.sum())), 0.0)


def logprobs_of(logits: Floats, tokens: Sequence[int]) -> list[float]:
    """The natural logarithms of probabilities at temperature 1, from the logits (V,)."""
    scores = logits - logits.max()
    norm = float(np.log(np.exp(scores).sum()))
    return [min(float(scores[token]) - norm, 0.0) for token in tokens]


def uniforms_of(seed: Sequence[int], count: int) -> Tensor:
    """(count,) float32 numbers from [0, 1) for `draw_tokens`: those that `draw` takes from NumPy's generator.

    Samples of one seed so have the same draws in every runtime, and a quantized model differs from its source by its
    probabilities alone.
    """
    import torch

    return torch.from_numpy(np.random.default_rng(seed).random(count)).float().clamp_max(_BELOW_ONE)


def first_above(weights: Floats, part: float) -> int:
    """The first token up to which the weights add up to more than ``part`` of their sum.

    Args:
        weights: (V,) float32, not negative, with a positive one. A token of weight 0 is never taken.
        part: from 0, below 1.
    """
    starts = np.arange(0, len(weights), _BLOCK)
    sums = np.add.reduceat(weights, starts, dtype=np.float64).cumsum()
    wanted = part * sums[-1]
    block = int(np.searchsorted(sums, wanted, side="right"))
    start = int(starts[block])
    inside = weights[start : start + _BLOCK].cumsum(dtype=np.float64)
    token = int(np.searchsorted(inside, wanted - (sums[block - 1] if block else 0.0), side="right"))
    # The two sums of a block can differ by rounding.
    return start + min(token, int(np.flatnonzero(weights[start : start + _BLOCK])[-1]))


def draw_tokens(
    logits: Tensor,
    temperature: float,
    uniforms: Tensor,
    truncate: Callable[[Tensor], Tensor] | None = None,
    *,
    tempered: bool = False,
) -> tuple[Tensor, Tensor]:
    """As `draw`, one token per row of ``logits`` (B, V): the tokens, and their log-probabilities.

    For some rows at a time: on a CPU their weights stay in its cache, and in memory that malloc keeps; a GPU has few
    kernels to start.

    Args:
        uniforms: (B,) numbers from [0, 1).
        truncate, tempered: see `sampling.Sampler`.
    """
    import torch

    parts = math.ceil(len(logits) / drawn_at_a_time(logits.device.type, logits.shape[1]))
    pieces = [
        _drawn(rows, temperature, own, truncate, tempered=tempered)
        for rows, own in zip(logits.chunk(parts), uniforms.chunk(parts), strict=True)
    ]
    if parts == 1:
        return pieces[0]
    return torch.cat([chosen for chosen, _ in pieces]), torch.cat([found for _, found in pieces])


def _drawn(
    logits: Tensor,
    temperature: float,
    uniforms: Tensor,
    truncate: Callable[[Tensor], Tensor] | None,
    *,
    tempered: bool,
) -> tuple[Tensor, Tensor]:
    """As `draw_tokens`, by kernels that read 16 bits and write float32: no copy of the logits, one of the shares."""
    import torch

    if temperature < _LOWEST_TEMPERATURE:
        chosen = logits.argmax(-1)
    else:
        # A tensor with a dimension makes the quotient float32; a number would be divided by in 16 bits.
        scores = logits
        if temperature != 1:
            scores = logits / torch.full((1,), temperature, dtype=torch.float32, device=logits.device)
        if truncate is not None:
            scores = truncate(scores.float())
        shares = scores.softmax(-1, dtype=torch.float32)
        chosen = first_above_in_rows(shares, uniforms, _block_within(logits.shape[1]))
        if tempered or scores is logits:
            return chosen, shares.gather(-1, chosen[:, None])[:, 0].log()
    return chosen, logits.log_softmax(-1, dtype=torch.float32).gather(-1, chosen[:, None])[:, 0]


def _block_within(vocabulary: int) -> int:
    """Tokens of a block: all blocks are full if there are not too many of them, for a last one must be padded."""
    full = math.gcd(vocabulary, _BLOCK)
    return full if full >= _BLOCK // 4 else _BLOCK


def first_above_in_rows(weights: Tensor, parts: Tensor, size: int = _BLOCK) -> Tensor:
    """(B,) `first_above` of each row of ``weights`` (B, V), for ``parts`` (B,), by blocks of ``size`` tokens."""
    import torch
    from torch.nn.functional import pad

    lacking = -weights.shape[1] % size
    blocks = (pad(weights, (0, lacking)) if lacking else weights).reshape(len(weights), -1, size)
    ends = blocks.sum(-1).cumsum(-1)
    wanted = parts[:, None] * ends[:, -1:]
    block = (ends <= wanted).sum(-1, keepdim=True).clamp_max(ends.shape[1] - 1)
    before = pad(ends, (1, 0)).gather(-1, block)
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, size))[:, 0].cumsum(-1)
    # Rounding must not lead out of the block, or to a token without weight.
    rest = torch.minimum((wanted - before).clamp_min(0), inside[:, -1:] * _BELOW_ONE)
    return block[:, 0] * size + (inside <= rest).sum(-1).clamp_max(size - 1)
