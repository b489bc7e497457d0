"""Orders: sorting by composed keys, choosing by order, ranks."""

from __future__ import annotations

import random
import re
from typing import NamedTuple

from securecoderl_edge.starter.families._number_pieces import FLAT_LAYOUTS, Layout, Piece, numbers
from securecoderl_edge.starter.families._number_programs import compose, define, several, write
from securecoderl_edge.starter.families.folds import DIGIT_SUM
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import phrase

SORT_KEYS = {
    "absolute": Piece(("absolute value", "distance to 0"), ("abs({x})",)),
    "last-digit": Piece(("last digit (ignoring signs)",), ("abs({x}) % 10",)),
    "digit-sum": Piece(("digit sum (ignoring signs)", "sum of digits without sign"), ("digit_sum({x})",), DIGIT_SUM),
    "mod-three": Piece(("remainder modulo 3 (0 to 2)", "value mod 3 (0, 1 or 2)"), ("{x} % 3",)),
    "mod-seven": Piece(("remainder modulo 7 (0 to 6)", "value mod 7 (0 to 6)"), ("{x} % 7",)),
    "from-ten": Piece(("distance to 10", "absolute difference from 10"), ("abs({x} - 10)",)),
    "tens": Piece(("tens, that is v // 10 rounded down", "quotient by 10, rounded down"), ("{x} // 10",)),
    "length": Piece(("written length (a minus sign counts)", "number of characters"), ("len(str({x}))",)),
}
PLAIN_AND_KEYS = {"value": Piece(("value",), ("{x}",))} | SORT_KEYS


class Direction(NamedTuple):
    """Ascending or descending: its words, the sign in a sort key, the comparison "comes before"."""

    words: str
    sign: str
    before: str


DIRECTIONS = {
    "up": Direction("ascending", "", "<"),
    "down": Direction("descending", "-", ">"),
}


class Tie(NamedTuple):
    """How equal keys are ordered: words, second part of the key, a first pass, comparison of an insertion."""

    asks: tuple[str, ...]
    second: str
    presort: str = ""
    passes: str = "<="


TIES = {
    "small": Tie(("smaller numbers first", "the smaller number first"), "{x}", "{xs}.sort()"),
    "large": Tie(("larger numbers first", "the larger number first"), "-{x}", "{xs}.sort(reverse=True)"),
    "stable": Tie(("in input order", "keeping their input order"), ""),
    "latest": Tie(("in reverse input order", "later ones first"), "", "{xs}.reverse()", "<"),
}


def _sorting(rng: random.Random, key: Piece, direction: Direction, tie: Tie) -> list[tuple[str, ...]]:
    """Ways to sort ``{xs}`` into ``ordered``: blocks of code where ``""`` stands for the reading."""
    code = rng.choice(key.codes)
    if code == "{x}":
        return _plain_sorting(direction)
    negative = f"-({code})" if re.search("[%/]", code) else f"-{code}"
    first = negative if direction.sign else code
    rank = f"({first}, {tie.second})" if tie.second else first
    source = "reversed({xs})" if tie.passes == "<" else "{xs}"
    function = define("rank({x})", f"return {rank}")
    insertion = (
        "ordered = []\nfor {x} in {xs}:\n    place = 0\n"
        f"    while place < len(ordered) and rank(ordered[place]) {tie.passes} rank({{x}}):\n"
        "        place += 1\n    ordered.insert(place, {x})"
    )
    ways = [
        ("", f"ordered = sorted({source}, key=lambda {{x}}: {rank})"),
        (function, "", f"ordered = sorted({source}, key=rank)"),
        (function, "", insertion),
    ]
    if tie.presort:
        ways.append(("", tie.presort, f"ordered = sorted({{xs}}, key=lambda {{x}}: {first})"))
    return [(key.helper, *way) for way in ways]


def _plain_sorting(direction: Direction) -> list[tuple[str, ...]]:
    reverse, best = (", reverse=True", "max") if direction.sign else ("", "min")
    selection = (
        f"ordered = []\nwhile {{xs}}:\n    {{x}} = {best}({{xs}})\n    ordered.append({{x}})\n    {{xs}}.remove({{x}})"
    )
    bubble = (
        "ordered = {xs}[:]\nfor end in range(len(ordered) - 1, 0, -1):\n    for i in range(end):\n"
        f"        if ordered[i + 1] {direction.before} ordered[i]:\n"
        "            ordered[i], ordered[i + 1] = ordered[i + 1], ordered[i]"
    )
    return [("", "", f"ordered = sorted({{xs}}{reverse})"), ("", "", selection), ("", "", bubble)]


def _sorted_programs(
    rng: random.Random, readers: tuple[str, ...], ways: list[tuple[str, ...]], answer: str
) -> tuple[str, ...]:
    programs = []
    for helper, *blocks in ways:
        reading = rng.choice(readers)
        programs.append(write(rng, helper, *(block or reading for block in blocks), answer))
    return several(rng, *programs)


def _draft_listing(rng: random.Random, layout: Layout, key: Piece, direction: Direction, tie: Tie) -> Draft:
    ways = _sorting(rng, key, direction, tie)
    order = f"{phrase(rng, *key.asks)}, {direction.words}"
    task = (
        f"{phrase(rng, *layout.asks)} {phrase(rng, 'Sort the integers by', 'Order them by')} {order}; "
        f"{phrase(rng, 'on ties', 'where equal', 'if tied')}, {phrase(rng, *tie.asks)}. "
        f"{phrase(rng, 'Print the result with spaces.', 'Print them on one line separated by spaces.')}"
    )
    programs = _sorted_programs(rng, layout.readers, ways, "print(*ordered)")
    return Draft(task, lambda draws: layout.render(numbers(draws, high=30, sizes=(5, 8))), programs)


