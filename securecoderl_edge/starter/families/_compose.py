"""How numbers, matrices, grids, simulations and machines write a family as data.

A family is tables of pieces, sentences and program templates, where
``$name`` stands for a piece's words or code.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from itertools import product
from string import Template
from textwrap import indent
from typing import NamedTuple

from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import COUNT_NAMES, ITEM_NAMES, LIST_NAMES, TEXT_NAMES, TOTAL_NAMES

_NAMES = {
    "xs": LIST_NAMES,
    "x": ITEM_NAMES,
    "t": TOTAL_NAMES,
    "k": COUNT_NAMES,
    "s": TEXT_NAMES,
    "ints": ("list(map(int, input().split()))", "[int(part) for part in input().split()]"),
}


class Piece(NamedTuple):
    """One choice of a composition: phrasings with the same meaning, and named bits of code."""

    words: tuple[str, ...]
    code: Mapping[str, str]


Table = Mapping[str, Piece]


def piece(*words: str, **code: str) -> Piece:
    """A piece from its phrasings and its named bits of code."""
    return Piece(words, code)


def condition(test: str, *words: str) -> Piece:
    """A piece that keeps some ``$x``; ``$where`` ends a comprehension, ``$body`` guards ``$step``."""
    return piece(*words, test=test, where=f" if {test}", body=f"if {test}:\n    $step")


def fill(template: str, parts: Mapping[str, str]) -> str:
    """``template`` with every ``$name`` replaced, also inside the parts.

    A part alone on its line keeps its indent on all of its own lines; an empty one removes the line.
    """

    def place(match: re.Match[str]) -> str:
        part = parts[match[2]]
        return indent(part, match[1]) + "\n" if part else ""

    while "$" in template:
        placed = re.sub(r"(?m)^( *)\$(\w+)\n", place, template)
        template = placed if placed != template else Template(template).substitute(parts)
    return template


def compose(
    name: str,
    tables: Mapping[str, Table],
    tasks: tuple[str, ...],
    programs: tuple[str, ...],
    draw_input: Callable[[random.Random], str],
    skip: Callable[..., bool] = lambda *choices: False,
) -> Family:
    """The family of all combinations of one piece from each table.

    Args:
        name: the family's name.
        tables: the pieces; in ``tasks``, ``$table`` stands for the words of the piece chosen from that table.
        tasks: statements with the same meaning.
        programs: templates of solutions; besides the code of the pieces they may use ``$xs``, ``$x``,
            ``$t``, ``$k``, ``$s`` (list, item, total, count, text) and ``$ints`` (read a line of integers).
        draw_input: draws one input.
        skip: given one key of each table, whether that combination is pointless or repeats another.
    """

    def draft(key: str, rng: random.Random) -> Draft:
        chosen = {table: tables[table][choice] for table, choice in zip(tables, key.split("/"), strict=True)}
        words = {table: rng.choice(chosen[table].words) for table in tables}
        code = {label: text for choice in chosen.values() for label, text in choice.code.items()}
        return Draft(
            task=fill(rng.choice(tasks), {**code, **words}),
            draw_input=draw_input,
            solutions=tuple(_write(program, code, rng) for program in programs),
        )

    keys = tuple("/".join(choices) for choices in product(*tables.values()) if not skip(*choices))
    return Family(name, keys, draft)


def _write(program: str, code: Mapping[str, str], rng: random.Random) -> str:
    text = fill(program, {**{label: rng.choice(pool) for label, pool in _NAMES.items()}, **code})
    imports = "".join(f"import {module}\n" for module in ("heapq", "math", "sys") if f"{module}." in text)
    if not imports:
        return text
    return imports + ("\n\n" if text.startswith("def ") else "\n") + text


FOLDS = {
    "sum": piece(
        "their sum",
        "the sum of them",
        "the sum of those numbers",
        whole="sum($xs)",
        start="0",
        step="$t += $x",
        show="$t",
    ),
    "count": piece(
        "how many there are",
        "how many of them there are",
        "their count",
        whole="len($xs)",
        start="0",
        step="$t += 1",
        show="$t",
    ),
    "max": piece(
        "the largest of them, or 0 if there is none",
        "their maximum (0 if there is none)",
        whole="max($xs, default=0)",
        start="0",
        step="if $x > $t:\n    $t = $x",
        show="$t",
    ),
    "squares": piece(
        "the sum of their squares",
        "the sum of the squares of those numbers",
        whole="sum($x * $x for $x in $xs)",
        start="0",
        step="$t += $x * $x",
        show="$t",
    ),
    "digits": piece(
        "the sum of all their digits",
        "the sum of the decimal digits of all of them",
        whole="sum(int(char) for $x in $xs for char in str($x))",
        start="0",
        step="$t += sum(map(int, str($x)))",
        show="$t",
    ),
    "list": piece(
        "them in increasing order on one line, or none if there are none",
        "those numbers from smallest to largest, separated by spaces (none if there are none)",
        whole='" ".join(map(str, $xs)) or "none"',
        start="[]",
        step="$t.append($x)",
        show='" ".join(map(str, $t)) or "none"',
    ),
    "backwards": piece(
        "the number that they form when read from last to first, or 0 if there are none",
        "the decimal number made of them in reverse order (0 if there are none)",
        whole='int("".join(map(str, $xs)) or 0)',
        start="0",
        step="$t = $t * 10 + $x",
        show="$t",
    ),
    "distinct": piece(
        "how many different values there are",
        "how many of those values are different",
        whole="len(set($xs))",
        start="[]",
        step="if $x not in $t:\n    $t.append($x)",
        show="len($t)",
    ),
}


def folds(*names: str) -> dict[str, Piece]:
    """Some of `FOLDS`: ``$whole`` folds ``$xs``; ``$start``, ``$step``, ``$show`` go one ``$x`` at a time."""
    return {name: FOLDS[name] for name in names}
