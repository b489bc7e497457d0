"""Programs for a prompt with their checks, best first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from securecoderl_edge.languages.language import LANGUAGES, PYTHON, Language
from securecoderl_edge.problems.problem import NO_TEST, Problem
from securecoderl_edge.runtimes.protocol import Completion

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
        agreement: see `agreement`, with the other programs on the inputs of `Answer.inputs`; 0 without them.
    """

    completion: Completion
    score: Score
    mean_logprob: float
    is_tested: bool
    language: Language = PYTHON
    agreement: float = 0.0

    @property
    def is_accepted(self) -> bool:
        """The program is not empty, parses, has no medium or high finding, and passes all tests and security tests."""
        is_program = self.score.parses and bool(self.score.program.strip())
        is_right = not self.is_tested or self.score.passes_all_tests
        return is_program and self.score.severity == 0 and is_right and not self.score.failed_security

    def verdict(self, tests: str = "tests") -> str:
        """The check in words: ``passed 3/3 tests, Bandit: no findings``; ``tests`` names what was run.

        Without tests it begins with ``not tested``.
        """
        if not self.score.program.strip():
            return "no program"
        if not self.score.parses:
            return self.language.fault
        parts = ["not tested", self.language.success]
        if self.is_tested:
            failed = Counter(verdict for verdict in self.score.verdicts if verdict != "pass")
            kinds = ", ".join(f"{count} {kind}" for kind, count in failed.most_common())
            passed = f"passed {self.score.passed}/{self.score.total} {tests}"
            parts = [f"{passed} ({kinds})" if kinds else passed]
        tried = [self.score.tried] if self.score.tried else []
        return ", ".join([*parts, *tried, *self._security_tests(), self._findings()])

    def _security_tests(self) -> list[str]:
        if failed := self.score.failed_security:
            return [f"failed security tests: {', '.join(f'{each.name} (CWE-{each.cwe})' for each in failed)}"]
        count = len(self.score.security_verdicts)
        return [f"passed {count}/{count} security tests"] if count else []

    def _findings(self) -> str:
        if self.score.severity == 0:
            return f"{self.language.security_tool}: no findings"
        named = [
            f"{finding.test_id} in line {finding.line}" if finding.line else finding.test_id
            for finding in self.score.findings
        ]
        named += ["scan failed"] if self.score.scan_failed else []
        return f"{self.language.security_tool}: {', '.join(named)}"


@dataclass(frozen=True)
class Answer:
    """All candidates for one prompt, best first.

    Attributes:
        rounds: of sampling: the first one and those of repair.
        repeats: whether repair ended because the model wrote no other program.
        inputs: on which the best programs were compared, see `agreement`.
        input_tokens: sampled for these inputs.
    """

    problem: Problem
    candidates: tuple[Candidate, ...]
    rounds: int = 1
    repeats: bool = False
    inputs: int = 0
    input_tokens: int = 0

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    @property
    def accepted(self) -> int:
        """Number of candidates that passed their check."""
        return sum(candidate.is_accepted for candidate in self.candidates)

    @property
    def tokens(self) -> int:
        """Tokens of all candidates, and of the inputs on which they were compared."""
        return self.input_tokens + sum(len(candidate.completion.token_ids) for candidate in self.candidates)

    def verdict(self, tests: str = "tests") -> str:
        """The best candidate's check in words, with the number of accepted candidates if there are several."""
        best, count = self.best, len(self.candidates)
        words = best.verdict(tests)
        if best.completion.finish == "length":
            words += ", cut off at --max-tokens"
        if not best.is_accepted:
            words = f"failed: {words}"
        in_rounds = f" in {self.rounds} rounds" if self.rounds > 1 else ""
        in_rounds += ", in which the model repeated its program" if self.repeats else ""
        facts = [f"{self.accepted} passed"] if best.is_tested else []
        facts += (
            [f"agrees with {100 * best.agreement:.0f} % of the others on {self.inputs} inputs"] if self.inputs else []
        )
        among = f" ({', '.join(facts)})" if facts else ""
        return words if count == 1 else f"best of {count}{in_rounds}{among}: {words}"

    def to_record(self) -> dict[str, Any]:
        """The best candidate as a JSON object: its `Score` record and the facts of its sampling."""
        return {
            **self.best.score.to_record(),
            "accepted": self.best.is_accepted,
            "tested": self.best.is_tested,
            "accepted_samples": self.accepted,
            "samples": len(self.candidates),
            "rounds": self.rounds,
            "agreement": self.best.agreement,
            "inputs": self.inputs,
            "verdict": self.best.verdict(),
            "completion": self.best.completion.text,
            "completion_tokens": len(self.best.completion.token_ids),
            "finish": self.best.completion.finish,
            "mean_logprob": self.best.mean_logprob,
        }


def check(
    scorer: Scorer,
    problems: Sequence[Problem],
    programs: Sequence[Sequence[tuple[Completion, str]]],
    on_check: Callable[[Candidate], None] = lambda candidate: None,
) -> list[Answer]:
    """Check the programs of each problem, in parallel, and rank them; each comes with its completion.

    Problems may have no tests: their programs are parsed and scanned, not judged by output.

    Args:
        on_check: called with each candidate, in their order.

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
    answers = []
    for problem, futures in zip(problems, handed_in, strict=True):
        candidates = []
        for completion, future in futures:
            candidates.append(_candidate(problem, completion, scorer.result_of(future)))
            on_check(candidates[-1])
        answers.append(Answer(problem, ranked(candidates)))
    return answers


def _candidate(problem: Problem, completion: Completion, score: Score) -> Candidate:
    is_tested = problem.test_count > 0
    shown = score if is_tested else _without_tests(score)
    drawn = completion.logprobs
    mean = sum(drawn) / len(drawn) if drawn else float("-inf")
    return Candidate(completion, shown, mean, is_tested, LANGUAGES[problem.language])


def ranked(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Rank candidates: accepted ones first, then by reward, then by agreement, then by mean log-probability.

    Empty programs are last.
    """
    return tuple(sorted(candidates, key=lambda each: (*worth(each), -each.agreement, -each.mean_logprob)))


def worth(candidate: Candidate) -> tuple[bool, bool, float]:
    """What its check says of a candidate; the least is the best."""
    # An empty program runs clean, which scores higher than a crash, but it must not be shown first.
    is_empty = not candidate.score.program.strip()
    return not candidate.is_accepted, is_empty, -candidate.score.reward


def _testable(problem: Problem) -> Problem:
    if problem.test_count:
        return problem
    return replace(problem, kind="stdin", tests=(NO_TEST,), time_limit_s=_COMPILE_ONLY_SECONDS)


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
