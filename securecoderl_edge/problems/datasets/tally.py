"""What an import read, and what it left out and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


class DropRecord(Exception):
    """One record cannot become a problem; the message is the reason, the same words for the same fault."""


class MalformedRecord(DropRecord):
    """A record is not of the format that the file is read as."""


@dataclass
class Dropped:
    """How many were left out for one reason, and the first of them."""

    count: int
    first: str


@dataclass
class Tally:
    """Counts of one import; they are final once its problems have been consumed.

    Attributes:
        kept: problems handed out.
        filtered: problems left out that nothing is wrong with: of a kind that was not asked for, by reason.
        dropped: records left out because something is wrong with them, by reason.
        malformed: how many of these are not even of the format that the file is read as.
        filtered_tests, dropped_tests: the same of single tests, of problems that were kept or dropped.
        dropped_solutions: solutions that are no programs' texts.
    """

    kept: int = 0
    malformed: int = 0
    filtered: dict[str, Dropped] = field(default_factory=dict)
    dropped: dict[str, Dropped] = field(default_factory=dict)
    filtered_tests: dict[str, Dropped] = field(default_factory=dict)
    dropped_tests: dict[str, Dropped] = field(default_factory=dict)
    dropped_solutions: dict[str, Dropped] = field(default_factory=dict)

    @property
    def read(self) -> int:
        """All records seen so far."""
        return self.kept + sum(entry.count for each in (self.filtered, self.dropped) for entry in each.values())

    def filter(self, where: str, reason: str) -> None:
        """Count one problem that is left out though nothing is wrong with it."""
        self.filtered.setdefault(reason, Dropped(0, where)).count += 1

    def drop(self, where: str, reason: DropRecord | str) -> None:
        """Count one record left out."""
        self.malformed += isinstance(reason, MalformedRecord)
        self.dropped.setdefault(str(reason), Dropped(0, where)).count += 1

    def filter_tests(self, where: str, reason: str, count: int) -> None:
        """Count tests that are left out though nothing is wrong with them."""
        self.filtered_tests.setdefault(reason, Dropped(0, where)).count += count

    def drop_test(self, where: str, reason: str) -> None:
        """Count one test left out."""
        self.dropped_tests.setdefault(reason, Dropped(0, where)).count += 1

    def drop_solution(self, where: str, reason: str) -> None:
        """Count one solution, or the solutions of one problem, left out."""
        self.dropped_solutions.setdefault(reason, Dropped(0, where)).count += 1


def usable_tests(tests: Sequence[T], fault_of: Callable[[T], str | None], where: str, tally: Tally) -> list[T]:
    """The tests without a fault; the others are counted.

    Raises:
        DropRecord: there are none.
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
