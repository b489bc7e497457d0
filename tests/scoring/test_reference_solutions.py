"""Reference solutions against their own tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from dataset_files import needs_shared
from places import SHARED

from securecoderl_edge.problems.datasets.importing import import_problems
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.sandbox import ProgramRun
from securecoderl_edge.scoring.explain import about_failure
from securecoderl_edge.scoring.reference_solutions import LEAST_SECONDS, CheckReport, Failure, Passed, check_problems
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.scoring.scorer import Scorer

DOUBLE = Problem("double", "Double.", tests=(Test("2\n", "4\n"), Test("3\n", "6\n")))
RIGHT, HALF_RIGHT, WRONG = "print(2 * int(input()))", "print(4)", "print(0)"
CRASHING, NO_PYTHON = "raise SystemExit(3)", "print(4"


def check(scorer: Scorer, *solutions: str) -> CheckReport:
    return check_problems([replace(DOUBLE, solutions=solutions)], scorer)


def counts(report: CheckReport) -> tuple[int, int, int, int]:
    return report.total, report.passed, report.solutions, report.failing_solutions


def test_a_problem_whose_solution_passes_all_tests_passes(scorer: Scorer) -> None:
    assert counts(check(scorer, RIGHT)) == (1, 1, 1, 0)


@pytest.mark.parametrize(
    ("program", "last"),
    [
        ("print 4", "SyntaxError"),
        ("def f(n): return [n]", "  f(2) is [2]"),
        ("def f(n): raise ValueError(n)", "ValueError: 2"),
        ("def g(n): return 4", "NameError: name 'f' is not defined"),
        ("def f(n): return 3\nif __name__ == '__main__': input()", "wrong: assert f(2) == 4"),
    ],
)
def test_a_failing_solution_of_a_call_problem_is_explained(scorer: Scorer, program: str, last: str) -> None:
    asked = Problem("f", "Double.", "call", entry_point="f", assertions=("assert f(2) == 4",))
    assert last in about_failure(scorer, asked, scorer.score(asked, program))[-1]


def test_a_problem_without_tests_is_refused(scorer: Scorer) -> None:
    with pytest.raises(ValueError, match="needs a test"):
        scorer.score(Problem("empty", "Double."), "print(1)")


def test_one_passing_solution_is_enough_and_the_others_are_counted(scorer: Scorer) -> None:
    report = check(scorer, NO_PYTHON, RIGHT, WRONG)
    assert counts(report) == (1, 1, 3, 2)
    assert report.checked(DOUBLE).solutions == (RIGHT,)


def test_a_time_limit_is_a_multiple_of_what_the_slowest_reference_took(scorer: Scorer) -> None:
    slow = f"for _ in range(10_000_000): pass\n{RIGHT}"
    report = check(scorer, slow, RIGHT)
    assert check(scorer, RIGHT, slow).passing["double"].cpu_seconds > 0.1
    taken = report.passing["double"].cpu_seconds
    assert taken > 0.1
    assert report.checked(DOUBLE).time_limit_s == max(LEAST_SECONDS, round(5 * taken, 1))
    assert Passed((), 0.52).time_limit() == 2.6
    assert check(scorer, RIGHT).checked(DOUBLE).time_limit_s == LEAST_SECONDS


def test_a_reference_may_take_as_long_as_the_check_permits_even_if_the_problem_says_less(scorer: Scorer) -> None:
    hasty = replace(DOUBLE, time_limit_s=0.05, solutions=(f"for _ in range(10_000_000): pass\n{RIGHT}",))
    assert check_problems([hasty], scorer).passed == 1


RETURNING = "n = int(input())\nif n > 2:\n    print(6)\n    return\nprint(2 * n)\n"


def test_a_solution_that_returns_outside_of_functions_is_wrapped_and_kept_if_it_passes_so(scorer: Scorer) -> None:
    report = check(scorer, RETURNING, "return 4")
    assert (report.top_level_returns, report.repaired, report.failing_solutions) == (2, 1, 1)
    (kept,) = report.checked(DOUBLE).solutions
    compile(kept, "kept", "exec")
    assert "return" in kept


def test_what_must_come_first_stays_outside_when_a_program_is_wrapped(scorer: Scorer) -> None:
    returning = f"from __future__ import annotations\nfrom math import *\n{RETURNING}"
    report = check(scorer, returning)
    assert (report.repaired, report.failing_solutions) == (1, 0)
    (kept,) = report.checked(DOUBLE).solutions
    assert kept.startswith("from __future__")


@pytest.mark.parametrize(
    "program",
    [
        "def double(n):\n    return factor * n\nfactor = 2\nn = int(input())\nprint(double(n))\nif n:\n    return",
        "n = int(input())\nprint(eval('n * 2'))\nif n: return\nn = 0",
        "n: int = int(input())\ndef f():\n    global n\n    n *= 2\nf()\nprint(n)\nif n: return",
        "n = int(input())\nprint(sum(n for _ in range(2)))\nif n: return",
        "import math as m\ntry:\n    1 / 0\nexcept ZeroDivisionError as e:\n    pass\nprint(2 * int(input()))\nreturn",
        "class A:\n    n = 2\n    def f(self): return A.n\nprint(A().f() * int(input()))\nreturn",
        "with open(0) as f:\n    [n] = map(int, f)\nprint(2 * n) if 'n' in globals() else print(0)\nreturn",
    ],
)
def test_a_wrapped_program_does_as_it_did(scorer: Scorer, program: str) -> None:
    assert (check(scorer, program).repaired, check(scorer, program).passed) == (1, 1)


def test_problems_that_were_not_run_stay_as_they_are(scorer: Scorer) -> None:
    report = check(scorer, WRONG)
    failed = replace(DOUBLE, solutions=(WRONG,))
    assert report.checked(failed) is failed


@pytest.mark.parametrize(
    ("solutions", "kind", "reason"),
    [
        ((HALF_RIGHT,), "wrong", "the solution passes 1 of 2 tests (1 wrong)"),
        ((NO_PYTHON, WRONG, HALF_RIGHT), "wrong", "the best of 3 solutions passes 1 of 2 tests (1 wrong)"),
        ((CRASHING,), "crash", "the solution passes 0 of 2 tests (2 crash)"),
        ((NO_PYTHON,), "does not parse", "the solution does not parse"),
    ],
)
def test_a_failing_problem_is_named_with_its_best_attempt(
    scorer: Scorer, solutions: tuple[str, ...], kind: str, reason: str
) -> None:
    report = check(scorer, *solutions)
    assert (report.passed, report.failed) == (0, (Failure("double", kind, reason),))
    assert report.kinds() == {kind: 1}


def test_a_problem_without_solutions_neither_passes_nor_fails(scorer: Scorer) -> None:
    report = check(scorer)
    assert counts(report) == (1, 0, 0, 0)
    assert (report.failed, report.unchecked) == ((), ("double",))


def test_call_problems_are_checked_by_their_assertions(scorer: Scorer) -> None:
    call = Problem("f", "F.", kind="call", entry_point="f", assertions=("assert f(2) == 4", "assert f(3) > 5"))
    right = replace(call, id="right", solutions=("def f(x):\n    return 2 * x",))
    wrong = replace(call, id="wrong", solutions=("def f(x):\n    return 4",))
    report = check_problems([right, wrong], scorer)
    assert report.passed == 1
    assert report.failed == (Failure("wrong", "wrong", "the solution passes 1 of 2 tests (1 wrong)"),)


def test_the_report_becomes_one_json_document() -> None:
    report = CheckReport(3, {"c": Passed(("pass",), 0.25)}, (Failure("a", "crash", "why"),), ("b",), 4, 2, 1, 0)
    assert report.to_record() == {
        "total": 3,
        "passed": 1,
        "failed": [{"id": "a", "kind": "crash", "reason": "why"}],
        "kinds": {"crash": 1},
        "unchecked": ["b"],
        "solutions": 4,
        "failing_solutions": 2,
        "top_level_returns": {"found": 1, "repaired": 0},
        "cpu_seconds": {"c": 0.25},
    }


class PassingScorer(Scorer):
    """Passes every program, without a sandbox."""

    def inspect(
        self, problem: Problem, program: str, sample: int = 0, extract: str = "raw"
    ) -> tuple[Score, ProgramRun]:
        values: dict[str, Any] = dict.fromkeys(
            ("r_func", "r_sec", "severity", "reward", "reward_paper", "r_tests"), 1.0
        )
        values |= {"stage": 4, "passed": 1, "total": 1, "verdicts": ("pass",), "findings": (), "seconds": 0.0}
        return Score(id=problem.id, sample=sample, program=program, **values), ProgramRun(True, ())


def test_progress_adds_up_to_all_solutions_and_batches_stay_small() -> None:
    progress: list[int] = []
    problems = [replace(DOUBLE, id=str(number), solutions=("a", "b", "c")) for number in range(100)]
    with PassingScorer(1) as passing:
        report = check_problems(problems, passing, progress.append)
    assert (report.solutions, report.passed) == (300, 100)
    assert sum(progress) == 300
    assert max(progress) < 100


@needs_shared
def test_the_human_solutions_of_the_apps_samples_pass(scorer: Scorer) -> None:
    problems = import_problems(SHARED / "apps").problems
    # The sixth solution of 4184 takes five seconds of CPU time, too near the limit to prove anything.
    chosen = [replace(problem, solutions=problem.solutions[:5]) for problem in problems]
    assert counts(check_problems(chosen, scorer)) == (2, 2, 10, 0)


@needs_shared
@pytest.mark.parametrize("name", ["mbpp.jsonl", "HumanEval.jsonl.gz"])
def test_reference_solutions_of_a_sample_of_real_problems_pass(scorer: Scorer, name: str) -> None:
    problems = list(import_problems(SHARED / name).problems)
    # MBPP 367 has set-up code; HumanEval 32 and 38 are checked in a loop with helpers of the prompt.
    chosen = ("mbpp/1", "mbpp/367", "humaneval/0", "humaneval/32", "humaneval/38", "humaneval/53")
    sample = [problem for problem in problems if problem.id in chosen] + problems[100::200]
    report = check_problems(sample, scorer)
    assert (report.failed, report.passed) == ((), len(sample))
