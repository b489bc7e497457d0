"""Runs: neighbors, windows, triples, running values, maximal runs and rearrangements of one list."""

from __future__ import annotations

import random
from collections.abc import Mapping

from securecoderl_edge.starter.families._number_pieces import (
    FLAT_LAYOUTS,
    Layout,
    Measure,
    Piece,
    ask_measure,
    measures,
    numbers,
)
from securecoderl_edge.starter.families._number_programs import Pipeline, compose, write_programs
from securecoderl_edge.starter.families.folds import CONDITIONS, condition_helpers
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import phrase

# What may hold between two numbers a and b, and what may be computed from them.
RELATIONS = {
    "rising": Piece(("a < b", "a is less than b"), ("a < b",)),
    "falling": Piece(("a > b", "a is greater than b"), ("a > b",)),
    "parity": Piece(("a and b are both even or both odd",), ("a % 2 == b % 2", "(a + b) % 2 == 0")),
    "mixed": Piece(("one of a, b is even and the other odd",), ("a % 2 != b % 2", "(a + b) % 2 == 1")),
    "close": Piece(("a and b differ by at most 4", "|a - b| <= 4"), ("abs(a - b) <= 4",)),
    "far": Piece(("a and b differ by more than 6", "|a - b| > 6"), ("abs(a - b) > 6",)),
    "thirds": Piece(("a + b is divisible by 3", "a + b is a multiple of 3"), ("(a + b) % 3 == 0",)),
    "heavy": Piece(("a + b is above 12", "a + b > 12"), ("a + b > 12",)),
}
PAIR_VALUES = {
    "product": Piece(("a * b", "the product a * b"), ("a * b",)),
    "total": Piece(("a + b", "the sum a + b"), ("a + b",)),
    "change": Piece(("b - a", "the difference b - a"), ("b - a",)),
    "larger": Piece(("the larger of a and b", "max(a, b)"), ("max(a, b)",)),
    "mixed": Piece(("2a - b", "2 * a - b"), ("2 * a - b",)),
    "remainder": Piece(("(a + b) modulo 5 (0 to 4)", "(a + b) mod 5 (0 to 4)"), ("(a + b) % 5",)),
}
PAIR_MEASURES = measures("sum", "max", "min", "range", "alternating", "weighted", "distinct", "list", "records")


def _draft_neighbors(rng: random.Random, layout: Layout, relation: Piece, value: Piece, measure: Measure) -> Draft:
    loop = phrase(rng, "for a, b in zip({xs}, {xs}[1:])", "for a, b in zip({xs}[:-1], {xs}[1:])")
    pipeline = Pipeline(layout.readers, (loop,), rng.choice(relation.codes), rng.choice(value.codes))
    task = (
        f"{phrase(rng, *layout.asks)} "
        f"{phrase(rng, 'Look at each number a and the next number b.', 'Take neighbors a, b (a before b).')} "
        f"Where {phrase(rng, *relation.asks)}, compute {phrase(rng, *value.asks)}. "
        f"{ask_measure(rng, measure)}"
    )
    return Draft(task, lambda draws: layout.render(numbers(draws)), write_programs(rng, pipeline, measure))


TRIPLES = {
    "peak": Piece(("b is greater than both a and c", "a < b and b > c"), ("a < b > c", "b > a and b > c")),
    "valley": Piece(("b is less than both a and c", "a > b and b < c"), ("a > b < c", "b < a and b < c")),
    "turn": Piece(("b is the largest or smallest of the three, with no ties",), ("(b - a) * (b - c) > 0",)),
    "bowed": Piece(("2b is greater than a + c", "b is above the average of a and c"), ("2 * b > a + c",)),
    "ends": Piece(("a is less than c", "a < c"), ("a < c",)),
    "even-sum": Piece(("a + b + c is even", "the sum of the three is even"), ("(a + b + c) % 2 == 0",)),
}
TRIPLE_VALUES = {
    "middle": Piece(("take b", "use b"), ("b",)),
    "total": Piece(("take a + b + c", "add up the three"), ("a + b + c",)),
    "change": Piece(("take c - a", "compute c - a"), ("c - a",)),
    "spread": Piece(("take their maximum minus their minimum",), ("max(a, b, c) - min(a, b, c)",)),
    "product": Piece(("take a * c - b", "compute a * c - b"), ("a * c - b",)),
}


