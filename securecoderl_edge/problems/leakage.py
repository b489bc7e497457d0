"""Test leakage: tests that a statement shows, and tests that one constant output passes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from typing import Any

from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.problems.assertions import Assertion, assertions_of, satisfies
from securecoderl_edge.problems.comparison import compared_lines
from securecoderl_edge.problems.problem import Problem, Test

# With fewer tests a reward is not informative.
LEAST_HIDDEN = 2
# Of one assertion, as constants: each is tried on all assertions, whose lists are searched for it.
_MOST_VALUES = 64
_MOST_CONSTANTS = 200  # that are tried, the most frequent ones
_MOST_ARGUMENTS = 64  # of a call that is looked for in a statement; a pattern for thousands takes a megabyte


def is_visible(problem: Problem, test: Test | str) -> bool:
    """Whether the statement holds a test, white space aside: both input and expected output, or the assertion.

    Also an assertion whose arguments it shows as LeetCode does: ``Input: nums = [1,2], k = 3 Output: true``.
    """
    if isinstance(test, str):
        return _holds(problem.statement, test) or _is_example(problem, test)
    return _holds(problem.statement, test.input) and _holds(problem.statement, test.output)


def without_visible_tests(problem: Problem, most: int | None = None) -> Problem:
    """The problem without the tests that its statement shows, if at least `LEAST_HIDDEN` others remain.

    Args:
        most: tests to leave out, the first ones that are shown; by default all.
    """
    every: tuple[Test | str, ...] = (*problem.tests, *problem.assertions)
    shown = [test for test in every if is_visible(problem, test)][:most]
    tests = tuple(test for test in problem.tests if test not in shown)
    assertions = tuple(test for test in problem.assertions if test not in shown)
    hidden = replace(problem, tests=tests, assertions=assertions)
    return hidden if LEAST_HIDDEN <= hidden.test_count < problem.test_count else problem


def constant_passes(problem: Problem) -> int:
    """The most tests of a problem that one constant output passes.

    Assertions that run as a whole count as one test: it is unknown whether an output satisfies several of them. One
    exception may have all the classes that assertions expect.
    """
    if problem.kind == "stdin":
        texts = (tuple(compared_lines(test.output)) for test in problem.tests)
        return max(Counter(texts).values(), default=0)
    assertions = [each for each in assertions_of(problem) if each.comparison != "whole"]
    found = [(repr(value), value) for each in assertions for value in _values_for(each)]
    often, values = Counter(text for text, _ in found).most_common(_MOST_CONSTANTS), dict(found)
    passes = [sum(satisfies(values[text], each) for each in assertions) for text, _ in often]
    raising = sum(each.comparison == "raises" for each in assertions)
    return max([raising, *passes]) if assertions else min(1, problem.test_count)


def _values_for(assertion: Assertion) -> Iterable[Any]:
    """Values that may satisfy it, the first ones of very many."""
    if assertion.negated:
        return (None, "", (), 0, True)
    return islice(assertion.expected, _MOST_VALUES) if assertion.comparison == "among" else (assertion.expected,)


def _is_example(problem: Problem, assertion: str) -> bool:
    tree = parse(assertion) if "Input:" in problem.statement else None
    calls = [node for node in (ast.walk(tree.body[-1]) if tree and tree.body else ()) if isinstance(node, ast.Call)]
    called = [each for each in calls if isinstance(each.func, ast.Name) and each.func.id == problem.entry_point]
    if len(called) != 1:
        return False
    values = [*called[0].args, *(keyword.value for keyword in called[0].keywords)]
    if len(values) > _MOST_ARGUMENTS:
        return False
    try:
        arguments = ",".join(rf"(?:\w+=)?{re.escape(_squeezed(ast.unparse(each)))}" for each in values)
    except RecursionError:  # such as a sum of 400 terms
        return False
    return re.search(rf"Input:{arguments}Output:", _squeezed(problem.statement)) is not None


def _squeezed(text: str) -> str:
    """Without white space, with one kind of quotes, and JSON's words as those of Python."""
    for old, new in (('"', "'"), ("true", "True"), ("false", "False"), ("null", "None")):
        text = text.replace(old, new)
    return "".join(text.split())


def _holds(statement: str, text: str) -> bool:
    return "".join(text.split()) in "".join(statement.split())
