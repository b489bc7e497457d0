"""Hard families that take one or two lines of integers through several stages."""

from __future__ import annotations

import random

from family import Family

from families._compose import LARGE_FAMILY_SIZE, again, compose, only, piece, said
from families._pieces import CHANGES, CONDITIONS, FOLDS, idle
from families.hard_stages import LONG_LINE, idle_twice


def _two_lines(rng: random.Random) -> str:
    return LONG_LINE(rng) + LONG_LINE(rng)


_PASSES = compose(
    "hard-passes",
    {
        "keep": only(CONDITIONS, "even", "odd", "positive", "not-thirds", "below-ten"),
        "change": only(CHANGES, "square", "double", "negate", "next", "minus-three", "half"),
        "keep2": again(only(CONDITIONS, "even", "odd", "thirds", "not-thirds", "above-five")),
        "change2": again(only(CHANGES, "double", "absolute", "next", "last-digit")),
        "fold": only(FOLDS, "sum", "max", "span", "weighted"),
        "fold2": again(only(FOLDS, "ascending", "backwards", "dashed")),
    },
    (
        "Read a line of integers. From it take $keep$change. From these results take $keep2$change2. Print, on one "
        "line, $fold the numbers left and, on the next line, $fold2 the numbers left.",
        "The input is one line of integers. List A is $keep in it$change. List B is $keep2 in A$change2. On one line "
        "print $fold the numbers of B, on a second line print $fold2 the numbers of B.",
        "Some integers form a row. First select $keep$change; out of what that gives select $keep2$change2. Output two "
        "lines about the second selection: the upper has $fold its numbers, the lower has $fold2 its numbers.",
    ),
    (
        """\
def once($xs):
    return [$value for $x in $xs$where]


def again($xs):
    return [$value2 for $x in $xs$where2]


$xs = list(map(int, input().split()))
$ys = again(once($xs))
print($whole)
print($whole2)
""",
        """\
$xs = list(map(int, input().split()))
first = []
for $x in $xs:
    if $test:
        first.append($value)
$ys = []
for $x in first:
    if $test2:
        $ys.append($value2)
$start
for $y in $ys:
    $take
print($show)
print($whole2)
""",
        """\
def report($ys):
    print($whole)
    print($whole2)


def main():
    $xs = list(map(int, input().split()))
    $ys = []
    for $x in $xs:
        if not ($test):
            continue
        $x = $value
        if $test2:
            $ys.append($value2)
    report($ys)


main()
""",
    ),
    LONG_LINE,
    skip=lambda keep, change, keep2, change2, fold, fold2: (
        idle_twice(keep, change, keep2, change2, fold) or (keep, change2) == ("below-ten", "last-digit")
    ),
    size=LARGE_FAMILY_SIZE,
)

_JOINS = {
    "add": piece("add the two numbers of each pair", joined="a + b"),
    "multiply": piece("multiply the two numbers of each pair", joined="a * b"),
    "larger": piece("keep the larger number of each pair", joined="max(a, b)"),
    "minus": piece("subtract the second number of each pair from the first", joined="a - b"),
}

_PAIRS = compose(
    "hard-pairs",
    {
        "keep": only(CONDITIONS, "even", "positive", "below-ten", "not-thirds"),
        "change": only(CHANGES, "square", "negate", "next", "double"),
        "keep2": again(only(CONDITIONS, "odd", "not-thirds", "below-ten", "above-five")),
        "change2": again(only(CHANGES, "double", "absolute", "minus-three", "half")),
        "join": _JOINS,
        "fold": only(FOLDS, "sum", "min", "ascending", "dashed", "span", "alternating"),
    },
    (
        "There are two lines of integers. From the first take $keep$change. From the second take $keep2$change2. "
        "Pair them up in order until one side ends, and $join. Print $fold the results.",
        "Read two lines of integers. A is $keep of the first$change. B is $keep2 of the second$change2. Pair A with"
        " B in order as far as both go, and $join. Print $fold the results.",
        "On line 1 look at $keep$change; on line 2 look at $keep2$change2. Walk through both selections side by side, "
        "stop with the shorter one, and $join. Output $fold the numbers that this gives.",
    ),
    (
        """\
$xs = list(map(int, input().split()))
first = [$value for $x in $xs$where]
$xs = list(map(int, input().split()))
second = [$value2 for $x in $xs$where2]
$ys = [$joined for a, b in zip(first, second)]
print($whole)
""",
        """\
first = []
for $x in map(int, input().split()):
    if $test:
        first.append($value)
second = []
for $x in map(int, input().split()):
    if $test2:
        second.append($value2)
$start
for a, b in zip(first, second):
    $y = $joined
    $take
print($show)
""",
        """\
def join(a, b):
    return $joined


def main():
    $xs = list(map(int, input().split()))
    first = [$value for $x in $xs$where]
    $xs = list(map(int, input().split()))
    second = [$value2 for $x in $xs$where2]
    $ys = []
    while first and second:
        $ys.append(join(first.pop(0), second.pop(0)))
    print($whole)


main()
""",
    ),
    _two_lines,
    skip=lambda keep, change, keep2, change2, join, fold: (
        idle(keep, change) or idle(keep2, change2) or (join == "larger" and change in ("square", "double"))
    ),
    size=LARGE_FAMILY_SIZE,
)

