"""Hard families that filter, change, group and then print one line for each group."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._steps import Step, code, framed_family, step
from securecoderl_edge.starter.wording import WORDS


def _draw_numbers(rng: random.Random) -> str:
    drawn = [rng.randint(-9, 20) for _ in range(rng.randint(6, 8))]
    drawn[-1] = rng.choice(drawn)
    return " ".join(map(str, drawn)) + "\n"


def _draw_words(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(4, 6))) + "\n"


def _frames(read: str) -> tuple[str, ...]:
    return (
        code(f"""
            $v = {read}
            $v = [$x for i, $x in enumerate($v) if @0]
            $v = [@1 for $x in $v]
            groups = {{}}
            for $x in $v:
                groups.setdefault(@2, []).append($x)
            for $k, $w in sorted(groups.items()):
                @3
            if not groups:
                print("none")
        """),
        code(f"""
            from collections import defaultdict
            def change($x, $v):
                return @1


            def key_of($x):
                return @2


            $v = {read}
            $w = []
            for i, $x in enumerate($v):
                if @0:
                    $w.append($x)
            groups = defaultdict(list)
            for $x in $w:
                $x = change($x, $w)
                groups[key_of($x)].append($x)
            if len(groups) == 0:
                print("none")
            for $k in sorted(groups):
                $w = groups[$k]
                @3
        """),
    )


_KEEP_NUMBERS = {
    "rising": step(
        "i > 0 and $x > $v[i - 1]",
        "Keep the numbers that are greater than the one just before them.",
        "Take only numbers greater than their left neighbour.",
    ),
    "places": step("(i + $x) % 2 == 0", "Keep the numbers whose sum with their position (from 0) is even."),
    "above": step(
        "$x * len($v) > sum($v)",
        "Keep the numbers greater than the average.",
        "Drop all numbers up to the average.",
    ),
}
_CHANGE_NUMBERS = {
    "square": step("$x * $x", "Replace each by its square.", "Then square them."),
    "lift": step(
        "$x - min($v)",
        "Subtract the smallest kept number from each.",
        "Then take the smallest kept one off each.",
    ),
    "digits": step("sum(map(int, str(abs($x))))", "Replace each by the sum of its digits."),
}
_GROUP_NUMBERS = {
    "mod": step("$x % 3", "Group the results by their remainder on division by 3."),
    "last": step("abs($x) % 10", "Group the results by their last digit."),
    "length": step("len(str(abs($x)))", "Group the results by their number of digits."),
}
_PRINT_NUMBERS = {
    "members": Step(
        ("In order of key print key: and the members in increasing order, one group a line; none if nothing is left.",),
        ('print(f"{$k}:", *sorted($w))', 'print(str($k) + ": " + " ".join(map(str, sorted($w))))'),
    ),
    "totals": Step(
        ("For each key in order print the key, how many members it has and their sum; none if nothing is left.",),
        ("print($k, len($w), sum($w))", 'print(f"{$k} {len($w)} {sum($w)}")'),
    ),
}
_KEEP_WORDS = {
    "long": step("len($x) > 3 or i == 0", "Keep the first word and the words of more than 3 letters."),
    "order": step("$x[0] < $x[-1]", "Keep the words whose first letter comes before their last in the alphabet."),
    "new": step(
        "$x not in $v[:i] and len(set($x)) > 2",
        "Keep each word once, and only words with over 2 different letters.",
    ),
}
_CHANGE_WORDS = {
    "turn": step("$x[::-1]", "Reverse each.", "Then write each backwards."),
    "vowels": step('"".join(c for c in $x if c not in "aeiou")', "Remove the vowels (a, e, i, o, u) from each."),
    "roll": step("$x[-1] + $x[:-1]", "Move the last letter of each to its front."),
}
_GROUP_WORDS = {
    "first": step("$x[0]", "Group the results by their first letter."),
    "length": step("len($x)", "Group the results by length."),
    "letters": step("len(set($x))", "Group the results by their number of different letters."),
}
_PRINT_WORDS = {
    "members": Step(
        (
            "In order of key print key: and the members in alphabetical order, one group a line; none "
            "if nothing is left.",
        ),
        ('print(f"{$k}:", *sorted($w))', 'print(str($k) + ": " + " ".join(sorted($w)))'),
    ),
    "longest": Step(
        (
            "For each key in order print the key, how many members it has and the last in the alphabet; "
            "none if nothing is left.",
        ),
        ("print($k, len($w), max($w))", 'print(f"{$k} {len($w)} {sorted($w)[-1]}")'),
    ),
}


def _draw_table(rng: random.Random) -> str:
    width = rng.randint(3, 4)
    rows = [" ".join(str(rng.randint(-3, 9)) for _ in range(width)) for _ in range(rng.randint(2, 3))]
    return "\n".join([str(len(rows)), *rows]) + "\n"


_TABLE_FRAMES = (
    code("""
        $v = [list(map(int, input().split())) for _ in range(int(input()))]
        $w = [@1 for line in @0]
        $t = []
        for i, $x in enumerate($w):
            $t.append(@2)
        @3
    """),
    code("""
        import sys
        def measure(line):
            return @1


        rows = sys.stdin.read().split("\\n")
        $v = []
        for row in rows[1:]:
            if row:
                $v.append([int($x) for $x in row.split()])
        $w = []
        for line in @0:
            $w.append(measure(line))
        $t = [@2 for i, $x in enumerate($w)]
        @3
    """),
)
_LINES = {
    "rows": step("$v", "The lines are its rows."),
    "columns": step("zip(*$v)", "The lines are its columns."),
    "both": step("$v + list(zip(*$v))", "The lines are its rows and then its columns."),
}
_MEASURES = {
    "sum": step("sum(line)", "Take the sum of each line."),
    "span": step("max(line) - min(line)", "Take the largest minus the smallest number of each line."),
    "ends": step("line[0] - line[-1]", "Take the first minus the last number of each line."),
}
_LISTS = {
    "cycle": step(
        "$w[(i + 1) % len($w)] - $x",
        "Replace each result by the next one (for the last: the first) minus it.",
    ),
    "running": step("sum($w[: i + 1])", "Replace each result by the sum of all up to it."),
    "ranks": step("sum(y < $x for y in $w)", "Replace each result by how many of the results are smaller."),
}
_TEXTS = {
    "letters": Step(
        ("Print them as one word, x as letter number x modulo 26 (a is 0).",),
        (
            'print("".join(chr(97 + $x % 26) for $x in $t))',
            'print("".join("abcdefghijklmnopqrstuvwxyz"[$x % 26] for $x in $t))',
        ),
    ),
    "bars": Step(
        ("For each print a line with x and as many # as x modulo 4, separated by a bar: x|##.",),
        (
            "for $x in $t:\n    print(f\"{$x}|{'#' * ($x % 4)}\")",
            'for $x in $t:\n    print($x, "#" * ($x % 4), sep="|")',
        ),
    ),
}

FAMILIES = (
    framed_family(
        "regrouped-numbers",
        _draw_numbers,
        ("The input is a line of integers.", "Read one line of integers."),
        _frames("list(map(int, input().split()))"),
        _KEEP_NUMBERS,
        _CHANGE_NUMBERS,
        _GROUP_NUMBERS,
        _PRINT_NUMBERS,
    ),
    framed_family(
        "regrouped-words",
        _draw_words,
        ("The input is a line of words.", "Read one line of words."),
        _frames("input().split()"),
        _KEEP_WORDS,
        _CHANGE_WORDS,
        _GROUP_WORDS,
        _PRINT_WORDS,
    ),
    framed_family(
        "table-texts",
        _draw_table,
        ("The first line is n, then come n rows of integers.", "Read n and a table with n rows."),
        _TABLE_FRAMES,
        _LINES,
        _MEASURES,
        _LISTS,
        _TEXTS,
    ),
)
