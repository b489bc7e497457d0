"""What the groups of every problem showed in a phase; hints, ReLIFT and the curriculum follow from it. Pure.

It is part of a checkpoint, and a new phase begins without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from securecoderl_edge.training.settings import ReferenceSettings

# Share of the previous pass rate in the running one: a problem is drawn only a few times in a phase.
_MEMORY = 0.5
# The weight of a problem that is always or never solved, against 1 at a pass rate of one half.
_LEAST_WEIGHT = 0.1


@dataclass(frozen=True)
class Group:
    """The completions of a problem in one update: the share that passes all tests, and whether they began with a hint.

    ``has_reference``: whether the problem has a reference solution that can be used.
    """

    problem: str
    passed: float
    hinted: bool = False
    has_reference: bool = True


@dataclass(frozen=True)
class Shown:
    """What one problem showed.

    Attributes:
        pass_rate: running share of completions without a hint that pass all tests; None before the first ones.
        expected: the pass rate of its last group, of which the next one is like; None if that has another hint.
        hint: the share of its reference that the next group may begin with.
    """

    pass_rate: float | None = None
    expected: float | None = None
    hint: float = 0.0

    @property
    def weight(self) -> float:
        """The curriculum's: the variance of passing that is expected, relative to its largest, and never 0."""
        rate = self.expected
        return 1.0 if rate is None else _LEAST_WEIGHT + (1 - _LEAST_WEIGHT) * 4 * rate * (1 - rate)

    def after(self, group: Group, settings: ReferenceSettings, longest: float) -> Shown:
        """The same after one more group, whose hint had at most the share ``longest``."""
        used = min(self.hint, longest)
        hint = min(next_hint(used, group.passed, settings), longest) if group.has_reference else 0.0
        rate, plain = group.passed, self.pass_rate
        if not group.hinted:
            rate = plain = rate if plain is None else _MEMORY * plain + (1 - _MEMORY) * rate
        return Shown(plain, rate if hint == used else None, hint)


@dataclass(frozen=True)
class History:
    """What the problems showed, by id, and the state of ReLIFT.

    Attributes:
        failed: ids of problems whose whole group failed since the last supervised step, each once, oldest first.
        relift_steps: supervised steps so far. relift_tokens: tokens of references that they trained on.
    """

    problems: Mapping[str, Shown] = field(default_factory=dict)
    failed: tuple[str, ...] = ()
    relift_steps: int = 0
    relift_tokens: int = 0

    def of(self, problem: str) -> Shown:
        """What a problem showed; an unseen one nothing."""
        return self.problems.get(problem, Shown())

    def after(self, groups: Iterable[Group], settings: ReferenceSettings, longest: float) -> History:
        """The same after an update with these groups.

        Args:
            longest: see `longest_hint`, at this update.
        """
        problems, failed = dict(self.problems), dict.fromkeys(self.failed)
        for group in _merged(groups):
            problems[group.problem] = self.of(group.problem).after(group, settings, longest)
            if settings.relift_batch_size and group.has_reference and group.passed == 0:
                failed[group.problem] = None
        return replace(self, problems=problems, failed=tuple(failed))


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
        return min(settings.hints, used + settings.hint_step)
    return max(0.0, used - settings.hint_step) if passed > settings.hint_target else used


def longest_hint(settings: ReferenceSettings, step: int, steps: int) -> float:
    """The largest share of a reference at update ``step`` (from 1): it falls to 0 over a part of the phase."""
    return settings.hints * max(0.0, 1 - (step - 1) / (settings.hint_anneal * steps))


def history_from_record(record: Any) -> History:
    """The `History` whose ``asdict`` was saved as JSON.

    Raises:
        KeyError, TypeError, ValueError: not such a record.
    """
    problems, failed = record["problems"], record["failed"]
    counts = record["relift_steps"], record["relift_tokens"]
    if not all(type(count) is int and count >= 0 for count in counts) or not isinstance(problems, dict):
        raise ValueError("the history of problems has the wrong type")
    if not isinstance(failed, list) or not all(isinstance(each, str) for each in failed):
        raise ValueError("the list of failed problems has the wrong type")
    return History({name: _shown(each) for name, each in problems.items()}, tuple(failed), *counts)


def _shown(record: Any) -> Shown:
    rates = record["pass_rate"], record["expected"], record["hint"]
    if rates[2] is None or not all(each is None or (isinstance(each, float) and 0 <= each <= 1) for each in rates):
        raise ValueError("a pass rate or a hint is not a share")
    return Shown(*rates)
