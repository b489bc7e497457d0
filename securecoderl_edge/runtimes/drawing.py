"""The next token of a sample from its logits, drawn in the same way by every runtime that has them in NumPy."""

from __future__ import annotations

import numpy as np

from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.runtimes.truncation import Floats, truncated

# Sums of this many weights find a token's block; only one block is then searched token by token.
_BLOCK = 256


def draw(logits: Floats, sampling: Sampling, random: np.random.Generator) -> tuple[int, float]:
    """A token, and the natural logarithm of its probability at temperature 1.

    Args:
        logits: (V,) float32.
        random: gives one number per token; greedy decoding takes none.
    """
    scores = logits - logits.max()
    weights = np.exp(scores)
    if sampling.is_greedy:
        token = int(scores.argmax())
    elif sampling.temperature == 1 and sampling.draws_from_all:
        token = first_above(weights, random.random())
    else:
        token = first_above(np.exp(truncated(scores / sampling.temperature, sampling)), random.random())
    # Rounding could make the only likely token more than certain.
    return token, min(float(scores[token]) - float(np.log(weights.sum())), 0.0)


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
    place = int(np.searchsorted(inside, wanted - (sums[block - 1] if block else 0.0), side="right"))
    # The two sums of a block can differ by rounding.
    return start + min(place, int(np.flatnonzero(weights[start : start + _BLOCK])[-1]))
