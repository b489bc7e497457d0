"""Continuous batching: samples of many prompts share each decoding step; others take over from finished ones.

A prompt is computed once, without its last token; its other samples copy that prefix. Every sample then starts by
decoding the prompt's last token itself, so the first token needs no special case. What all prompts of a request begin
with, such as a system prompt, is computed once as well. Prompts are computed between steps, some tokens at a time, so
that the first samples do not wait for the prompts of the others; with ``portion``, no step takes longer than so many.

With ``reuses_prefixes``, or for a task that asks for it, a prompt also reuses the KV cache of earlier prompts. Those
come from batches of other shapes, which some kernels round differently, so samples then depend on earlier requests.
Which row (sequence of the context) a task gets, and which caches are kept for later ones: see `rows`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial as partial_of
from typing import Any

import numpy as np

from securecoderl_edge.models.drawing import Floats, logprobs_of
from securecoderl_edge.prompts.extraction import PromptFacts
from securecoderl_edge.runtimes.extras import NO_EXTRAS, Extras, TokenReport
from securecoderl_edge.runtimes.gguf.grammar import Constraint
from securecoderl_edge.runtimes.gguf.llama import BATCH, LlamaContext, LlamaModel
from securecoderl_edge.runtimes.gguf.rows import LEAST_PREFIX, Rows
from securecoderl_edge.runtimes.protocol import DecodingProgress, Sampling, Usage
from securecoderl_edge.runtimes.text_writer import BytesText, PartialCompletion, TextWriter, end_of_program

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
    """A task with its completion; once it has a row, ``filled`` tokens of it are in the KV cache."""

    task: GgufTask
    partial: PartialCompletion
    news: list[str]
    filled: int = 0
    constraint: Constraint | None = None

    @property
    def missing(self) -> int:
        """Tokens of the prompt that are not computed, without the last one, which the first step decodes."""
        return max(0, len(self.task.prompt) - 1 - self.filled)

    @property
    def is_ready(self) -> bool:
        return not self.missing

    @property
    def next_token(self) -> int:
        return self.partial.tokens[-1] if self.partial.tokens else self.task.prompt[-1]


class BatchDecoder:
    """Decodes tasks in the sequences of one context.

    Args:
        reuses_prefixes: reuse prefixes of earlier prompts, also of those in earlier requests.
        portion: tokens of prompts that a step computes at most, see `_shares`; None: `add` computes whole prompts.
    """

    def __init__(
        self, model: LlamaModel, context: LlamaContext, reuses_prefixes: bool = False, portion: int | None = None
    ) -> None:
        self._model, self._context, self._reuses_prefixes, self._portion = model, context, reuses_prefixes, portion
        self._rows = Rows(context)
        self._waiting: list[_Sequence] = []  # for a row, or for the prompt of another one
        self._sequences: dict[int, _Sequence] = {}  # by row
        # What all prompts begin with, and the row that was last made to begin with it.
        self._shared: Sequence[int] = ()
        self._holder: int | None = None
        self.spent = Usage()

    def run(self, tasks: Sequence[GgufTask]) -> Iterator[DecodingProgress]:
        """Decode all tasks; those of one prompt should follow each other, to share its prefix."""
        pending = deque(tasks)
        self._shared, self._holder = _shared_prefix(tasks), None
        try:
            while pending or self._waiting or self._sequences:
                self.add(self._next_tasks(pending))
                yield from self.step()
        finally:
            self.drop({task.key for task in tasks})
            self._shared, self._holder = (), None

    def _next_tasks(self, pending: deque[GgufTask]) -> list[GgufTask]:
        """Take the tasks that join before the next step; further samples of a prompt cost nothing."""
        free = self._rows.free - len(self._waiting)
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
        """Begin tasks, for which there must be free rows; their prompts are computed now or, in portions, by steps."""
        self._waiting += map(self._open, tasks)
        if self._portion is None:
            self._fill(None)

    def _fill(self, portion: int | None) -> None:
        """Compute prompts, at most so many tokens of them; first those that others copy."""
        for _ in range(2):
            self._waiting = [each for each in self._waiting if not self._begin(each)]
            unready = {row: each for row, each in sorted(self._sequences.items()) if not each.is_ready}
            shares = _shares(unready, portion)
            portion = None if portion is None else portion - sum(shares.values())
            tokens: list[tuple[int, int, int]] = []
            ends: list[tuple[_Sequence, int]] = []
            for row, sequence in unready.items():
                end = sequence.filled + shares[row]
                if sequence.task.extras.reports_prompt:
                    self._report_prompt(row, end)
                tokens += [(sequence.task.prompt[at], at, row) for at in range(sequence.filled, end)]
                ends.append((sequence, end))
            self._compute(tokens)
            for sequence, end in ends:
                sequence.filled = end

    def drop(self, keys: Collection[Any]) -> None:
        """Free the rows of tasks before their end."""
        self._waiting = [each for each in self._waiting if each.task.key not in keys]
        for row in [row for row, sequence in self._sequences.items() if sequence.task.key in keys]:
            self._leave(row)

    def _begin(self, sequence: _Sequence) -> bool:
        """Give a sequence a row and its first tokens; False if it waits, perhaps for one with the same prompt."""
        sibling = self._sibling_of(sequence)
        if not self._rows.free or (sibling is not None and not self._sequences[sibling].is_ready):
            return False
        if sibling is None and self._is_coming(sequence.task):
            return False
        row, sequence.filled = self._place(sequence.task, sibling)
        self._sequences[row] = sequence
        return True

    def _is_coming(self, task: GgufTask) -> bool:
        """Whether a row is about to compute more of a prefix that a task reuses: of many that arrive together, once."""
        if self._portion is None or not task.extras.reuses_prefix:
            return False
        begun = (each for each in self._sequences.values() if each.task.extras.reuses_prefix and not each.is_ready)
        ends = ((each.task.prompt, each.filled + LEAST_PREFIX) for each in begun)
        return any(end < len(task.prompt) and prompt[:end] == task.prompt[:end] for prompt, end in ends)

    def _leave(self, row: int) -> None:
        """Free a row. Of the samples of a prompt, the last one leaves its cache to later prompts."""
        task = self._sequences.pop(row).task
        is_last = all(other.task.prompt != task.prompt for other in self._sequences.values())
        self._rows.release(row, keeps=task.extras.reuses_prefix and is_last)

    def _sibling_of(self, sequence: _Sequence) -> int | None:
        """The row of one with the same prompt; one of which every token is reported computes it itself."""
        if sequence.task.extras.reports_prompt:
            return None
        prompt = sequence.task.prompt
        return next((row for row, other in self._sequences.items() if other.task.prompt == prompt), None)

    def _place(self, task: GgufTask, sibling: int | None) -> tuple[int, int]:
        """Make a row hold the longest prefix of a prompt that may be taken from another one; returns both."""
        reuses = self._reuses_prefixes or task.extras.reuses_prefix
        if sibling is not None:
            return self._take(self._rows.take(), sibling, len(task.prompt) - 1)
        if task.extras.reports_prompt:
            return self._take(self._rows.take(), None)
        if reuses:
            source, length = self._rows.longest_prefix(task.prompt[:-1])
            return self._take(self._rows.take(source, length), source, length)
        row, filled = self._take(self._rows.take(), self._holder, len(self._shared))
        if filled < len(self._shared):
            self._compute([(token, at, row) for at, token in enumerate(self._shared)])
        self._holder = row if self._shared else None
        return row, len(self._shared)

    def _take(self, row: int, source: int | None, length: int = 0) -> tuple[int, int]:
        """Make a row hold the first tokens of ``source``; returns it, and how many it holds."""
        if source is None:
            return row, self._context.clear(row)
        if source == row:
            return row, self._context.cut(row, length)
        return row, self._context.copy(source, row, length)

    def _open(self, task: GgufTask) -> _Sequence:
        news: list[str] = []
        writer = TextWriter(task.sampling.stop, news.append, end_of_program(task.facts))
        constraint = None
        if task.extras.grammar:
            open_grammar = partial_of(self._model.open_grammar, task.extras.grammar)
            encode = partial_of(self._model.tokenize, is_plain=True)
            constraint = Constraint(task.extras, open_grammar, encode)
        pieces = BytesText(partial_of(self._piece, constraint))
        partial = PartialCompletion(task.sampling, self._model.is_end, pieces, writer, task.seed)
        partial.started, partial.extras = time.monotonic(), task.extras
        if task.extras.reports_prompt:
            partial.prompt_reports.append(TokenReport(self._raw(task.prompt[0]), None))
        return _Sequence(task, partial, news, constraint=constraint)

    def _piece(self, constraint: Constraint | None, token: int) -> bytes:
        """The text of a token; of a control token its name, where a grammar reads that."""
        named = self._model.piece(token, names=constraint is not None)
        return named if constraint is None or constraint.reads(named) else self._model.piece(token)

    def _compute(self, rows: Sequence[tuple[int, int, int]]) -> None:
        """Feed (token, position, sequence) in full batches."""
        started = time.perf_counter()
        for start in range(0, len(rows), BATCH):
            tokens, positions, sequences = zip(*rows[start : start + BATCH], strict=True)
            self._context.decode(list(tokens), list(positions), list(sequences), logits=False)
        self.spent += Usage(len(rows), time.perf_counter() - started)

    def _report_prompt(self, row: int, end: int) -> None:
        """Feed the tokens of a prompt up to ``end``, and report them."""
        sequence = self._sequences[row]
        prompt, reports = sequence.task.prompt, sequence.partial.prompt_reports
        started, first = time.perf_counter(), sequence.filled
        for start in range(first, end, _REPORTED):
            tokens = prompt[start : min(start + _REPORTED, end)]
            positions = range(start, start + len(tokens))
            self._context.decode(list(tokens), list(positions), [row] * len(tokens), logits=True)
            for place, logits in zip(positions, self._context.logits(len(tokens)), strict=True):
                reports.append(self._report(sequence, logits, prompt[place + 1]))
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

    def step(self) -> list[DecodingProgress]:
        """Decode one token of every sequence whose prompt is computed."""
        if self._portion is not None:
            self._fill(self._portion)
        for old, new in self._rows.close_gaps():
            self._sequences[new] = self._sequences.pop(old)
        ready = sorted(row for row, sequence in self._sequences.items() if sequence.is_ready)
        if not ready:
            return []
        sequences = [self._sequences[row] for row in ready]
        started = time.perf_counter()
        self._context.decode(
            [sequence.next_token for sequence in sequences],
            [sequence.filled for sequence in sequences],
            ready,
            logits=True,
        )
        logits = self._context.logits(len(sequences))
        drawn = [self._draw(sequence, each) for each, sequence in zip(logits, sequences, strict=True)]
        for each, sequence, (token, _) in zip(logits, sequences, drawn, strict=True):
            if sequence.task.extras.alternatives is not None:
                report = self._report(sequence, each, token)
                if not self._model.is_end(token):  # as it is in the text, which has no name of a control token
                    report = replace(report, raw=self._piece(sequence.constraint, token).decode("latin-1"))
                sequence.partial.reports.append(report)
        self.spent += Usage(decode_tokens=len(sequences), decode_seconds=time.perf_counter() - started)
        progress = []
        for row, sequence, (token, logprob) in zip(ready, sequences, drawn, strict=True):
            sequence.filled += 1
            sequence.partial.add(token, logprob)
            if sequence.constraint is not None and not sequence.partial.is_done:
                sequence.constraint.add(token, sequence.partial.text)
            done = None
            if sequence.partial.is_done:
                done = sequence.partial.completion(len(sequence.task.prompt))
                self._leave(row)
            if sequence.news or done:
                progress.append(DecodingProgress(sequence.task.key, "".join(sequence.news), done))
                sequence.news.clear()
        return progress


def _shares(unready: Mapping[int, _Sequence], portion: int | None) -> dict[int, int]:
    """The tokens of each prompt that are computed next, by row: half of the portion for the oldest, then the shortest.

    With the shortest rest alone a long prompt would wait as long as short ones keep coming.
    """
    if portion is None:
        return {row: sequence.missing for row, sequence in unready.items()}
    shares, left = dict.fromkeys(unready, 0), portion
    turns = [(row, -(-portion // 2)) for row in sorted(unready, key=lambda row: unready[row].partial.started)[:1]]
    turns += [(row, portion) for row in sorted(unready, key=lambda row: unready[row].missing)]
    for row, most in turns:
        size = min(unready[row].missing - shares[row], most, left)
        shares[row] += size
        left -= size
    return shares


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
    return first[:length] if length >= LEAST_PREFIX else ()
