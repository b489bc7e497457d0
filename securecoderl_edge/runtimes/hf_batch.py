"""A batch of a model that torch computes, which tasks join and leave while it is decoded."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence

import torch
from torch import Tensor

from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.drawing import draw_tokens
from securecoderl_edge.models.sampling import RunningBatch, not_finite
from securecoderl_edge.runtimes.protocol import Progress, Task
from securecoderl_edge.runtimes.text_writer import Draft, OpenTask


class _Row(OpenTask):
    """A task in the batch, and its random numbers, one per token."""

    def __init__(self, task: Task, prompt_tokens: int) -> None:
        super().__init__(task, prompt_tokens)
        generator = torch.Generator().manual_seed(task.sampling.seed)
        self.uniforms = torch.rand(task.sample + 1, task.sampling.max_tokens, generator=generator)[-1]


class HfBatch:
    """Implements `protocol.Batch`.

    Args:
        encode: the tokens of a task's prompt.
        write: the draft of a task, and where it shows its text.
    """

    def __init__(
        self,
        decoder: Decoder,
        rows: int,
        encode: Callable[[Task], list[int]],
        write: Callable[[Task, Callable[[str], None]], Draft],
    ) -> None:
        self.rows, self._encode, self._write = rows, encode, write
        self._batch = RunningBatch(decoder)
        self._dtype = str(decoder.dtype).removeprefix("torch.")
        self._rows: dict[int, _Row] = {}

    @torch.no_grad()
    def add(self, tasks: Sequence[Task]) -> None:
        """See `protocol.Batch.add`; equal prompts that follow each other are computed once."""
        if not tasks:
            return
        prompts = [self._encode(task) for task in tasks]
        started = time.monotonic()
        self._batch.admit([task.key for task in tasks], prompts)
        for task, prompt in zip(tasks, prompts, strict=True):
            row = self._rows[task.key] = _Row(task, len(prompt))
            row.draft = self._write(task, row.news.append)
            row.draft.started = started

    @torch.no_grad()
    def step(self) -> list[Progress]:
        """See `protocol.Batch.step`."""
        if not self._rows:
            return []
        rows = [self._rows[key] for key in self._batch.owners]
        chosen, tokens, log_probs = self._draw(rows)
        for row, token, log_prob in zip(rows, tokens, log_probs, strict=True):
            if not math.isfinite(log_prob):
                raise not_finite(self._dtype)
            row.draft.add(int(token), log_prob)
        progress = [news for row in rows for news in row.progress()]
        going = [place for place, row in enumerate(rows) if not row.draft.is_done]
        self.drop([row.task.key for row in rows if row.draft.is_done])
        if going:
            self._batch.step(chosen[going])
        return progress

    def drop(self, keys: Collection[int]) -> None:
        """See `protocol.Batch.drop`."""
        kept = [place for place, key in enumerate(self._batch.owners) if key not in keys]
        if len(kept) < len(self._batch.owners):
            self._batch.logits = self._batch.logits[kept]
            self._batch.keep(kept)
        for key in keys:
            self._rows.pop(key, None)

    def close(self) -> None:
        """See `protocol.Batch.close`."""
        self.drop(list(self._rows))

    def _draw(self, rows: Sequence[_Row]) -> tuple[Tensor, list[float], list[float]]:
        """The next token of each row, on the device and read, and its log-probability; rows of one setting together."""
        alike: defaultdict[tuple[float, int, float, float], list[int]] = defaultdict(list)
        for place, row in enumerate(rows):
            asked = row.task.sampling
            alike[asked.temperature, asked.top_k, asked.top_p, asked.min_p].append(place)
        logits = self._batch.logits
        tokens = torch.zeros(len(rows), dtype=torch.long, device=logits.device)
        log_probs = torch.zeros(len(rows), device=logits.device)
        for members in alike.values():
            sampling = rows[members[0]].task.sampling
            uniforms = torch.stack([rows[place].uniforms[len(rows[place].draft.tokens)] for place in members])
            places = torch.tensor(members, device=logits.device)
            own, parts = logits.index_select(0, places), uniforms.to(logits.device)
            drawn = draw_tokens(own, sampling.temperature, parts, sampling.truncate)
            tokens.index_copy_(0, places, drawn[0])
            log_probs.index_copy_(0, places, drawn[1])
        # One read of the device; float32 holds token ids exactly.
        ids, read = torch.stack([tokens.float(), log_probs]).tolist()
        return tokens, ids, read
