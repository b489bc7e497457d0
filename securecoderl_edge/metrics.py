"""Rows of numbers, appended to a JSONL file as they come."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.files import write_atomically


class RowFile:
    """A JSONL file of rows that belong to (phase, step); resuming first drops the rows of steps to be done again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write the rows and hand them to the system.

        Raises:
            SceError: the file cannot be written.
        """
        text = "".join(json.dumps(_finite(row)) + "\n" for row in rows)
        try:
            with self.path.open("a", encoding="utf-8") as out:
                out.write(text)
        except OSError as error:
            raise SceError(f"cannot write {self.path}: {error.strerror}") from error

    def rewind(self, phase: str, step: int) -> None:
        """Drop rows of ``phase`` after ``step``, and a last line that a crash cut short."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if row.get("phase") != phase or row.get("step", 0) <= step:
                kept.append(line)
        with write_atomically(self.path) as out:
            out.writelines(f"{line}\n" for line in kept)


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN or infinity: they become null."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
