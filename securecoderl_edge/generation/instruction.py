"""What an instruction for an edit has about the definitions of a file: which it names, and which it removes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from securecoderl_edge.generation.statements import Statement

_VERB = r"remove|delete|drop|inline|rename"
# Behind a name it ends what is removed: "Remove `f()` from the file", not "Remove `f()` calls".
_END = (
    r"(?=\s*(?:[.,;:!)]|$|and\b|then\b|but\b|"
    r"(?:from|in|of)\s+(?:the\s+)?(?:file|module|class|code)\b|(?:in)?to\s+`?[A-Za-z_]))"
)
_KIND = (
    r"(?:the\s+)?(?:(?:unused|old|dead|deprecated|helper|nested)\s+)*(?:functions?|methods?|class(?:es)?|constants?)\s+"
)
_CODE = r"(?:the\s+)?(?:`[\w.]+(?:\(\))?`|[\w.]*\w\(\))"
_ITEM = rf"(?:{_KIND}(?:{_CODE}|\w[\w.]*)|{_CODE})"
_JOINT = r"\s*(?:,\s*and|,|and)\s+"
_REMOVAL = re.compile(rf"\b(?i:{_VERB})\s+(?P<items>{_ITEM}(?:{_JOINT}{_ITEM})*){_END}")
_RENAMING = re.compile(r"\b(?i:rename)\s+`?(?P<items>[\w.]*\w)(?:\(\))?`?\s+(?:in)?to\s+`?(?P<new>\w+)")
_SENTENCE = re.compile(r"[.;!?](?:\s|$)|\n\s*\n")
# The verb begins a clause that asks for something: "Let f purge and drop the class X" describes what f is to do.
_BEGINS = re.compile(r"(?:^|[,:]|\b(?:and|then|please|also))\s*$", re.I)
_NOT = re.compile(r"\b(?:not|never|no|without|keep|avoid|instead|nor|cannot)\b|n['’]t\b", re.I)
_ABOUT_OTHERS = re.compile(r"\b(?:let|make|have|must|should|can|may|will|shall|to|when|if)\b", re.I)


def is_named(name: str, instruction: str) -> bool:
    """Whether an instruction has the name of a function, class or method, or of its class, as a word."""
    return any(re.search(rf"\b{re.escape(part)}\b", instruction) for part in name.split("."))


def is_removed(name: str, instruction: str) -> bool:
    """Whether the instruction asks to remove or rename a definition, or its class.

    It does if the name stands right behind the verb, as code or behind its kind, in a clause that asks for that and
    denies nothing: "Remove `f`", "Delete f() and the unused function g" and "Rename f to g", but not "Remove f",
    "Remove `f` calls", "Do not remove `f`" or "Let g drop `f`".
    """
    parts = name.split(".")
    prefixes = {".".join(parts[: end + 1]) for end in range(len(parts))} | {parts[-1]}
    return bool(prefixes & _removed(instruction).keys())


def new_name(name: str, instruction: str) -> str:
    """What the instruction renames it to; else empty."""
    return _removed(instruction).get(name) or _removed(instruction).get(name.rpartition(".")[2], "")


def as_renamed(unit: Statement, body: Iterable[Statement], theirs: Iterable[Statement], instruction: str) -> Statement:
    """A unit of an answer; a new one with the key of the one that the instruction renames to it, whose place it takes.

    Args:
        body: the statements of the file around it. theirs: of the answer.
    """
    name = unit.key.partition("@")[0].strip("=")
    old = {new: each.rpartition(".")[2] for each, new in _removed(instruction).items() if new}.get(name)
    if not old:
        return unit
    mine, others = ({each.key for each in units} for units in (body, theirs))
    key = unit.key.replace(name, old, 1)
    return replace(unit, key=key) if key in mine - others and unit.key not in mine else unit


def asks_to_remove(pattern: str, instruction: str) -> bool:
    """Whether the instruction asks to remove something that is no definition; denials count as no."""
    found = re.search(rf"\b(?:remove|delete|drop|omit|without|no longer)\b[^.;]*\b(?:{pattern})", instruction, re.I)
    return found is not None and not re.search(r"\b(?:not|never|keep)\b|n['’]t\b", instruction[: found.end()], re.I)


@lru_cache(maxsize=1)  # each statement of a file asks for them
def _removed(instruction: str) -> dict[str, str]:
    """The names that are removed, each with what it is renamed to."""
    found: dict[str, str] = {}
    for sentence in _SENTENCE.split(instruction):
        for match in [*_REMOVAL.finditer(sentence), *_RENAMING.finditer(sentence)]:
            before = sentence[: match.start()]
            describes = _ABOUT_OTHERS.search(before) and not before.rstrip().endswith((", and", ", then"))
            if not _BEGINS.search(before) or _NOT.search(before) or describes:
                continue
            new = match.groupdict().get("new") or ""
            for item in re.split(_JOINT, match["items"]):
                found[re.findall(r"[\w.]*\w", item)[-1]] = new or found.get(item, "")
    return found