_PLACES = {
    "second": piece("at places 1, 3, 5, ... (every second one, from the first on)", place="i % 2 == 0"),
    "not-first": piece("after the first one", place="i > 0"),
    "not-last": piece("before the last one", place="i < len(changed) - 1"),
    "rising": piece(
        "greater than the number just before (the first has none and stays)",
        place="(i == 0 or $x > changed[i - 1])",
    ),
    "index": piece("greater than their place (the first has place 0)", place="$x > i"),
}


def _choice_is_idle(keep: str, change: str, change2: str, place: str, keep2: str, fold: str) -> bool:
    return (
        change == change2
        or idle(keep, change)
        or (keep == "positive" and change2 == "absolute")
        or (place, keep2) == ("index", "below-ten")
        or (keep == "thirds" and keep2 in ("thirds", "not-thirds"))
        or (keep in ("positive", "above-five") and keep2 in ("above-five", "below-ten"))
    )


_CHOICE = compose(
    "hard-choice",
    {
        "keep": only(CONDITIONS, "even", "positive", "thirds", "above-five"),
        "change": only(CHANGES, "square", "double", "next", "minus-three", "half"),
        "change2": again(only(CHANGES, "absolute", "negate", "next", "last-digit")),
        "place": _PLACES,
        "keep2": again(only(CONDITIONS, "thirds", "not-thirds", "above-five", "below-ten")),
        "fold": only(FOLDS, "sum", "ascending", "backwards", "dashed", "weighted"),
    },
    said(
        (
            "Read a line of integers. Replace each number: if it $when, $how, otherwise $how2.",
            "The input is one line of integers. For each number: if it $when, $how, otherwise $how2.",
            "Go through a row of integers: whenever one $when, $how; in any other case $how2.",
        ),
        (
            "Of the new list keep the numbers $place.",
            "From the results take the numbers $place.",
            "This gives a second row, in which only those $place stay.",
        ),
        (
            "From those take $keep2 and print $fold the numbers left.",
            "Reduce them further to $keep2, and output $fold the numbers that remain.",
        ),
    ),
    (
        """\
$xs = list(map(int, input().split()))
changed = [$value if $test else $value2 for $x in $xs]
placed = [$x for i, $x in enumerate(changed) if $place]
$ys = [$x for $x in placed$where2]
print($whole)
""",
        """\
changed = []
for $x in map(int, input().split()):
    if $test:
        changed.append($value)
    else:
        changed.append($value2)
$ys = []
for i, $x in enumerate(changed):
    if $place and $test2:
        $ys.append($x)
print($whole)
""",
        """\
def change($x):
    if $test:
        return $value
    return $value2


def main():
    $xs = list(map(int, input().split()))
    changed = [change($x) for $x in $xs]
    placed = []
    for i, $x in enumerate(changed):
        if $place:
            placed.append($x)
    $start
    for $x in placed:
        if $test2:
            $y = $x
            $take
    print($show)


main()
""",
    ),
    LONG_LINE,
    skip=_choice_is_idle,
    size=LARGE_FAMILY_SIZE,
)

FAMILIES: tuple[Family, ...] = (_PASSES, _PAIRS, _CHOICE)
