"""Families that follow a few numbers: pairs of them, step rules and recurrences."""

from __future__ import annotations

from securecoderl_edge.starter.families._compose import compose, folds, piece
from securecoderl_edge.starter.family import Family

PAIR_FOLDS = compose(
    "number-pairs",
    {
        "pairs": {
            "adjacent": piece(
                "each pair of neighbours",
                "every two adjacent numbers",
                pairs="list(zip($xs, $xs[1:]))",
                loop="for i in range(len(numbers) - 1):\n    a, b = numbers[i], numbers[i + 1]\n"
                "    $x = combine(a, b)\n    $step",
            ),
            "all": piece(
                "each pair of numbers at different positions",
                "every two numbers at positions i < j",
                pairs="[(a, b) for i, a in enumerate($xs) for b in $xs[i + 1:]]",
                loop="for i, a in enumerate(numbers):\n    for b in numbers[i + 1:]:\n"
                "        $x = combine(a, b)\n        $step",
            ),
            "mirror": piece(
                "the first and last number, the second and second to last, and so on (a middle number is left out)",
                pairs="list(zip($xs, reversed($xs)))[:len($xs) // 2]",
                loop="for i in range(len(numbers) // 2):\n    a, b = numbers[i], numbers[-1 - i]\n"
                "    $x = combine(a, b)\n    $step",
            ),
            "first": piece(
                "the first number and each later one",
                "each number after the first together with the first",
                pairs="[($xs[0], b) for b in $xs[1:]]",
                loop="a = numbers[0]\nfor b in numbers[1:]:\n    $x = combine(a, b)\n    $step",
            ),
        },
        "op": {
            "gcd": piece(
                "their greatest common divisor",
                "their gcd",
                op="math.gcd(a, b)",
                opbody="while b:\n    a, b = b, a % b\nreturn a",
            ),
            "lcm": piece(
                "their least common multiple",
                "their lcm",
                op="a * b // math.gcd(a, b)",
                opbody="multiple = a\nwhile multiple % b:\n    multiple += a\nreturn multiple",
            ),
            "mod": piece(
                "the remainder of the larger divided by the smaller",
                "the larger modulo the smaller",
                op="max(a, b) % min(a, b)",
                opbody="if a < b:\n    a, b = b, a\nreturn a % b",
            ),
            "lowest": piece(
                "their sum divided by their greatest common divisor",
                "their sum divided by their gcd",
                op="(a + b) // math.gcd(a, b)",
                opbody="divisor = min(a, b)\nwhile a % divisor or b % divisor:\n    divisor -= 1\n"
                "return (a + b) // divisor",
            ),
        },
        "fold": folds("sum", "max", "distinct"),
    },
    (
        "Read a line of at least two positive integers. For $pairs, compute $op. Of the results, print $fold.",
        "The input is one line with two or more positive integers. Take $pairs and compute $op; then "
        "look at all results"
        " and print $fold.",
    ),
    (
        """\
$xs = $ints
pairs = $pairs
$xs = [$op for a, b in pairs]
print($whole)
""",
        """\
def combine(a, b):
    $opbody


numbers = $ints
$t = $start
$loop
print($show)
""",
        """\
def combine(pair):
    a, b = pair
    return $op


def main():
    $xs = $ints
    $xs = list(map(combine, $pairs))
    print($whole)


main()
""",
    ),
    lambda rng: " ".join(str(rng.randint(1, 30)) for _ in range(rng.randint(4, 7))) + "\n",
    # two or three pairs, nearly always with different results
    skip=lambda pairs, op, fold: (pairs, op, fold) == ("mirror", "lowest", "distinct"),
)

