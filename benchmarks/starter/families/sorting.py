"""Families about order: sorting by a key, moving some to one end, records, positions, parts of what was sorted."""

from __future__ import annotations

import random

from family import Family

from families._compose import Piece, Table, compose, only, piece
from families._frames import pipeline, reading
from families._inputs import READ_NUMBERS, counted, number_line, words
from families._pieces import (
    CONDITIONS,
    EVERY,
    FILTERS,
    FOLDS,
    MAPS,
    WORD_FOLDS,
    WORD_MAPS,
    entering,
    idle,
)

_SPACED = only(WORD_FOLDS, "spaced")
_ORDER_FOLDS = {**_SPACED, **only(FOLDS, "dashed", "backwards", "alternating", "weighted")}
_draw_numbers = number_line(sizes=(5, 7))


def _repeats(keep: str, change: str, fold: str = "") -> bool:
    """Like `idle`, but for families where all numbers as they are make a problem too."""
    return (keep, change) != ("every", "same") and idle(keep, change, fold)


# Sorted by a key, equal ones in the given order.

_KEYS = {
    "absolute": piece("absolute value", "value without the sign", key="abs($x)"),
    "last-digit": piece("last digit", key="abs($x) % 10"),
    "thirds": piece("remainder by 3 (x % 3)", "value of x % 3", key="$x % 3"),
    "falling": piece("value, largest first", key="-$x"),
}
_SORTED_BY = compose(
    "sorted-by-key",
    {"key": _KEYS, "keep": FILTERS, "change": MAPS, "fold": _ORDER_FOLDS},
    (
        "Read a line of integers and sort them by their $key; ties keep their order. Then print $fold $keep$change.",
        "The input is a line of integers. Order them by their $key (ties as in the input). "
        "In this order, print $fold $keep$change.",
    ),
    reading(
        (
            f"{READ_NUMBERS}\n$xs.sort(key=lambda $x: $key)",
            f"{READ_NUMBERS}\npairs = [($key, i, $x) for i, $x in enumerate($xs)]\n"
            "$xs = [$x for _, _, $x in sorted(pairs)]",
            f"{READ_NUMBERS}\n$d = {{}}\nfor $x in $xs:\n    $d.setdefault($key, []).append($x)\n"
            "$xs = [$x for key in sorted($d) for $x in $d[key]]",
        ),
        pipeline(),
    ),
    _draw_numbers,
    skip=lambda key, keep, change, fold: _repeats(keep, change) or (key, keep) == ("absolute", "negative"),
)

# Positions instead of the numbers themselves.


def _of_rows(table: Table, **columns: str) -> dict[str, Piece]:
    """Keys with one more bit, ``$rank``: the key in terms of the columns of a ``row``."""

    def rank(key: str) -> str:
        for variable, column in columns.items():
            key = key.replace(f"${variable}", column)
        return key

    return {name: Piece(key.words, {**key.code, "rank": rank(key.code["key"])}) for name, key in table.items()}


_POSITIONS = compose(
    "sorted-positions",
    {
        "key": _of_rows({"plain": piece("value, smallest first", key="$x"), **_KEYS}, x="row[1]"),
        "keep": FILTERS,
        "fold": _ORDER_FOLDS,
    },
    (
        "Read a line of integers, at positions 1, 2, 3, ... Sort the positions by their number's $key "
        "(ties: earlier position first). Print $fold the positions of $keep.",
        "The input is a line of integers. Order them by their $key (ties as in the input), and print $fold "
        "the places (from 1) that $keep have in the input.",
    ),
    reading(
        (
            f"{READ_NUMBERS}\nrows = sorted(enumerate($xs, 1), key=lambda row: $rank)",
            f"{READ_NUMBERS}\nmarked = [($key, j, $x) for j, $x in enumerate($xs, 1)]\nmarked.sort()\n"
            "rows = [(j, $x) for _, j, $x in marked]",
        ),
        pipeline("rows", "j, $x"),
    ),
    _draw_numbers,
    skip=lambda key, keep, fold: key == "absolute" and keep in ("positive", "above-five", "negative"),
    code={"value": "j"},
)

# Some at one end, then the others.

_ENDS = {
    "front": piece(
        "to the front",
        "before all others",
        joined="moved + others",
        stable="sorted($xs, key=lambda $x: not $test)",
    ),
    "back": piece(
        "to the end", "behind all others", joined="others + moved", stable="sorted($xs, key=lambda $x: $test)"
    ),
}
_MOVED = compose(
    "moved-to-one-end",
    {
        # The condition only decides who moves: what follows is done to every number.
        "keep": {key: Piece(kept.words, {**EVERY.code, "test": kept.code["test"]}) for key, kept in CONDITIONS.items()},
        "end": _ENDS,
        "change": MAPS,
        "fold": _ORDER_FOLDS,
    },
    (
        "Read a line of integers. Move $keep $end, otherwise keeping the order. Then print $fold all numbers$change.",
        "The input is a line of integers. Put $keep $end; apart from that the order stays. "
        "Print $fold the whole list$change.",
    ),
    reading(
        (
            f"{READ_NUMBERS}\n$xs = $stable",
            f"{READ_NUMBERS}\nmoved = []\nothers = []\nfor $x in $xs:\n    if $test:\n        moved.append($x)\n"
            "    else:\n        others.append($x)\n$xs = $joined",
            f"{READ_NUMBERS}\nmoved = [$x for $x in $xs if $test]\n"
            "others = [$x for $x in $xs if not $test]\n$xs = $joined",
        ),
        pipeline(),
    ),
    _draw_numbers,
    skip=lambda keep, end, change, fold: end == "back" and keep in ("even", "odd", "thirds", "not-thirds"),
)

