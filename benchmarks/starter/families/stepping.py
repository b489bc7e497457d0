"""Families that move one number as their state along a line: totals, counters, robots, accounts."""

from __future__ import annotations

from family import Family

from families._c import NUMBERS, each, function, main
from families._compose import compose, piece, without
from families._inputs import C_READ_NUMBERS, line, number_line, numbers
from families._pieces import (
    CONDITIONS,
    FOLDS,
    MAPS,
    NATURAL_CONDITIONS,
    idle_outside,
)

# One number as the state: ``$step`` brings ``$state`` from ``$first`` on by one ``$x``; its values are folded.

_STEPPED = (
    """\
$ys = []
$state = $first
for $x in map(int, input().split()):
    $step
    $ys.append($state)
print($whole)
""",
    """\
$xs = list(map(int, input().split()))
$state = $first
$start
for $x in $xs:
    $step
    $y = $state
    $take
print($show)
""",
    """\
def update($state, $x):
    $step
    return $state


def main():
    $xs = list(map(int, input().split()))
    $state = $first
    $ys = []
    for $x in $xs:
        $state = update($state, $x)
        $ys.append($state)
    print($whole)


main()
""",
    """\
class Machine:
    def __init__(self):
        self.$state = $first

    def move(self, $x):
        $state = self.$state
        $step
        self.$state = $state
        return $state


machine = Machine()
$ys = [machine.move($x) for $x in map(int, input().split())]
print($whole)
""",
)


_C_STEPPED = (
    main("long long $state = $first;", "$start", each("$step", "long long $y = $state;", "$take"), "$show"),
    function("long long update(long long $state, long long $x)", "$step", "return $state;")
    + main(
        "long long $ys[MAX];",
        "int size = 0;",
        "long long $state = $first;",
        each("$state = update($state, $x);", "$ys[size++] = $state;"),
        "$whole",
    ),
)
_C = {"numbers": NUMBERS, "c_read": C_READ_NUMBERS}


def _unseen_reset(keep: str, change: str, fold: str) -> bool:
    if fold in ("max", "min"):  # all levels may lie on one side of 0
        return keep in ("positive", "negative") or change in ("square", "absolute", "last-digit")
    return idle_outside(keep, change, "") or (change in ("negate", "double") and fold in ("distinct", "span"))


RESETS = compose(
    "reset-total",
    {
        "keep": without(CONDITIONS, "below-ten"),
        "change": MAPS,
        "fold": FOLDS,
    },
    (
        "Read a line of integers. A level starts at 0. A number that $when sets it to 0. To the level add the"
        " other numbers$change. Print $fold the levels after each number.",
        "The input is one line of integers. Start with level 0; a number that $when sets it back to 0. Add to it"
        " the other numbers$change. Print $fold the levels after each number.",
    ),
    _STEPPED,
    number_line(-9, 15),
    skip=_unseen_reset,
    code={
        **_C,
        "state": "level",
        "first": "0",
        "step": "if $test:\n    level = 0\nelse:\n    level += $value",
        "c_step": "if ($test)\n    level = 0;\nelse\n    level += $value;",
    },
    c_programs=_C_STEPPED,
)


def _unseen_bound(bound: str, change: str, fold: str) -> bool:
    if (bound in ("clip", "ceiling") and (change, fold) == ("square", "max")) or (bound, change) == (
        "wrap",
        "last-digit",
    ):
        return True  # soon the bound itself; the same as taking absolute values
    if change in ("square", "absolute", "last-digit"):
        return bound == "floor" or fold == "min"  # the counter never goes down
    return fold in ("distinct", "span") and change in ("negate", "double")