STEPS = compose(
    "step-rules",
    {
        "even_rule": {
            "half": piece("halve it", "replace it by its half", even="$k // 2"),
            "half-plus": piece("halve it and add 3", "replace it by its half plus 3", even="$k // 2 + 3"),
        },
        "odd_rule": {
            "triple-up": piece("triple it and add 1", "multiply it by 3 and add 1", odd="3 * $k + 1"),
            "triple-down": piece("triple it and subtract 1", "multiply it by 3 and subtract 1", odd="3 * $k - 1"),
            "plus": piece("add 5", "increase it by 5", odd="$k + 5"),
            "square": piece(
                "replace it by its square modulo 50",
                "square it and keep the remainder by 50",
                odd="$k * $k % 50",
            ),
        },
        "ask": {
            "last": piece(
                "the last value",
                "the final value",
                whole="$xs[-1]",
                start="$k",
                step="$t = $k",
                show="$t",
                keep="",
            ),
            "largest": piece(
                "the largest value",
                "the maximum of all values",
                whole="max($xs)",
                start="$k",
                step="$t = max($t, $k)",
                show="$t",
                keep="",
            ),
            "sum": piece(
                "the sum of all values",
                "the total of all values",
                whole="sum($xs)",
                start="$k",
                step="$t += $k",
                show="$t",
                keep="",
            ),
            "odds": piece(
                "how many of the values are odd",
                "the number of odd values",
                whole="sum($x % 2 for $x in $xs)",
                start="$k % 2",
                step="$t += $k % 2",
                show="$t",
                keep="",
            ),
            "rises": piece(
                "how many values are larger than the one before",
                "how often the value increased",
                whole="sum(b > a for a, b in zip($xs, $xs[1:]))",
                start="0",
                step="if $k > before:\n    $t += 1",
                show="$t",
                keep="before = $k",
            ),
            "list": piece(
                "all values in order on one line",
                "the values one after the other, separated by spaces",
                whole="*$xs",
                start="[$k]",
                step="$t.append($k)",
                show="*$t",
                keep="",
            ),
        },
    },
    (
        "Read n and k. Repeat k times: if n is even, $even_rule; if it is odd, $odd_rule. Of all k + 1 "
        "values that n has"
        " (with the first), print $ask.",
        "The input is a start value n and a number of steps k. One step: when the value is even, "
        "$even_rule, otherwise"
        " $odd_rule. Print $ask, where the start value counts too.",
    ),
    (
        """\
def step($k):
    if $k % 2 == 0:
        return $even
    return $odd


start, steps = map(int, input().split())
$xs = [start]
for _ in range(steps):
    $xs.append(step($xs[-1]))
print($whole)
""",
        """\
$k, steps = map(int, input().split())
$t = $start
while steps > 0:
    $keep
    $k = $even if $k % 2 == 0 else $odd
    $step
    steps -= 1
print($show)
""",
    ),
    lambda rng: f"{rng.randint(1, 40)} {rng.randint(1, 9)}\n",
)

GROWING = ("fib", "jacob", "pell", "digit")
SAME_PARITY = ("last-digit", "swing", "gap")

RECURRENCES = compose(
    "recurrences",
    {
        "rule": {
            "fib": piece("the sum of the two terms before it", "the sum of the previous two", rule="a + b"),
            "jacob": piece("the previous term plus twice the one before that", rule="2 * a + b"),
            "pell": piece("twice the previous term plus the one before that", rule="a + 2 * b"),
            "last-digit": piece("the last digit of the sum of the previous two", rule="(a + b) % 10"),
            "product": piece("the product of the previous two, modulo 13", rule="a * b % 13"),
            "swing": piece("three times the term two before it minus the previous one", rule="3 * a - b"),
            "gap": piece("the absolute difference of the previous two plus 2", rule="abs(a - b) + 2"),
            "digit": piece(
                "the term two before it plus the digit sum of the previous one",
                rule="a + sum(map(int, str(b)))",
            ),
        },
        "ask": {
            "last": piece(
                "the n-th term",
                "term number n (counted from 1)",
                whole="$xs[-1]",
                start="0",
                step="$t = a",
                show="$t",
            ),
            "sum": piece("the sum of the first n terms", whole="sum($xs)", start="0", step="$t += a", show="$t"),
            "list": piece("the first n terms on one line", whole="*$xs", start="[]", step="$t.append(a)", show="*$t"),
            "even": piece(
                "how many of the first n terms are even",
                whole="sum($x % 2 == 0 for $x in $xs)",
                start="0",
                step="if a % 2 == 0:\n    $t += 1",
                show="$t",
            ),
            "climbs": piece(
                "how many of the first n terms are larger than the term before them",
                whole="sum(y > x for x, y in zip($xs, $xs[1:]))",
                start="0",
                step="if i + 1 < $k and b > a:\n    $t += 1",
                show="$t",
            ),
            "largest": piece(
                "the largest of the first n terms",
                whole="max($xs)",
                start="a",
                step="$t = max($t, a)",
                show="$t",
            ),
        },
    },
    (
        "Read a, b and n. A sequence starts with a and b; each further term is $rule. Print $ask.",
        "The line has the first two terms of a sequence and a positive n. Every later term is $rule. Print $ask.",
    ),
    (
        """\
def sequence(a, b, $k):
    $xs = []
    for _ in range($k):
        $xs.append(a)
        a, b = b, $rule
    return $xs


first, second, length = map(int, input().split())
$xs = sequence(first, second, length)
print($whole)
""",
        """\
a, b, $k = map(int, input().split())
$t = $start
for i in range($k):
    $step
    a, b = b, $rule
print($show)
""",
        """\
*start, $k = $ints
$xs = start[:$k]
while len($xs) < $k:
    a, b = $xs[-2:]
    $xs.append($rule)
print($whole)
""",
    ),
    lambda rng: f"{rng.randint(0, 9)} {rng.randint(1, 9)} {rng.randint(1, 9)}\n",
    skip=lambda rule, ask: (
        # a growing sequence climbs at every term, so its largest term is nearly always its last
        (rule in GROWING and ask in ("climbs", "largest"))
        # even and odd terms as in fib
        or (rule in SAME_PARITY and ask == "even")
    ),
)

FAMILIES: tuple[Family, ...] = (PAIR_FOLDS, STEPS, RECURRENCES)
