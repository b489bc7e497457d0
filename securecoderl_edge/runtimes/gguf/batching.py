"""Continuous batching: samples of many prompts share each decoding step; others take over from finished ones.

A prompt is computed once, without its last token; its other samples copy that prefix. Every sample then starts by
decoding the prompt's last token itself, so the first token needs no special case. What all prompts of a request begin
with, such as a system prompt, is computed once as well. Prompts are computed between steps, some tokens at a time, so
that the first samples do not wait for the prompts of the others.

With ``reuses_prefixes``, or for a task that asks for it, a prompt also reuses the KV cache of earlier prompts. Those
come from batches of other shapes, which some kernels round differently, so samples then depend on earlier requests.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial as partial_of
from typing import Any

import numpy as np

from securecoderl_edge.models.drawing import Floats, logprobs_of
from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.runtimes.extras import NO_EXTRAS, Extras, TokenReport
from securecoderl_edge.runtimes.gguf.grammar import Constraint
from securecoderl_edge.runtimes.gguf.llama import BATCH, LlamaContext, LlamaModel
from securecoderl_edge.runtimes.protocol import DecodingProgress, Sampling, Usage
from securecoderl_edge.runtimes.text_writer import BytesText, PartialCompletion, TextWriter, end_of_program

# Copying a sequence takes about as long as computing this number of tokens.
_LEAST_PREFIX = 16
# Tokens of prompts that are computed before a decoding step, and the rest of the last prompt.
_PROMPT_TOKENS = 128
# Tokens of a prompt whose logits are computed at a time: a row of them has as many numbers as the vocabulary.
_REPORTED = 32


@dataclass(frozen=True)
class GgufTask:
    """One sample of one prompt, to be decoded.

    Attributes:
        key: names it in answers; hashable.
        seed: of its own, so that a sample does not depend on the others.
        facts: of the function or program that the prompt requests; the sample ends with its program.
        extras: see there.
    """

    key: Any
    prompt: Sequence[int]
    sampling: Sampling
    seed: Sequence[int]
    facts: PromptFacts | None = None
    extras: Extras = NO_EXTRAS


@dataclass
class _Sequence:
    """A sequence of the context with the completion of a task; ``filled`` tokens of it are in the KV cache."""

    task: GgufTask
    partial: PartialCompletion
    news: list[str]
    filled: int
    constraint: Constraint | None = None

    @property
    def next_token(self) -> int:
        return self.partial.tokens[-1] if self.partial.tokens else self.task.prompt[-1]


class BatchDecoder:
    """Decodes tasks in the sequences of one context.

    Args:
        reuses_prefixes: reuse prefixes of earlier prompts, also of those in earlier requests.
    """

    def __init__(self, model: LlamaModel, context: LlamaContext, reuses_prefixes: bool = False) -> None:
        self._model, self._context, self._reuses_prefixes = model, context, reuses_prefixes
        # The index in this list is that of the context.
        self._sequences: list[_Sequence | None] = []
        # What all prompts begin with, and the sequence that was last made to begin with it.
        self._shared: Sequence[int] = ()
        self._holder: int | None = None
        self.spent = Usage()

    def run(self, tasks: Sequence[GgufTask]) -> Iterator[DecodingProgress]:
        """Decode all tasks; those of one prompt should follow each other, to share its prefix."""
        pending = deque(tasks)
        self._shared, self._holder = _shared_prefix(tasks), None
        try:
            while pending or self._sequences:
                self.add(self._next_tasks(pending))
                yield from self.step()
        finally:
            self.drop({task.key for task in tasks})
            self._shared = ()

    def _next_tasks(self, pending: deque[GgufTask]) -> list[GgufTask]:
        """Take the tasks that join before the next step; further samples of a prompt cost nothing."""
        free = self._context.sequences - sum(sequence is not None for sequence in self._sequences)
        tasks: list[GgufTask] = []
        tokens = 0
        while pending and len(tasks) < free:
            if not tasks or tasks[-1].prompt != pending[0].prompt:
                if tokens >= _PROMPT_TOKENS:
                    break
                tokens += len(pending[0].prompt)
            tasks.append(pending.popleft())
        return tasks

    def add(self, tasks: Sequence[GgufTask]) -> None:
        """Compute the prompts of tasks in free sequences."""
        pending = deque(tasks)
        fresh: list[int] = []
        copies: list[tuple[int, int]] = []
        self._sequences += [None] * min(self._context.sequences - len(self._sequences), len(pending))
        for index, occupant in enumerate(self._sequences):
            if occupant is not None or not pending:
                continue
            task = pending.popleft()
            sibling = self._sibling_of(task)
            sequence = self._sequences[index] = self._begin(task)
            if sibling is not None:
                copies.append((sibling, index))
                continue
            sequence.filled = self._prepare(index, task)
            fresh.append(index)
        self._compute_prompts(fresh)
        for source, target in copies:
            sequence = self._sequence(target)
            sequence.filled = self._context.copy(source, target, sequence.filled)
        self._compute_prompts([target for _, target in copies])

    def drop(self, keys: Collection[Any]) -> None:
        """Free the sequences of tasks before their end."""
        for index, sequence in enumerate(self._sequences):
            if sequence is not None and sequence.task.key in keys:
                self._sequences[index] = None

    def _sibling_of(self, task: GgufTask) -> int | None:
        """A sequence with the same prompt; one of which every token is reported computes it itself."""
        if task.extras.reports_prompt:
            return None
        alike = (at for at, other in enumerate(self._sequences) if other and other.task.prompt == task.prompt)
        return next(alike, None)

    def _prepare(self, index: int, task: GgufTask) -> int:
        """Make a sequence hold the longest cached prefix of its prompt; returns its length."""
        if task.extras.reports_prompt:
            return self._context.clear(index)
        if self._reuses_prefixes or task.extras.reuses_prefix:
            source, length = self._context.longest_prefix(task.prompt[:-1])
            return self._take(source, index, length) if length >= _LEAST_PREFIX else self._context.clear(index)
        if not self._shared:
            return self._context.clear(index)
        holder, self._holder = self._holder, index
        if holder is not None:
            return self._take(holder, index, len(self._shared))
        filled = self._context.clear(index)
        self._compute([(token, position, index) for position, token in enumerate(self._shared)])
        return filled + len(self._shared)

    def _take(self, source: int, index: int, length: int) -> int:
        """Make a sequence hold the first tokens of ``source``; returns how many it holds."""
        return self._context.cut(index, length) if source == index else self._context.copy(source, index, length)

    def _begin(self, task: GgufTask) -> _Sequence:
        news: list[str] = []
        writer = TextWriter(task.sampling.stop, news.append, end_of_program(task.facts))
        pieces = BytesText(self._model.piece)
        partial = PartialCompletion(task.sampling, self._model.is_end, pieces, writer, task.seed)
        partial.started, partial.extras = time.monotonic(), task.extras
        constraint = None
        if task.extras.grammar:
            open_grammar = partial_of(self._model.open_grammar, task.extras.grammar)
            encode = partial_of(self._model.tokenize, is_plain=True)
            constraint = Constraint(open_grammar, task.extras.grammar_after, encode)
        return _Sequence(task, partial, news, len(task.prompt) - 1, constraint)

    def _compute_prompts(self, indices: list[int]) -> None:
        """Feed the prompts of sequences in full batches, without what they hold and without their last tokens."""
        rows = []
        for index in indices:
            sequence = self._sequence(index)
            last = len(sequence.task.prompt) - 1
            if sequence.task.extras.reports_prompt:
                self._report_prompt(index)
            rows += [(sequence.task.prompt[position], position, index) for position in range(sequence.filled, last)]
            sequence.filled = last
        self._compute(rows)

    def _compute(self, rows: Sequence[tuple[int, int, int]]) -> None:
        """Feed (token, position, sequence) in full batches."""
        started = time.perf_counter()
        for start in range(0, len(rows), BATCH):
            tokens, positions, sequences = zip(*rows[start : start + BATCH], strict=True)
            self._context.decode(list(tokens), list(positions), list(sequences), logits=False)
        self.spent += Usage(len(rows), time.perf_counter() - started)

    def _report_prompt(self, index: int) -> None:
        """Feed a prompt as `_compute_prompts` does, and report its tokens."""
        sequence = self._sequence(index)
        prompt = sequence.task.prompt
        reports = [TokenReport(self._raw(prompt[0]), None)]
        started = time.perf_counter()
        for start in range(0, len(prompt) - 1, _REPORTED):
            tokens = prompt[start : min(start + _REPORTED, len(prompt) - 1)]
            positions = range(start, start + len(tokens))
            self._context.decode(list(tokens), list(positions), [index] * len(tokens), logits=True)
            for place, row in zip(positions, self._context.logits(len(tokens)), strict=True):
                reports.append(self._report(sequence, row, prompt[place + 1]))
        self.spent += Usage(len(prompt) - 1, time.perf_counter() - started)
        sequence.partial.prompt_reports = reports
        sequence.filled = len(prompt) - 1

    def _report(self, sequence: _Sequence, logits: Floats, token: int) -> TokenReport:
        wanted = min(sequence.task.extras.alternatives or 0, len(logits))
        top = np.argpartition(logits, -wanted)[-wanted:] if wanted else np.array([], np.int64)
        best = [int(each) for each in top[np.argsort(-logits[top], kind="stable")]]
        logprobs = logprobs_of(logits, [token, *best])
        return TokenReport(self._raw(token), logprobs[0], tuple(zip(map(self._raw, best), logprobs[1:], strict=True)))

    def _raw(self, token: int) -> str:
        return self._model.piece(token, names=True).decode("latin-1")

    def _draw(self, sequence: _Sequence, logits: Floats) -> tuple[int, float]:
        """The next token of a sequence, which its grammar permits, and its log-probability."""
        token, logprob = sequence.partial.draw(logits)
        if sequence.constraint is not None and sequence.constraint.forbids(token):
            # Drawn anew from the permitted ones: together that is a draw from their probabilities.
            allowed = sequence.constraint.allowed()
            if not allowed.any():
                return self._model.end_token(), 0.0
            return sequence.partial.draw(logits, allowed)
        return token, logprob

    def _close_gaps(self) -> None:
        """Move the last sequences into gaps: llama.cpp batches only neighboring ones."""
        while None in self._sequences:
            last = self._sequences.pop()
            if last is None:
                continue
            gap = self._sequences.index(None)
            self._context.copy(len(self._sequences), gap, last.filled)
            self._sequences[gap] = last

    def step(self) -> list[DecodingProgress]:
        """Decode one token of every sequence."""
        self._close_gaps()
        if not self._sequences:
            return []
        sequences = [self._sequence(index) for index in range(len(self._sequences))]
        started = time.perf_counter()
        self._context.decode(
            [sequence.next_token for sequence in sequences],
            [sequence.filled for sequence in sequences],
            list(range(len(sequences))),
            logits=True,
        )
        logits = self._context.logits(len(sequences))
        drawn = [self._draw(sequence, row) for row, sequence in zip(logits, sequences, strict=True)]
        for row, sequence, (token, _) in zip(logits, sequences, drawn, strict=True):
            if sequence.task.extras.alternatives is not None:
                sequence.partial.reports.append(self._report(sequence, row, token))
        self.spent += Usage(decode_tokens=len(sequences), decode_seconds=time.perf_counter() - started)
        progress = []
        for index, (sequence, (token, logprob)) in enumerate(zip(sequences, drawn, strict=True)):
            sequence.filled += 1
            sequence.partial.add(token, logprob)
            if sequence.constraint is not None and not sequence.partial.is_done:
                sequence.constraint.add(token, sequence.partial.text)
            done = None
            if sequence.partial.is_done:
                done = sequence.partial.completion(len(sequence.task.prompt))
                self._sequences[index] = None
            if sequence.news or done:
                progress.append(DecodingProgress(sequence.task.key, "".join(sequence.news), done))
                sequence.news.clear()
        return progress

    def _sequence(self, index: int) -> _Sequence:
        sequence = self._sequences[index]
        assert sequence is not None
        return sequence


def _shared_prefix(tasks: Sequence[GgufTask]) -> Sequence[int]:
    """The tokens that all of several prompts begin with, up to their last; empty if computing them once gains nothing.

    Those of one prompt are shared as a whole.
    """
    prompts = {tuple(task.prompt) for task in tasks}
    if len(prompts) < 2:
        return ()
    first, last = min(prompts), max(prompts)  # all others are between them
    length = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    length = min(length, *(len(prompt) - 1 for prompt in prompts))
    return first[:length] if length >= _LEAST_PREFIX else ()
