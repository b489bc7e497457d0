"""Hard families that carry out commands on a state of two or more parts."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._steps import Step, code, framed_family, step


def _draw_tokens(rng: random.Random) -> str:
    drawn = [str(rng.randint(1, 12)) for _ in range(7)]
    later = ["move", "take", *drawn[4:6], rng.choice(["move", "take"])]
    rng.shuffle(later)
    return " ".join([*drawn[:4], *later, rng.choice(["take", drawn[6]])]) + "\n"


_LIST_FRAMES = (
    code("""
        a, b = [], []
        $t = 0
        for word in input().split():
            if word == "move":
                @1
            elif word == "take":
                @2
            else:
                $x = int(word)
                @0
        @3
    """),
    code("""
        import sys
        words = sys.stdin.read().split()
        a = []
        b = []
        $t = 0
        for i in range(len(words)):
            if words[i].isdigit():
                $x = int(words[i])
                @0
            elif words[i] == "move":
                @1
            else:
                @2
        @3
    """),
)
_PUSHES = {
    "first": step("a.append($x)", "A number is put at the end of a."),
    "parity": step("(a if $x % 2 == 0 else b).append($x)", "An even number is put at the end of a, an odd one of b."),
    "shorter": step(
        "if len(a) <= len(b):\n    a.append($x)\nelse:\n    b.append($x)",
        "A number is put at the end of the shorter list (a if equal).",
    ),
}
_MOVES = {
    "last": step("if a:\n    b.append(a.pop())", "move takes the last of a (if any) to the end of b."),
    "all": step("b += a[::-1]\na = []", "move empties a and puts its numbers in reverse order at the end of b."),
    "swap": step("a, b = b, a", "move exchanges a and b."),
}
_TAKES = {
    "front": step("if b:\n    $t += b.pop(0)", "take removes the first of b (if any) and adds it to the total."),
    "least": step(
        "if a:\n    $x = min(a)\n    a.remove($x)\n    $t += $x",
        "take removes the smallest of a (if any) and adds it to the total.",
    ),
    "both": step(
        "if a and b:\n    $t += a.pop() * b.pop()",
        "take, if neither is empty, removes the last of both and adds their product to the total.",
    ),
}
_LIST_REPORTS = {
    "all": Step(
        ("At the end print a, b (each on one line, none if empty) and the total.",),
        (
            'print(*a or ["none"])\nprint(*b or ["none"])\nprint($t)',
            'for line in (a, b):\n    print(" ".join(map(str, line)) or "none")\nprint($t)',
        ),
    ),
    "sums": Step(
        ("At the end print the total, then the length and the sum of a, then those of b, one pair a line.",),
        (
            "print($t)\nprint(len(a), sum(a))\nprint(len(b), sum(b))",
            'print($t)\nfor line in (a, b):\n    print(f"{len(line)} {sum(line)}")',
        ),
    ),
}


def _draw_walk(rng: random.Random) -> str:
    rows, width = rng.randint(2, 3), rng.randint(2, 3)
    grid = [" ".join(str(rng.randint(1, 9)) for _ in range(width)) for _ in range(rows)]
    moves = "".join(rng.choice("UDLRDR") for _ in range(rng.randint(6, 8)))
    return "\n".join([str(rows), *grid, moves]) + "\n"


_WALK_FRAMES = (
    code("""
        h = int(input())
        grid = [list(map(int, input().split())) for _ in range(h)]
        w = len(grid[0])
        r = c = $t = 0
        seen = [(0, 0)]
        for move in input():
            r += (move == "D") - (move == "U")
            c += (move == "R") - (move == "L")
            @0
            @1
            seen.append((r, c))
        @2
    """),
    code("""
        steps = {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}
        grid = []
        for _ in range(int(input())):
            grid.append([int($x) for $x in input().split()])
        h, w = len(grid), len(grid[0])
        r, c = 0, 0
        $t = 0
        seen = [(r, c)]
        for move in input().strip():
            r, c = r + steps[move][0], c + steps[move][1]
            @0
            @1
            seen += [(r, c)]
        @2
    """),
)
_EDGES = {
    "wrap": step("r, c = r % h, c % w", "Leaving the table on one side enters it on the other."),
    "stop": Step(
        ("A move that would leave the table stays in place.",),
        ("r = min(max(r, 0), h - 1)\nc = min(max(c, 0), w - 1)",),
    ),
    "home": step(
        "if not (0 <= r < h and 0 <= c < w):\n    r = c = 0",
        "A move that would leave the table goes to the top left.",
    ),
}
_COLLECTS = {
    "new": step(
        "if (r, c) not in seen:\n    $t += grid[r][c]",
        "After each move onto a cell not visited before (the start is visited) add its number to the total.",
    ),
    "signs": step(
        "if (r, c) in seen:\n    $t -= grid[r][c]\nelse:\n    $t += grid[r][c]",
        "After each move add the cell's number to the total, or subtract it if the cell (or start) was visited before.",
    ),
    "wear": step(
        "$t += grid[r][c]\ngrid[r][c] //= 2",
        "After each move add the cell's number to the total and then halve that number (rounded down).",
    ),
}
_WALK_REPORTS = {
    "end": Step(
        ("Print the total and then the final row and column (from 0) on a second line.",),
        ("print($t)\nprint(r, c)", 'print(f"{$t}\\n{r} {c}")'),
    ),
    "map": Step(
        ("Print the total, then the table with # for visited cells and a dot for others.",),
        (
            code("""
                print($t)
                for i in range(h):
                    print("".join("#" if (i, j) in seen else "." for j in range(w)))
            """),
            code("""
                print($t)
                for i in range(h):
                    line = ""
                    for j in range(w):
                        line += "#" if (i, j) in seen else "."
                    print(line)
            """),
        ),
    ),
    "rows": Step(
        ("Print how many different cells of each row were visited on one line, then the total.",),
        (
            "print(*[len({p for p in seen if p[0] == i}) for i in range(h)])\nprint($t)",
            "$v = [0] * h\nfor i, j in set(seen):\n    $v[i] += 1\nprint(*$v)\nprint($t)",
        ),
    ),
    "returns": Step(
        ("Print how many moves ended on a cell (or the start) visited before, then the total times the final number.",),
        (
            "print(len(seen) - len(set(seen)))\nprint($t * grid[r][c])",
            "$v = [p for i, p in enumerate(seen) if p in seen[:i]]\nprint(len($v))\nprint($t * grid[r][c])",
        ),
    ),
}


FAMILIES = (
    framed_family(
        "two-lists",
        _draw_tokens,
        ("A line holds numbers and commands for two empty lists a and b and a total of 0.",),
        _LIST_FRAMES,
        _PUSHES,
        _MOVES,
        _TAKES,
        _LIST_REPORTS,
    ),
    framed_family(
        "table-walk",
        _draw_walk,
        ("Line 1 is n, then n rows of integers, then moves U, D, L, R from the top left cell; the total starts at 0.",),
        _WALK_FRAMES,
        _EDGES,
        _COLLECTS,
        _WALK_REPORTS,
    ),
)
