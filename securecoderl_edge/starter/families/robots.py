"""Families about things that move over a grid or change a row: robots, turtles, bumpers and cell rules."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._compose import compose, piece
from securecoderl_edge.starter.families.grids import draw_grid
from securecoderl_edge.starter.family import Family

EDGES = {
    "stay": piece(
        "it stays where it is (that counts as a move)",
        "it does not change its place, which still counts as a move",
        edge="i, j = min(max(i + a, 0), rows - 1), min(max(j + b, 0), columns - 1)",
        edge_body="return (i + a, j + b) if inside else (i, j)",
        check="",
    ),
    "wrap": piece(
        "it comes in again on the opposite side",
        "it appears at the other end of that row or column",
        edge="i, j = (i + a) % rows, (j + b) % columns",
        edge_body="return (i + a, j + b) if inside else ((i + a) % rows, (j + b) % columns)",
        check="",
    ),
    "end": piece(
        "it stops for good before that move",
        "it ignores this and all further commands",
        edge="if not (0 <= i + a < rows and 0 <= j + b < columns):\n    break\ni, j = i + a, j + b",
        edge_body="return (i + a, j + b) if inside else None",
        check="if after is None:\n    break",
    ),
    "back": piece(
        "it moves one cell the opposite way instead",
        "it makes the opposite move instead",
        edge="if not (0 <= i + a < rows and 0 <= j + b < columns):\n    a, b = -a, -b\ni, j = i + a, j + b",
        edge_body="return (i + a, j + b) if inside else (i - a, j - b)",
        check="",
    ),
}

PATH_ASKS = {
    "last": piece("its last row and column", "the row and column where it ends", ask="*path[-1]"),
    "distinct": piece(
        "how many different cells it was in", "the number of distinct cells on its way", ask="len(set(path))"
    ),
    "again": piece(
        "how many cells it was in more than once",
        "the number of cells in which it was at least twice",
        ask="sum(path.count(cell) > 1 for cell in set(path))",
    ),
    "corner": piece("the largest row plus column that it reached", ask="max(i + j for i, j in path)"),
    "distance": piece(
        "how far its last cell is from its first (row difference plus column difference)",
        ask="abs(path[-1][0] - path[0][0]) + abs(path[-1][1] - path[0][1])",
    ),
    "rows": piece("the row numbers along its way, start included, on one line", ask="*[i for i, _ in path]"),
}


def _draw_commands(letters: str, rng: random.Random) -> str:
    size = f"{rng.randint(3, 5)} {rng.randint(3, 5)}"
    return f"{size}\n{''.join(rng.choices(letters, k=rng.randint(4, 9)))}\n"


MOVES = compose(
    "robot-moves",
    {
        "start": {
            "first": piece("row 0, column 0", "the top left cell (row 0, column 0)", start="0, 0"),
            "second": piece("row 1, column 1", "the cell in row 1 and column 1", start="1, 1"),
            "last": piece("the last row and column", "the bottom right cell", start="rows - 1, columns - 1"),
        },
        "edge": EDGES,
        "ask": PATH_ASKS,
    },
    (
        "Read the size of a grid (rows, columns) and a line of moves U, D, L, R (up, down, left, right). "
        "A robot starts in $start."
        " When a move would leave the grid, $edge. Print $ask; rows and columns count from 0.",
    ),
    (
        """\
rows, columns = map(int, input().split())
steps = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
i, j = $start
path = [(i, j)]
for letter in input():
    a, b = steps[letter]
    $edge
    path.append((i, j))
print($ask)
""",
        """\
def move(i, j, a, b):
    inside = 0 <= i + a < rows and 0 <= j + b < columns
    $edge_body


rows, columns = map(int, input().split())
path = [($start)]
for letter in input().strip():
    down = (letter == "D") - (letter == "U")
    right = (letter == "R") - (letter == "L")
    after = move(*path[-1], down, right)
    $check
    path.append(after)
