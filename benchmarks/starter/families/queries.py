"""Families of queries, line by line, answered by folds of numbers that were kept and changed."""

from __future__ import annotations

import random
from collections.abc import Mapping

from family import Family

from families._compose import Table, compose, piece
from families._frames import expand
from families._inputs import (
    READ_NUMBERS,
    Draw,
    counted,
    counted_lines,
    line,
    numbers,
)
from families._pieces import FILTERS, MAPS, NUMBER_FOLDS, idle

# ``@read`` is what comes before the queries; ``@query`` reads one; ``@loop`` does ``@each`` with every $x it asks for,
# ``@part`` lists them; ``@given``: names that both define; ``@asked``: arguments of one query.
_STYLES = (
    "@read\nfor _ in range(int(input())):\n    @query\n    $ys = [$value for $x in @part$where]\n    print($whole)\n",
    "@read\nfor _ in range(int(input())):\n    @query\n    $ys = []\n    @loop($collect)\n    print($whole)\n",
    """\
def answer(@given, @asked):
    $start
    @loop($follow)
    return $show


@read
q = int(input())
for _ in range(q):
    @query
    print(answer(@given, @asked))
""",
    """\
class Numbers:
    def __init__(self, @given):
        self.@given = @given

    def select(self, @asked):
        @given = self.@given
        return @part

    def answer(self, @asked):
        $ys = [$value for $x in self.select(@asked)$where]
        return $whole


def main():
    @read
    store = Numbers(@given)
    for _ in range(int(input())):
        @query
        print(store.answer(@asked))


main()
""",
)


_ASKS = ("print $fold $keep$change.", "answer with $fold $keep$change.")


def _family(
    name: str,
    sentences: tuple[str, ...],
    programs: tuple[str, ...],
    draw_input: Draw,
    own: Mapping[str, Table] | None = None,
) -> Family:
    """All of keep, change and fold, for the numbers that each query selects."""
    tasks = tuple(f"{sentence} {ask}" for sentence in sentences for ask in _ASKS)
    return compose(
        name,
        {**(own or {}), "keep": FILTERS, "change": MAPS, "fold": NUMBER_FOLDS},
        tasks,
        programs,
        draw_input,
        skip=lambda *choices: idle(*choices[-3:]),
    )


# Queries about numbers that stay as they are.

_READ_PAIRS = """\
pairs = []
for _ in range(int(input())):
    key, number = input().split()
    pairs.append((key, int(number)))"""

_PLACES = {
    "inside": piece("the numbers at places l to r (both included)", part="$xs[left - 1 : right]"),
    "outside": piece("the numbers before place l and those after place r", part="$xs[: left - 1] + $xs[right:]"),
}
_BOUNDS = {
    "inside": piece("from a to b (both included)", "between a and b (both included)", inside="a <= $x <= b"),
    "outside": piece("less than a or greater than b", "below a or above b", inside="$x < a or $x > b"),
}


def _draw_slices(rng: random.Random) -> str:
    values = numbers(rng, sizes=(5, 7))
    return line(values) + counted_lines(
        [sorted(rng.sample(range(1, len(values) + 1), 2)) for _ in range(rng.randint(2, 3))]
    )


def _draw_intervals(rng: random.Random) -> str:
    return line(numbers(rng, sizes=(5, 7))) + counted_lines([sorted(numbers(rng, sizes=(2, 2))) for _ in range(2)])


def _draw_lookups(rng: random.Random) -> str:
    names = rng.sample(("ann", "bob", "cat", "dan", "eve"), 3)
    values = numbers(rng, sizes=(5, 6))
    rows = [f"{rng.choice(names[:2])} {value}" for value in values]
    asked = rng.sample(names[:2], 2) + names[2:] * rng.randint(0, 1)
    return counted(rows) + counted(asked)


_SLICES = _family(
    "slice-queries",
    (
        "Line 1 holds integers, line 2 is q; q lines with l and r follow. For each take $place, counting from 1, and",
        "Read a line of integers, then q and q lines l r. For each take $place, counting from 1, and",
        "Some integers are on the top line. Below are a count q and as many pairs l r, a pair a line. A pair selects "
        "$place, where the first place is 1; from this selection",
    ),
    expand(
        _STYLES,
        loop="for $x in $part:\n    @each",
        read=READ_NUMBERS,
        query="left, right = map(int, input().split())",
        part="$part",
        given="$xs",
        asked="left, right",
    ),
    _draw_slices,
    {"place": _PLACES},
)

_INTERVALS = _family(
    "interval-queries",
    (
        "Line 1 holds integers, line 2 is q; q lines with a and b follow. For each take the integers $bound and",
        "Read a line of integers, then q and q lines a b. For each take the integers $bound and",
    ),
    expand(
        _STYLES,
        loop="for $x in $xs:\n    if $inside:\n        @each",
        read=READ_NUMBERS,
        query="a, b = map(int, input().split())",
        part="[$x for $x in $xs if $inside]",
        given="$xs",
        asked="a, b",
    ),
    _draw_intervals,
    {"bound": _BOUNDS},
)

_LOOKUPS = _family(
    "name-queries",
    (
        "Read n and n lines with a name and an integer, then q and q lines with a name. For each of these take its "
        "integers and",
        "First n and n lines `name integer`, then q and q lines with a name. For each of these take its integers and",
        "A table of n rows, each a name and an integer, stands below n. Then q is given and below it q questions, "
        "each just a name. Look up all integers of that name and",
    ),
    expand(
        _STYLES,
        loop="for key, $x in pairs:\n    if key == $w:\n        @each",
        read=_READ_PAIRS,
        query="$w = input()",
        part="[number for key, number in pairs if key == $w]",
        given="pairs",
        asked="$w",
    ),
    _draw_lookups,
)

FAMILIES: tuple[Family, ...] = (_SLICES, _INTERVALS, _LOOKUPS)
