"""Do the reference solutions of problems pass their own tests?

Wrong tests hurt reinforcement learning more than few tests: a problem that nothing can solve only adds noise.
A problem *passes* when at least one of its solutions passes all its tests; solutions that fail beside a
passing one are counted, but do not fail the problem, because collections such as APPS hold submissions in old
Python versions and for other graders. A problem without solutions is *unchecked*: neither passed nor failed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securecoderl_edge.problems import Problem

if TYPE_CHECKING:
    from securecoderl_edge.scorer import Score, Scorer

# Solutions handed to the scorer at once: enough to keep every worker busy, few enough to report progress.
_BATCH = 64


@dataclass(frozen=True)
class Failure:
    """A problem none of whose solutions passes, and how the best of them fails."""

    id: str
    reason: str


@dataclass(frozen=True)
class CheckReport:
    """The outcome of a check; ``total`` = ``passed`` + failed + unchecked problems."""

    total: int
    passed: int
    failed: tuple[Failure, ...]
    unchecked: tuple[str, ...]
    solutions: int
    failing_solutions: int

    def to_record(self) -> dict[str, Any]:
        """The JSON document of ``sce data check --json``."""
        return {
            "total": self.total,
            "passed": self.passed,
            "failed": [{"id": failure.id, "reason": failure.reason} for failure in self.failed],
            "unchecked": list(self.unchecked),
            "solutions": self.solutions,
            "failing_solutions": self.failing_solutions,
        }


def check_problems(
    problems: Sequence[Problem], scorer: Scorer, on_progress: Callable[[int], None] | None = None
) -> CheckReport:
    """Run every reference solution of every problem in the sandbox.

    Args:
        scorer: an open scorer; its limits decide what counts as a timeout.
        on_progress: called with the number of solutions that have been run since the last call.
    """
    best: dict[str, Score] = {}
    solutions = failing = 0
    for batch in _batches(problems):
        scores = scorer.score_all(batch)
        for (problem, _, _), score in zip(batch, scores, strict=True):
            solutions += 1
            failing += not _passes(score)
            if problem.id not in best or _rank(score) > _rank(best[problem.id]):
                best[problem.id] = score
        if on_progress is not None:
            on_progress(len(batch))
    failed = tuple(
        Failure(problem.id, _reason(best[problem.id], len(problem.solutions)))
        for problem in problems
        if problem.id in best and not _passes(best[problem.id])
    )
    return CheckReport(
        total=len(problems),
        passed=len(best) - len(failed),
        failed=failed,
        unchecked=tuple(problem.id for problem in problems if not problem.solutions),
        solutions=solutions,
        failing_solutions=failing,
    )


def _batches(problems: Iterable[Problem]) -> Iterator[list[tuple[Problem, str, int]]]:
    batch: list[tuple[Problem, str, int]] = []
    for problem in problems:
        for sample, solution in enumerate(problem.solutions):
            batch.append((problem, solution, sample))
            if len(batch) == _BATCH:
                yield batch
                batch = []
    if batch:
        yield batch


def _passes(score: Score) -> bool:
    return score.total > 0 and score.passed == score.total


def _rank(score: Score) -> tuple[int, int]:
    return score.passed, score.stage


def _reason(score: Score, solutions: int) -> str:
    subject = "the solution" if solutions == 1 else f"the best of {solutions} solutions"
    if score.stage == 0:
        return f"{subject} does not parse"
    verdicts = Counter(verdict for verdict in score.verdicts if verdict != "pass")
    kinds = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    return f"{subject} passes {score.passed} of {score.total} tests ({kinds})"
