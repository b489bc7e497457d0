"""Families that keep some numbers, change them and fold them; what differs is where the numbers come from."""

from __future__ import annotations

import random

from family import Family

from families._c import PIPELINE
from families._c_reads import C_READS
from families._compose import LARGE_FAMILY_SIZE, Table, only, without
from families._frames import pipeline
from families._inputs import (
    NUMBERS_ON_A_LINE,
    READ_NUMBERS,
    Draw,
    Source,
    compose_from,
    counted,
    line,
    number_line,
    numbers,
    word_line,
)
from families._pieces import (
    FILTERS,
    FOLDS,
    MAPS,
    NATURAL_FILTERS,
    NATURAL_MAPS,
    idle,
)

NATURAL_FOLDS = without(FOLDS, "distinct")  # where no two of the numbers differ in sign alone, few changes show in it
ONE_WAY_FOLDS = without(NATURAL_FOLDS, "ascending")  # of numbers in order: backwards, or as they are
KNOWN_END_FOLDS = without(ONE_WAY_FOLDS, "max", "min", "span")
ORDER_FOLDS = only(FOLDS, "backwards", "dashed", "alternating", "weighted")  # in which the order shows
DIGIT_FILTERS = without(NATURAL_FILTERS, "below-ten")
SMALL_FILTERS = only(FILTERS, "every", "even", "odd", "not-thirds")


def from_numbers(
    name: str,
    sentences: tuple[str, ...],
    read: str,
    draw_input: Draw,
    *,
    filters: Table = FILTERS,
    maps: Table = MAPS,
    folds: Table = FOLDS,
) -> Family:
    """All of keep, change and fold, on the numbers that ``read`` leaves in ``$xs``."""
    return compose_from(
        Source(sentences, read, draw_input, c_read=C_READS.get(name, "")),
        name,
        {"keep": filters, "change": maps, "fold": folds},
        ("Print $fold $keep$change.", "Output $fold $keep$change."),
        pipeline(),
        skip=idle,
        size=LARGE_FAMILY_SIZE,
        c_programs=PIPELINE,
    )


def from_naturals(
    name: str,
    sentences: tuple[str, ...],
    read: str,
    draw_input: Draw,
    *,
    filters: Table = NATURAL_FILTERS,
    folds: Table = NATURAL_FOLDS,
) -> Family:
    """`from_numbers` of which none is negative."""
    return from_numbers(name, sentences, read, draw_input, filters=filters, maps=NATURAL_MAPS, folds=folds)


def two_lines(rng: random.Random) -> str:
    size = rng.randint(3, 5)
    return "".join(line(numbers(rng, sizes=(size, size))) for _ in range(2))


def _matrix(rng: random.Random) -> str:
    width = rng.randint(2, 3)
    return "".join(line(numbers(rng, sizes=(width, width))) for _ in range(rng.randint(2, 3)))


def _bounds(rng: random.Random) -> str:
    low = rng.randint(1, 12)
    return line([low, low + rng.randint(4, 9)])


