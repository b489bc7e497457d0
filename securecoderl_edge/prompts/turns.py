"""The special tokens around an answer, where they were decoded as text: headers of roles, and ends of turns."""

from __future__ import annotations

import re

from securecoderl_edge.prompts.source_lines import lexemes

# The last one may be truncated.
_TOKEN = r"(?:<\|[\w▁]+\|>|<｜[\w▁]+｜>|</?s>|<(?:end|start)_of_turn>|<eos>|<bos>|<pad>|<unk>|<file_sep>|\[/?INST\])"
_OF_THOUGHT = r"<\|(?:channel\|>analysis|begin_of_thought\|>)"
_NAMED = r"(?:assistant|model|final)(?=<[|｜])"  # a role or channel between two tokens
_HEADER = re.compile(rf"(?:\s*(?!{_OF_THOUGHT}){_TOKEN}(?:{_NAMED})?)+(?=[\s\w`~#@\"'(<]|\Z)")
_ROLE = re.compile(r"(?:assistant|model)\s*\n", re.IGNORECASE)
_LAST_TOKEN = re.compile(rf"{_TOKEN}[ \t]*$|<[|｜][\w▁]*[|｜]?\Z", re.MULTILINE)
_WITHIN_LINE = re.compile(r"<\|[\w▁]+\|>|<｜[\w▁]+｜>|<(?:end|start)_of_turn>|<eos>|</s>|<unk>|<file_sep>")


def without_header(text: str) -> str:
    """A text without the tokens and the role at its beginning."""
    text = text[found.end() :] if (found := _HEADER.match(text)) else text
    return text[found.end() :] if (found := _ROLE.match(text)) else text


def end_of_turn(text: str, language: str) -> int:
    """The offset of the first special token at the end of a line, or anywhere outside of strings and comments."""
    last = _LAST_TOKEN.search(text)
    end = last.start() if last else len(text)
    if _WITHIN_LINE.search(text, 0, end) is None:
        return end
    between = 0
    for _, begin, after in lexemes(text, 0, language):
        if token := _WITHIN_LINE.search(text, between, min(begin, end)):
            return token.start()
        between = after
    token = _WITHIN_LINE.search(text, between, end)
    return token.start() if token else end
