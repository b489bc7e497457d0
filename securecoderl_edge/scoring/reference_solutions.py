"""Check of reference solutions against the tests of their problems, and their CPU time; the outputs that they return.

Wrong tests hurt RL more than few tests: a problem that cannot be solved only adds noise. A problem *passes* if at least
one of its solutions passes all its tests. Other failing solutions are counted, but do not fail the problem, because
data sets such as APPS contain submissions in old Python versions and for other graders. A problem without solutions is
*unchecked*: neither passed nor failed.

A solution must pass the security tests too. They are only useful if a program can fail them: a problem also fails if
one of its insecure solutions passes all of them.

A solution that returns outside of functions is not valid Python, although some graders wrap and accept it. It is
wrapped in a function here, and counts if it then passes.

A time limit that is a multiple of the time of the references on this machine means the same on slow and fast machines.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.python_source import returns_at_top_level, wrap_in_function
from securecoderl_edge.problems.datasets.evalplus_tests import Evaluate, ReferenceOutput
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.sandbox import Execution, FunctionCall, Limits, SandboxPool
from securecoderl_edge.scoring.scorer import Submission

if TYPE_CHECKING:
    from securecoderl_edge.scoring.score import Score
    from securecoderl_edge.scoring.scorer import Scorer

# A lower limit would measure the start of the interpreter and the load of the machine.
LEAST_SECONDS = 1.0
TIMES = 5  # those of the slowest reference
_DOES_NOT_PARSE = "does not parse"
INSECURE = "insecure"
WRONG_INSECURE = "wrong insecure solution"
# A batch of inputs may take the reference solution this long.
OUTPUT_LIMITS = Limits(cpu_seconds=30, wall_seconds=60)
_FAULTS = {"cpu": "exceeds the time limit", "wall": "exceeds the time limit", "memory": "exceeds the memory limit"}


@dataclass(frozen=True)
class Failure:
    """A problem without a passing solution, and the failure of its best solution.

    Attributes:
        kind: ``does not parse``; the most frequent verdict of the failed tests; ``insecure`` if only security tests
            fail; ``wrong insecure solution`` if one fails a test or no security test.
        program: the best solution, if it fails a test.
    """

    id: str
    kind: str
    reason: str
    program: str = field(default="", compare=False)


@dataclass(frozen=True)
class Passed:
    """The passing solutions of a problem.

    Attributes:
        solutions: those that pass, wrapped if necessary.
        cpu_seconds: CPU time of the slowest test of the slowest of them.
    """

    solutions: tuple[str, ...]
    cpu_seconds: float

    def time_limit(self) -> float:
        """CPU seconds per test: `TIMES` those of the references, in steps of 0.1, at least `LEAST_SECONDS`."""
        return max(LEAST_SECONDS, round(TIMES * self.cpu_seconds, 1))


@dataclass(frozen=True)
class CheckReport:
    """The outcome of a check; ``total`` = passed + failed + unchecked problems.

    Attributes:
        passing: the passing solutions by problem id.
        top_level_returns: solutions that return outside of functions. repaired: those of them that pass when wrapped.
    """

    total: int
    passing: dict[str, Passed]
    failed: tuple[Failure, ...]
    unchecked: tuple[str, ...]
    solutions: int
    failing_solutions: int
    top_level_returns: int
    repaired: int

    @property
    def passed(self) -> int:
        """Number of problems that pass."""
        return len(self.passing)

    def kinds(self) -> dict[str, int]:
        """Numbers of failed problems by kind of failure, the most frequent first."""
        return dict(Counter(failure.kind for failure in self.failed).most_common())

    def to_record(self) -> dict[str, Any]:
        """The JSON document of ``sce data check --json``."""
        return {
            "total": self.total,
            "passed": self.passed,
            "failed": [{"id": each.id, "kind": each.kind, "reason": each.reason} for each in self.failed],
            "kinds": self.kinds(),
            "unchecked": list(self.unchecked),
            "solutions": self.solutions,
            "failing_solutions": self.failing_solutions,
            "top_level_returns": {"found": self.top_level_returns, "repaired": self.repaired},
            "cpu_seconds": {identifier: round(each.cpu_seconds, 4) for identifier, each in self.passing.items()},
        }

    def checked(self, problem: Problem) -> Problem:
        """The problem with its passing solutions and a time limit from their CPU time; unchanged if none was run."""
        passed = self.passing.get(problem.id)
        if passed is None:
            return problem
        return replace(problem, solutions=passed.solutions, time_limit_s=passed.time_limit())


def check_problems(
    problems: Sequence[Problem], scorer: Scorer, on_progress: Callable[[int], None] | None = None
) -> CheckReport:
    """Run every reference solution of every problem in the sandbox.

    Args:
        scorer: an open scorer; the time limit of a test is that of the scorer or of the problem, whichever is greater.
        on_progress: called with the number of solutions that ran since the last call.
    """
    results = {problem.id: _Found() for problem in problems}
    solutions = returning = repaired = 0
    solutions_in_order, handed_out = itertools.tee(_solutions(problems, scorer.limits.cpu_seconds))
    for batch in scorer.in_batches(Submission(each.problem, each.program) for each in handed_out):
        for (score, slowest), each in zip(batch, solutions_in_order, strict=False):  # `asked` waits for the next batch
            if each.is_insecure:
                is_example = score.passes_all_tests and bool(score.failed_security)
                results[each.problem.id].insecure_fail &= is_example
                continue
            results[each.problem.id].add(each.program, score, slowest)
            solutions += 1
            returning += each.is_wrapped
            repaired += each.is_wrapped and _passes(score)
        if on_progress is not None:
            on_progress(len(batch))
    run_ids = [problem.id for problem in problems if problem.solutions]
    passing = {
        each: Passed(tuple(results[each].passing), results[each].seconds) for each in run_ids if results[each].passes
    }
    return CheckReport(
        total=len(problems),
        passing=passing,
        failed=tuple(results[each].failure(each) for each in run_ids if each not in passing),
        unchecked=tuple(problem.id for problem in problems if not problem.solutions),
        solutions=solutions,
        failing_solutions=solutions - sum(len(each.solutions) for each in passing.values()),
        top_level_returns=returning,
        repaired=repaired,
    )


@dataclass
class _Found:
    """Results of the solutions of one problem so far."""

    passing: list[str] = field(default_factory=list)
    seconds: float = 0.0
    best: Score | None = None
    count: int = 0
    insecure_fail: bool = True

    @property
    def passes(self) -> bool:
        return bool(self.passing) and self.insecure_fail

    def add(self, program: str, score: Score, slowest: float) -> None:
        self.count += 1
        if _passes(score):
            self.passing.append(program)
            self.seconds = max(self.seconds, slowest)
        if self.best is None or _rank(score) > _rank(self.best):
            self.best = score

    def failure(self, identifier: str) -> Failure:
        subject = "the solution" if self.count == 1 else f"the best of {self.count} solutions"
        assert self.best is not None
        if self.passing:
            reason = "an insecure solution does not pass all tests, or fails no security test"
            return Failure(identifier, WRONG_INSECURE, reason)
        if self.best.passes_all_tests and self.best.failed_security:
            failed = ", ".join(f"{each.name} (CWE-{each.cwe}): {each.verdict}" for each in self.best.failed_security)
            return Failure(identifier, INSECURE, f"{subject} fails security tests: {failed}")
        if self.best.stage == 0:
            return Failure(identifier, _DOES_NOT_PARSE, f"{subject} does not parse", self.best.program)
        verdicts = Counter(verdict for verdict in self.best.verdicts if verdict != "pass").most_common()
        kinds = ", ".join(f"{count} {verdict}" for verdict, count in verdicts)
        reason = f"{subject} passes {self.best.passed} of {self.best.total} tests ({kinds})"
        return Failure(identifier, verdicts[0][0], reason, self.best.program)


@dataclass(frozen=True)
class _Solution:
    problem: Problem
    program: str
    is_wrapped: bool = False
    is_insecure: bool = False


def _solutions(problems: Iterable[Problem], cpu_seconds: float) -> Iterator[_Solution]:
    for problem in problems:
        allowed = patient(problem, cpu_seconds)
        for solution in problem.solutions:
            wrapped = _wrapped(solution) if problem.language == PYTHON.name else None
            yield _Solution(allowed, wrapped or solution, wrapped is not None)
        yield from (_Solution(allowed, solution, is_insecure=True) for solution in problem.insecure_solutions)


def patient(problem: Problem, cpu_seconds: float) -> Problem:
    """The problem with at least the CPU time given for each test."""
    limit = None if problem.time_limit_s is None else max(problem.time_limit_s, cpu_seconds)
    return replace(problem, time_limit_s=limit)


def _wrapped(solution: str) -> str | None:
    try:
        return wrap_in_function(solution) if returns_at_top_level(solution) else None
    except RecursionError:
        return None


def _passes(score: Score) -> bool:
    return score.passes_all_tests and not score.failed_security


def _rank(score: Score) -> tuple[int, int, int]:
    return score.passed, score.stage, -len(score.failed_security)


@contextmanager
def reference_outputs(sandbox: str = "auto", limits: Limits = OUTPUT_LIMITS) -> Iterator[Evaluate]:
    """Yield a function for any thread that evaluates an expression after a program has run, in the sandbox.

    Raises:
        SceError: this system does not offer the sandbox level.
    """
    with SandboxPool(None, limits, sandbox) as pool:

        def evaluate(program: str, entry_point: str, expression: str) -> ReferenceOutput:
            run = pool.run(program, calls=[FunctionCall(expression, entry_point=entry_point)])
            return _output(run.executions[0]) if run.parses else ReferenceOutput(None, "does not parse")

        yield evaluate


def _output(execution: Execution) -> ReferenceOutput:
    if execution.clean and execution.value is not None:
        return ReferenceOutput(execution.value, cpu_seconds=execution.cpu_seconds)
    if execution.stopped_by == "output":
        return ReferenceOutput(None, "prints or returns too much", is_too_long=True, cpu_seconds=execution.cpu_seconds)
    return ReferenceOutput(None, _FAULTS.get(execution.stopped_by, "fails"))
