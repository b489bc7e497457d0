"""Generation of checked programs for prompts: sampled in one batch, scored, ranked, and repaired."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from securecoderl_edge.languages.language import LANGUAGES, PYTHON, Language
from securecoderl_edge.problems.problem import NO_TEST, Problem
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program
from securecoderl_edge.prompts.fitting import fits
from securecoderl_edge.prompts.styles import OURS, PromptFormat
from securecoderl_edge.runtimes.protocol import Completion, Generator, OnToken, Sampling, batch_seed
from securecoderl_edge.scoring.explain import about_failure, about_security
from securecoderl_edge.system.processes import result_of

if TYPE_CHECKING:
    from securecoderl_edge.scoring.score import Score
    from securecoderl_edge.scoring.scorer import Scorer

_COMPILE_ONLY_SECONDS = 1.0


@dataclass(frozen=True)
class Candidate:
    """One sampled program with its check.

    Attributes:
        mean_logprob: mean log-probability of its tokens, comparable between lengths.
        is_tested: whether there were tests to run; otherwise only parsing and Bandit were checked.
        language: of the program.
    """

    completion: Completion
    score: Score
    mean_logprob: float
    is_tested: bool
    language: Language = PYTHON

    @property
    def is_accepted(self) -> bool:
        """The program is not empty, parses, has no medium or high finding, and passes all tests and security tests."""
        is_program = self.score.parses and bool(self.score.program.strip())
        is_right = not self.is_tested or self.score.passes_all_tests
        return is_program and self.score.severity == 0 and is_right and not self.score.failed_security

    def verdict(self, tests: str = "tests") -> str:
        """The check in words: ``passed 3/3 tests, Bandit: no findings``; ``tests`` names what was run."""
        if not self.score.program.strip():
            return "no program"
        if not self.score.parses:
            return self.language.fault
        parts = [self.language.success]
        if self.is_tested:
            failed = Counter(verdict for verdict in self.score.verdicts if verdict != "pass")
            kinds = ", ".join(f"{count} {kind}" for kind, count in failed.most_common())
            passed = f"passed {self.score.passed}/{self.score.total} {tests}"
            parts = [f"{passed} ({kinds})" if kinds else passed]
        return ", ".join([*parts, *self._security_tests(), self._findings()])

    def _security_tests(self) -> list[str]:
        if failed := self.score.failed_security:
            return [f"failed security tests: {', '.join(f'{each.name} (CWE-{each.cwe})' for each in failed)}"]
        count = len(self.score.security_verdicts)
        return [f"passed {count}/{count} security tests"] if count else []

    def _findings(self) -> str:
        if self.score.severity == 0:
            return f"{self.language.security_tool}: no findings"
        named = ", ".join(
            f"{finding.test_id} in line {finding.line}" if finding.line else finding.test_id
            for finding in self.score.findings
        )
        return f"{self.language.security_tool}: {named or 'scan failed'}"


@dataclass(frozen=True)
class Answer:
    """All candidates for one prompt, best first, and the number of rounds."""

    problem: Problem
    candidates: tuple[Candidate, ...]
    rounds: int = 1

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    @property
    def accepted(self) -> int:
        """Number of candidates that passed their check."""
        return sum(candidate.is_accepted for candidate in self.candidates)

    @property
    def tokens(self) -> int:
        """Tokens of all candidates."""
        return sum(len(candidate.completion.token_ids) for candidate in self.candidates)

    def verdict(self, tests: str = "tests") -> str:
        """The best candidate's check in words, with the number of accepted candidates if there are several."""
        best, count = self.best, len(self.candidates)
        words = best.verdict(tests)
        if best.completion.finish == "length":
            words += ", cut off at --max-tokens"
        if not best.is_accepted:
            words = f"failed: {words}"
        in_rounds = f" in {self.rounds} rounds" if self.rounds > 1 else ""
        return words if count == 1 else f"best of {count}{in_rounds} ({self.accepted} passed): {words}"

    def to_record(self) -> dict[str, Any]:
        """The best candidate as a JSON object: its `Score` record and the facts of its sampling."""
        return {
            **self.best.score.to_record(),
            "accepted": self.best.is_accepted,
            "accepted_samples": self.accepted,
            "samples": len(self.candidates),
            "rounds": self.rounds,
            "verdict": self.best.verdict(),
            "completion": self.best.completion.text,
            "completion_tokens": len(self.best.completion.token_ids),
            "finish": self.best.completion.finish,
            "mean_logprob": self.best.mean_logprob,
        }


def answer(
    runtime: Generator,
    scorer: Scorer,
    problems: Sequence[Problem],
    n: int,
    sampling: Sampling,
    on_token: OnToken | None = None,
    format: PromptFormat = OURS,
) -> list[Answer]:
    """Sample ``n`` programs for each problem, check them, and rank them.

    Problems may have no tests: their programs are parsed and scanned, not judged by output.

    Args:
        format: the prompt format.

    Raises:
        SceError: a prompt is too long for the model, or the runtime or the sandbox failed.
    """
    prompts = [format.prompt(problem) for problem in problems]
    facts = [PromptFacts.of(problem, format) for problem in problems]
    sampled = runtime.generate(prompts, n, sampling, on_token, facts)
    programs = [
        [(completion, extract_program(completion.text, about)) for completion in completions]
        for about, completions in zip(facts, sampled, strict=True)
    ]
    return check(scorer, problems, programs)


