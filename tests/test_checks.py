"""Reference solutions against their own tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from dataset_files import SHARED, needs_shared

from securecoderl_edge.checks import CheckReport, Failure, check_problems
from securecoderl_edge.datasets import import_problems
from securecoderl_edge.problems import Problem, Test
from securecoderl_edge.reward import Score
from securecoderl_edge.scorer import Scorer

DOUBLE = Problem("double", "Double.", tests=(Test("2\n", "4\n"), Test("3\n", "6\n")))
RIGHT, HALF_RIGHT, WRONG = "print(2 * int(input()))", "print(4)", "print(0)"
CRASHING, NO_PYTHON = "raise SystemExit(3)", "return 4"


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(workers=1) as opened:
        yield opened


def check(scorer: Scorer, *solutions: str) -> CheckReport:
    return check_problems([replace(DOUBLE, solutions=solutions)], scorer)


def test_a_problem_whose_solution_passes_all_tests_passes(scorer: Scorer) -> None:
    assert check(scorer, RIGHT) == CheckReport(1, 1, (), (), 1, 0)


def test_one_passing_solution_is_enough_and_the_others_are_counted(scorer: Scorer) -> None:
    assert check(scorer, NO_PYTHON, RIGHT, WRONG) == CheckReport(1, 1, (), (), 3, 2)


@pytest.mark.parametrize(
    ("solutions", "reason"),
    [
        ((HALF_RIGHT,), "the solution passes 1 of 2 tests (1 wrong)"),
        ((NO_PYTHON, WRONG, HALF_RIGHT), "the best of 3 solutions passes 1 of 2 tests (1 wrong)"),
        ((CRASHING,), "the solution passes 0 of 2 tests (2 crash)"),
        ((NO_PYTHON,), "the solution does not parse"),
    ],
)
def test_a_failing_problem_is_named_with_its_best_attempt(
    scorer: Scorer, solutions: tuple[str, ...], reason: str
) -> None:
    report = check(scorer, *solutions)
    assert (report.passed, report.failed) == (0, (Failure("double", reason),))


def test_a_problem_without_solutions_neither_passes_nor_fails(scorer: Scorer) -> None:
    assert check(scorer) == CheckReport(1, 0, (), ("double",), 0, 0)


def test_call_problems_are_checked_by_their_assertions(scorer: Scorer) -> None:
    call = Problem("f", "F.", kind="call", entry_point="f", assertions=("assert f(2) == 4", "assert f(3) > 5"))
    right = replace(call, id="right", solutions=("def f(x):\n    return 2 * x",))
    wrong = replace(call, id="wrong", solutions=("def f(x):\n    return 4",))
    report = check_problems([right, wrong], scorer)
    assert report.passed == 1
    assert report.failed == (Failure("wrong", "the solution passes 1 of 2 tests (1 wrong)"),)


def test_the_report_becomes_one_json_document() -> None:
    report = CheckReport(3, 1, (Failure("a", "why"),), ("b",), 4, 2)
    assert report.to_record() == {
        "total": 3,
        "passed": 1,
        "failed": [{"id": "a", "reason": "why"}],
        "unchecked": ["b"],
        "solutions": 4,
        "failing_solutions": 2,
    }


class CountingScorer:
    """Passes every program, and records how many it was given at a time."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def score_all(self, items: Sequence[tuple[Problem, str, int]]) -> list[Score]:
        self.batches.append(len(items))
        values: dict[str, Any] = dict.fromkeys(
            ("r_func", "r_sec", "severity", "reward", "reward_paper", "r_tests"), 1.0
        )
        values |= {"stage": 4, "passed": 1, "total": 1, "verdicts": ("pass",), "findings": (), "seconds": 0.0}
        return [Score(id=problem.id, sample=n, program=program, **values) for problem, program, n in items]


def test_progress_adds_up_to_all_solutions_and_batches_stay_small() -> None:
    counting, progress = CountingScorer(), list[int]()
    problems = [replace(DOUBLE, id=str(number), solutions=("a", "b", "c")) for number in range(100)]
    report = check_problems(problems, cast(Scorer, counting), progress.append)
    assert (report.solutions, report.passed) == (300, 100)
    assert progress == counting.batches
    assert sum(progress) == 300
    assert max(progress) < 100


@needs_shared
def test_the_human_solutions_of_the_apps_samples_pass(scorer: Scorer) -> None:
    problems = import_problems(SHARED / "apps").problems
    # The sixth solution of 4184 takes five seconds of processor time, too near the limit to prove anything.
    chosen = [replace(problem, solutions=problem.solutions[:5]) for problem in problems]
    assert check_problems(chosen, scorer) == CheckReport(2, 2, (), (), 10, 0)


@needs_shared
@pytest.mark.parametrize("name", ["mbpp.jsonl", "HumanEval.jsonl.gz"])
def test_reference_solutions_of_a_sample_of_real_problems_pass(scorer: Scorer, name: str) -> None:
    problems = list(import_problems(SHARED / name).problems)
    # MBPP 367 has set-up code; HumanEval 32 and 38 are checked in a loop with helpers of the prompt.
    chosen = ("mbpp/1", "mbpp/367", "humaneval/0", "humaneval/32", "humaneval/38", "humaneval/53")
    sample = [problem for problem in problems if problem.id in chosen] + problems[100::200]
    report = check_problems(sample, scorer)
    assert (report.failed, report.passed) == ((), len(sample))
