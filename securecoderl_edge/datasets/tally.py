"""What an import read, and what it left out and why."""

from __future__ import annotations

from dataclasses import dataclass, field


class DropRecord(Exception):
    """One record cannot become a problem; the message is the reason, the same words for the same fault."""


class MalformedRecord(Exception):
    """A record is not of the format that the file claims to have."""


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
        dropped: records left out, by reason.
        dropped_tests: single tests left out of problems that were kept or dropped, by reason.
    """

    kept: int = 0
    dropped: dict[str, Dropped] = field(default_factory=dict)
    dropped_tests: dict[str, Dropped] = field(default_factory=dict)

    @property
    def read(self) -> int:
        """All records seen so far."""
        return self.kept + sum(entry.count for entry in self.dropped.values())

    def drop(self, where: str, reason: str) -> None:
        """Count one record left out."""
        self.dropped.setdefault(reason, Dropped(0, where)).count += 1

    def drop_test(self, where: str, reason: str) -> None:
        """Count one test left out."""
        self.dropped_tests.setdefault(reason, Dropped(0, where)).count += 1
