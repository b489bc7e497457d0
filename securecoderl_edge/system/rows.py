"""Rows of numbers, appended to a JSONL file as they come."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.files import write_atomically


class RowFile:
    """A JSONL file of rows that belong to (phase, step); resuming first drops the rows of steps to be done again."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write the rows; they are on disk before anything that builds on them is.

        Raises:
            SceError: the file cannot be written.
        """
        text = "".join(json.dumps(_finite(row)) + "\n" for row in rows)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
        except OSError as error:
            raise SceError(f"cannot write {self.path}: {error.strerror}") from error

    def read(self) -> list[dict[str, Any]]:
        """All rows; none if there is no file.

        Raises:
            SceError: a line is no JSON object; the message begins with file and line.
        """
        if not self.path.exists():
            return []
        rows = []
        for number, line in enumerate(self.path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise SceError(f"{self.path}:{number}: no JSON object")
            rows.append(row)
        return rows

    def rewind(self, phase: str, step: int) -> None:
        """Drop rows of ``phase`` after ``step``, and lines that are none: a crash cuts the last one short."""
        if not self.path.exists():
            return
        kept = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(row, dict) or not isinstance(row.get("step"), int):
                continue
            if row.get("phase") != phase or row["step"] <= step:
                kept.append(line)
        with write_atomically(self.path) as out:
            out.writelines(f"{line}\n" for line in kept)


@contextmanager
def mirror_to_tensorboard(
    folder: Path, log: Callable[[dict[str, Any]], None], *, enabled: bool = True
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A ``log`` that also writes the numbers of a row for TensorBoard, where that is installed, one run a phase."""
    if not enabled or find_spec("tensorboard") is None:
        yield log
        return
    from torch.utils.tensorboard import SummaryWriter

    writers: dict[str, Any] = {}

    def log_both(row: dict[str, Any]) -> None:
        phase, step = row["phase"], row["step"]
        if phase not in writers:
            # What a crash left of later steps is hidden by the first event of this writer.
            writers[phase] = SummaryWriter(str(folder / phase), purge_step=step)
        for name, value in row.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in ("step", "steps"):
                writers[phase].add_scalar(name, value, step)
        log(row)

    try:
        yield log_both
    finally:
        for writer in writers.values():
            writer.close()


def _finite(row: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no NaN or infinity: they become null."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in row.items()}
