"""Assertions of call problems: what of them enters the sandbox, and how the answer is judged outside.

``assert EXPRESSION == LITERAL`` (either way round, and ``is`` with True, False or None): the expression is evaluated
in the sandbox, its value comes back as text and is compared here; the literal stays outside. Any other assertion
runs in the sandbox as a whole.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from securecoderl_edge.problems import Problem
from securecoderl_edge.reward import Outcome, outcome_of_failure
from securecoderl_edge.sandbox.records import Call, Execution

# Reading a value back costs time and memory, so text far longer than the expected value is not read at all.
LONGEST_FACTOR = 8
LONGEST_EXTRA = 4096


@dataclass(frozen=True)
class Check:
    """One assertion, split into the ``call`` that enters the sandbox and what stays outside.

    Attributes:
        compared: whether ``expected`` is to be compared with the value of the call; False for whole assertions.
        identical: the assertion used ``is``, so 1 is not True.
        lists_alike: a tuple equals the list of its items, as in APPS, whose answers come from JSON.
    """

    call: Call
    compared: bool = False
    expected: Any = None
    identical: bool = False
    lists_alike: bool = False


def checks(problem: Problem) -> list[Check]:
    """The assertions of a call problem, ready to run."""
    from_apps = "apps" in problem.source.lower()
    return [translate(text, problem.entry_point or "", from_apps) for text in problem.assertions]


def translate(assertion: str, entry_point: str = "", from_apps: bool = False) -> Check:
    """Split one assertion; text that is no single comparison with a literal is kept whole."""
    prelude = "contest" if from_apps else "typing"
    comparison = _comparison(assertion)
    if comparison is None:
        return Check(Call(assertion, is_assertion=True, entry_point=entry_point, prelude=prelude))  # type: ignore[arg-type]
    expression, expected, identical = comparison
    call = Call(expression, entry_point=entry_point, prelude=prelude)  # type: ignore[arg-type]
    return Check(call, True, expected, identical, from_apps)


def judge(execution: Execution, check: Check) -> Outcome:
    """What one call says about the program. A value other than None counts as output."""
    failure = outcome_of_failure(execution)
    if failure is not None:
        return failure
    if not check.compared:
        held = execution.value == "True"
        return Outcome("pass" if held else "wrong", True, held)
    if execution.value is None:
        # Exit status 0 without a value: the program left before it was asked.
        return Outcome("crash", False, False)
    if _equal(execution.value, check):
        return Outcome("pass", True, True)
    silent = execution.value == "None"
    return Outcome("silent" if silent else "wrong", not silent, False)


def _comparison(assertion: str) -> tuple[str, Any, bool] | None:
    try:
        body = ast.parse(assertion.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(body) != 1 or not isinstance(body[0], ast.Assert) or not isinstance(body[0].test, ast.Compare):
        return None
    test = body[0].test
    if len(test.ops) != 1:
        return None
    identical = isinstance(test.ops[0], ast.Is)
    if not identical and not isinstance(test.ops[0], ast.Eq):
        return None
    for expression, literal in ((test.left, test.comparators[0]), (test.comparators[0], test.left)):
        try:
            expected = ast.literal_eval(literal)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            continue
        if identical and not (expected is None or isinstance(expected, bool)):
            return None
        return ast.unparse(expression), expected, identical
    return None


def _equal(text: str, check: Check) -> bool:
    expected = check.expected
    if text == repr(expected):
        return True
    if len(text) > LONGEST_EXTRA + LONGEST_FACTOR * len(repr(expected)):
        return False
    try:
        value = ast.literal_eval(text)
        if check.identical:
            return value is expected
        if check.lists_alike:
            value, expected = _as_lists(value), _as_lists(expected)
        return bool(value == expected)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False  # no literal, so no object that equals one


def _as_lists(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_lists(item) for key, item in value.items()}
    return value
