"""The batch that is decoded: rows of a KV cache that sequences join and leave."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional

from securecoderl_edge.models.decoder import Decoder, KeyValueCache
from securecoderl_edge.models.fused import score_bias
from securecoderl_edge.models.recorded_step import DecodingStep
from securecoderl_edge.models.sizes import ALIGNED, CACHE_GROWTH, PREFILL_TOKENS
from securecoderl_edge.system.heap import bound_free_memory


class RunningBatch:
    """Rows of a KV cache, which all end at the same entry: shorter ones begin later.

    Attributes:
        owners: the completion of each row.
        logits: (rows, V) of the next token of each row.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.owners: list[int] = []
        self.logits = torch.empty(0)
        self._starts: list[int] = []  # the entry at which each row begins
        self._end = 0
        self._tokens = torch.empty(0, dtype=torch.long)  # (rows,) those that the next step appends
        self._decoding_step: DecodingStep | None = None  # uses these tensors; None when they are replaced

    def admit(self, owners: list[int], prompts: Sequence[Sequence[int]]) -> None:
        """Add a row for each of ``prompts``; neighbors that are equal are computed once.

        Old and new rows get empty entries, so that all end at the same one and are equally wide::

            old row    . . o o o o | . .
            new row    n n n n n n | . .
        """
        logits, cache, positions, bias = self._computed(prompts)
        longest = max(map(len, prompts))
        starts = [longest - len(prompt) for prompt in prompts]
        if not self.owners:
            self.logits, self._cache, self._positions, self._bias = logits, cache, positions, bias
            self._end, self.owners, self._starts = longest, owners, starts
            self._set_tokens(torch.zeros_like(positions))
            return
        before_old, before_new = max(longest - self._end, 0), max(self._end - longest, 0)
        behind_new = self._bias.shape[1] - self._end

        def joined(old: Tensor, new: Tensor) -> Tensor:
            return torch.cat(
                [functional.pad(old, (0, 0, before_old, 0)), functional.pad(new, (0, 0, before_new, behind_new))]
            )

        self._bias = torch.cat([_widened(self._bias, (before_old, 0)), _widened(bias, (before_new, behind_new))])
        for layer, (old_keys, old_values) in enumerate(self._cache):
            keys, values = cache.pop(0)  # memory never holds two caches
            self._cache[layer] = joined(old_keys, keys), joined(old_values, values)
            bound_free_memory()
        self._starts = [start + before_old for start in self._starts] + [start + before_new for start in starts]
        self._end += before_old
        self.logits = torch.cat([self.logits, logits])
        self._positions = torch.cat([self._positions, positions])
        self.owners = self.owners + owners
        self._set_tokens(torch.zeros_like(self._positions))

    def _computed(self, prompts: Sequence[Sequence[int]]) -> tuple[Tensor, KeyValueCache, Tensor, Tensor]:
        """Logits, cache, positions of the next tokens and visible entries of ``prompts``, padded on the left."""
        decoder, device = self._decoder, self._decoder.device
        groups = [(prompt, len(list(equal))) for prompt, equal in groupby(prompts)]
        tokens, present = (each.to(device) for each in left_padded([prompt for prompt, _ in groups]))
        logits, cache = _prefill(decoder, tokens, present)
        row_of = torch.tensor([row for row, (_, count) in enumerate(groups) for _ in range(count)], device=device)
        _change(cache, lambda entries: entries.index_select(0, row_of))
        positions, bias = present.sum(1), score_bias(present, decoder.dtype)
        return (
            logits.index_select(0, row_of), cache, positions.index_select(0, row_of), bias.index_select(0, row_of),
        )  # fmt: skip

    @property
    def is_full(self) -> bool:
        """Whether the cache has no entry for another token."""
        return self._end == self._bias.shape[1]

    def keep(self, rows: list[int]) -> None:
        """Drop all other rows, and entries before the first that a row sees."""
        self.owners = [self.owners[row] for row in rows]
        if not rows:
            self._cache, self._decoding_step = [], None
            return
        kept = torch.tensor(rows, device=self._bias.device)
        start = min(self._starts[row] for row in rows)
        if self._decoder.on_card:
            start -= start % ALIGNED
        self._starts = [self._starts[row] - start for row in rows]
        self._bias, self._positions = self._bias[kept, start:], self._positions[kept]
        _change(self._cache, lambda entries: entries[kept, :, start:])
        self._end -= start
        self._set_tokens(self._tokens[kept])

    def step(self, tokens: Tensor) -> None:
        """Append a token to each row."""
        self._tokens.copy_(tokens)
        if self.is_full:
            self._grow(CACHE_GROWTH)
        self._append()

    def _append(self) -> None:
        if self._decoding_step is None:
            self._decoding_step = DecodingStep(
                self._decoder, self._tokens, self._positions, self._bias, self._cache, self._end, self._draw()
            )
        self.logits = self._decoding_step()
        self._end += 1

    def _draw(self) -> Callable[[Tensor], object] | None:
        """What draws the next tokens at the end of a step."""
        return None

    def _set_tokens(self, tokens: Tensor) -> None:
        """The rows have changed: no step may use the tensors of before."""
        self._tokens, self._decoding_step = tokens, None

    def _grow(self, entries: int) -> None:
        """Make room for ``entries``, on a card for some more: its attention kernels read masks of aligned lengths."""
        self._decoding_step = None
        if self._decoder.on_card:
            entries += -(self._end + entries) % ALIGNED
        self._bias = _widened(self._bias, (0, entries))
        _change(self._cache, lambda old: functional.pad(old, (0, 0, 0, entries)))


def left_padded(prompts: Sequence[Sequence[int]], padding: int = 0) -> tuple[Tensor, Tensor]:
    """Prompts with ``padding`` before the shorter ones, and where they are, (B, L) each; on the CPU."""
    # One copy to the device instead of one a row.
    longest = max(map(len, prompts))
    tokens = torch.full((len(prompts), longest), padding)
    present = torch.zeros(len(prompts), longest, dtype=torch.bool)
    for row, prompt in enumerate(prompts):
        tokens[row, longest - len(prompt) :] = torch.tensor(list(prompt))
        present[row, longest - len(prompt) :] = True
    return tokens, present


def _widened(bias: Tensor, sides: tuple[int, int]) -> Tensor:
    return functional.pad(bias, sides, value=float("-inf"))


def _prefill(decoder: Decoder, tokens: Tensor, present: Tensor) -> tuple[Tensor, KeyValueCache]:
    """Process left-padded prompts, some at a time; returns the next token's logits and the full cache."""
    started = time.monotonic()
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
    decoder.prompt_tokens += int(present.sum())  # which waits for the device, so that the time is that of the pass
    decoder.prompt_seconds += time.monotonic() - started
    return torch.cat(logits), cache


def _change(cache: KeyValueCache, change: Callable[[Tensor], Tensor]) -> None:
    """Replace the KV cache layer by layer, so that memory never holds two of them."""
    for number, (keys, values) in enumerate(cache):
        cache[number] = change(keys), change(values)
        bound_free_memory()  # A longer cache does not fit the blocks of the old one.
