"""Inputs and expected outputs of stdin problems, in the forms of public data sets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from securecoderl_edge.problems.datasets.tally import DropRecord, Tally, usable_tests
from securecoderl_edge.problems.problem import Test

# ``1 <= N <= 100``, with any of the signs: such text belongs to the statement, not to an expected output.
_SIGN = r"(?:<=?|≤|⩽|\\leq?(?:slant)?|&lt;=?|&le;)"
_BOUNDS = re.compile(rf"\d\s{{0,9}}{_SIGN}\s{{0,9}}\|?[A-Za-z_][\w|]{{0,20}}.{{0,40}}?{_SIGN}\s{{0,9}}\d", re.DOTALL)
_CONSTRAINTS = re.compile(r"^[^\w\n]*constraints?[^\w\n]*$", re.IGNORECASE | re.MULTILINE)
# Constraints take a few lines; a search in a long output would be slow.
_LONGEST_CONSTRAINTS = 4000


def stdin_tests(inputs: Sequence[Any], outputs: Sequence[Any], identifier: str, tally: Tally) -> tuple[Test, ...]:
    """Tests from inputs and outputs; unusable ones are counted in ``tally``.

    Inputs and outputs are texts, lists of lines, or either wrapped in one more list; outputs may be numbers too.

    Raises:
        DropRecord: there are none, their numbers differ, or none is usable.
    """
    check_pairs(inputs, outputs)
    tests = []
    for text, expected in zip(inputs, outputs, strict=True):
        try:
            tests.append(Test(_lines(text, numbers=False), _lines(expected)))
        except TypeError:
            tally.drop_test(identifier, "input or output is not text")
    return tuple(usable_tests(tests, fault_of, identifier, tally))


def check_pairs(inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
    """Check that every input has its output.

    Raises:
        DropRecord: there are none, or their numbers differ.
    """
    if not inputs or not outputs:
        raise DropRecord("no tests")
    if len(inputs) != len(outputs):
        raise DropRecord("different numbers of inputs and outputs")


def fault_of(test: Test) -> str | None:
    """The reason if no program, or every program, would pass a test; else None."""
    if not test.output.strip():
        return "empty expected output"
    short = test.output[:_LONGEST_CONSTRAINTS]
    if _BOUNDS.search(short) or _CONSTRAINTS.search(short):
        return "expected output contains constraints of the statement"
    return None


def are_arguments(value: Any) -> bool:
    """Whether an input is a list of function arguments, not a list of lines."""
    if not isinstance(value, list):
        return False
    lines = value[0] if len(value) == 1 and isinstance(value[0], list) else value
    return not all(isinstance(line, str) for line in lines)


def _lines(value: Any, *, numbers: bool = True) -> str:
    """The text of a test: a string as it is, a number printed, a list with one line per item.

    Raises:
        TypeError: another type.
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
