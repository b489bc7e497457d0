"""Truncation of the distribution before sampling, the same for every runtime that samples its own tokens.

The steps are those of llama.cpp, after the temperature as in transformers. For tensors there is
`models.sampling.truncated`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from securecoderl_edge.runtimes.protocol import Sampling

Floats = np.ndarray[Any, np.dtype[Any]]


def truncated(scores: Floats, sampling: Sampling) -> Floats:
    """``scores`` with minus infinity for the tokens that ``sampling`` drops.

    Args:
        scores: (..., V) logits divided by the temperature. Ties at a limit are all kept.
    """
    if sampling.draws_from_all:
        return scores
    scores = scores.copy()
    if 0 < sampling.top_k < scores.shape[-1]:
        smallest = np.partition(scores, -sampling.top_k, axis=-1)[..., [-sampling.top_k]]
        scores[scores < smallest] = -np.inf
    if sampling.top_p < 1:
        ordered = np.sort(scores, axis=-1)[..., ::-1]
        shares = np.exp(ordered - ordered[..., :1])
        before = shares.cumsum(axis=-1) - shares
        kept = before < sampling.top_p * shares.sum(axis=-1, keepdims=True)
        kept[..., 0] = True  # the most likely token stays, however small top_p is
        smallest = np.where(kept, ordered, np.inf).min(axis=-1, keepdims=True)
        scores[scores < smallest] = -np.inf
    if sampling.min_p > 0:
        scores[scores < scores.max(axis=-1, keepdims=True) + math.log(sampling.min_p)] = -np.inf
    return scores
