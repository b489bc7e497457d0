"""Folds: keep some numbers of a list, change each, and reduce what is left to one answer."""

from __future__ import annotations

import random
from collections.abc import Mapping

from securecoderl_edge.starter.families._number_pieces import (
    LAYOUTS,
    Layout,
    Measure,
    Piece,
    ask_measure,
    measures,
    numbers,
)
from securecoderl_edge.starter.families._number_programs import (
    Pipeline,
    compose,
    several,
    write,
    write_programs,
)
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import phrase

IS_PRIME = """def is_prime(n):
    if n < 2:
        return False
    for d in range(2, n):
        if n % d == 0:
            return False
    return True"""
DIGIT_SUM = """def digit_sum(n):
    n = abs(n)
    total = 0
    while n > 0:
        total += n % 10
        n //= 10
    return total"""

# Conditions on a number {x} that need nothing but the number.
CONDITIONS = {
    "even": Piece(("even", "divisible by 2"), ("{x} % 2 == 0", "not {x} % 2")),
    "odd": Piece(("odd", "not divisible by 2"), ("{x} % 2 == 1", "{x} % 2 != 0")),
    "positive": Piece(("positive", "greater than 0"), ("{x} > 0",)),
    "negative": Piece(("negative", "less than 0"), ("{x} < 0",)),
    "thirds": Piece(("divisible by 3", "multiples of 3"), ("{x} % 3 == 0",)),
    "not-thirds": Piece(("not divisible by 3", "not multiples of 3"), ("{x} % 3 != 0", "{x} % 3 > 0")),
    "below-ten": Piece(("less than 10", "below 10"), ("{x} < 10", "{x} <= 9")),
    "near-zero": Piece(("between -5 and 5 inclusive", "from -5 to 5"), ("-5 <= {x} <= 5", "abs({x}) <= 5")),
    "two-digit": Piece(("at least 10", "greater than 9"), ("{x} >= 10", "{x} > 9")),
    "prime": Piece(("prime", "prime numbers"), ("is_prime({x})",), IS_PRIME),
    "even-digits": Piece(("of even digit sum (ignoring signs)",), ("digit_sum({x}) % 2 == 0",), DIGIT_SUM),
}
# Conditions that look at the rest of the list {xs} or at the index i.
LIST_CONDITIONS = {
    "above-first": Piece(("greater than the first one", "above the first of them"), ("{x} > {xs}[0]",)),
    "above-mean": Piece(
        ("greater than the average of all", "above the mean of all of them"),
        ("{x} > sum({xs}) / len({xs})", "{x} * len({xs}) > sum({xs})"),
    ),
    "rising": Piece(
        ("greater than the number just before them (the first one never is)",),
        ("i > 0 and {x} > {xs}[i - 1]",),
    ),
    "even-place": Piece(("at even positions, counting from 0", "at indices 0, 2, 4, ..."), ("i % 2 == 0",)),
    "late": Piece(("not among the first two", "after the first two"), ("i >= 2", "i > 1")),
    "unique": Piece(
        ("present only once in the list", "without an equal elsewhere in the list"), ("{xs}.count({x}) == 1",)
    ),
}
FILTERS = CONDITIONS | LIST_CONDITIONS

MAPS = {
    "same": Piece(("",), ("{x}",)),
    "square": Piece(("square each", "replace each by its square"), ("{x} * {x}", "{x} ** 2")),
    "double-plus": Piece(("double each and add 1", "turn v into 2v + 1"), ("2 * {x} + 1", "{x} * 2 + 1")),
    "absolute": Piece(("take absolute values", "drop the minus signs"), ("abs({x})",)),
    "last-digit": Piece(
        ("take the last digit of each (without sign)", "replace each by its last digit, ignoring the sign"),
        ("abs({x}) % 10",),
    ),
    "mod-seven": Piece(("take each modulo 7 (result 0 to 6)", "replace each v by v mod 7 (from 0 to 6)"), ("{x} % 7",)),
    "half": Piece(("halve each, rounding down", "replace each by its half rounded down"), ("{x} // 2",)),
    "from-ten": Piece(
        ("take the distance of each to 10", "replace each v by |v - 10|"), ("abs({x} - 10)", "abs(10 - {x})")
    ),
    "digit-sum": Piece(
        ("replace each by its digit sum (without sign)", "sum the digits of each, ignoring signs"),
        ("digit_sum({x})",),
        DIGIT_SUM,
    ),
    "times-place": Piece(
        (
            "multiply each by its index in the input, from 0",
            "replace each by itself times its 0-based index",
        ),
        ("{x} * i", "i * {x}"),
    ),
    "minus-first": Piece(
        ("subtract the first input number from each", "reduce each by the first number of the input"),
        ("{x} - {xs}[0]",),
    ),
}

_NO_MINUS = ("positive", "two-digit", "prime")  # filters after which absolute values change nothing


def useful(keep: str, change: str, reduction: str = "") -> bool:
    """Whether the map has an effect of its own after the filter, and the reduction a choice after both."""
    if change == "absolute" and keep in _NO_MINUS:
        return False
    if reduction.startswith("product") and change in ("times-place", "minus-first", "last-digit"):
        return False  # a zero most of the time
    if reduction == "big" and keep in ("negative", "near-zero"):
        return False  # seldom any
    if reduction == "big" and keep == "two-digit" and change in ("same", "double-plus", "square"):
        return False  # always all
    return reduction != "repeats" or keep != "unique"


def condition_helpers(*pieces: Piece) -> tuple[str, ...]:
    """The functions that pieces call, each once."""
    return tuple(dict.fromkeys(piece.helper for piece in pieces if piece.helper))


