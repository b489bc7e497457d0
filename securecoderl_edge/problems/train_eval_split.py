"""Split problems into a training set and an evaluation set without near-duplicates across the two.

Near-duplicates form groups (`near_duplicates`), and whole groups are sampled. The sample depends on a hash of seed and
statement, not on the order of the file or the machine, and a problem that is added later moves few of the others. One
problem of a sampled group is for evaluation; its near-duplicates are *withheld*. In the training set they would leak
it, and in the evaluation set they would count it twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from securecoderl_edge.errors import UsageError
from securecoderl_edge.problems.near_duplicates import clusters, jaccard, pairs_between, statement_hash, word_pairs
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.same_code import same_tasks

# A group larger than this fraction of the problems is for training: withholding it would lose too many problems.
_LARGEST_SHARE = 0.05


@dataclass(frozen=True)
class TrainEvalSplit:
    """Positions of a list of problems, each in the order of the list; together all of them.

    Attributes:
        train: the training set.
        evaluation: the evaluation set, no two of them near-duplicates.
        withheld: near-duplicates of the evaluation problems, in neither.
        groups: how many groups of near-duplicates there are, groups of one included.
    """

    train: tuple[int, ...]
    evaluation: tuple[int, ...]
    withheld: tuple[int, ...]
    groups: int


@dataclass(frozen=True)
class Leak:
    """A problem with a duplicate in another file.

    Attributes:
        similarity: of their words, 1 for equal statements.
        by: ``words``; or, with other words, the ``code`` of a reference but for names and constants, or the ``name`` of
            the function.
    """

    id: str
    other_id: str
    similarity: float
    by: str = "words"

    def to_record(self) -> dict[str, Any]:
        """Its JSON object."""
        return {"id": self.id, "other_id": self.other_id, "similarity": round(self.similarity, 4), "by": self.by}


def split_problems(problems: Sequence[Problem], evaluation: int, seed: int, tags: Sequence[str] = ()) -> TrainEvalSplit:
    """Hold out ``evaluation`` problems for evaluation.

    Args:
        tags: hold out all problems with one of these instead.

    Raises:
        UsageError: there are too few groups of different problems, or no problem has one of the tags.
    """
    groups = clusters(problems)
    known = {name for problem in problems for name in problem.tags}
    for tag in tags:
        if tag not in known:
            names = ", ".join(sorted(known))
            raise UsageError(f"unknown tag {tag!r}; {f'choose from {names}' if known else 'no problem has a tag'}")
    if tags:
        chosen = [index for index, problem in enumerate(problems) if not set(tags).isdisjoint(problem.tags)]
    else:
        chosen = _drawn(problems, groups, evaluation, seed)
    group_of = {index: number for number, group in enumerate(groups) for index in group}
    drawn, measured = {group_of[index] for index in chosen}, set(chosen)
    train = tuple(index for index in range(len(problems)) if group_of[index] not in drawn)
    if not train:
        raise UsageError("the training split is empty: all other problems are near-duplicates; hold out fewer problems")
    withheld = tuple(index for group in drawn for index in groups[group] if index not in measured)
    return TrainEvalSplit(train, tuple(sorted(chosen)), tuple(sorted(withheld)), len(groups))


def find_leaks(problems: Sequence[Problem], others: Sequence[Problem]) -> list[Leak]:
    """The problems with a duplicate or near-duplicate in ``others``, each with the most similar one."""
    nearest: dict[int, tuple[float, int]] = {}
    for index, other, likeness in pairs_between(problems, others):
        if index not in nearest or likeness > nearest[index][0]:
            nearest[index] = likeness, other
    return [Leak(problems[index].id, others[other].id, likeness) for index, (likeness, other) in nearest.items()]


def find_leaks_in_other_words(problems: Sequence[Problem], others: Sequence[Problem]) -> list[Leak]:
    """The problems without a near-duplicate in ``others`` that have one by code or else by name, with the first."""
    found: dict[int, tuple[int, str]] = {}
    alike = {index for index, _, _ in pairs_between(problems, others)}
    for index, other, by in same_tasks(problems, others):
        if index not in alike:
            found.setdefault(index, (other, by))
    pairs = ((problems[index], others[other], by) for index, (other, by) in found.items())
    return [Leak(one.id, other.id, jaccard(word_pairs(one), word_pairs(other)), by) for one, other, by in pairs]


def _drawn(problems: Sequence[Problem], groups: Sequence[Sequence[int]], count: int, seed: int) -> list[int]:
    """One problem of each of the first ``count`` groups in the order of their hashes."""

    def rank(index: int) -> tuple[str, str]:
        statement = hashlib.sha256(f"{seed}/{statement_hash(problems[index])}".encode()).hexdigest()
        return statement, problems[index].id

    limit = max(1, int(_LARGEST_SHARE * len(problems)))
    leaders = [(len(group) > limit, *min((rank(index), index) for index in group)) for group in groups]
    if len(leaders) < count + 1:
        raise UsageError(
            f"cannot hold out {count} problems: the {len(problems)} problems form only {len(groups)} groups of "
            "near-duplicates, and one group must stay in the training split"
        )
    return [index for _, _, index in sorted(leaders)[:count]]
