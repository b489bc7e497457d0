"""What the families about text share: pieces of code with their wordings, and the products of such pieces."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from fnmatch import fnmatch
from itertools import product
from random import Random
from typing import NamedTuple


class Piece(NamedTuple):
    """One way to fill a slot of a family: an expression on ``@``, with wordings of one meaning."""

    code: str
    texts: tuple[str, ...]

    def on(self, variable: str) -> str:
        """The expression applied to a variable."""
        return self.code.replace("@", variable)

    def say(self, rng: Random) -> str:
        return rng.choice(self.texts)


def keys(*slots: Iterable[str], drop: tuple[str, ...] = (), size: int = 0) -> tuple[str, ...]:
    """The product of the slots' keys as ``a/b/c``.

    Args:
        drop: shell patterns of combinations that mean nothing new.
        size: when positive, keep at most this many, chosen by hash so that every piece stays in many.
    """
    every = ["/".join(parts) for parts in product(*slots)]
    kept = [key for key in every if not any(fnmatch(key, pattern) for pattern in drop)]
    if size:
        chosen = set(sorted(kept, key=lambda key: hashlib.sha256(key.encode()).digest())[:size])
        kept = [key for key in kept if key in chosen]
    return tuple(kept)


def program(*lines: str) -> str:
    """Source text from its lines; a line may itself hold several, and ``""`` is a blank one."""
    return "\n".join(lines) + "\n"


def indented(*lines: str, by: int = 1) -> str:
    """Lines moved right by a number of levels."""
    return "\n".join("    " * by + line for line in lines)
