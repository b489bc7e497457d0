"""When a printed output is the expected one: ours, or the rule of a data set's own grader.

| rule | outputs agree if |
|---|---|
| ``exact`` | their lines do, white space at the ends of lines and empty lines at the end aside |
| ``tokens`` | their words do, however they are spread over lines; yes and no in any case |
| ``numbers``, ``{"tolerance": T}`` | as ``tokens``, and numbers agree within 1e-5, or T, absolute or relative |
| ``apps`` | their lines do, white space at both ends and empty lines aside; numbers within 1e-5 of the expected one |
| ``code_contests`` | their words do in any case, numbers within 1e-5 (``ValuesMatch`` of its tester) |
| ``livecodebench`` | their lines do, white space at both ends aside, words that are numbers by value |

Two integers agree only if they are equal, also where a grader compares them as floats (APPS).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

_ANY_CASE = frozenset(("yes", "no", "true", "false", "possible", "impossible"))
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?\Z", re.ASCII)
_RULE_OF_SOURCE = {
    "apps": "apps",
    "code_contests": "code_contests",
    "codeforces": "code_contests",
    "livecodebench": "livecodebench",
    # Sets with the graders of these.
    "leetcode": "livecodebench",
    "open-r1": "livecodebench",
    "deepcoder": "livecodebench",
    "eurus": "apps",
}
_INTEGER = re.compile(r"[+-]?\d+\Z", re.ASCII)
_LONGEST_NUMBER = 400  # characters; longer ones are compared as text


@dataclass(frozen=True)
class Rule:
    """How outputs are compared.

    Attributes:
        name: a row of the table above.
        tolerance: for ``numbers``.
    """

    name: str = "exact"
    tolerance: float = 1e-5

    def to_record(self) -> Any:
        """The value of ``compare`` in a problem's record."""
        return {"tolerance": self.tolerance} if self.name == "numbers" and self.tolerance != 1e-5 else self.name


EXACT = Rule()


def rule_from_record(value: Any) -> Rule:
    """The rule in a problem's record.

    Raises:
        ValueError: it is none.
    """
    if isinstance(value, str) and value in _RULES:
        return Rule(value)
    if isinstance(value, dict) and set(value) == {"tolerance"}:
        tolerance = value["tolerance"]
        if isinstance(tolerance, (int, float)) and not isinstance(tolerance, bool) and 0 <= tolerance < math.inf:
            return Rule("numbers", float(tolerance))
    raise ValueError(
        f'"compare" must be {", ".join(map(repr, _RULES))} or {{"tolerance": NUMBER}}, found {value!r:.100}'
    )


def rule_of_source(source: str) -> Rule:
    """The rule of the data set that a problem's ``source`` names, if the problem names none."""
    name = source.lower()
    return next((Rule(rule) for part, rule in _RULE_OF_SOURCE.items() if part in name), EXACT)


def same_output(printed: str, expected: str, rule: Rule = EXACT) -> bool:
    """Whether an output agrees with the expected one."""
    return printed == expected or _RULES[rule.name](rule, printed, expected)


def compared_lines(text: str) -> list[str]:
    """An output as ``exact`` compares it."""
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _exact(_: Rule, printed: str, expected: str) -> bool:
    return compared_lines(printed) == compared_lines(expected)


def _words(agree: Callable[[str, str], bool], printed: Sequence[str], expected: Sequence[str]) -> bool:
    return len(printed) == len(expected) and all(map(agree, printed, expected))


def _tokens(rule: Rule, printed: str, expected: str) -> bool:
    return _words(_same_word, printed.split(), expected.split())


def _numbers(rule: Rule, printed: str, expected: str) -> bool:
    def agree(one: str, other: str) -> bool:
        return _same_word(one, other) or _is_near(one, other, rule.tolerance, rule.tolerance)

    return _words(agree, printed.split(), expected.split())


def _code_contests(_: Rule, printed: str, expected: str) -> bool:
    agree = partial(_is_near, relative=1e-5, absolute=1e-5)
    return _words(agree, printed.lower().split(), expected.lower().split())


def _apps(_: Rule, printed: str, expected: str) -> bool:
    def agree(one: str, other: str) -> bool:
        return one == other or _words(partial(_is_near, relative=1e-5, absolute=1e-8), one.split(), other.split())

    return _words(agree, _stripped_lines(printed), _stripped_lines(expected))


def _livecodebench(_: Rule, printed: str, expected: str) -> bool:
    def agree(one: str, other: str) -> bool:
        return one == other or _words(_same_value, one.split(), other.split())

    one, other = ([line.strip() for line in text.strip().split("\n")] for text in (printed, expected))
    return _words(agree, one, other)


def _stripped_lines(text: str) -> list[str]:
    return [line for line in map(str.strip, text.split("\n")) if line]


def _same_word(one: str, other: str) -> bool:
    return one == other or (one.lower() == other.lower() and one.lower() in _ANY_CASE)


def _is_near(printed: str, expected: str, relative: float, absolute: float) -> bool:
    """Whether two words are equal, or numbers of which the printed one is near enough."""
    if printed == expected:
        return True
    if not _is_number(printed) or not _is_number(expected):
        return False
    if _INTEGER.match(printed) and _INTEGER.match(expected):
        return int(printed) == int(expected)
    one, other = float(printed), float(expected)
    if not math.isfinite(one) or not math.isfinite(other):
        return False
    return abs(one - other) <= max(absolute, relative * abs(other))


def _same_value(one: str, other: str) -> bool:
    if not _is_number(one) or not _is_number(other):
        return one == other
    try:
        return Decimal(one) == Decimal(other)
    except InvalidOperation:
        return False


def _is_number(word: str) -> bool:
    return len(word) <= _LONGEST_NUMBER and _NUMBER.match(word) is not None


_RULES: dict[str, Callable[[Rule, str, str], bool]] = {
    "exact": _exact,
    "tokens": _tokens,
    "numbers": _numbers,
    "apps": _apps,
    "code_contests": _code_contests,
    "livecodebench": _livecodebench,
}
