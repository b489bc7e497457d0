"""Assertions of call problems, split into a part for the sandbox and an expected value that stays outside.

These forms are split, with or without other statements before them. The sandbox evaluates the expression and returns
its value as text; the expected value stays outside, so a program cannot look it up.

    assert EXPRESSION == CONSTANT      either way round; `is` with True, False, None
    assert abs(EXPRESSION - CONSTANT) < CONSTANT
    assert CONSTANT in EXPRESSION, assert CONSTANT not in EXPRESSION, assert EXPRESSION in CONSTANT
    assert EXPRESSION, assert not EXPRESSION
    assert raises(EXPRESSION, ERROR)   it raises ERROR or a subclass, by name; or one of a tuple (ERROR, ...)
    assert each_agrees(EXPRESSION, LIST, TOLERANCE)    the values of a list, as EvalPlus compares them (`_agrees`); a
                                                       second LIST at the end has values that are accepted as well

Any other assertion runs in the sandbox as a whole.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from securecoderl_edge.problems.datasets.python_source import expected_errors, parse
from securecoderl_edge.problems.problem import Problem

Comparison = Literal["whole", "equal", "identical", "near", "each", "raises", "contains", "lacks", "among"]
Prelude = Literal["typing", "contest"]

UNREADABLE = (ValueError, TypeError, SyntaxError, RecursionError, MemoryError, OverflowError)
_FLOAT_TOLERANCE, _RELATIVE_TOLERANCE = 1e-6, 1e-7
_CONTAINERS = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}


@dataclass(frozen=True)
class Assertion:
    """One assertion, split into the expression for the sandbox and the expected value.

    Attributes:
        expression: the expression to evaluate; for ``whole``, the assertion itself.
        setup: statements before it, such as the imports that it needs.
        prelude: names defined for the program beforehand: those of ``typing``, or all that APPS solutions expect.
        comparison: how the value is compared with ``expected``; ``whole`` assertions are judged in the
            sandbox.
        tolerance: for ``near``, the greatest difference (itself excluded); for ``each``, the absolute tolerance.
        also: for ``each``, a second list of accepted values.
        expected: for ``raises``, the names of the accepted exceptions.
        lists_alike: a tuple equals the list of its items, as in APPS, whose answers come from JSON.
    """

    expression: str
    setup: str = ""
    entry_point: str = ""
    prelude: Prelude = "typing"
    comparison: Comparison = "whole"
    expected: Any = None
    tolerance: float = 0.0
    lists_alike: bool = False
    also: Any = None


def assertions_of(problem: Problem) -> list[Assertion]:
    """The assertions of a call problem, ready to run."""
    return _translated(problem, problem.assertions)


def security_assertions_of(problem: Problem) -> list[Assertion]:
    """Those of its security tests."""
    return _translated(problem, [test.assertion for test in problem.security_tests])


def _translated(problem: Problem, texts: Iterable[str]) -> list[Assertion]:
    from_apps = "apps" in problem.source.lower()
    return [translate(text, problem.entry_point or "", from_apps) for text in texts]


def translate(assertion: str, entry_point: str = "", from_apps: bool = False) -> Assertion:
    """Split one assertion.

    Args:
        from_apps: define the names that APPS solutions expect, and let tuples equal lists.
    """
    prelude: Prelude = "contest" if from_apps else "typing"
    parts = _split(assertion)
    if parts is None:
        return Assertion(assertion, "", entry_point, prelude)
    setup, (expression, comparison, expected, tolerance) = parts
    if comparison == "each":
        expected, also = expected
        return Assertion(
            ast.unparse(expression), setup, entry_point, prelude, comparison, expected, tolerance, False, also
        )
    return Assertion(ast.unparse(expression), setup, entry_point, prelude, comparison, expected, tolerance, from_apps)


_Parts = tuple[ast.expr, Comparison, Any, float]


def _split(assertion: str) -> tuple[str, _Parts] | None:
    try:
        tree = parse(assertion.strip())
        body = tree.body if tree else []
        if not body or any(isinstance(node, ast.Assert) for node in body[:-1]):
            return None
        last = body[-1]
        parts = _compared(last.test) if isinstance(last, ast.Assert) else None
        return None if parts is None else ("\n".join(map(ast.unparse, body[:-1])), parts)
    except UNREADABLE:
        return None


def _compared(test: ast.expr) -> _Parts | None:
    match test:
        case ast.Call(func=ast.Name(id="each_agrees"), args=[expression, values, bound, *others], keywords=[]):
            expected, tolerance, also = ast.literal_eval(values), ast.literal_eval(bound), [None]
            if others:
                also = [ast.literal_eval(other) for other in others]
            return expression, "each", (expected, also[0]), float(tolerance)
        case ast.Call(args=[expression, _]) if names := expected_errors(test):
            return expression, "raises", names, 0.0
    negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    inner = test.operand if isinstance(test, ast.UnaryOp) and negated else test
    if isinstance(inner, ast.Call):
        truth = ast.Call(ast.Name("bool", ast.Load()), [inner], [])
        return truth, "equal", not negated, 0.0
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    operator, left, right = test.ops[0], test.left, test.comparators[0]
    if isinstance(operator, ast.Lt):
        return _near(left, right)
    if isinstance(operator, (ast.In, ast.NotIn)):
        return _membership(left, right, isinstance(operator, ast.In))
    if not isinstance(operator, (ast.Eq, ast.Is)):
        return None
    for expression, constant in ((left, right), (right, left)):
        try:
            expected = _constant(constant)
        except UNREADABLE:
            continue
        if isinstance(operator, ast.Eq):
            return expression, "equal", expected, 0.0
        return (expression, "identical", expected, 0.0) if expected in (None, True, False) else None
    return None


def _membership(left: ast.expr, right: ast.expr, is_in: bool) -> _Parts | None:
    try:
        return right, "contains" if is_in else "lacks", _constant(left), 0.0
    except UNREADABLE:
        return (left, "among", _constant(right), 0.0) if is_in else None


def _near(difference: ast.expr, bound: ast.expr) -> _Parts | None:
    match difference:
        case ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=expression, op=ast.Sub(), right=constant)]):
            expected, tolerance = _constant(constant), _constant(bound)
            if isinstance(expected, (int, float)) and isinstance(tolerance, (int, float)):
                return expression, "near", expected, float(tolerance)
    return None


def _constant(node: ast.expr) -> Any:
    """The value of a literal, of ``set([...])`` and the like, or of a quotient of numbers.

    Raises:
        ValueError, TypeError: another kind of expression.
    """
    match node:
        case ast.Call(func=ast.Name(id=name), args=[content], keywords=[]) if name in _CONTAINERS:
            return _CONTAINERS[name](ast.literal_eval(content))
        case ast.BinOp(
            left=ast.Constant(value=float() as top), op=ast.Div(), right=ast.Constant(value=float() as low)
        ) if low:
            return top / low
    return ast.literal_eval(node)


def holds(value: Any, assertion: Assertion) -> bool:
    """Whether a value of the call satisfies an assertion that is not ``whole``."""
    expected = assertion.expected
    try:
        if assertion.comparison == "identical":
            return value is expected
        if assertion.comparison == "near":
            return bool(abs(value - expected) < assertion.tolerance)
        if assertion.comparison == "raises":
            return False
        if assertion.comparison == "contains":
            return expected in value
        if assertion.comparison == "lacks":
            return expected not in value
        if assertion.comparison == "among":
            return value in expected
        if assertion.comparison == "each":
            return _each_agrees(value, assertion)
        if assertion.lists_alike:
            value, expected = _as_lists(value), _as_lists(expected)
        return bool(value == expected)
    except UNREADABLE:
        return False


def _each_agrees(values: Any, assertion: Assertion) -> bool:
    expected, also = assertion.expected, assertion.also
    if not isinstance(values, list) or len(values) != len(expected):
        return False
    accepted = zip(expected, expected if also is None else also, strict=True)
    return all(
        any(_agrees(value, each, assertion.tolerance) for each in pair)
        for value, pair in zip(values, accepted, strict=True)
    )


def _agrees(value: Any, expected: Any, tolerance: float) -> bool:
    """Equality as in EvalPlus: with its tolerance, or 1e-6 for floats and sequences of floats, and the same type."""
    if value == expected:
        return True
    items = expected if isinstance(expected, (list, tuple)) else [expected]
    if not tolerance and (not items or not all(isinstance(item, float) for item in items)):
        return False
    return type(value) is type(expected) and _is_close(value, expected, tolerance or _FLOAT_TOLERANCE)


def _is_close(value: Any, expected: Any, tolerance: float) -> bool:
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(value, (list, tuple))
            and len(value) == len(expected)
            and all(_is_close(*pair, tolerance) for pair in zip(value, expected, strict=True))
        )
    if not isinstance(value, (int, float, complex)) or not isinstance(expected, (int, float, complex)):
        return False
    return value == expected or abs(value - expected) <= tolerance + _RELATIVE_TOLERANCE * abs(expected)


def _as_lists(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_lists(item) for key, item in value.items()}
    return value
