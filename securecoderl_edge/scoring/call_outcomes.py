"""Assertions of call problems: evaluated in the sandbox, judged outside of it."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

from securecoderl_edge.languages.hash_floods import spread
from securecoderl_edge.languages.python_source import UNREADABLE, syntax_tree
from securecoderl_edge.problems.assertions import Assertion, Comparison, holds
from securecoderl_edge.problems.test_file import TestFile
from securecoderl_edge.sandbox import Execution, FunctionCall, literal
from securecoderl_edge.scoring.reward import Outcome, outcome_of_failure

# Parsing a value costs time and memory, so text far longer than the expected value is not parsed at all.
_LONGEST_FACTOR = 8
_LONGEST_EXTRA = 4096
_LONGEST_SEARCHED = 1 << 20
# Nor is one with far more items.
_ITEMS_FACTOR, _EXTRA_ITEMS, _MOST_SEARCHED = 2, 256, 1 << 17


def call_of(assertion: Assertion, file: TestFile | None = None) -> FunctionCall:
    """The part of an assertion that enters the sandbox; of one that names a test, the ``file`` that has it."""
    if file is not None:
        shared = file.name, file.source, file.modules
        return FunctionCall(assertion.expression, is_assertion=True, prelude="", file=shared)
    return FunctionCall(
        assertion.expression,
        assertion.comparison == "whole",
        assertion.setup,
        assertion.entry_point,
        assertion.prelude,
    )


def judge(execution: Execution, assertion: Assertion) -> Outcome:
    """The outcome of one call. A value other than None counts as output, whatever the assertion makes of it."""
    is_raised = assertion.comparison == "raises" and set(assertion.expected) & set(execution.raised)
    if is_raised and not execution.stopped_by:
        return Outcome("pass", True, True)
    failure = outcome_of_failure(execution)
    if failure is not None and not execution.own_error:
        return failure
    if execution.value is None:
        # Exit status 0 without a value: the program exited before the call.
        return Outcome("crash", False, False)
    if _text_holds(execution.value, assertion):
        return Outcome("pass", True, True)
    silent = execution.returns_none or _is_none(execution.value, assertion.comparison)
    return Outcome("silent" if silent else "wrong", not silent, False)


def _is_none(text: str, comparison: Comparison) -> bool:
    match comparison:
        case "true":
            return text.startswith("(True")
        case "each":  # a list of values
            return set(text[1:-1].split(", ")) == {"None"}
    return text == "None"


def less_own_errors(outcomes: Sequence[Outcome], executions: Sequence[Execution]) -> list[Outcome]:
    """The outcomes of a program whose own statements may fail: then it does not pass the last test, if it passes all.

    It keeps what its function is worth, so that it gains nothing by leaving them out, but Python would refuse it.
    """
    if all(each.verdict == "pass" for each in outcomes) and any(each.own_error for each in executions):
        return [*outcomes[:-1], Outcome("own_error", True, False)]
    return list(outcomes)


def _text_holds(text: str, assertion: Assertion) -> bool:
    if assertion.comparison == "whole":
        return text == "True"
    try:
        expected = literal(assertion.expected)
        is_searched = assertion.comparison == "contains"
        most = _LONGEST_SEARCHED if is_searched else _LONGEST_EXTRA + _LONGEST_FACTOR * len(expected)
        most_items = _MOST_SEARCHED if is_searched else _EXTRA_ITEMS + _ITEMS_FACTOR * _items_in(expected)
        if len(text) > most or _items_in(text) > most_items:
            return assertion.comparison in ("equal", "among") and assertion.negated  # so long a text is another value
        return holds(_value(text), assertion)
    except UNREADABLE:
        return False  # not a literal, so not equal to one


class _Items:
    """What can be searched and equals nothing else, such as a generator; perhaps only the first items of it."""

    def __init__(self, items: list[Any], *, are_all: bool) -> None:
        self._items, self._are_all = items, are_all

    def __contains__(self, item: object) -> bool:
        if item in self._items:
            return True
        if not self._are_all:
            raise ValueError("not among the first items")  # so neither `in` nor `not in` holds
        return False


def _of_kind(kind: type, value: Any) -> Any:
    """The value, if it is of this kind: of a range or number that a program made up, a list would fill the memory.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(value, kind):
        raise ValueError(f"not a {kind.__name__}")
    return value


def _dict_items(pairs: list[Any]) -> Any:
    keys = spread([key for key, _ in _of_kind(list, pairs)])
    return dict(zip(keys, (value for _, value in pairs), strict=True)).items()


# What stands for values that are no literals, see `literal`.
_KINDS: dict[str, Callable[..., Any]] = {
    "range": range,
    "bytearray": lambda data: bytearray(_of_kind(bytes, data)),
    "dict_keys": lambda keys: dict.fromkeys(spread(_of_kind(list, keys))).keys(),
    "dict_items": _dict_items,
    "items": lambda items: _Items(_of_kind(list, items), are_all=True),
    "first_items": lambda items: _Items(_of_kind(list, items), are_all=False),
    "frozenset": lambda items: frozenset(_of_kind(set, items)),
    "nan": lambda: math.nan,
    "other": lambda *_: object(),
}
_NAMED = re.compile(rf"\b(?:{'|'.join(_KINDS)})\(")
_STRING = "|".join(
    rf"""{kind}{mark}(?:[^{mark}\\]|\\[{mark}{escapes}])*+{mark}"""
    for kind, escapes in (("", r"\\nrtxuU"), ("b", r"\\nrtx"))
    for mark in "'\""
)
_FLOAT = r"\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_ATOM = rf"{_STRING}|-?(?:0x[\da-f]+|{_FLOAT}(?:[-+]{_FLOAT}j|j)?)|True|False|None"
# What `literal` writes: a comma or a colon between two values. Of other texts a tree could have a node for every second
# character, and the parser prints a warning about as many.
_LITERAL = re.compile(rf"(?:(?:(?:set|{'|'.join(_KINDS)})?[\[({{])*+(?:{_ATOM})?+[\])}}]*+(?:[,:] ?|\Z))*+")
# One that does not end is the rest: to look for others in it would take quadratic time.
_STRINGS = re.compile(rf"{_STRING}|['\"].*", re.DOTALL)


def _items_in(text: str) -> int:
    """About how many values a text has, also within each other: commas and opening brackets outside of strings."""
    return sum(map(_STRINGS.sub("", text).count, ",[({"))


def _value(text: str) -> Any:
    """The value of a text that `literal` made.

    Raises:
        ValueError, TypeError, SyntaxError, RecursionError, MemoryError: it is none.
    """
    if _LITERAL.fullmatch(text) is None:
        raise ValueError("not a literal")
    tree = syntax_tree(text, "eval")
    return _value_of(tree.body) if "{" in text or _NAMED.search(text) else ast.literal_eval(tree)


def _value_of(node: ast.expr) -> Any:
    match node:
        case ast.Call(func=ast.Name(id=kind), args=arguments, keywords=[]) if kind in _KINDS:
            return _KINDS[kind](*map(_value_of, arguments))
        case ast.List():
            return list(map(_value_of, node.elts))
        case ast.Tuple():
            return tuple(map(_value_of, node.elts))
        case ast.Set():
            return set(spread(list(map(_value_of, node.elts))))
        case ast.Dict():
            keys = spread(list(map(_value_of, filter(None, node.keys))))
            return dict(zip(keys, map(_value_of, node.values), strict=True))
    return ast.literal_eval(node)
