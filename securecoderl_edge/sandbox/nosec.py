"""Comments ``# nosec``, and the checks that they silence.

As Bandit reads them, except that ids may have commas alone between them, that an id of no check silences nothing
instead of all, and that a longer word, such as ``# nosecrets``, is another comment.

This file is loaded by path in a process without the package, so it imports the standard library and Bandit only.
"""

from __future__ import annotations

import io
import re
import tokenize

_COMMENT = re.compile(r"#\s*nosec\b([^#]*)")
_ID = re.compile(r"B\d+", re.IGNORECASE)


def silenced_by_line(data: bytes) -> dict[int, set[str]]:
    """By line the ids of the checks that its comment silences, none for all."""
    lines: dict[int, set[str]] = {}
    try:
        for token in tokenize.tokenize(io.BytesIO(data).readline):
            found = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
            words = re.findall(r"\w+", found[1]) if found else []
            ids = set(filter(None, map(_id_of, words)))
            if found and (ids or not any(map(_ID.fullmatch, words))):
                lines[token.start[0]] = ids
    except tokenize.TokenError:
        pass
    return lines


def _id_of(word: str) -> str | None:
    """The id of the check that a word names, if it does."""
    from bandit.core import extension_loader

    manager = extension_loader.MANAGER
    found: str | None = word.upper() if manager.check_id(word.upper()) else manager.get_test_id(word)
    return found
