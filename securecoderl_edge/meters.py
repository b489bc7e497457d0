"""Rates over many scores, and signs of programs that game their tests. Signs are reported, never punished."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from securecoderl_edge.problems import Problem
from securecoderl_edge.reward import STAGE_NAMES, Outcome, Score
from securecoderl_edge.sandbox.records import ProgramRun

CONSTANT_OUTPUT = "constant_output"
CRASH_AFTER_OUTPUT = "crash_after_output"
SAMPLE_COPY = "sample_copy"
DENIED = "denied"
SIGNS = (CONSTANT_OUTPUT, CRASH_AFTER_OUTPUT, SAMPLE_COPY, DENIED)


def signs_of(problem: Problem, run: ProgramRun, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """Which signs one program shows.

    * ``constant_output``: it printed the same for tests that differ in input and in expected output.
    * ``crash_after_output``: it printed something, then failed.
    * ``sample_copy``: it passes exactly those tests, and not all, whose input and output the statement shows.
    * ``denied``: it ended because the sandbox refused it something.
    """
    signs = []
    if problem.kind == "stdin":
        tests = problem.tests[: len(outcomes)]
        outputs = {execution.stdout.rstrip() for execution in run.executions}
        different = len({test.output for test in tests}) > 1 and len({test.input for test in tests}) > 1
        if different and len(outputs) == 1 and outputs != {""}:
            signs.append(CONSTANT_OUTPUT)
        shown = [_shows(problem.statement, test.input) and _shows(problem.statement, test.output) for test in tests]
        if any(shown) and not all(shown) and shown == [outcome.verdict == "pass" for outcome in outcomes]:
            signs.append(SAMPLE_COPY)
        if any(each.printed and each.verdict not in ("pass", "wrong") for each in outcomes):
            signs.append(CRASH_AFTER_OUTPUT)
    last_lines = [execution.stderr.rstrip().rpartition("\n")[2] for execution in run.executions]
    if any(line.startswith("PermissionError") for line in last_lines):
        signs.append(DENIED)
    return tuple(signs)


def summarise(scores: Iterable[Score]) -> dict[str, Any]:
    """Counts, rates and means over scores; empty input gives only ``{"scores": 0}``.

    ``security_clean`` counts programs that parse and have no medium or high finding, among all scores;
    ``security_clean_parsed`` the same among those that parse (None if none does).
    """
    every = list(scores)
    if not every:
        return {"scores": 0}
    parsed = sum(score.parses for score in every)
    clean = sum(score.parses and score.severity == 0 for score in every)
    return {
        "scores": len(every),
        "syntax_valid": parsed / len(every),
        "at_least_one": _mean(score.passed > 0 for score in every),
        "all_tests": _mean(score.passed == score.total for score in every),
        "reward": _mean(score.reward for score in every),
        "reward_paper": _mean(score.reward_paper for score in every),
        "r_tests": _mean(score.r_tests for score in every),
        "security_clean": clean / len(every),
        "security_clean_parsed": clean / parsed if parsed else None,
        "stages": {name: sum(score.stage == number for score in every) for number, name in enumerate(STAGE_NAMES)},
        **{sign: _mean(sign in score.signs for score in every) for sign in SIGNS},
    }


def _shows(statement: str, text: str) -> bool:
    return "".join(text.split()) in "".join(statement.split())


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)