def _draft_triples(rng: random.Random, layout: Layout, shape: Piece, value: Piece, measure: Measure) -> Draft:
    pipeline = Pipeline(
        layout.readers,
        ("for a, b, c in zip({xs}, {xs}[1:], {xs}[2:])",),
        rng.choice(shape.codes),
        value.codes[0],
    )
    if rng.random() < 0.4:
        pipeline = Pipeline(
            layout.readers,
            ("for i in range(len({xs}) - 2)",),
            pipeline.condition,
            pipeline.value,
            update="a, b, c = {xs}[i : i + 3]",
        )
    task = (
        f"{phrase(rng, *layout.asks)} For {phrase(rng, 'all', 'each')} three numbers a, b, c in a row where "
        f"{phrase(rng, *shape.asks)}, {phrase(rng, *value.asks)}. {ask_measure(rng, measure)}"
    )
    programs = write_programs(rng, pipeline, measure)
    return Draft(task, lambda draws: layout.render(numbers(draws, sizes=(5, 8))), programs)


WINDOW_VALUES = {
    "sum": Piece(("sum",), ("sum(window)",)),
    "max": Piece(("maximum",), ("max(window)",)),
    "min": Piece(("minimum",), ("min(window)",)),
    "spread": Piece(("maximum minus minimum",), ("max(window) - min(window)",)),
    "change": Piece(("last number minus first number",), ("window[-1] - window[0]",)),
    "evens": Piece(("number of even values",), ("sum(v % 2 == 0 for v in window)",)),
}
WINDOW_CONDITIONS = {
    "all": Piece(("",), ("",)),
    "rising": Piece(("whose last number is greater than the first",), ("window[-1] > window[0]",)),
    "even": Piece(("with an even sum",), ("sum(window) % 2 == 0",)),
    "distinct": Piece(("without repeated numbers",), ("len(set(window)) == k",)),
    "positive": Piece(("without negative numbers",), ("min(window) >= 0",)),
}
_READ_K = (
    "k = int(input())\n{xs} = list(map(int, input().split()))",
    "k = int(input())\n{xs} = [int(token) for token in input().split()]",
    "import sys\nk, *{xs} = map(int, sys.stdin.read().split())",
)


def _draft_windows(rng: random.Random, keep: Piece, value: Piece, measure: Measure) -> Draft:
    pipeline = Pipeline(
        _READ_K,
        ("for i in range(len({xs}) - k + 1)",),
        keep.codes[0],
        value.codes[0],
        update="window = {xs}[i : i + k]",
        params="{xs}, k",
    )
    which = f" {keep.asks[0]}" if keep.asks[0] else ""
    task = (
        f"{phrase(rng, 'Read k, then a line of integers.', 'Line 1 is k; line 2 holds integers.')} "
        f"For every block of k consecutive numbers{which}, "
        f"{phrase(rng, 'take its', 'compute its', 'find the')} "
        f"{value.asks[0]}. {ask_measure(rng, measure)}"
    )

    def draw(draws: random.Random) -> str:
        values = numbers(draws, low=-4, high=9, sizes=(5, 8))
        return f"{draws.randint(2, 3)}\n{' '.join(map(str, values))}\n"

    return Draft(task, draw, write_programs(rng, pipeline, measure))


