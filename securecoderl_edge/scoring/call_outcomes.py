"""Assertions of call problems: evaluated in the sandbox, judged outside of it."""

from __future__ import annotations

import ast

from securecoderl_edge.languages.python_source import UNREADABLE
from securecoderl_edge.problems.assertions import Assertion, holds
from securecoderl_edge.sandbox import Execution, FunctionCall, literal
from securecoderl_edge.scoring.reward import Outcome, outcome_of_failure

# Parsing a value costs time and memory, so text far longer than the expected value is not parsed at all.
_LONGEST_FACTOR = 8
_LONGEST_EXTRA = 4096
_LONGEST_SEARCHED = 1 << 16


def call_of(assertion: Assertion) -> FunctionCall:
    """The part of an assertion that enters the sandbox."""
    return FunctionCall(
        assertion.expression,
        assertion.comparison == "whole",
        assertion.setup,
        assertion.entry_point,
        assertion.prelude,
    )


def judge(execution: Execution, assertion: Assertion) -> Outcome:
    """The outcome of one call. A value other than None counts as output."""
    is_raised = assertion.comparison == "raises" and set(assertion.expected) & set(execution.raised)
    if is_raised and not execution.stopped_by:
        return Outcome("pass", True, True)
    failure = outcome_of_failure(execution)
    if failure is not None:
        return failure
    if execution.value is None:
        # Exit status 0 without a value: the program exited before the call.
        return Outcome("crash", False, False)
    if _text_holds(execution.value, assertion):
        return Outcome("pass", True, True)
    silent = execution.value == "None"
    return Outcome("silent" if silent else "wrong", not silent, False)


def _text_holds(text: str, assertion: Assertion) -> bool:
    if assertion.comparison == "whole":
        return text == "True"
    try:
        most = _LONGEST_EXTRA + _LONGEST_FACTOR * len(literal(assertion.expected))
        if len(text) > (_LONGEST_SEARCHED if assertion.comparison == "contains" else most):
            return False
        return holds(ast.literal_eval(text), assertion)
    except UNREADABLE:
        return False  # not a literal, so not equal to one
