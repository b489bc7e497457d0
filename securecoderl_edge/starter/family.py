"""What a family of starter problems is: the contract between the generator and the files in `families/`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Draft:
    """One concrete problem before its tests are drawn.

    Attributes:
        task: the statement without its example: what to read, what to print. One to four plain sentences.
        draw_input: draws one stdin text (ending in a newline) from a random generator; small, valid, varied.
        solutions: at least two Python programs in different styles that print the same for every drawn input. In a
            security family the first is the short unsafe one and the second its clean counterpart.
    """

    task: str
    draw_input: Callable[[random.Random], str]
    solutions: tuple[str, ...]


@dataclass(frozen=True)
class Family:
    """A kind of problem with many compositions.

    Attributes:
        name: unique, lower case with hyphens.
        compositions: one key for each way of combining the family's pieces, such as ``"line/even/square/sum"``. The key
            decides the split, so two keys must never mean the same problem.
        draft: builds the problem of one composition; the random generator chooses wording, names and styles only,
            never the meaning.
    """

    name: str
    compositions: tuple[str, ...]
    draft: Callable[[str, random.Random], Draft]