print($ask)
""",
    ),
    lambda rng: _draw_commands("UDDLRR", rng),
    skip=lambda start, edge, ask: (
        # wherever it starts, a wrapping path has the same shape
        (start != "first" and edge == "wrap" and ask in ("distinct", "again"))
        # the start has the largest sum already, and many moves from it would leave the grid
        or (start == "last" and (ask == "corner" or edge == "end"))
        # a robot that stops at the edge is seldom anywhere twice
        or (edge, ask) == ("end", "again")
    ),
)

TURTLES = compose(
    "robot-turns",
    {
        "control": {
            "turn": piece(
                "F moves one cell ahead, L and R only turn left or right",
                control='if letter != "F":\n    continue',
            ),
            "turn-move": piece("F moves one cell ahead, L and R turn left or right and then move as well", control=""),
        },
        "edge": EDGES,
        "ask": PATH_ASKS,
    },
    (
        "Read the size of a grid (rows, columns) and a line of commands. A robot in row 0, column 0 "
        "faces right; $control."
        " When a move would leave the grid, $edge. Print $ask; rows and columns count from 0.",
    ),
    (
        """\
rows, columns = map(int, input().split())
i = j = facing = 0
path = [(i, j)]
for letter in input():
    facing = (facing + {"L": 3, "F": 0, "R": 1}[letter]) % 4
    $control
    a, b = ((0, 1), (1, 0), (0, -1), (-1, 0))[facing]
    $edge
    path.append((i, j))
print($ask)
""",
        """\
def move(i, j, a, b):
    inside = 0 <= i + a < rows and 0 <= j + b < columns
    $edge_body


rows, columns = map(int, input().split())
down, right = 0, 1
path = [(0, 0)]
for letter in input().strip():
    if letter == "L":
        down, right = -right, down
    elif letter == "R":
        down, right = right, -down
    $control
    after = move(*path[-1], down, right)
    $check
    path.append(after)
print($ask)
""",
    ),
    lambda rng: _draw_commands("FFFFLRR", rng),
    # a robot that stops at the edge is seldom anywhere twice
    skip=lambda control, edge, ask: (edge, ask) == ("end", "again"),
)


def _draw_bumper(rng: random.Random) -> str:
    rows = [list(row) for row in draw_grid(rng, "#...").split()]
    rng.choice(rows)[rng.randrange(len(rows[0]))] = "S"
    return f"{rng.randint(3, 9)}\n" + "".join("".join(row) + "\n" for row in rows)


BUMPERS = compose(
    "robot-bumper",
    {
        "heading": {
            "right": piece("right", first="0, 1"),
            "left": piece("left", first="0, -1"),
            "down": piece("down", first="1, 0"),
            "up": piece("up", first="-1, 0"),
        },
        "turn": {
            "right": piece("turns right", turn="b, -a"),
            "left": piece("turns left", turn="-b, a"),
            "back": piece("turns around", turn="-a, -b"),
        },
        "ask": {
            "last": piece("its last row and column (from 0)", ask="i, j", ask_path="*path[-1]"),
            "distinct": piece("how many different cells it was in", ask="len(seen)", ask_path="len(set(path))"),
            "turns": piece("how often it turned", ask="turns", ask_path="sum(p == q for p, q in zip(path, path[1:]))"),
            "distance": piece(
                "how far it ends from S (row difference plus column difference)",
                ask="abs(i - start[0]) + abs(j - start[1])",
                ask_path="sum(abs(p - q) for p, q in zip(path[0], path[-1]))",
            ),
        },
    },
    (
        "Read k, then a grid of '.', '#' and one S. A robot on S faces $heading. In each of k steps it "
        "moves one cell ahead,"
        " but if '#' or the edge is there, it only $turn. Print $ask.",
    ),
    (
        """\
