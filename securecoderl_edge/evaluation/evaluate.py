"""Evaluation of one model, for ``sce bench``: problems x samples through a runtime and the sandbox."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.evaluation.log import EvaluationLog
from securecoderl_edge.evaluation.shards import WHOLE, Shard
from securecoderl_edge.evaluation.summary import EvaluationSummary, summarize
from securecoderl_edge.problems.problem import BASE_TAG, Problem
from securecoderl_edge.problems.problem_file import digest_of_problems
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program, prompt_facts
from securecoderl_edge.prompts.fitting import fit_problem
from securecoderl_edge.prompts.styles import OURS, PromptFormat
from securecoderl_edge.prompts.thoughts import open_thought
from securecoderl_edge.runtimes.protocol import Completion, Part, Runtime, Sampling, Usage, batch_seed
from securecoderl_edge.scoring.metrics import Row
from securecoderl_edge.system.processes import result_of

if TYPE_CHECKING:
    from securecoderl_edge.scoring.score import Score
    from securecoderl_edge.scoring.scorer import Scorer

# Completions requested at once. It fixes which problems share a batch, and so the samples: a resumed evaluation must
# split the problems in the same places.
BATCH = 64
# Completions, at least, that are decoded before their programs run. Where a batch ends, others take the free places.
_GROUP = 256


# Called while a batch is decoded, with the pieces of text so far and the most that there can be. A piece is a token;
# those with parts of a character count together.
OnText = Callable[[int, int], None]


@dataclass(frozen=True)
class EvaluationProgress:
    """Progress of an evaluation: scored rows, completions with and without scores, all rows, and means so far."""

    done: int
    completed: int
    total: int
    reward: float
    syntax_rate: float


@dataclass(frozen=True)
class Evaluation:
    """All rows of one model, in the order of the problems, and the usage of the runtime.

    Attributes:
        groups: of problems that are variants, by their ids (`problems.groups`); others are on their own.
    """

    label: str
    rows: tuple[Row, ...]
    usage: Usage
    file_bytes: int | None = None
    prompt_style: str = OURS.style
    bits_per_weight: float | None = None
    log: Path | None = None  # the folder of its rows, if they were kept
    reused: int = 0  # rows of an earlier evaluation
    device: str = "cpu"
    groups: Mapping[str, str] = field(default_factory=dict)

    def summary(self) -> EvaluationSummary:
        """The metrics with their intervals."""
        facts = (self.file_bytes, self.prompt_style, self.bits_per_weight, self.groups)
        return replace(summarize(self.label, self.rows, self.usage, *facts), device=self.device)


@dataclass(frozen=True)
class EvaluationPlan:
    """What is asked of a model.

    Attributes:
        samples: programs for each problem.
        sampling: each batch gets a seed derived from its seed, so that problems do not share random numbers.
        format: the prompt format.
        max_prompt_tokens: longer prompts are truncated, like those that exceed the context.
        extract: with ``raw`` the whole text is the program, and decoding does not stop at the end of one.
        batch: completions requested from the runtime at once.
        shard: evaluate only its `batches`.
        first: the position of the first problem, of a batch of a larger evaluation.
    """

    samples: int = 1
    sampling: Sampling = field(default_factory=Sampling)
    format: PromptFormat = OURS
    max_prompt_tokens: int | None = None
    extract: str = "auto"
    batch: int = BATCH
    shard: Shard = WHOLE
    first: int = 0


def evaluate(
    runtime: Runtime,
    problems: Sequence[Problem],
    scorer: Scorer,
    plan: EvaluationPlan = EvaluationPlan(),
    log: EvaluationLog | None = None,
    on_progress: Callable[[EvaluationProgress], None] = lambda progress: None,
    on_text: OnText = lambda pieces, most: None,
) -> Evaluation:
    """Generate programs for each problem and score them.

    Some hundred completions are decoded, then their programs run: during decoding they would distort its speed. With a
    ``log``, completions and rows are written as they end, and existing ones are reused.

    Args:
        on_text: see `OnText`.

    Raises:
        SceError: a prompt cannot fit into the context, or the runtime or the sandbox failed.
    """
    samples, sampling, format, extract = plan.samples, plan.sampling, plan.format, plan.extract
    max_prompt_tokens = plan.max_prompt_tokens
    room = runtime.context - sampling.max_tokens
    room = room if max_prompt_tokens is None else min(room, max_prompt_tokens)
    chunks = batches(problems, samples, plan.batch, plan.shard)
    collected = Collected(list(chunks.values()), samples, log, on_progress)
    total = before = runtime.usage()
    try:
        for group in _groups(chunks, samples, collected):
            asked = [
                _Asked(problem, shown, prompt_facts(problem, format, extract), (seed, number))
                for start, chunk in group.items()
                for seed in [batch_seed(sampling.seed, plan.first + start)]
                for number, problem in enumerate(chunk)
                for shown in [_fitting(problem, format, runtime, room, max_prompt_tokens)]
            ]
            skip = {
                (at, sample)
                for at, each in enumerate(asked)
                for sample in range(samples)
                if collected.has((each.problem.id, sample))
            }

            def ended(at: int, sample: int, completion: Completion, asked: list[_Asked] = asked) -> None:
                nonlocal before
                now = runtime.usage()
                spent, before = now - before, now
                generation = {**_generation(completion), **asked[at].facts_of_row(format)}
                collected.keep(asked[at].problem.id, sample, generation, spent)

            pieces, most = itertools.count(1), (len(asked) * samples - len(skip)) * sampling.max_tokens
            on_text(0, most)
            if most:
                runtime.generate(
                    [format.prompt(each.shown) for each in asked],
                    samples,
                    sampling,
                    lambda *_, pieces=pieces, most=most: on_text(next(pieces), most),
                    facts=[each.facts for each in asked],
                    part=Part([each.seed for each in asked], skip, ended),
                )
            for each, sample in itertools.product(asked, range(samples)):
                collected.score(scorer, each.problem, each.facts, sample, extract)
            collected.collect()
    except BaseException:
        # Keep finished rows, whatever interrupted the evaluation.
        collected.collect(only_finished=True)
        raise
    usage = log.usage() if log is not None else runtime.usage() - total
    return Evaluation(runtime.name, collected.in_order(), usage, prompt_style=format.style, reused=collected.reused)


@dataclass(frozen=True)
class _Asked:
    """A problem as a model is asked, perhaps with a shorter statement, and the seed of its samples, see `Part`.

    ``facts`` are of the whole statement: `sce score`, which reads the rows, cannot cut it.
    """

    problem: Problem
    shown: Problem
    facts: PromptFacts | None
    seed: tuple[int, int]

    def facts_of_row(self, format: PromptFormat) -> dict[str, Any]:
        """The fields of a row that say how the problem was asked."""
        facts = {
            "prompt_cut": self.shown is not self.problem,
            "prompt_style": format.style,
            "is_thinking": bool(open_thought(format.prompt(self.shown))),
        }
        return {**facts, "has_base_tests": True} if BASE_TAG in self.problem.tags else facts


def _groups(
    chunks: Mapping[int, Sequence[Problem]], samples: int, collected: Collected
) -> Iterator[dict[int, Sequence[Problem]]]:
    """Batches with missing rows, as many as are decoded before their programs run."""
    group: dict[int, Sequence[Problem]] = {}
    for start, chunk in chunks.items():
        if collected.has_all(chunk):
            continue
        group[start] = chunk
        if sum(map(len, group.values())) * samples >= _GROUP:
            yield group
            group = {}
    if group:
        yield group


def batches(
    problems: Sequence[Problem], samples: int, batch: int = BATCH, shard: Shard = WHOLE
) -> dict[int, Sequence[Problem]]:
    """The problems that are decoded together, by the position of the first one.

    A shard has whole batches at their positions, and so the samples that an evaluation of all problems would have.

    Raises:
        UsageError: there are more shards than batches.
    """
    width = max(1, batch // samples)
    starts = shard.of(range(0, len(problems), width), f"batches of up to {width} problems")
    return {start: problems[start : start + width] for start in starts}


def _fitting(problem: Problem, format: PromptFormat, runtime: Runtime, room: int, maximum: int | None) -> Problem:
    fitting = fit_problem(problem, format, runtime.count_tokens, room)
    if fitting is None:
        if room == maximum:
            raise SceError(
                f"{problem.id}: the prompt exceeds {maximum} tokens even without its statement; "
                "raise --max-prompt-tokens"
            )
        raise SceError(
            f"{problem.id}: the prompt exceeds the context of {runtime.context} tokens even without its statement; "
            "lower --max-tokens"
        )
    return fitting


class Collected:
    """Finished rows, completions without a score, rows in the sandbox, and their log."""

    def __init__(
        self,
        chunks: Sequence[Sequence[Problem]],
        samples: int,
        log: EvaluationLog | None,
        on_progress: Callable[[EvaluationProgress], None],
    ) -> None:
        self._samples, self._log, self._on_progress = samples, log, on_progress
        # The samples of a problem depend on the other problems of its batch.
        self._digests: dict[str, str] = {}
        for chunk in chunks:
            self._digests |= dict.fromkeys((problem.id for problem in chunk), digest_of_problems(chunk))
        self._wanted = [(problem.id, sample) for chunk in chunks for problem in chunk for sample in range(samples)]
        self._rows, self._completions = dict[tuple[str, int], Row](), dict[tuple[str, int], Row]()
        self._reward, self._parsing = 0.0, 0  # sums over the rows
        for row in self._of_these(log.rows() if log is not None else {}).values():
            self._take(row)
        self.reused = len(self._rows)
        logged = self._of_these(log.completions() if log is not None else {})
        self._completions |= {key: row for key, row in logged.items() if key not in self._rows}
        self._pending: list[tuple[Row, Future[Score]]] = []
        if self._rows:
            self._report()

    def has_all(self, problems: Sequence[Problem]) -> bool:
        """Whether no row of these problems is missing."""
        return all((problem.id, sample) in self._rows for problem in problems for sample in range(self._samples))

    def has(self, key: tuple[str, int]) -> bool:
        """Whether there is a sample (problem id, number), with its score or without."""
        return key in self._rows or key in self._completions

    def keep(self, problem: str, sample: int, generation: Row, spent: Usage) -> None:
        """Take, and log, a completion that has no score yet.

        Args:
            generation: the fields of its row that are not of the score.
            spent: what the runtime did since the last one.
        """
        row = {**generation, "batch_hash": self._digests[problem]}
        self._completions[problem, sample] = row
        if self._log is not None:
            self._log.append_completion({"id": problem, "sample": sample, **row}, spent)
        self._report()

    def score(self, scorer: Scorer, problem: Problem, facts: PromptFacts | None, sample: int, extract: str) -> None:
        """Send the program of a completion to the sandbox, unless its row exists."""
        if (problem.id, sample) not in self._rows:
            generation = self._completions[problem.id, sample]
            program = extract_program(generation["completion"], facts)
            self._pending.append((generation, scorer.score_async(problem, program, sample, extract)))

    def add(self, rows: Sequence[Row]) -> None:
        """Take, and log, rows that another process made."""
        for row in rows:
            self._take(row)
        self._report()
        if self._log is not None:
            self._log.append(rows)

    def collect(self, only_finished: bool = False) -> None:
        """Wait for the pending scores, or take only finished ones, and log the rows."""
        rows = []
        for generation, future in self._pending:
            if only_finished and (not future.done() or future.cancelled() or future.exception()):
                continue
            rows.append({**result_of(future).to_record(), **generation})
            self._take(rows[-1])
            self._report()
        if self._log is not None and rows:
            self._log.append(rows)
        self._pending.clear()
        if self._log is not None and not self._completions:
            self._log.forget_completions(self._rows)

    def in_order(self) -> tuple[Row, ...]:
        """All rows, by problem and sample."""
        return tuple(self._rows[key] for key in self._wanted)

    def _take(self, row: Row) -> None:
        key = row["id"], row["sample"]
        if key not in self._rows:
            self._reward, self._parsing = self._reward + row["reward"], self._parsing + (row["stage"] > 0)
        self._rows[key] = row
        self._completions.pop(key, None)

    def _of_these(self, logged: Mapping[tuple[str, int], Row]) -> dict[tuple[str, int], Row]:
        """Those of these samples, and of the same batches."""
        wanted = ((key, logged[key]) for key in self._wanted if key in logged)
        return {key: row for key, row in wanted if row.get("batch_hash") == self._digests[key[0]]}

    def _report(self) -> None:
        done = len(self._rows)
        completed, means = done + len(self._completions), (self._reward / max(1, done), self._parsing / max(1, done))
        self._on_progress(EvaluationProgress(done, completed, len(self._wanted), *means))


def _generation(completion: Completion) -> dict[str, Any]:
    count = len(completion.logprobs)
    return {
        "completion": completion.text,
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": len(completion.token_ids),
        "finish": completion.finish,
        "first_token_seconds": completion.token_seconds[0],
        "generation_seconds": completion.token_seconds[-1],
        "between_tokens_ms": [round(1000 * (b - a), 3) for a, b in pairwise(completion.token_seconds)],
        "mean_logprob": sum(completion.logprobs) / count if count else None,
    }
