"""Batched sampling with a KV cache, on a copy of the policy's weights.

In training `sample` uses only the temperature, so that it samples the distribution whose log-probabilities PPO
computes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.drawing import draw_tokens
from securecoderl_edge.models.drawing_batch import DrawingBatch


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

    def draw(self, logits: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
        """The next tokens of ``logits`` (B, V) and their log-probabilities, see `draw_tokens`."""
        return draw_tokens(logits, self.temperature, uniforms, self.truncate, tempered=self.tempered)


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
        """Draw and add the next token of each row of ``logits`` (B, V).

        Args:
            owners: the number of each row's completion: prompt x samples + sample.

        Raises:
            SceError: see `add`.
        """
        tokens, log_probs = self._sampler.draw(logits, self.uniforms(owners, 1)[0].to(logits.device))
        # One read of the device; float32 holds token ids exactly.
        self.add(owners, [torch.stack([tokens.float(), log_probs]).tolist()])
        return tokens

    def left(self, owners: Sequence[int]) -> list[int]:
        """How many tokens each completion may still get; 0 if it is done."""
        return [0 if owner in self.done else self._limit(owner) - self._length(owner) for owner in owners]

    def uniforms(self, owners: Sequence[int], rounds: int) -> Tensor:
        """(rounds, B) random numbers of the next tokens; any for tokens that no completion gets."""
        first, last = torch.tensor([self._length(owner) for owner in owners]), self._sampler.max_tokens - 1
        steps = (first + torch.arange(rounds)[:, None]).clamp_max(last)
        return self._sampler.uniforms[torch.tensor(owners), steps]

    def add(self, owners: Sequence[int], rounds: Sequence[Sequence[Sequence[float]]]) -> None:
        """Add tokens and their log-probabilities (rounds, 2, B), round by round; those behind an end are dropped.

        Raises:
            SceError: NaN or Inf in the logits, from the weights or from a dtype that is too narrow for them.
        """
        for read in rounds:
            for owner, token, log_prob in zip(owners, *read, strict=True):
                if owner not in self.done:
                    self._add(owner, int(token), log_prob)

    def _length(self, owner: int) -> int:
        return len(self._drawn.get(owner, ((), ()))[0])

    def _limit(self, owner: int) -> int:
        limits = self._sampler.limits
        return self._sampler.max_tokens if limits is None else limits[owner // self._samples]

    def _add(self, owner: int, token: int, log_prob: float) -> None:
        if not math.isfinite(log_prob):
            raise not_finite(str(self._dtype).removeprefix("torch."))
        sampler, key = self._sampler, divmod(owner, self._samples)
        tokens, log_probs = self._drawn.setdefault(owner, ([], []))
        tokens.append(token)
        log_probs.append(log_prob)
        is_stopped = sampler.on_token is not None and sampler.on_token(*key, token)
        is_finished = is_stopped or token in sampler.end_tokens
        if is_finished or len(tokens) == self._limit(owner):
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

    Where there is room for the samples of two prompts, all samples of a prompt start together.

    Args:
        prompts: token ids; each must be non-empty and leave room for ``max_tokens`` in the context.
        parallel: completions decoded at a time; waiting ones take the places of finished ones. By default all.

    Returns:
        all completions, ordered by prompt, then by sample.

    Raises:
        SceError: see `PartialCompletions.add`.
    """
    if not decoder.layers:
        decoder.refresh()
    count = len(prompts) * samples
    completions = PartialCompletions(sampler, samples, decoder.dtype)
    batch, waiting = DrawingBatch(decoder, sampler.draw, records_draw=sampler.truncate is None), deque(range(count))
    width, pace = min(count, parallel or count), decoder.pace

    def admit() -> None:
        free = min(len(waiting), width - len(batch.owners))
        if width >= 2 * samples:
            # All samples of a prompt at a time, for it is processed again in each call.
            free -= (waiting[0] + free) % samples
        if free > 0:
            owners = [waiting.popleft() for _ in range(free)]
            batch.admit(owners, [prompts[owner // samples] for owner in owners])

    admit()
    while True:
        owners = batch.owners
        completions.add(owners, batch.decode(completions.left(owners), partial(completions.uniforms, owners)))
        kept = [row for row, owner in enumerate(owners) if owner not in completions.done]
        finished = len(owners) - len(kept)
        if not kept and not waiting:
            return [completions.done[owner] for owner in range(count)]
        share = pace.refill_at if waiting else pace.drop_at
        # Also before the cache grows: a finished row may be the one that began first.
        if finished and (finished >= len(owners) * share or batch.is_full):
            batch.keep(kept)
        if waiting and len(batch.owners) < width:
            admit()
