"""The thoughts that some models write before they answer, between tags such as ``<think>`` and ``</think>``."""

from __future__ import annotations

import re
from collections.abc import Callable

from securecoderl_edge.prompts.source_lines import source_lines

_NAMES = ("think", "thinking", "thought", "reasoning")
_PAIRS = (
    *((f"<{name}>", f"</{name}>") for name in _NAMES),
    ("[THINK]", "[/THINK]"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>"),
)
# Ends that may follow code; before special tokens the turn ends.
CLOSINGS = "\n".join(closing for _, closing in _PAIRS if "|" not in closing)
_OPENING, _CLOSING = ("|".join(map(re.escape, tags)) for tags in zip(*_PAIRS, strict=True))
_FIRST = re.compile(rf"\s*(?:({_OPENING})\s*)+", re.IGNORECASE)
_LATER = re.compile(rf"[ \t]*({_OPENING})", re.IGNORECASE)
_ANY = re.compile(_OPENING, re.IGNORECASE)
_END = re.compile(_CLOSING, re.IGNORECASE)
# The mark of a thought within a thought, in group 1, or the end of one.
_MARKS = {
    opening.lower(): re.compile(rf"^[ \t]*({re.escape(opening)})|{re.escape(closing)}", re.IGNORECASE | re.MULTILINE)
    for opening, closing in _PAIRS
}
_SECOND_END = re.compile(rf"(?:\s*\n)?[^\n\"'`]*?(?:{_CLOSING})", re.IGNORECASE)


def open_thought(prompt: str) -> str:
    """The tag that ends the thought with whose beginning a prompt ends; empty if it does not."""
    end = prompt.rstrip().lower()
    return next((closing for opening, closing in _PAIRS if end.endswith(opening.lower())), "")


def without_thoughts(text: str, is_open: bool = False) -> str:
    """An answer without the thoughts at its beginning; empty if one is unfinished.

    Args:
        is_open: whether the text begins within a thought.
    """
    start = 0
    while (opened := _FIRST.match(text, start)) or is_open:
        start, is_open = _end_of_thought(text, start, opened), False
    return text[start:]


def without_later_thoughts(text: str, language: str) -> str:
    """An answer without the thoughts that begin a line in it, outside of strings."""
    if _ANY.search(text) is None:
        return text
    kept, start = [], 0
    while start < len(text):
        lines = source_lines(text, start, language)
        opened = next((found for line in lines if (found := _LATER.match(text, line.start))), None)
        kept.append(text[start : opened.start() if opened else len(text)])
        start = _end_of_thought(text, opened.end(), None) if opened else len(text)
    return "".join(kept)


def _end_of_thought(text: str, start: int, opened: re.Match[str] | None) -> int:
    """Where a thought ends that this tag opens, or that is open at ``start``; the end of the text if it goes on."""
    depth, marks = 1, _MARKS[opened[1].lower()] if opened else _END
    for mark in marks.finditer(text, opened.end() if opened else start):
        depth += 1 if mark.lastindex else -1
        if depth == 0:
            second = _SECOND_END.match(text, mark.end())
            return second.end() if second else mark.end()
    return len(text)


def thought_tokens(id_of: Callable[[str], int | None], decode: Callable[[list[int]], str]) -> dict[int, str]:
    """The tags that decoding leaves out, by their ids: special tokens in some tokenizers.

    Args:
        id_of: the id of a token by its text, if there is one.
        decode: decodes ids without special tokens.
    """
    found = {id_of(tag): tag for pair in _PAIRS for tag in pair}
    return {token: tag for token, tag in found.items() if token is not None and decode([token]) == ""}