# Records: the number decides who stays, the name is printed.

_RECORD_ORDERS = {
    "number": piece("number, equal numbers by name", key="($x, $w)"),
    "falling": piece("number, largest first, equal numbers by name", key="(-$x, $w)"),
    "name": piece("name", "name in alphabetical order", key="$w"),
    "length": piece("length of the name, equal lengths by name", key="(len($w), $w)"),
}
_ROWS = "rows = []\nfor _ in range(int(input())):\n    $w, $x = input().split()\n    rows.append(($w, int($x)))\n"


def _records(rng: random.Random) -> str:
    names = dict.fromkeys(words(rng, (4, 6)))
    return counted([f"{name} {rng.randint(-5, 15)}" for name in names])


_RECORDS = compose(
    "sorted-records",
    {
        "order": _of_rows(_RECORD_ORDERS, x="row[1]", w="row[0]"),
        "keep": CONDITIONS,
        "change": WORD_MAPS,
        "fold": only(WORD_FOLDS, "spaced", "dashed", "backwards", "glued", "longest"),
    },
    (
        "Read n, then n lines with a name and a number. Sort the lines by $order. "
        "Of those whose number $when, print $fold the names$change.",
        "The first line is n; n lines with a name and a number follow. Order them by $order. "
        "Print $fold the names$change, but only where the number $when.",
    ),
    reading(
        (
            f"{_ROWS}rows.sort(key=lambda row: $rank)",
            "marked = []\nfor _ in range(int(input())):\n    $w, $x = input().split()\n    $x = int($x)\n"
            "    marked.append(($key, $w, $x))\nrows = [($w, $x) for _, $w, $x in sorted(marked)]",
            f"{_ROWS.replace('rows', 'left')}rows = []\nwhile left:\n    best = min(left, key=lambda row: $rank)\n"
            "    left.remove(best)\n    rows.append(best)",
        ),
        pipeline("rows", "$w, $x"),
    ),
    _records,
    skip=lambda order, keep, change, fold: (order, fold) == ("length", "longest"),  # as when sorted by name
)

# A part of what was sorted.

_PARTS = (
    "$read\n$ys = sorted([$value for $x in $xs$where]$turn)$cut\nprint($whole)\n",
    "$read\n$ys = []\nfor $x in $xs:\n    $collect\n$ys = sorted($ys$turn)\n$ys = $ys$cut\nprint($whole)\n",
    """\
from bisect import insort

$read
ranked = []
for $x in $xs:
    $enter
$direct
$start
for j, $y in enumerate(ranked):
    if $inside:
        $take
print($show)
""",
    """\
def ranking($xs):
    $ys = []
    for $x in $xs:
        $collect
    return sorted($ys$turn)


def main():
    $read
    ranked = ranking($xs)
    $ys = [$y for j, $y in enumerate(ranked) if $inside]
    print($whole)


main()
""",
)
_RANKED = {
    "keep": entering(FILTERS, enter="insort(ranked, $value)"),
    "change": MAPS,
    "fold": {**_SPACED, **only(FOLDS, "sum", "span", "dashed", "backwards", "alternating", "weighted")},
}


def _part(*words: str, cut: str, inside: str, largest_first: bool = False) -> Piece:
    return piece(
        *words,
        cut=cut,
        inside=inside,
        turn=", reverse=True" if largest_first else "",
        direct="ranked.reverse()" if largest_first else "",
    )


def _first_line_k(rng: random.Random) -> str:
    return f"{rng.randint(2, 4)}\n{_draw_numbers(rng)}"


_TOP = compose(
    "k-of-the-sorted",
    {
        "part": {
            "largest": _part("the k largest, largest first", cut="[:k]", inside="j < k", largest_first=True),
            "smallest": _part("the k smallest, smallest first", cut="[:k]", inside="j < k"),
            "without": _part("all but the k smallest, smallest first", cut="[k:]", inside="j >= k"),
        },
        **_RANKED,
    },
    (
        "Read k, then a line of integers. Take $keep$change. Of the results keep $part, and print $fold these.",
        "The first line is k, the second holds integers. From $keep$change, select $part. Print $fold the selection.",
    ),
    _PARTS,
    _first_line_k,
    skip=lambda part, keep, change, fold: _repeats(keep, change, fold),
    code={"read": f"k = int(input())\n{READ_NUMBERS}"},
)
_EVERY_SECOND = compose(
    "part-of-the-sorted",
    {
        "part": {
            "odd-places": _part("the first, third, fifth, ... of them", cut="[::2]", inside="j % 2 == 0"),
            "even-places": _part("the second, fourth, sixth, ... of them", cut="[1::2]", inside="j % 2 == 1"),
            "inner": _part("all of them but the first and the last", cut="[1:-1]", inside="0 < j < len(ranked) - 1"),
            "falling-places": _part(
                "the largest, the third largest, ... of them, largest first",
                cut="[::2]",
                inside="j % 2 == 0",
                largest_first=True,
            ),
        },
        **_RANKED,
    },
    (
        "Read a line of integers. Take $keep$change, sort the results in increasing order, and print $fold $part.",
        "The input is a line of integers. Make an increasing list of $keep$change. Print $fold $part.",
    ),
    _PARTS,
    _draw_numbers,
    skip=lambda part, keep, change, fold: _repeats(keep, change, fold),
    code={"read": READ_NUMBERS},
)

FAMILIES: tuple[Family, ...] = (_SORTED_BY, _POSITIONS, _MOVED, _RECORDS, _TOP, _EVERY_SECOND)
