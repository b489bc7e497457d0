"""Many programs at a time: none keeps the others waiting."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.sandbox import ProgramRun
from securecoderl_edge.scoring.scorer import Scorer, Submission


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
