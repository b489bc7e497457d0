"""Families about the cells of a small matrix: its rows and columns, regions, neighbours of a cell."""

from __future__ import annotations

import random

from family import Family

from families._compose import compose, only, piece, without
from families._inputs import READ_MATRIX, line, matrix, matrix_rows
from families._pieces import EVERY, FILTERS, FOLDS, MAPS, NUMBER_FOLDS, idle

_READ = {"read": READ_MATRIX}


def _square(rng: random.Random) -> str:
    size = rng.randint(3, 4)
    return f"{size}\n" + matrix_rows(rng, size, size)


# A fold of every row or column, then a fold of what they gave.

_INNER = {
    key: piece(*chosen.words, inner=chosen.code["whole"].replace("$ys", "line")) for key, chosen in NUMBER_FOLDS.items()
}
_OUTER = without(FOLDS, "distinct")  # a few rows hardly ever give the same
_LINE_BY_LINE = (
    """\
$read
$ys = []
for group in $groups:
    line = [$value for $x in group$where]
    $ys.append($inner)
print($whole)
""",
    """\
def measure(group):
    line = [$value for $x in group$where]
    return $inner


def main():
    $read
    $ys = [measure(group) for group in $groups]
    print($whole)


main()
""",
    """\
$read
$start
for group in $groups:
    line = []
    for $x in group:
        if $test:
            line.append($value)
    $y = $inner
    $take
print($show)
""",
)

ROWS = compose(
    "matrix-rows",
    {
        "keep": FILTERS,
        "inner": _INNER,
        "fold": _OUTER,
    },
    (
        "Read n, then n rows of integers. For each row, find $inner $keep in it. Print $fold the results.",
        "The input is n and then a matrix of n rows. From each row take $inner $keep in it. Print $fold these values.",
    ),
    (
        *_LINE_BY_LINE,
        """\
$start
for _ in range(int(input())):
    line = [$x for $x in map(int, input().split())$where]
    $y = $inner
    $take
print($show)
""",
    ),
    matrix,
    skip=lambda keep, inner, fold: inner == fold,
    code={**_READ, "groups": "rows", "value": "$x"},
)


def _hides_column_change(change: str, inner: str, fold: str) -> bool:
    if inner == fold or idle("any", change, inner):
        return True
    return fold == "span" and (change == "double" or idle("any", change, fold))


COLUMNS = compose(
    "matrix-columns",
    {
        "change": MAPS,
        "inner": _INNER,
        "fold": _OUTER,
    },
    (
        "Read n, then n rows of integers. For each column, find $inner its numbers$change. Print $fold the results.",
        "The input is n and then a matrix of n rows. From each column take $inner the numbers in it$change."
        " Print $fold these values.",
    ),
    (
        *_LINE_BY_LINE[:2],
        """\
$read
$ys = []
for j in range(len(rows[0])):
    line = []
    for row in rows:
        $x = row[j]
        line.append($value)
    $ys.append($inner)
print($whole)
""",
        """\
$read
$start
for column in zip(*rows):
    line = [$value for $x in column]
    $y = $inner
    $take
print($show)
""",
    ),
    matrix,
    skip=_hides_column_change,
    code={**_READ, "groups": "zip(*rows)", "where": "", "test": "True"},
)

# Some cells by their place.

_BY_PLACE = (
    """\
$read
$xs = [$x for r, row in enumerate(rows) for c, $x in enumerate(row) if $inside]
$ys = [$value for $x in $xs$where]
print($whole)
""",
    """\
$read
$ys = []
for r, row in enumerate(rows):
    for c, $x in enumerate(row):
        if $inside:
            $collect
print($whole)
""",
    """\
$read
$start
for r, row in enumerate(rows):
    for c, $x in enumerate(row):
        if $inside:
            $follow
print($show)
""",
    """\
def main():
    $read
    $xs = []
    for r, row in enumerate(rows):
        for c, $x in enumerate(row):
            if $inside:
                $xs.append($x)
    $ys = [$value for $x in $xs$where]
    print($whole)


main()
""",
)

REGIONS = compose(
    "matrix-regions",
    {
        "cells": {
            "main": piece("on the diagonal from top left to bottom right", inside="r == c"),
            "other": piece("on the diagonal from top right to bottom left", inside="r + c == len(rows) - 1"),
            "above": piece("above the diagonal from top left to bottom right", inside="r < c"),
            "below": piece("below the diagonal from top left to bottom right", inside="r > c"),
            "rows": piece("in rows 0, 2, 4, ...", "in the rows with an even index", inside="r % 2 == 0"),
            "columns": piece("in columns 1, 3, 5, ...", "in the columns with an odd index", inside="c % 2 == 1"),
            "checker": piece("where row index + column index is even", inside="(r + c) % 2 == 0"),
        },
        "keep": FILTERS,
        "change": MAPS,
        "fold": FOLDS,
    },
    (
        "Read n, then n rows of n integers. Take the cells $cells, row by row (indices from 0)."
        " Print $fold $keep in them$change.",
        "The input is n and then n rows of a square matrix. Look row by row at the cells $cells (counting from 0)"
        " and print $fold $keep there$change.",
    ),
    _BY_PLACE,
    _square,
    skip=lambda cells, keep, change, fold: idle(keep, change, fold),
    code=_READ,
)

NEIGHBOURS = compose(
    "matrix-neighbours",
    {
        "near": {
            "sides": piece("above, below, left and right of it", inside="abs(r - a) + abs(c - b) == 1"),
            "corners": piece("that touch it only at a corner", inside="abs(r - a) * abs(c - b) == 1"),
            "around": piece("around it, corners included", inside="max(abs(r - a), abs(c - b)) == 1"),
            "row": piece("in its row, itself left out", inside="r == a and c != b"),
            "column": piece("in its column, itself left out", inside="c == b and r != a"),
        },
        "change": MAPS,
        "fold": only(FOLDS, "sum", "max", "min", "distinct", "ascending", "span"),
    },
    (
        "Read n, then n rows of integers, then the row and column of a cell (from 0). Take the numbers $near."
        " Print $fold these numbers$change.",
        "The input is n, a matrix of n rows, and a line a b: the cell in row a, column b (both from 0)."
        " Print $fold the numbers $near$change.",
    ),
    _BY_PLACE,
    lambda rng: matrix(rng, (3, 5), (3, 4)) + line([rng.randint(0, 2), rng.randint(0, 2)]),
    skip=lambda near, change, fold: idle("any", change, fold),
    code={**EVERY.code, "read": f"{READ_MATRIX}\na, b = map(int, input().split())"},
)

FAMILIES: tuple[Family, ...] = (ROWS, COLUMNS, REGIONS, NEIGHBOURS)
