"""Families about grids of characters: cells and their neighbours, runs in lines, and light that spreads."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._compose import compose, piece
from securecoderl_edge.starter.family import Family


def draw_grid(rng: random.Random, letters: str, smallest: int = 3) -> str:
    """Lines of one length made of ``letters``; a letter given twice comes twice as often."""
    rows, columns = rng.randint(smallest, 4), rng.randint(smallest, 5)
    return "".join("".join(rng.choices(letters, k=columns)) + "\n" for _ in range(rows))


CROWDS = compose(
    "grid-crowds",
    {
        "near": {
            "four": piece(
                "up, down, left and right",
                steps="((-1, 0), (1, 0), (0, -1), (0, 1))",
                near="abs(p - i) + abs(q - j) == 1",
            ),
            "diagonal": piece(
                "in the 4 diagonal directions",
                steps="((-1, -1), (-1, 1), (1, -1), (1, 1))",
                near="abs(p - i) == abs(q - j) == 1",
            ),
            "eight": piece(
                "in all 8 directions",
                steps="[(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b]",
                near="max(abs(p - i), abs(q - j)) == 1",
            ),
        },
        "kind": {
            "filled": piece("'#' cells", "cells with '#'", letter="#"),
            "empty": piece("'.' cells", "cells with '.'", letter="."),
        },
        "crowd": {
            "none": piece("no '#' neighbour", "not a single '#' neighbour", crowd="near == 0"),
            "one": piece("exactly one '#' neighbour", "just one neighbour with '#'", crowd="near == 1"),
            "some": piece("at least two '#' neighbours", "two or more '#' neighbours", crowd="near >= 2"),
            "odd": piece("an odd number of '#' neighbours", crowd="near % 2 == 1"),
        },
        "ask": {
            "count": piece(
                "how many there are",
                "their number",
                start="0",
                step="found += 1",
                show="found",
                whole="len(places)",
            ),
            "rows": piece(
                "for each row how many there are, on one line",
                start="[0] * len(grid)",
                step="found[i] += 1",
                show="*found",
                whole="*[sum(p == i for p, _ in places) for i in range(len(grid))]",
            ),
        },
    },
    (
        "Read a grid of '#' and '.' until the end of the input. Neighbours are $near. Find the $kind "
        "with $crowd and print $ask.",
        "The input is a rectangle of '#' and '.'. A cell's neighbours are those $near (inside the grid). "
        "Of the $kind that"
        " have $crowd, print $ask.",
    ),
    (
        """\
grid = sys.stdin.read().split()
found = $start
for i, row in enumerate(grid):
    for j, cell in enumerate(row):
        near = 0
        for a, b in $steps:
            if 0 <= i + a < len(grid) and 0 <= j + b < len(row):
                near += grid[i + a][j + b] == "#"
        if cell == "$letter" and $crowd:
            $step
print($show)
""",
        """\
def crowd(i, j, filled):
    return sum($near for p, q in filled)


grid = [line.strip() for line in sys.stdin]
cells = {(i, j): cell for i, row in enumerate(grid) for j, cell in enumerate(row)}
filled = [place for place, cell in cells.items() if cell == "#"]
places = []
for (i, j), cell in cells.items():
    near = crowd(i, j, filled)
    if cell == "$letter" and $crowd:
        places.append((i, j))
print($whole)
""",
    ),
    lambda rng: draw_grid(rng, "##..."),
    # three of the four are seldom filled, so mostly the same as exactly one
    skip=lambda near, kind, crowd, ask: (near, crowd) == ("diagonal", "odd"),
)

RUNS = compose(
    "grid-runs",
    {
        "line": {
            "row": piece("row", line_name="row", lines="grid", each="for line in grid:", get=""),
            "column": piece(
                "column",
                line_name="column",
                lines="zip(*grid)",
                each="for j in range(len(grid[0])):",
                get="line = [row[j] for row in grid]",
            ),
        },
        "run": {
            "a": piece("of the letter a", "of a's", keeps='letter == "a"', fresh="0", whole='set(part) == {"a"}'),
            "not-a": piece(
                "of letters other than a",
                "without the letter a",
                keeps='letter != "a"',
                fresh="0",
                whole='"a" not in part',
            ),
            "equal": piece(
                "of equal letters",
                "of one and the same letter",
                keeps="letter == before",
                fresh="1",
                whole="len(set(part)) == 1",
            ),
            "sorted": piece(
                "of letters in alphabetical order (equal ones allowed)",
                keeps="letter >= before",
                fresh="1",
                whole="list(part) == sorted(part)",
            ),
        },
        "ask": {
            "list": piece("the lengths in order on one line", ask="*$xs"),
            "longest": piece("the largest of these lengths", "the greatest length", ask="max($xs)"),
            "shortest": piece("the smallest of these lengths", "the least length", ask="min($xs)"),
            "sum": piece("the sum of these lengths", "their total", ask="sum($xs)"),
            "which": piece(
                "the number (from 1) of the first $line_name with the greatest length",
                ask="$xs.index(max($xs)) + 1",
            ),
            "squares": piece("the sum of the squares of these lengths", ask="sum($x * $x for $x in $xs)"),
        },
    },
    (
        "Read a grid of letters a, b and c. In each $line, find the length of the longest run $run (0 if "
        "there is none). Print $ask.",
        "The input is a rectangle of the letters a, b, c. For every $line, take the length of the "
        "longest unbroken run $run"
        " or 0. Print $ask.",
    ),
    (
        """\
