"""Duplicates among problems: equal normalized statements, and similar sets of word pairs.

Two problems are *near-duplicates* if the Jaccard similarity of their sets of word pairs is at least `SIMILARITY`.
MinHash (Broder, "On the resemblance and containment of documents", 1997) with locality-sensitive hashing only proposes
pairs; each is then compared exactly, so the result does not depend on hash functions, machines or versions. A pair at
the threshold is missed with probability 2e-6.

Does not detect the same task in entirely different words or in another language.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from securecoderl_edge.errors import needs
from securecoderl_edge.problems.problem import Problem

SIMILARITY = 0.5
# A pair at the threshold shares all three hashes of some band with probability 1 - (1 - 0.5^3)^100.
_BANDS, _ROWS = 100, 3

# Scripts without spaces between words: each character counts as one.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
_NUMBER = re.compile(r"\d+")
# Text that importers append to a statement, or use in its place; it is the same for every problem.
_TASK = re.compile(
    r"\n\nWrite the (?:function `[^`\n]+`|class `Solution` with the method `[^`\n]+`)\.(?: For example:\n.*)?\Z"
    r"|\AComplete the function `[^`\n]+` of the given code, and write the whole program\.\Z",
    re.DOTALL,
)


def normalized_words(problem: Problem) -> list[str]:
    """The words of statement and given code: case, punctuation, numbers and typography do not count."""
    text = f"{_TASK.sub('', problem.statement)}\n{problem.starter_code}"
    text = unicodedata.normalize("NFKC", text).casefold()
    return _WORD.findall(_NUMBER.sub("0", text))


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


def similar_pairs(problems: Sequence[Problem]) -> Iterator[tuple[int, int, float]]:
    """Yield ``(earlier, later, Jaccard similarity)`` for every two near-duplicates, by position.

    Raises:
        MissingExtra: datasketch is not installed.
    """
    index = _Index()
    for place, problem in enumerate(problems):
        pairs = word_pairs(problem)
        for earlier, likeness in index.similar_to(pairs):
            yield earlier, place, likeness
        index.add(place, pairs)


def pairs_between(first: Sequence[Problem], second: Sequence[Problem]) -> Iterator[tuple[int, int, float]]:
    """Yield ``(place in first, place in second, similarity)`` for near-duplicates of two lists; errors as above."""
    index = _Index()
    for place, problem in enumerate(second):
        index.add(place, word_pairs(problem))
    for place, problem in enumerate(first):
        for other, likeness in index.similar_to(word_pairs(problem)):
            yield place, other, likeness


def without_near_duplicates(problems: Sequence[Problem], others: Sequence[Problem]) -> list[Problem]:
    """The problems that are no near-duplicate of one of the others; compares every pair, and needs no datasketch."""
    known = [word_pairs(problem) for problem in others]

    def is_new(problem: Problem) -> bool:
        pairs = word_pairs(problem)
        return all(jaccard(pairs, each) < SIMILARITY for each in known)

    return list(filter(is_new, problems))


def clusters(problems: Sequence[Problem]) -> list[list[int]]:
    """Group positions: near-duplicates, near-duplicates of those, and problems with the same `Problem.group` are
    together; in order of the first member.

    Errors as in `similar_pairs`.
    """
    parent = list(range(len(problems)))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    first_of: dict[str, int] = {}
    of_group = [
        (first_of.setdefault(problem.group, place), place) for place, problem in enumerate(problems) if problem.group
    ]
    near = ((first, second) for first, second, _ in similar_pairs(problems))
    for first, second in itertools.chain(of_group, near):
        low, high = sorted((root(first), root(second)))
        parent[high] = low
    groups: dict[int, list[int]] = {}
    for place in range(len(problems)):
        groups.setdefault(root(place), []).append(place)
    return list(groups.values())


class _Index:
    """Sets of word pairs, searched by similarity."""

    def __init__(self) -> None:
        with needs("datasketch", "split"):
            from datasketch import MinHash, MinHashLSH
        self._sets: dict[int, frozenset[str]] = {}
        self._empty = MinHash(num_perm=_BANDS * _ROWS, seed=1)
        self._bands: Any = MinHashLSH(num_perm=_BANDS * _ROWS, params=(_BANDS, _ROWS))

    def add(self, place: int, pairs: frozenset[str]) -> None:
        self._sets[place] = pairs
        self._bands.insert(place, self._min_hash(pairs))

    def similar_to(self, pairs: frozenset[str]) -> list[tuple[int, float]]:
        candidates = self._bands.query(self._min_hash(pairs))
        compared = ((place, jaccard(pairs, self._sets[place])) for place in candidates)
        return sorted((place, likeness) for place, likeness in compared if likeness >= SIMILARITY)

    def _min_hash(self, pairs: frozenset[str]) -> Any:
        hashed = self._empty.copy()
        hashed.update_batch([pair.encode("utf-8", "surrogatepass") for pair in sorted(pairs)])
        return hashed
