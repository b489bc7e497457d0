"""What the security families share: ways to read input with and without a finding, and what to compute."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from family import (
    PAYLOADS,
    Attack,
    Draft,
    DrawAttack,
    Family,
    Judged,
    choose_wording,
)

from families._inputs import WORDS
from families._steps import Step, write

SHORT_WORDS = tuple(word for word in WORDS if len(word) <= 4)


@dataclass(frozen=True)
class Source:
    """How the input is laid out, how programs read it (with a finding and clean), and attacks on the former."""

    says: tuple[str, ...]
    draw: Callable[[random.Random], str]
    unsafe: tuple[str, ...]
    clean: tuple[str, ...]
    attacks: tuple[DrawAttack, ...] = ()


def solutions(rng: random.Random, source: Source, *steps: Step) -> tuple[str, ...]:
    """Unsafe, clean, unsafe, clean; each takes one of the styles of every step."""
    programs: list[str] = []
    for reads in (source.unsafe[:1], source.clean, source.unsafe, source.clean):
        parts = [rng.choice(reads), *(rng.choice(step.code) for step in steps)]
        programs.append(write(rng, *parts))
    return tuple(programs)


def combine(name: str, sources: Mapping[str, Source], *tables: Mapping[str, Step]) -> Family:
    """The family of every way to read the input combined with one step of each table."""
    keys = ("/".join(parts) for parts in itertools.product(sources, *tables))

    def draft(composition: str, rng: random.Random, rarity: float) -> Draft:
        first, *rest = composition.split("/")
        source = sources[first]
        steps = [table[key] for table, key in zip(tables, rest, strict=True)]
        task = " ".join([rng.choice(source.says), *(choose_wording(step.says, rng, rarity) for step in steps)])
        return Draft(task, source.draw, solutions(rng, source, *steps), source.attacks)

    return Family(name, tuple(keys), draft)


def injected(
    name: str,
    cwe: int,
    draw: Callable[[random.Random], str],
    place: str,
    other: str = "",
    texts: tuple[str, ...] = PAYLOADS,
    judged: Judged = "marker",
) -> tuple[DrawAttack, ...]:
    """Attacks: each of ``texts`` in a place of a drawn input, the last match of a pattern; one in another place."""

    def attack_with(text: str, place: str) -> DrawAttack:
        return lambda rng: Attack(name, cwe, replace_last(place, text, draw(rng)), judged)

    pairs = [(text, place) for text in texts]
    return tuple(attack_with(*pair) for pair in (pairs if not other else [*pairs, (texts[0], other)]))


def replace_last(found: str, new: str, text: str) -> str:
    """``text`` with ``new`` for the last match of a pattern, or for its group; the first ones are often counts."""
    *_, last = re.finditer(found, text, re.MULTILINE)
    start, end = last.span(last.lastindex or 0)
    return f"{text[:start]}{new}{text[end:]}"


def pick(table: Mapping[str, Step], keys: str) -> dict[str, Step]:
    """Some steps of a table, named in one string."""
    return {key: table[key] for key in keys.split()}


def numbers(rng: random.Random, low: int = 4, high: int = 7, least: int = -9, most: int = 19) -> list[int]:
    """Small numbers in which a repeat is likely."""
    drawn = [rng.randint(least, most) for _ in range(rng.randint(low, high))]
    drawn[-1] = rng.choice([drawn[0], drawn[-1]])
    return drawn


def entries(rng: random.Random, low: int = 3, high: int = 5) -> dict[str, int]:
    """Different short names with small numbers."""
    return {word: rng.randint(1, 12) for word in rng.sample(SHORT_WORDS, rng.randint(low, high))}


_SELECT = ("Keep only {}.", "Take just {}.", "Of these, {} stay.")


def _keep_numbers(test: str, *nouns: str) -> Step:
    loop = f"$w = []\nfor $x in $v:\n    if {test}:\n        $w.append($x)"
    says = [way.format(noun) for way in _SELECT for noun in nouns]
    return Step(tuple(says), (f"$w = [$x for $x in $v if {test}]", loop))


KEEP_NUMBERS = {
    "even": _keep_numbers("$x % 2 == 0", "the even numbers", "the numbers divisible by 2"),
    "odd": _keep_numbers("$x % 2 == 1", "the odd numbers", "the numbers not divisible by 2"),
    "positive": _keep_numbers("$x > 0", "the numbers above zero", "the positive numbers"),
    "above": _keep_numbers("$x * len($v) > sum($v)", "the numbers greater than the average of all of them"),
    "repeated": _keep_numbers("$v.count($x) > 1", "the numbers that occur more than once (each time they occur)"),
    "once": _keep_numbers("$v.count($x) == 1", "the numbers that occur exactly once"),
    "threes": _keep_numbers("$x % 3 == 0", "the multiples of 3", "the numbers divisible by 3"),
    "small": _keep_numbers("abs($x) < 8", "the numbers from -7 to 7"),
}


def _keep_entries(test: str, *nouns: str) -> Step:
    loop = f"$w = []\nfor $k, $n in $d.items():\n    if {test}:\n        $w.append(($k, $n))"
    says = [way.format(f"the entries {noun}") for way in _SELECT for noun in nouns]
    return Step(tuple(says), (f"$w = [($k, $n) for $k, $n in $d.items() if {test}]", loop))


KEEP_ENTRIES = {
    "even": _keep_entries("$n % 2 == 0", "with an even number", "whose number is even"),
    "odd": _keep_entries("$n % 2 == 1", "with an odd number", "whose number is odd"),
    "lesser": _keep_entries("$n < max($d.values())", "whose number is less than the largest one"),
    "long": _keep_entries("len($k) > 3 or $n > 6", "with a name longer than 3 letters or a number above 6"),
    "shared": _keep_entries(
        "list($d.values()).count($n) == 1",
        "whose number no other entry has",
        "with a number that occurs once",
    ),
}

REPORT_NUMBERS = {
    "sum": Step(
        (
            "Print their sum, or 0 if there are none.",
            "Add them up and print the total (0 if there are none).",
            "Output what they add up to, which is 0 if nothing is left.",
        ),
        ("print(sum($w))", "$t = 0\nfor $x in $w:\n    $t += $x\nprint($t)"),
    ),
    "largest": Step(
        (
            "Print the largest of them, or none if there are none.",
            "Print their maximum (none if there are none).",
            "The output is the greatest of these, or the word none if empty.",
        ),
        ('print(max($w, default="none"))', 'if $w:\n    print(max($w))\nelse:\n    print("none")'),
    ),
    "sorted": Step(
        (
            "Print them in increasing order on one line, or none if there are none.",
            "Sort these and output a row of them, smallest first (the word none if empty).",
            "On one line show the numbers from low to high; show none if nothing is there.",
        ),
        ('print(*sorted($w) or ["none"])', '$w.sort()\nprint(" ".join(str($x) for $x in $w) or "none")'),
    ),
    "backwards": Step(
        (
            "Print them from last to first on one line, or none if there are none.",
            "Turn their order around and output a row of them (the word none if empty).",
            "On one line show the last, the one before it and so on; show none if nothing is there.",
        ),
        ('print(*$w[::-1] or ["none"])', '$w.reverse()\nprint(" ".join(map(str, $w)) or "none")'),
    ),
    "listing": Step(
        (
            "Print them on one line, or none if there are none.",
            "Output a row of these (the word none if empty).",
            "On one line show what you have; show none if nothing is there.",
        ),
        ('print(*$w or ["none"])', 'print(" ".join(map(str, $w)) or "none")'),
    ),
    "span": Step(
        (
            "Print the largest minus the smallest of them, or none if there are none.",
            "Subtract their minimum from their maximum and output that (the word none if empty).",
            "How far apart are highest and lowest? Show the difference; show none if nothing is there.",
        ),
        (
            'print(max($w) - min($w) if $w else "none")',
            'if $w:\n    print(max($w) - min($w))\nelse:\n    print("none")',
        ),
    ),
    "squares": Step(
        (
            "Print the sum of their squares (0 if there are none).",
            "Square them and print the total, 0 if none.",
            "Multiply each by itself and add up: output the sum, which is 0 if empty.",
        ),
        ("print(sum($x * $x for $x in $w))", "$t = 0\nfor $x in $w:\n    $t += $x ** 2\nprint($t)"),
    ),
    "running": Step(
        (
            "Print their running totals on one line, or none if there are none.",
            "Add to each of these all that come before it, as they were given, and output a row of the sums (the word "
            "none if empty).",
            "On one line show the sum of the first one, the first two and so on; show none if nothing is there.",
        ),
        (
            'from itertools import accumulate\nprint(" ".join(map(str, accumulate($w))) or "none")',
            '$t = []\nfor $x in $w:\n    $t.append($x + $t[-1] if $t else $x)\nprint(*$t or ["none"])',
        ),
    ),
    "steps": Step(
        (
            "Print each one minus the one before it, on one line, or none if there are fewer than two.",
            "From each but the first subtract its left neighbour; output a row of the differences (the word none if "
            "empty).",
            "On one line show the rise from each to the following one (a fall is negative); show none if there is no "
            "pair.",
        ),
        (
            '$t = [b - a for a, b in zip($w, $w[1:])]\nprint(*$t or ["none"])',
            '$t = []\nfor i in range(1, len($w)):\n    $t.append($w[i] - $w[i - 1])\nprint(*$t or ["none"])',
        ),
    ),
    "count-sum": Step(
        (
            "Print how many there are and their sum, separated by a space.",
            "Count these and add them up; output count and total with a space between.",
            "The output has two numbers on a line: the count of what you have, then what it adds up to.",
        ),
        ("print(len($w), sum($w))", '$t = sum($w)\nprint(f"{len($w)} {$t}")'),
    ),
    "ends": Step(
        (
            "Print the first and the last of them, separated by a space, or none if there are none.",
            "Output a row of two numbers, those at the front and at the end (the word none if empty).",
            "On one line show the opening number and the closing one, the same twice if it is alone; show none if "
            "nothing is there.",
        ),
        (
            'if $w:\n    print($w[0], $w[-1])\nelse:\n    print("none")',
            'print(f"{$w[0]} {$w[-1]}" if $w else "none")',
        ),
    ),
    "distinct": Step(
        (
            "Print the different ones in order of first appearance on one line, or none if there are none.",
            "Drop every number that was there before, and output a row of the others (the word none if empty).",
            "On one line show each value when it first comes; show none if nothing is there.",
        ),
        (
            'print(*dict.fromkeys($w) or ["none"])',
            '$t = []\nfor $x in $w:\n    if $x not in $t:\n        $t.append($x)\nprint(*$t or ["none"])',
        ),
    ),
    "middle": Step(
        (
            "Print the middle one in increasing order (the lower of two middle ones), or none if there are none.",
            "Sort these and output the median, the lower one of two (the word none if empty).",
            "Which one stands in the centre after sorting? Of two show the smaller; show none if nothing is there.",
        ),
        (
            'print(sorted($w)[(len($w) - 1) // 2] if $w else "none")',
            'if $w:\n    $w.sort()\n    print($w[(len($w) - 1) // 2])\nelse:\n    print("none")',
        ),
    ),
    "weighted": Step(
        (
            "Multiply each by its position counted from 1 and print the sum (0 if there are none).",
            "Once the first, plus twice the second, plus three times the third and so on: output this, 0 if empty.",
            "Weight each by its place (the first has 1), and show the total of the products, 0 if nothing is there.",
        ),
        (
            "print(sum(i * $x for i, $x in enumerate($w, 1)))",
            "$t = 0\nfor i in range(len($w)):\n    $t += (i + 1) * $w[i]\nprint($t)",
        ),
    ),
    "alternate": Step(
        (
            "Print every second one starting with the first, on one line, or none if there are none.",
            "Skip the second, the fourth and so on; output a row of the others (the word none if empty).",
            "On one line show those at odd places (the first has place 1); show none if nothing is there.",
        ),
        (
            'print(*$w[::2] or ["none"])',
            '$t = [$x for i, $x in enumerate($w) if i % 2 == 0]\nprint(*$t or ["none"])',
        ),
    ),
}

REPORT_ENTRIES = {
    "names": Step(
        (
            "Print their names in alphabetical order on one line, or none if there are none.",
            "Sort the names from a to z and output a row of them (the word none if empty).",
            "On one line show which names there are, alphabetically; show none if nobody is there.",
        ),
        (
            'print(*sorted($k for $k, $n in $w) or ["none"])',
            '$t = [$k for $k, _ in $w]\n$t.sort()\nprint(" ".join($t) or "none")',
        ),
    ),
    "total": Step(
        (
            "Print the total of their numbers (0 if there are none).",
            "Print the sum of their numbers, 0 if none.",
            "Add up the numbers and output the result, which is 0 if empty.",
        ),
        ("print(sum($n for $k, $n in $w))", "$t = 0\nfor _, $n in $w:\n    $t += $n\nprint($t)"),
    ),
    "top": Step(
        (
            "Print the name with the largest number (of equals the alphabetically first), or none if there are none.",
            "Whose number is greatest? Output that name, of several the first from a to z (the word none if empty).",
            "Show one leader only: the owner of the top number, and if several share it, who comes earliest in the "
            "alphabet; show none if nobody is there.",
        ),
        (
            '$w.sort(key=lambda pair: (-pair[1], pair[0]))\nprint($w[0][0] if $w else "none")',
            "$t = None\nfor $k, $n in sorted($w):\n    if $t is None or $n > $t[1]:\n        $t = ($k, $n)\n"
            'print($t[0] if $t else "none")',
        ),
    ),
    "ranked": Step(
        (
            "Print their names by decreasing number (equals alphabetically) on one line, or none if there are none.",
            "Rank the names, greatest number first and ties from a to z; output a row of them (the word none if "
            "empty).",
            "On one line show who has the top number, who the second best and so on, alphabetically where numbers "
            "tie; show none if nobody is there.",
        ),
        (
            '$w.sort(key=lambda pair: (-pair[1], pair[0]))\nprint(*[$k for $k, $n in $w] or ["none"])',
            '$t = sorted((-$n, $k) for $k, $n in $w)\nprint(" ".join($k for _, $k in $t) or "none")',
        ),
    ),
    "pairs": Step(
        (
            "Print them as name:number in alphabetical order on one line, or none if there are none.",
            "Sort from a to z and output a row with a colon between each name and its number (the word none if empty).",
            "On one line show name:number for everyone, alphabetically; show none if nobody is there.",
        ),
        (
            'print(*[f"{$k}:{$n}" for $k, $n in sorted($w)] or ["none"])',
            '$t = []\nfor $k, $n in sorted($w):\n    $t.append($k + ":" + str($n))\nprint(" ".join($t) or "none")',
        ),
    ),
    "count-average": Step(
        (
            "Print how many there are and their average number rounded down (0 0 if there are none).",
            "Output a row of two integers: the count, and the mean of the numbers without its fraction (0 0 if empty).",
            "On one line show how many entries you have, then their numbers' sum divided by that, rounded down; show "
            "0 0 if nobody is there.",
        ),
        (
            "$t = sum($n for _, $n in $w)\nprint(len($w), $t // max(len($w), 1))",
            "if $w:\n    print(len($w), sum($n for _, $n in $w) // len($w))\nelse:\n    print(0, 0)",
        ),
    ),
    "initials": Step(
        (
            "Print the first letters of their names in the given order as one word, or none if there are none.",
            "Glue the initials together, order unchanged, and output that word (the word none if empty).",
            "Show one word, made of the letter that each name begins with, from first to last; show none if nobody is "
            "there.",
        ),
        (
            'print("".join($k[0] for $k, $n in $w) or "none")',
            '$t = ""\nfor $k, _ in $w:\n    $t += $k[0]\nprint($t or "none")',
        ),
    ),
}
