"""Batched sampling with a KV cache, on a copy of the policy's weights.

In training `sample` uses only the temperature, so that it samples the distribution whose log-probabilities PPO
computes.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.decoder import Decoder, KeyValueCache
from securecoderl_edge.models.drawing import draw_tokens
from securecoderl_edge.models.fused import score_bias
from securecoderl_edge.models.recorded_step import DecodingStep
from securecoderl_edge.models.sizes import CACHE_GROWTH, PREFILL_TOKENS
from securecoderl_edge.system.heap import bound_free_memory

# Rows of finished sequences are dropped once they make up this fraction of the batch: dropping copies the cache.
_COMPACT_SHARE = 0.25


@dataclass(frozen=True)
class TokenCompletion:
    """One completion as token ids.

    Attributes:
        prompt: index of the prompt it continues.
        sample: index among the samples of that prompt.
        token_ids: with the end-of-sequence token if it was sampled.
        log_probs: at temperature 1, for ranking and reports, or those of a `Sampler` that is ``tempered``. PPO
            recomputes its own. Empty if the sampler does not return them.
        finished: False if the length limit cut it off.
    """

    prompt: int
    sample: int
    token_ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    finished: bool


@dataclass(frozen=True)
class Sampler:
    """How tokens are drawn, for every model.

    Attributes:
        temperature: 0 takes the most likely token.
        end_tokens: ids that finish a completion.
        uniforms: (prompts x samples, ``max_tokens``) numbers from [0, 1), the only source of randomness. Every
            completion has its own row, so it does not depend on the rest of the batch.
        on_finished: called with each completion as soon as it ends, while the others are still being decoded.
        on_token: called with (prompt index, sample index, token id) for every sampled token; True ends the completion.
        truncate: given logits (B, V) over the temperature, returns them with minus infinity for excluded tokens.
        limits: tokens of the completions of each prompt, where some get fewer than ``max_tokens``.
        tempered: report log-probabilities under the distribution that tokens are drawn from, not at temperature 1.
    """

    temperature: float
    max_tokens: int
    end_tokens: frozenset[int]
    uniforms: Tensor
    on_finished: Callable[[TokenCompletion], None] | None = None
    on_token: Callable[[int, int, int], bool] | None = None
    truncate: Callable[[Tensor], Tensor] | None = None
    tempered: bool = False
    limits: tuple[int, ...] | None = None


class PartialCompletions:
    """Completions that are being drawn, token by token.

    Args:
        samples: completions of each prompt.
        dtype: of the logits, for messages.
    """

    def __init__(self, sampler: Sampler, samples: int, dtype: torch.dtype) -> None:
        self._sampler, self._samples, self._dtype = sampler, samples, dtype
        self._drawn: dict[int, tuple[list[int], list[float]]] = {}
        self.done: dict[int, TokenCompletion] = {}

    def draw(self, logits: Tensor, owners: Sequence[int]) -> Tensor:
        """Draw the next token of each row of ``logits`` (B, V); rows of finished completions are ignored.

        Args:
            owners: the number of each row's completion: prompt x samples + sample.

        Raises:
            SceError: NaN or Inf in the logits, from the weights or from a dtype that is too narrow for them.
        """
        sampler = self._sampler
        steps = [min(len(self._drawn.get(owner, ((), ()))[0]), sampler.max_tokens - 1) for owner in owners]
        uniforms = sampler.uniforms[list(owners), steps].to(logits.device)
        tokens, log_probs = draw_tokens(
            logits, sampler.temperature, uniforms, sampler.truncate, tempered=sampler.tempered
        )
        # One read of the device; float32 holds token ids exactly.
        read = torch.stack([tokens.float(), log_probs]).tolist()
        for owner, token, log_prob in zip(owners, *read, strict=True):
            if owner not in self.done:
                self._add(owner, int(token), log_prob)
        return tokens

    def _add(self, owner: int, token: int, log_prob: float) -> None:
        if not math.isfinite(log_prob):
            raise not_finite(str(self._dtype).removeprefix("torch."))
        sampler, key = self._sampler, divmod(owner, self._samples)
        tokens, log_probs = self._drawn.setdefault(owner, ([], []))
        tokens.append(token)
        log_probs.append(log_prob)
        is_stopped = sampler.on_token is not None and sampler.on_token(*key, token)
        is_finished = is_stopped or token in sampler.end_tokens
        limit = sampler.max_tokens if sampler.limits is None else sampler.limits[key[0]]
        if is_finished or len(tokens) == limit:
            self.done[owner] = TokenCompletion(*key, tuple(tokens), tuple(log_probs), is_finished)
            if sampler.on_finished:
                sampler.on_finished(self.done[owner])


def not_finite(dtype: str) -> SceError:
    """The error for a probability that is no number."""
    fix = "check the weights" if dtype == "float32" else "use --base-precision fp32 or bf16"
    return SceError(f"NaN or Inf in the logits with {dtype}; {fix}")


@torch.no_grad()
def sample(
    decoder: Decoder, prompts: Sequence[Sequence[int]], samples: int, sampler: Sampler, parallel: int | None = None
) -> list[TokenCompletion]:
    """Sample ``samples`` completions of each prompt; samples that start together share the pass over their prompt.

    Args:
        prompts: token ids; each must be non-empty and leave room for ``max_tokens`` in the context.
        parallel: completions decoded at a time; waiting ones take the places of finished ones. By default all.

    Returns:
        all completions, ordered by prompt, then by sample.

    Raises:
        SceError: see `PartialCompletions.draw`.
    """
    if not decoder.layers:
        decoder.refresh()
    count = len(prompts) * samples
    completions = PartialCompletions(sampler, samples, decoder.dtype)
    batch, waiting = RunningBatch(decoder), deque(range(count))
    width = min(count, parallel or count)

    def admit() -> None:
        owners = [waiting.popleft() for _ in range(min(len(waiting), width - len(batch.owners)))]
        batch.admit(owners, [prompts[owner // samples] for owner in owners])

    admit()
    while True:
        chosen = completions.draw(batch.logits, batch.owners)
        kept = [row for row, owner in enumerate(batch.owners) if owner not in completions.done]
        finished = len(batch.owners) - len(kept)
        if not kept and not waiting:
            return [completions.done[owner] for owner in range(count)]
        # Also before the cache grows: a finished row may be the one that began first.
        if finished and (finished >= len(batch.owners) * _COMPACT_SHARE or batch.is_full):
            batch.keep(kept)
            chosen = chosen[kept]
        if batch.owners:
            batch.step(chosen)
        if waiting and len(batch.owners) < width:
            admit()


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
        self._decoding_step: DecodingStep | None = None  # reads the tensors below; None when they are replaced

    def admit(self, owners: list[int], prompts: Sequence[Sequence[int]]) -> None:
        """Add a row for each of ``prompts``; neighbors that are equal are computed once.

        Old and new rows get empty entries, so that all end at the same one and are equally wide::

            old row    . . o o o o | . .
            new row    n n n n n n | . .
        """
        self._decoding_step = None
        logits, cache, positions, bias = self._computed(prompts)
        longest = max(map(len, prompts))
        starts = [longest - len(prompt) for prompt in prompts]
        if not self.owners:
            self.logits, self._cache, self._positions, self._bias = logits, cache, positions, bias
            self._end, self.owners, self._starts = longest, owners, starts
            return
        before_old, before_new = max(longest - self._end, 0), max(self._end - longest, 0)
        behind_new = self._bias.shape[1] - self._end

        def joined(old: Tensor, new: Tensor) -> Tensor:
            return torch.cat(
                [functional.pad(old, (0, 0, before_old, 0)), functional.pad(new, (0, 0, before_new, behind_new))]
            )

        self._bias = torch.cat([_widened(self._bias, (before_old, 0)), _widened(bias, (before_new, behind_new))])
        for layer, ((old_keys, old_values), (keys, values)) in enumerate(zip(self._cache, cache, strict=True)):
            self._cache[layer] = joined(old_keys, keys), joined(old_values, values)
            bound_free_memory()
        self._starts = [start + before_old for start in self._starts] + [start + before_new for start in starts]
        self._end += before_old
        self.logits = torch.cat([self.logits, logits])
        self._positions = torch.cat([self._positions, positions])
        self.owners = self.owners + owners

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
        self._decoding_step = None
        self.owners = [self.owners[row] for row in rows]
        if not rows:
            self._cache = []
            return
        kept = torch.tensor(rows, device=self._bias.device)
        start = min(self._starts[row] for row in rows)
        self._starts = [self._starts[row] - start for row in rows]
        self._bias, self._positions = self._bias[kept, start:], self._positions[kept]
        _change(self._cache, lambda entries: entries[kept, :, start:])
        self._end -= start

    def step(self, tokens: Tensor) -> None:
        """Append a token to each row."""
        if self.is_full:
            self._decoding_step = None
            self._bias = _widened(self._bias, (0, CACHE_GROWTH))
            _change(self._cache, lambda entries: functional.pad(entries, (0, 0, 0, CACHE_GROWTH)))
        if self._decoding_step is None:
            self._decoding_step = DecodingStep(self._decoder, self._positions, self._bias, self._cache)
        self._bias[:, self._end] = 0.0
        self.logits = self._decoding_step(tokens, self._end)
        self._positions += 1
        self._end += 1


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
