"""A batch of an ONNX model that tasks join and leave while it is decoded."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

import numpy as np

from securecoderl_edge.models.drawing import draw
from securecoderl_edge.runtimes.onnx.model import Floats, OnnxBatch, OnnxModel, joined
from securecoderl_edge.runtimes.protocol import Progress, Sampling, Task
from securecoderl_edge.runtimes.text_writer import Draft, OpenTask, TextWriter, TokenText


class Writer(Draft):
    """One sample in progress with its own random generator."""

    def __init__(
        self, key: tuple[int, int], sampling: Sampling, ends: frozenset[int], pieces: TokenText, text: TextWriter
    ) -> None:
        super().__init__(sampling, ends.__contains__, pieces, text)
        self.key = key
        # A sample does not depend on the rest of the batch.
        self._random = np.random.default_rng((sampling.seed, *key))

    def draw(self, logits: Floats) -> None:
        """Add the next token."""
        sampling = self._sampling
        self.add(*draw(logits, sampling.temperature, self._random, sampling.truncate))


class _Row(OpenTask):
    """A task in the batch; ``logits`` are those of its next token."""

    draft: Writer

    def __init__(self, task: Task, prompt_tokens: int, logits: Floats) -> None:
        super().__init__(task, prompt_tokens)
        self.logits = logits

    @property
    def length(self) -> int:
        return self.prompt_tokens + self.task.sampling.max_tokens


class OpenOnnxBatch:
    """Implements `protocol.Batch`. Rows that leave or join cost one copy of the KV cache, in the next step.

    Args:
        encode: the tokens of a task's prompt.
        write: the writer of a task, and where it shows its text.
    """

    def __init__(
        self,
        model: OnnxModel,
        rows: int,
        encode: Callable[[Task], list[int]],
        write: Callable[[Task, Callable[[str], None]], Writer],
    ) -> None:
        self._model, self.rows, self._encode, self._write = model, rows, encode, write
        self._rows: list[_Row] = []
        # Each row's place: a batch, and the row in it.
        self._places: list[tuple[OnnxBatch, int]] = []

    def add(self, tasks: Sequence[Task]) -> None:
        """See `protocol.Batch.add`. Each prompt is computed by itself, equal ones once."""
        prompts = [self._encode(task) for task in tasks]
        computed: dict[tuple[int, ...], tuple[OnnxBatch, Floats]] = {}
        most = max((task.sampling.max_tokens for task in tasks), default=0)
        for task, prompt in zip(tasks, prompts, strict=True):
            started = time.monotonic()
            key = tuple(prompt)
            if key not in computed:
                batch = self._model.open_batch(1, len(prompt) + most)
                computed[key] = batch, batch.prefill([prompt])[0][-1].copy()
            batch, logits = computed[key]
            row = _Row(task, len(prompt), logits)
            row.draft = self._write(task, row.news.append)
            row.draft.started = started
            self._rows.append(row)
            self._places.append((batch, 0))

    def step(self) -> list[Progress]:
        """See `protocol.Batch.step`."""
        progress: list[Progress] = []
        for row in self._rows:
            row.draft.draw(row.logits)
            progress += row.progress()
        self._keep([not row.draft.is_done for row in self._rows])
        if self._rows:
            batch = self._one_batch()
            logits = batch.step([row.draft.tokens[-1] for row in self._rows])
            for row, own in zip(self._rows, logits, strict=True):
                row.logits = own
        return progress

    def drop(self, keys: Collection[int]) -> None:
        """See `protocol.Batch.drop`."""
        self._keep([row.task.key not in keys for row in self._rows])

    def close(self) -> None:
        """See `protocol.Batch.close`."""
        self._keep([False] * len(self._rows))

    def _keep(self, kept: list[bool]) -> None:
        self._rows = [row for row, is_kept in zip(self._rows, kept, strict=True) if is_kept]
        self._places = [place for place, is_kept in zip(self._places, kept, strict=True) if is_kept]

    def _one_batch(self) -> OnnxBatch:
        """The batch of exactly these rows, in their order."""
        batch = self._places[0][0]
        if self._places != [(batch, row) for row in range(len(batch.lengths))]:
            batch = joined(self._model, self._places, max(row.length for row in self._rows))
            self._places = [(batch, row) for row in range(len(self._rows))]
        return batch
