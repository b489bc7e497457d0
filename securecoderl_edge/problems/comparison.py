"""When a printed output is the expected one: ours, or the rule of a data set's own grader.

| rule | outputs agree if |
|---|---|
| ``exact`` | their lines do, white space at the ends of lines and empty lines at the end aside |
| ``tokens`` | their words do, however they are spread over lines; yes and no in any case |
| ``numbers``, ``{"tolerance": T}`` | as ``tokens``, and numbers agree within 1e-5, or T, absolute or relative |
| ``apps`` | their lines do, white space and empty lines aside; those of a line of numbers within 1e-5 |
| ``code_contests`` | their words do in any case, numbers within 1e-5 absolute (``ValuesMatch`` of its tester) |
| ``livecodebench`` | their lines do, white space at both ends aside; lines of decimals by value |

Two integers agree only if they are equal, also where a grader compares them as floats (APPS).
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import partial
from itertools import zip_longest
from typing import Any

_ANY_CASE = frozenset(("yes", "no", "true", "false", "possible", "impossible"))
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?\Z", re.ASCII)
_RULE_OF_SOURCE = {
    "apps": "apps",
    "codecontests": "code_contests",
    "codeforces": "code_contests",
    "livecodebench": "livecodebench",
    # Sets with the graders of these.
    "leetcode": "livecodebench",
    "openr1": "apps",
    "deepcoder": "apps",
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
        if (
            isinstance(tolerance, (int, float))
            and not isinstance(tolerance, bool)
            and 0 <= tolerance <= sys.float_info.max
        ):
            return Rule("numbers", float(tolerance))
    raise ValueError(
        f'"compare" must be {", ".join(map(repr, _RULES))} or {{"tolerance": NUMBER}}, found {value!r:.100}'
    )


def rule_of_source(source: str) -> Rule:
    """The rule of the data set that a problem's ``source`` names, if the problem names none."""
    for part in reversed(source.lower().split("/")):
        name = re.sub(r"[\W_]", "", part)  # such as code-contests, code_contests and CodeContests
        if rule := next((rule for start, rule in _RULE_OF_SOURCE.items() if name.startswith(start)), None):
            return Rule(rule)
    return EXACT


def same_output(printed: str, expected: str, rule: Rule = EXACT) -> bool:
    """Whether an output agrees with the expected one.

    An output of another number of lines or words is not taken apart: a flood of them costs no more than its length.
    """
    parts_of, agree, count = _RULES[rule.name]
    wanted = count(expected, -1)
    if count(printed, wanted + 1) != wanted:
        return False
    pairs = zip_longest(parts_of(printed), parts_of(expected))
    return all(
        one == other or (one is not None and other is not None and agree(rule, one, other)) for one, other in pairs
    )


def first_difference(printed: str, expected: str, rule: Rule = EXACT) -> tuple[str, str | None, str | None] | None:
    """The first line or word that differs: its place, and what it is in both outputs; None in one that has ended."""
    parts_of, agree, _ = _RULES[rule.name]
    for number, (one, other) in enumerate(zip_longest(parts_of(printed), parts_of(expected)), 1):
        if one is None or other is None or not agree(rule, one, other):
            return f"{'word' if parts_of is str.split else 'line'} {number}", one, other
    return None


def compared_lines(text: str) -> list[str]:
    """An output as ``exact`` compares it."""
    text = text.rstrip()
    return [line.rstrip() for line in text.split("\n")] if text else []


def _exact(_: Rule, one: str, other: str) -> bool:
    return one == other


def _tokens(_: Rule, one: str, other: str) -> bool:
    return one == other or (one.lower() == other.lower() and one.lower() in _ANY_CASE)


def _numbers(rule: Rule, one: str, other: str) -> bool:
    return _tokens(rule, one, other) or _is_near(one, other, rule.tolerance, rule.tolerance)


def _code_contests(_: Rule, one: str, other: str) -> bool:
    return _is_near(one.lower(), other.lower(), relative=0, absolute=math.nextafter(1e-5, 0))


def _apps(_: Rule, one: str, other: str) -> bool:
    words, others = one.split(), other.split()
    is_near = partial(_is_near, relative=1e-5, absolute=1e-8)
    return words == others or (all(map(_is_number, others)) and _agree(is_near, words, others))


def _livecodebench(_: Rule, one: str, other: str) -> bool:
    return one == other or _agree(_same_decimal, one.split(), other.split())


def _agree(same: Callable[[str, str], bool], words: list[str], others: list[str]) -> bool:
    return len(words) == len(others) and all(map(same, words, others))


def _stripped_lines(text: str) -> list[str]:
    return list(map(str.strip, text.strip().split("\n")))


def _filled_lines(text: str) -> list[str]:
    return list(filter(None, _stripped_lines(text)))


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


def _same_decimal(one: str, other: str) -> bool:
    """Whether both are decimals for Python, and equal; longer ones only if they are the same text."""
    if max(len(one), len(other)) > _LONGEST_NUMBER:
        return one == other
    try:
        return Decimal(one) == Decimal(other)
    except InvalidOperation:
        return False


def _is_number(word: str) -> bool:
    return len(word) <= _LONGEST_NUMBER and _NUMBER.match(word) is not None


def _count_lines(text: str, _: int) -> int:
    return text.rstrip().count("\n")


def _count_stripped_lines(text: str, _: int) -> int:
    return text.strip().count("\n")


def _count_words(text: str, most: int) -> int:
    """The number of words, if it is at most ``most``, else a greater one; -1 is no limit."""
    return len(text.split(None, most))


# The parts of an output, whether two of them agree, and a number that agreeing outputs have in common.
_RULES: dict[str, tuple[Callable[[str], list[str]], Callable[[Rule, str, str], bool], Callable[[str, int], int]]] = {
    "exact": (compared_lines, _exact, _count_lines),
    "tokens": (str.split, _tokens, _count_words),
    "numbers": (str.split, _numbers, _count_words),
    "apps": (_filled_lines, _apps, _count_words),
    "code_contests": (str.split, _code_contests, _count_words),
    "livecodebench": (_stripped_lines, _livecodebench, _count_stripped_lines),
}
