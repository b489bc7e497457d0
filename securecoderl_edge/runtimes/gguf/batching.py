"""Continuous batching: samples of many prompts share each decoding step; others take over from finished ones.

A prompt is computed once, without its last token; its other samples copy that prefix. Every sample then starts by
decoding the prompt's last token itself, so the first token needs no special case. What all prompts of a request begin
with, such as a system prompt, is computed once as well. Prompts are computed between steps, some tokens at a time, so
that the first samples do not wait for the prompts of the others; with ``portion``, no step takes longer than so many.

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
PROMPT_TOKENS = 128
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
    """A sequence of the context with the completion of a task; ``filled`` tokens of it are in the KV cache.

    Before it ``is_begun``, the cache is still that of an earlier task.
    """

    task: GgufTask
    partial: PartialCompletion
    news: list[str]
    filled: int = 0
    is_begun: bool = False
    constraint: Constraint | None = None

    @property
    def missing(self) -> int:
        """Tokens of the prompt that are not computed, without the last one, which the first step decodes."""
        return max(0, len(self.task.prompt) - 1 - self.filled)

    @property
    def is_ready(self) -> bool:
        return self.is_begun and not self.missing

    @property
    def next_token(self) -> int:
        return self.partial.tokens[-1] if self.partial.tokens else self.task.prompt[-1]


class BatchDecoder:
    """Decodes tasks in the sequences of one context.

    Args:
        reuses_prefixes: reuse prefixes of earlier prompts, also of those in earlier requests.
        portion: tokens of prompts that a step computes at most, those of the shortest rest first; None: `add` computes
            whole prompts.
    """

    def __init__(
        self, model: LlamaModel, context: LlamaContext, reuses_prefixes: bool = False, portion: int | None = None
    ) -> None:
        self._model, self._context, self._reuses_prefixes, self._portion = model, context, reuses_prefixes, portion
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
                if tokens >= PROMPT_TOKENS:
                    break
                tokens += len(pending[0].prompt)
            tasks.append(pending.popleft())
        return tasks

    def add(self, tasks: Sequence[GgufTask]) -> None:
        """Give tasks free sequences, and compute their prompts, unless steps compute them in portions."""
        pending = deque(tasks)
        self._sequences += [None] * min(self._context.sequences - len(self._sequences), len(pending))
        for index, occupant in enumerate(self._sequences):
            if occupant is None and pending:
                self._sequences[index] = self._open(pending.popleft())
        if self._portion is None:
            self._fill(None)

    def _fill(self, portion: int | None) -> None:
        """Compute prompts, at most so many tokens of them; first those that others copy."""
        for _ in range(2):
            waiting = [(index, each) for index, each in enumerate(self._sequences) if each and not each.is_ready]
            if portion is not None:
                waiting.sort(key=lambda pair: pair[1].missing)
            begun = [(index, each) for index, each in waiting if each.is_begun or self._begin(index, each)]
            rows: list[tuple[int, int, int]] = []
            ends: list[tuple[_Sequence, int]] = []
            for index, sequence in begun:
                size = sequence.missing if portion is None else min(sequence.missing, portion)
                portion = None if portion is None else portion - size
                end = sequence.filled + size
                if sequence.task.extras.reports_prompt:
                    self._report_prompt(index, end)
                rows += [(sequence.task.prompt[at], at, index) for at in range(sequence.filled, end)]
                ends.append((sequence, end))
            self._compute(rows)
            for sequence, end in ends:
                sequence.filled = end

    def drop(self, keys: Collection[Any]) -> None:
        """Free the sequences of tasks before their end."""
        for index, sequence in enumerate(self._sequences):
            if sequence is not None and sequence.task.key in keys:
                self._sequences[index] = None

    def _begin(self, index: int, sequence: _Sequence) -> bool:
        """Give a sequence its first tokens; False if it waits for another one with the same prompt, to copy it."""
        sibling = self._sibling_of(sequence)
        if sibling is None:
            sequence.filled = self._prepare(index, sequence.task)
        elif self._sequence(sibling).is_ready:
            sequence.filled = self._context.copy(sibling, index, len(sequence.task.prompt) - 1)
        else:
            return False
        sequence.is_begun = True
        return True

    def _sibling_of(self, sequence: _Sequence) -> int | None:
        """One that was begun with the same prompt; one of which every token is reported computes it itself."""
        if sequence.task.extras.reports_prompt:
            return None
        alike = (
            at
            for at, other in enumerate(self._sequences)
            if other and other.is_begun and other.task.prompt == sequence.task.prompt
        )
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

    def _open(self, task: GgufTask) -> _Sequence:
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
        return _Sequence(task, partial, news, constraint=constraint)

    def _compute(self, rows: Sequence[tuple[int, int, int]]) -> None:
        """Feed (token, position, sequence) in full batches."""
        started = time.perf_counter()
        for start in range(0, len(rows), BATCH):
            tokens, positions, sequences = zip(*rows[start : start + BATCH], strict=True)
            self._context.decode(list(tokens), list(positions), list(sequences), logits=False)
        self.spent += Usage(len(rows), time.perf_counter() - started)

    def _report_prompt(self, index: int, end: int) -> None:
        """Feed the tokens of a prompt up to ``end``, and report them."""
        sequence = self._sequence(index)
        prompt, reports = sequence.task.prompt, sequence.partial.prompt_reports
        if not reports:
            reports.append(TokenReport(self._raw(prompt[0]), None))
        started, first = time.perf_counter(), sequence.filled
        for start in range(first, end, _REPORTED):
            tokens = prompt[start : min(start + _REPORTED, end)]
            positions = range(start, start + len(tokens))
            self._context.decode(list(tokens), list(positions), [index] * len(tokens), logits=True)
            for place, row in zip(positions, self._context.logits(len(tokens)), strict=True):
                reports.append(self._report(sequence, row, prompt[place + 1]))
        self.spent += Usage(end - first, time.perf_counter() - started)
        sequence.filled = end

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
            if last.is_begun:
                self._context.copy(len(self._sequences), gap, last.filled)
            self._sequences[gap] = last

    def step(self) -> list[DecodingProgress]:
        """Decode one token of every sequence whose prompt is computed."""
        self._close_gaps()
        if self._portion is not None:
            self._fill(self._portion)
        ready = [index for index, sequence in enumerate(self._sequences) if sequence and sequence.is_ready]
        if not ready:
            return []
        sequences = list(map(self._sequence, ready))
        started = time.perf_counter()
        self._context.decode(
            [sequence.next_token for sequence in sequences],
            [sequence.filled for sequence in sequences],
            ready,
            logits=True,
        )
        logits = self._context.logits(len(sequences))
        drawn = [self._draw(sequence, row) for row, sequence in zip(logits, sequences, strict=True)]
        for row, sequence, (token, _) in zip(logits, sequences, drawn, strict=True):
            if sequence.task.extras.alternatives is not None:
                sequence.partial.reports.append(self._report(sequence, row, token))
        self.spent += Usage(decode_tokens=len(sequences), decode_seconds=time.perf_counter() - started)
        progress = []
        for index, sequence, (token, logprob) in zip(ready, sequences, drawn, strict=True):
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
