"""Inputs and expected outputs of programs that read and print, as they stand in the files of the world."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from securecoderl_edge.datasets.fields import check_pairs
from securecoderl_edge.datasets.tally import DropRecord, Tally
from securecoderl_edge.problems import Test

# ``1 <= N <= 100``, with any of the signs: no program prints that; it slipped from the statement into a test.
_BOUNDS = re.compile(r"\d\s*(?:<=?|≤|\\leq?|&lt;=?)\s*[A-Za-z_]\w*.{0,40}(?:<=?|≤|\\leq?|&lt;=?)\s*\d", re.DOTALL)
_CONSTRAINTS = re.compile(r"^\W*constraints?\W*$", re.IGNORECASE | re.MULTILINE)


def stdin_tests(inputs: Sequence[Any], outputs: Sequence[Any], identifier: str, tally: Tally) -> tuple[Test, ...]:
    """Tests of as many inputs as outputs; those that cannot be used are counted in ``tally``.

    Inputs and outputs are texts, numbers, lists of lines, or any of them wrapped in one more list.

    Raises:
        DropRecord: there are none, not equally many, or none is usable.
    """
    check_pairs(inputs, outputs)
    tests = []
    for given, expected in zip(inputs, outputs, strict=True):
        try:
            test = Test(_lines(given), _lines(expected))
        except TypeError:
            tally.drop_test(identifier, "input or output is no text")
            continue
        fault = fault_of(test)
        if fault is None:
            tests.append(test)
        else:
            tally.drop_test(identifier, fault)
    if not tests:
        raise DropRecord("no usable tests")
    return tuple(tests)


def fault_of(test: Test) -> str | None:
    """Why no program could pass a test, or every one."""
    if not test.output.strip():
        return "blank expected output"
    if _BOUNDS.search(test.output) or _CONSTRAINTS.search(test.output):
        return "expected output holds constraints"
    return None


def _lines(value: Any) -> str:
    """The text of a test: a string as it is, a number printed, a list one line an item.

    Raises:
        TypeError: there is something else in it.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, list):
        raise TypeError(type(value).__name__)
    if len(value) == 1:
        return _lines(value[0])
    return "".join(f"{_lines(item).rstrip()}\n" for item in value)