# A running value: its start and its update, both as code.
SCANS = {
    "sum": Piece(("the sum of the numbers so far", "the running sum"), ("state = 0", "state += {x}")),
    "max": Piece(("the maximum so far", "the largest so far"), ("state = {xs}[0]", "state = max(state, {x})")),
    "min": Piece(("the minimum so far", "the smallest so far"), ("state = {xs}[0]", "state = min(state, {x})")),
    "minus": Piece(("the number minus the previous result (which starts at 0)",), ("state = 0", "state = {x} - state")),
    "doubling": Piece(
        ("twice the previous result (at first 0) plus the number",),
        ("state = 0", "state = 2 * state + {x}"),
    ),
    "floor": Piece(
        ("the previous result (which starts at 0) plus the number, but at least 0",),
        ("state = 0", "state = max(0, state + {x})"),
    ),
    "clock": Piece(
        ("the previous result (which starts at 0) plus the number, modulo 12 (0 to 11)",),
        ("state = 0", "state = (state + {x}) % 12"),
    ),
}
SCAN_CONDITIONS = {"all": Piece(("",), ("",))} | {
    key: CONDITIONS[key] for key in ("even", "odd", "thirds", "not-thirds", "two-digit", "below-ten")
}


def _draft_scans(rng: random.Random, layout: Layout, scan: Piece, keep: Piece, measure: Measure) -> Draft:
    start, update = scan.codes
    pipeline = Pipeline(
        layout.readers,
        ("for {x} in {xs}",),
        rng.choice(keep.codes).replace("{x}", "state"),
        "state",
        before=start,
        update=update,
    )
    which = f" Keep the results that are {phrase(rng, *keep.asks)}." if keep.asks[0] else ""
    task = (
        f"{phrase(rng, *layout.asks)} Go {phrase(rng, 'through them', 'from left to right')} and for each "
        f"number compute {phrase(rng, *scan.asks)}.{which} {ask_measure(rng, measure)}"
    )
    return Draft(task, lambda draws: layout.render(numbers(draws)), write_programs(rng, pipeline, measure))


LINKS = {
    "equal": Piece(("equal to it",), ("{x} == group[-1]",)),
    "rising": Piece(("greater than it",), ("{x} > group[-1]",)),
    "falling": Piece(("less than it",), ("{x} < group[-1]",)),
    "parity": Piece(("of the same parity",), ("{x} % 2 == group[-1] % 2",)),
    "close": Piece(("at most 2 away from it",), ("abs({x} - group[-1]) <= 2",)),
    "sign": Piece(("of the same kind (negative or not)",), ("({x} < 0) == (group[-1] < 0)",)),
}
RUN_VALUES = {
    "length": Piece(("length",), ("len(run)",)),
    "sum": Piece(("sum",), ("sum(run)",)),
    "first": Piece(("first number",), ("run[0]",)),
    "last-times": Piece(("last number times its length",), ("run[-1] * len(run)",)),
    "max": Piece(("maximum",), ("max(run)",)),
}
RUN_CONDITIONS = {
    "all": Piece(("each run",), ("",)),
    "long": Piece(("each run of two or more numbers", "each run longer than 1"), ("len(run) > 1", "len(run) >= 2")),
    "single": Piece(("each run of just one number",), ("len(run) == 1",)),
}


def _draft_runs(rng: random.Random, layout: Layout, link: Piece, keep: Piece, value: Piece, measure: Measure) -> Draft:
    grouping = (
        "runs = []\ngroup = []\nfor {x} in {xs}:\n"
        f"    if group and {link.codes[0]}:\n        group.append({{x}})\n"
        "    else:\n        group = [{x}]\n        runs.append(group)"
    )
    pipeline = Pipeline(layout.readers, ("for run in runs",), rng.choice(keep.codes), value.codes[0], grouping)
    task = (
        f"{phrase(rng, *layout.asks)} Cut the list into runs: a number joins the run of the number "
        f"before it if it is {link.asks[0]}. For {phrase(rng, *keep.asks)}, take its {value.asks[0]}. "
        f"{ask_measure(rng, measure)}"
    )

    def draw(draws: random.Random) -> str:
        return layout.render(numbers(draws, low=-2, high=5, sizes=(6, 9)))

    return Draft(task, draw, write_programs(rng, pipeline, measure))


