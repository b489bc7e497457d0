"""The scorer: the sandbox, the security scan and the reward together."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from operator import itemgetter
from random import SystemRandom
from typing import Any, TypeVar, cast

from securecoderl_edge.languages.analyzers import ANALYZER_CHOICES, AnalyzerChoice, analyzer_versions
from securecoderl_edge.languages.language import LANGUAGES
from securecoderl_edge.problems.assertions import Assertion, security_assertions_of
from securecoderl_edge.problems.comparison import Rule
from securecoderl_edge.problems.leakage import constant_passes
from securecoderl_edge.problems.problem import NO_TEST, Problem, SecurityTest, Test
from securecoderl_edge.problems.problem_file import problem_digest
from securecoderl_edge.sandbox import Execution, FunctionCall, Limits, ProgramRun, SandboxPool
from securecoderl_edge.sandbox.limits import MAX_WALL_SECONDS
from securecoderl_edge.sandbox.sanitizers import findings_of, was_reported
from securecoderl_edge.sandbox.security import Scan, SecurityScanner
from securecoderl_edge.sandbox.severity import SEVERITY_SCALES, SeverityScale
from securecoderl_edge.scoring.call_outcomes import call_of, judge, less_own_errors
from securecoderl_edge.scoring.on_target import on_target
from securecoderl_edge.scoring.reward import (
    CREDIT_RULES,
    SECURITY_RULES,
    CreditRule,
    Outcome,
    SecurityRule,
    outcome,
    outcome_as_judged,
    outcome_without,
)
from securecoderl_edge.scoring.score import CheckedProgram, RewardRules, Score, SecurityVerdict, make_score
from securecoderl_edge.scoring.signs import TestFacts, signs_of
from securecoderl_edge.system.processes import in_order, result_of

T = TypeVar("T")

# Programs that are handed to the threads at a time, and scores that wait for one of an earlier program.
_MOST_BEGUN, _MOST_KEPT = 64, 4096


@dataclasses.dataclass(frozen=True)
class Submission:
    """A program to score, or the text of a completion that is no program; the fields are those of `Scorer.score`."""

    problem: Problem
    program: str
    sample: int = 0
    extract: str = "raw"

    @property
    def key(self) -> tuple[str, int]:
        """Its identity in files."""
        return self.problem.id, self.sample


Scored = tuple[Score, float]  # with the CPU seconds of the slowest test


@dataclasses.dataclass(frozen=True)
class _ProblemFacts:
    """What all scores of a problem need of it."""

    tests: TestFacts
    security_assertions: tuple[Assertion, ...]
    constant_passes: int
    digest: str

    @classmethod
    def of(cls, problem: Problem) -> _ProblemFacts:
        attacks = security_assertions_of(problem) if problem.kind == "call" else ()
        constant = constant_passes(problem) if problem.security_tests else 0
        return cls(TestFacts.of(problem), tuple(attacks), constant, problem_digest(problem))


class Scorer:
    """Scores programs, in parallel over ``workers`` (default: one per core, as far as memory allows).

    May be created while models are loaded: workers are fresh processes. Use it as a context manager or `close` it.

    Args:
        time_factor: multiplies all time limits, also those of problems, see `calibration`.
        analyzers: whether static analyzers read programs in C.

    Raises:
        ValueError: unknown credit rule, severity scale, security rule, choice of analyzers or sandbox level.
        SceError: this system does not offer the sandbox level.
    """

    def __init__(
        self,
        workers: int | None = None,
        limits: Limits | None = None,
        credit_rule: str = "any",
        severity_scale: str = "bandit",
        sandbox: str = "auto",
        time_factor: float = 1.0,
        security: str = "both",
        analyzers: str = "auto",
    ) -> None:
        for name, word, choices in (
            ("credit_rule", credit_rule, CREDIT_RULES),
            ("severity_scale", severity_scale, SEVERITY_SCALES),
            ("security", security, SECURITY_RULES),
            ("analyzers", analyzers, ANALYZER_CHOICES),
        ):
            if word not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}, not {word!r}")
        self._analyzers = cast(AnalyzerChoice, analyzers)
        self.rules = RewardRules(
            cast(CreditRule, credit_rule), cast(SecurityRule, security), cast(SeverityScale, severity_scale)
        )
        self._time_factor = time_factor
        self._pool = SandboxPool(workers, (limits or Limits()).slower(time_factor), sandbox, analyzers == "auto")
        self._scanner = SecurityScanner()
        # Of the problems whose programs run, which are often several of one: long assertions take long to read.
        self._facts_of = lru_cache(2 * self._pool.workers)(_ProblemFacts.of)
        self._threads = ThreadPoolExecutor(self._pool.workers, thread_name_prefix="scorer")
        self._is_cancelled: Callable[[], bool] = lambda: False

    @property
    def workers(self) -> int:
        """Programs that run at the same time, at most."""
        return self._pool.workers

    def until(self, is_cancelled: Callable[[], bool]) -> Scorer:
        """This scorer for one client: once ``is_cancelled``, its runs end and its scores raise SceError.

        It has the processes of this one; close only this one.
        """
        other = copy.copy(self)
        other._is_cancelled = is_cancelled
        return other

    @property
    def limits(self) -> Limits:
        """The limits of a test whose problem has no time limit."""
        return self._pool.limits

    def prepare(self, language: str) -> None:
        """Start a worker for programs in a language, so that none is written or scored in vain.

        Raises:
            SceError: they cannot be compiled or isolated here.
        """
        self._pool.prepare(language)

    def switches(self, extract: str) -> dict[str, Any]:
        """The settings in every `Score`; scores with different settings must not be mixed."""
        return {
            "extract": extract,
            "credit_rule": self.rules.credit,
            "security": self.rules.security,
            "severity_scale": self.rules.severity_scale,
            "sandbox": self._pool.level,
            "limits": dataclasses.asdict(self.limits),
        }

    def analyzers_of(self, language: str) -> dict[str, str]:
        """The versions of the static analyzers of a language, in the `Score` of each of its programs."""
        return analyzers_of(language, self._analyzers)

    def score(self, problem: Problem, program: str, sample: int = 0, extract: str = "raw") -> Score:
        """Run ``program`` on the problem's tests and scan it.

        ``problem.time_limit_s`` replaces the CPU limit; ``extract`` is only recorded.
        """
        return self.inspect(problem, program, sample, extract)[0]

    def inspect(
        self, problem: Problem, program: str, sample: int = 0, extract: str = "raw"
    ) -> tuple[Score, ProgramRun]:
        """`score`, and the runs behind it with the output of the program.

        Raises:
            ValueError: the problem has no test.
        """
        if problem.test_count == 0:
            raise ValueError(f"{problem.id}: a problem needs a test or an assertion")
        facts = self._facts_of(problem)
        run, outcomes, security_outcomes = self._run(problem, program)
        scan = self._scan(problem, program, run)
        if problem.target and run.parses:
            limits = self.limits_of(problem)
            run, outcomes = on_target(self._pool, problem, program, run, outcomes, limits, self._is_cancelled)
        checked = CheckedProgram(
            problem.id,
            sample,
            program,
            outcomes if run.parses else None,
            problem.test_count,
            scan,
            _security_verdicts(problem, security_outcomes) if run.parses else (),
            len(problem.security_tests),
            facts.constant_passes,
        )
        score = dataclasses.replace(
            make_score(checked, self.rules),
            seconds=sum((execution.cpu_seconds for execution in run.executions), 0.0),
            extract=extract,
            sandbox=self._pool.level,
            limits=dataclasses.asdict(self._pool.limits),
            problem_hash=facts.digest,
            signs=signs_of(problem, run, outcomes, program, facts.tests),
            analyzers=self.analyzers_of(problem.language),
            denied=run.denied,
            footprint={} if run.footprint is None else dataclasses.asdict(run.footprint),
        )
        return score, run

    def score_async(self, problem: Problem, program: str, sample: int = 0, extract: str = "raw") -> Future[Score]:
        """Start scoring and return at once."""
        return self._threads.submit(self.score, problem, program, sample, extract)

    def inspect_async(self, problem: Problem, program: str) -> Future[tuple[Score, ProgramRun]]:
        """`inspect`, started; returns at once."""
        return self._threads.submit(self.inspect, problem, program)

    def result_of(self, future: Future[T]) -> T:
        """What a future of this scorer comes to; SceError once it `is_cancelled`, though programs of others run."""
        return result_of(future, self._is_cancelled)

    def in_batches(self, submissions: Iterable[Submission]) -> Iterator[list[Scored]]:
        """Score submissions as they come, in their order; yields those that are done, so that they can be kept."""
        running = max(_MOST_BEGUN, 2 * self._pool.workers)
        kept = max(running, _MOST_KEPT)
        return in_order(lambda each: self._threads.submit(self._timed, each), submissions, running, kept)

    def _timed(self, submission: Submission) -> Scored:
        score, run = self.inspect(submission.problem, submission.program, submission.sample, submission.extract)
        return score, max((execution.cpu_seconds for execution in run.executions), default=0.0)

    def score_all(self, submissions: Iterable[Submission]) -> list[Score]:
        """Score in parallel; results are in the order given. A failure cancels the scores that have not begun."""
        futures = [self.score_async(each.problem, each.program, each.sample, each.extract) for each in submissions]
        try:
            return list(map(result_of, futures))
        finally:
            for future in futures:
                future.cancel()

    def pids(self) -> list[int]:
        """Ids of the current child processes, for measurements: idle workers and the scanner."""
        return [*self._pool.idle_pids(), *self._scanner.pids()]

    def close(self) -> None:
        """End all processes; unfinished scores are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._pool.close()
        self._threads.shutdown(wait=True)
        self._scanner.close()

    def _run(self, problem: Problem, program: str) -> tuple[ProgramRun, list[Outcome], list[Outcome]]:
        """The run, with the outcomes of tests and of security tests, which it has in this order.

        They run in a random order: a program that finds out how many ran before must not learn which are attacks.
        """
        limits = self.limits_of(problem)
        order = list(range(problem.test_count + len(problem.security_tests)))
        if problem.security_tests:
            SystemRandom().shuffle(order)
        if problem.kind == "stdin":
            tests: list[Test | SecurityTest] = [*problem.tests, *problem.security_tests]
            stdins = [tests[index].input for index in order]
            whole = problem.whole_program(program)
            run = self._pool.run(whole, stdins, limits, (), self._is_cancelled, problem.language)
            run = _in_order(run, order)
            is_watched = not LANGUAGES[problem.language].has_text_scan
            rule = problem.rule
            outcomes = [_outcome(*pair, rule, is_watched) for pair in zip(run.executions, tests, strict=False)]
            if problem.checker:
                outcomes[: len(problem.tests)] = self._checked(problem, run.executions)
        else:
            facts = self._facts_of(problem)
            assertions = [*facts.tests.assertions, *facts.security_assertions]
            calls = [call_of(assertions[index], problem.test_file) for index in order]
            run = _in_order(self._pool.run(program, (), limits, calls, self._is_cancelled), order)
            outcomes = [judge(*pair) for pair in zip(run.executions, assertions, strict=False)]
            count = problem.test_count
            outcomes[:count] = less_own_errors(outcomes[:count], run.executions)
        return run, outcomes[: problem.test_count], outcomes[problem.test_count :]

    def _checked(self, problem: Problem, executions: Sequence[Execution]) -> list[Outcome]:
        """The outcomes of the tests by the checker of a problem, in a sandbox of its own."""
        pairs = list(zip(executions, problem.tests, strict=False))
        calls = [
            FunctionCall(f"check({test.input!r}, {execution.stdout!r}, {test.output!r})", entry_point="check")
            for execution, test in pairs
            if execution.clean
        ]
        run = self._pool.run(problem.checker, calls=calls, is_cancelled=self._is_cancelled)
        answers = iter([each.clean and each.value == "True" for each in run.executions] if run.parses else ())
        return [outcome_as_judged(each, each.clean and next(answers, False)) for each, _ in pairs]

    def _scan(self, problem: Problem, program: str, run: ProgramRun) -> Scan:
        """The findings: from the text where a scanner needs no more, else from what analyzers and sanitizers told."""
        if not run.parses:
            return Scan()
        has_text_scan = LANGUAGES[problem.language].has_text_scan
        return self._scanner.scan(program) if has_text_scan else findings_of(run)

    def limits_of(self, problem: Problem) -> Limits:
        """The limits of a test of the problem; its own time limit has precedence."""
        limits = self._pool.limits
        if problem.time_limit_s is None:
            return limits
        cpu = problem.time_limit_s * self._time_factor
        # The wall limit keeps its distance: a program must be able to use all of its CPU time.
        wall = max(limits.wall_seconds, cpu * limits.wall_seconds / limits.cpu_seconds)
        if problem.tests == (NO_TEST,):  # an editor asks for every key, perhaps in a server that waits for clients
            wall = cpu
        return dataclasses.replace(limits, cpu_seconds=cpu, wall_seconds=min(wall, MAX_WALL_SECONDS))

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def analyzers_of(language: str, choice: AnalyzerChoice) -> dict[str, str]:
    """As `Scorer.analyzers_of`, for a choice."""
    return analyzer_versions() if choice == "auto" and not LANGUAGES[language].has_text_scan else {}


def _in_order(run: ProgramRun, order: Sequence[int]) -> ProgramRun:
    """The run with the execution of test ``order[i]``, now the i-th, at its own place."""
    placed = sorted(zip(order, run.executions, strict=False), key=itemgetter(0))
    return dataclasses.replace(run, executions=tuple(execution for _, execution in placed))


def _outcome(execution: Execution, test: Test | SecurityTest, rule: Rule, is_watched: bool) -> Outcome:
    """The outcome of a stdin test; ``is_watched`` by sanitizers, whose report is no way to reject an attack."""
    has_report = is_watched and was_reported(execution)
    if isinstance(test, SecurityTest) and test.forbidden and not has_report:
        return outcome_without(execution, test.forbidden)
    return outcome(execution, test.output, rule)


def _security_verdicts(problem: Problem, outcomes: Sequence[Outcome]) -> tuple[SecurityVerdict, ...]:
    pairs = zip(problem.security_tests, outcomes, strict=False)
    return tuple(SecurityVerdict(test.name, test.cwe, each.verdict) for test, each in pairs)
