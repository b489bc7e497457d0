"""A batch of a model that torch computes, which tasks join and leave while it is decoded."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.drawing import draw_tokens, uniforms_of
from securecoderl_edge.models.running_batch import RunningBatch
from securecoderl_edge.models.sampling import not_finite
from securecoderl_edge.runtimes.protocol import DecodingProgress, DecodingTask
from securecoderl_edge.runtimes.text_writer import BatchRow, Begin


class _Row(BatchRow):
    """A task in the batch, and its random numbers, one per token."""

    def __init__(self, task: DecodingTask, prompt_tokens: int, begin: Begin, started: float) -> None:
        super().__init__(task, prompt_tokens, begin, started)
        self.uniforms = uniforms_of((task.sampling.seed, 0, task.sample), task.sampling.max_tokens)


class HfBatch:
    """Implements `protocol.DecodingBatch`.

    Args:
        encode: the tokens of a task's prompt.
        begin: begins the completion of a task.
    """

    def __init__(
        self,
        decoder: Decoder,
        rows: int,
        encode: Callable[[DecodingTask], list[int]],
        begin: Begin,
    ) -> None:
        self.rows, self._encode, self._begin = rows, encode, begin
        self._batch = RunningBatch(decoder)
        self._dtype = str(decoder.dtype).removeprefix("torch.")
        self._rows: dict[int, _Row] = {}

    @torch.no_grad()
    def add(self, tasks: Sequence[DecodingTask]) -> None:
        """See `protocol.DecodingBatch.add`; equal prompts that follow each other are computed once."""
        if not tasks:
            return
        prompts = [self._encode(task) for task in tasks]
        started = time.monotonic()
        self._batch.admit([task.key for task in tasks], prompts)
        for task, prompt in zip(tasks, prompts, strict=True):
            self._rows[task.key] = _Row(task, len(prompt), self._begin, started)

    @torch.no_grad()
    def step(self) -> list[DecodingProgress]:
        """See `protocol.DecodingBatch.step`."""
        if not self._rows:
            return []
        rows = [self._rows[key] for key in self._batch.owners]
        chosen, tokens, log_probs = self._draw(rows)
        for row, token, log_prob in zip(rows, tokens, log_probs, strict=True):
            if not math.isfinite(log_prob):
                raise not_finite(self._dtype)
            row.partial.add(int(token), log_prob)
        progress = [news for row in rows for news in row.progress()]
        going = [number for number, row in enumerate(rows) if not row.partial.is_done]
        self.drop([row.task.key for row in rows if row.partial.is_done])
        if going:
            self._batch.step(chosen[going])
        return progress

    def drop(self, keys: Collection[int]) -> None:
        """See `protocol.DecodingBatch.drop`."""
        kept = [number for number, key in enumerate(self._batch.owners) if key not in keys]
        if len(kept) < len(self._batch.owners):
            self._batch.logits = self._batch.logits[kept]
            self._batch.keep(kept)
        for key in keys:
            self._rows.pop(key, None)

    def close(self) -> None:
        """See `protocol.DecodingBatch.close`."""
        self.drop(list(self._rows))

    def _draw(self, rows: Sequence[_Row]) -> tuple[Tensor, list[float], list[float]]:
        """The next token of each row, on the device and read, and its log-probability; rows of one setting together."""
        alike: defaultdict[tuple[float, int, float, float], list[int]] = defaultdict(list)
        for number, row in enumerate(rows):
            sampling = row.task.sampling
            alike[sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p].append(number)
        logits = self._penalized(rows)
        tokens = torch.zeros(len(rows), dtype=torch.long, device=logits.device)
        log_probs = torch.zeros(len(rows), device=logits.device)
        for members in alike.values():
            sampling = rows[members[0]].task.sampling
            uniforms = torch.stack([rows[number].uniforms[len(rows[number].partial.tokens)] for number in members])
            chosen = torch.tensor(members, device=logits.device)
            own, parts = logits.index_select(0, chosen), uniforms.to(logits.device)
            drawn = draw_tokens(own, sampling.temperature, parts, sampling.truncate)
            tokens.index_copy_(0, chosen, drawn[0])
            log_probs.index_copy_(0, chosen, drawn[1])
        if logits is not self._batch.logits:  # log-probabilities are those of the model
            log_probs = self._batch.logits.float().log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
        # One read of the device; float32 holds token ids exactly.
        ids, read = torch.stack([tokens.float(), log_probs]).tolist()
        return tokens, ids, read

    def _penalized(self, rows: Sequence[_Row]) -> Tensor:
        """The logits (B, V), lower by the penalties of rows that have some."""
        logits = self._batch.logits
        for number, row in enumerate(rows):
            if (penalties := row.partial.penalties()) is not None:
                if logits is self._batch.logits:
                    logits = logits.clone()
                ids, amounts = (torch.from_numpy(each).to(logits.device) for each in penalties)
                logits[number, ids] -= amounts.to(logits.dtype)
        return logits
