"""Families that make numbers by arithmetic (gcds, recurrences, bases, ...), then keep, change and fold them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

from family import Family

from families._c import NUMBERS, PIPELINE
from families._compose import Table, compose, piece
from families._frames import expand
from families._inputs import Draw, counted_lines, line, number_line, numbers
from families._pieces import (
    FILTERS,
    FOLDS,
    MAPS,
    NATURAL_FILTERS,
    NATURAL_MAPS,
    idle,
)

_ASKS = ("Print $fold $keep$change.", "Of these, print $fold $keep$change.")

# ``@read`` the input; ``@make`` leaves the numbers in $xs; ``@loop`` does ``@each`` with every $x; ``@given`` is what
# both start from.
_STYLES = (
    "@read\n@make\n$ys = [$value for $x in $xs$where]\nprint($whole)\n",
    "@read\n$ys = []\n@loop($collect)\nprint($whole)\n",
    "@read\n$start\n@loop($follow)\nprint($show)\n",
    """\
def collect(@given):
    $xs = []
    @loop($xs.append($x))
    return $xs


def change($x):
    return $value


def main():
    @read
    $xs = collect(@given)
    $ys = [change($x) for $x in $xs$where]
    print($whole)


main()
""",
    """\
class Keeper:
    def __init__(self):
        self.items = []

    def add(self, $x):
        $ys = self.items
        $collect

    def show(self):
        $ys = self.items
        print($whole)


