"""Programs put together from steps: what the security families share.

Code is `string.Template` text. ``$v`` is the list that was read, ``$w`` the list that is kept (numbers, or
pairs of name and number), ``$d`` a dictionary, ``$x``, ``$k`` and ``$n`` one item, name and number, ``$t`` a
running result.
"""

from __future__ import annotations

import random
import re
import textwrap
from dataclasses import dataclass
from string import Template

_NAMES = {
    "v": "values",
    "w": "found",
    "x": "x",
    "d": "table",
    "k": "name",
    "n": "amount",
    "t": "total",
}
_IN_MAIN = 0.35


@dataclass(frozen=True)
class Step:
    """One thing that a program does: its wordings, and its code in several styles."""

    says: tuple[str, ...]
    code: tuple[str, ...]


def code(text: str) -> str:
    """A piece of code from an indented block."""
    return textwrap.dedent(text).strip("\n")


def write(rng: random.Random, *parts: str) -> str:
    """A whole program from code pieces: imports first, names filled in, sometimes inside a function."""
    lines = Template("\n".join(parts)).substitute(_NAMES).split("\n")
    imports = sorted({line for line in lines if line.startswith(("import ", "from "))})
    body = "\n".join(line for line in lines if line not in imports).strip("\n")
    if rng.random() < _IN_MAIN and "def " not in body:
        body = "def main():\n" + textwrap.indent(body, "    ") + "\n\n\nmain()"
    body = re.sub("\n{4,}", "\n\n\n", body)
    blank = "\n\n" if body.startswith("def ") else "\n"
    return "\n".join(imports) + ("\n" + blank if imports else "") + body + "\n"