COUNTERS = compose(
    "bounded-counter",
    {
        "bound": {
            "clip": piece(
                "a value below 0 becomes 0, one above 20 becomes 20",
                step="count += $value\nif count < 0:\n    count = 0\nelif count > 20:\n    count = 20",
                c_step="level += $value;\nif (level < 0)\n    level = 0;\nelse if (level > 20)\n    level = 20;",
            ),
            "floor": piece(
                "a value below 0 becomes 0",
                step="count += $value\nif count < 0:\n    count = 0",
                c_step="level += $value;\nif (level < 0)\n    level = 0;",
            ),
            "ceiling": piece(
                "a value above 15 becomes 15",
                step="count += $value\nif count > 15:\n    count = 15",
                c_step="level += $value;\nif (level > 15)\n    level = 15;",
            ),
            "wrap": piece(
                "only its remainder modulo 10 is kept",
                step="count = (count + $value) % 10",
                c_step="level = floor_mod(level + $value, 10);",
            ),
            "empty": piece(
                "a value above 12 goes back to 0",
                step="count += $value\nif count > 12:\n    count = 0",
                c_step="level += $value;\nif (level > 12)\n    level = 0;",
            ),
        },
        "change": MAPS,
        "fold": FOLDS,
    },
    (
        "Read a line of integers. A counter starts at 0. One by one add to it the numbers$change. After each"
        " addition, $bound. Print $fold the counter's values after each number.",
        "The input is one line of integers. To a counter that starts at 0 add, from left to right, the"
        " numbers$change. After each step, $bound. Print $fold its values after each number.",
    ),
    _STEPPED,
    number_line(-9, 15),
    skip=_unseen_bound,
    code={**_C, "state": "count", "c_state": "level", "first": "0"},
    c_programs=_C_STEPPED,
)

ROBOTS = compose(
    "line-robot",
    {
        "keep": NATURAL_CONDITIONS,
        "other": {
            "step": piece("it takes one step back", otherwise="place -= 1", c_otherwise="place--;"),
            "back": piece("it goes back by that number", otherwise="place -= $x", c_otherwise="place -= $x;"),
            "mirror": piece(
                "it jumps from its place p to -p", otherwise="place = -place", c_otherwise="place = -place;"
            ),
            "half": piece(
                "it jumps from its place p to p // 2",
                otherwise="place //= 2",
                c_otherwise="place = floor_div(place, 2);",
            ),
        },
        "fold": FOLDS,
    },
    (
        "A robot starts at place 0. Read a line of positive integers. If a number $when, the robot goes forward by it;"
        " otherwise $other. Print $fold its places after each number.",
        "The input is one line of positive integers: commands for a robot at place 0. When the number $when, the robot"
        " adds it to its place; if not, $other. Print $fold the places after each number.",
    ),
    _STEPPED,
    number_line(1, 15),
    skip=lambda keep, other, fold: (  # the mirrored walk
        other == "back" and keep in ("odd", "not-thirds") and fold in ("distinct", "span")
    ),
    code={
        **_C,
        "state": "place",
        "first": "0",
        "step": "if $test:\n    place += $x\nelse:\n    $otherwise",
        "c_step": "if ($test)\n    place += $x;\nelse\n    $otherwise",
    },
    c_programs=_C_STEPPED,
)

ACCOUNTS = compose(
    "bank-account",
    {
        "rule": {
            "refuse": piece(
                "one that is larger than the balance is refused",
                step="if $x > 0:\n    balance += $value\nelif balance + $x >= 0:\n    balance += $x",
                c_step="if ($x > 0)\n    balance += $value;\nelse if (balance + $x >= 0)\n    balance += $x;",
            ),
            "partial": piece(
                "one that is larger than the balance empties the account",
                step="if $x > 0:\n    balance += $value\nelse:\n    balance = max(balance + $x, 0)",
                c_step="if ($x > 0)\n    balance += $value;\nelse\n    balance = larger(balance + $x, 0);",
            ),
            "overdraft": piece(
                "one that leads to a balance below -10 is refused",
                step="if $x > 0:\n    balance += $value\nelif balance + $x >= -10:\n    balance += $x",
                c_step="if ($x > 0)\n    balance += $value;\nelse if (balance + $x >= -10)\n    balance += $x;",
            ),
            "fee": piece(
                "each of them costs 1 more, and the balance may fall below 0",
                step="if $x > 0:\n    balance += $value\nelse:\n    balance += $x - 1",
                c_step="if ($x > 0)\n    balance += $value;\nelse\n    balance += $x - 1;",
            ),
        },
        "change": without(MAPS, "negate", "absolute", "minus-three"),
        "fold": FOLDS,
    },
    (
        "An account has a balance of 10. Read a line of integers. To the balance add the positive ones$change."
        " The negative ones are withdrawals: $rule. Print $fold the balances after each number.",
        "The input is one line of integers. To a balance of 10 add the positive numbers$change. Negative numbers"
        " are withdrawals: $rule. Print $fold the balances after each number.",
    ),
    _STEPPED,
    lambda rng: line([number or 5 for number in numbers(rng, -15, 12)]),
    c_programs=_C_STEPPED,
    code={**_C, "state": "balance", "first": "10"},
)

FAMILIES: tuple[Family, ...] = (RESETS, COUNTERS, ROBOTS, ACCOUNTS)