keeper = Keeper()
@read
@loop(keeper.add($x))
keeper.show()
""",
)


def _programs(read: str, make: str, loop: str, given: str) -> tuple[str, ...]:
    return expand(_STYLES, loop, read=read, make=make, given=given)


def _repeats(keep: str, change: str, fold: str) -> bool:
    """Whether the change leaves this fold as it was."""
    return idle(keep, change, fold) or (fold == "distinct" and change not in ("same", "half", "last-digit"))


_NATURAL: Mapping[str, Table] = {
    "keep": NATURAL_FILTERS,
    "change": NATURAL_MAPS,
    "fold": FOLDS,
}
_INTEGER: Mapping[str, Table] = {
    "keep": FILTERS,
    "change": MAPS,
    "fold": FOLDS,
}


def _family(
    name: str,
    sentences: tuple[str, ...],
    programs: tuple[str, ...],
    draw_input: Draw,
    own: Mapping[str, Table],
    tables: Mapping[str, Table] = _NATURAL,
    skip: Callable[..., bool] = lambda *choices: False,
    c_read: str = "",
) -> Family:
    """All of keep, change and fold, on the numbers made by each of the ``own`` pieces."""
    return compose(
        name,
        {**own, **tables},
        tuple(f"{sentence} {ask}" for sentence in sentences for ask in _ASKS),
        programs,
        draw_input,
        skip=lambda *choices: _repeats(*choices[-3:]) or skip(*choices),
        code={"numbers": NUMBERS, "c_read": c_read},
        c_programs=PIPELINE if c_read else (),
    )


# What is made of two numbers a and b, of the two last terms, of one number a.
_COMMON = {
    "gcd": piece("their greatest common divisor", "the gcd of the two", made="math.gcd(a, b)", c_made="gcd(a, b)"),
    "lcm": piece(
        "their least common multiple", "the lcm of the two", made="a * b // math.gcd(a, b)", c_made="a * b / gcd(a, b)"
    ),
    "remainder": piece(
        "the larger modulo the smaller",
        "the larger % the smaller",
        made="max(a, b) % min(a, b)",
        c_made="larger(a, b) % smaller(a, b)",
    ),
}
_NEXT = {
    "sum": piece("the sum of the two before it", next="a + b"),
    "difference": piece("the one before it minus the one before that", next="b - a"),
    "weighted": piece("the one before it plus twice the one before that", next="b + 2 * a"),
    "distance": piece(
        "the distance between the two before it, plus 1", next="abs(a - b) + 1", c_next="llabs(a - b) + 1"
    ),
}
_SUMS = {
    "integers": piece("1 + 2 + ... + a", made="sum(range(1, a + 1))", c_make="long long made = a * (a + 1) / 2;"),
    "squares": piece(
        "1*1 + 2*2 + ... + a*a",
        made="sum(k * k for k in range(1, a + 1))",
        c_make="long long made = 0;\nfor (; a > 0; a--)\n    made += a * a;",
    ),
    "threes": piece(
        "1 + 3 + 9 + ... + 3**a",
        made="sum(3**k for k in range(a + 1))",
        c_make="long long made = 1;\nfor (; a > 0; a--)\n    made = 3 * made + 1;",
    ),
}
_DIGITS = {
    "sum": piece(
        "the sum of its digits",
        "its digit sum",
        made="sum(map(int, str(a)))",
        c_make="long long made = 0;\nfor (; a > 0; a /= 10)\n    made += a % 10;",
    ),
    "largest": piece(
        "its largest digit",
        made="int(max(str(a)))",
        c_make="long long made = 0;\nfor (; a > 0; a /= 10)\n    made = larger(made, a % 10);",
    ),
    "product": piece(
        "the product of its digits",
        made="math.prod(map(int, str(a)))",
        c_make="long long made = 1;\nfor (; a > 0; a /= 10)\n    made *= a % 10;",
    ),
    "mirrored": piece(
        "a read from right to left (120 gives 21)",
        made="int(str(a)[::-1])",
        c_make="long long made = 0;\nfor (; a > 0; a /= 10)\n    made = made * 10 + a % 10;",
    ),
}
_BASES = {
    "two": piece("binary", "base 2", base="2"),
    "three": piece("base 3", base="3"),
    "four": piece("base 4", base="4"),
    "five": piece("base 5", base="5"),
}
_KINDS = {
    "primes": piece("primes", "prime numbers", kind="$x > 1 and all($x % k for k in range(2, $x))"),
    "squares": piece("perfect squares", "square numbers", kind="math.isqrt($x) ** 2 == $x"),
    "triangular": piece("triangular numbers (1, 3, 6, 10, ...)", kind="math.isqrt(8 * $x + 1) ** 2 == 8 * $x + 1"),
    "digit-sums": piece("numbers whose digit sum is divisible by 4", kind="sum(map(int, str($x))) % 4 == 0"),
}
_STEPS = {
    "quotients": piece("write down a", made="a"),
    "remainders": piece("write down a modulo b", "write down the remainder of a divided by b", made="a % b"),
    "multiples": piece("write down the largest multiple of b not above a", made="a - a % b"),
}


_EACH_NUMBER = _programs(
    "row = input().split()",
    "$xs = [$made for a in map(int, row)]",
    "for a in map(int, row):\n    $x = $made\n    @each",
    "row",
)


def _draw_common(rng: random.Random) -> str:
    rows = []
    for _ in range(rng.randint(3, 5)):
        shared = rng.randint(1, 6)
        rows.append([shared * factor for factor in rng.sample(range(1, 9), 2)])
    return counted_lines(rows)


def _draw_binary(rng: random.Random) -> str:
    return line([format(rng.randint(1, 15), "b") for _ in range(rng.randint(4, 6))])


def _draw_bounds(rng: random.Random) -> str:
    low = rng.randint(1, 25)
    return line([low, low + rng.randint(8, 30)])


_C_EACH_NUMBER = """\
long long a;
while (count < MAX && scanf("%lld", &a) == 1) {
    $make
    $xs[count++] = made;
}"""
_C_PAIRS = """\
int n;
long long a, b;
if (scanf("%d", &n) != 1)
    return 1;
while (count < n && count < MAX && scanf("%lld %lld", &a, &b) == 2)
    $xs[count++] = $made;"""
_C_TERMS = """\
long long a, b;
int n;
if (scanf("%lld %lld %d", &a, &b, &n) != 3)
    return 1;
while (count < n && count < MAX) {
    $xs[count++] = a;
    long long next = $next;
    a = b;
    b = next;
}"""
_C_DIGITS = """\
char word[SIZE];
while (count < MAX && scanf("%63s", word) == 1) {
    long long value = 0;
    for (int i = 0; word[i] != '\\0'; i++)
        value = value * $base + (word[i] - '0');
    $xs[count++] = value;
}"""
_C_CHAIN = """\
long long a, b;
if (scanf("%lld %lld", &a, &b) != 2)
    return 1;
