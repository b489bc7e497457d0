"""Families about whole numbers: digits, divisors, kinds of numbers and number bases."""

from __future__ import annotations

from securecoderl_edge.starter.families._compose import compose, condition, folds, piece
from securecoderl_edge.starter.family import Family

DIGITS = compose(
    "digits",
    {
        "base": {str(base): piece(f"base {base}", base=str(base)) for base in (10, 8, 5)},
        "keep": {
            "even": condition("$x % 2 == 0", "the even digits", "only the even digits"),
            "odd": condition("$x % 2 == 1", "the odd digits", "only the odd digits"),
            "big": condition("$x > 2", "the digits greater than 2", "the digits that are at least 3"),
            "not-one": condition("$x != 1", "the digits other than 1", "all digits except 1"),
        },
        "fold": folds("sum", "count", "max", "squares", "backwards"),
    },
    (
        "Read a positive integer n. Write n in $base and keep $keep. Print $fold.",
        "The input is a positive integer, given in decimal. Of its digits in $base, take $keep and print $fold.",
    ),
    (
        """\
def digits_of($k):
    found = []
    while $k > 0:
        $k, digit = divmod($k, $base)
        found.append(digit)
    return found


$xs = [$x for $x in digits_of(int(input()))$where]
print($whole)
""",
        """\
$k = int(input())
$t = $start
while $k > 0:
    $x = $k % $base
    $body
    $k //= $base
print($show)
""",
        """\
def digits_of($k):
    while $k:
        yield $k % $base
        $k //= $base


def keep($x):
    return $test


$xs = list(filter(keep, digits_of(int(input()))))
print($whole)
""",
    ),
    lambda rng: f"{rng.randint(1, 10 ** rng.randint(2, 7))}\n",
    # nearly always the same as for the digits greater than 2
    skip=lambda base, keep, fold: (keep, fold) == ("not-one", "max"),
)

DIVISORS = compose(
    "divisors",
    {
        "keep": {
            "even": condition("$x % 2 == 0", "that are even", "divisible by 2"),
            "odd": condition("$x % 2 == 1", "that are odd", "not divisible by 2"),
            "proper": condition("$x < $k", "smaller than n", "other than n itself"),
            "threes": condition("$x % 3 == 0", "that are multiples of 3", "divisible by 3"),
            "small": condition("$x * $x < $k", "whose square is less than n", "d with d * d < n"),
            "square": condition(
                "math.isqrt($x) ** 2 == $x", "that are perfect squares", "that are squares of integers"
            ),
            "unitary": condition(
                "math.gcd($x, $k // $x) == 1", "d for which d and n / d have no common factor above 1"
            ),
            "even-rest": condition(
                "$k // $x % 2 == 0", "d for which n / d is even", "d such that n divided by d is even"
            ),
        },
        "fold": folds("sum", "count", "max", "squares", "digits", "list"),
    },
    (
        "Read a positive integer n. Consider the positive divisors of n $keep. Print $fold.",
        "Given n, a positive integer, find its positive divisors $keep and print $fold.",
    ),
    (
        """\
def divisors($k):
    return [$x for $x in range(1, $k + 1) if $k % $x == 0]


$k = int(input())
$xs = [$x for $x in divisors($k)$where]
print($whole)
""",
        """\
$k = int(input())
$t = $start
for $x in range(1, $k + 1):
    if $k % $x != 0:
        continue
    $body
print($show)
""",
        """\
$k = int(input())
divisors = set()
i = 1
while i * i <= $k:
    if $k % i == 0:
        divisors.update((i, $k // i))
    i += 1
$xs = [$x for $x in sorted(divisors)$where]
print($whole)
""",
    ),
    lambda rng: f"{rng.choice((1, 2, 3)) * rng.randint(1, 40)}\n",
    skip=lambda keep, fold: (
        # n itself, or n when it is even or a multiple of 3, or half of n
        (fold == "max" and keep in ("unitary", "even", "threes", "even-rest"))
        # these divisors mostly have one digit
        or (fold == "digits" and keep in ("small", "square"))
        # half of each even divisor is one of these
        or (keep, fold) == ("even-rest", "count")
    ),
)

