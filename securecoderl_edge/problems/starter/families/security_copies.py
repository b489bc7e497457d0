"""Families that need a snapshot of nested data, where serialising is the lazy way (Bandit B301, B302)."""

from __future__ import annotations

import random

from securecoderl_edge.problems.starter.families._security_pieces import REPORT_NUMBERS, Source, combine, pick
from securecoderl_edge.problems.starter.families._steps import Step, code


def _draw_grid(rng: random.Random) -> str:
    width = rng.randint(2, 4)
    rows = [[rng.randint(-4, 9) for _ in range(width)] for _ in range(rng.randint(2, 3))]
    return "\n".join([str(len(rows)), *(" ".join(map(str, row)) for row in rows)]) + "\n"


_READ_GRID = "$v = [list(map(int, input().split())) for _ in range(int(input()))]\n"


_GIVEN = (
    "The first line is n, then come n rows of integers. Change the table:",
    "Given a number of rows and below it that many rows of integers,",
    "A matrix follows after its height; remember it as it is, and then",
)


def _change(*says: str, body: str) -> Source:
    return Source(
        tuple(f"{table} {how}." for table in _GIVEN for how in says),
        _draw_grid,
        (f"import pickle\n{_READ_GRID}before = pickle.loads(pickle.dumps($v))\n{body}",),
        (
            f"import copy\n{_READ_GRID}before = copy.deepcopy($v)\n{body}",
            f"{_READ_GRID}before = [row[:] for row in $v]\n{body}",
            f"{_READ_GRID}before = [list(row) for row in $v]\n{body}",
        ),
    )


_CHANGES = {
    "sort": _change("sort each row", "put each row in increasing order", body="for row in $v:\n    row.sort()"),
    "reverse": _change("reverse each row", "turn each row around", body="for row in $v:\n    row.reverse()"),
    "zero": _change(
        "replace negative numbers by 0",
        body="for row in $v:\n    for j in range(len(row)):\n        row[j] = max(row[j], 0)",
    ),
    "double": _change(
        "double the even numbers",
        body="for row in $v:\n    for j in range(len(row)):\n        if row[j] % 2 == 0:\n            row[j] *= 2",
    ),
    "running": _change(
        "replace each row by its running totals",
        body="for row in $v:\n    for j in range(1, len(row)):\n        row[j] += row[j - 1]",
    ),
    "swap": _change(
        "swap the first and the last row",
        "exchange the first row with the last",
        body="$v[0], $v[-1] = $v[-1], $v[0]",
    ),
}
_PAIRS = "zip(before, $v)"
_COMPARE = {
    "cells": Step(
        (
            "Print how many cells differ from before and the largest number after, separated by a space.",
            "Output a row of two integers: the count of places with a new number, and the maximum of the new matrix.",
        ),
        (
            f"$t = sum(a != b for old, new in {_PAIRS} for a, b in zip(old, new))\nprint($t, max(map(max, $v)))",
            code("""
                $t = 0
                for i, row in enumerate($v):
                    for j, $x in enumerate(row):
                        if $x != before[i][j]:
                            $t += 1
                print($t, max(max(row) for row in $v))
            """),
        ),
    ),
    "marks": Step(
        (
            "Print it with # for each cell that differs from before and a dot for the others.",
            "Draw the matrix: a dot where the old number is still there, # where it is not.",
        ),
        (
            f'for old, new in {_PAIRS}:\n    print("".join("#" if a != b else "." for a, b in zip(old, new)))',
            code("""
                for i in range(len($v)):
                    $t = ""
                    for j in range(len($v[i])):
                        $t += "." if $v[i][j] == before[i][j] else "#"
                    print($t)
            """),
        ),
    ),
    "distance": Step(
        (
            "Print for each row the sum of the absolute differences to before, on one line.",
            "Subtract old from new at every place, drop the signs and add up each row; output these sums in a line.",
        ),
        (
            f"print(*[sum(abs(a - b) for a, b in zip(old, new)) for old, new in {_PAIRS}])",
            code("""
                $w = []
                for old, new in zip(before, $v):
                    $w.append(0)
                    for a, b in zip(old, new):
                        $w[-1] += abs(a - b)
                print(*$w)
            """),
        ),
    ),
    "firsts": Step(
        (
            "Print the first column as it was before on one line and as it is after on the next.",
            "Output two lines about the leftmost number of each row: the old ones, below them the new ones.",
        ),
        (
            "for $x in (before, $v):\n    print(*[row[0] for row in $x])",
            "print(*[row[0] for row in before])\nprint(*[row[0] for row in $v])",
        ),
    ),
    "product": Step(
        (
            "For each row multiply its last number before by its last number after; print these products on one line.",
            "Output a product for every row in one line: the old rightmost number times the new one.",
        ),
        (
            f"print(*[old[-1] * new[-1] for old, new in {_PAIRS}])",
            "$w = []\nfor i in range(len($v)):\n    $w.append(before[i][-1] * $v[i][-1])\nprint(*$w)",
        ),
    ),
}

