"""Families about dictionaries: built from lines, looked up, merged, turned around."""

from __future__ import annotations

import random
from collections.abc import Callable

from family import Family

from families._compose import Table, compose, piece, without
from families._frames import pipeline, reading
from families._inputs import Draw, counted, few_words, line, numbers, words
from families._pieces import (
    FILTERS,
    FOLDS,
    MAPS,
    NATURAL_FILTERS,
    WORD_FOLDS,
    WORD_MAPS,
    idle,
)

# Inputs: few names, so that they repeat.


def _entries(rng: random.Random, size: int) -> str:
    names = dict.fromkeys(words(rng, (size, size)))
    return line([f"{name}:{number}" for name, number in zip(names, numbers(rng, sizes=(9, 9)), strict=False)])


def _name_rows(rng: random.Random) -> str:
    names = few_words(rng, rng.randint(4, 6), 3)
    return counted([f"{name} {number}" for name, number in zip(names, numbers(rng, sizes=(9, 9)), strict=False)])


def _stock_rows(rng: random.Random) -> str:
    names = few_words(rng, rng.randint(4, 6), 3)
    return counted([f"{rng.choice(('in', 'in', 'in', 'out', 'out'))} {name} {rng.randint(1, 12)}" for name in names])


def _lookup(rng: random.Random) -> str:
    entries = _entries(rng, rng.randint(3, 4))
    known = [entry.split(":")[0] for entry in entries.split()]
    asked = [*words(rng, (1, 2)), *rng.choices(known, k=rng.randint(3, 4))]
    rng.shuffle(asked)
    return entries + line(asked)


def _two_mappings(rng: random.Random) -> str:
    names = list(dict.fromkeys(words(rng, (12, 12))))[:5]
    lines = (rng.sample(names, rng.randint(2, 4)) for _ in range(2))
    return "".join(line([f"{name}:{rng.randint(-9, 15)}" for name in chosen]) for chosen in lines)


def _number_rows(rng: random.Random) -> str:
    names = dict.fromkeys(words(rng, (5, 6)))
    return counted([f"{name} {rng.randint(1, 12)}" for name in names])


# Mappings from names to numbers: of the numbers, some are kept, changed and folded.


def _values(
    name: str,
    rule: Table,
    sentences: tuple[str, ...],
    reads: tuple[str, ...],
    draw_input: Draw,
    items: str = "$d.values()",
    skip: Callable[[str, str, str], bool] = lambda rule, keep, change: False,
) -> Family:
    return compose(
        name,
        {"rule": rule, "keep": FILTERS, "change": MAPS, "fold": FOLDS},
        tuple(f"{sentence}, print $fold $keep$change." for sentence in sentences),
        reading(reads, pipeline(items)),
        draw_input,
        skip=lambda rule, keep, change, fold: idle(keep, change, fold) or skip(rule, keep, change),
    )


_WORTH = {
    "total": piece(
        "the total of its numbers",
        "the sum of its numbers",
        put="$d[$w] = $d.get($w, 0) + $x",
        merge="if $w not in $d:\n    $d[$w] = 0\n$d[$w] += $x",
        group="sum(group)",
    ),
    "last": piece("the last of its numbers", put="$d[$w] = $x", merge="$d[$w] = $x", group="group[-1]"),
    "largest": piece(
        "the largest of its numbers",
        put="$d[$w] = max($x, $d.get($w, $x))",
        merge="if $w not in $d or $x > $d[$w]:\n    $d[$w] = $x",
        group="max(group)",
    ),
}
_NAME_VALUES = _values(
    "name-values",
    _WORTH,
    (
        "Read n, then n lines with a name and a number. Each name is worth $rule. "
        "Of these values, in order of first appearance",
        "The first line is n; n lines with a name and a number follow. For each name take $rule. "
        "Of these values, in the order in which the names first appear",
    ),
    (
        "$d = {}\nfor _ in range(int(input())):\n    $w, $x = input().split()\n    $x = int($x)\n    $put",
        "count = int(input())\n$d = {}\nfor _ in range(count):\n    row = input().split()\n"
        "    $w, $x = row[0], int(row[1])\n    $merge",
        "groups = {}\nfor _ in range(int(input())):\n    $w, $x = input().split()\n"
        "    groups.setdefault($w, []).append(int($x))\n$d = {$w: $group for $w, group in groups.items()}",
    ),
    _name_rows,
)

_STOCK = {
    "free": piece("A stock may fall below 0", out="$d[$w] -= $x", after="before - $x"),
    "floor": piece(
        "Taking out more than there is leaves 0", out="$d[$w] = max(0, $d[$w] - $x)", after="max(0, before - $x)"
    ),
    "refuse": piece(
        "Taking out more than there is is refused and changes nothing",
        out="if $x <= $d[$w]:\n    $d[$w] -= $x",
        after="before - $x if $x <= before else before",
    ),
}
_ROW = "    verb, $w, $x = input().split()\n    $x = int($x)\n"
_STOCKS = _values(
    "stock",
    _STOCK,
    (
        "Read n, then n lines: in or out, an item, an amount. All stocks start at 0. $rule. "
        "Of the final stocks, in order of first appearance",
        "After n come n lines with in or out, an item and an amount, which move its stock (0 before). $rule. "
        "Of the stocks at the end, in order of first appearance",
    ),
    (
        f"$d = {{}}\nfor _ in range(int(input())):\n{_ROW}    $d.setdefault($w, 0)\n"
        '    if verb == "in":\n        $d[$w] += $x\n    else:\n        $out',
        f"count = int(input())\n$d = {{}}\nfor _ in range(count):\n{_ROW}    before = $d.get($w, 0)\n"
        '    $d[$w] = before + $x if verb == "in" else ($after)',
    ),
    _stock_rows,
    skip=lambda rule, keep, change: rule != "free" and (keep == "negative" or change == "absolute"),
)