FAMILIES: tuple[Family, ...] = (
    from_numbers(
        "line-numbers",
        NUMBERS_ON_A_LINE.sentences,
        NUMBERS_ON_A_LINE.read,
        NUMBERS_ON_A_LINE.draw_input,
    ),
    from_numbers(
        "counted-numbers",
        ("Read n, then a line of n integers.", "The first line is n, the second holds n integers."),
        f"n = int(input())\n{READ_NUMBERS}",
        lambda rng: (lambda drawn: f"{len(drawn)}\n{line(drawn)}")(numbers(rng)),
    ),
    from_numbers(
        "number-rows",
        ("Read n and then n integers, one on each line.", "The first line is n; n lines with one integer each follow."),
        "n = int(input())\n$xs = [int(input()) for _ in range(n)]",
        lambda rng: counted(numbers(rng)),
    ),
    from_numbers(
        "comma-numbers",
        ("Read integers separated by commas.", "The input is one line of integers with commas between them."),
        '$xs = [int(part) for part in input().split(",")]',
        lambda rng: line(numbers(rng), ","),
    ),
    from_numbers(
        "zero-ended",
        (
            "Read integers, one on each line, until a 0, which does not count.",
            "Integers come one on each line; a 0 ends them and is not one of them.",
        ),
        "$xs = []\nwhile (entry := int(input())) != 0:\n    $xs.append(entry)",
        lambda rng: line([number or 1 for number in numbers(rng)] + [0], "\n"),
    ),
    from_numbers(
        "word-lengths",
        (
            "Read a line of words; the numbers are their lengths.",
            "The lengths of the words on the line are the numbers.",
        ),
        "$xs = [len($w) for $w in input().split()]",
        word_line(),
        filters=only(FILTERS, "every", "even", "odd"),
        maps=NATURAL_MAPS,
        folds=without(FOLDS, "max", "min", "span", "distinct", "alternating"),
    ),
    from_numbers(
        "digit-list",
        ("Read a long number; its digits are the numbers.", "The digits of the number on the line are the numbers."),
        "$xs = [int(digit) for digit in input()]",
        lambda rng: line([rng.randint(1, 9), *numbers(rng, 0, 9)], ""),
        filters=DIGIT_FILTERS,
        maps=NATURAL_MAPS,
        folds=without(FOLDS, "span"),
    ),
    from_numbers(
        "ranges",
        (
            "Read a and b. The numbers are a, a + 1, ..., b.",
            "The numbers are all integers from a to b, read from a line.",
        ),
        "a, b = map(int, input().split())\n$xs = range(a, b + 1)",
        _bounds,
        filters=NATURAL_FILTERS,
        maps=NATURAL_MAPS,
        folds=ONE_WAY_FOLDS,
    ),
    from_numbers(
        "divisors",
        (
            "Read n. The numbers are its divisors, 1 and n too.",
            "Read n; the numbers are its divisors, ascending.",
        ),
        "n = int(input())\n$xs = [d for d in range(1, n + 1) if n % d == 0]",
        lambda rng: line([rng.choice((12, 18, 20, 24, 28, 30, 36, 40, 42, 45, 48, 50, 54, 56, 60, 66, 70, 72))]),
        filters=NATURAL_FILTERS,
        maps=NATURAL_MAPS,
        folds=KNOWN_END_FOLDS,
    ),
    from_numbers(
        "matrix-cells",
        (
            "Each line holds a row of a matrix; the numbers are its cells, row by row.",
            "Read rows of integers until the input ends and take all their cells as the numbers.",
        ),
        "$xs = [int(cell) for row in sys.stdin for cell in row.split()]",
        _matrix,
    ),
    from_numbers(
        "neighbour-differences",
        (
            "Read a line of integers. The numbers are each one minus the one before it.",
            "The numbers are the differences (later minus earlier) of neighbours on the line.",
        ),
        "line = list(map(int, input().split()))\n$xs = [b - a for a, b in zip(line, line[1:])]",
        number_line(sizes=(5, 8)),
    ),
    from_numbers(
        "running-totals",
        (
            "Read a line of integers. The numbers are their running totals.",
            "The numbers are the running totals of the integers on the line.",
        ),
        "$xs = []\nsubtotal = 0\nfor part in input().split():\n    subtotal += int(part)\n    $xs.append(subtotal)",
        number_line(),
    ),
    from_numbers(
        "line-sums",
        (
            "Two lines hold equally many integers. The numbers are the sums of those at the same place.",
            "Read two lines of integers; add them place by place to get the numbers.",
        ),
        "first = map(int, input().split())\nsecond = map(int, input().split())\n"
        "$xs = [a + b for a, b in zip(first, second)]",
        two_lines,
    ),
    from_numbers(
        "larger-ones",
        (
            "Two lines hold equally many integers. The numbers are the larger of the two at each place.",
            "Read two lines of integers; the larger one at each place gives the numbers.",
        ),
        "first = map(int, input().split())\nsecond = map(int, input().split())\n$xs = list(map(max, first, second))",
        two_lines,
    ),
    from_numbers(
        "window-sums",
        (
            "Read k, then a line of integers. The numbers are the sums of every k neighbours.",
            "Line 1 is k, line 2 holds integers. Add up every k neighbouring ones to get the numbers.",
        ),
        "k = int(input())\nline = list(map(int, input().split()))\n"
        "$xs = [sum(line[i:i + k]) for i in range(len(line) - k + 1)]",
        lambda rng: f"{rng.randint(2, 3)}\n{line(numbers(rng, sizes=(6, 8)))}",
    ),
    from_numbers(
        "running-maxima",
        (
            "Read a line of integers. The numbers are, at each place, the largest one so far.",
            "Replace each integer on the line by the largest one up to its place to get the numbers.",
        ),
        "$xs = []\nfor part in map(int, input().split()):\n    $xs.append(max(part, $xs[-1]) if $xs else part)",
        number_line(sizes=(5, 8)),
        folds=without(FOLDS, "distinct"),
    ),
)
