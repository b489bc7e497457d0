"""The inputs of the general families: how numbers, words and matrices are drawn, and where items come from."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

from family import Family

from families._c import NUMBERS
from families._compose import FAMILY_SIZE, Table, compose

WORDS = (
    *("apple", "river", "stone", "cloud", "tiger", "piano", "lemon", "ocean", "maple", "robot", "candle", "garden"),
    *("window", "silver", "orange", "planet", "bridge", "forest", "mirror", "pencil", "rocket", "castle", "basket"),
    *("ladder", "island", "music", "bread", "chair", "train", "cat", "dog", "sun", "moon", "map", "key", "tea"),
    *("ice", "fox", "owl", "bee", "egg", "hat", "net", "pot", "rug"),
)
Draw = Callable[[random.Random], str]


def numbers(rng: random.Random, low: int = -12, high: int = 20, sizes: tuple[int, int] = (4, 7)) -> list[int]:
    """A few integers between ``low`` and ``high``, both included."""
    return [rng.randint(low, high) for _ in range(rng.randint(*sizes))]


def words(rng: random.Random, sizes: tuple[int, int] = (4, 6)) -> list[str]:
    """A few lower-case words, now and then one twice."""
    drawn = [rng.choice(WORDS) for _ in range(rng.randint(*sizes))]
    if rng.random() < 0.3:
        drawn[-1] = drawn[0]
    return drawn


def few_words(rng: random.Random, size: int, of: int) -> list[str]:
    """``size`` words that repeat, since they are drawn from few."""
    drawn = words(rng, (of, of))
    return [rng.choice(drawn) for _ in range(size)]


def matrix_rows(rng: random.Random, height: int, width: int) -> str:
    """The rows of a matrix, one on each line."""
    return "".join(line(numbers(rng, -9, 15, (width, width))) for _ in range(height))


def matrix(rng: random.Random, heights: tuple[int, int] = (2, 4), widths: tuple[int, int] = (2, 4)) -> str:
    """The number of rows, then the rows."""
    height, width = rng.randint(*heights), rng.randint(*widths)
    return f"{height}\n" + matrix_rows(rng, height, width)


def line(items: list[int] | list[str], separator: str = " ") -> str:
    """The items on one line."""
    return separator.join(map(str, items)) + "\n"


def counted(items: list[int] | list[str]) -> str:
    """Their number, then the items, one on each line."""
    return "".join(f"{item}\n" for item in [len(items), *items])


def counted_lines(rows: list[list[int]]) -> str:
    """The number of rows, then each row on its line."""
    return f"{len(rows)}\n" + "".join(map(line, rows))


def number_line(low: int = -12, high: int = 20, sizes: tuple[int, int] = (4, 7)) -> Draw:
    """Draws one line of `numbers`."""
    return lambda rng: line(numbers(rng, low, high, sizes))


def word_line(sizes: tuple[int, int] = (4, 6)) -> Draw:
    """Draws one line of `words`."""
    return lambda rng: line(words(rng, sizes))


READ_NUMBERS = "$xs = list(map(int, input().split()))"
C_READ_NUMBERS = 'while (count < MAX && scanf("%lld", &$xs[count]) == 1)\n    count++;'
READ_WORDS = "$ws = input().split()"
READ_MATRIX = "n = int(input())\nrows = [list(map(int, input().split())) for _ in range(n)]"


class Source(NamedTuple):
    """Where items come from: sentences, code and inputs.

    ``$read`` leaves numbers in ``$xs``, words in ``$ws``, or a text of letters in ``$w``. ``$loop``, which not every
    source has, opens a loop over each ``$w`` or ``$c``. ``c_read`` is for programs in C (`_c`).
    """

    sentences: tuple[str, ...]
    read: str
    draw_input: Draw
    loop: str = ""
    c_read: str = ""


NUMBERS_ON_A_LINE = Source(
    ("Read a line of integers.", "The input is one line of integers."),
    READ_NUMBERS,
    number_line(),
    c_read=C_READ_NUMBERS,
)
MORE_NUMBERS_ON_A_LINE = NUMBERS_ON_A_LINE._replace(draw_input=number_line(sizes=(6, 9)))
WORDS_ON_A_LINE = Source(
    ("Read a line of words.", "The input is one line of words."),
    READ_WORDS,
    word_line(),
    "for $w in input().split():",
)


def compose_from(
    source: Source,
    name: str,
    tables: Mapping[str, Table],
    asks: tuple[str, ...],
    programs: tuple[str, ...],
    skip: Callable[..., bool] = lambda *choices: False,
    size: int = FAMILY_SIZE,
    c_programs: tuple[str, ...] = (),
) -> Family:
    """`compose` on the items of a source: every sentence of it is followed by each of ``asks``."""
    return compose(
        name,
        tables,
        tuple(f"{sentence} {ask}" for sentence in source.sentences for ask in asks),
        programs,
        source.draw_input,
        skip=skip,
        code={"read": source.read, "loop": source.loop, "c_read": source.c_read, "numbers": NUMBERS},
        size=size,
        c_programs=c_programs if source.c_read else (),
    )
