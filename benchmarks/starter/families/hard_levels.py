"""A hard family of a state that moves with the numbers kept, and is then filtered and folded itself."""

from __future__ import annotations

from family import Family

from families._compose import LARGE_FAMILY_SIZE, again, compose, only, piece
from families._pieces import CHANGES, CONDITIONS, FOLDS, idle
from families.hard_stages import LONG_LINE, NEVER_NEGATIVE

_STEPS = {
    "overflow": piece(
        "add the number to the level; a level above 20 becomes 0",
        "the level grows by the number but once past 20 it is reset to 0",
        step="level += $y\nif level > 20:\n    level = 0",
    ),
    "floor": piece(
        "add the number to the level; a level below 0 becomes 0",
        "the level grows by the number but never falls under 0",
        step="level = max(0, level + $y)",
    ),
    "chase": piece(
        "if the number exceeds the level, the level becomes the number, else the level drops by 1",
        "the level jumps to the number if that is higher, and otherwise loses 1",
        step="if $y > level:\n    level = $y\nelse:\n    level -= 1",
    ),
    "distance": piece(
        "the level becomes the distance between the number and the level",
        "replace the level by how far the number is from it",
        step="level = abs($y - level)",
    ),
    "swing": piece(
        "if the level is odd, add the number to it, else subtract the number from it",
        "an even level shrinks by the number, an odd one grows by it",
        step="if level % 2 != 0:\n    level += $y\nelse:\n    level -= $y",
    ),
}


def _level_is_idle(keep: str, change: str, step: str, keep2: str, fold: str) -> bool:
    never_negative = change in NEVER_NEGATIVE or (keep == "positive" and change != "minus-three")
    parity = keep in ("even", "odd") or change == "double"  # then swing always does the same
    return (
        idle(keep, change)
        or (step == "floor" and never_negative)
        or (step, keep2) in (("chase", "below-ten"), ("floor", "below-ten"), ("swing", "above-five"))
        or (change == "double" and step in ("overflow", "distance"))
        or (change, step, keep2) == ("absolute", "overflow", "below-ten")
        or (parity and (step == "swing" or keep2 in ("even", "odd")))
    )


_LEVEL = compose(
    "hard-level",
    {
        "keep": only(CONDITIONS, "even", "odd", "positive", "not-thirds"),
        "change": only(CHANGES, "double", "absolute", "next", "minus-three", "half"),
        "step": _STEPS,
        "keep2": again(only(CONDITIONS, "even", "not-thirds", "above-five", "below-ten")),
        "fold": only(FOLDS, "sum", "backwards", "dashed", "alternating", "weighted", "ascending"),
    },
    (
        "Read a line of integers. A level starts at 0. For each of $keep$change: $step. Of the levels noted after "
        "each one take $keep2. Print $fold the levels left.",
        "The input is one line of integers. Take $keep$change. From level 0 on, for each of these: $step. Of the "
        "levels after each one keep $keep2. Print $fold the levels left.",
        "A row of integers changes a level, which is 0 before the first. These act on it, one by one: $keep$change. "
        "For each one, $step. Write down the level whenever one has acted, choose $keep2 from what you wrote, and "
        "output $fold the chosen ones.",
    ),
    (
        """\
$xs = [$value for $x in map(int, input().split())$where]
level = 0
levels = []
for $y in $xs:
    $step
    levels.append(level)
$ys = [$x for $x in levels$where2]
print($whole)
""",
        """\
$xs = list(map(int, input().split()))
$ys = []
level = 0
for $x in $xs:
    if $test:
        $y = $value
        $step
        $x = level
        if $test2:
            $ys.append($x)
print($whole)
""",
        """\
def move(level, $y):
    $step
    return level


def main():
    $xs = list(map(int, input().split()))
    levels = [0]
    for $x in $xs:
        if $test:
            levels.append(move(levels[-1], $value))
    $start
    for $x in levels[1:]:
        if $test2:
            $y = $x
            $take
    print($show)


main()
""",
    ),
    LONG_LINE,
    skip=_level_is_idle,
    size=LARGE_FAMILY_SIZE,
)

FAMILIES: tuple[Family, ...] = (_LEVEL,)
