"""Statistics of a problem set: sizes, lengths, duplicates, and the pass rate of constant outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from securecoderl_edge.problems.leakage import constant_passes
from securecoderl_edge.problems.problem import Problem


@dataclass(frozen=True)
class Spread:
    """The distribution of a number: nearest-rank percentiles."""

    least: int
    p50: int
    p90: int
    p99: int
    most: int


@dataclass(frozen=True)
class Lengths:
    """Lengths in tokens of one model.

    Attributes:
        solutions: of the shortest solution of each problem; None without solutions.
        context: of the model. too_long: number of prompts that fill or exceed it.
    """

    style: str
    prompts: Spread
    solutions: Spread | None
    context: int | None
    too_long: int


@dataclass(frozen=True)
class Stats:
    """Statistics of one problem set.

    Attributes:
        equal_statements: problems with the same statement as an earlier one.
        near_duplicates: problems in groups of two or more near-duplicates.
        constant_share: the fraction of tests that the best constant output passes, mean over the problems.
        constant_half, constant_all: problems where it passes at least half of the tests, or all of two or more.
    """

    problems: int
    kinds: dict[str, int]
    sources: dict[str, int]
    difficulties: dict[str, int]
    tests: Spread
    solutions: Spread
    without_solution: int
    equal_statements: int
    near_duplicates: int
    groups: int
    constant_share: float
    constant_half: int
    constant_all: int
    lengths: Lengths | None = None


def compute_stats(problems: Sequence[Problem], lengths: Lengths | None = None) -> Stats:
    """Statistics of ``problems`` (at least one); ``lengths`` are passed on."""
    from securecoderl_edge.problems.near_duplicates import clusters, statement_hash

    groups = clusters(problems)
    counted = [(constant_passes(problem), problem) for problem in problems]
    return Stats(
        problems=len(problems),
        kinds=_counts(problem.kind for problem in problems),
        sources=_counts(problem.source or "not given" for problem in problems),
        difficulties=_counts(problem.difficulty or "not given" for problem in problems),
        tests=spread([problem.test_count for problem in problems]),
        solutions=spread([len(problem.solutions) for problem in problems]),
        without_solution=sum(not problem.solutions for problem in problems),
        equal_statements=len(problems) - len({statement_hash(problem) for problem in problems}),
        near_duplicates=sum(len(group) for group in groups if len(group) > 1),
        groups=len(groups),
        constant_share=sum(passes / problem.test_count for passes, problem in counted) / len(problems),
        constant_half=sum(2 * passes >= problem.test_count for passes, problem in counted),
        constant_all=sum(passes == problem.test_count > 1 for passes, problem in counted),
        lengths=lengths,
    )


def spread(values: Sequence[int]) -> Spread:
    """The distribution of at least one number."""
    ordered = sorted(values)

    def at(percent: int) -> int:
        return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]

    return Spread(ordered[0], at(50), at(90), at(99), ordered[-1])


def _counts(values: Any) -> dict[str, int]:
    return dict(Counter(values).most_common())
