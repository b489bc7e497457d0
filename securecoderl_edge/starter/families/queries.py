"""Queries: several questions about one list, or changes to it with a report after each."""

from __future__ import annotations

import random
from collections.abc import Sequence
from textwrap import indent

from securecoderl_edge.starter.families._number_pieces import Piece, numbers
from securecoderl_edge.starter.families._number_programs import compose, define, several, write
from securecoderl_edge.starter.families.folds import CONDITIONS, condition_helpers
from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import phrase

_READ_LIST = ("{xs} = list(map(int, input().split()))", "{xs} = [int(t) for t in input().split()]")
_TAB = "    "


def _write_queries(rng: random.Random, helpers: Sequence[str], query: str, steps: str, answer: str) -> tuple[str, ...]:
    """Programs that read a list ``{xs}``, then q queries such as ``l, r``, and print an answer to each.

    ``steps`` run before the expression ``answer`` of every query and may change the list.
    """
    one = "int(input())" if "," not in query else "map(int, input().split())"
    per_line = f"{query} = {one}"
    target = query if "," in query else f"({query},)"
    body = f"{steps}\n" if steps else ""
    reply = define(f"reply({{xs}}, {query})", f"{body}return {answer}")

    def loop(count: str, action: str) -> str:
        return f"for _ in range({count}):\n{indent(action, _TAB)}"

    return several(
        rng,
        write(rng, *helpers, rng.choice(_READ_LIST), loop("int(input())", f"{per_line}\n{body}print({answer})")),
        write(
            rng,
            *helpers,
            reply,
            rng.choice(_READ_LIST),
            "q = int(input())",
            loop("q", f"{per_line}\nprint(reply({{xs}}, {query}))"),
        ),
        write(
            rng,
            "import sys",
            *helpers,
            "{xs}, _, *queries = [list(map(int, row.split())) for row in sys.stdin]",
            f"for {target} in queries:\n{indent(f'{body}print({answer})', _TAB)}",
        ),
    )


def _ask_queries(rng: random.Random, query: str) -> str:
    return phrase(
        rng,
        f"Line 1 holds integers, line 2 the number q; q lines with {query} follow.",
        f"Read a line of integers, then q, then q lines, each with {query}.",
    )


def _query_text(values: Sequence[int], rows: Sequence[Sequence[object]]) -> str:
    lines = [" ".join(map(str, row)) for row in rows]
    return "\n".join([" ".join(map(str, values)), str(len(rows)), *lines]) + "\n"


# A part of the list named by l and r: words, and the slice.
SPANS = {
    "places": Piece(("from place l to place r, inclusive, counting from 1",), ("{xs}[l - 1 : r]",)),
    "indices": Piece(("from index l up to but without index r, counting from 0",), ("{xs}[l:r]",)),
    "outside": Piece(("before place l or after place r, counting from 1",), ("{xs}[: l - 1] + {xs}[r:]",)),
}
SPAN_CONDITIONS = {"all": Piece(("",), ("",))} | {
    key: CONDITIONS[key] for key in ("even", "odd", "positive", "not-thirds")
}
SUMMARIES = {
    "sum": Piece(("the sum",), ("sum(part)",)),
    "count": Piece(("the number of different values",), ("len(set(part))",)),
    "max": Piece(("the maximum, or none,",), ('max(part, default="none")',)),
    "min": Piece(("the minimum, or none,",), ('min(part, default="none")',)),
    "spread": Piece(("the maximum minus the minimum, or none,",), ('max(part) - min(part) if part else "none"',)),
    "squares": Piece(("the sum of the squares",), ("sum(v * v for v in part)",)),
    "ends": Piece(("the last minus the first, or none,",), ('part[-1] - part[0] if part else "none"',)),
}


def _draw_span(draws: random.Random, size: int) -> tuple[int, int]:
    left, right = sorted(draws.sample(range(1, size + 1), 2))
    return left, right


def _draft_spans(rng: random.Random, span: Piece, keep: Piece, summary: Piece) -> Draft:
    condition = rng.choice(keep.codes)
    steps = f"part = {span.codes[0]}"
    if condition:
        steps = f"part = [{{x}} for {{x}} in {span.codes[0]} if {condition}]"
    which = f"numbers that are {phrase(rng, *keep.asks)}" if keep.asks[0] else "numbers"
    task = f"{_ask_queries(rng, 'l r')} For each query print {summary.asks[0]} of the {which} {span.asks[0]}."

    def draw(draws: random.Random) -> str:
        values = numbers(draws)
        return _query_text(values, [_draw_span(draws, len(values)) for _ in range(draws.randint(2, 3))])

    return Draft(task, draw, _write_queries(rng, condition_helpers(keep), "l, r", steps, summary.codes[0]))


