"""Keeps training problems apart from evaluation problems: neither near-duplicates nor the same solution."""

from __future__ import annotations

from collections.abc import Sequence

from securecoderl_edge.problems.near_duplicates import SimilarSets, word_pairs
from securecoderl_edge.problems.problem import Problem


class Apart:
    """Tells whether a problem may be trained on, given the problems for evaluation."""

    def __init__(self, evaluation: Sequence[Problem]) -> None:
        self._statements = SimilarSets(map(word_pairs, evaluation))
        self._solutions = {program for problem in evaluation for program in problem.solutions}

    def allows(self, problem: Problem) -> bool:
        """Whether it is no near-duplicate of a problem for evaluation and has none of their solutions."""
        is_near = bool(self._statements.similar_to(word_pairs(problem)))
        return self._solutions.isdisjoint(problem.solutions) and not is_near
