"""A decoding step as a CUDA graph: recorded once, then started as a whole.

A step of a small model has about a thousand kernels, which run for a shorter time than the host takes to start them.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from securecoderl_edge.models.decoder import Decoder, KeyValueCache


class DecodingStep:
    """`Decoder.forward` of one more token per row, for as long as the tensors that it reads stay where they are.

    With ``decoder.records_steps`` the first call computes as usual, which loads the kernels; the second records a
    graph.

    Args:
        positions: (B,) of the tokens; the caller counts in place.
        bias: (B, length of the cache) as in `Decoder.forward`; the caller changes it in place.
    """

    def __init__(self, decoder: Decoder, positions: Tensor, bias: Tensor, cache: KeyValueCache) -> None:
        self._decoder, self._cache = decoder, cache
        self._inputs = positions[:, None], bias[:, None, None]
        self._tokens = torch.zeros_like(self._inputs[0])
        self._start = torch.zeros(1, dtype=torch.long, device=positions.device)
        self._graph: Any = None
        self._is_warm = False

    def __call__(self, tokens: Tensor, start: int) -> Tensor:
        """(B, V) logits after ``tokens`` (B,), written to the cache at ``start``; the next call may overwrite them."""
        if not self._decoder.records_steps:
            return self._decoder.forward(tokens[:, None], *self._inputs, start, self._cache)
        self._tokens.copy_(tokens[:, None])
        self._start.fill_(start)
        if not self._is_warm:
            self._is_warm = True
            return self._forward()
        if self._graph is None:
            with suppress(torch.OutOfMemoryError):
                self._record()
        if self._graph is None:
            # While it records, the allocator frees none of the memory that it has cached.
            torch.cuda.empty_cache()
            self._record()
        self._graph.replay()
        return self._logits

    def _forward(self) -> Tensor:
        return self._decoder.forward(self._tokens, *self._inputs, self._start, self._cache)

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
                self._logits = self._forward()
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
