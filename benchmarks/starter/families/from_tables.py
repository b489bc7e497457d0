"""Families that keep, change and fold numbers which come from tables: matrices, named entries, records."""

from __future__ import annotations

import random

from family import Family

from families._compose import Table, without
from families._inputs import Draw, counted, counted_lines, line, numbers
from families._pieces import CONDITIONS, FILTERS, FOLDS
from families.derived import READ_K, READ_ROWS
from families.from_words import SHORT_WORDS
from families.lists import from_naturals, from_numbers

_FOLDS = without(FOLDS, "distinct")  # a few rows hardly ever give the same


def _matrix(rng: random.Random, height: int, width: int) -> str:
    return counted_lines([numbers(rng, sizes=(width, width)) for _ in range(height)])


def _tall(rng: random.Random) -> str:
    return _matrix(rng, rng.randint(4, 5), rng.randint(2, 3))


def _wide(rng: random.Random) -> str:
    return _matrix(rng, rng.randint(2, 3), rng.randint(4, 5))


def _repeated_names(rng: random.Random) -> str:
    names = rng.sample(SHORT_WORDS, 4)
    return line([f"{rng.choice(names)}:{number}" for number in numbers(rng, sizes=(6, 8))])


def _purchases(rng: random.Random) -> str:
    items = rng.sample(SHORT_WORDS, rng.randint(3, 5))
    return counted([f"{item} {rng.randint(1, 6)} {rng.randint(1, 9)}" for item in items])


def _of_rows(name: str, what: str, code: str, draw_input: Draw = _tall, filters: Table = FILTERS) -> Family:
    sentences = (
        f"Read n, then n rows of integers. The numbers are {what}.",
        f"The first line is n; n rows of a matrix follow. As the numbers take {what}.",
        f"Given are n and a table of n rows with integers. What counts as the numbers: {what}.",
        f"In a matrix, whose height n comes first, the numbers meant are {what}.",
    )
    return from_numbers(name, sentences, f"{READ_ROWS}{code}", draw_input, filters=filters, folds=_FOLDS)


def _of_scores(name: str, what: str, note: str, scores: str) -> Family:
    sentences = (
        f"Read entries name:score. The numbers are {what}.",
        f"The line holds entries name:score. As the numbers take {what}.",
    )
    read = f'$d = {{}}\nfor part in input().split():\n    name, score = part.split(":")\n    {note}\n$xs = {scores}'
    return from_numbers(name, sentences, read, _repeated_names)


FAMILIES: tuple[Family, ...] = (
    _of_rows("row-sums", "the sums of the rows", "$xs = [sum(row) for row in rows]"),
    _of_rows("row-maxima", "the largest of each row", "$xs = [max(row) for row in rows]"),
    _of_rows(
        "row-sum-steps",
        "the sum of each row minus that of the row before it",
        "sums = [sum(row) for row in rows]\n$xs = [b - a for a, b in zip(sums, sums[1:])]",
    ),
    _of_rows(
        "outer-rows",
        "those of the first row, then those of the last row",
        "$xs = rows[0] + rows[-1]",
        _wide,
    ),
    # Only with a condition: without one, changing the cells of each column comes to the same.
    _of_rows(
        "column-sums", "the sums of the columns", "$xs = [sum(column) for column in zip(*rows)]", _wide, CONDITIONS
    ),
    _of_rows(
        "column-minima",
        "the smallest of each column",
        "$xs = [min(column) for column in zip(*rows)]",
        _wide,
        CONDITIONS,
    ),
    from_numbers(
        "chosen-column",
        (
            "Read k, then n, then n rows of integers. The numbers are those in column k (from 0).",
            "Line 1 is k, line 2 is n; n rows of a matrix follow. Its column k (from 0) holds the numbers.",
        ),
        f"{READ_K}{READ_ROWS}$xs = [row[k] for row in rows]",
        lambda rng: f"{rng.randint(0, 1)}\n{_tall(rng)}",
    ),
    from_numbers(
        "entry-scores",
        (
            "Read entries name:score. The numbers are the scores.",
            "The line holds entries name:score; take the scores as the numbers.",
        ),
        '$xs = [int(part.split(":")[1]) for part in input().split()]',
        _repeated_names,
    ),
    _of_scores(
        "first-scores",
        "the first score of each name, in order of appearance",
        "$d.setdefault(name, int(score))",
        "list($d.values())",
    ),
    _of_scores(
        "lowest-scores",
        "the lowest score of each name, in order of first appearance",
        "$d[name] = min(int(score), $d.get(name, 99))",
        "list($d.values())",
    ),
    _of_scores(
        "last-by-name",
        "the last score of each name, names in alphabetical order",
        "$d[name] = int(score)",
        "[$d[name] for name in sorted($d)]",
    ),
    from_naturals(
        "costs",
        (
            "Read n, then n lines with item, amount and price. The numbers are amount times price of each line.",
            "The first line is n; n lines with item, amount and price follow. Amount times price of each: the numbers.",
        ),
        "$xs = []\nfor _ in range(int(input())):\n    item, a, b = input().split()\n    $xs.append(int(a) * int(b))",
        _purchases,
    ),
)
