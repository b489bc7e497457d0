"""Tests and examples that a program brings along: to leave them out must not pay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from quick import few

from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.reward import CLEAN_VERDICTS, CREDIT_RULES
from securecoderl_edge.scoring.scorer import Scorer

HALF = Problem(
    "half",
    "Half of a number.",
    kind="call",
    entry_point="half",
    assertions=(
        "assert half(2) == 1",
        "assert half(4) == 2",
        "assert half(3) == 1.5",
        "assert raises(half('x'), TypeError)",
    ),
)
RIGHT = "def half(n):\n    return n / 2\n"
FLOORED = "def half(n):\n    return n // 2\n"
SILENT = "def half(n):\n    pass\n"
OWN = {
    "an assertion": "assert half(2) == 5\n",
    "with a message": "assert half(2) == 5, 'no'\n",
    "in a function": "def test():\n    assert half(2) == 5\ntest()\n",
    "of a kind of its own": "class Failed(AssertionError): pass\nraise Failed\n",
    "with a type error": "assert half('a') == 2\n",
    "of another name": "assert helf(2) == 1\n",
    "with a broken message": "assert half(2) == 5, 1 / 0\n",
    "of unittest": "import unittest\nclass T(unittest.TestCase):\n"
    "    def test(self):\n        self.assertEqual(half(2), 5)\n"
    "unittest.main(module=__name__, argv=['x'])\n",
    "an example": "print(half('a'))\n",
    "a question": "print(half(int(input())))\n",
    "leaving": "exit()\n",
}


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(workers=1, limits=Limits(cpu_seconds=0.5, wall_seconds=5.0)) as opened:
        yield opened


@pytest.mark.parametrize("program", [FLOORED, SILENT, "def other(n):\n    return n\n"])
@pytest.mark.parametrize("own", OWN.values(), ids=OWN)
def test_a_program_that_fails_earns_the_same_with_and_without_them(scorer: Scorer, program: str, own: str) -> None:
    without, with_own = scorer.score(HALF, program), scorer.score(HALF, program + own)
    assert not without.passes_all_tests
    assert with_own.verdicts == without.verdicts
    assert (with_own.reward, with_own.stage) == (without.reward, without.stage)


@pytest.mark.parametrize("own", OWN.values(), ids=OWN)
def test_a_program_that_python_refuses_does_not_pass(scorer: Scorer, own: str) -> None:
    score = scorer.score(HALF, RIGHT + own)
    assert score.verdicts == ("pass", "pass", "pass", "own_error")
    assert (score.passes_all_tests, score.stage) == (False, 3)
    raising = replace(HALF, assertions=HALF.assertions[3:])
    assert not scorer.score(raising, RIGHT + own).passes_all_tests


@pytest.mark.parametrize("rule", few(CREDIT_RULES, "any"))
@pytest.mark.parametrize("tests", [1, 3])
def test_a_right_function_is_worth_at_least_a_wrong_one(tests: int, rule: str) -> None:
    problem = replace(HALF, assertions=HALF.assertions[:tests])
    with Scorer(workers=1, limits=Limits(cpu_seconds=0.5, wall_seconds=5.0), credit_rule=rule) as strict:
        right, with_own, wrong = (
            strict.score(problem, program).reward
            for program in (RIGHT, RIGHT + OWN["an assertion"], "def half(n):\n    return 'x'\n" + OWN["an assertion"])
        )
    assert right > with_own >= wrong


@pytest.mark.parametrize("end", ["import os; os._exit(197)", "while True: pass", "x = [0] * 10**10"])
def test_a_program_that_is_ended_is_not_called(scorer: Scorer, end: str) -> None:
    assert not set(scorer.score(HALF, f"{RIGHT}{end}\n").verdicts) & CLEAN_VERDICTS


def test_a_definition_behind_the_assertion_is_missing(scorer: Scorer) -> None:
    assert set(scorer.score(HALF, f"assert False\n{RIGHT}").verdicts) == {"crash"}


def test_a_program_that_reads_and_prints_still_crashes(scorer: Scorer) -> None:
    echo = Problem("echo", "Echo.", tests=(Test("a\n", "a\n"),))
    assert scorer.score(echo, "print(input())\nassert False\n").verdicts == ("crash",)


def test_attacks_are_judged_as_without_them(scorer: Scorer) -> None:
    attacked = replace(HALF, security_tests=(SecurityTest("text", 20, assertion="assert half(8) == 4"),))
    score = scorer.score(attacked, f"{RIGHT}{OWN['an assertion']}")
    assert [each.verdict for each in score.security_verdicts] == ["pass"]
    assert not score.passes_all_tests
