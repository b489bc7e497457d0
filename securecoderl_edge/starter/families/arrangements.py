"""Arrangements: stable partitions, one number of each group, merging two sorted lists."""

from __future__ import annotations

import random

from securecoderl_edge.starter.families._number_pieces import FLAT_LAYOUTS, Layout, Piece, numbers
from securecoderl_edge.starter.families._number_programs import compose, define, several, write
from securecoderl_edge.starter.families.folds import CONDITIONS, condition_helpers
from securecoderl_edge.starter.families.orders import DIRECTIONS, SORT_KEYS, Direction
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import phrase

ARRANGEMENTS = {
    "stable": Piece(("both in input order",), ("front + back",)),
    "back-reversed": Piece(("the second group in reverse input order",), ("front + back[::-1]",)),
    "front-reversed": Piece(("the first group in reverse input order",), ("front[::-1] + back",)),
    "front-sorted": Piece(("the first group ascending, the second in input order",), ("sorted(front) + back",)),
    "back-sorted": Piece(("the first group in input order, the second ascending",), ("front + sorted(back)",)),
    "both-sorted": Piece(("each group ascending",), ("sorted(front) + sorted(back)",)),
    "mountain": Piece(
        ("the first group ascending, the second descending",),
        ("sorted(front) + sorted(back, reverse=True)",),
    ),
}


def _draft_partition(rng: random.Random, layout: Layout, keep: Piece, arrangement: Piece) -> Draft:
    condition, result = rng.choice(keep.codes), arrangement.codes[0]
    split = (
        f"front, back = [], []\nfor {{x}} in {{xs}}:\n    if {condition}:\n        front.append({{x}})\n"
        "    else:\n        back.append({x})"
    )
    two_lists = (
        f"front = [{{x}} for {{x}} in {{xs}} if {condition}]\nback = [{{x}} for {{x}} in {{xs}} if {{x}} not in front]"
    )
    helpers = condition_helpers(keep)
    programs = (
        write(rng, *helpers, rng.choice(layout.readers), split, f"print(*({result}))"),
        write(rng, *helpers, rng.choice(layout.readers), two_lists, f"{{t}} = {result}\nprint(*{{t}})"),
        write(
            rng,
            *helpers,
            define("arrange({xs})", split, f"return {result}"),
            rng.choice(layout.readers),
            "print(*arrange({xs}))",
        ),
    )
    task = (
        f"{phrase(rng, *layout.asks)} {phrase(rng, 'Put first', 'Move to the front')} the numbers "
        f"that are {phrase(rng, *keep.asks)}, then the others: {phrase(rng, *arrangement.asks)}. "
        f"{phrase(rng, 'Print the new list with spaces.', 'Print all of them on one line.')}"
    )
    return Draft(task, lambda draws: layout.render(numbers(draws)), several(rng, *programs))


KEPT = {
    "first": Piece(("the first in the input",), ("if key not in best:\n    best[key] = {x}",)),
    "last": Piece(("the last in the input",), ("best[key] = {x}",)),
    "smallest": Piece(("the smallest",), ("if key not in best or {x} < best[key]:\n    best[key] = {x}",)),
    "largest": Piece(("the largest",), ("if key not in best or {x} > best[key]:\n    best[key] = {x}",)),
}
_PICKS = {"first": "group[0]", "last": "group[-1]", "smallest": "min(group)", "largest": "max(group)"}
_GROUP_REPORTS = {
    "list": Piece(("them with spaces, groups in order of first appearance",), ("print(*{v})",)),
    "ascending": Piece(("them in ascending order with spaces",), ("print(*sorted({v}))",)),
    "sum": Piece(("their sum",), ("print(sum({v}))",)),
    "rest": Piece(("the sum of all the other numbers",), ("print(sum({xs}) - sum({v}))",)),
}