# A word, what it does to the list, and the code that does it.
_COMMANDS = {
    "flip": ("reverses the list", "$w.reverse()"),
    "drop": ("removes the last number if there is one", "$w = $w[:-1]"),
    "grow": ("appends the length of the list", "$w.append(len($w))"),
    "turn": ("moves the first number to the end", "$w = $w[1:] + $w[:1]"),
    "up": ("adds 1 to every number", "$w = [$x + 1 for $x in $w]"),
    "twice": ("doubles every number", "$w = [$x * 2 for $x in $w]"),
}


def _history(first: str, second: str) -> Source:
    def draw(rng: random.Random) -> str:
        words = [rng.choice([first, second, "save", "back"]) for _ in range(rng.randint(4, 6))]
        words[rng.randrange(3)] = "save"
        words[-2:] = rng.choice([["back", first], [second, "back"], [first, second]])
        return " ".join(str(rng.randint(1, 9)) for _ in range(rng.randint(3, 4))) + "\n" + " ".join(words) + "\n"

    def program(saved: str, restored: str) -> str:
        return code(f"""
            $w = [int($x) for $x in input().split()]
            saved = {saved}
            for word in input().split():
                if word == "save":
                    saved = {saved}
                elif word == "back":
                    $w = {restored}
                elif word == "{first}":
                    {_COMMANDS[first][1]}
                else:
                    {_COMMANDS[second][1]}
        """)

    commands = f"{first} {_COMMANDS[first][0]}, {second} {_COMMANDS[second][0]}"
    return Source(
        (
            f"Line 1 holds a list of integers, line 2 command words: {commands}, save remembers the list, "
            "back makes it the list last saved (at first the given one). Take the final numbers.",
            f"Integers are given, and below them words to obey one by one. {commands}; save keeps a copy, and back "
            f"fetches the latest copy, or the integers as given if there is none. Go on with the list at the end.",
            f"A list of integers stands on top. Its commands are below: save (note the list), back (the list noted "
            f"last comes back, or the given one if none was noted), {commands}. Look at what is left after all of "
            f"them.",
        ),
        draw,
        (f"import marshal\n{program('marshal.dumps($w)', 'marshal.loads(saved)')}",),
        (
            program("$w[:]", "saved[:]"),
            f"import copy\n{program('copy.copy($w)', 'copy.copy(saved)')}",
            program("list($w)", "list(saved)"),
        ),
    )


_HISTORIES = {
    f"{first}-{second}": _history(first, second)
    for first, second in (
        ("flip", "drop"),
        ("grow", "turn"),
        ("up", "drop"),
        ("twice", "flip"),
        ("grow", "twice"),
    )
}

FAMILIES = (
    combine("pickle-snapshot", _CHANGES, _COMPARE),
    combine("marshal-history", _HISTORIES, pick(REPORT_NUMBERS, "listing running steps ends weighted alternate")),
)
