"""Families that keep, change and fold numbers which a first line or two of the program compute from the input."""

from __future__ import annotations

import random

from family import Family

from families._compose import without
from families._inputs import counted_lines, line, number_line, numbers
from families._pieces import FOLDS, NATURAL_FILTERS, NATURAL_MAPS
from families.lists import ONE_WAY_FOLDS, from_numbers, two_lines

READ_LINE = "line = list(map(int, input().split()))\n"
_TWO = "first = list(map(int, input().split()))\nsecond = list(map(int, input().split()))\n"
READ_K = "k = int(input())\n"
READ_ROWS = "rows = [list(map(int, input().split())) for _ in range(int(input()))]\n"


def _k_and_line(rng: random.Random) -> str:
    return f"{rng.randint(2, 5)}\n{line(numbers(rng))}"


def _pairs(rng: random.Random) -> str:
    return counted_lines([numbers(rng, sizes=(2, 2)) for _ in range(rng.randint(3, 5))])


def _overlapping(rng: random.Random) -> str:
    return "".join(line(numbers(rng, -6, 14, (5, 7))) for _ in range(2))


def _copies(rng: random.Random) -> str:
    return line([f"{number}x{rng.randint(1, 3)}" for number in numbers(rng, sizes=(2, 4))])


def _on_a_line(name: str, what: str, code: str) -> Family:
    sentences = (
        f"Read a line of integers. The numbers are {what}.",
        f"From a line of integers take {what}.",
        f"Some integers are given, all in one row. Only these count as numbers: {what}.",
    )
    return from_numbers(name, sentences, f"{READ_LINE}$xs = {code}", number_line(sizes=(5, 7)))


def _on_two_lines(name: str, what: str, code: str) -> Family:
    sentences = (
        f"Two lines hold equally many integers. The numbers are {what} at each place.",
        f"Read two lines of integers; {what} at each place are the numbers.",
        f"Match two rows of integers, equally long, entry by entry. Only {what} that the pairs give count as numbers.",
    )
    return from_numbers(name, sentences, f"{_TWO}$xs = [{code} for a, b in zip(first, second)]", two_lines)


def _with_k(name: str, what: str, code: str) -> Family:
    sentences = (
        f"Read k, then a line of integers. The numbers are these, {what}.",
        f"Line 1 is k, line 2 holds integers: the numbers are what they become, {what}.",
    )
    return from_numbers(name, sentences, f"{READ_K}{READ_LINE}$xs = [{code} for entry in line]", _k_and_line)


def _of_pairs(name: str, what: str, code: str) -> Family:
    sentences = (
        f"Read n, then n lines with two integers each. The numbers are {what}.",
        f"The first line is n; n lines of two integers follow. Of each line take {what}.",
    )
    return from_numbers(name, sentences, f"{READ_ROWS}$xs = [{code} for a, b in rows]", _pairs)


FAMILIES: tuple[Family, ...] = (
    _on_a_line("running-minima", "at each place the smallest so far", "[min(line[: i + 1]) for i in range(len(line))]"),
    _on_a_line("neighbour-sums", "the sums of two neighbours each", "[a + b for a, b in zip(line, line[1:])]"),
    _on_a_line("neighbour-products", "the products of two neighbours each", "[a * b for a, b in zip(line, line[1:])]"),
    _on_a_line("neighbour-maxima", "the larger of two neighbours each", "[max(a, b) for a, b in zip(line, line[1:])]"),
    _on_a_line("plus-place", "each one plus its place, from 0", "[entry + i for i, entry in enumerate(line)]"),
    _on_a_line("times-place", "each one times its place, from 1", "[entry * i for i, entry in enumerate(line, 1)]"),
    _on_a_line("minus-first", "the later ones, each minus the first one", "[entry - line[0] for entry in line[1:]]"),
    _on_a_line("plus-last", "all but the last, each plus the last one", "[entry + line[-1] for entry in line[:-1]]"),
    _on_two_lines("line-differences", "the differences (first minus second)", "a - b"),
    _on_two_lines("line-products", "the products", "a * b"),
    _on_two_lines("smaller-ones", "the smaller ones", "min(a, b)"),
    from_numbers(
        "joined-lines",
        (
            "Read two lines of integers. The numbers are those of both lines, the first line's first.",
            "The numbers stand on two lines; take the first line's first.",
        ),
        f"{_TWO}$xs = first + second",
        two_lines,
    ),
    from_numbers(
        "missing-numbers",
        (
            "Read two lines of integers. The numbers are those of the first line that are not in the second.",
            "Of the integers on line 1 drop all that line 2 holds; the others are the numbers.",
        ),
        f"{_TWO}$xs = [entry for entry in first if entry not in second]",
        _overlapping,
    ),
    _with_k("scaled", "each times k", "k * entry"),
    _with_k("shifted", "each plus k", "entry + k"),
    _with_k("shifted-down", "each minus k", "entry - k"),
    from_numbers(
        "multiples",
        (
            "Read n and k. The numbers are n, 2n, 3n, ..., kn.",
            "Read n and k; the numbers are the first k multiples of n.",
        ),
        "n, k = map(int, input().split())\n$xs = [n * i for i in range(1, k + 1)]",
        lambda rng: line([rng.randint(1, 9), rng.randint(4, 8)]),
        filters=NATURAL_FILTERS,
        maps=NATURAL_MAPS,
        folds=ONE_WAY_FOLDS,
    ),
    from_numbers(
        "steps",
        (
            "Read a, b and s. The numbers are a, a + s, ... below b.",
            "Read a, b and s. The numbers go from a by steps of s and stay below b.",
        ),
        "a, b, s = map(int, input().split())\n$xs = range(a, b, s)",
        lambda rng: line([rng.randint(-9, 3), rng.randint(12, 24), rng.randint(3, 5)]),
        folds=without(FOLDS, "ascending", "max", "min"),
    ),
    from_numbers(
        "copies",
        ("Read entries like 5x2, which stands for 5 5.", "An entry axc stands for c times the number a."),
        '$xs = []\nfor entry in input().split():\n    number, times = entry.split("x")\n'
        "    $xs += [int(number)] * int(times)",
        _copies,
        folds=without(FOLDS, "distinct"),
    ),
    _of_pairs("pair-sums", "the sum of the two", "a + b"),
    _of_pairs("pair-differences", "the first minus the second", "a - b"),
    _of_pairs("pair-maxima", "the larger of the two", "max(a, b)"),
)