for (; a > 0 && count < MAX; a /= b)
    $xs[count++] = $made;"""

FAMILIES: tuple[Family, ...] = (
    _family(
        "digit-values",
        (
            "Read a line of positive integers. Replace each number a by $digit_value.",
            "One line holds positive integers. For each number a take $digit_value.",
        ),
        _EACH_NUMBER,
        lambda rng: line([rng.randint(1, 10 ** rng.randint(1, 4)) for _ in range(rng.randint(4, 6))]),
        {"digit_value": _DIGITS},
        c_read=_C_EACH_NUMBER,
    ),
    _family(
        "common-divisors",
        (
            "Read n, then n lines with two positive integers each. For each line take $common.",
            "Each of the n lines after the first (n) holds two positive integers. Take $common for every line.",
        ),
        _programs(
            "n = int(input())",
            "$xs = []\nfor _ in range(n):\n    a, b = map(int, input().split())\n    $xs.append($made)",
            "for _ in range(n):\n    a, b = map(int, input().split())\n    $x = $made\n    @each",
            "n",
        ),
        _draw_common,
        {"common": _COMMON},
        c_read=_C_PAIRS,
    ),
    _family(
        "recurrences",
        (
            "Read a, b and n from one line. A sequence starts with a and b; each later term is $next_term. "
            "Take its first n terms.",
            "One line holds a, b and n. Take the first n terms of the sequence a, b, ... where each later term is "
            "$next_term.",
        ),
        _programs(
            "a, b, n = map(int, input().split())",
            "$xs = []\nfor _ in range(n):\n    $xs.append(a)\n    a, b = b, $next",
            "for _ in range(n):\n    $x = a\n    a, b = b, $next\n    @each",
            "a, b, n",
        ),
        lambda rng: line([*numbers(rng, -5, 8, (2, 2)), rng.randint(4, 7)]),
        {"next_term": _NEXT},
        _INTEGER,
        c_read=_C_TERMS,
    ),
    _family(
        "bases",
        (
            "Read a line of numbers written in $number_base. Take their values in decimal.",
            "One line holds numbers in $number_base. Convert them to decimal.",
        ),
        _programs(
            "$ws = input().split()",
            "$xs = [int($w, $base) for $w in $ws]",
            "for $w in $ws:\n    $x = 0\n    for c in $w:\n        $x = $x * $base + int(c)\n    @each",
            "$ws",
        ),
        _draw_binary,
        {"number_base": _BASES},
        c_read=_C_DIGITS,
        skip=lambda base, keep, change, fold: fold == "distinct",  # the base hardly shows in it
    ),
    _family(
        "special-numbers",
        (
            "Read a and b from one line. Take the $special from a to b, both included, in increasing order.",
            "One line holds a and b. List the $special from a up to and including b, smallest first.",
        ),
        _programs(
            "a, b = map(int, input().split())",
            "$xs = [$x for $x in range(a, b + 1) if $kind]",
            "for $x in range(a, b + 1):\n    if $kind:\n        @each",
            "a, b",
        ),
        _draw_bounds,
        {"special": _KINDS},
        skip=lambda kind, keep, change, fold: (
            keep == "below-ten"
            or (kind == "primes" and keep in ("even", "thirds"))
            or (change == "negate" and fold == "ascending")
            or (change == "half" and fold == "distinct")
        ),
    ),
    _family(
        "power-sums",
        (
            "Read a line of positive integers. Replace each number a by $power_sum.",
            "One line holds positive integers. For each number a compute $power_sum.",
        ),
        _EACH_NUMBER,
        number_line(1, 6, (4, 6)),
        {"power_sum": _SUMS},
        c_read=_C_EACH_NUMBER,
        skip=lambda made, keep, change, fold: (
            (made == "threes" and keep in ("thirds", "not-thirds", "below-ten"))
            or (made == "squares" and keep == "thirds")
            or fold in ("span", "distinct")
        ),
    ),
    _family(
        "division-chains",
        (
            "Read a and b from one line. While a is above 0: $chain, then a becomes a // b. Take the numbers written.",
            "One line holds a and b. Until a is 0, $chain and then divide a by b, rounding down. "
            "Take the numbers written down, in order.",
        ),
        _programs(
            "a, b = map(int, input().split())",
            "$xs = []\nwhile a > 0:\n    $xs.append($made)\n    a //= b",
            "while a > 0:\n    $x = $made\n    a //= b\n    @each",
            "a, b",
        ),
        lambda rng: line([rng.randint(200, 3000), rng.randint(3, 16)]),
        {"chain": _STEPS},
        c_read=_C_CHAIN,
        skip=lambda made, keep, change, fold: (
            (fold == "ascending" and made != "remainders")
            or (fold in ("distinct", "min") and made == "multiples")
            or (keep == "below-ten" and made == "multiples")
        ),
    ),
)
