"""Families about ways through a matrix: neighbours, sorted rows and orders of reading."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._compose import compose, piece
from securecoderl_edge.starter.families.matrices import draw_matrix, draw_rows
from securecoderl_edge.starter.family import Family


def _draw_repetitive_matrix(rng: random.Random) -> str:
    rows, columns = rng.randint(2, 3), rng.randint(2, 4)
    return f"{rows} {columns}\n" + draw_rows(rng, rows, columns, high=5)


NEIGHBOURS = compose(
    "matrix-neighbours",
    {
        "near": {
            "four": piece(
                "up, down, left and right",
                "above, below, left and right",
                near="abs(p - i) + abs(q - j) == 1",
                steps="[(-1, 0), (1, 0), (0, -1), (0, 1)]",
            ),
            "eight": piece(
                "in all 8 directions",
                "in the 8 places around it",
                near="max(abs(p - i), abs(q - j)) == 1",
                steps="[(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]",
            ),
            "sides": piece(
                "left and right only",
                "directly left and right",
                near="p == i and abs(q - j) == 1",
                steps="[(0, -1), (0, 1)]",
            ),
            "diagonal": piece(
                "in the 4 diagonal directions",
                "diagonally, in 4 directions",
                near="abs(p - i) == 1 and abs(q - j) == 1",
                steps="[(-1, -1), (-1, 1), (1, -1), (1, 1)]",
            ),
        },
        "test": {
            "peak": piece("larger than all its neighbours", "greater than every neighbour", test="$x > max(around)"),
            "pit": piece("smaller than all its neighbours", "less than every neighbour", test="$x < min(around)"),
            "twin": piece(
                "equal to at least one neighbour",
                "the same as one of its neighbours or more",
                test="$x in around",
            ),
            "light": piece(
                "less than the sum of its neighbours",
                "below the sum of its neighbours",
                test="$x < sum(around)",
            ),
        },
        "ask": {
            "count": piece(
                "how many there are",
                "their count",
                start="0",
                step="$t += 1",
                show="$t",
                value="1",
                whole="sum($xs)",
            ),
            "sum": piece(
                "their sum",
                "the sum of them",
                start="0",
                step="$t += $x",
                show="$t",
                value="$x",
                whole="sum($xs)",
            ),
            "first": piece(
                "row and column (from 1) of the first of them in reading order, or none",
                start='"none"',
                step='if $t == "none":\n    $t = f"{i + 1} {j + 1}"',
                show="$t",
                value='f"{i + 1} {j + 1}"',
                whole='$xs[0] if $xs else "none"',
            ),
        },
    },
    (
        "Read r and c, then r rows of c numbers. Neighbours are $near, inside the matrix. Of the entries "
        "$test, print $ask.",
        "After the size (rows, columns) comes a matrix. The neighbours of an entry are those $near that "
        "exist."
        " Find the entries $test and print $ask.",
    ),
    (
        """\
rows, columns = map(int, input().split())
grid = [$ints for _ in range(rows)]
$t = $start
for i in range(rows):
    for j in range(columns):
        $x = grid[i][j]
        around = []
        for a, b in $steps:
            if 0 <= i + a < rows and 0 <= j + b < columns:
                around.append(grid[i + a][j + b])
        if $test:
            $step
print($show)
""",
        """\
rows, columns = map(int, input().split())
cells = {}
for i in range(rows):
    for j, number in enumerate(input().split()):
        cells[i, j] = int(number)
$xs = []
for (i, j), $x in cells.items():
    around = [cells[p, q] for p, q in cells if $near]
    if $test:
        $xs.append($value)
print($whole)
""",
    ),
    _draw_repetitive_matrix,
    # nearly always the top left entry
    skip=lambda near, test, ask: (test, ask) == ("light", "first"),
)

SORTED_ROWS = compose(
    "matrix-sorted-rows",
    {
        "key": {
            "sum": piece("their sum", "the sum of the row", key="sum(row)"),
            "largest": piece("their largest number", "the maximum of the row", key="max(row)"),
            "last": piece("their last number", "the last number of the row", key="row[-1]"),
            "distinct": piece(
                "how many different numbers they have", "the count of distinct numbers", key="len(set(row))"
            ),
            "odds": piece(
                "how many odd numbers they have",
                "the count of odd numbers",
                key="sum(number % 2 for number in row)",
            ),
            "spread": piece("their largest minus their smallest number", key="max(row) - min(row)"),
        },
        "order": {
            "up": piece("from smallest to largest", "in increasing order", tail="", before="<"),
            "down": piece("from largest to smallest", "in decreasing order", tail=", reverse=True", before=">"),
        },
        "ask": {
            "rows": piece("the sorted matrix", "the rows in this order", ask="for row in ordered:\n    print(*row)"),
            "first": piece("the first column after sorting, on one line", ask="print(*[row[0] for row in ordered])"),
            "numbers": piece(
                "the original numbers of the rows (from 1) in the new order, on one line",
                ask="print(*[grid.index(row) + 1 for row in ordered])",
            ),
            "weighted": piece(
                "the sum of each first number times the new position of its row (from 1)",
                ask="print(sum(place * row[0] for place, row in enumerate(ordered, 1)))",
            ),
        },
    },
    (
        "Read r and c, then r different rows of c numbers. Sort the rows by $key, $order; ties keep "
        "their order. Print $ask.",
        "The first line has the size (rows, columns) of a matrix without equal rows; the matrix follows. "
        "Order its rows by"
        " $key, $order (equal ones stay in input order), and print $ask.",
    ),
    (
        """\
