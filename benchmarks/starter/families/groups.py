"""Families that group or count: numbers and words by a key, equal words."""

from __future__ import annotations

from collections.abc import Callable

from family import Family

from families._compose import Table, compose, piece
from families._frames import expand
from families._inputs import (
    READ_NUMBERS,
    READ_WORDS,
    Draw,
    few_words,
    line,
    number_line,
)
from families._pieces import (
    FOLDS,
    NATURAL_FILTERS,
    NATURAL_MAPS,
    NUMBER_FOLDS,
    WORD_FILTERS,
    WORD_FOLDS,
    WORD_MAPS,
    entering,
    idle,
)

# Groups, of which each is folded.

_GROUPS = (
    """\
$read
$d = {}
for @item in @items:
    $enter
for key in sorted($d):
    $ys = $d[key]
    print(key, $whole)
""",
    """\
$read
for key in sorted({$key for @item in @items$where}):
    $ys = [$value for @item in @items$where if $key == key]
    print(key, $whole)
""",
    """\
$read
$d = {}
for @item in @items:
    $note
for key, group in sorted($d.items()):
    $start
    for $y in group:
        $take
    print(key, $show)
""",
    """\
def split(items):
    $d = {}
    for @item in items:
        $enter
    return $d


def report($ys):
    return [$whole]


def main():
    $read
    for key, group in sorted(split(@items).items()):
        print(key, *report(group))


main()
""",
)


_ENTER = "$d.setdefault($key, []).append($value)"
_NOTE = "key = $key\nif key not in $d:\n    $d[key] = []\n$d[key].append($value)"


def _groups(
    name: str,
    own: Table,
    keep: Table,
    change: Table,
    folds: Table,
    tasks: tuple[str, ...],
    read: str,
    items: tuple[str, str],
    draw_input: Draw,
    skip: Callable[[str, str, str], bool],
    noun: str,
) -> Family:
    return compose(
        name,
        {"group": own, "keep": entering(keep, enter=_ENTER, note=_NOTE), "change": change, "fold": folds},
        tuple(f"{task} print it and then $fold its {noun}$change." for task in tasks),
        expand(_GROUPS, items=items[0], item=items[1]),
        draw_input,
        skip=lambda group, keep, change, fold: (
            idle(keep, change, fold) or skip(group, keep, change) or (fold == "distinct" and change != "same")
        ),
        code={"read": read},
    )


_NUMBER_GROUPS = _groups(
    "number-groups",
    {
        "thirds": piece("remainder by 3", "remainder when divided by 3", key="$x % 3"),
        "quarters": piece("remainder by 4", "remainder when divided by 4", key="$x % 4"),
        "tens": piece("number of tens (x // 10)", "value of x // 10", key="$x // 10"),
    },
    NATURAL_FILTERS,
    NATURAL_MAPS,
    {**NUMBER_FOLDS, "dashed": FOLDS["dashed"], "backwards": FOLDS["backwards"]},
    (
        "Read a line of positive integers and group $keep by their $group. For each $group, smallest first,",
        "The input is a line of positive integers. Put $keep into groups by their $group. "
        "For each $group that occurs, in increasing order,",
    ),
    READ_NUMBERS,
    ("$xs", "$x"),
    number_line(1, 30, (5, 7)),
    lambda group, keep, change: (group == "thirds" and "thirds" in keep) or (group == "tens" and keep == "below-ten"),
    "numbers",
)
_WORD_GROUPS = _groups(
    "word-groups",
    {
        "initial": piece("first letter", "initial", key="$w[0]"),
        "final": piece("last letter", key="$w[-1]"),
        "length": piece("length", "number of letters", key="len($w)"),
    },
    WORD_FILTERS,
    WORD_MAPS,
    WORD_FOLDS,
    (
        "Read a line of words and group $keep by their $group. For each $group, in sorted order,",
        "The input is a line of words. Put $keep into groups by their $group. "
        "For each $group that occurs, in sorted order,",
    ),
    READ_WORDS,
    ("$ws", "$w"),
    lambda rng: line(few_words(rng, rng.randint(5, 6), 5)),
    lambda group, keep, change: group == "final" and change == "last",
    "words",
)

# Counts.

_COUNTED = {
    "most": piece(
        "the most frequent one (the first of several, or none)",
        result='max($d, key=$d.get, default="none")',
        show='best = "none"\nfor key, count in $d.items():\n    if count > $d.get(best, 0):\n        best = key\n'
        "print(best)",
    ),
    "repeated": piece(
        "those that come up more than once, in order of first appearance (or none)",
        result='*[key for key in $d if $d[key] > 1] or ["none"]',
        show="again = []\nfor key, count in $d.items():\n    if count > 1:\n        again.append(key)\n"
        'print(*again or ["none"])',
    ),
    "once": piece(
        "how many of them come up exactly once",
        result="list($d.values()).count(1)",
        show="once = 0\nfor count in $d.values():\n    if count == 1:\n        once += 1\nprint(once)",
    ),
    "listed": piece(
        "each different one as text:count, sorted (or none)",
        result='*[f"{key}:{$d[key]}" for key in sorted($d)] or ["none"]',
        show='lines = []\nfor key, count in sorted($d.items()):\n    lines.append(f"{key}:{count}")\n'
        'print(" ".join(lines) or "none")',
    ),
}
_COUNTS = compose(
    "word-counts",
    {
        "keep": entering(
            WORD_FILTERS,
            enter="$y = $value\n$d[$y] = $d.get($y, 0) + 1",
            note="if $value in $d:\n    $d[$value] += 1\nelse:\n    $d[$value] = 1",
        ),
        "change": WORD_MAPS,
        "show": _COUNTED,
    },
    (
        "Read a line of words. Take $keep$change, and count how often each result comes up. Print $show.",
        "The input is a line of words. Count the different results among $keep$change. Print $show.",
    ),
    (
        f"from collections import Counter\n\n{READ_WORDS}\n$d = Counter($value for $w in $ws$where)\nprint($result)\n",
        f"{READ_WORDS}\n$d = {{}}\nfor $w in $ws:\n    $enter\nprint($result)\n",
        f"{READ_WORDS}\n$d = {{}}\nfor $w in $ws:\n    $note\n$show\n",
        """\
def count_words(items):
    $d = {}
    for $w in items:
        $enter
    return $d


def main():
    $ws = input().split()
    $d = count_words($ws)
    $show


main()
""",
    ),
    lambda rng: line(few_words(rng, rng.randint(5, 7), 4)),
    skip=lambda keep, change, show: (
        (keep == "every" and change == "same") or (show == "once" and change != "same")  # hardly a change for "once"
    ),
)

FAMILIES: tuple[Family, ...] = (_NUMBER_GROUPS, _WORD_GROUPS, _COUNTS)
