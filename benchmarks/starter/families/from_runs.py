"""Families that keep, change and fold numbers which a process leaves: arithmetic, sorting, a moving state."""

from __future__ import annotations

import random

from family import Family

from families._compose import Table, without
from families._inputs import Draw, line, number_line, numbers
from families._pieces import FOLDS, NATURAL_FILTERS
from families.derived import READ_K, READ_LINE
from families.lists import (
    DIGIT_FILTERS,
    KNOWN_END_FOLDS,
    ORDER_FOLDS,
    SMALL_FILTERS,
    from_naturals,
    from_numbers,
)

_READ_N = "n = int(input())\n"

# Starts of Collatz sequences that are short and stay below 200.
_COLLATZ = (3, 5, 6, 10, 11, 12, 13, 17, 20, 21, 24, 26, 32, 34, 35, 40, 42, 48, 52, 53, 64, 80, 84, 96)


def _factors(rng: random.Random) -> str:
    n = 1
    for _ in range(rng.randint(3, 5)):
        n *= rng.choice((2, 2, 3, 3, 5, 5, 7, 11, 13))
    return line([n])


def _two_and_limit(rng: random.Random) -> str:
    a = rng.randint(1, 5)
    return line([a, rng.randint(a, 9), rng.randint(40, 110)])


def _robot_steps(rng: random.Random) -> str:
    return line([f"{rng.choice('RRL')}{rng.randint(1, 9)}" for _ in range(rng.randint(5, 7))])


def _pushes_and_pops(rng: random.Random) -> str:
    parts = list(map(str, numbers(rng, sizes=(5, 7))))
    for _ in range(rng.randint(1, 2)):
        parts.insert(rng.randint(2, len(parts)), "pop")
    return line(parts)


def _repeated(rng: random.Random) -> str:
    few = numbers(rng, sizes=(4, 6))
    return line(rng.sample([*few, *rng.choices(few, k=2)], len(few) + 2))


def _k_and(low: int, high: int, draw: Draw) -> Draw:
    return lambda rng: f"{rng.randint(low, high)}\n{draw(rng)}"


def _multiples(rng: random.Random) -> str:
    return f"{rng.choice((12, 18, 20, 24, 30))}\n{line([rng.randint(1, 9) * rng.choice((2, 3, 5)) for _ in range(6)])}"


def _of_n(name: str, sentences: tuple[str, str], code: str, draw_input: Draw, filters: Table) -> Family:
    return from_naturals(name, sentences, _READ_N + code, draw_input, filters=filters, folds=KNOWN_END_FOLDS)


