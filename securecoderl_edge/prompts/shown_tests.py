"""Tests in the statement of a problem, where a model can see them."""

from __future__ import annotations

import re
from dataclasses import replace

from securecoderl_edge.problems.problem import Problem, Test

_MOST, _LONGEST = 5, 500
_SPACE = re.compile(r"\s+")


def with_tests_shown(problem: Problem) -> Problem:
    """The problem with its first short tests in the statement, except for those that it has already."""
    given = _SPACE.sub("", problem.statement + problem.starter_code)
    short = [each for each in problem.assertions if len(each) <= _LONGEST and _bare(each) not in given]
    lines = ["It must pass these tests:", *short[:_MOST]] if short else []
    pairs = [test for test in problem.tests if len(test.input + test.output) <= _LONGEST and not _is_in(test, given)]
    examples = [f"Example input:\n{test.input.rstrip()}\nExample output:\n{test.output.rstrip()}" for test in pairs]
    shown = "\n\n".join(["\n".join(lines), *examples[:_MOST]]).strip()
    return replace(problem, statement=f"{problem.statement.rstrip()}\n\n{shown}\n") if shown else problem


def _bare(assertion: str) -> str:
    """What an assertion asserts, up to its comparison, without space."""
    return _SPACE.sub("", assertion.removeprefix("assert ").split("==")[0])


def _is_in(test: Test, text: str) -> bool:
    return _SPACE.sub("", f"Example input:{test.input}Example output:{test.output}") in text