BOUNDS = {
    "less": Piece(("less than x", "below x"), ("{x} < x",)),
    "greater": Piece(("greater than x", "above x"), ("{x} > x",)),
    "multiple": Piece(("divisible by x", "multiples of x"), ("{x} % x == 0",)),
    "near": Piece(("at most 3 away from x", "within distance 3 of x"), ("abs({x} - x) <= 3",)),
    "smaller-size": Piece(("of absolute value less than x",), ("abs({x}) < x",)),
    "modulo": Piece(("equal to x modulo 3 (the same remainder)",), ("{x} % 3 == x % 3",)),
}
BOUND_CONDITIONS = {key: SPAN_CONDITIONS[key] for key in ("all", "even", "odd", "not-thirds")}


def _draft_bounds(rng: random.Random, bound: Piece, keep: Piece, summary: Piece) -> Draft:
    condition = " and ".join(code for code in (rng.choice(keep.codes), bound.codes[0]) if code)
    condition = condition.replace("{x}", "v")
    also = f"{phrase(rng, *keep.asks)} and " if keep.asks[0] else ""
    task = (
        f"{_ask_queries(rng, 'a number x')} For each x print {summary.asks[0]} of the list's numbers "
        f"that are {also}{phrase(rng, *bound.asks)}."
    )

    def draw(draws: random.Random) -> str:
        return _query_text(numbers(draws), [(draws.randint(2, 15),) for _ in range(draws.randint(2, 3))])

    steps = f"part = [v for v in {{xs}} if {condition}]"
    return Draft(task, draw, _write_queries(rng, (), "x", steps, summary.codes[0]))


# What an update "i v" does to the list; i counts from 1.
UPDATES = {
    "set": Piece(("number i becomes v", "set number i to v"), ("{xs}[i - 1] = v",)),
    "add": Piece(("v is added to number i", "add v to number i"), ("{xs}[i - 1] += v",)),
    "cap": Piece(("number i becomes v if v is smaller",), ("{xs}[i - 1] = min({xs}[i - 1], v)",)),
    "raise": Piece(("number i becomes v if v is larger",), ("{xs}[i - 1] = max({xs}[i - 1], v)",)),
    "insert": Piece(("v is inserted before number i", "insert v before number i"), ("{xs}.insert(i - 1, v)",)),
    "from-end": Piece(("v is added to number i from the end",), ("{xs}[-i] += v",)),
    "prefix": Piece(("v is added to each of the first i numbers",), ("for j in range(i):\n    {xs}[j] += v",)),
    "suffix": Piece(
        ("v is subtracted from number i and all after it",),
        ("for j in range(i - 1, len({xs})):\n    {xs}[j] -= v",),
    ),
}
REPORTS = {
    "sum": Piece(("the sum of the list",), ("sum({xs})",)),
    "max": Piece(("the maximum of the list",), ("max({xs})",)),
    "spread": Piece(("the maximum minus the minimum",), ("max({xs}) - min({xs})",)),
    "evens": Piece(("how many numbers are even",), ("sum({x} % 2 == 0 for {x} in {xs})",)),
    "positive": Piece(("the sum of the positive numbers",), ("sum({x} for {x} in {xs} if {x} > 0)",)),
    "rises": Piece(
        ("how many numbers are greater than the one just before",),
        ("sum(a < b for a, b in zip({xs}, {xs}[1:]))",),
    ),
    "alternating": Piece(("first minus second plus third and so on",), ("sum({xs}[::2]) - sum({xs}[1::2])",)),
}


def _draft_updates(rng: random.Random, update: Piece, report: Piece) -> Draft:
    task = (
        f"{_ask_queries(rng, 'i v')} A line i v means: {phrase(rng, *update.asks)} (counting from 1). "
        f"{phrase(rng, 'After each of these lines print', 'After every update print')} {report.asks[0]}."
    )

    def draw(draws: random.Random) -> str:
        values = numbers(draws, sizes=(4, 6))
        rows = [(draws.randint(1, len(values)), draws.randint(-5, 15)) for _ in range(draws.randint(2, 3))]
        return _query_text(values, rows)

    return Draft(task, draw, _write_queries(rng, (), "i, v", update.codes[0], report.codes[0]))


_COMMANDS = ("insert", "cap", "prefix", "suffix", "add", "from-end")
_COMMAND_UPDATES = {key: UPDATES[key] for key in _COMMANDS}
_COMMAND_SPANS = {key: SPANS[key] for key in ("places", "indices")}
_COMMAND_SUMMARIES = {key: SUMMARIES[key] for key in ("sum", "spread", "max", "squares", "ends")}