def _draft_groups(rng: random.Random, layout: Layout, key: Piece, kept: Piece, report: Piece) -> Draft:
    code = rng.choice(key.codes)
    which = next(which for which, piece in KEPT.items() if piece is kept)
    step = kept.codes[0].replace("\n", "\n    ")
    by_dict = f"best = {{}}\nfor {{x}} in {{xs}}:\n    key = {code}\n    {step}"
    groups = (
        f"groups = {{}}\nfor {{x}} in {{xs}}:\n    groups.setdefault({code}, []).append({{x}})\n"
        f"{{ys}} = [{_PICKS[which]} for group in groups.values()]"
    )
    function = define("choose({xs})", by_dict, "return list(best.values())")
    answer = report.codes[0]
    programs = (
        write(rng, key.helper, rng.choice(layout.readers), by_dict, answer.replace("{v}", "best.values()")),
        write(rng, key.helper, rng.choice(layout.readers), groups, answer.replace("{v}", "{ys}")),
        write(
            rng,
            key.helper,
            function,
            rng.choice(layout.readers),
            "{ys} = choose({xs})\n" + answer.replace("{v}", "{ys}"),
        ),
    )
    task = (
        f"{phrase(rng, *layout.asks)} Numbers with the same {phrase(rng, *key.asks)} form a group; "
        f"{phrase(rng, 'keep', 'take')} {phrase(rng, *kept.asks)} of each group. "
        f"{phrase(rng, 'Print', 'Output')} {phrase(rng, *report.asks)}."
    )
    return Draft(task, lambda draws: layout.render(numbers(draws, sizes=(5, 8))), several(rng, *programs))


MERGE_REPORTS = {
    "list": Piece(("them with spaces",), ("print(*{ys} or ['none'])",)),
    "gaps": Piece(
        ("the differences of neighbors (next minus previous) with spaces",),
        ("print(*[b - a for a, b in zip({ys}, {ys}[1:])] or ['none'])",),
    ),
    "middle": Piece(
        ("the one in the middle (of two, the earlier)",),
        ("print({ys}[(len({ys}) - 1) // 2] if {ys} else 'none')",),
    ),
}
_DUPLICATES = {
    "all": Piece(("keeping repeated numbers",), ("",)),
    "once": Piece(("each different number once",), (" and {x} not in {ys}",)),
}


def _draft_merge(rng: random.Random, keep: Piece, direction: Direction, duplicates: Piece, report: Piece) -> Draft:
    condition, new = rng.choice(keep.codes), duplicates.codes[0]
    read = rng.choice(
        (
            "left = list(map(int, input().split()))\nright = list(map(int, input().split()))",
            "left = [int(t) for t in input().split()]\nright = [int(t) for t in input().split()]",
        )
    )
    merge = (
        "i = j = 0\n{ys} = []\nwhile i < len(left) or j < len(right):\n"
        f"    if j == len(right) or (i < len(left) and left[i] {direction.before} right[j]):\n"
        "        {x} = left[i]\n        i += 1\n    else:\n        {x} = right[j]\n        j += 1\n"
        f"    if {condition}{new}:\n        {{ys}}.append({{x}})"
    )
    reverse = ", reverse=True" if direction.sign else ""
    bag = "set(left + right)" if new else "left + right"
    picked = f"{{ys}} = sorted([{{x}} for {{x}} in {bag} if {condition}]{reverse})"
    loop = (
        f"{{ys}} = []\nfor {{x}} in sorted(left + right{reverse}):\n"
        f"    if {condition}{new}:\n        {{ys}}.append({{x}})"
    )
    helpers, answer = condition_helpers(keep), report.codes[0].replace("'", '"')
    programs = (write(rng, *helpers, read, way, answer) for way in (merge, picked, loop))
    task = (
        f"{phrase(rng, 'There are two lines of integers', 'Read two lines of integers')}, each "
        f"sorted in {direction.words} order. Merge them in that order, {duplicates.asks[0]}, and keep only "
        f"numbers that are {phrase(rng, *keep.asks)}. Print {report.asks[0]}, or none if "
        "there is nothing to print."
    )

    def draw(draws: random.Random) -> str:
        lines = []
        for _ in range(2):
            values = sorted(numbers(draws, high=16, sizes=(3, 5)), reverse=bool(direction.sign))
            lines.append(" ".join(map(str, values)) + "\n")
        return "".join(lines)

    return Draft(task, draw, several(rng, *programs))


_FEW_KEYS = {key: SORT_KEYS[key] for key in ("absolute", "last-digit", "digit-sum", "mod-seven", "tens")}

FAMILIES: tuple[Family, ...] = (
    compose("order-partitions", (FLAT_LAYOUTS, CONDITIONS, ARRANGEMENTS), _draft_partition),
    compose("order-groups", (FLAT_LAYOUTS, _FEW_KEYS, KEPT, _GROUP_REPORTS), _draft_groups),
    compose("order-merges", (CONDITIONS, DIRECTIONS, _DUPLICATES, MERGE_REPORTS), _draft_merge),
)