RANGE_KINDS = compose(
    "range-kinds",
    {
        "kind": {
            "prime": piece(
                "prime numbers",
                "primes",
                oneline="$x > 1 and all($x % i for i in range(2, $x))",
                check="if $x < 2:\n    return False\nfor i in range(2, $x):\n    if $x % i == 0:\n"
                "        return False\nreturn True",
            ),
            "harshad": piece(
                "numbers divisible by their own digit sum",
                "numbers that are multiples of the sum of their digits",
                oneline="$x % sum(int(char) for char in str($x)) == 0",
                check="rest, digit_sum = $x, 0\nwhile rest:\n    digit_sum += rest % 10\n"
                "    rest //= 10\nreturn $x % digit_sum == 0",
            ),
            "squarefree": piece(
                "numbers not divisible by any square above 1",
                "numbers without a square factor greater than 1",
                oneline="all($x % (i * i) for i in range(2, $x + 1))",
                check="i = 2\nwhile i * i <= $x:\n    if $x % (i * i) == 0:\n        return False\n"
                "    i += 1\nreturn True",
            ),
            "four": piece(
                "numbers with exactly 4 divisors",
                "numbers that have exactly four positive divisors",
                oneline="sum($x % i == 0 for i in range(1, $x + 1)) == 4",
                check="divisors = 0\nfor i in range(1, $x + 1):\n    if $x % i == 0:\n"
                "        divisors += 1\nreturn divisors == 4",
            ),
        },
        "keep": {
            "mod4": condition(
                "$x % 4 < 2", "leave remainder 0 or 1 when divided by 4", "have remainder below 2 modulo 4"
            ),
            "digit-sum": condition(
                "sum(map(int, str($x))) % 2 == 1", "have an odd digit sum", "have digits with an odd sum"
            ),
            "has-one": condition(
                '"1" in str($x) or "3" in str($x)',
                "contain the digit 1 or 3",
                "have a 1 or a 3 among their digits",
            ),
        },
        "fold": folds("sum", "count", "max", "list"),
    },
    (
        "Read two positive integers a and b (a <= b). Take the $kind from a to b, inclusive, that $keep. Print $fold.",
        "The input has two integers a <= b, at least 1. Among the $kind in the range a..b (both "
        "included), choose those"
        " that $keep and print $fold.",
    ),
    (
        """\
def fits($x):
    $check


low, high = map(int, input().split())
$t = $start
for $x in range(low, high + 1):
    if not fits($x):
        continue
    $body
print($show)
""",
        """\
low, high = map(int, input().split())
found = [$x for $x in range(low, high + 1) if $oneline]
$xs = [$x for $x in found$where]
print($whole)
""",
        """\
def wanted($x):
    return ($oneline) and ($test)


low, high = map(int, input().split())
$xs = list(filter(wanted, range(low, high + 1)))
print($whole)
""",
    ),
    lambda rng: f"{(low := rng.randint(1, 40))} {low + rng.randint(3, 24)}\n",
)

BASES = compose(
    "number-bases",
    {
        "base_in": {str(base): piece(f"base {base}", source=str(base)) for base in (3, 4, 7)},
        "base_out": {str(base): piece(f"base {base}", target=str(base)) for base in (2, 5, 6, 9)},
        "op": {
            "sum": piece("their sum", "the sum of the two", op="a + b"),
            "product": piece("their product", "the product of the two", op="a * b"),
            "difference": piece("their difference (the larger minus the smaller)", op="abs(a - b)"),
            "mixed": piece("the square of the first plus the second", op="a * a + b"),
        },
    },
    (
        "Read two positive numbers written in $base_in on one line. Print $op, written in $base_out.",
        "The line has two positive integers in $base_in. Compute $op and print it in $base_out, without leading zeros.",
    ),
    (
        """\
def to_base($k, base):
    if $k == 0:
        return "0"
    digits = ""
    while $k:
        digits = str($k % base) + digits
        $k //= base
    return digits


a, b = (int(part, $source) for part in input().split())
print(to_base($op, $target))
""",
        """\
def parse($s):
    $t = 0
    for char in $s:
        $t = $t * $source + int(char)
    return $t


a, b = map(parse, input().split())
$k = $op
digits = []
while $k:
    $k, digit = divmod($k, $target)
    digits.append(str(digit))
print("".join(reversed(digits)) or "0")
""",
    ),
    lambda rng: " ".join(rng.choice("12") + "".join(rng.choices("012", k=rng.randint(0, 3))) for _ in "ab") + "\n",
)

FAMILIES: tuple[Family, ...] = (DIGITS, DIVISORS, RANGE_KINDS, BASES)
