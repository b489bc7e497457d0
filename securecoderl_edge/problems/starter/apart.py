"""Keeps training problems apart from evaluation problems: neither near-duplicates nor the same solution."""

from __future__ import annotations

import math
from collections.abc import Sequence

from securecoderl_edge.problems.near_duplicates import SIMILARITY, jaccard, word_pairs
from securecoderl_edge.problems.problem import Problem


class Apart:
    """Tells whether a problem may be trained on, given the problems for evaluation. Exact, without hashing."""

    def __init__(self, evaluation: Sequence[Problem]) -> None:
        self._pairs = [word_pairs(problem) for problem in evaluation]
        self._solutions = {program for problem in evaluation for program in problem.solutions}
        self._places: dict[str, list[int]] = {}
        for place, pairs in enumerate(self._pairs):
            for pair in pairs:
                self._places.setdefault(pair, []).append(place)

    def allows(self, problem: Problem) -> bool:
        """Whether it is no near-duplicate of a problem for evaluation and has none of their solutions."""
        return self._solutions.isdisjoint(problem.solutions) and not self._is_near(word_pairs(problem))

    def _is_near(self, pairs: frozenset[str]) -> bool:
        # A near-duplicate shares so many of the pairs that it has one of any larger number than it may lack.
        lacked = len(pairs) - math.ceil(SIMILARITY * len(pairs))
        rarest = sorted(pairs, key=lambda pair: (len(self._places.get(pair, ())), pair))[: lacked + 1]
        places = set().union(*(self._places.get(pair, ()) for pair in rarest))
        return any(jaccard(pairs, self._pairs[place]) >= SIMILARITY for place in places)