_SPLIT = '    $w, $x = part.split(":")\n'
_UNKNOWN = {
    "skipped": piece("are skipped", pick=" if $w in $d", get="$d[$w]", visit="if $w in $d:\n    $xs.append($d[$w])"),
    "one": piece("count as 1", pick="", get="$d.get($w, 1)", visit="$xs.append($d.get($w, 1))"),
}
_NOT_ONE = ("even", "negative", "thirds", "above-five")
_LOOKUPS = _values(
    "lookups",
    _UNKNOWN,
    (
        "Read a line of entries name:number and a line of names. Look up the names; unknown ones $rule. "
        "Of the numbers found, in the order of the second line",
        "The first line holds entries name:number, the second names to look up (unknown ones $rule). "
        "Of the numbers that they give, in that order",
    ),
    (
        f"$d = {{}}\nfor part in input().split():\n{_SPLIT}    $d[$w] = int($x)\n"
        "$xs = [$get for $w in input().split()$pick]",
        '$d = dict(part.split(":") for part in input().split())\n$d = {$w: int($x) for $w, $x in $d.items()}\n'
        "$xs = []\nfor $w in input().split():\n    $visit",
    ),
    _lookup,
    items="$xs",
    skip=lambda rule, keep, change: rule == "one" and keep in _NOT_ONE,
)

_MERGE = {
    "added": piece(
        "Merge them, adding the two numbers of a name that is in both",
        "Put them together; a name in both lines gets the sum of its numbers",
        merged="{$w: first.get($w, 0) + second.get($w, 0) for $w in {**first, **second}}",
        steps="$d = dict(first)\nfor $w, $x in second.items():\n    $d[$w] = $d.get($w, 0) + $x",
    ),
    "second": piece(
        "Merge them; for a name in both the second number counts",
        "Put them together, the second line overriding the first",
        merged="{**first, **second}",
        steps="$d = dict(first)\nfor $w, $x in second.items():\n    $d[$w] = $x",
    ),
    "difference": piece(
        "For each name in both lines take its first number minus its second",
        merged="{$w: first[$w] - second[$w] for $w in first if $w in second}",
        steps="$d = {}\nfor $w, $x in first.items():\n    if $w in second:\n        $d[$w] = $x - second[$w]",
    ),
    "missing": piece(
        "Take only the names of the first line that are not in the second",
        "Remove from the first line the names that are in the second",
        merged="{$w: first[$w] for $w in first if $w not in second}",
        steps="$d = {}\nfor $w, $x in first.items():\n    if $w not in second:\n        $d[$w] = $x",
    ),
}
_MERGED = _values(
    "merged-mappings",
    _MERGE,
    (
        "Read two lines of entries name:number. $rule. Of the resulting numbers, in order of first appearance",
        "Two lines hold entries name:number. $rule. Of the numbers that result, in order of first appearance",
    ),
    (
        'first, second = (\n    {$w: int($x) for $w, $x in (part.split(":") for part in input().split())}\n'
        "    for _ in range(2)\n)\n$d = $merged",
        f"first, second = {{}}, {{}}\nfor side in (first, second):\n    for part in input().split():\n    {_SPLIT}"
        "        side[$w] = int($x)\n$steps",
    ),
    _two_mappings,
)

# From numbers back to names.

_HOLDER = {
    "first": piece("the first name with it", "the name that came with it first", put="$d.setdefault($x, $w)"),
    "last": piece("the last name with it", "the name that came with it last", put="$d[$x] = $w"),
    "early": piece("the alphabetically first name with it", put="$d[$x] = min($w, $d.get($x, $w))"),
}
_INVERTED = compose(
    "inverted-mapping",
    {"keep": NATURAL_FILTERS, "holder": _HOLDER, "change": WORD_MAPS, "fold": without(WORD_FOLDS, "distinct")},
    (
        "Read n, then n lines with a name and a number. For each number remember $holder. "
        "Take $keep in increasing order and print $fold their remembered names$change.",
        "After n come n lines with a name and a number. Each number stands for $holder. "
        "Go through $keep from smallest to largest and print $fold the names that they stand for$change.",
    ),
    reading(
        (
            "$d = {}\nfor _ in range(int(input())):\n    $w, $x = input().split()\n    $x = int($x)\n    $put",
            "count = int(input())\n$d = {}\nfor _ in range(count):\n    row = input().split()\n"
            "    $w, $x = row[0], int(row[1])\n    $put",
        ),
        pipeline("sorted($d.items())", "$x, $w"),
    ),
    _number_rows,
)

FAMILIES: tuple[Family, ...] = (_NAME_VALUES, _STOCKS, _LOOKUPS, _MERGED, _INVERTED)