def check(
    scorer: Scorer, problems: Sequence[Problem], programs: Sequence[Sequence[tuple[Completion, str]]]
) -> list[Answer]:
    """Check the programs of each problem, in parallel, and rank them; each comes with its completion.

    Raises:
        SceError: the sandbox failed.
    """
    handed_in = [
        [
            (completion, scorer.score_async(_testable(problem), program, sample, "auto"))
            for sample, (completion, program) in enumerate(candidates)
        ]
        for problem, candidates in zip(problems, programs, strict=True)
    ]
    return [
        Answer(problem, ranked([_candidate(problem, made, result_of(future)) for made, future in candidates]))
        for problem, candidates in zip(problems, handed_in, strict=True)
    ]


def answer_and_repair(
    runtime: Generator,
    scorer: Scorer,
    problems: Sequence[Problem],
    n: int,
    sampling: Sampling,
    rounds: int,
    on_token: OnToken | None = None,
    format: PromptFormat = OURS,
) -> list[Answer]:
    """`answer`, then up to ``rounds`` more for problems without an accepted program.

    A form of self-repair, see Olausson et al., "Is self-repair a silver bullet for code generation?", ICLR 2024: the
    alternative for the same tokens is more samples, and small models gain little from repair.

    The new prompt has the best program so far, the first test that it fails, and its security findings. A problem whose
    prompt would exceed the context is not repaired. Repair changes the prompt, never the tests.

    Raises:
        SceError: see `answer`.
    """
    answers = answer(runtime, scorer, problems, n, sampling, on_token, format)
    room = runtime.context - sampling.max_tokens
    for number in range(rounds):
        attempts = {}
        for index, candidates in enumerate(answers):
            # Start from the original problem: attempts would accumulate otherwise.
            attempt = None if candidates.accepted else _attempt(scorer, problems[index], candidates.best)
            if attempt is not None and fits(format.prompt(attempt), runtime.count_tokens, room):
                attempts[index] = attempt
        if not attempts:
            break
        # Other random numbers than before: a prompt that changed little would get the same tokens again.
        anew = replace(sampling, seed=batch_seed(sampling.seed, number))
        again = answer(runtime, scorer, list(attempts.values()), n, anew, on_token, format)
        for index, candidates in zip(attempts, again, strict=True):
            both = (*answers[index].candidates, *candidates.candidates)
            answers[index] = Answer(problems[index], ranked(both), answers[index].rounds + 1)
    return answers


def _candidate(problem: Problem, completion: Completion, score: Score) -> Candidate:
    is_tested = problem.test_count > 0
    shown = score if is_tested else _without_tests(score)
    drawn = completion.logprobs
    mean = sum(drawn) / len(drawn) if drawn else float("-inf")
    return Candidate(completion, shown, mean, is_tested, LANGUAGES[problem.language])


def ranked(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Rank candidates: accepted ones first, then by reward, then by mean log-probability; empty programs last."""
    return tuple(sorted(candidates, key=_rank))


def _testable(problem: Problem) -> Problem:
    if problem.test_count:
        return problem
    return replace(problem, tests=(NO_TEST,), time_limit_s=_COMPILE_ONLY_SECONDS)


def _without_tests(score: Score) -> Score:
    """The same score, reduced to parsing and security."""
    from securecoderl_edge.scoring.reward import combine

    r_func = 0.2 if score.parses else 0.0
    reward = combine(r_func, score.r_sec)
    return replace(
        score,
        stage=min(score.stage, 1),
        passed=0,
        total=0,
        r_func=r_func,
        reward=reward if score.parses else 0.0,
        reward_paper=reward,
        r_tests=0.0,
        verdicts=(),
        signs=(),
    )


def _rank(candidate: Candidate) -> tuple[bool, bool, float, float]:
    # An empty program runs clean, which scores higher than a crash, but it must not be shown first.
    is_empty = not candidate.score.program.strip()
    return not candidate.is_accepted, is_empty, -candidate.score.reward, -candidate.mean_logprob


def _attempt(scorer: Scorer, problem: Problem, candidate: Candidate) -> Problem:
    """The problem with a wrong program and its faults in the statement."""
    faults = "\n".join([*about_failure(scorer, problem, candidate.score), *about_security(candidate.score)])
    statement = (
        f"{problem.statement.rstrip()}\n\n"
        f"This program is wrong:\n\n{candidate.score.program.strip()}\n\n"
        f"What is wrong with it:\n{faults}\n\n"
        "Write a program that is right."
    )
    return replace(problem, statement=statement)
