"""Hard families that fold rows or groups of numbers, then work on what came out of each."""

from __future__ import annotations

import random

from family import Family

from families._compose import LARGE_FAMILY_SIZE, again, compose, only, piece, said
from families._inputs import counted, counted_lines, numbers
from families._pieces import CHANGES, CONDITIONS, FOLDS, NUMBER_FOLDS, idle
from families.hard_stages import LONG_LINE, idle_twice


def _rows(rng: random.Random) -> str:
    size = rng.randint(4, 5)
    return counted_lines([numbers(rng, sizes=(3, 4)) for _ in range(size)])


def _named_numbers(rng: random.Random) -> str:
    names = rng.sample(("ann", "bob", "cid", "dan", "eve"), 4)
    drawn = numbers(rng, sizes=(6, 8))
    return counted([f"{rng.choice(names)} {number}" for number in drawn])


_ROWS = compose(
    "hard-rows",
    {
        "keep": only(CONDITIONS, "even", "odd", "positive", "below-ten", "not-thirds"),
        "change": only(CHANGES, "square", "absolute", "next", "minus-three", "half"),
        "fold": only(NUMBER_FOLDS, "sum", "max", "min", "alternating"),
        "keep2": again(only(CONDITIONS, "even", "odd", "not-thirds", "above-five", "below-ten")),
        "change2": again(only(CHANGES, "double", "negate", "next", "last-digit")),
        "fold2": again(only(FOLDS, "sum", "ascending", "backwards", "dashed", "weighted")),
    },
    (
        "The first line is n; each of the next n lines is a row of integers. For each row find $fold $keep$change. Of "
        "these n results take $keep2$change2. Print $fold2 the numbers left.",
        "Read n, then n rows of integers, one on each line. The score of a row is $fold $keep in it$change. From the "
        "n scores take $keep2$change2. Print $fold2 the numbers left.",
        "After a count n there is a table, n lines high. Reduce every line to one value, $fold $keep there$change. "
        "Among these values only $keep2 stay$change2: output $fold2 what stays.",
    ),
    (
        """\
def score($ys):
    return $whole


scores = []
for _ in range(int(input())):
    $xs = list(map(int, input().split()))
    scores.append(score([$value for $x in $xs$where]))
$ys = [$value2 for $x in scores$where2]
print($whole2)
""",
        """\
n = int(input())
scores = []
for _ in range(n):
    $xs = list(map(int, input().split()))
    $start
    for $x in $xs:
        $follow
    scores.append($show)
$ys = []
for $x in scores:
    if $test2:
        $ys.append($value2)
print($whole2)
""",
        """\
def score($xs):
    $ys = []
    for $x in $xs:
        $collect
    return $whole


def main():
    n = int(input())
    rows = [list(map(int, input().split())) for _ in range(n)]
    $start2
    for row in rows:
        $x = score(row)
        if $test2:
            $y = $value2
            $take2
    print($show2)


main()
""",
    ),
    _rows,
    skip=lambda keep, change, fold, keep2, change2, fold2: (
        idle_twice(keep, change, keep2, change2) or (fold, keep2) == ("min", "above-five")
    ),
    size=LARGE_FAMILY_SIZE,
)

_KEYS = {
    "third": piece("their remainder (0, 1 or 2) on division by 3", key="$y % 3"),
    "digit": piece("their last digit", key="abs($y) % 10"),
    "tens": piece("their quotient on division by 10, rounded down", key="$y // 10"),
    "parity": piece("their remainder (0 or 1) on division by 2", key="$y % 2"),
}


def _groups_are_idle(keep: str, change: str, by: str, fold: str, fold2: str) -> bool:
    return (
        idle(keep, change, fold)
        or fold == fold2
        or (by == "third" and keep in ("thirds", "not-thirds"))
        or (by == "digit" and (change == "last-digit" or fold in ("max", "distinct")))
        or (by == "tens" and change == "last-digit")
        or (by == "parity" and (change == "double" or (keep in ("even", "odd") and change != "half")))
    )


