"""Problems to learn from and problems to measure on, with nothing of the one in the other.

Near-duplicates are put into groups (`near_duplicates`), and groups are drawn, not problems. The draw goes by a hash of
seed and statement, so it depends neither on the order of the file nor on the machine, and a problem that is added later
moves few of the others. One problem of a drawn group is measured on; its near-duplicates are *withheld*: learnt from,
they would leak it, and measured on, they would count it twice.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from securecoderl_edge.errors import UsageError
from securecoderl_edge.problems.near_duplicates import SIMILARITY, clusters, pairs_between, statement_hash
from securecoderl_edge.problems.problem import Problem

# A group larger than this share of the problems is learnt from: withholding it would cost more than it is worth.
_LARGEST_SHARE = 0.05


@dataclass(frozen=True)
class Split:
    """Positions of a list of problems, each in the order of the list; together all of them.

    Attributes:
        train: to learn from.
        evaluation: to measure on, no two of them near-duplicates.
        withheld: near-duplicates of the evaluation problems, in neither.
        groups: how many groups of near-duplicates there are, groups of one included.
    """

    train: tuple[int, ...]
    evaluation: tuple[int, ...]
    withheld: tuple[int, ...]
    groups: int


@dataclass(frozen=True)
class Leak:
    """A problem that another file holds too; ``similarity`` is 1 where the statements are equal."""

    id: str
    other_id: str
    similarity: float

    def to_record(self) -> dict[str, Any]:
        """Its JSON object."""
        return {"id": self.id, "other_id": self.other_id, "similarity": round(self.similarity, 4)}


def split_problems(
    problems: Sequence[Problem], evaluation: int, seed: int, similarity: float = SIMILARITY, tag: str | None = None
) -> Split:
    """Draw ``evaluation`` problems to measure on.

    Args:
        similarity: Jaccard similarity of word pairs from which on two problems are near-duplicates.
        tag: measure on the problems that carry this tag instead, all of them.

    Raises:
        UsageError: there are too few groups of different problems, or none has the tag.
        MissingExtra: datasketch is not installed.
    """
    groups = clusters(problems, similarity)
    if tag is None:
        chosen = _drawn(problems, groups, evaluation, seed)
    else:
        chosen = [place for place, problem in enumerate(problems) if tag in problem.tags]
        if not chosen:
            known = Counter(name for problem in problems for name in problem.tags)
            raise UsageError(f"no problem has the tag {tag!r}; there are {', '.join(sorted(known)) or 'none'}")
    of_place = {place: number for number, group in enumerate(groups) for place in group}
    drawn, measured = {of_place[place] for place in chosen}, set(chosen)
    train = tuple(place for place in range(len(problems)) if of_place[place] not in drawn)
    if not train:
        raise UsageError("nothing is left to learn from: every other problem is a near-duplicate; ask for fewer")
    withheld = tuple(place for group in drawn for place in groups[group] if place not in measured)
    return Split(train, tuple(sorted(chosen)), tuple(sorted(withheld)), len(groups))


def find_leaks(problems: Sequence[Problem], others: Sequence[Problem], similarity: float = SIMILARITY) -> list[Leak]:
    """The problems that ``others`` hold too, each with what is most like it there.

    Raises:
        MissingExtra: datasketch is not installed.
    """
    nearest: dict[int, tuple[float, int]] = {}
    for place, other, likeness in pairs_between(problems, others, similarity):
        if place not in nearest or likeness > nearest[place][0]:
            nearest[place] = likeness, other
    return [Leak(problems[place].id, others[other].id, likeness) for place, (likeness, other) in nearest.items()]


def _drawn(problems: Sequence[Problem], groups: Sequence[Sequence[int]], count: int, seed: int) -> list[int]:
    """One problem of each of the first ``count`` groups in the order of their hashes."""

    def rank(place: int) -> tuple[str, str]:
        statement = hashlib.sha256(f"{seed}/{statement_hash(problems[place])}".encode()).hexdigest()
        return statement, problems[place].id

    limit = max(1, int(_LARGEST_SHARE * len(problems)))
    leaders = [(len(group) > limit, *min((rank(place), place) for place in group)) for group in groups]
    if len(leaders) < count + 1:
        raise UsageError(
            f"{count} problems to measure on are too many: the {len(problems)} problems are {len(groups)} groups "
            "of different ones, of which one at least must be left to learn from"
        )
    return [place for _, _, place in sorted(leaders)[:count]]