def _draft_commands(rng: random.Random, update: Piece, span: Piece, summary: Piece) -> Draft:
    change = f"i, v = map(int, args)\n{update.codes[0]}"
    show = f"l, r = map(int, args)\npart = {span.codes[0]}"
    answer = summary.codes[0]
    branches = f'if command == "u":\n{indent(change, _TAB)}\nelse:\n{indent(show, _TAB)}\n{_TAB}print({answer})'
    calls = 'if command == "u":\n    change({xs}, args)\nelse:\n    print(show({xs}, args))'
    by_line = "for _ in range(int(input())):\n    command, *args = input().split()\n"
    by_row = "for row in rows:\n    command, *args = row.split()\n"
    programs = (
        write(rng, rng.choice(_READ_LIST), by_line + indent(branches, _TAB)),
        write(
            rng,
            define("change({xs}, args)", change),
            define("show({xs}, args)", show, f"return {answer}"),
            rng.choice(_READ_LIST),
            by_line + indent(calls, _TAB),
        ),
        write(
            rng,
            "import sys\nfirst, _, *rows = sys.stdin.read().splitlines()",
            "{xs} = list(map(int, first.split()))",
            by_row + indent(branches, _TAB),
        ),
    )
    task = (
        f"Line 1 holds integers, line 2 the number of commands that follow. "
        f"'u i v': {phrase(rng, *update.asks)} (counting from 1). "
        f"'q l r': print {summary.asks[0]} of the numbers {span.asks[0]}."
    )

    def draw(draws: random.Random) -> str:
        values = numbers(draws, sizes=(4, 6))
        rows: list[tuple[object, ...]] = []
        for _ in range(draws.randint(1, 2)):
            rows.append(("u", draws.randint(1, len(values)), draws.randint(-5, 15)))
            rows.append(("q", *_draw_span(draws, len(values))))
        return _query_text(values, rows)

    return Draft(task, draw, several(rng, *programs))


def _update_is_new(update: str, report: str) -> bool:
    """Adding anywhere changes the sum alike; inserting and raising change the maximum alike."""
    return (update, report) not in (("from-end", "sum"), ("insert", "sum"), ("insert", "max"))


CHOICES = {
    "smallest": Piece(("the k-th smallest",), ("part.sort()", "part[k - 1]")),
    "largest": Piece(("the k-th largest",), ("part.sort(reverse=True)", "part[k - 1]")),
    "distinct": Piece(("the k-th smallest of the different values",), ("part = sorted(set(part))", "part[k - 1]")),
    "first": Piece(("the k-th in list order",), ("", "part[k - 1]")),
    "last": Piece(("the k-th in list order from the end",), ("", "part[-k]")),
    "low-sum": Piece(("the sum of the k smallest",), ("part.sort()", "sum(part[:k])")),
    "high-sum": Piece(("the sum of the k largest",), ("part.sort(reverse=True)", "sum(part[:k])")),
    "head-sum": Piece(("the sum of the first k in list order",), ("", "sum(part[:k])")),
}
_CHOICE_CONDITIONS = {key: piece for key, piece in SPAN_CONDITIONS.items() if key != "all"} | {
    key: CONDITIONS[key] for key in ("negative", "below-ten", "two-digit", "near-zero")
}


def _draft_choices(rng: random.Random, choice: Piece, keep: Piece) -> Draft:
    arrange, pick = choice.codes
    steps = f"part = [{{x}} for {{x}} in {{xs}} if {rng.choice(keep.codes)}]" + (f"\n{arrange}" if arrange else "")
    task = (
        f"{_ask_queries(rng, 'a number k')} For each k print {choice.asks[0]} among the list's "
        f"numbers that are {phrase(rng, *keep.asks)}, or none if there are fewer than k."
    )

    def draw(draws: random.Random) -> str:
        return _query_text(numbers(draws, high=14, sizes=(6, 8)), [(draws.randint(1, 3),) for _ in range(2)])

    answer = f'{pick} if k <= len(part) else "none"'
    return Draft(task, draw, _write_queries(rng, (), "k", steps, answer))


FAMILIES: tuple[Family, ...] = (
    compose("span-queries", (SPANS, SPAN_CONDITIONS, SUMMARIES), _draft_spans),
    compose("bound-queries", (BOUNDS, BOUND_CONDITIONS, SUMMARIES), _draft_bounds),
    compose("update-queries", (UPDATES, REPORTS), _draft_updates, allow=_update_is_new),
    compose("command-queries", (_COMMAND_UPDATES, _COMMAND_SPANS, _COMMAND_SUMMARIES), _draft_commands),
    compose("choice-queries", (CHOICES, _CHOICE_CONDITIONS), _draft_choices),
)
