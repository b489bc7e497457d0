"""Assertions of call problems, split into a part for the sandbox and an expected value that stays outside.

These forms are split, with or without other statements before them. The sandbox evaluates the expression and returns
its value as text; the expected value stays outside, so a program cannot look it up.

    assert EXPRESSION == CONSTANT      either way round; also `!=`; `is` with True, False, None
    assert abs(EXPRESSION - CONSTANT) < CONSTANT
    assert CONSTANT in EXPRESSION, assert EXPRESSION in CONSTANT       also not in
    assert CALL, assert not CALL
    assert raises(EXPRESSION, ERROR)   it raises ERROR or a subclass, by name; or one of a tuple (ERROR, ...)
    assert each_agrees(EXPRESSION, LIST, TOLERANCE)    the values of a list, as EvalPlus compares them (`_agrees`); a
                                                       second LIST at the end has values that are accepted as well

Any other assertion runs in the sandbox as a whole.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, Literal

from securecoderl_edge.languages.python_source import UNREADABLE, expected_errors, parse
from securecoderl_edge.problems.problem import Problem

Comparison = Literal["whole", "equal", "identical", "near", "each", "raises", "contains", "among", "true"]
Prelude = Literal["", "typing", "contest"]

_FLOAT_TOLERANCE, _RELATIVE_TOLERANCE = 1e-6, 1e-7
_LONGEST_RANGE = 1 << 20
_MOST_IMPORTS, _LONGEST_IMPORT = 256, 4096  # of a given code
_MOST_CHARACTERS = 1 << 26  # of its imports before all assertions
_CONTAINERS = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}


@dataclass(frozen=True)
class Assertion:
    """One assertion, split into the expression for the sandbox and the expected value.

    Attributes:
        expression: the expression to evaluate; for ``whole``, the assertion itself.
        setup: statements before it, such as the imports that it needs.
        prelude: names defined for the program beforehand: those of ``typing``, or all that APPS solutions expect.
        comparison: how the value is compared with ``expected``; ``whole`` assertions are judged in the
            sandbox. For ``true`` the value is whether the result is None, and whether it is false.
        tolerance: for ``near``, the greatest difference (itself excluded); for ``each``, the absolute tolerance.
        also: for ``each``, a second list of accepted values.
        expected: for ``raises``, the names of the accepted exceptions.
        negated: it holds if the comparison does not.
        lists_alike: a tuple equals the list of its items, as in sets whose answers come from JSON.
        may_be_wrapped: an expected list of one item is that item, too, as in APPS.
    """

    expression: str
    setup: str = ""
    entry_point: str = ""
    prelude: Prelude = "typing"
    comparison: Comparison = "whole"
    expected: Any = None
    tolerance: float = 0.0
    lists_alike: bool = False
    may_be_wrapped: bool = False
    negated: bool = False
    also: Any = None


def assertions_of(problem: Problem) -> list[Assertion]:
    """The assertions of a call problem, ready to run; those of a test file have only its name."""
    if problem.test_file is not None:
        return [Assertion(name, prelude="") for name in problem.assertions]
    return _translated(problem, problem.assertions)


def security_assertions_of(problem: Problem) -> list[Assertion]:
    """Those of its security tests."""
    return _translated(problem, [test.assertion for test in problem.security_tests])


def _translated(problem: Problem, texts: Sequence[str]) -> list[Assertion]:
    name, imports = problem.entry_point or "", _imports_of(problem.starter_code)
    if sum(map(len, set(imports.values()))) * len(texts) > _MOST_CHARACTERS:
        imports = {}  # thousands of assertions that use all of them would fill the memory
    return [_with_imports(translate(text, name, problem.rule.name), imports) for text in texts]


@lru_cache(maxsize=16)  # few: each keeps a whole code
def _imports_of(code: str) -> dict[str, str]:
    """The unindented import statements of a program, the first of very many and none that is long, by bound name."""
    found = {}
    for match in islice(re.finditer(r"^(?:import|from)[ \t].*", code, re.MULTILINE), _MOST_IMPORTS):
        statement = match[0]
        try:
            tree = parse(statement) if len(statement) <= _LONGEST_IMPORT else None
        except UNREADABLE:
            continue
        for node in tree.body if tree else []:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = (alias.asname or alias.name.partition(".")[0] for alias in node.names)
                found.update(dict.fromkeys(names, statement))
    return found


def _with_imports(assertion: Assertion, imports: dict[str, str]) -> Assertion:
    """The assertion with the imports of the given code that it uses: the program may have left them out."""
    words = set(re.findall(r"\w+", f"{assertion.setup}\n{assertion.expression}")) if imports else set()
    used: dict[str, list[str]] = {}  # names by statement, which can bind thousands
    for name in (name for name in imports if name in words):
        used.setdefault(imports[name], []).append(name)
    guarded = [f"try:\n    {', '.join(names)}\nexcept NameError:\n    {each}\n" for each, names in used.items()]
    return replace(assertion, setup="".join(guarded) + assertion.setup) if used else assertion


def translate(assertion: str, entry_point: str = "", rule: str = "") -> Assertion:
    """Split one assertion.

    Args:
        rule: the answer rule. Those of APPS and LiveCodeBench define the names that their solutions expect, and let
            tuples equal lists; in APPS a list of one item may stand for the item.
    """
    is_contest = rule in ("apps", "livecodebench")
    setup, split = _split(assertion) or ("", Assertion(assertion))
    return replace(
        split,
        setup=setup,
        entry_point=entry_point,
        prelude="contest" if is_contest else "typing",
        lists_alike=is_contest and split.comparison not in ("whole", "each"),
        may_be_wrapped=rule == "apps",
    )


def _split(assertion: str) -> tuple[str, Assertion] | None:
    """The statements before the last one, and that one if it has one of the forms above."""
    try:
        tree = parse(assertion.strip())
        body = tree.body if tree else []
        if not body or any(isinstance(node, ast.Assert) for node in body[:-1]):
            return None
        last = body[-1]
        split = _compared(last.test) if isinstance(last, ast.Assert) else None
        return None if split is None else ("\n".join(map(ast.unparse, body[:-1])), split)
    except UNREADABLE:
        return None


def _compared(test: ast.expr) -> Assertion | None:
    match test:
        case ast.Call(func=ast.Name(id="each_agrees"), args=[expression, values, bound, *others], keywords=[]):
            expected, tolerance = ast.literal_eval(values), float(ast.literal_eval(bound))
            also = ast.literal_eval(others[0]) if others else None
            return _outside(expression, "each", expected, tolerance=tolerance, also=also)
        case ast.Call(args=[expression, _]) if names := expected_errors(test):
            return _outside(expression, "raises", names)
        case ast.Call():
            return _true(test, True)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call):
            return _true(call, False)
        case ast.Compare(left=left, ops=[ast.Lt()], comparators=[bound]):
            return _near(left, bound)
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return _with_constant(left, operator, right)
    return None


def _true(call: ast.Call, expected: bool) -> Assertion:
    # `not` and no call of ``bool``, which a program can replace.
    expression = f"(lambda value: (value is None, not value))({ast.unparse(call)})"
    return Assertion(expression, comparison="true", expected=expected)


def _outside(expression: ast.expr, comparison: Comparison, expected: Any, **others: Any) -> Assertion:
    return Assertion(ast.unparse(expression), comparison=comparison, expected=expected, **others)


def _with_constant(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Assertion | None:
    """A comparison in which one side is a constant."""
    if isinstance(operator, (ast.In, ast.NotIn)):
        forms: list[tuple[Comparison, ast.expr, ast.expr]] = [("contains", right, left), ("among", left, right)]
    elif isinstance(operator, (ast.Eq, ast.NotEq)):
        forms = [("equal", left, right), ("equal", right, left)]
    elif isinstance(operator, ast.Is):
        forms = [("identical", left, right), ("identical", right, left)]
    else:
        return None
    for comparison, expression, constant in forms:
        try:
            expected = _constant(constant)
        except UNREADABLE:
            continue
        if comparison == "identical" and expected not in (None, True, False):
            return None
        if comparison == "among" and not isinstance(expected, Collection):
            return None  # `in` raises
        negated = isinstance(operator, (ast.NotEq, ast.NotIn))
        return _outside(expression, comparison, expected, negated=negated)
    return None


def _near(difference: ast.expr, bound: ast.expr) -> Assertion | None:
    match difference:
        case ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=expression, op=ast.Sub(), right=constant)]):
            expected, tolerance = _constant(constant), _constant(bound)
            if isinstance(expected, (int, float)) and isinstance(tolerance, (int, float)):
                return _outside(expression, "near", expected, tolerance=float(tolerance))
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


def satisfies(value: Any, assertion: Assertion) -> bool:
    """Whether an assertion holds if the call returns this value."""
    return holds((value is None, not value) if assertion.comparison == "true" else value, assertion)


def holds(value: Any, assertion: Assertion) -> bool:
    """Whether a value of the call satisfies an assertion that is not ``whole``."""
    try:
        return _compares(value, assertion) != assertion.negated
    except UNREADABLE:
        return False


def _compares(value: Any, assertion: Assertion) -> bool:
    expected = assertion.expected
    match assertion.comparison:
        case "identical":
            return value is expected
        case "near":
            return bool(abs(value - expected) < assertion.tolerance)
        case "raises":
            return False
        case "true":
            return value in ((True, not expected), (False, not expected))  # a program can write anything
        case "contains":
            # Python looks at each number of a range for one that is no integer.
            is_long = isinstance(value, range) and not isinstance(expected, int) and len(value) > _LONGEST_RANGE
            return not is_long and expected in value
        case "among":
            return value in expected
        case "each":
            return _each_agrees(value, assertion)
    if assertion.lists_alike:
        value, expected = _as_lists(value), _as_lists(expected)
    return bool(value == expected or (assertion.may_be_wrapped and [value] == expected))


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
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and value.keys() == expected.keys()
            and _is_close([value[key] for key in expected], list(expected.values()), tolerance)
        )
    if not isinstance(value, (int, float, complex)) or not isinstance(expected, (int, float, complex)):
        return False
    if value == expected:
        return True
    try:
        # From an infinite number all others are away by an infinite part of it.
        most = tolerance + _RELATIVE_TOLERANCE * abs(expected)
        return math.isfinite(most) and abs(value - expected) <= most
    except OverflowError:  # an integer beyond all floats
        return False


def _as_lists(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_lists(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_lists(item) for key, item in value.items()}
    return value