CHOICES = {
    "kth": Piece(("the k-th number", "number k (counting from 1)"), ("print(ordered[k - 1])",)),
    "kth-last": Piece(("the k-th number from the end",), ("print(ordered[-k])",)),
    "first-sum": Piece(("the sum of the first k", "the total of the first k numbers"), ("print(sum(ordered[:k]))",)),
    "skip": Piece(("all but the first k with spaces",), ("print(*ordered[k:])",)),
    "last-back": Piece(("the last k from last to first, with spaces",), ("print(*ordered[: -k - 1 : -1])",)),
    "every": Piece(("every k-th number, starting at number k, with spaces",), ("print(*ordered[k - 1 :: k])",)),
    "jump": Piece(("number k + 1 minus number k",), ("print(ordered[k] - ordered[k - 1])",)),
}
_READ_K = (
    "k = int(input())\n{xs} = list(map(int, input().split()))",
    "k = int(input())\n{xs} = [int(token) for token in input().split()]",
    "import sys\nk, *{xs} = map(int, sys.stdin.read().split())",
)


def _draw_k_and_list(draws: random.Random) -> str:
    values = numbers(draws, high=30)
    return f"{draws.randint(1, len(values) - 1)}\n{' '.join(map(str, values))}\n"


def _draft_choice(rng: random.Random, key: Piece, direction: Direction, choice: Piece) -> Draft:
    tie = TIES["small"] if key.codes[0] != "{x}" else TIES["stable"]
    tied = f", on ties {phrase(rng, *tie.asks)}" if tie.second else ""
    task = (
        f"{phrase(rng, 'Read k, then a line of integers.', 'Line 1 is k; line 2 holds integers.')} "
        f"{phrase(rng, 'Sort them by', 'Order them by')} {phrase(rng, *key.asks)}, {direction.words}{tied}. "
        f"{phrase(rng, 'Print', 'Then print', 'Output')} {phrase(rng, *choice.asks)}."
    )
    ways = _sorting(rng, key, direction, tie)
    return Draft(task, _draw_k_and_list, _sorted_programs(rng, _READ_K, ways, choice.codes[0]))


RANKS = {
    "ahead": Piece(
        ("how many numbers come strictly before it", "the number of elements strictly ahead of it"),
        ("sum({other} {before} {own} for other in {xs})",),
    ),
    "competition": Piece(
        ("its rank: 1 + how many come strictly before it",),
        ("1 + sum({other} {before} {own} for other in {xs})",),
    ),
    "dense": Piece(
        ("its dense rank: 1 + how many different keys come strictly before its own",),
        ("1 + len({{other} for other in {xs} if {other} {before} {own}})",),
    ),
    "place": Piece(
        ("its 1-based place when sorted that way, equal keys staying in input order",),
        ("1 + sum({other} {before} {own} or ({other} == {own} and j < i) for j, other in enumerate({xs}))",),
    ),
}


def _draft_ranks(rng: random.Random, layout: Layout, key: Piece, direction: Direction, rank: Piece) -> Draft:
    code = rng.choice(key.codes)
    template = rank.codes[0].replace("{before}", direction.before)

    def count(own: str, other: str) -> str:
        return template.replace("{own}", own).replace("{other}", other)

    head = "for i, {x} in enumerate({xs})" if "j < i" in template else "for {x} in {xs}"
    direct = count(code, code.replace("{x}", "other"))
    by_table = count("keys[i]", "other").replace("{xs}", "keys")
    loop = f"{{ys}} = []\n{head}:\n    {{ys}}.append({direct})\nprint(*{{ys}})"
    table = f"keys = [{code} for {{x}} in {{xs}}]\nprint(*[{by_table} for i in range(len(keys))])"
    function = define("key({x})", f"return {code}")
    called = f"{{ys}} = [{count('key({x})', 'key(other)')} {head}]\nprint(*{{ys}})"
    programs = [
        write(rng, key.helper, rng.choice(layout.readers), loop),
        write(rng, key.helper, rng.choice(layout.readers), table),
    ]
    if not key.helper:
        programs.append(write(rng, function, rng.choice(layout.readers), called))
    task = (
        f"{phrase(rng, *layout.asks)} The key of a number is its {phrase(rng, *key.asks)}; "
        f"{'smaller' if direction.before == '<' else 'larger'} keys come first. "
        f"For each number in input order, print {phrase(rng, *rank.asks)}. Use one line with spaces."
    )
    return Draft(task, lambda draws: layout.render(numbers(draws, sizes=(4, 6))), several(rng, *programs))


def _key_matters(key: str, direction: str, tie: str) -> bool:
    """Tens with ties in the same direction are just an order by value."""
    return (key, direction, tie) not in (("tens", "up", "small"), ("tens", "down", "large"))


FAMILIES: tuple[Family, ...] = (
    compose(
        "order-listings",
        (FLAT_LAYOUTS, SORT_KEYS, DIRECTIONS, TIES),
        _draft_listing,
        allow=lambda layout, key, direction, tie: _key_matters(key, direction, tie),
    ),
    compose(
        "order-choices",
        (PLAIN_AND_KEYS, DIRECTIONS, CHOICES),
        _draft_choice,
        allow=lambda key, direction, choice: _key_matters(key, direction, "small"),
    ),
    compose("order-ranks", (FLAT_LAYOUTS, PLAIN_AND_KEYS, DIRECTIONS, RANKS), _draft_ranks),
)