_GROUPS = compose(
    "hard-number-groups",
    {
        "keep": only(CONDITIONS, "even", "odd", "positive", "below-ten", "not-thirds"),
        "change": only(CHANGES, "square", "double", "negate", "next", "minus-three", "half", "last-digit"),
        "by": _KEYS,
        "fold": only(NUMBER_FOLDS, "sum", "max", "distinct", "alternating", "weighted"),
        "fold2": again(only(FOLDS, "sum", "max", "span", "backwards", "dashed")),
    },
    said(
        (
            "Read a line of integers. Take $keep$change, and group these by $by.",
            "The input is one line of integers. Take $keep in it$change; group these by $by.",
            "From a row of integers pick $keep$change. All picked ones go into bins, in their old order, by $by.",
            "Some integers are given; only $keep matter$change. Two of these belong to one group if they share a key, "
            "which is $by.",
        ),
        (
            "From the smallest key up, print a line for each group: the key, then $fold its numbers.",
            "In increasing order of keys print each key and $fold its numbers, a group a line.",
            "Go from low to high keys; each has an output line of its own, with the key and then $fold what belongs "
            "to it.",
        ),
        ("Last print $fold2 these results.", "Below this write $fold2 the values that stand beside the keys."),
    ),
    (
        """\
def score($ys):
    return $whole


$d = {}
for $x in map(int, input().split()):
    if $test:
        $y = $value
        $d.setdefault($key, []).append($y)
$ys = []
for key in sorted($d):
    $ys.append(score($d[key]))
    print(key, $ys[-1])
print($whole2)
""",
        """\
$xs = list(map(int, input().split()))
$d = {}
for $x in $xs:
    if $test:
        $y = $value
        key = $key
        if key not in $d:
            $d[key] = []
        $d[key].append($y)
scores = []
for key in sorted($d):
    $start
    for $y in $d[key]:
        $take
    print(key, $show)
    scores.append($show)
$ys = scores
print($whole2)
""",
        """\
def key_of($y):
    return $key


def score($ys):
    return $whole


def main():
    $xs = list(map(int, input().split()))
    changed = [$value for $x in $xs$where]
    scores = []
    for key in sorted(set(map(key_of, changed))):
        group = [$y for $y in changed if key_of($y) == key]
        scores.append(score(group))
        print(key, score(group))
    $start2
    for $y in scores:
        $take2
    print($show2)


main()
""",
    ),
    LONG_LINE,
    skip=_groups_are_idle,
    size=LARGE_FAMILY_SIZE,
)

_ORDERS = {
    "name": piece("sorted by name", order="sorted($d.items())"),
    "up": piece(
        "smallest result first (ties by name)",
        order="sorted($d.items(), key=lambda pair: (pair[1], pair[0]))",
    ),
    "down": piece(
        "largest result first (ties by name)",
        order="sorted($d.items(), key=lambda pair: (-pair[1], pair[0]))",
    ),
}

_TOTALS = compose(
    "hard-totals",
    {
        "keep": only(CONDITIONS, "odd", "positive", "below-ten", "not-thirds"),
        "change": only(CHANGES, "square", "double", "negate", "next", "minus-three"),
        "keep2": again(only(CONDITIONS, "even", "not-thirds", "above-five", "below-ten")),
        "change2": again(only(CHANGES, "double", "absolute", "last-digit", "half")),
        "order": _ORDERS,
        "fold": only(NUMBER_FOLDS, "sum", "max", "min", "distinct"),
    },
    said(
        (
            "Read n, then n lines of a name and an integer.",
            "The first line is n; each of the n lines after it has a name and an integer.",
            "A count is given and below it that many entries such as `ann 5`.",
        ),
        (
            "For each name add up $keep$change; leave out names without any.",
            "The total of a name is the sum of $keep$change, if it has any.",
            "Sum up per name $keep$change (names with nothing to sum are dropped).",
        ),
        ("Of the totals take $keep2$change2.", "Then look only at $keep2 among the sums$change2."),
        (
            "Print the names left with their results, a pair a line, $order, then $fold the results.",
            "Output who is left and that name's result, one name on each line, $order; below them $fold these results.",
        ),
    ),
    (
        """\
totals = {}
for _ in range(int(input())):
    $w, number = input().split()
    $x = int(number)
    if $test:
        totals[$w] = totals.get($w, 0) + $value
$d = {$w: $value2 for $w, $x in totals.items()$where2}
for $w, $y in $order:
    print($w, $y)
$ys = list($d.values())
print($whole)
""",
        """\
n = int(input())
totals = {}
for _ in range(n):
    $w, number = input().split()
    $x = int(number)
    if $test:
        if $w not in totals:
            totals[$w] = 0
        totals[$w] += $value
$d = {}
for $w in totals:
    $x = totals[$w]
    if $test2:
        $d[$w] = $value2
$start
for $w, $y in $order:
    print($w, $y)
    $take
print($show)
""",
        """\
def read():
    totals = {}
    for _ in range(int(input())):
        $w, number = input().split()
        $x = int(number)
        if $test:
            totals[$w] = totals.get($w, 0) + $value
    return totals


def report($d):
    $ys = []
    for $w, $y in $order:
        print($w, $y)
        $ys.append($y)
    print($whole)


totals = read()
report({$w: $value2 for $w, $x in totals.items()$where2})
""",
    ),
    _named_numbers,
    skip=lambda keep, change, keep2, change2, order, fold: (
        idle_twice(keep, change, keep2, change2, fold) or (change, keep2) == ("minus-three", "above-five")
    ),
    size=LARGE_FAMILY_SIZE,
)

FAMILIES: tuple[Family, ...] = (_ROWS, _GROUPS, _TOTALS)
