"""Families about small matrices: their cells, rows, columns and turns."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._compose import compose, folds, piece
from securecoderl_edge.starter.family import Family


def draw_rows(rng: random.Random, rows: int, columns: int, high: int = 9) -> str:
    """The lines of a matrix with entries from 0 to ``high``."""
    return "".join(" ".join(str(rng.randint(0, high)) for _ in range(columns)) + "\n" for _ in range(rows))


def _draw_square(rng: random.Random) -> str:
    size = rng.randint(2, 4)
    return f"{size}\n" + draw_rows(rng, size, size)


def _draw_small_square(rng: random.Random) -> str:
    size = rng.randint(2, 3)
    return f"{size}\n" + draw_rows(rng, size, size)


def draw_matrix(rng: random.Random) -> str:
    """A line with the numbers of rows and columns, and the matrix."""
    rows, columns = rng.randint(2, 4), rng.randint(2, 4)
    return f"{rows} {columns}\n" + draw_rows(rng, rows, columns)


EVENS = piece(
    "how many of them are even",
    "the number of even ones",
    whole="sum($x % 2 == 0 for $x in $xs)",
    start="0",
    step="if $x % 2 == 0:\n    $t += 1",
    show="$t",
)

CELLS = compose(
    "matrix-cells",
    {
        "cells": {
            "main": piece("on the main diagonal", "on the diagonal from top left to bottom right", inside="i == j"),
            "anti": piece("on the diagonal from top right to bottom left", inside="i + j == n - 1"),
            "border": piece(
                "on the border",
                "in the first or last row or column",
                inside="i in (0, n - 1) or j in (0, n - 1)",
            ),
            "above": piece("above the main diagonal", "strictly above the main diagonal", inside="i < j"),
            "below": piece("below the main diagonal", "strictly below the main diagonal", inside="i > j"),
            "checker": piece("whose row and column number have an even sum", inside="(i + j) % 2 == 0"),
            "rows": piece("in the odd-numbered rows (1st, 3rd, ...)", "in rows 1, 3, 5 and so on", inside="i % 2 == 0"),
            "columns": piece(
                "in the even-numbered columns (2nd, 4th, ...)",
                "in columns 2, 4 and so on",
                inside="j % 2 == 1",
            ),
            "corner": piece("on or above the diagonal from top right to bottom left", inside="i + j < n"),
        },
        "fold": {**folds("sum", "max", "squares", "distinct"), "evens": EVENS},
    },
    (
        "Read n, then n rows of n numbers. Take the numbers $cells (rows and columns count from 1) and print $fold.",
        "The first line has n, the next n lines an n x n matrix of digits. Of the entries $cells, print "
        "$fold."
        " The top left entry is row 1, column 1.",
    ),
    (
        """\
n = int(input())
grid = [$ints for _ in range(n)]
$xs = [grid[i][j] for i in range(n) for j in range(n) if $inside]
print($whole)
""",
        """\
n = int(input())
$t = $start
for i in range(n):
    row = $ints
    for j in range(n):
        if $inside:
            $x = row[j]
            $step
print($show)
""",
        """\
def inside(i, j, n):
    return $inside


n, *numbers = map(int, sys.stdin.read().split())
$t = $start
for place, $x in enumerate(numbers):
    i, j = divmod(place, n)
    if not inside(i, j, n):
        continue
    $step
print($show)
""",
    ),
    _draw_square,
)

LINES = compose(
    "matrix-lines",
    {
        "axis": {
            "row": piece("row", axis_name="row", lines="grid", each="for line in grid:", get=""),
            "column": piece(
                "column",
                axis_name="column",
                lines="zip(*grid)",
                each="for j in range(columns):",
                get="line = [row[j] for row in grid]",
            ),
        },
        "measure": {
            "sum": piece(
                "the sum",
                "the total",
                measure="sum(line)",
                measure_body="total = 0\nfor number in line:\n    total += number\nreturn total",
            ),
            "largest": piece(
                "the largest number",
                "the maximum",
                measure="max(line)",
                measure_body="best = line[0]\nfor number in line:\n    best = max(best, number)\nreturn best",
            ),
            "smallest": piece(
                "the smallest number",
                "the minimum",
                measure="min(line)",
                measure_body="least = line[0]\nfor number in line:\n    if number < least:\n"
                "        least = number\nreturn least",
            ),
            "spread": piece(
                "the largest minus the smallest number",
                "the maximum minus the minimum",
                measure="max(line) - min(line)",
                measure_body="ordered = sorted(line)\nreturn ordered[-1] - ordered[0]",
            ),
            "evens": piece(
                "the number of even entries",
                "how many even numbers it has",
                measure="sum(number % 2 == 0 for number in line)",
                measure_body="evens = 0\nfor number in line:\n    if number % 2 == 0:\n"
                "        evens += 1\nreturn evens",
            ),
            "ends": piece(
                "the first entry times the last one",
                "the product of its first and last entry",
                measure="line[0] * line[-1]",
                measure_body="first, *_, last = line\nreturn first * last",
            ),
        },
        "ask": {
            "list": piece("all results on one line", "the results in order, separated by spaces", ask="*$xs"),
            "largest": piece("the largest result", "the maximum of these results", ask="max($xs)"),
            "smallest": piece("the smallest result", "the minimum of these results", ask="min($xs)"),
            "which": piece(
                "the number of the first $axis_name with the largest result, counted from 1",
                ask="$xs.index(max($xs)) + 1",
            ),
            "sum": piece("the sum of the results", "the total of these results", ask="sum($xs)"),
        },
    },
    (
        "Read r and c, then r rows of c numbers. For each $axis, find $measure. Print $ask.",
        "The first line has the size of a matrix (rows, columns), the matrix follows. Compute $measure "
        "of every $axis and print $ask.",
    ),
    (
        """\
