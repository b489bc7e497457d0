"""Pairs: two lists side by side, pairs across and within lists, members, nearest numbers, picks by place."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._number_pieces import Measure, Piece, ask_measure, measures, numbers
from securecoderl_edge.starter.families._number_programs import Pipeline, compose, write_programs
from securecoderl_edge.starter.families.folds import CONDITIONS, MAPS, condition_helpers
from securecoderl_edge.starter.families.runs import PAIR_MEASURES, PAIR_VALUES, RELATIONS
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import phrase

READ_TWO = (
    "{xs} = list(map(int, input().split()))\n{zs} = list(map(int, input().split()))",
    "{xs} = [int(t) for t in input().split()]\n{zs} = [int(t) for t in input().split()]",
    "{xs}, {zs} = [list(map(int, input().split())) for _ in range(2)]",
    "import sys\n{xs}, {zs} = [list(map(int, row.split())) for row in sys.stdin]",
)
READ_ONE = (
    "{xs} = list(map(int, input().split()))",
    "{xs} = [int(token) for token in input().split()]",
    "import sys\n{xs} = list(map(int, sys.stdin.read().split()))",
)


def two_lines(first: list[int], second: list[int]) -> str:
    """The input text of two lists."""
    return f"{' '.join(map(str, first))}\n{' '.join(map(str, second))}\n"


def _draw_equal(draws: random.Random) -> str:
    size = draws.randint(4, 6)
    return two_lines(*(numbers(draws, sizes=(size, size)) for _ in range(2)))


def _draft_zip(rng: random.Random, relation: Piece, value: Piece, measure: Measure) -> Draft:
    loops = (
        ("for a, b in zip({xs}, {zs})", ""),
        ("for i in range(len({xs}))", "a, b = {xs}[i], {zs}[i]"),
        ("for i, a in enumerate({xs})", "b = {zs}[i]"),
    )
    loop, update = rng.choice(loops)
    pipeline = Pipeline(
        READ_TWO, (loop,), rng.choice(relation.codes), value.codes[0], update=update, params="{xs}, {zs}"
    )
    task = (
        f"{phrase(rng, 'Two lines hold equally many integers.', 'Read two lines of n integers each.')} "
        f"For each place, a is the number on line 1 and b the one on line 2. "
        f"Where {phrase(rng, *relation.asks)}, {phrase(rng, 'compute', 'take')} {phrase(rng, *value.asks)}. "
        f"{ask_measure(rng, measure)}"
    )
    return Draft(task, _draw_equal, write_programs(rng, pipeline, measure))


def _draft_cross(rng: random.Random, relation: Piece, value: Piece, measure: Measure) -> Draft:
    pipeline = Pipeline(
        READ_TWO,
        ("for a in {xs}", "for b in {zs}"),
        rng.choice(relation.codes),
        value.codes[0],
        params="{xs}, {zs}",
    )
    task = (
        f"{phrase(rng, 'Two lines hold integers.', 'Read two lines of integers.')} "
        f"For each a of line 1 in turn, {phrase(rng, 'go through', 'look at', 'try')} every b of line 2. "
        f"Where {phrase(rng, *relation.asks)}, take {phrase(rng, *value.asks)}. "
        f"{ask_measure(rng, measure)}"
    )

    def draw(draws: random.Random) -> str:
        return two_lines(numbers(draws, sizes=(2, 4)), numbers(draws, sizes=(2, 4)))

    return Draft(task, draw, write_programs(rng, pipeline, measure))


def _draft_inner(rng: random.Random, relation: Piece, value: Piece, measure: Measure) -> Draft:
    loops, update = rng.choice(
        (
            (("for i, a in enumerate({xs})", "for b in {xs}[i + 1 :]"), ""),
            (
                ("for i in range(len({xs}))", "for j in range(i + 1, len({xs}))"),
                "a, b = {xs}[i], {xs}[j]",
            ),
        )
    )
    pipeline = Pipeline(READ_ONE, loops, rng.choice(relation.codes), value.codes[0], update=update)
    task = (
        f"{phrase(rng, 'Read a line of integers.', 'One line holds integers.')} Go through all pairs a, b "
        f"where a {phrase(rng, 'stands somewhere before b', 'comes earlier than b')} "
        "(in order of a, then of b). "
        f"Where {phrase(rng, *relation.asks)}, take {phrase(rng, *value.asks)}. "
        f"{ask_measure(rng, measure)}"
    )

    def draw(draws: random.Random) -> str:
        return " ".join(map(str, numbers(draws, sizes=(4, 6)))) + "\n"

    return Draft(task, draw, write_programs(rng, pipeline, measure))


MEMBERSHIPS = {
    "shared": Piece(("that also occur on line 2", "that line 2 contains too"), ("{x} in {zs}",)),
    "missing": Piece(("that do not occur on line 2", "that line 2 does not contain"), ("{x} not in {zs}",)),
    "negated": Piece(("whose negative occurs on line 2",), ("-{x} in {zs}",)),
    "before": Piece(("such that the number plus 1 occurs on line 2",), ("{x} + 1 in {zs}",)),
    "above": Piece(("greater than every number on line 2",), ("{x} > max({zs})",)),
    "above-one": Piece(("greater than some number on line 2",), ("{x} > min({zs})",)),
    "between": Piece(("from the smallest to the largest of line 2 (inclusive)",), ("min({zs}) <= {x} <= max({zs})",)),
    "digit": Piece(
        ("ending in the same digit as some number on line 2",),
        ("abs({x}) % 10 in [abs(b) % 10 for b in {zs}]",),
    ),
    "more": Piece(("that occur more often on line 1 than on line 2",), ("{xs}.count({x}) > {zs}.count({x})",)),
}
MEMBER_MAPS = {key: MAPS[key] for key in ("same", "square", "double-plus", "last-digit", "half", "from-ten")}
MEMBER_MEASURES = measures("sum", "max", "alternating", "weighted", "distinct", "list", "backwards", "running")


def _draft_members(rng: random.Random, member: Piece, change: Piece, measure: Measure) -> Draft:
    pipeline = Pipeline(
        READ_TWO,
        ("for {x} in {xs}",),
        rng.choice(member.codes),
        rng.choice(change.codes),
        params="{xs}, {zs}",
    )
    changed = phrase(rng, *change.asks)
    task = (
        f"{phrase(rng, 'Two lines hold integers.', 'Read two lines of integers.')} "
        f"{phrase(rng, 'Keep', 'Take', 'Select')} the numbers of line 1 {phrase(rng, *member.asks)}"
        f"{f' and {changed}' if changed else ''}. {ask_measure(rng, measure)}"
    )

    def draw(draws: random.Random) -> str:
        return two_lines(*(numbers(draws, low=-4, high=9, sizes=(4, 7)) for _ in range(2)))

    return Draft(task, draw, write_programs(rng, pipeline, measure))


TARGETS = {
    "nearest": Piece(
        ("the number of line 1 nearest to it (the smaller on ties)",),
        (
            "min({xs}, key=lambda near: (abs(near - {x}), near))",
            "min(sorted({xs}), key=lambda near: abs(near - {x}))",
        ),
    ),
    "nearest-large": Piece(
        ("the number of line 1 nearest to it (the larger on ties)",),
        ("min({xs}, key=lambda near: (abs(near - {x}), -near))",),
    ),
    "farthest": Piece(
        ("the number of line 1 farthest from it (the smaller on ties)",),
        (
            "min({xs}, key=lambda near: (-abs(near - {x}), near))",
            "max(sorted({xs}), key=lambda near: abs(near - {x}))",
        ),
    ),
    "distance": Piece(("its distance to the nearest number of line 1",), ("min(abs(near - {x}) for near in {xs})",)),
    "below": Piece(
        ("the largest number of line 1 that is at most it (-10 if there is none)",),
        ("max([near for near in {xs} if near <= {x}], default=-10)",),
    ),
    "above": Piece(
        ("the smallest number of line 1 that is at least it (30 if there is none)",),
        ("min([near for near in {xs} if near >= {x}], default=30)",),
    ),
    "smaller": Piece(("how many numbers of line 1 are less than it",), ("sum(near < {x} for near in {xs})",)),
    "smaller-sum": Piece(
        ("the sum of the numbers of line 1 that are less than it",),
        ("sum(near for near in {xs} if near < {x})",),
    ),
}
TARGET_CONDITIONS = {"all": Piece(("",), ("",))} | {
    key: CONDITIONS[key] for key in ("even", "odd", "positive", "not-thirds", "below-ten", "two-digit")
}


def _draft_targets(rng: random.Random, keep: Piece, target: Piece, measure: Measure) -> Draft:
    pipeline = Pipeline(
        READ_TWO,
        ("for {x} in {zs}",),
        rng.choice(keep.codes),
        rng.choice(target.codes),
        params="{xs}, {zs}",
        helpers=condition_helpers(keep),
    )
    which = f" that is {phrase(rng, *keep.asks)}" if keep.asks[0] else ""
    task = (
        f"{phrase(rng, 'Two lines hold integers.', 'Read two lines of integers.')} For each number of "
        f"line 2{which}, {phrase(rng, 'find', 'take')} {target.asks[0]}. {ask_measure(rng, measure)}"
    )

    def draw(draws: random.Random) -> str:
        return two_lines(numbers(draws, sizes=(4, 6)), numbers(draws, sizes=(4, 6)))

    return Draft(task, draw, write_programs(rng, pipeline, measure))


# How a number p on line 2 names a number of line 1.
PLACES = {
    "one-based": Piece(("number p of line 1, counting from 1",), ("{xs}[p - 1]",)),
    "zero-based": Piece(("number p of line 1, counting from 0",), ("{xs}[p]",)),
    "from-end": Piece(("number p of line 1 from the end (1 is the last)",), ("{xs}[-p]", "{xs}[len({xs}) - p]")),
    "prefix": Piece(("the sum of the first p numbers of line 1",), ("sum({xs}[:p])",)),
    "suffix": Piece(("the sum of the last p numbers of line 1",), ("sum({xs}[-p:])",)),
    "prefix-max": Piece(("the maximum of the first p numbers of line 1",), ("max({xs}[:p])",)),
    "times": Piece(("p times number p of line 1, counting from 1",), ("p * {xs}[p - 1]",)),
}


def _draft_picks(rng: random.Random, place: Piece, keep: Piece, measure: Measure) -> Draft:
    value = rng.choice(place.codes)
    pipeline = Pipeline(
        READ_TWO,
        ("for p in {zs}",),
        rng.choice(keep.codes).replace("{x}", "value"),
        "value",
        update=f"value = {value}",
        params="{xs}, {zs}",
        helpers=condition_helpers(keep),
    )
    which = f" Keep those that are {phrase(rng, *keep.asks)}." if keep.asks[0] else ""
    task = (
        f"{phrase(rng, 'Line 1 has integers, line 2 places p.', 'Read integers on a line, then places p.')} "
        f"For each p, take {place.asks[0]}.{which} {ask_measure(rng, measure)}"
    )

    def draw(draws: random.Random) -> str:
        values = numbers(draws)
        return two_lines(values, numbers(draws, low=1, high=len(values) - 1, sizes=(3, 6)))

    return Draft(task, draw, write_programs(rng, pipeline, measure))


PICK_MEASURES = measures("sum", "max", "range", "alternating", "distinct", "list", "running", "records")

FAMILIES: tuple[Family, ...] = (
    compose("zipped-lists", (RELATIONS, PAIR_VALUES, PAIR_MEASURES), _draft_zip),
    compose("cross-pairs", (RELATIONS, PAIR_VALUES, PAIR_MEASURES), _draft_cross),
    compose("inner-pairs", (RELATIONS, PAIR_VALUES, PAIR_MEASURES), _draft_inner),
    compose("memberships", (MEMBERSHIPS, MEMBER_MAPS, MEMBER_MEASURES), _draft_members),
    compose("nearest-numbers", (TARGET_CONDITIONS, TARGETS, PICK_MEASURES), _draft_targets),
    compose("picks-by-place", (PLACES, TARGET_CONDITIONS, PICK_MEASURES), _draft_picks),
)
