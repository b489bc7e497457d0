"""Report of an import: counts of kept and dropped records, with reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from securecoderl_edge.errors import SceError
from securecoderl_edge.problems.problem_file import ProblemError

T = TypeVar("T")
# Dropped records; those that are filtered may be hundreds of thousands.
_MOST_IN_A_ROW = 100_000
_MOST_CHARACTERS = 1 << 25  # of the tests of a problem that have a setup in common


class DropRecord(ProblemError):
    """One record has the format of its file, but cannot become a problem.

    The message is the reason, with the same words for the same fault.
    """


class FilterRecord(DropRecord):
    """A valid record that is not about programs, such as one about mathematics; the message is the reason."""


@dataclass
class Dropped:
    """The number of records dropped for one reason, and the first of them."""

    count: int
    first: str


@dataclass
class Tally:
    """Counts of one import; they are final once its problems have been consumed.

    Attributes:
        kept: problems yielded.
        filtered: valid problems that were not requested, such as those of another kind, by reason.
        dropped: unusable records, by reason.
        malformed: the number of dropped records that do not have the format of the file.
        filtered_tests, dropped_tests: the same for single tests, of problems that were kept or dropped.
        dropped_solutions: unusable solutions.
    """

    kept: int = 0
    malformed: int = 0
    filtered: dict[str, Dropped] = field(default_factory=dict)
    dropped: dict[str, Dropped] = field(default_factory=dict)
    filtered_tests: dict[str, Dropped] = field(default_factory=dict)
    dropped_tests: dict[str, Dropped] = field(default_factory=dict)
    dropped_solutions: dict[str, Dropped] = field(default_factory=dict)
    _in_a_row: tuple[int, int] = field(default=(0, 0), compare=False, repr=False)

    @property
    def read(self) -> int:
        """All records seen so far."""
        return self.kept + sum(entry.count for each in (self.filtered, self.dropped) for entry in each.values())

    def filter(self, where: str, reason: str) -> None:
        """Count one valid problem that was not requested."""
        self.filtered.setdefault(reason, Dropped(0, where)).count += 1

    def drop(self, where: str, reason: ProblemError | str) -> None:
        """Count one dropped record.

        Raises:
            SceError: there were too many in a row, as a small compressed file can have.
        """
        kept, count = self._in_a_row
        self._in_a_row = self.kept, count + 1 if kept == self.kept else 1
        if count >= _MOST_IN_A_ROW:
            raise SceError(f"{where}: more than {_MOST_IN_A_ROW:,} unusable records in a row ({reason})")
        self.malformed += isinstance(reason, ProblemError) and not isinstance(reason, DropRecord)
        self.dropped.setdefault(str(reason), Dropped(0, where)).count += 1

    def filter_tests(self, where: str, reason: str, count: int) -> None:
        """Count valid tests that were not requested."""
        self.filtered_tests.setdefault(reason, Dropped(0, where)).count += count

    def drop_test(self, where: str, reason: str) -> None:
        """Count one dropped test."""
        self.dropped_tests.setdefault(reason, Dropped(0, where)).count += 1

    def drop_solution(self, where: str, reason: str) -> None:
        """Count one dropped solution, or the solutions of one problem."""
        self.dropped_solutions.setdefault(reason, Dropped(0, where)).count += 1

    def add_parts(self, other: Tally) -> None:
        """Add counts of tests and solutions, made while one record was read."""
        for name in ("filtered_tests", "dropped_tests", "dropped_solutions"):
            counts: dict[str, Dropped] = getattr(self, name)
            for reason, entry in getattr(other, name).items():
                counts.setdefault(reason, Dropped(0, entry.first)).count += entry.count


def with_setup(setup: str, tests: Sequence[str]) -> tuple[str, ...]:
    """The tests, each behind its setup.

    Raises:
        DropRecord: a small file would fill the memory.
    """
    if len(setup) * len(tests) > _MOST_CHARACTERS:
        raise DropRecord("the setup of its tests is too long for their number")
    return tuple(setup + test for test in tests)


def usable_tests(tests: Sequence[T], fault_of: Callable[[T], str | None], where: str, tally: Tally) -> list[T]:
    """The tests without a fault; the others are counted.

    Raises:
        DropRecord: none is left.
    """
    kept = []
    for test in tests:
        fault = fault_of(test)
        if fault is None:
            kept.append(test)
        else:
            tally.drop_test(where, fault)
    if not kept:
        raise DropRecord("no usable tests")
    return kept
