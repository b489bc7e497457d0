"""Inputs and expected outputs of programs that read and print, as they stand in the files of the world."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from securecoderl_edge.problems.datasets.fields import check_pairs
from securecoderl_edge.problems.datasets.tally import Tally, usable_tests
from securecoderl_edge.problems.problem import Test

# ``1 <= N <= 100``, with any of the signs: no program prints that; it slipped from the statement into a test.
_SIGN = r"(?:<=?|≤|⩽|\\leq?(?:slant)?|&lt;=?|&le;)"
_BOUNDS = re.compile(rf"\d\s{{0,9}}{_SIGN}\s{{0,9}}\|?[A-Za-z_][\w|]{{0,20}}.{{0,40}}?{_SIGN}\s{{0,9}}\d", re.DOTALL)
_CONSTRAINTS = re.compile(r"^[^\w\n]*constraints?[^\w\n]*$", re.IGNORECASE | re.MULTILINE)
# Constraints are a few lines; looking for them in a long output would take long.
_LONGEST_CONSTRAINTS = 4000


def stdin_tests(inputs: Sequence[Any], outputs: Sequence[Any], identifier: str, tally: Tally) -> tuple[Test, ...]:
    """Tests of as many inputs as outputs; those that cannot be used are counted in ``tally``.

    Inputs and outputs are texts, lists of lines, or either wrapped in one more list; outputs may be numbers too.

    Raises:
        DropRecord: there are none, not equally many, or none is usable.
    """
    check_pairs(inputs, outputs)
    tests = []
    for given, expected in zip(inputs, outputs, strict=True):
        try:
            tests.append(Test(_lines(given, numbers=False), _lines(expected)))
        except TypeError:
            tally.drop_test(identifier, "input or output is no text")
    return tuple(usable_tests(tests, fault_of, identifier, tally))


def fault_of(test: Test) -> str | None:
    """Why no program could pass a test, or every one."""
    if not test.output.strip():
        return "blank expected output"
    short = test.output[:_LONGEST_CONSTRAINTS]
    if _BOUNDS.search(short) or _CONSTRAINTS.search(short):
        return "expected output holds constraints"
    return None


def are_arguments(given: Any) -> bool:
    """Whether an input is a list that is no text line by line: the arguments of a function."""
    if not isinstance(given, list):
        return False
    lines = given[0] if len(given) == 1 and isinstance(given[0], list) else given
    return not all(isinstance(line, str) for line in lines)


def _lines(value: Any, *, numbers: bool = True) -> str:
    """The text of a test: a string as it is, a number printed, a list one line an item.

    Raises:
        TypeError: there is something else in it.
    """
    if isinstance(value, str):
        return value
    if numbers and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, list):
        raise TypeError(type(value).__name__)
    if len(value) == 1:
        return _lines(value[0], numbers=numbers)
    return "".join(f"{_lines(item, numbers=numbers).rstrip()}\n" for item in value)
