"""A record of a file, and what stands for one that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unreadable:
    """Replaces a record that cannot be read; ``reason`` is the same for the same fault."""

    reason: str


@dataclass(frozen=True)
class Record:
    """One record of a file.

    Attributes:
        location: its line number, or ``record 3``, ``row 3``.
        name: its key in the file, or its number from 0.
        value: the decoded value, or `Unreadable`.
    """

    location: str
    name: str
    value: Any
