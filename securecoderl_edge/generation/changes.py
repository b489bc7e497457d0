"""Changes of the lines of a file, collected and then made: all other lines stay byte for byte.

Line ranges of `ast` suffice for this, so no library that keeps the whole syntax (libcst) is needed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from securecoderl_edge.generation.losses import NoEdit
from securecoderl_edge.generation.statements import Statement, lines_in_strings, lines_of, newline_of

_TAB = 4  # spaces


class Changes:
    """The lines of a file and of an answer, and what is to change.

    Attributes:
        lines: of the file, with their ends. theirs: of the answer, without.
        new: the lines that were put so far.
    """

    def __init__(self, original: str, answer: str) -> None:
        self.lines, self.theirs = lines_of(original), answer.split("\n")
        self.new: list[str] = []
        self._newline = newline_of(original)
        blocks = [found[1] for found in re.finditer(r":[ \t]*(?:#.*)?(?:\r\n?|\n)([ \t])", original)]
        self._indents_by = max(" \t", key=blocks.count) if blocks else ""
        # (first line, line behind the last, new lines), in the order in which they were found.
        self._changes: list[tuple[int, int, list[str]]] = []

    def __bool__(self) -> bool:
        return bool(self._changes)

    def put(self, start: int, end: int, lines: Sequence[str]) -> None:
        """Replace lines of the file."""
        self._changes.append((start, end, list(lines)))
        self.new += lines

    def put_first(self, line: int, lines: Sequence[str]) -> None:
        """Insert lines, before all others that are inserted there."""
        self._changes.insert(0, (line, line, list(lines)))

    def remove(self, start: int, end: int) -> None:
        """Remove lines of the file, with the blank ones behind them; at its end, with those before them."""
        while end < len(self.lines) and not self.lines[end].strip():
            end += 1
        while end == len(self.lines) and start and not self.lines[start - 1].strip():
            start -= 1
        self.put(start, end, [])

    def replace(self, start: int, end: int) -> bool:
        """Whether they replace any of these lines of the file."""
        return any(first < end and start < last for first, last, _ in self._changes)

    def indent_at(self, line: int) -> str:
        """The indentation of a line of the file."""
        return _indent(self.lines[line])

    def taken(self, unit: Statement, start: int, indent: str) -> list[str]:
        """The lines of a unit of the answer from ``start`` with another indentation; text within strings keeps its."""
        old = _indent(self.theirs[unit.node.lineno - 1])
        inside = lines_in_strings(unit.node)
        lines = []
        for number, line in enumerate(self.theirs[start : unit.end], start + 1):
            is_kept = number in inside or not line.strip()
            lines.append(line if is_kept else indent + self._indented_alike(line.removeprefix(old)))
        return lines

    def made(self) -> str:
        """The text with all changes.

        Raises:
            NoEdit: two of them are about the same lines.
        """
        lines = list(self.lines)
        ends_open = bool(lines) and not lines[-1].endswith(("\n", "\r"))
        if ends_open:
            lines[-1] += self._newline
        # From the bottom, so that earlier lines keep their numbers; of the same line the later change first.
        changes = self._changes[::-1]
        changes.sort(key=lambda change: change[:2], reverse=True)
        if any(before[1] > after[0] for after, before in pairwise(changes)):
            raise NoEdit("the answer has two versions of the same code")
        for start, end, new in changes:
            near = lines[start] if start < end else lines[start - 1] if start else ""
            newline = newline_of(near) if near else self._newline
            page = "\f" if start < end and new and near.startswith("\f") else ""
            lines[start:end] = [f"{page if not number else ''}{line}{newline}" for number, line in enumerate(new)]
        text = "".join(lines)
        return text.removesuffix(newline_of(lines[-1])) if ends_open and lines else text

    def _indented_alike(self, line: str) -> str:
        """A line with tabs or with spaces, as the file has."""
        indent = _indent(line)
        width = len(indent.expandtabs(_TAB))
        if not self._indents_by:
            return line
        tabs = width // _TAB if self._indents_by == "\t" else 0
        return "\t" * tabs + " " * (width - tabs * _TAB) + line[len(indent) :]


def _indent(line: str) -> str:
    found = re.match(r"\f?([ \t]*)", line)
    return found[1] if found else ""
