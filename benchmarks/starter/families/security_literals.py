"""Families that read Python literals, where ``eval`` is the short way (Bandit B307)."""

from __future__ import annotations

import random
from collections.abc import Callable

from family import DrawAttack

from families._security_pieces import (
    KEEP_ENTRIES,
    KEEP_NUMBERS,
    REPORT_ENTRIES,
    REPORT_NUMBERS,
    Source,
    combine,
    entries,
    injected,
    numbers,
    pick,
)
from families._steps import Step, code


def _code_in(draw: Callable[[random.Random], str]) -> tuple[DrawAttack, ...]:
    return injected("code in place of a number", 95, draw, r"-?\d+", r"\A\D*?(-?\d+)")


def _draw_list(rng: random.Random) -> str:
    return f"{numbers(rng)}\n"


def _draw_two_lists(rng: random.Random) -> str:
    return f"{numbers(rng, 2, 4)}\n{numbers(rng, 2, 4)}\n"


def _draw_entries(rng: random.Random) -> str:
    return str(entries(rng)).replace("'", '"') + "\n"


def _draw_two_entries(rng: random.Random) -> str:
    first, second = entries(rng, 2, 3), entries(rng, 1, 2)
    second[rng.choice(list(first))] = rng.randint(1, 12)
    return f"{first}\n{second}\n".replace("'", '"')


def _draw_table(rng: random.Random) -> str:
    width = rng.randint(2, 3)
    return f"{[[rng.randint(-5, 9) for _ in range(width)] for _ in range(rng.randint(2, 3))]}\n"


_LISTS = {
    "one": Source(
        (
            "The input is a list of integers in Python notation.",
            "One line holds a list literal of integers.",
            "Integers are given as Python would write them in a list.",
        ),
        _draw_list,
        ("$v = eval(input())", "line = input()\n$v = eval(line)"),
        (
            "import ast\n$v = ast.literal_eval(input())",
            "import json\n$v = json.loads(input())",
            '$v = [int($x) for $x in input().strip("[]").split(",")]',
        ),
        _code_in(_draw_list),
    ),
    "two": Source(
        (
            "Each of two lines holds a list of integers in Python notation; join the second to the end of the first.",
            "Two list literals of integers come one below the other. Put what the lower one has behind the upper one.",
            "Join two lists, which stand on a line each as Python writes them.",
        ),
        _draw_two_lists,
        ("$v = eval(input()) + eval(input())", "$v = eval(input())\n$v += eval(input())"),
        (
            "import ast\n$v = ast.literal_eval(input()) + ast.literal_eval(input())",
            "import json\n$v = []\nfor _ in range(2):\n    $v.extend(json.loads(input()))",
        ),
        _code_in(_draw_two_lists),
    ),
}
_DICTS = {
    "one": Source(
        (
            "The input is a dictionary literal from names to numbers.",
            "One line holds a dict of names and numbers.",
            "Names with their numbers are given as Python would write them in braces.",
        ),
        _draw_entries,
        ("$d = eval(input())", "text = input()\n$d = eval(text)"),
        ("import ast\n$d = ast.literal_eval(input())", "import json\n$d = json.loads(input())"),
        _code_in(_draw_entries),
    ),
    "merged": Source(
        (
            "Two lines hold dictionary literals from names to numbers; merge them, the second line "
            "winning (names keep their place).",
            "There are two dicts of names and numbers, a line each. The lower one updates the upper one, in which "
            "known names stay where they are.",
        ),
        _draw_two_entries,
        ("$d = {**eval(input()), **eval(input())}", "$d = eval(input())\n$d.update(eval(input()))"),
        (
            "import ast\n$d = ast.literal_eval(input())\n$d.update(ast.literal_eval(input()))",
            "import json\n$d = {}\nfor _ in range(2):\n    $d.update(json.loads(input()))",
        ),
        _code_in(_draw_two_entries),
    ),
}


_GIVEN = (
    "The input is a table of integers as a list of lists.",
    "One line holds a matrix in Python notation, a list for each row.",
    "A Python literal of nested lists gives the rows of a matrix.",
)


def _table(*layouts: str, turn: str = "") -> Source:
    return Source(
        tuple(f"{table} {way}" for table in _GIVEN for way in layouts),
        _draw_table,
        (f"$v = eval(input()){turn}", f"text = input()\n$v = eval(text){turn}"),
        (
            f"import ast\n$v = ast.literal_eval(input()){turn}",
            f"import json\n$v = json.loads(input()){turn}",
        ),
        _code_in(_draw_table),
    )


_TABLES = {
    "rows": _table("Work on its rows from top to bottom.", "Look at row after row."),
    "columns": _table(
        "Work on its columns from left to right.", "Look at column after column.", turn="\n$v = list(zip(*$v))"
    ),
}


def _measure(says: str, of: str) -> Step:
    loop = f"$w = []\nfor line in $v:\n    $w.append({of})"
    return Step(
        (f"Find {says} of each.", f"For each, take {says}.", f"Every one gives a result: {says}."),
        (f"$w = [{of} for line in $v]", loop),
    )


_MEASURES = {
    "sum": _measure("the sum", "sum(line)"),
    "largest": _measure("the largest number", "max(line)"),
    "span": _measure("the largest minus the smallest number", "max(line) - min(line)"),
    "ends": _measure("the product of the first and the last number", "line[0] * line[-1]"),
    "squares": _measure("the sum of the squares", "sum($x * $x for $x in line)"),
}
_TABLE_REPORTS = {
    "best": Step(
        (
            "Print the position, counted from 1, of the largest result (the first of equals) and that result.",
            "Which gives most? Output its number (the first has 1; of equals the earliest) with what it gives.",
            "Output a row of two integers: which result is greatest, counting from 1 (of equals the earliest), then "
            "that result.",
        ),
        (
            "$t = max($w)\nprint($w.index($t) + 1, $t)",
            code("""
                $t = 0
                for i in range(1, len($w)):
                    if $w[i] > $w[$t]:
                        $t = i
                print($t + 1, $w[$t])
            """),
        ),
    ),
    "listing": Step(
        ("Print the results on one line.", "Output a row with all that you found.", "Show what comes out, in a line."),
        ("print(*$w)", 'print(" ".join(map(str, $w)))'),
    ),
    "spread": Step(
        (
            "Print the sum of the results and the largest result minus the smallest, on one line.",
            "Output a row of two integers: the results added up, and the gap between their extremes.",
            "Show one line about the results: first their total, then maximum less minimum.",
        ),
        ("print(sum($w), max($w) - min($w))", "$w.sort()\nprint(sum($w), $w[-1] - $w[0])"),
    ),
}

FAMILIES = (
    combine(
        "literal-list",
        _LISTS,
        pick(KEEP_NUMBERS, "odd above repeated threes"),
        pick(REPORT_NUMBERS, "sum largest backwards running"),
    ),
    combine(
        "literal-dict",
        _DICTS,
        pick(KEEP_ENTRIES, "even lesser long"),
        pick(REPORT_ENTRIES, "names total top pairs initials"),
    ),
    combine("literal-table", _TABLES, _MEASURES, _TABLE_REPORTS),
)
