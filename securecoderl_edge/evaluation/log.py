"""The rows of one model with one set of settings, written as they are made, so that an evaluation can be resumed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.runtimes.protocol import Usage
from securecoderl_edge.scoring.metrics import Row
from securecoderl_edge.scoring.score import is_amount, is_count, score_from_record
from securecoderl_edge.system.files import locked, write_atomically
from securecoderl_edge.system.rows import RowFile, drop_truncated_line

_MOST = 2.0**63  # seconds, tokens, bytes


class EvaluationLog:
    """A folder with ``rows.jsonl``, ``usage.jsonl`` and ``settings.json``.

    ``rows.jsonl`` has completions in the format of ``sce score --completions`` together with their scores, keyed by
    problem id and sample. Until its program has run, a completion is in ``completions.jsonl``. ``usage.jsonl`` has the
    `Usage` of each completion, or of each batch.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows, self._usage = folder / "rows.jsonl", folder / "usage.jsonl"
        self._completions = folder / "completions.jsonl"

    @classmethod
    @contextmanager
    def held(cls, out: Path, label: str, settings: Mapping[str, Any]) -> Iterator[EvaluationLog]:
        """The log under ``out`` for a model's label and all the settings that its rows depend on, locked.

        Other settings are another log, so results with different settings never mix. The lock is needed because a line
        that another process is writing looks truncated.

        Raises:
            SceError: another process writes there, or the folder cannot be written.
        """
        text = json.dumps(settings, indent=1, sort_keys=True)
        log = cls(out / f"{file_name(label)}-{hashlib.sha256(text.encode()).hexdigest()[:10]}")
        try:
            log.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SceError(f"cannot write {log.folder}: {error.strerror}") from None
        with locked(log.folder):
            with write_atomically(log.folder / "settings.json") as file:
                file.write(text + "\n")
            for path in (log._rows, log._usage, log._completions):
                drop_truncated_line(path)
            yield log

    def rows(self) -> dict[tuple[str, int], Row]:
        """Existing rows by (problem id, sample); of repeated rows, the last.

        Raises:
            SceError: a row is damaged.
        """
        return {(row["id"], row["sample"]): row for row in _read(self._rows, _fault_of_row)}

    def completions(self) -> dict[tuple[str, int], Row]:
        """Completions that ended before their programs ran, as `rows`; among them are some that have a row now."""
        return {(row["id"], row["sample"]): row for row in _read(self._completions, _fault_of_completion)}

    def usage(self) -> Usage:
        """Total usage of all batches, including those of earlier sessions; errors as in `rows`."""
        return sum((Usage(**record) for record in _read(self._usage, _fault_of_usage)), start=Usage())

    def append(self, rows: Sequence[Row]) -> None:
        """Add rows.

        Raises:
            SceError: the file cannot be written.
        """
        RowFile(self._rows).append(rows)

    def append_completion(self, row: Row, usage: Usage) -> None:
        """Add a completion that has no score yet, and what it took; errors as in `append`.

        A disk would take longer than a small model: they survive the end of the process, and not a power cut.
        """
        RowFile(self._completions).append([row], waits=False)
        self.add_usage(usage)

    def forget_completions(self, scored: Container[tuple[str, int]]) -> None:
        """Delete the completions that are ``scored``; errors as in `append`."""
        left = [row for key, row in self.completions().items() if key not in scored]
        if left:
            _write(self._completions, left)
        else:
            self._completions.unlink(missing_ok=True)

    def add_usage(self, usage: Usage) -> None:
        """Add the usage of a completion or batch; errors as in `append`."""
        RowFile(self._usage).append([asdict(usage)], waits=False)

    def replace(self, rows: Sequence[Row], usage: Usage) -> None:
        """Write these rows and their usage instead of those that there are; errors as in `append`."""
        _write(self._rows, rows)
        _write(self._usage, [asdict(usage)])


def _write(path: Path, records: Sequence[Mapping[str, Any]]) -> None:
    with write_atomically(path) as file:
        file.writelines(f"{json.dumps(record)}\n" for record in records)


def file_name(label: str) -> str:
    """A model's label as the name of a file or folder, without separators."""
    return re.sub(r"[^\w.-]+", "-", label).strip("-.") or "model"


def _read(path: Path, fault_of: Callable[[Any], str | None]) -> list[dict[str, Any]]:
    try:
        records = RowFile(path).read()
        for number, record in enumerate(records, 1):
            if fault := fault_of(record):
                raise SceError(f"{path}: record {number} is damaged ({fault})")
    except SceError as error:
        raise SceError(f"{error}; remove {path.parent} to start over") from None
    return records


def _fault_of_completion(row: Any) -> str | None:
    if not isinstance(row, dict) or not isinstance(row.get("completion"), str):
        return "no completion"
    return _fault_of_fields(row)


def _fault_of_row(row: Any) -> str | None:
    try:
        score_from_record(row)
    except ValueError as error:
        return str(error)
    return _fault_of_fields(row)


def _fault_of_fields(row: Row) -> str | None:
    row = {"id": None, "sample": None, **row}
    wrong = [name for name, is_right in _CHECKS.items() if name in row and not is_right(row[name])]
    return f"invalid {wrong[0]}" if wrong else None


def _fault_of_usage(record: Any) -> str | None:
    known = {field.name for field in fields(Usage)}
    is_usage = isinstance(record, dict) and record.keys() <= known and all(map(_is_measured, record.values()))
    return None if is_usage else "not the usage of a batch"


def _is_measured(value: Any) -> bool:
    """Whether it can be a time or a count, so that sums and ratios of them are numbers."""
    return is_amount(value) and value < _MOST


# Of the fields of a row that are not those of a score.
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "id": lambda value: isinstance(value, str),
    "sample": is_count,
    "between_tokens_ms": lambda value: isinstance(value, list) and all(map(_is_measured, value)),
    **dict.fromkeys(("completion", "finish", "prompt_style"), lambda value: isinstance(value, str)),
    **dict.fromkeys(("completion_tokens", "first_token_seconds"), _is_measured),
}
