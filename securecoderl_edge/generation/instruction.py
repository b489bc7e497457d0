"""What an instruction for an edit has about the definitions of a file: which it names, and which it removes."""

from __future__ import annotations

import re
from collections.abc import Sequence


def is_named(name: str, instruction: str) -> bool:
    """Whether an instruction has the name of a function, class or method, or of its class, as a word."""
    return any(re.search(rf"\b{re.escape(part)}\b", instruction) for part in name.split("."))


def is_removed(name: str, instruction: str, known: Sequence[str]) -> bool:
    """Whether the instruction asks to remove or rename it, or its class.

    "Remove f and the unused function g" does, but not "Remove the call of g", "Remove g from the output" or "Remove the
    check and log it".

    Args:
        known: the names that the file defines.
    """
    names = "|".join({re.escape(part) for each in known for part in each.split(".")})
    kinds = r"(?:the\s+)?(?:(?:unused|old|dead|deprecated|helper|functions?|methods?|class(?:es)?)\s+){0,3}`?(?:\w+\.)?"
    earlier = rf"(?:{kinds}(?:{names})(?:\(\))?`?\s*(?:,\s*and\b|,|and\b)\s*)*"
    elsewhere = rf"(?!['’]s|\s+(?:from|in|of)\s+(?!(?:the\s+)?(?:file|module|class|code|{names})\b))"
    verb = r"\b(?:remove|delete|drop|rename|inline)\s+"
    parts = map(re.escape, name.split("."))
    return any(re.search(rf"{verb}{earlier}{kinds}{part}\b(?:\(\))?`?{elsewhere}", instruction, re.I) for part in parts)
