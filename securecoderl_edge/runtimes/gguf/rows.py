"""The rows of a batch, one sequence of the context each: which are busy, and what the others keep for later prompts.

llama.cpp computes only neighboring sequences together, so busy rows are made neighbors. A free row still has the KV
cache of its last task. It is kept if that task asked for it: an editor repeats its prompt with every key, while other
requests come and go. Other tasks take kept rows last, the least recently used one first; where they need a row that
was used later, its cache moves to that one.
"""

from __future__ import annotations

from collections.abc import Sequence

from securecoderl_edge.runtimes.gguf.llama import LlamaContext

# Copying a sequence takes about as long as computing this number of tokens.
LEAST_PREFIX = 16
# A prompt replaces the cache that it shares a beginning with, if that has at most so many times its tokens; of a longer
# one it takes a copy, since the two are different texts with the same head.
_MOST_REPLACED = 10


class Rows:
    """The rows of one batch; all are free at first."""

    def __init__(self, context: LlamaContext) -> None:
        self._context = context
        self._busy: set[int] = set()
        self._kept: list[int] = []  # free rows, the least recently used first

    @property
    def free(self) -> int:
        """The number of rows that can be taken."""
        return self._context.sequences - len(self._busy)

    def longest_prefix(self, tokens: Sequence[int]) -> tuple[int | None, int]:
        """The row with the longest common prefix with ``tokens``, and its length; none if copying it gains nothing."""
        others = (row for row in range(self._context.sequences) if row not in self._kept)
        order = [*reversed(self._kept), *sorted(others, key=self._busy.__contains__)]
        row, length = self._context.longest_prefix(tokens, order)
        return (row, length) if length >= LEAST_PREFIX else (None, 0)

    def take(self, source: int | None = None, length: int = 0) -> int:
        """Make a free row busy: ``source``, if little of its cache is lost when its first ``length`` tokens are kept.

        The row still has its old cache, and so has ``source``.
        """
        near = self._near()
        is_replaced = source is not None and self._context.held(source) <= _MOST_REPLACED * length
        if source is not None and is_replaced and source in near:
            row = source
        else:
            row = min(near, key=self._rank)
            self._save(row, source)
        self._forget(row)
        if source is not None and is_replaced:
            self._forget(source)
        self._busy.add(row)
        return row

    def release(self, row: int, keeps: bool) -> None:
        """Make a row free; its cache is the most recently used one, if it is kept."""
        self._busy.remove(row)
        if keeps:
            self._kept.append(row)

    def close_gaps(self) -> list[tuple[int, int]]:
        """Make the busy rows neighbors; returns from where to where sequences have moved, in this order."""
        moves = []
        while self._busy and (gaps := set(range(min(self._busy), max(self._busy))) - self._busy):
            last, gap = max(self._busy), min(sorted(gaps), key=self._rank)
            self._save(gap)
            self._forget(gap)
            self._context.copy(last, gap, self._context.held(last))
            self._busy = self._busy - {last} | {gap}
            moves.append((last, gap))
        return moves

    def _near(self) -> list[int]:
        """The free rows between busy ones and next to them; all if none is busy."""
        every = range(self._context.sequences)
        first, last = (min(self._busy) - 1, max(self._busy) + 1) if self._busy else (every[0], every[-1])
        return [row for row in every if first <= row <= last and row not in self._busy]

    def _rank(self, row: int) -> int:
        """How late a free row is taken."""
        return self._kept.index(row) + 1 if row in self._kept else 0

    def _save(self, row: int, spared: int | None = None) -> None:
        """Move the cache of a row, if it is kept, to one that ranks lower, but not to ``spared``."""
        free = (each for each in range(self._context.sequences) if each not in {row, spared, *self._busy})
        target = min(free, key=self._rank, default=row)
        if self._rank(target) < self._rank(row):
            self._context.copy(row, target, self._context.held(row))
            self._forget(target)
            self._kept[self._kept.index(row)] = target

    def _forget(self, row: int) -> None:
        """Keep a cache no longer."""
        if row in self._kept:
            self._kept.remove(row)
