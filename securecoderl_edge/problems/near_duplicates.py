"""Duplicates among problems: equal normalized statements, and similar sets of word pairs.

Two problems are *near-duplicates* if the Jaccard similarity of their sets of word pairs is at least `SIMILARITY`. All
are found, by the prefix filter of Chaudhuri, Ganti and Kaushik ("A primitive operator for similarity joins", 2006), and
by the number of rare pairs that are in both, as Xiao, Wang, Lin and Yu count them ("Efficient similarity joins for near
duplicate detection", 2008).

Does not detect the same task in entirely different words or in another language.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.text import normalize

SIMILARITY = 0.5

# Scripts without spaces between words: each character counts as one.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
_NUMBER = re.compile(r"\d+")
# Text that importers append to a statement, or use in its place; it is the same for every problem.
_TASK = re.compile(
    r"\n\nWrite a program for `[^`\n]+`\. It reads its .*"
    r"|\n\nWrite the (?:function `[^`\n]+`|class `Solution` with the method `[^`\n]+`)\.(?: For example:\n.*)?\Z"
    r"|\AComplete the function `[^`\n]+` of the given code, and write the whole program\.\Z",
    re.DOTALL,
)


def without_task(statement: str) -> str:
    """A statement without what importers append to it, or use in its place: which function to write."""
    return _TASK.sub("", statement)


def normalized_words(problem: Problem) -> list[str]:
    """The words of statement and given code: case, punctuation, numbers and typography do not count."""
    text = f"{without_task(problem.statement)}\n{problem.starter_code}"
    return _WORD.findall(_NUMBER.sub("0", normalize(text, "NFKC").casefold()))


def statement_hash(problem: Problem) -> str:
    """A hash that is equal for problems with equal `normalized_words`."""
    return hashlib.sha256(" ".join(normalized_words(problem)).encode("utf-8", "surrogatepass")).hexdigest()


def word_pairs(problem: Problem) -> frozenset[str]:
    """Pairs of neighboring words; a single word counts as a pair."""
    words = normalized_words(problem)
    return frozenset(" ".join(words[start : start + 2]) for start in range(max(1, len(words) - 1)))


def jaccard(first: frozenset[str], second: frozenset[str]) -> float:
    """|A & B| / |A | B|; 0 for two empty sets."""
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared) if shared else 0.0


@dataclass
class _Rarest:
    """The rarest pairs of sets, one more of each than a similar set may lack.

    Attributes:
        share: the least share of a set that is in a similar one.
        sets: those that have a pair among their rarest.
        ends: the last of the rarest of each set, with its rank.
        rests: the number of other pairs of each set.
    """

    share: float
    sets: dict[str, list[int]] = field(default_factory=dict)
    ends: list[tuple[int, str]] = field(default_factory=list)
    rests: list[int] = field(default_factory=list)

    def of(self, ranked: Sequence[tuple[int, str]]) -> tuple[list[str], tuple[int, str], int]:
        """The rarest pairs of a set in order, the last of them, and the number of the others."""
        rarest = ranked[: len(ranked) - math.ceil(self.share * len(ranked)) + 1]
        return [pair for _, pair in rarest], rarest[-1] if rarest else (-1, ""), len(ranked) - len(rarest)

    def add(self, ranked: Sequence[tuple[int, str]]) -> None:
        """Append a set in order."""
        rarest, end, rest = self.of(ranked)
        for pair in rarest:
            self.sets.setdefault(pair, []).append(len(self.ends))
        self.ends.append(end)
        self.rests.append(rest)


class SimilarSets:
    """Sets of word pairs, searched by similarity.

    Two similar sets share one of the rarest pairs of each, of which the smaller set needs fewer. What they share behind
    the end of these, in the order of all pairs, is at most the rest of the set whose rarest pairs end first; so sets
    with a few pairs of many statements are not compared.

    Args:
        sets: sets to begin with.
        later: sets that will be added; how rare pairs are in them counts too. Whatever is added, all is found.
    """

    def __init__(self, sets: Iterable[frozenset[str]] = (), later: Iterable[frozenset[str]] = ()) -> None:
        sets = list(sets)
        counts = Counter(itertools.chain.from_iterable(itertools.chain(sets, later)))
        self._ranks = {pair: rank for rank, pair in enumerate(sorted(counts, key=counts.__getitem__))}
        self._sets: list[frozenset[str]] = []
        self._of_smaller, self._of_any = _Rarest(2 * SIMILARITY / (1 + SIMILARITY)), _Rarest(SIMILARITY)
        for pairs in sets:
            self.add(pairs)

    def add(self, pairs: frozenset[str]) -> None:
        """Append a set."""
        ranked = self._ranked(pairs)
        self._of_smaller.add(ranked)
        self._of_any.add(ranked)
        self._sets.append(pairs)

    def similar_to(self, pairs: frozenset[str]) -> list[tuple[int, float]]:
        """Index and Jaccard similarity of each set that is similar enough."""
        ranked = self._ranked(pairs)
        likely: list[int] = []
        for ours, theirs in ((self._of_any, self._of_smaller), (self._of_smaller, self._of_any)):
            rarest, end, rest = ours.of(ranked)
            shared = Counter(itertools.chain.from_iterable(theirs.sets.get(pair, ()) for pair in rarest))
            for index, count in shared.items():
                size = len(self._sets[index])
                most = count + (rest if end <= theirs.ends[index] else theirs.rests[index])
                is_smaller = size <= len(pairs)
                if is_smaller is (ours is self._of_any) and most >= SIMILARITY * (size + len(pairs) - most):
                    likely.append(index)
        compared = ((index, jaccard(pairs, self._sets[index])) for index in sorted(likely))
        return [(index, likeness) for index, likeness in compared if likeness >= SIMILARITY]

    def _ranked(self, pairs: frozenset[str]) -> list[tuple[int, str]]:
        """The pairs of a set, the rarest first; those that were not known come before."""
        return sorted((self._ranks.get(pair, -1), pair) for pair in pairs)


def similar_pairs(problems: Sequence[Problem]) -> Iterator[tuple[int, int, float]]:
    """Yield ``(earlier, later, Jaccard similarity)`` for every two near-duplicates, by position."""
    every = list(map(word_pairs, problems))
    sets = SimilarSets(later=every)
    for index, pairs in enumerate(every):
        for earlier, likeness in sets.similar_to(pairs):
            yield earlier, index, likeness
        sets.add(pairs)


def pairs_between(first: Sequence[Problem], second: Sequence[Problem]) -> Iterator[tuple[int, int, float]]:
    """Yield ``(index in first, index in second, similarity)`` for near-duplicates of two lists."""
    sets = SimilarSets(map(word_pairs, second))
    for index, problem in enumerate(first):
        for other, likeness in sets.similar_to(word_pairs(problem)):
            yield index, other, likeness


def without_near_duplicates(problems: Sequence[Problem], others: Sequence[Problem]) -> list[Problem]:
    """The problems that are no near-duplicate of one of the others."""
    sets = SimilarSets(map(word_pairs, others))
    return [problem for problem in problems if not sets.similar_to(word_pairs(problem))]


def clusters(problems: Sequence[Problem]) -> list[list[int]]:
    """Group positions: near-duplicates, near-duplicates of those, and problems with the same `Problem.group` are
    together; in order of the first member.
    """
    parent = list(range(len(problems)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first_of: dict[str, int] = {}
    of_group = [
        (first_of.setdefault(problem.group, index), index) for index, problem in enumerate(problems) if problem.group
    ]
    # Of those with the same pairs of words one is compared: all with each other would take quadratic time.
    first_with: dict[frozenset[str], int] = {}
    of_words = [(first_with.setdefault(word_pairs(problem), index), index) for index, problem in enumerate(problems)]
    found = list(first_with.values())
    near = ((found[first], found[second]) for first, second, _ in similar_pairs([problems[each] for each in found]))
    for first, second in itertools.chain(of_group, of_words, near):
        low, high = sorted((root(first), root(second)))
        parent[high] = low
    groups: dict[int, list[int]] = {}
    for index in range(len(problems)):
        groups.setdefault(root(index), []).append(index)
    return list(groups.values())
