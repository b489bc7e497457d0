"""Many programs at a time: none keeps the others waiting, and what they share is read once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from securecoderl_edge.generation import answers
from securecoderl_edge.problems import assertions
from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.runtimes.protocol import Completion
from securecoderl_edge.sandbox import Limits, ProgramRun, SandboxPool
from securecoderl_edge.scoring import signs
from securecoderl_edge.scoring.scorer import Scorer, Submission

CALL = Problem(
    "half",
    "Half of n.",
    "call",
    entry_point="half",
    assertions=("assert half(4) == 2", "assert half(9) == 4"),
    security_tests=(SecurityTest("text", 20, assertion="assert raises(half('4'), TypeError)"),),
)


def test_a_program_that_runs_long_keeps_no_later_one_waiting(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    count, is_last = 300, threading.Event()

    def inspect(problem: Problem, program: str, *_: Any) -> tuple[str, ProgramRun]:
        if program == str(count - 1):
            is_last.set()
        assert program != "0" or is_last.wait(20), "the last program waits for the first"
        return program, ProgramRun(True, "")

    monkeypatch.setattr(scorer, "inspect", inspect)
    problem = Problem("p", "Print 1.", tests=(Test("", "1\n"),))
    programs = [str(number) for number in range(count)]
    batches = scorer.in_batches(Submission(problem, program) for program in programs)
    assert [score for batch in batches for score, _ in batch] == programs


def test_nobody_waits_for_a_program_that_sleeps_and_has_no_test(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, run = list[Limits](), SandboxPool.run

    def noted(pool: SandboxPool, program: str, stdins: Sequence[str], limits: Limits, *rest: Any) -> ProgramRun:
        given.append(limits)
        return run(pool, program, stdins, limits, *rest)

    monkeypatch.setattr(SandboxPool, "run", noted)
    tested = Problem("p", "Print.", tests=(Test("", "1\n"),), time_limit_s=1.0)
    completion = Completion("", (), (), "stop", 0, ())
    for problem in (replace(tested, tests=()), tested):
        answers.check(scorer, [problem], [[(completion, "print(1)\n")]])
    found = [(each.cpu_seconds, each.wall_seconds) for each in given]
    assert found == [(1.0, 1.0), (1.0, scorer.limits.wall_seconds)]


def test_the_assertions_of_a_problem_are_read_once_for_all_its_programs(
    scorer: Scorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of EvalPlus are a hundred kilobytes long."""
    read, translate, is_visible = list[str](), assertions.translate, signs.is_visible
    monkeypatch.setattr(assertions, "translate", lambda text, *rest: read.append(text) or translate(text, *rest))
    monkeypatch.setattr(signs, "is_visible", lambda problem, test: read.append(str(test)) or is_visible(problem, test))
    first = scorer.score(CALL, "def half(n): return n // 2")
    assert {*read} == {*CALL.assertions, CALL.security_tests[0].assertion}
    read.clear()
    programs = ["def half(n): return n / 2", "def half(n): return 2", "no program"]
    scores = [first, *(scorer.score(CALL, program) for program in programs)]
    assert [(each.passed, len(each.failed_security)) for each in scores] == [(2, 0), (1, 0), (1, 1), (0, 0)]
    assert read == []
