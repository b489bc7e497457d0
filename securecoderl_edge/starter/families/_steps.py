"""Programs put together from steps: what the security families and the hard families share.

Code is `string.Template` text. ``$v`` is the list that was read, ``$w`` the list that is kept (numbers, or
pairs of name and number), ``$d`` a dictionary, ``$x``, ``$k`` and ``$n`` one item, name and number, ``$t`` a
running result.
"""

from __future__ import annotations

import itertools
import random
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from string import Template

from securecoderl_edge.starter.family import Draft, Family
from securecoderl_edge.starter.wording import ITEM_NAMES, LIST_NAMES, TOTAL_NAMES

_NAMES = {
    "v": LIST_NAMES,
    "w": ("kept", "chosen", "picked", "found", "out"),
    "x": ITEM_NAMES,
    "d": ("table", "stock", "prices", "entries", "env"),
    "k": ("name", "key", "label"),
    "n": ("amount", "number", "score", "cost"),
    "t": TOTAL_NAMES,
}
_IN_MAIN = 0.35


@dataclass(frozen=True)
class Step:
    """One thing that a program does: its wordings, and its code in several styles."""

    says: tuple[str, ...]
    code: tuple[str, ...]


def step(text: str, *says: str) -> Step:
    """A step with one piece of code."""
    return Step(says, (text,))


def code(text: str) -> str:
    """A piece of code from an indented block."""
    return textwrap.dedent(text).strip("\n")


def write(rng: random.Random, *parts: str) -> str:
    """A whole program from code pieces: imports first, names filled in, sometimes inside a function."""
    chosen = {slot: rng.choice(pool) for slot, pool in _NAMES.items()}
    lines = Template("\n".join(parts)).substitute(chosen).split("\n")
    imports = sorted({line for line in lines if line.startswith(("import ", "from "))})
    body = "\n".join(line for line in lines if line not in imports).strip("\n")
    if rng.random() < _IN_MAIN and "def " not in body:
        body = "def main():\n" + textwrap.indent(body, "    ") + "\n\n\nmain()"
    body = re.sub("\n{4,}", "\n\n\n", body)
    blank = "\n\n" if body.startswith("def ") else "\n"
    return "\n".join(imports) + ("\n" + blank if imports else "") + body + "\n"


def fill(frame: str, pieces: list[str]) -> str:
    """A frame of code with piece ``i`` put where it says ``@i``, indented as that line is."""
    lines: list[str] = []
    for line in frame.split("\n"):
        indent = line[: len(line) - len(line.lstrip())]
        for i, text in enumerate(pieces):
            line = line.replace(f"@{i}", text.replace("\n", "\n" + indent))
        lines.append(line)
    return "\n".join(lines)


def framed_family(
    name: str,
    draw: Callable[[random.Random], str],
    intro: tuple[str, ...],
    frames: tuple[str, ...],
    *tables: Mapping[str, Step],
    without: tuple[str, ...] = (),
) -> Family:
    """The family of all combinations of one step of each table; each frame is one style of program.

    Compositions that end in one of ``without`` are left out: there an earlier step would have no effect.
    """

    def draft(composition: str, rng: random.Random) -> Draft:
        steps = [table[key] for table, key in zip(tables, composition.split("/"), strict=True)]
        task = " ".join([rng.choice(intro), *(rng.choice(step.says) for step in steps)])
        pieces = [[rng.choice(step.code) for step in steps] for _ in frames]
        programs = [write(rng, fill(frame, filled)) for frame, filled in zip(frames, pieces, strict=True)]
        return Draft(task, draw, tuple(programs))

    keys = ("/".join(parts) for parts in itertools.product(*tables))
    return Family(name, tuple(key for key in keys if not key.endswith(without)), draft)
