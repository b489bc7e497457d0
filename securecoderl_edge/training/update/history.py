"""What the groups of every problem showed in a phase; hints and ReLIFT follow from it. Pure.

It is part of a checkpoint, and a new phase begins without one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from securecoderl_edge.training.settings import ReferenceSettings

# How much longer a hint gets if its whole group fails, or shorter if more than the target passes; and the part of a
# phase over which the longest hint falls to nothing. Not tuned.
HINT_STEP, HINT_TARGET, HINT_PHASE = 0.25, 0.5, 0.8


@dataclass(frozen=True)
class Group:
    """The completions of a problem in one update: the share that passes all tests.

    ``has_reference``: whether the problem has a reference solution that can be used.
    """

    problem: str
    passed: float
    has_reference: bool = True


@dataclass(frozen=True)
class History:
    """The hints of the problems, by id, and the state of ReLIFT.

    Attributes:
        hints: the share of its reference that the next group of a problem may begin with.
        level: that of a problem that has not come yet: the mean of the last update's.
        failed: ids of problems whose whole group failed since the last supervised step, each once, oldest first.
        relift_steps: supervised steps so far. relift_tokens: tokens of references that they trained on.
    """

    hints: Mapping[str, float] = field(default_factory=dict)
    level: float = 0.0
    failed: tuple[str, ...] = ()
    relift_steps: int = 0
    relift_tokens: int = 0

    def hint_of(self, problem: str) -> float:
        """The share of its reference that the next group of a problem may begin with."""
        return self.hints.get(problem, self.level)

    def after(self, groups: Iterable[Group], settings: ReferenceSettings, longest: float) -> History:
        """The same after an update with these groups.

        Args:
            longest: see `longest_hint`, at this update.
        """
        new, failed = dict[str, float](), dict.fromkeys(self.failed)
        for group in _merged(groups):
            if group.has_reference:
                used = min(self.hint_of(group.problem), longest)
                new[group.problem] = min(next_hint(used, group.passed, settings), longest)
                if settings.relift_batch_size and group.passed == 0:
                    failed[group.problem] = None
        level = math.fsum(new.values()) / len(new) if new else self.level
        return replace(self, hints={**self.hints, **new}, level=level, failed=tuple(failed))


NO_HISTORY = History()


def _merged(groups: Iterable[Group]) -> list[Group]:
    """One group of each problem: those of a problem that comes twice in an update had the same hint."""
    of: dict[str, list[Group]] = {}
    for group in groups:
        of.setdefault(group.problem, []).append(group)
    return [replace(same[0], passed=sum(each.passed for each in same) / len(same)) for same in of.values()]


def next_hint(used: float, passed: float, settings: ReferenceSettings) -> float:
    """The share of a reference after a group that was given the share ``used``: longer if all failed, shorter if many
    passed."""
    if passed == 0:
        return min(settings.hints, used + HINT_STEP)
    return max(0.0, used - HINT_STEP) if passed > HINT_TARGET else used


def longest_hint(settings: ReferenceSettings, step: int, steps: int) -> float:
    """The largest share of a reference at update ``step`` (from 1): it falls to 0 over a part of the phase."""
    return settings.hints * max(0.0, 1 - (step - 1) / (HINT_PHASE * steps))


def history_from_record(record: Any) -> History:
    """The `History` whose ``asdict`` was saved as JSON.

    Raises:
        KeyError, TypeError, ValueError: not such a record.
    """
    hints, level, failed = record["hints"], record["level"], record["failed"]
    counts = record["relift_steps"], record["relift_tokens"]
    if not all(type(count) is int and count >= 0 for count in counts) or not isinstance(hints, dict):
        raise ValueError("the history of problems has the wrong type")
    if not all(isinstance(each, float) and 0 <= each <= 1 for each in (level, *hints.values())):
        raise ValueError("a hint is not a share")
    if not isinstance(failed, list) or not all(isinstance(each, str) for each in failed):
        raise ValueError("the list of failed problems has the wrong type")
    return History(hints, level, tuple(failed), *counts)
