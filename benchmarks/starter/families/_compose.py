"""How a family is written as data: tables of pieces, sentences and program templates.

``$name`` in a sentence or a template stands for a piece's words or code, or for the name of a variable.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import product
from string import Template
from textwrap import indent
from typing import NamedTuple

from family import HELD_OUT_PERCENT, Draft, Family, choose_wording, is_held_out

from families._c import complete, in_c

# Compositions of a family; its pieces recur in other families.
FAMILY_SIZE = 30
LARGE_FAMILY_SIZE = 60  # of those that combine most
# One name for one thing, in all families: what a model learns of a program is then what the program does.
_NAMES = {
    "xs": "nums",
    "x": "x",
    "ys": "kept",
    "y": "y",
    "ws": "words",
    "w": "word",
    "c": "c",
    "t": "total",
    "d": "table",
}
_MODULES = ("math", "sys")


class Piece(NamedTuple):
    """One choice of a composition: phrasings with the same meaning, and named bits of code."""

    words: tuple[str, ...]
    code: Mapping[str, str]


Table = Mapping[str, Piece]


def piece(*words: str, **code: str) -> Piece:
    """A piece from its phrasings and its named bits of code."""
    return Piece(words, code)


def only(table: Table, *keys: str) -> dict[str, Piece]:
    """Some pieces of a table."""
    return {key: table[key] for key in keys}


def without(table: Table, *keys: str) -> dict[str, Piece]:
    """A table less some of its pieces."""
    return {key: chosen for key, chosen in table.items() if key not in keys}


def again(table: Table) -> dict[str, Piece]:
    """The table for a second use in one family: its bits of code are ``$test2``, ``$value2`` and so on."""
    return {
        key: Piece(chosen.words, {f"{label}2": text for label, text in chosen.code.items()})
        for key, chosen in table.items()
    }


def said(*sentences: tuple[str, ...]) -> tuple[str, ...]:
    """Every statement that says each sentence in one of its wordings."""
    return tuple(map(" ".join, product(*sentences)))


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
    code: Mapping[str, str] | None = None,
    size: int = FAMILY_SIZE,
    c_programs: tuple[str, ...] = (),
    tags: tuple[str, ...] = (),
) -> Family:
    """The family of the combinations of one piece from each table, or of ``size`` of them.

    Args:
        name: the family's name.
        tables: the pieces; in ``tasks``, ``$table`` stands for the words of the piece chosen from that table.
        tasks: statements with the same meaning; they may use the bits of code as well.
        programs: templates of solutions; besides the code of the pieces they may use the names ``$xs`` and
            ``$x`` (numbers), ``$ys`` and ``$y`` (results), ``$ws`` and ``$w`` (words), ``$c`` (letter), ``$t`` (total),
            ``$d`` (dictionary). Modules that they name are imported.
        draw_input: draws one input.
        skip: given one key of each table, whether that combination is pointless or repeats another.
        code: named bits of code that all compositions share, such as ``read``.
        size: how many compositions the family keeps at most.
        c_programs: the same for solutions in C (`_c`).
        tags: of the family's problems.
    """
    fixed = code or {}

    def pieces(key: str) -> dict[str, Piece]:
        return {table: tables[table][choice] for table, choice in zip(tables, key.split("/"), strict=True)}

    @lru_cache(maxsize=1)  # its wordings are tried one after the other
    def written(key: str) -> tuple[dict[str, str], tuple[str, ...]]:
        bits = dict(fixed) | {label: text for each in pieces(key).values() for label, text in each.code.items()}
        return bits, tuple(_write(program, bits) for program in programs)

    def draft(key: str, rng: random.Random, rarity: float) -> Draft:
        chosen = pieces(key)
        words = {table: choose_wording(chosen[table].words, rng, rarity) for table in tables}
        bits, solutions = written(key)
        return Draft(
            task=fill(rng.choice(tasks), {**bits, **words}),
            draw_input=draw_input,
            solutions=solutions,
            c_solutions=lambda: tuple(complete(fill(program, {**_NAMES, **in_c(bits)})) for program in c_programs),
        )

    keys = ["/".join(choices) for choices in product(*tables.values()) if not skip(*choices)]
    drawn = _draw(name, keys, size)
    return Family(name, tuple(key for key in keys if key in drawn), draft, bool(c_programs), tags)


def _draw(name: str, keys: list[str], size: int) -> set[str]:
    """``size`` of the keys, or all; nothing is held out for evaluation with a piece that no other key teaches."""
    held_out = [key for key in keys if is_held_out(name, key)]
    apart = set(held_out)
    to_learn_from = [key for key in keys if key not in apart]
    if len(keys) > size:
        share = round(size * HELD_OUT_PERCENT / 100)
        to_learn_from, held_out = balanced(to_learn_from, size - share), balanced(held_out, share)
    taught = {place for key in to_learn_from for place in _places(key)}
    return {*to_learn_from, *(key for key in held_out if taught.issuperset(_places(key)))}


def balanced(keys: list[str], size: int) -> list[str]:
    """``size`` keys, of which each piece has its share as far as that goes; rare pieces are served first."""
    places = {key: _places(key) for key in keys}
    frequency = Counter(place for own in places.values() for place in own)
    choices = Counter(table for table, _ in frequency)
    rarest = {key: min(frequency[place] for place in own) for key, own in places.items()}
    rare_first = sorted(keys, key=lambda key: (rarest[key], hashlib.sha256(key.encode()).digest()))
    drawn: dict[str, None] = {}
    used: Counter[tuple[int, str]] = Counter()
    for key in rare_first:
        if all(used[place] < max(1, size // choices[place[0]]) for place in places[key]):
            drawn[key] = None
            used.update(places[key])
    return [*drawn, *(key for key in rare_first if key not in drawn)][:size]


def _places(key: str) -> list[tuple[int, str]]:
    """The pieces of a composition, each with the number of its table."""
    return list(enumerate(key.split("/")))


def _write(program: str, bits: Mapping[str, str]) -> str:
    text = fill(program, {**_NAMES, **bits})
    imports = "".join(f"import {module}\n" for module in _MODULES if f"{module}." in text)
    if not imports:
        return text
    return imports + ("\n\n" if text.startswith(("def ", "class ")) else "\n") + text