def longest_run(line):
    best = run = 0
    before = ""
    for letter in line:
        if $keeps:
            run += 1
        else:
            run = $fresh
        best = max(best, run)
        before = letter
    return best


grid = sys.stdin.read().split()
$xs = [longest_run(line) for line in $lines]
print($ask)
""",
        """\
grid = [line.strip() for line in sys.stdin]
$xs = []
$each
    $get
    best = 0
    for start in range(len(line)):
        for end in range(start + 1, len(line) + 1):
            part = line[start:end]
            if $whole:
                best = max(best, end - start)
    $xs.append(best)
print($ask)
""",
    ),
    lambda rng: draw_grid(rng, "aabbc"),
    # nearly always 1
    skip=lambda line, run, ask: (run, ask) == ("equal", "shortest"),
)

SPREADS = compose(
    "grid-light",
    {
        "way": {
            "right": piece("to the right", steps="[(0, 1)]"),
            "left": piece("to the left", steps="[(0, -1)]"),
            "down": piece("downwards", steps="[(1, 0)]"),
            "up": piece("upwards", steps="[(-1, 0)]"),
            "sides": piece("to the left and to the right", steps="[(0, -1), (0, 1)]"),
            "vertical": piece("upwards and downwards", steps="[(-1, 0), (1, 0)]"),
            "corner": piece("to the right and downwards (each in a straight line)", steps="[(0, 1), (1, 0)]"),
            "all": piece(
                "in the four directions (each in a straight line)", steps="[(0, 1), (0, -1), (1, 0), (-1, 0)]"
            ),
        },
        "ask": {
            "grid": piece(
                "the grid with + in all lit '.' cells",
                ask="for i, row in enumerate(grid):\n"
                '    print("".join("+" if (i, j) in lit else cell for j, cell in enumerate(row)))',
            ),
            "lit": piece("how many '.' cells are lit", ask="print(len(lit))"),
            "dark": piece("how many '.' cells stay dark", ask='print("".join(grid).count(".") - len(lit))'),
            "rows": piece(
                "the number of lit '.' cells in each row, on one line",
                ask="print(*[sum(p == i for p, _ in lit) for i in range(len(grid))])",
            ),
            "columns": piece(
                "the number of lit '.' cells in each column, on one line",
                ask="print(*[sum(q == j for _, q in lit) for j in range(len(grid[0]))])",
            ),
        },
    },
    (
        "Read a grid of lamps '*', walls '#' and floor '.'. Each lamp shines $way over floor until a "
        "wall, another"
        " lamp or the edge. Print $ask.",
        "In a grid of '*', '#' and '.', light from every '*' goes $way through '.' cells, and '#' or '*' "
        "stops it."
        " Print $ask.",
    ),
    (
        """\
grid = sys.stdin.read().split()
lit = set()
cells = {(i, j): cell for i, row in enumerate(grid) for j, cell in enumerate(row)}
for (i, j), cell in cells.items():
    if cell == "*":
        for a, b in $steps:
            p, q = i + a, j + b
            while cells.get((p, q)) == ".":
                lit.add((p, q))
                p, q = p + a, q + b
$ask
""",
        """\
def shine(i, j, a, b):
    i, j = i + a, j + b
    if cells.get((i, j)) == ".":
        lit.add((i, j))
        shine(i, j, a, b)


grid = [line.strip() for line in sys.stdin]
cells, lit = {}, set()
for i, row in enumerate(grid):
    cells.update({(i, j): cell for j, cell in enumerate(row)})
for i, j in cells:
    if cells[i, j] == "*":
        for a, b in $steps:
            shine(i, j, a, b)
$ask
""",
    ),
    lambda rng: draw_grid(rng, "*#...", smallest=2),
)

FAMILIES: tuple[Family, ...] = (CROWDS, RUNS, SPREADS)
