"""The thoughts that some models write before they answer, between tags such as ``<think>`` and ``</think>``."""

from __future__ import annotations

import re
from collections.abc import Callable

_NAMES = ("think", "thinking", "thought", "reasoning")
_PAIRS = (*((f"<{name}>", f"</{name}>") for name in _NAMES), ("[THINK]", "[/THINK]"))
_CLOSING = re.compile("|".join(re.escape(closing) for _, closing in _PAIRS))


def open_thought(prompt: str) -> str:
    """The tag that ends the thought with whose beginning a prompt ends; empty if it does not."""
    end = prompt.rstrip()
    return next((closing for opening, closing in _PAIRS if end.endswith(opening)), "")


def without_thought(text: str, is_open: bool = False) -> str:
    """An answer without the thought at its beginning; empty if that is unfinished.

    Args:
        is_open: whether the text begins within a thought.
    """
    start = text.lstrip()
    for opening, closing in _PAIRS:
        if start.startswith(opening):
            return start.partition(closing)[2]
    if not is_open:
        return text
    end = _CLOSING.search(text)
    return text[end.end() :] if end else ""


def thought_tokens(id_of: Callable[[str], int | None], decode: Callable[[list[int]], str]) -> dict[int, str]:
    """The tags that decoding leaves out, by their ids: special tokens in some tokenizers.

    Args:
        id_of: the id of a token by its text, if there is one.
        decode: decodes ids without special tokens.
    """
    found = {id_of(tag): tag for pair in _PAIRS for tag in pair}
    return {token: tag for token, tag in found.items() if token is not None and decode([token]) == ""}
