"""From prompts to checked programs: sampled in one batch, checked, compared with each other, and repaired."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from securecoderl_edge.generation.agreement import agreement
from securecoderl_edge.generation.answers import Answer, Candidate, check, ranked, worth
from securecoderl_edge.generation.execution_inputs import begun_tests, inputs_for
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program
from securecoderl_edge.prompts.fitting import fits
from securecoderl_edge.prompts.shown_tests import with_tests_shown
from securecoderl_edge.prompts.styles import OURS, PromptFormat
from securecoderl_edge.runtimes.protocol import Generator, Sampling, batch_seed
from securecoderl_edge.scoring.explain import about_failure, about_security
from securecoderl_edge.scoring.results import results_on

if TYPE_CHECKING:
    from securecoderl_edge.scoring.scorer import Scorer

# With so many tests, programs that pass them all need no further comparison.
_MANY_TESTS = 10
_INPUT_TOKENS = 120
# With so many, their changes are inputs enough; writing others takes as long as writing a program.
_ENOUGH_EXAMPLES = 3


class Watcher:
    """Is told what an `Answerer` does; this one ignores it."""

    def token(self, prompt: int, sample: int, text: str) -> None:
        """A piece of text was decoded, see `Generator.generate`."""

    def check(self, candidate: Candidate) -> None:
        """A candidate was checked."""

    def repair(self, faults: list[str]) -> None:
        """A program will be repaired; the lines tell the model what is wrong with it, and may have its output."""

    def compare(self, programs: int) -> None:
        """So many programs that no test tells apart will be compared."""


SILENT = Watcher()


@dataclass(frozen=True)
class Answerer:
    """Answers problems with a model and a sandbox.

    Attributes:
        n: programs to sample for each problem.
        is_ranked: whether their order counts: then those are compared that their checks do not tell apart.
    """

    runtime: Generator
    scorer: Scorer
    n: int
    sampling: Sampling
    format: PromptFormat = OURS
    watcher: Watcher = SILENT
    is_ranked: bool = True

    def answer(self, problems: Sequence[Problem], repairs: int = 0) -> list[Answer]:
        """Sample programs for each problem, check, repair and rank them.

        Of programs that their checks do not tell apart, those come first that agree with others on more inputs.

        Args:
            repairs: further rounds for problems without an accepted program. A form of self-repair, see Olausson et
                al., "Is self-repair a silver bullet for code generation?", ICLR 2024: the alternative for the same
                tokens is more samples, and small models gain little from repair. The new prompt has the best program
                so far, the first test that it fails, and its security findings; the tests stay the same. A problem is
                not repaired further if the model repeats its programs, or the prompt would exceed the context.

        Raises:
            SceError: a prompt is too long for the model, or the runtime or the sandbox failed.
        """
        answers = self._sampled(problems, self.sampling)
        for number in range(repairs):
            attempts = {index: attempt for index, each in enumerate(answers) if (attempt := self._attempt(each))}
            if not attempts:
                break
            # Other random numbers than before: a prompt that changed little would get the same tokens again.
            anew = replace(self.sampling, seed=batch_seed(self.sampling.seed, number))
            again = self._sampled(list(attempts.values()), anew)
            for index, new in zip(attempts, again, strict=True):
                answers[index] = _joined(answers[index], new)
        return self.compare(answers) if self.is_ranked else answers

    def _sampled(self, problems: Sequence[Problem], sampling: Sampling) -> list[Answer]:
        prompts = [self.format.prompt(problem) for problem in problems]
        facts = [PromptFacts.of(problem, self.format) for problem in problems]
        sampled = self.runtime.generate(prompts, self.n, sampling, self.watcher.token, facts)
        programs = [
            [(completion, extract_program(completion.text, about)) for completion in completions]
            for about, completions in zip(facts, sampled, strict=True)
        ]
        return check(self.scorer, problems, programs, self.watcher.check)

    def _attempt(self, answer: Answer) -> Problem | None:
        """The problem with its best program, and what is wrong with it, in the statement; None without need or room."""
        if answer.accepted or answer.repeats:
            return None
        problem, score = answer.problem, answer.best.score
        faults = [*about_failure(self.scorer, problem, score), *about_security(score)]
        shown = with_tests_shown(problem) if self.format.shows_tests else problem
        statement = (
            f"{shown.statement.rstrip()}\n\n"
            f"This program is wrong:\n\n{score.program.strip()}\n\n"
            "What is wrong with it:\n" + "\n".join(faults) + "\n\nWrite a program that is right."
        )
        attempt = replace(problem, statement=statement)
        room = self.runtime.context - self.sampling.max_tokens
        if not fits(self.format.prompt(attempt), self.runtime.count_tokens, room):
            return None
        self.watcher.repair(faults)
        return attempt

    def compare(self, answers: Sequence[Answer]) -> list[Answer]:
        """The answers, with the programs compared that their checks do not tell apart."""
        ties = {index: tied for index, each in enumerate(answers) if (tied := _tied(each))}
        if ties:
            self.watcher.compare(sum(map(len, ties.values())))
        asked = {index: begun for index in ties if (begun := self._begun_tests(answers[index].problem))}
        sampling = Sampling(temperature=0.0, max_tokens=_INPUT_TOKENS, seed=self.sampling.seed, stop=("```",))
        prompts = [prompt for prompt, _ in asked.values()]
        written = self.runtime.generate(prompts, 1, sampling) if prompts else []
        texts = {
            index: (begun + made.text, len(made.token_ids))
            for (index, (_, begun)), (made,) in zip(asked.items(), written, strict=True)
        }
        compared = list(answers)
        for index, tied in ties.items():
            answer, (text, tokens) = answers[index], texts.get(index, ("", 0))
            inputs = inputs_for(answer.problem, text, self.sampling.seed)
            programs = [each.score.program for each in tied]
            shares = agreement(programs, results_on(self.scorer, answer.problem, inputs, programs)) if inputs else []
            new = [replace(each, agreement=share) for each, share in zip(tied, shares, strict=False)] or tied
            rest = answer.candidates[len(tied) :]
            compared[index] = replace(answer, candidates=ranked([*new, *rest]), inputs=len(inputs), input_tokens=tokens)
        return compared

    def _begun_tests(self, problem: Problem) -> tuple[str, str] | None:
        begun = begun_tests(problem, self.format) if problem.test_count < _ENOUGH_EXAMPLES else None
        room = self.runtime.context - _INPUT_TOKENS
        return begun if begun and fits(begun[0], self.runtime.count_tokens, room) else None


def _joined(answer: Answer, new: Answer) -> Answer:
    """The answer after another round."""
    known = {each.score.program for each in answer.candidates}
    return replace(
        answer,
        candidates=ranked((*answer.candidates, *new.candidates)),
        rounds=answer.rounds + 1,
        repeats=all(each.score.program in known for each in new.candidates),
    )


def _tied(answer: Answer) -> tuple[Candidate, ...]:
    """The best candidates, if their checks do not tell them apart and a comparison could."""
    best = tuple(each for each in answer.candidates if worth(each) == worth(answer.best))
    is_open = answer.best.is_accepted and answer.problem.test_count < _MANY_TESTS
    return best if is_open and len({each.score.program for each in best}) > 1 else ()