MOVES = {
    "left": Piece(("Move the first number to the end",), ("{xs}[1:] + {xs}[:1]",)),
    "right-two": Piece(("Move the last two numbers to the front",), ("{xs}[-2:] + {xs}[:-2]",)),
    "reverse": Piece(("Reverse the list",), ("{xs}[::-1]",)),
    "halves": Piece(
        ("Swap the two halves (the first half has n // 2 numbers)",),
        ("{xs}[len({xs}) // 2 :] + {xs}[: len({xs}) // 2]",),
    ),
    "places": Piece(
        ("Put the numbers at odd places (1st, 3rd, ...) before the others",),
        ("{xs}[::2] + {xs}[1::2]",),
    ),
    "head-reversed": Piece(("Reverse the first three numbers",), ("{xs}[:3][::-1] + {xs}[3:]",)),
    "tail-reversed": Piece(("Reverse all but the first two numbers",), ("{xs}[:2] + {xs}[2:][::-1]",)),
    "drop-ends": Piece(("Remove the first and the last number",), ("{xs}[1:-1]",)),
    "mirror": Piece(("Append the reversed list to the list",), ("{xs} + {xs}[::-1]",)),
}
MOVE_CONDITIONS = {"all": Piece(("",), ("",))} | {
    key: CONDITIONS[key] for key in ("even", "odd", "positive", "not-thirds", "prime", "below-ten")
}


def _draft_moves(rng: random.Random, layout: Layout, move: Piece, keep: Piece, measure: Measure) -> Draft:
    pipeline = Pipeline(
        layout.readers,
        ("for {x} in moved",),
        rng.choice(keep.codes),
        "{x}",
        before=f"moved = {move.codes[0]}",
        helpers=condition_helpers(keep),
    )
    which = f", then keep the numbers that are {phrase(rng, *keep.asks)}" if keep.asks[0] else ""
    task = f"{phrase(rng, *layout.asks)} {move.asks[0]}{which}. {ask_measure(rng, measure)}"
    return Draft(task, lambda draws: layout.render(numbers(draws)), write_programs(rng, pipeline, measure))


def _move_is_new(layout: str, move: str, keep: str, measure: str) -> bool:
    return (move, measure) != ("mirror", "alternating")  # always 0


def _window_is_new(keep: str, value: str, measure: str) -> bool:
    return not (value == "evens" and measure in ("max", "min", "range", "distinct"))


_RUN_MEASURES: Mapping[str, Measure] = measures("sum", "max", "range", "alternating", "weighted", "list")
_ORDERED: Mapping[str, Measure] = measures("alternating", "weighted", "horner", "list", "running", "records")

FAMILIES: tuple[Family, ...] = (
    compose("neighbor-pairs", (FLAT_LAYOUTS, RELATIONS, PAIR_VALUES, PAIR_MEASURES), _draft_neighbors),
    compose("neighbor-triples", (FLAT_LAYOUTS, TRIPLES, TRIPLE_VALUES, PAIR_MEASURES), _draft_triples),
    compose(
        "windows",
        (WINDOW_CONDITIONS, WINDOW_VALUES, PAIR_MEASURES),
        _draft_windows,
        allow=_window_is_new,
    ),
    compose("running-values", (FLAT_LAYOUTS, SCANS, SCAN_CONDITIONS, PAIR_MEASURES), _draft_scans),
    compose(
        "maximal-runs",
        (FLAT_LAYOUTS, LINKS, RUN_CONDITIONS, RUN_VALUES, _RUN_MEASURES),
        _draft_runs,
        allow=lambda layout, link, keep, value, measure: keep != "single" or value == "sum",
    ),
    compose(
        "rearrangements",
        (FLAT_LAYOUTS, MOVES, MOVE_CONDITIONS, _ORDERED),
        _draft_moves,
        allow=_move_is_new,
    ),
)
