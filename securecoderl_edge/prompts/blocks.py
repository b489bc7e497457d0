"""Fenced blocks of code in an answer.

A block begins with three or more backticks or tildes at the start of a line or behind a sentence, and ends with as many
outside of the strings and comments of its program: fences in a docstring close nothing. A fence that is never closed
ends with the text, or where a labelled one begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from securecoderl_edge.languages.language import LANGUAGES
from securecoderl_edge.prompts.source_lines import is_unfinished_string, lexemes, line_at, source_lines

_OPENING = re.compile(r"(?P<indent>[ \t]*)(?:(?:[-*•>]|\d+[.)])[ \t]*)?(?P<mark>`{3,}|~{3,})(?P<info>.*)")
_BEHIND_TEXT = re.compile(r"(?P<mark>`{3,})(?P<info>.*)")
# A sentence may stand before a fence, text with these may not: it could be a program's.
_SIGNS_OF_CODE = re.compile(r"[\"'=(\[{]")
_LABEL = re.compile(r"[ \t]*\{?[ \t]*\.?(?P<label>[A-Za-z][\w+.#-]*)?(?P<rest>.*)")
# Blocks of which each begins behind the one before. Each costs the rest of its line, so more would take quadratic time.
_MOST_IN_A_LINE = 64
_CUT_FENCE = re.compile(r"\n[ \t]*(?:`{1,2}|~{1,2})\Z")
_LABELS = frozenset(
    (
        *("bash", "c#", "cmd", "console", "cpp", "css", "diff", "go", "html", "ini", "input", "java", "javascript"),
        *("js", "json", "kotlin", "lua", "makefile", "markdown", "math", "md", "none", "output", "perl", "php"),
        *("plain", "plaintext", "powershell", "pseudocode", "pycon", "r", "ruby", "rust", "sh", "shell", "sql"),
        *("swift", "text", "toml", "ts", "txt", "typescript", "xml", "yaml", "zsh"),
    )
).union(*(language.labels - {""} for language in LANGUAGES.values()))
_BEGINS_CODE = re.compile(
    r"\s*(?:(?:async\s+)?def\s|class\s|import\s|from\s+\S+\s+import\b|#include\b|\w[\w., ]*=|\w+\()"
)

_BEHIND_LABEL = re.compile(r"[ \t]*[\w+]+[ \t]+(?=(?:(?:async\s+)?def|class|import|from)\s+\w|#include\b)")
_QUOTED = re.compile(r">.*\n(?:[ \t]*>.*\n?)+")
_QUOTE = re.compile(r"^[ \t]*> ?", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes:
        label: in lower case; empty without one.
        program: its lines without the indentation of the fence.
        start, end: offsets of the block with its fences.
        is_closed: whether it has its end.
    """

    label: str
    program: str
    start: int
    end: int
    is_closed: bool


def find_blocks(text: str, language: str) -> list[Block]:
    """The blocks of a text in order; those within one of Markdown, or a quotation, have the place of the whole."""
    found: list[Block] = []
    for block in _blocks(text, language):
        found += _within(block, text, language) or [block]
    return found


def _blocks(text: str, language: str) -> Iterator[Block]:
    end = count = 0
    while (opened := _next(text, end, language)) is not None:
        count = count + 1 if text.find("\n", end, opened.start) < 0 else 1
        end = opened.end
        yield opened
        if count >= _MOST_IN_A_LINE:
            end = line_end if (line_end := text.find("\n", end)) >= 0 else len(text)


def _within(block: Block, text: str, language: str) -> list[Block]:
    if block.label in ("markdown", "md"):
        inner = block.program
    elif text.startswith(">", block.start):
        inner = _QUOTE.sub("", text[block.start : block.end])
    else:
        return []
    return [replace(each, start=block.start, end=block.end) for each in _blocks(inner, language)]


def begins_block(line: str) -> bool:
    """Whether a line opens a block, alone, as an item of a list or behind words."""
    before, backticks, _ = line.partition("```")
    is_behind = backticks and before.endswith((" ", ":")) and not _SIGNS_OF_CODE.search(before)
    return _OPENING.match(line) is not None or bool(is_behind and not before[0].isspace())


