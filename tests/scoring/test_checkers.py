"""Outputs that are judged by a rule or a checker of their problem."""

from __future__ import annotations

import pytest

from securecoderl_edge.problems.comparison import Rule
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import ProblemError, problem_from_record, problem_to_record
from securecoderl_edge.scoring.explain import about_failure
from securecoderl_edge.scoring.scorer import Scorer

CHECKER = """
def check(input, output, expected):
    words = output.split()
    return len(words) == 2 and sum(map(int, words)) == int(input)
"""
PAIRS = Problem("p", "Two numbers with a sum.", tests=(Test("5\n", "1 4"), Test("9\n", "4 5")), checker=CHECKER)


@pytest.mark.parametrize(
    ("program", "verdicts"),
    [
        ("print(2, int(input()) - 2)", ["pass", "pass"]),
        ("print(2, 3)", ["pass", "wrong"]),
        ("print('x')", ["wrong", "wrong"]),  # the checker fails
        ("print()", ["silent", "silent"]),
        ("print(2, int(input()) - 2)\nraise SystemExit(1)", ["crash", "crash"]),
        ("n = int(input())\nprint(1, n - 1) if n == 9 else 1 / 0", ["crash", "pass"]),
        ("print(')') or __import__('os')._exit(0)", ["silent", "silent"]),
        ("print(chr(39) + ', True) or (')", ["wrong", "wrong"]),  # no text leaves its quotes
    ],
)
def test_a_checker_decides_whether_an_output_is_right(scorer: Scorer, program: str, verdicts: list[str]) -> None:
    assert list(scorer.score(PAIRS, program).verdicts) == verdicts


@pytest.mark.parametrize("checker", ["def check(", "x = 1", "def check(input, output, expected):\n    return 1\n"])
def test_a_checker_that_does_not_answer_true_accepts_nothing(scorer: Scorer, checker: str) -> None:
    problem = Problem("p", "Add.", tests=(Test("5\n", "5"),), checker=checker)
    assert scorer.score(problem, "print(5)").verdicts == ("wrong",)


def test_a_rule_and_the_source_of_a_problem_decide(scorer: Scorer) -> None:
    third = Problem("p", "A third.", tests=(Test("", "0.333333"),))
    for problem, verdict in (
        (third, "wrong"),
        (Problem("p", "A third.", tests=third.tests, source="apps"), "pass"),
        (Problem("p", "A third.", tests=third.tests, compare=Rule("numbers")), "pass"),
        (Problem("p", "A third.", tests=third.tests, source="apps", compare=Rule("exact")), "wrong"),
    ):
        assert scorer.score(problem, "print(1 / 3)").verdicts == (verdict,)


@pytest.mark.parametrize(
    ("problem", "program", "lines"),
    [
        (PAIRS, "print(2, 3)", ["with the input '9\\n'", "wrong: the checker does not accept its output"]),
        (
            Problem("p", "Two.", tests=(Test("", "yes 0.5"),), compare=Rule("numbers")),
            "print('YES')\nprint(0.51)",
            [
                "with the input ''",
                "wrong: it prints a different output",
                "  word 2 is        0.51",
                "  word 2 should be 0.5",
            ],
        ),
    ],
)
def test_a_failure_is_explained_by_the_rule_or_checker(
    scorer: Scorer, problem: Problem, program: str, lines: list[str]
) -> None:
    assert about_failure(scorer, problem, scorer.score(problem, program)) == lines


def test_rule_and_checker_survive_a_file() -> None:
    problem = Problem("p", "x", tests=(Test("1", "1"),), compare=Rule("numbers", 0.5), checker=CHECKER)
    assert problem_from_record(problem_to_record(problem)) == problem
    for change, message in (
        ({"compare": "nearly"}, "compare"),
        ({"kind": "call", "entry_point": "f", "assertions": ["assert f()"]}, "printed output"),
        ({"language": "c", "target": "cortex-m3"}, "checker"),
    ):
        with pytest.raises(ProblemError, match=message):
            problem_from_record({**problem_to_record(problem), **change})