rows, columns = map(int, input().split())
grid = [$ints for _ in range(rows)]
$xs = [$measure for line in $lines]
print($ask)
""",
        """\
def measure(line):
    $measure_body


rows, columns = map(int, input().split())
grid = []
for _ in range(rows):
    grid.append($ints)
$xs = []
$each
    $get
    $xs.append(measure(line))
print($ask)
""",
    ),
    draw_matrix,
    # the same for rows and columns
    skip=lambda axis, measure, ask: (
        (measure, ask)
        in {
            ("sum", "sum"),
            ("evens", "sum"),
            ("largest", "largest"),
            ("smallest", "smallest"),
        }
    ),
)

TURNS = compose(
    "matrix-turns",
    {
        "turn": {
            "transpose": piece(
                "swap rows and columns",
                "transpose it",
                turned="[list(line) for line in zip(*grid)]",
                source="grid[j][i]",
            ),
            "right": piece(
                "rotate it by 90 degrees clockwise",
                "turn it a quarter clockwise",
                turned="[list(line) for line in zip(*grid[::-1])]",
                source="grid[n - 1 - j][i]",
            ),
            "left": piece(
                "rotate it by 90 degrees counterclockwise",
                "turn it a quarter counterclockwise",
                turned="[list(line) for line in zip(*grid)][::-1]",
                source="grid[j][n - 1 - i]",
            ),
            "half": piece(
                "rotate it by 180 degrees",
                "turn it upside down by half a turn",
                turned="[row[::-1] for row in grid[::-1]]",
                source="grid[n - 1 - i][n - 1 - j]",
            ),
            "down": piece(
                "reverse the order of its rows",
                "mirror it top to bottom",
                turned="grid[::-1]",
                source="grid[n - 1 - i][j]",
            ),
            "across": piece(
                "reverse every row",
                "mirror it left to right",
                turned="[row[::-1] for row in grid]",
                source="grid[i][n - 1 - j]",
            ),
            "anti": piece(
                "mirror it along the diagonal from top right to bottom left",
                turned="[list(line)[::-1] for line in zip(*grid)][::-1]",
                source="grid[n - 1 - j][n - 1 - i]",
            ),
        },
        "cell": {
            "plain": piece("the result", "the new matrix", cell="b"),
            "sum": piece("the sum of the old and the new matrix", cell="a + b"),
            "difference": piece("the old matrix minus the new one", cell="a - b"),
            "larger": piece("a matrix with the larger of the old and new entry in each place", cell="max(a, b)"),
            "product": piece("a matrix with the old entry times the new entry in each place", cell="a * b"),
            "glue": piece("a matrix with 10 times the old entry plus the new entry in each place", cell="10 * a + b"),
            "evens": piece("the new matrix with 0 in place of odd entries", cell="b if b % 2 == 0 else 0"),
        },
    },
    (
        "Read n, then an n x n matrix of digits; $turn. Print $cell, one row a line.",
        "The first line has n, the next n lines have n digits each. Take this matrix and $turn; then "
        "print $cell, row by row.",
    ),
    (
        """\
n = int(input())
grid = [$ints for _ in range(n)]
turned = $turned
for old, new in zip(grid, turned):
    print(*[$cell for a, b in zip(old, new)])
""",
        """\
def read_matrix(n):
    return [$ints for _ in range(n)]


n = int(input())
grid = read_matrix(n)
for i in range(n):
    $xs = []
    for j in range(n):
        a, b = grid[i][j], $source
        $xs.append($cell)
    print(" ".join(map(str, $xs)))
""",
    ),
    _draw_small_square,
)

FAMILIES: tuple[Family, ...] = (CELLS, LINES, TURNS)