FAMILIES: tuple[Family, ...] = (
    _of_n(
        "collatz",
        (
            "Read n. The numbers are n and so on to 1: after a comes a // 2 if a is even, else 3a + 1.",
            "Read n. The numbers start with n and end with 1; after an even a comes a // 2, after an odd a 3a + 1.",
        ),
        "$xs = [n]\nwhile n > 1:\n    n = n // 2 if n % 2 == 0 else 3 * n + 1\n    $xs.append(n)",
        lambda rng: line([rng.choice(_COLLATZ)]),
        DIGIT_FILTERS,
    ),
    _of_n(
        "prime-factors",
        (
            "Read n. The numbers are its prime factors, ascending, repeated as in n (12 gives 2 2 3).",
            "Read n and split it into prime factors, smallest first (12 gives 2 2 3): the numbers.",
        ),
        "$xs = []\nwhile n > 1:\n    $xs.append(min(d for d in range(2, n + 1) if n % d == 0))\n    n //= $xs[-1]",
        _factors,
        without(NATURAL_FILTERS, "even", "thirds"),
    ),
    _of_n(
        "halvings",
        (
            "Read n. The numbers are n, n // 2, n // 4 and so on, as long as they are above 0.",
            "Read n and halve it, rounding down, until it is 0. The numbers are n and its halves above 0.",
        ),
        "$xs = []\nwhile n > 0:\n    $xs.append(n)\n    n //= 2",
        lambda rng: line([rng.randint(20, 150)]),
        DIGIT_FILTERS,
    ),
    from_naturals(
        "sums-up-to",
        (
            "Read a, b and n. The numbers are a, b and so on, each the sum of the two before it, none above n.",
            "Read a, b and n: the numbers start with a and b, go on with the sum of the last two and stay up to n.",
        ),
        "a, b, n = map(int, input().split())\n$xs = []\nwhile a <= n:\n    $xs.append(a)\n    a, b = b, a + b",
        _two_and_limit,
        folds=KNOWN_END_FOLDS,
    ),
    from_numbers(
        "robot-places",
        (
            "Read steps such as R3 (plus 3) or L2 (minus 2). The numbers are the places, from 0, after each.",
            "Steps such as R3 (plus 3) or L2 (minus 2) move a robot from 0; its places after each are the numbers.",
        ),
        "place = 0\n$xs = []\nfor entry in input().split():\n"
        '    place += int(entry[1:]) if entry[0] == "R" else -int(entry[1:])\n    $xs.append(place)',
        _robot_steps,
    ),
    from_numbers(
        "stack-items",
        (
            "Read a line of integers and pops; pop removes the last integer still there. The others are the numbers.",
            "Push the integers on the line on a stack; pop takes the top off. The numbers are what is left, in order.",
            "On one line, integers are put down one after another; each pop takes back the latest. Use the rest, "
            "oldest first.",
        ),
        '$xs = []\nfor part in input().split():\n    $xs = $xs[:-1] if part == "pop" else [*$xs, int(part)]',
        _pushes_and_pops,
    ),
    from_numbers(
        "capped-counter",
        (
            "Read k and a line of integers. Add each to a counter, first 0, at most k: "
            "its values after each are the numbers.",
            "Line 1 is k, line 2 integers. A counter from 0 adds each, never above k: take its values after each.",
        ),
        f"{READ_K}count = 0\n$xs = []\nfor entry in map(int, input().split()):\n"
        "    count = min(k, count + entry)\n    $xs.append(count)",
        _k_and(8, 20, number_line(sizes=(5, 7))),
        folds=without(FOLDS, "distinct"),
    ),
    from_naturals(
        "sorted-gaps",
        (
            "Read a line of integers and sort them. The numbers are the gaps between neighbours.",
            "Sort the integers on the line. The numbers are the differences (larger minus smaller) of neighbours.",
        ),
        "line = sorted(map(int, input().split()))\n$xs = [b - a for a, b in zip(line, line[1:])]",
        number_line(sizes=(5, 7)),
    ),
    from_numbers(
        "sorted-distinct",
        (
            "Read a line of integers. The numbers are these in increasing order, each only once.",
            "Sort the integers on the line and drop repeats to get the numbers.",
        ),
        "$xs = sorted(set(map(int, input().split())))",
        _repeated,
        folds=without(FOLDS, "distinct", "max", "min", "span", "ascending"),
    ),
    from_naturals(
        "ranks",
        (
            "Read a line of integers. The numbers are, for each one, how many on the line are smaller.",
            "Replace each integer on the line by the count of smaller ones on it to get the numbers.",
            "How many of a line of integers lie below each of them? Take these counts, one for each integer.",
        ),
        f"{READ_LINE}$xs = [sum(b < a for b in line) for a in line]",
        number_line(sizes=(6, 8)),
        filters=SMALL_FILTERS,
        folds=ORDER_FOLDS,
    ),
    from_numbers(
        "rotated",
        (
            "Read k, then a line of integers. The numbers are these, with the first k moved to the end.",
            "Line 1 is k, line 2 holds integers. Move the first k behind the others to get the numbers.",
            "Below an integer k there is a row of integers. Start after the k-th, go to the end, then take the first "
            "k in their old order.",
        ),
        f"{READ_K}{READ_LINE}$xs = line[k:] + line[:k]",
        _k_and(1, 3, number_line(sizes=(5, 7))),
        folds=ORDER_FOLDS,
    ),
    from_numbers(
        "chunk-sums",
        (
            "Read k, then integers. The numbers are the sums of the first k, the next k, ... (the last can be fewer).",
            "Line 1 is k, line 2 holds integers. The sums of its chunks of k (the last can be short) are the numbers.",
        ),
        f"{READ_K}{READ_LINE}$xs = [sum(line[i:i + k]) for i in range(0, len(line), k)]",
        _k_and(2, 3, number_line(sizes=(7, 10))),
    ),
    from_naturals(
        "remainders",
        (
            "Read k, then a line of integers. The numbers are their remainders when divided by k.",
            "Line 1 is k, line 2 holds integers; each one modulo k gives the numbers.",
        ),
        f"{READ_K}{READ_LINE}$xs = [entry % k for entry in line]",
        _k_and(7, 15, number_line(1, 60)),
    ),
    from_naturals(
        "gcds",
        (
            "Read k, then a line of integers. The numbers are their greatest common divisors with k.",
            "Line 1 is k, line 2 holds integers; the gcd of each and k gives the numbers.",
        ),
        f"{READ_K}{READ_LINE}$xs = [math.gcd(entry, k) for entry in line]",
        _multiples,
    ),
)
