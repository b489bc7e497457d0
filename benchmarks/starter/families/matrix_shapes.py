"""Families about whole matrices: turned, changed, two at once."""

from __future__ import annotations

import random

from family import Family

from families._compose import Piece, compose, piece
from families._inputs import READ_MATRIX, matrix, matrix_rows
from families._pieces import CHANGES, CONDITIONS, FOLDS, MAPS, idle

_READ_AND_SHOW = {"read": READ_MATRIX, "show": "for line in result:\n    print(*line)"}


def _turn(turned: str, height: str, width: str, cell: str, *words: str) -> Piece:
    return piece(*words, turned=turned, height=height, width=width, cell=cell)


_AS_BEFORE = ("len(rows)", "len(rows[0])")
_SWAPPED = ("len(rows[0])", "len(rows)")

TURNED = compose(
    "matrix-turned",
    {
        "turn": {
            "transposed": _turn("zip(*rows)", *_SWAPPED, "rows[j][i]", "transposed", "with rows and columns swapped"),
            "upside-down": _turn("rows[::-1]", *_AS_BEFORE, "rows[-1 - i][j]", "upside down (last row first)"),
            "mirrored": _turn(
                "[row[::-1] for row in rows]", *_AS_BEFORE, "rows[i][-1 - j]", "mirrored (each row backwards)"
            ),
            "right": _turn("zip(*rows[::-1])", *_SWAPPED, "rows[-1 - j][i]", "turned clockwise by 90 degrees"),
            "left": _turn(
                "list(zip(*rows))[::-1]", *_SWAPPED, "rows[j][-1 - i]", "turned counterclockwise by 90 degrees"
            ),
            "half-turn": _turn(
                "[row[::-1] for row in rows[::-1]]", *_AS_BEFORE, "rows[-1 - i][-1 - j]", "turned by 180 degrees"
            ),
        },
        "change": MAPS,
    },
    (
        "Read n, then a matrix of n rows. Print all its numbers$change, as a matrix $turn.",
        "The input is n and then n rows of a matrix. Output its numbers$change, with the matrix $turn.",
    ),
    (
        """\
$read
for row in $turned:
    print(*[$value for $x in row])
""",
        """\
$read
result = []
for i in range($height):
    line = []
    for j in range($width):
        $x = $cell
        line.append($value)
    result.append(line)
$show
""",
        """\
def change($x):
    return $value


def turn(rows):
    return [[$cell for j in range($width)] for i in range($height)]


def main():
    $read
    for line in turn(rows):
        print(*map(change, line))


main()
""",
    ),
    lambda rng: matrix(rng, (2, 3), (2, 3)),
    code=_READ_AND_SHOW,
)

CHANGED = compose(
    "matrix-changed",
    {
        "keep": CONDITIONS,
        "change": CHANGES,
        "other": {
            "leave": piece("leave it", "keep it as it is", other="$x"),
            "zero": piece("make it 0", "put 0 in its place", other="0"),
            "dot": piece("write a dot", "put a dot in its place", other='"."'),
        },
    },
    (
        "Read n, then n rows of integers. For each number: if it $when, $how; otherwise $other. Print the new matrix.",
        "The input is n and then n rows of a matrix. Print the matrix after this change of every number: if it"
        " $when, $how; if not, $other.",
    ),
    (
        """\
n = int(input())
for _ in range(n):
    $xs = list(map(int, input().split()))
    print(*[$value if $test else $other for $x in $xs])
""",
        """\
$read
result = []
for row in rows:
    line = []
    for $x in row:
        if $test:
            line.append($value)
        else:
            line.append($other)
    result.append(line)
$show
""",
        """\
def change($x):
    if $test:
        return $value
    return $other


def main():
    $read
    for row in rows:
        print(*[change($x) for $x in row])


main()
""",
        """\
$read
for row in rows:
    for j, $x in enumerate(row):
        row[j] = $value if $test else $other
for row in rows:
    print(*row)
""",
    ),
    lambda rng: matrix(rng, (2, 3), (2, 4)),
    skip=lambda keep, change, other: idle(keep, change),
    code=_READ_AND_SHOW,
)

# Two matrices of the same size.


def _two_matrices(rng: random.Random) -> str:
    height, width = rng.randint(1, 2), rng.randint(2, 4)
    return f"{height}\n" + matrix_rows(rng, 2 * height, width)


PAIRED = compose(
    "matrix-pairs",
    {
        "mix": {
            "sum": piece("the sum", mix="a + b"),
            "difference": piece("the difference (A minus B)", mix="a - b"),
            "product": piece("the product", mix="a * b"),
            "larger": piece("the larger", mix="max(a, b)"),
            "smaller": piece("the smaller", mix="min(a, b)"),
        },
        "change": MAPS,
        "fold": FOLDS,
    },
    (
        "Read n, then n rows of matrix A, then n rows of matrix B. Make a matrix of $mix of the two numbers at each"
        " place. For each of its rows, print $fold its numbers$change.",
        "The input is n and two matrices A and B of n rows each. From each place take $mix of its two numbers. For each"
        " row, print a line: $fold the results$change.",
        "First comes n, then table A and below it table B, n rows high each. Cell by cell, make one number of them: "
        "$mix of both entries. Every new row has its own output line, $fold the numbers there$change.",
        "After n follow 2n rows: the first half is A, the other half is B. Lay A over B, so that equal places meet, "
        "and let every cell be $mix of the two numbers there. A row of this gives one line of output, $fold its "
        "cells$change.",
    ),
    (
        """\
$read
for left, right in zip(rows, rows[n:]):
    $xs = [$mix for a, b in zip(left, right)]
    $ys = [$value for $x in $xs]
    print($whole)
""",
        """\
$read
first, second = rows[:n], rows[n:]
for i in range(n):
    $ys = []
    for j in range(len(first[i])):
        a, b = first[i][j], second[i][j]
        $x = $mix
        $ys.append($value)
    print($whole)
""",
        """\
def mix(a, b):
    return $mix


def change($x):
    return $value


def main():
    $read
    for left, right in zip(rows[:n], rows[n:]):
        $ys = [change(mix(a, b)) for a, b in zip(left, right)]
        print($whole)


main()
""",
        """\
$read
first, second = rows[:n], rows[n:]
for left, right in zip(first, second):
    $start
    for a, b in zip(left, right):
        $x = $mix
        $y = $value
        $take
    print($show)
""",
    ),
    _two_matrices,
    skip=lambda mix, change, fold: idle("any", change, fold),
    code={"read": READ_MATRIX.replace("range(n)", "range(2 * n)")},
)

FAMILIES: tuple[Family, ...] = (TURNED, CHANGED, PAIRED)