def _draft_fold(rng: random.Random, layout: Layout, keep: Piece, change: Piece, measure: Measure) -> Draft:
    condition, value = rng.choice(keep.codes), rng.choice(change.codes)
    indexed = "i " in condition or value.endswith("* i") or value.startswith("i *")
    pipeline = Pipeline(
        layout.readers,
        ("for i, {x} in enumerate({xs})" if indexed else "for {x} in {xs}",),
        condition,
        value,
        helpers=condition_helpers(keep, change),
    )
    numbers_kept = phrase(rng, "Keep the numbers that are", "Take those that are", "Select the ones that are")
    changed = phrase(rng, *change.asks)
    selection = f"{numbers_kept} {phrase(rng, *keep.asks)}" + (f" and {changed}." if changed else ".")
    task = f"{phrase(rng, *layout.asks)} {selection} {ask_measure(rng, measure)}"
    return Draft(task, lambda draws: layout.render(numbers(draws)), write_programs(rng, pipeline, measure))


def _fold_family(name: str, reductions: Mapping[str, Measure]) -> Family:
    return compose(
        name,
        (LAYOUTS, FILTERS, MAPS, reductions),
        _draft_fold,
        allow=lambda layout, *keys: useful(*keys),
    )


CONTRASTS = {
    "sum": Piece(("sum",), ("sum({ys})", "{t} += {x}")),
    "count": Piece(("count",), ("len({ys})", "{t} += 1")),
    "squares": Piece(("sum of squares",), ("sum(v * v for v in {ys})", "{t} += {x} * {x}")),
    "largest": Piece(("maximum (0 if there are none)",), ("max({ys}, default=0)", "")),
    "smallest": Piece(("minimum (0 if there are none)",), ("min({ys}, default=0)", "")),
}
COMBINATIONS = {
    "minus": Piece(("the first result minus the second",), ("{a} - {b}",)),
    "times": Piece(("the product of the two results",), ("{a} * {b}",)),
    "both": Piece(("both results on one line, separated by a space",), ("{a}, {b}",)),
    "larger": Piece(("the larger of the two results",), ("max({a}, {b})",)),
}


def _draft_contrast(
    rng: random.Random, layout: Layout, left: Piece, right: Piece, contrast: Piece, combine: Piece
) -> Draft:
    result, step = contrast.codes
    left_code, right_code, total = rng.choice(left.codes), rng.choice(right.codes), rng.choice(combine.codes)
    total = total.replace("{a}", "first").replace("{b}", "second")
    helpers = condition_helpers(left, right)
    read = rng.choice(layout.readers)
    picks = (
        f"left = [{{x}} for {{x}} in {{xs}} if {left_code}]",
        f"right = [{{x}} for {{x}} in {{xs}} if {right_code}]",
    )
    answers = (f"first = {result.replace('{ys}', 'left')}", f"second = {result.replace('{ys}', 'right')}")
    programs = [
        write(rng, *helpers, read, *picks, *answers, f"print({total})"),
        write(
            rng,
            *helpers,
            f"def measure({{ys}}):\n    return {result}",
            read,
            picks[0].replace("left = ", "first = measure(") + ")",
            picks[1].replace("right = ", "second = measure(") + ")",
            f"print({total})",
        ),
    ]
    if step:
        branches = "\n".join(
            f"    if {code}:\n        {step.replace('{t}', side)}"
            for code, side in ((left_code, "first"), (right_code, "second"))
        )
        loop = f"first = 0\nsecond = 0\nfor {{x}} in {{xs}}:\n{branches}"
        programs.append(write(rng, *helpers, rng.choice(layout.readers), loop, f"print({total})"))
    else:
        gather = (
            f"left, right = [], []\nfor {{x}} in {{xs}}:\n    if {left_code}:\n        left.append({{x}})\n"
            f"    if {right_code}:\n        right.append({{x}})"
        )
        programs.append(write(rng, *helpers, rng.choice(layout.readers), gather, *answers, f"print({total})"))
    what = contrast.asks[0]
    task = (
        f"{phrase(rng, *layout.asks)} {phrase(rng, 'Find', 'Compute', 'Work out')} first the {what} of the "
        f"numbers that are {phrase(rng, *left.asks)}, then the same for those that are "
        f"{phrase(rng, *right.asks)}. "
        f"{phrase(rng, 'Print', 'Output')} {combine.asks[0]}."
    )
    return Draft(task, lambda draws: layout.render(numbers(draws)), several(rng, *programs))


def _contrast_is_new(layout: str, left: str, right: str, contrast: str, combine: str) -> bool:
    """Two different filters, in one order only where the combination is symmetric."""
    symmetric = combine in ("times", "larger")
    if "even-digits" in (left, right) or left == right or (symmetric and left > right):
        return False
    # The extremes of these are the same for most lists, or fixed by the filter.
    return contrast in ("sum", "count", "squares") or "near-zero" not in (left, right)


FAMILIES: tuple[Family, ...] = (
    _fold_family("fold-totals", measures("sum", "alternating", "weighted", "horner")),
    _fold_family("fold-extremes", measures("max", "min", "range", "ends")),
    _fold_family("fold-tallies", measures("distinct", "repeats", "big", "records")),
    _fold_family("fold-products", measures("product", "product-mod", "gcd")),
    _fold_family("fold-listings", measures("list", "backwards", "running")),
    compose(
        "fold-contrasts",
        (LAYOUTS, CONDITIONS, CONDITIONS, CONTRASTS, COMBINATIONS),
        _draft_contrast,
        allow=_contrast_is_new,
    ),
)
