"""A decoding step as a CUDA graph: recorded once, then started as a whole.

A step of a small model has hundreds of kernels, which run for a shorter time than the host takes to start them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from securecoderl_edge.models.decoder import Decoder, KeyValueCache


class DecodingStep:
    """`Decoder.forward` of one more token per row, for as long as the tensors that it uses stay where they are.

    Each call makes the new entry visible, computes, and counts positions and entries: all in place, so that a step
    needs nothing of the host. With ``decoder.records_steps`` the first call computes as usual, which loads the kernels;
    the second records a graph, which this and all later calls start.

    Args:
        tokens: (B,) of each call.
        positions: (B,) of the tokens.
        bias: (B, length of the cache) as in `Decoder.forward`.
        start: the entry of the first call; there must be one for each.
        draw: called with the logits at the end of each step, and recorded with it; may write ``tokens``.
    """

    def __init__(
        self,
        decoder: Decoder,
        tokens: Tensor,
        positions: Tensor,
        bias: Tensor,
        cache: KeyValueCache,
        start: int,
        draw: Callable[[Tensor], object] | None = None,
    ) -> None:
        self._decoder, self._cache, self._draw = decoder, cache, draw
        self._tokens, self._positions, self._bias = tokens, positions, bias
        # Only a number on the device can be counted in a graph; one of the host makes faster slices.
        self._entry: int | Tensor = start
        if decoder.records_steps:
            self._entry = torch.full((1,), start, dtype=torch.long, device=positions.device)
        self._graph: Any = None
        self._is_warm = False

    def __call__(self) -> Tensor:
        """(B, V) logits; the next call may overwrite them."""
        if not self._decoder.records_steps:
            return self._compute()
        if not self._is_warm:
            self._is_warm = True
            return self._compute()
        if self._graph is None:
            with suppress(torch.OutOfMemoryError):
                self._record()
        if self._graph is None:
            # While it records, the allocator frees none of the memory that it has cached.
            torch.cuda.empty_cache()
            self._record()
        self._graph.replay()
        return self._logits

    def _compute(self) -> Tensor:
        if isinstance(self._entry, Tensor):
            self._bias.index_fill_(1, self._entry, 0.0)
        else:
            self._bias[:, self._entry] = 0.0
        inputs = self._tokens[:, None], self._positions[:, None], self._bias[:, None, None]
        logits = self._decoder.forward(*inputs, self._entry, self._cache)
        self._positions += 1
        self._entry += 1
        if self._draw is not None:
            self._draw(logits)
        return logits

    def _record(self) -> None:
        decoder, graph = self._decoder, torch.cuda.CUDAGraph()
        here, stream = torch.cuda.current_stream(decoder.device), _recording_stream(decoder.device)
        # The last graph's memory, which it no longer uses; a new pool each time would stay reserved.
        pool = None if decoder.last_graph is None else decoder.last_graph.pool()
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            # Other threads may use the GPU meanwhile.
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                self._logits = self._compute()
            except BaseException:
                with suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        here.wait_stream(stream)
        self._graph = decoder.last_graph = graph


@cache
def _recording_stream(device: torch.device) -> Any:
    """The stream of all recordings on ``device``: cuBLAS keeps memory for each stream that it was used on."""
    return torch.cuda.Stream(device)
