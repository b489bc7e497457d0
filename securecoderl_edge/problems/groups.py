"""Groups of problems that depend on each other, because they are variants of one task.

What a model gets right in one of them, it tends to get right in the others. So intervals are over groups, and no group
is both trained on and held out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from securecoderl_edge.problems.near_duplicates import clusters
from securecoderl_edge.problems.problem import Problem

_BUILT_IN = "starter"  # the source of built-in problems, with ids such as starter/FAMILY/PARTS#0


def group_labels(problems: Sequence[Problem]) -> list[str]:
    """The group of each problem; problems with equal labels are one group.

    It is `Problem.group` if there is one, the family of a built-in problem, by its id, and else the first one of its
    near-duplicates, see `near_duplicates.clusters`.
    """
    labels = [_known_group(problem) for problem in problems]
    others = [index for index, label in enumerate(labels) if not label]
    for members in clusters([problems[index] for index in others]):
        for member in members:
            labels[others[member]] = f"like {problems[others[members[0]]].id}"
    return labels


def groups_by_id(problems: Sequence[Problem]) -> dict[str, str]:
    """The label of the group of each problem, by the id of the problem."""
    return {problem.id: label for problem, label in zip(problems, group_labels(problems), strict=True)}


def disjoint_groups(problems: Sequence[Problem]) -> list[list[int]]:
    """Positions of the problems of each group; no problem has a near-duplicate in another group."""
    return clusters([replace(problem, group=_known_group(problem)) for problem in problems])


def _known_group(problem: Problem) -> str:
    parts = problem.id.split("/")
    return problem.group or (parts[1] if problem.source == _BUILT_IN and len(parts) > 2 else "")
