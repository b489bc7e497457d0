"""Findings of `sce doctor`: sentences with a state, and the same facts as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

# ``note`` is worth knowing and ``missing`` is optional; only ``bad`` makes the examination fail.
State = Literal["ok", "note", "missing", "bad"]
# A child that takes longer than this hangs.
CHILD_SECONDS = 120.0


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        next_step: what to do about it; empty where nothing is to be done.
    """

    group: str
    name: str
    state: State
    found: str
    next_step: str = ""


@dataclass
class Section:
    """One group, filled while it is looked at: its facts as JSON values, and what they mean."""

    group: str
    facts: dict[str, Any]
    findings: list[Check] = field(default_factory=list)

    def add(self, name: str, state: State, found: str, next_step: str = "") -> None:
        """Append a `Check`."""
        self.findings.append(Check(self.group, name, state, found, next_step))


def gibibytes(size: int) -> str:
    """``15.6 GiB``."""
    return f"{size / (1 << 30):.1f} GiB"
