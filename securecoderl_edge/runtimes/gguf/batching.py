"""Continuous batching: samples of many prompts share each decoding step; others take the places of finished ones.

A prompt is computed once, without its last token; its other samples copy that prefix. Every sample then starts by
decoding the prompt's last token in its own place, so the first token needs no special case.

With ``reuses_prefixes`` a prompt also reuses the KV cache of earlier prompts. Those entries come from batches of other
shapes, which some kernels round differently, so samples then depend on earlier requests.
"""

from __future__ import annotations

import functools
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securecoderl_edge.models.drawing import draw
from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.runtimes.gguf.llama import BATCH, LlamaContext, LlamaModel
from securecoderl_edge.runtimes.protocol import Completion, Sampling, Usage
from securecoderl_edge.runtimes.text_writer import BytesText, Draft, TextWriter, end_of_program

# Copying a sequence takes about as long as computing this number of tokens.
_LEAST_PREFIX = 16


@dataclass(frozen=True)
class Task:
    """One sample of one prompt, to be decoded.

    Attributes:
        key: names it in answers; hashable.
        seed: of its own, so that a sample does not depend on the others.
        facts: of the function or program that the prompt requests; the sample ends with its program.
    """

    key: Any
    prompt: Sequence[int]
    sampling: Sampling
    seed: Sequence[int]
    facts: PromptFacts | None = None


@dataclass
class _Sample:
    """A sample being decoded; ``filled`` tokens of it are in the KV cache."""

    task: Task
    random: np.random.Generator
    draft: Draft
    filled: int

    @property
    def next_token(self) -> int:
        return self.draft.tokens[-1] if self.draft.tokens else self.task.prompt[-1]

    def draw(self, logits: np.ndarray[Any, Any]) -> tuple[int, float]:
        sampling = self.task.sampling
        return draw(logits, sampling.temperature, self.random, sampling.truncate)


class BatchDecoder:
    """Decodes tasks in the sequences of one context.

    Args:
        on_completion: called with each finished sample.
        on_token: called with each piece of text, when given.
        reuses_prefixes: reuse prefixes of earlier prompts, also of those in earlier requests.
    """

    def __init__(
        self,
        model: LlamaModel,
        context: LlamaContext,
        on_completion: Callable[[Task, Completion], None],
        on_token: Callable[[Task, str], None] | None = None,
        reuses_prefixes: bool = False,
    ) -> None:
        self._model = model
        self._context = context
        self._on_completion = on_completion
        self._on_token = on_token
        self._reuses_prefixes = reuses_prefixes
        # The index in this list is the sequence in the context.
        self._places: list[_Sample | None] = []
        self.spent = Usage()

    def run(self, tasks: Sequence[Task]) -> None:
        """Decode all tasks; those of one prompt should follow each other, to share its prefix."""
        pending = deque(tasks)
        try:
            while pending or self._places:
                free = self._context.sequences - sum(sample is not None for sample in self._places)
                self.add([pending.popleft() for _ in range(min(free, len(pending)))])
                self.step()
        finally:
            self.drop({task.key for task in tasks})

    def add(self, tasks: Sequence[Task]) -> None:
        """Compute the prompts of tasks in free places."""
        pending = deque(tasks)
        fresh: list[int] = []
        copies: list[tuple[int, int]] = []
        self._places += [None] * min(self._context.sequences - len(self._places), len(pending))
        for place, occupant in enumerate(self._places):
            if occupant is not None or not pending:
                continue
            task = pending.popleft()
            siblings = (at for at, other in enumerate(self._places) if other and other.task.prompt == task.prompt)
            sibling = next(siblings, None)
            self._places[place] = self._begin(task)
            if sibling is not None:
                copies.append((sibling, place))
                continue
            self._sample_at(place).filled = self._prepare(place, task.prompt[:-1])
            fresh.append(place)
        self._compute_prompts(fresh)
        for source, target in copies:
            sample = self._sample_at(target)
            sample.filled = self._context.copy(source, target, sample.filled)
        self._compute_prompts([target for _, target in copies])

    def drop(self, keys: Collection[Any]) -> None:
        """Free the places of tasks before their end."""
        for place, sample in enumerate(self._places):
            if sample is not None and sample.task.key in keys:
                self._places[place] = None

    def _prepare(self, place: int, tokens: Sequence[int]) -> int:
        """Make a place hold the longest cached prefix of ``tokens``; returns its length."""
        source, length = self._context.longest_prefix(tokens) if self._reuses_prefixes else (0, 0)
        if length < _LEAST_PREFIX:
            self._context.clear(place)
            return 0
        return self._context.cut(place, length) if source == place else self._context.copy(source, place, length)

    def _begin(self, task: Task) -> _Sample:
        show = None if self._on_token is None else functools.partial(self._on_token, task)
        writer = TextWriter(task.sampling.stop, show, end_of_program(task.facts))
        draft = Draft(task.sampling, self._model.is_end, BytesText(self._model.piece), writer)
        draft.started = time.monotonic()
        return _Sample(task, np.random.default_rng(task.seed), draft, filled=len(task.prompt) - 1)

    def _compute_prompts(self, places: list[int]) -> None:
        """Feed the prompts at ``places`` in full batches, without what they hold and without their last tokens."""
        rows = []
        for place in places:
            sample = self._sample_at(place)
            last = len(sample.task.prompt) - 1
            rows += [(sample.task.prompt[position], position, place) for position in range(sample.filled, last)]
            sample.filled = last
        started = time.perf_counter()
        for start in range(0, len(rows), BATCH):
            tokens, positions, sequences = zip(*rows[start : start + BATCH], strict=True)
            self._context.decode(list(tokens), list(positions), list(sequences), logits=False)
        self.spent += Usage(len(rows), time.perf_counter() - started)

    def _close_gaps(self) -> None:
        """Move the last samples into empty places: llama.cpp batches only neighboring sequences."""
        while None in self._places:
            last = self._places.pop()
            if last is None:
                continue
            gap, place = self._places.index(None), len(self._places)
            self._context.copy(place, gap, last.filled)
            self._places[gap] = last

    def step(self) -> None:
        """Decode one token of every sample."""
        self._close_gaps()
        if not self._places:
            return
        samples = [self._sample_at(place) for place in range(len(self._places))]
        started = time.perf_counter()
        self._context.decode(
            [sample.next_token for sample in samples],
            [sample.filled for sample in samples],
            list(range(len(samples))),
            logits=True,
        )
        logits = self._context.logits(len(samples))
        drawn = [sample.draw(row) for row, sample in zip(logits, samples, strict=True)]
        self.spent += Usage(decode_tokens=len(samples), decode_seconds=time.perf_counter() - started)
        for place, (sample, (token, logprob)) in enumerate(zip(samples, drawn, strict=True)):
            sample.filled += 1
            sample.draft.add(token, logprob)
            if sample.draft.is_done:
                self._on_completion(sample.task, sample.draft.completion(len(sample.task.prompt)))
                self._places[place] = None

    def _sample_at(self, place: int) -> _Sample:
        sample = self._places[place]
        assert sample is not None
        return sample