def _next(text: str, start: int, language: str) -> Block | None:
    for line in source_lines(text, start, language):
        fence = _OPENING.match(text, line.start)
        if fence is None and line.is_statement:
            before, backticks, _ = line_at(text, line.start).partition("```")
            if backticks and not _SIGNS_OF_CODE.search(before):
                fence = _BEHIND_TEXT.match(text, line.start + len(before))
        opened = fence and _opened(text, fence, language)
        if opened is not None:
            return opened
    return None


def _opened(text: str, fence: re.Match[str], language: str) -> Block | None:
    """The block that a fence opens; None for backticks around words in a sentence."""
    mark, info = fence["mark"], fence["info"]
    name, is_label = _label(info)
    if mark in info:  # the whole block on one line
        start = fence.start("info") + (_LABEL.match(info).end("label") if is_label else 0)  # type: ignore[union-attr]
        close = text.index(mark, start)
        return Block(name, text[start:close].strip(), fence.start(), close + len(mark), True)
    if text.startswith(">", fence.start()) and (quoted := _QUOTED.match(text, fence.start())):
        return Block(name, "", fence.start(), quoted.end(), True)  # see `_within`
    indent = fence.groupdict().get("indent") or ""
    behind = _BEHIND_LABEL.match(info) if is_label else None
    if behind is not None:
        return _block(text, fence.start(), fence.start("info") + behind.end(), indent, mark, name, language)
    if not is_label and _BEGINS_CODE.match(info):
        return _block(text, fence.start(), fence.start("info"), indent, mark, "", language)
    if info.strip() and not is_label and "indent" not in fence.groupdict():
        return None
    return _block(text, fence.start(), min(fence.end() + 1, len(text)), indent, mark, name, language)


def _label(info: str) -> tuple[str, bool]:
    """The label behind a fence in lower case, and whether there is one: a known name, or a word by itself."""
    found = _LABEL.match(info)
    name = found["label"] if found else None
    if not found or not name:
        return "", False
    is_label = name.lower() in _LABELS or not (found["rest"].strip(" \t\r}") or _BEGINS_CODE.match(info))
    return (name.lower() if is_label else ""), is_label


def _block(text: str, opening: int, start: int, indent: str, mark: str, label: str, language: str) -> Block:
    """The block whose program begins at ``start``."""
    is_program = not label or label in LANGUAGES[language].labels
    fence = _fence_by_syntax(text, start, mark, language) if is_program and mark[0] == "`" else None
    if fence is None:
        fence = re.compile(rf"^[ \t]*{re.escape(mark[0])}{{{len(mark)},}}|\Z", re.MULTILINE).search(text, start)
    assert fence is not None  # the end of the text
    end, after, is_closed = fence.start(), fence.end(), bool(fence.group())
    if is_closed and not text[text.rfind("\n", 0, end) + 1 : end].strip() and _label(line_at(text, after))[1]:
        after = end  # another block begins
    program = text[start:end] if is_closed else _CUT_FENCE.sub("\n", text[start:])
    if indent:
        program = "\n".join(line.removeprefix(indent) for line in program.split("\n"))
    return Block(label, program, opening, max(after, start), is_closed)


def _fence_by_syntax(text: str, start: int, mark: str, language: str) -> re.Match[str] | None:
    """The first fence outside of strings and comments, or the end of the text; None if a string never ends."""
    for token, begin, end in lexemes(text, start, language):
        if is_unfinished_string(text, begin, end):
            return None
        if token.startswith(mark):
            return re.compile(r"[ \t]*`+").match(text, _start_of_fence(text, start, begin))
    return re.compile(r"\Z").search(text, start)


def _start_of_fence(text: str, start: int, fence: int) -> int:
    """Where the white space before a fence begins, if nothing else is before it in its line."""
    line = max(text.rfind("\n", 0, fence) + 1, start)
    return fence if text[line:fence].strip() else line
