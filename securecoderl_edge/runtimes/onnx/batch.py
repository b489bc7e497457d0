"""A batch of an ONNX model that tasks join and leave while it is decoded."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence

from securecoderl_edge.runtimes.onnx.model import Floats, OnnxModel, OnnxSequences, joined
from securecoderl_edge.runtimes.protocol import DecodingProgress, DecodingTask
from securecoderl_edge.runtimes.text_writer import BatchRow, Begin


class _Row(BatchRow):
    """A task in the batch.

    Attributes:
        logits: of its next token.
        source: the computed sequences that it is one of, and its number among them.
    """

    def __init__(
        self,
        task: DecodingTask,
        prompt_tokens: int,
        begin: Begin,
        started: float,
        logits: Floats,
        source: tuple[OnnxSequences, int],
    ) -> None:
        super().__init__(task, prompt_tokens, begin, started)
        self.logits, self.source = logits, source

    @property
    def length(self) -> int:
        return self.prompt_tokens + self.task.sampling.max_tokens


class OnnxBatch:
    """Implements `protocol.DecodingBatch`. Rows that leave or join cost one copy of the KV cache, in the next step.

    Args:
        encode: the tokens of a task's prompt.
        begin: begins the completion of a task.
    """

    def __init__(self, model: OnnxModel, rows: int, encode: Callable[[DecodingTask], list[int]], begin: Begin) -> None:
        self._model, self.rows, self._encode, self._begin = model, rows, encode, begin
        self._rows: list[_Row] = []

    def add(self, tasks: Sequence[DecodingTask]) -> None:
        """See `protocol.DecodingBatch.add`. Each prompt is computed by itself, equal ones once."""
        prompts = [self._encode(task) for task in tasks]
        computed: dict[tuple[int, ...], tuple[OnnxSequences, Floats]] = {}
        most = max((task.sampling.max_tokens for task in tasks), default=0)
        for task, prompt in zip(tasks, prompts, strict=True):
            started = time.monotonic()
            key = tuple(prompt)
            if key not in computed:
                sequences = self._model.open_sequences(1, len(prompt) + most)
                computed[key] = sequences, sequences.prefill([prompt])[0][-1].copy()
            sequences, logits = computed[key]
            self._rows.append(_Row(task, len(prompt), self._begin, started, logits, (sequences, 0)))

    def step(self) -> list[DecodingProgress]:
        """See `protocol.DecodingBatch.step`."""
        progress: list[DecodingProgress] = []
        for row in self._rows:
            row.partial.add(*row.partial.draw(row.logits))
            progress += row.progress()
        self._rows = [row for row in self._rows if not row.partial.is_done]
        if self._rows:
            logits = self._one_source().step([row.partial.tokens[-1] for row in self._rows])
            for row, own in zip(self._rows, logits, strict=True):
                row.logits = own
        return progress

    def drop(self, keys: Collection[int]) -> None:
        """See `protocol.DecodingBatch.drop`."""
        self._rows = [row for row in self._rows if row.task.key not in keys]

    def close(self) -> None:
        """See `protocol.DecodingBatch.close`."""
        self._rows = []

    def _one_source(self) -> OnnxSequences:
        """Sequences that are exactly these rows, in their order."""
        sources = [row.source for row in self._rows]
        sequences = sources[0][0]
        if sources != [(sequences, number) for number in range(len(sequences.lengths))]:
            sequences = joined(self._model, sources, max(row.length for row in self._rows))
            for number, row in enumerate(self._rows):
                row.source = sequences, number
        return sequences