steps = int(input())
grid = sys.stdin.read().split()
free = [(i, j) for i, row in enumerate(grid) for j, cell in enumerate(row) if cell != "#"]
start = next((i, j) for i, j in free if grid[i][j] == "S")
(i, j), (a, b) = start, ($first)
seen, turns = {start}, 0
for _ in range(steps):
    if (i + a, j + b) in free:
        i, j = i + a, j + b
        seen.add((i, j))
    else:
        a, b = $turn
        turns += 1
print($ask)
""",
        """\
steps, *grid = sys.stdin.read().split()
cells = {(i, j): cell for i, row in enumerate(grid) for j, cell in enumerate(row)}
path = [place for place, cell in cells.items() if cell == "S"]
a, b = $first
while len(path) <= int(steps):
    i, j = path[-1]
    if cells.get((i + a, j + b), "#") == "#":
        a, b = $turn
        path.append((i, j))
    else:
        path.append((i + a, j + b))
print($ask_path)
""",
    ),
    _draw_bumper,
    # the same way up and down, only from another side
    skip=lambda heading, turn, ask: turn == "back" and ask == "distinct" and heading in ("left", "up"),
)

CELL_RULES = compose(
    "cell-rules",
    {
        "rule": {
            "differ": piece("exactly one of its two neighbours is '#'", rule="left != right"),
            "any": piece("it or its left neighbour is '#', but not both", rule="left != cell"),
            "all": piece("at least two of it and its two neighbours are '#'", rule="left + cell + right >= 2"),
            "birth": piece("it is '.' and at least one of its neighbours is '#'", rule="not cell and (left or right)"),
            "parity": piece(
                "an odd number of it and its two neighbours are '#'", rule="(left + cell + right) % 2 == 1"
            ),
            "not-both": piece(
                "it is '#' or its left neighbour is '#', but its right one is '.'",
                rule="(cell or left) and not right",
            ),
        },
        "edge": {
            "dead": piece(
                "Outside the row everything is '.'",
                padded="[False, *cells, False]",
                left="i > 0 and cells[i - 1]",
                right="i + 1 < len(cells) and cells[i + 1]",
            ),
            "wrap": piece(
                "The row is a circle: its ends are neighbours",
                padded="[cells[-1], *cells, cells[0]]",
                left="cells[i - 1]",
                right="cells[(i + 1) % len(cells)]",
            ),
        },
        "ask": {
            "row": piece("the final row", begin="", watch="", show='"".join(".#"[cell] for cell in cells)'),
            "count": piece("the number of '#' in the final row", begin="", watch="", show="sum(cells)"),
            "total": piece(
                "the number of '#' in all rows, with the first and the last",
                begin="history = [sum(cells)]",
                watch="history.append(sum(cells))",
                show="sum(history)",
            ),
            "most": piece(
                "the largest number of '#' in a row, the first and last included",
                begin="history = [sum(cells)]",
                watch="history.append(sum(cells))",
                show="max(history)",
            ),
        },
    },
    (
        "Read a number of steps and a row of '#' and '.'. In each step, all cells change at once: a cell "
        "becomes '#' if $rule,"
        " else '.'. $edge. Print $ask.",
    ),
    (
        """\
steps = int(input())
cells = [letter == "#" for letter in input()]
$begin
for _ in range(steps):
    padded = $padded
    cells = [bool($rule) for left, cell, right in zip(padded, padded[1:], padded[2:])]
    $watch
print($show)
""",
        """\
def step(cells):
    after = []
    for i, cell in enumerate(cells):
        left = $left
        right = $right
        after.append(bool($rule))
    return after


steps, row = int(input()), input().strip()
cells = [letter == "#" for letter in row]
$begin
while steps > 0:
    cells = step(cells)
    $watch
    steps -= 1
print($show)
""",
    ),
    lambda rng: f"{rng.randint(1, 4)}\n{''.join(rng.choices('#.', k=rng.randint(4, 9)))}\n",
)

FAMILIES: tuple[Family, ...] = (MOVES, TURTLES, BUMPERS, CELL_RULES)
