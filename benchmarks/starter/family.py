"""Families of starter problems: the contract between the generator and the files in `families/`."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

HELD_OUT_PERCENT = 15
Judged = Literal["marker", "unsafe"]
MARKER = "OWNED"
# Python that writes the marker and does not contain it. It has no space, no built-in name and one kind of quote, so
# that it works without those, and does not write by `sys.stdout`, which a program can replace.
_WRITES = (
    "[c.__init__.__globals__['write'](1,b'OW'b'NED')"
    "for(c)in().__class__.__base__.__subclasses__()if'_wrap_close'==c.__name__]"
)
# The same with other quotes, its names in a function of its own; and one without attributes and loops.
PAYLOADS = (_WRITES, f"(lambda:{_WRITES})()".replace("'", '"'), '(lambda:print("OW""NED"))()')


@dataclass(frozen=True)
class Attack:
    """An input against the weakness of an unsafe solution.

    Attributes:
        name, cwe: as in `SecurityTest`.
        input: stdin text.
        judged: a secure program prints anything but the `MARKER`, or anything but what the unsafe solutions print
            (``unsafe``); it may also reject the input.
        shown_by: for ``unsafe``, an input that does to the unsafe solutions what ``input`` does to other unsafe
            programs; by default the same.
        harmless: for ``unsafe``, the input as programs read it that ignore the attack: what they print is no failure.
    """

    name: str
    cwe: int
    input: str
    judged: Judged = "marker"
    shown_by: str = ""
    harmless: tuple[str, ...] = ()


DrawAttack = Callable[[random.Random], Attack]


@dataclass(frozen=True)
class Draft:
    """One concrete problem before its tests are sampled.

    Attributes:
        task: the statement without its example: what to read, what to print. One to four plain sentences.
        draw_input: samples one stdin text (ending in a newline) with a random generator; small, valid, varied.
        solutions: at least two Python programs in different styles that print the same for every sampled input. In a
            security family the first is the short unsafe one and the second its clean counterpart, and so on. A
            firmware family has one, the reference for its programs in C.
        attacks: of a security family, each draws an attack.
        c_solutions: writes programs in C of the same meaning, if there are any.
    """

    task: str
    draw_input: Callable[[random.Random], str]
    solutions: tuple[str, ...]
    attacks: tuple[DrawAttack, ...] = ()
    c_solutions: Callable[[], tuple[str, ...]] = tuple


@dataclass(frozen=True)
class Family:
    """A kind of problem with many compositions.

    Attributes:
        name: unique, lower case with hyphens.
        compositions: one key for each way of combining the family's pieces, such as ``"line/even/square/sum"``. The key
            decides the split, so two keys must never mean the same problem.
        draft: builds the problem of one composition; the random generator chooses wording, names and styles only,
            never the meaning. The last argument is the ``rarity`` of `choose_wording`.
        has_c: whether its drafts have solutions in C.
        tags: of its problems, besides its name.
    """

    name: str
    compositions: tuple[str, ...]
    draft: Callable[[str, random.Random, float], Draft]
    has_c: bool = False
    tags: tuple[str, ...] = ()


def is_held_out(family: str, composition: str) -> bool:
    """Whether a composition belongs to evaluation: a property of its name alone, the same on every machine."""
    digest = hashlib.sha256(f"{family}/{composition}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


def choose_wording(wordings: Sequence[str], rng: random.Random, rarity: float) -> str:
    """Choose one of several wordings, the most common first: the n-th is n^``rarity`` times rarer than the first.

    0 makes them equally frequent, 1 is Zipf's law.
    """
    if not rarity:
        return rng.choice(wordings)
    return rng.choices(wordings, [rank**-rarity for rank in range(1, len(wordings) + 1)])[0]