rows, columns = map(int, input().split())
grid = [$ints for _ in range(rows)]
ordered = sorted(grid, key=lambda row: $key$tail)
$ask
""",
        """\
def measure(row):
    return $key


rows, columns = map(int, input().split())
grid, ordered = [], []
for _ in range(rows):
    row = $ints
    grid.append(row)
    place = len(ordered)
    while place > 0 and measure(row) $before measure(ordered[place - 1]):
        place -= 1
    ordered.insert(place, row)
$ask
""",
    ),
    lambda rng: (
        f"{(rows := rng.randint(3, 4))} {(columns := rng.randint(2, 3))}\n"
        + "".join(
            " ".join([str(first), *map(str, rng.choices(range(10), k=columns - 1))]) + "\n"
            for first in rng.sample(range(10), rows)
        )
    ),
)

WALKS = compose(
    "matrix-walks",
    {
        "order": {
            "columns": piece(
                "column by column from the left, each from top to bottom",
                rank="(j, i)",
                walk="for j in range(columns):\n    for i in range(rows):\n        $xs.append(grid[i][j])",
            ),
            "columns-back": piece(
                "column by column from the right, each from top to bottom",
                rank="(-j, i)",
                walk="for j in reversed(range(columns)):\n    for row in grid:\n        $xs.append(row[j])",
            ),
            "snake": piece(
                "row by row, the 1st row from the left, the 2nd from the right, and so on in turn",
                rank="(i, -j if i % 2 else j)",
                walk="for i, row in enumerate(grid):\n    $xs.extend(row[::-1] if i % 2 else row)",
            ),
            "snake-columns": piece(
                "column by column, the 1st downwards, the 2nd upwards, and so on in turn",
                rank="(j, -i if j % 2 else i)",
                walk="for j in range(columns):\n    column = [row[j] for row in grid]\n"
                "    if j % 2 == 1:\n        column.reverse()\n    $xs.extend(column)",
            ),
            "diagonals": piece(
                "along the diagonals that run down to the left, starting at the top left, each from its top end",
                rank="(i + j, i)",
                walk="for d in range(rows + columns - 1):\n    for i in range(rows):\n"
                "        if 0 <= d - i < columns:\n            $xs.append(grid[i][d - i])",
            ),
            "diagonals-up": piece(
                "along the diagonals that run up to the right, starting at the top left, each from its bottom end",
                rank="(i + j, j)",
                walk="for d in range(rows + columns - 1):\n    for j in range(columns):\n"
                "        if 0 <= d - j < rows:\n            $xs.append(grid[d - j][j])",
            ),
        },
        "ask": {
            "all": piece("the numbers in this order", "all numbers in this order on one line", ask="*$xs"),
            "alternating": piece(
                "the first number minus the second plus the third, and so on",
                ask="sum($xs[::2]) - sum($xs[1::2])",
            ),
            "place": piece(
                "the position (from 1) of the first largest number in this order",
                ask="$xs.index(max($xs)) + 1",
            ),
            "climbs": piece(
                "how often a number is larger than the one before",
                ask="sum(a < b for a, b in zip($xs, $xs[1:]))",
            ),
            "jump": piece(
                "the largest absolute difference of two consecutive numbers",
                ask="max(abs(a - b) for a, b in zip($xs, $xs[1:]))",
            ),
            "weighted": piece(
                "the sum of each number times its position (from 1)",
                ask="sum(place * number for place, number in enumerate($xs, 1))",
            ),
            "second": piece(
                "every second number, starting with the second",
                "the 2nd, 4th, 6th ... number",
                ask="*$xs[1::2]",
            ),
        },
    },
    (
        "Read r and c, then r rows of c numbers. Go through the matrix $order. Print $ask.",
        "The size (rows, columns) and then a matrix are given. Visit its numbers $order, and print $ask.",
    ),
    (
        """\
rows, columns = map(int, input().split())
grid = [$ints for _ in range(rows)]
$xs = []
$walk
print($ask)
""",
        """\
def rank(place):
    i, j = place
    return $rank


rows, columns = map(int, input().split())
grid = [$ints for _ in range(rows)]
places = [(i, j) for i in range(rows) for j in range(columns)]
$xs = [grid[i][j] for i, j in sorted(places, key=rank)]
print($ask)
""",
    ),
    draw_matrix,
    # both ways change direction so that the sign alternates like on a chess board
    skip=lambda order, ask: (order, ask) == ("snake-columns", "alternating"),
)

FAMILIES: tuple[Family, ...] = (NEIGHBOURS, SORTED_ROWS, WALKS)
