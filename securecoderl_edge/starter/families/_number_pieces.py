"""Pieces that families about numbers share: ways to lay out a list, and measures of a list of values.

Code templates name their holes: ``{xs}`` the list, ``{x}`` an element, ``{ys}`` the values to measure,
``{y}`` one of them, ``{t}`` an accumulator.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from securecoderl_edge.starter.wording import phrase


@dataclass(frozen=True)
class Piece:
    """A condition, a value or another choice: its phrasings, its equivalent codes, a function they call."""

    asks: tuple[str, ...]
    codes: tuple[str, ...] = ("",)
    helper: str = ""


@dataclass(frozen=True)
class Layout:
    """How one list stands in the input: the sentence, ways to read it into ``{xs}``, and how to write it."""

    asks: tuple[str, ...]
    readers: tuple[str, ...]
    render: Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Measure:
    """An answer computed from values.

    Attributes:
        asks: noun phrases for the answer, following "print".
        result: an expression over the list ``{ys}``.
        start, step, end: the same as a loop over values ``{y}`` with accumulator ``{t}``; else it collects.
        empty: what is printed when there are no values.
    """

    asks: tuple[str, ...]
    result: str
    empty: str
    start: str = ""
    step: str = ""
    end: str = "{t}"
    imports: str = ""


def _join(separator: str) -> Callable[[Sequence[int]], str]:
    return lambda numbers: separator.join(map(str, numbers)) + "\n"


LAYOUTS = {
    "line": Layout(
        (
            "The input is one line of integers separated by spaces.",
            "Read a line of integers.",
            "You get one line with several integers.",
        ),
        (
            "{xs} = list(map(int, input().split()))",
            "{xs} = [int(token) for token in input().split()]",
            "import sys\n{xs} = list(map(int, sys.stdin.read().split()))",
        ),
        _join(" "),
    ),
    "counted": Layout(
        (
            "The first line is n and the second line has n integers.",
            "Read n, then a line of n integers.",
            "Line 1 gives n; line 2 gives n integers.",
        ),
        (
            "n = int(input())\n{xs} = list(map(int, input().split()))",
            "n = int(input())\n{xs} = [int(token) for token in input().split()[:n]]",
            "import sys\nn, *{xs} = map(int, sys.stdin.read().split())",
        ),
        lambda numbers: f"{len(numbers)}\n" + _join(" ")(numbers),
    ),
    "rows": Layout(
        (
            "The first line is n; n lines follow with one integer each.",
            "Read n and then n integers, one per line.",
            "You get n, then n lines, each with an integer.",
        ),
        (
            "n = int(input())\n{xs} = [int(input()) for _ in range(n)]",
            "{xs} = []\nfor _ in range(int(input())):\n    {xs}.append(int(input()))",
            "import sys\nn, *{xs} = map(int, sys.stdin.read().split())",
        ),
        lambda numbers: f"{len(numbers)}\n" + _join("\n")(numbers),
    ),
    "commas": Layout(
        (
            "The input is one line of integers separated by commas.",
            "Read a line of comma-separated integers.",
            "You get integers on one line with commas between them.",
        ),
        (
            '{xs} = list(map(int, input().split(",")))',
            '{xs} = [int(part) for part in input().split(",")]',
            '{xs} = []\nfor part in input().split(","):\n    {xs}.append(int(part))',
        ),
        _join(","),
    ),
    "until-zero": Layout(
        (
            "Integers come one per line; a 0 ends the list and is not part of it.",
            "Read integers, one per line, until a 0, which does not count.",
        ),
        (
            '{xs} = list(map(int, iter(input, "0")))',
            "{xs} = []\nwhile (number := int(input())) != 0:\n    {xs}.append(number)",
            "{xs} = []\nnumber = int(input())\nwhile number != 0:\n    {xs}.append(number)\n    number = int(input())",
        ),
        lambda numbers: _join("\n")([*(number or 1 for number in numbers), 0]),
    ),
}
FLAT_LAYOUTS = {key: LAYOUTS[key] for key in ("line", "counted", "commas")}

MEASURES = {
    "sum": Measure(("their sum", "the sum of these values"), "sum({ys})", "0", "{t} = 0", "{t} += {y}"),
    "count": Measure(("how many there are", "their number"), "len({ys})", "0", "{t} = 0", "{t} += 1"),
    "alternating": Measure(
        ("the first minus the second plus the third and so on", "their alternating sum (+ - + - ...)"),
        "sum({ys}[::2]) - sum({ys}[1::2])",
        "0",
        "{t} = 0\nsign = 1",
        "{t} += sign * {y}\nsign = -sign",
    ),
    "weighted": Measure(
        (
            "1 * first + 2 * second + 3 * third + ...",
            "the sum of each times its place (1, 2, 3, ...)",
        ),
        "sum(place * value for place, value in enumerate({ys}, 1))",
        "0",
        "{t} = 0\nplace = 0",
        "place += 1\n{t} += place * {y}",
    ),
    "max": Measure(
        ("the largest", "the maximum of these"),
        'max({ys}, default="none")',
        "none",
        "{t} = None",
        "if {t} is None or {y} > {t}:\n    {t} = {y}",
        '"none" if {t} is None else {t}',
    ),
    "min": Measure(
        ("the smallest", "the minimum of these"),
        'min({ys}, default="none")',
        "none",
        "{t} = None",
        "if {t} is None or {y} < {t}:\n    {t} = {y}",
        '"none" if {t} is None else {t}',
    ),
    "range": Measure(
        ("the largest minus the smallest", "the difference of maximum and minimum"),
        'max({ys}) - min({ys}) if {ys} else "none"',
        "none",
    ),
    "ends": Measure(
        ("the last minus the first", "the last of these less the first"),
        '{ys}[-1] - {ys}[0] if {ys} else "none"',
        "none",
    ),
    "distinct": Measure(
        ("how many different values these are", "the number of distinct results"),
        "len(set({ys}))",
        "0",
        "seen = set()",
        "seen.add({y})",
        "len(seen)",
    ),
    "repeats": Measure(
        (
            "how often the most frequent of these occurs",
            "the most times that one value occurs among these",
        ),
        "max(map({ys}.count, {ys}), default=0)",
        "0",
        "counts = {}",
        "counts[{y}] = counts.get({y}, 0) + 1",
        "max(counts.values(), default=0)",
    ),
    "big": Measure(
        ("how many of these are above 5", "the number of these that exceed 5"),
        "sum(value > 5 for value in {ys})",
        "0",
        "{t} = 0",
        "if {y} > 5:\n    {t} += 1",
    ),
    "records": Measure(
        (
            "how many exceed all before them (the first counts)",
            "the number of new maxima from left to right",
        ),
        "sum(all(value > other for other in {ys}[:place]) for place, value in enumerate({ys}))",
        "0",
        "{t} = 0\nbest = None",
        "if best is None or {y} > best:\n    best = {y}\n    {t} += 1",
    ),
    "product": Measure(
        ("their product", "the product of these values"),
        "math.prod({ys})",
        "1",
        "{t} = 1",
        "{t} *= {y}",
        imports="import math",
    ),
    "product-mod": Measure(
        ("their product modulo 11", "the remainder of their product divided by 11"),
        "math.prod({ys}) % 11",
        "1",
        "{t} = 1",
        "{t} = {t} * {y} % 11",
        imports="import math",
    ),
    "gcd": Measure(
        ("their greatest common divisor", "the gcd of these"),
        "math.gcd(*{ys})",
        "0",
        "{t} = 0",
        "{t} = math.gcd({t}, {y})",
        imports="import math",
    ),
    "horner": Measure(
        ("the result of starting at 0 and, for each in order, doubling and adding it",),
        "functools.reduce(lambda left, right: 2 * left + right, {ys}, 0)",
        "0",
        "{t} = 0",
        "{t} = 2 * {t} + {y}",
        imports="import functools",
    ),
    "list": Measure(
        ("them on one line with spaces", "these values separated by spaces"),
        '" ".join(map(str, {ys})) or "none"',
        "none",
        "{t} = []",
        "{t}.append(str({y}))",
        '" ".join({t}) or "none"',
    ),
    "backwards": Measure(
        ("them in reverse order with spaces", "these values from last to first, separated by spaces"),
        '" ".join(map(str, reversed({ys}))) or "none"',
        "none",
        "{t} = []",
        "{t}.insert(0, str({y}))",
        '" ".join({t}) or "none"',
    ),
    "running": Measure(
        ("their running sums with spaces", "the running totals of these, separated by spaces"),
        '" ".join(map(str, itertools.accumulate({ys}))) or "none"',
        "none",
        "{t} = []\ntally = 0",
        "tally += {y}\n{t}.append(str(tally))",
        '" ".join({t}) or "none"',
        imports="import itertools",
    ),
}


def measures(*keys: str) -> dict[str, Measure]:
    """The named part of `MEASURES`."""
    return {key: MEASURES[key] for key in keys}


def numbers(rng: random.Random, low: int = -9, high: int = 20, sizes: tuple[int, int] = (4, 7)) -> list[int]:
    """A short list of small integers."""
    return [rng.randint(low, high) for _ in range(rng.randint(*sizes))]


def ask_measure(rng: random.Random, measure: Measure) -> str:
    """The end of a statement: what to print, also when there is nothing to measure."""
    verb = phrase(rng, "Print", "Output", "Write")
    otherwise = phrase(
        rng,
        f"; if there are none, print {measure.empty}.",
        f" (or {measure.empty} if there are none).",
        f". With none, print {measure.empty}.",
    )
    return f"{verb} {phrase(rng, *measure.asks)}{otherwise}"
