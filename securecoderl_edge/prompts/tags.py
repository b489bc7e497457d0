"""The tags that some models put around their answer, ``<answer>`` and the like."""

from __future__ import annotations

import re

from securecoderl_edge.prompts.source_lines import has_code, source_lines

_TAGS = {f"<{name}>": f"</{name}>" for name in ("answer", "code", "solution")}
_TAGS |= {"[PYTHON]": "[/PYTHON]", "[BEGIN]": "[DONE]"}
_TAG = re.compile(rf"[ \t]*({'|'.join(map(re.escape, _TAGS))})")
_CLOSING_TAG = re.compile(rf"^(?:{'|'.join(map(re.escape, _TAGS.values()))})|(?:</answer>|\[DONE\])\s*\Z", re.MULTILINE)


def begins_with_tag(line: str) -> bool:
    """Whether a line begins with the tag of an answer."""
    return _TAG.match(line) is not None


def is_tag(line: str) -> bool:
    """Whether a line is the tag of an answer, and nothing else."""
    return _TAG.fullmatch(line.rstrip()) is not None


def without_tags(text: str, language: str, *, up_to_end: bool = False) -> str:
    """The last text with code between the tags of an answer; without tags all of it, up to a tag that ends one.

    Args:
        up_to_end: look for the tag that ends one only.
    """
    if not any(tag in text for pair in _TAGS.items() for tag in pair):
        return text
    for line in () if up_to_end else reversed(list(source_lines(text, 0, language))):
        if (opening := _TAG.match(text, line.start)) is not None:
            inside = text[opening.end() :]
            closing = inside.rfind(_TAGS[opening[1]])
            inside = inside if closing < 0 else inside[:closing]
            if has_code(inside, language):
                return inside
    end = _CLOSING_TAG.search(text)
    return text[: end.start()] if end else text
