"""Families that follow input lines one by one: commands to a list, operations on a number, an answer a line."""

from __future__ import annotations

import random

from family import Family

from families._compose import Piece, compose, piece, without
from families._inputs import counted, counted_lines, numbers
from families._pieces import CONDITIONS, FILTERS, FOLDS, MAPS, NUMBER_FOLDS, idle

# Commands that change a list, and others that show it.

_REMOVALS = {
    "first": piece("removes the first x, if there is one", remove="if x in $xs:\n    $xs.remove(x)"),
    "larger": piece("removes all numbers above x", remove="$xs = [z for z in $xs if z <= x]"),
    "smaller": piece("removes all numbers below x", remove="$xs = [z for z in $xs if z >= x]"),
}


def _draw_commands(rng: random.Random) -> str:
    values = numbers(rng, sizes=(3, 5))
    rows = [f"add {value}" for value in values]
    rows.insert(rng.randint(2, len(rows)), f"del {rng.choice(values[:2])}")
    rows.insert(rng.randint(2, len(rows)), "show")
    return counted([*rows, "show"])


_COMMANDS = compose(
    "list-commands",
    {"removal": _REMOVALS, "keep": FILTERS, "change": MAPS, "fold": NUMBER_FOLDS},
    (
        "Read n and then n commands about a list, empty at first: `add x` appends x, `del x` $removal, `show` prints "
        "$fold $keep$change.",
        "A list starts empty. After n come n lines: `add x` puts x at its end, `del x` $removal, and for `show` print "
        "$fold $keep$change.",
        "A list without items gets orders, whose count n stands before them. An order `add x` puts x behind all "
        "items, an order `del x` $removal, and an order `show` asks for $fold $keep in the list$change.",
        "Keep a list, at the start with nothing in it, and obey n lines (their count on line 1). Three kinds occur: "
        "`add x`, then x joins as the last; `del x`, which $removal; `show`, then output $fold $keep$change.",
    ),
    (
        """\
$xs = []
for _ in range(int(input())):
    command, *rest = input().split()
    if command == "show":
        $ys = [$value for $x in $xs$where]
        print($whole)
        continue
    x = int(rest[0])
    if command == "add":
        $xs.append(x)
    else:
        $remove
""",
        """\
$xs = []
count = int(input())
for _ in range(count):
    row = input().split()
    if row[0] == "add":
        $xs.append(int(row[1]))
    elif row[0] == "del":
        x = int(row[1])
        $remove
    else:
        $start
        for $x in $xs:
            $follow
        print($show)
""",
        """\
def show($xs):
    $ys = []
    for $x in $xs:
        $collect
    print($whole)


def delete($xs, x):
    $remove
    return $xs


def main():
    $xs = []
    for _ in range(int(input())):
        row = input().split()
        if row[0] == "show":
            show($xs)
        elif row[0] == "add":
            $xs.append(int(row[1]))
        else:
            $xs = delete($xs, int(row[1]))


main()
""",
    ),
    _draw_commands,
    skip=lambda removal, keep, change, fold: idle(keep, change, fold),
)

# A calculator that applies its commands only under a condition.


def _draw_calculator(rng: random.Random) -> str:
    drawn = rng.choices((("+", 9), ("-", 9), ("*", 3)), k=rng.randint(4, 5))
    rows = [f"{operator} {rng.randint(2, highest)}" for operator, highest in drawn]
    return f"{rng.randint(-9, 12)}\n" + counted(rows)


_OPERATE = """\
def operate($x, operator, number):
    if operator == "+":
        return $x + number
    if operator == "-":
        return $x - number
    return $x * number


"""

_CALCULATORS = compose(
    "calculators",
    {"rule": CONDITIONS, "otherwise": without(MAPS, "square", "absolute"), "fold": FOLDS},
    (
        "Read a number x, then n, then n lines such as `+ 5`, `- 2` or `* 3`. For each line look at x: if it "
        "$when, apply the line to it; otherwise $how. Print $fold the values of x after each line.",
        "Line 1 is x, line 2 is n; n operations like `* 3`, `- 2` or `+ 5` follow. For each look at x: if it $when, "
        "apply the operation to it; if not, $how. Print $fold the values that x has after each line.",
        "A calculator shows x, the first input. Then n keys are pressed (n first), written like `- 2`, `+ 5` or `* "
        "3`. Whenever the number on show $when, a key does its work; whenever not, $how instead. Output $fold the n "
        "numbers on show, one after every key.",
    ),
    (
        """\
$x = int(input())
$ys = []
for _ in range(int(input())):
    operator, number = input().split()
    b = int(number)
    if $test:
        $x = $x + b if operator == "+" else $x - b if operator == "-" else $x * b
    else:
        $x = $value
    $ys.append($x)
print($whole)
""",
        _OPERATE
        + """\
$x = int(input())
$start
count = int(input())
for _ in range(count):
    operator, number = input().split()
    if $test:
        $x = operate($x, operator, int(number))
    else:
        $x = $value
    $y = $x
    $take
print($show)
""",
        """\
class Calculator:
    def __init__(self, $x):
        self.value = $x

    def apply(self, operator, number):
        $x = self.value
        if not ($test):
            self.value = $value
        elif operator == "+":
            self.value += number
        elif operator == "-":
            self.value -= number
        else:
            self.value *= number
        return self.value


machine = Calculator(int(input()))
$ys = []
for _ in range(int(input())):
    operator, number = input().split()
    $ys.append(machine.apply(operator, int(number)))
print($whole)
""",
    ),
    _draw_calculator,
    skip=lambda rule, otherwise, fold: (rule, otherwise) == ("positive", "last-digit"),
)

# An answer for each line, then one for all answers.


def _outer(chosen: Piece) -> Piece:
    """A fold of the answers instead of one line's numbers."""
    return Piece(chosen.words, {"value": "$x", "outer": chosen.code["whole"].replace("$ys", "answers")})


def _draw_lines(rng: random.Random) -> str:
    return counted_lines([numbers(rng, sizes=(2, 4)) for _ in range(rng.randint(3, 4))])


_ANSWERS = compose(
    "line-answers",
    {
        "keep": FILTERS,
        "fold": NUMBER_FOLDS,
        "outer_fold": {key: _outer(chosen) for key, chosen in FOLDS.items()},
    },
    (
        "Read n, then n lines of integers. The answer for a line is $fold $keep on it. Print $outer_fold the answers.",
        "The first line is n; n lines of integers follow. For each line find $fold $keep on it, then print $outer_fold "
        "the results.",
        "After a count n, every one of n rows holds some integers. Work out row by row $fold $keep in the row; the "
        "output is $outer_fold all that was worked out.",
    ),
    (
        """\
answers = []
for _ in range(int(input())):
    $ys = [$x for $x in map(int, input().split())$where]
    answers.append($whole)
print($outer)
""",
        """\
n = int(input())
answers = []
for _ in range(n):
    $xs = list(map(int, input().split()))
    $start
    for $x in $xs:
        $follow
    answers.append($show)
print($outer)
""",
        """\
def answer($xs):
    $ys = []
    for $x in $xs:
        $collect
    return $whole


def main():
    answers = []
    for _ in range(int(input())):
        $xs = list(map(int, input().split()))
        answers.append(answer($xs))
    print($outer)


main()
""",
    ),
    _draw_lines,
)

FAMILIES: tuple[Family, ...] = (_COMMANDS, _CALCULATORS, _ANSWERS)
