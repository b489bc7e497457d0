"""Importers: one file for each format of the world, one record format out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from securecoderl_edge.datasets import apps, apps_file, humaneval, mbpp, native
from securecoderl_edge.datasets.tally import Dropped, Tally
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems import Problem

__all__ = ["FORMATS", "KINDS", "Dropped", "Imported", "Tally", "detect_format", "import_problems"]

_READERS: dict[str, Callable[[Path, Tally], Iterator[Problem]]] = {
    "apps": lambda path, tally: apps.read(path, tally) if path.is_dir() else apps_file.read(path, tally, "apps"),
    "apps-plus": lambda path, tally: apps_file.read(path, tally, "apps-plus"),
    "mbpp": mbpp.read,
    "humaneval": humaneval.read,
    "jsonl": native.read,
}
FORMATS = tuple(_READERS)
KINDS = ("stdin", "call", "all")

# Keys of a record that tell a JSONL format from the others, the most telling format first.
_KEYS_OF_FORMAT = {
    "mbpp": {"task_id", "test_list"},
    "humaneval": {"task_id", "prompt", "entry_point", "test"},
    "jsonl": {"id", "statement"},
}


@dataclass(frozen=True)
class Imported:
    """An import under way.

    Attributes:
        format: one of `FORMATS`.
        problems: the problems, read as they are consumed, each with all of its tests.
        tally: what was kept and dropped so far; final when ``problems`` is exhausted.
    """

    format: str
    problems: Iterator[Problem]
    tally: Tally


def import_problems(source: Path, format: str = "auto", kind: str = "all") -> Imported:
    """Read problems of a foreign format in constant memory.

    Args:
        source: a file; for APPS also a folder.
        format: one of `FORMATS`, or ``auto`` to recognise it.
        kind: ``stdin``, ``call`` or ``all``: which problems to keep, judged by their data.

    Raises:
        UsageError: no such file, format or kind, or a format that is not recognised.
        SceError: while problems are consumed: a record that breaks the format, with file and line.
    """
    if kind not in KINDS:
        raise UsageError(f"no kind of problems {kind!r}; there are {', '.join(KINDS)}")
    if format != "auto" and format not in FORMATS:
        raise UsageError(f"no dataset format {format!r}; there are {', '.join(FORMATS)}")
    found = detect_format(source) if format == "auto" else format
    if not source.exists():
        raise UsageError(f"{source}: no such file or folder")
    if source.is_dir() and found != "apps":
        raise UsageError(f"{source}: the format {found} is a file, this is a folder")
    tally = Tally()
    return Imported(found, _filtered(_READERS[found](source, tally), kind, tally), tally)


def detect_format(path: Path) -> str:
    """The format of a file or folder, by the keys of its first record or by its folders.

    Raises:
        UsageError: it does not exist, or is none of `FORMATS`.
        SceError: it cannot be read, or its first line is not JSON.
    """
    if path.is_dir():
        if next(apps.problem_folders(path), None) is None:
            raise UsageError(f"{path}: no APPS problems (folders with question.txt) in this folder")
        return "apps"
    first = next(apps_file.records(path), None)
    if first is None:
        raise SceError(f"{path}: the file is empty")
    place, _, record = first
    if not isinstance(record, dict):
        raise UsageError(f"{path}: {place}: expected a JSON object, found {type(record).__name__}")
    if place.startswith("line"):
        for name, keys in _KEYS_OF_FORMAT.items():
            if keys <= record.keys():
                return name
    if apps_file.looks_like_one(record):
        return "apps" if "input_output" in record else "apps-plus"
    keys_found = ", ".join(sorted(map(repr, record))[:12]) or "none"
    raise UsageError(f"{path}: not recognised as {', '.join(FORMATS)} (keys of the first record: {keys_found})")


def _filtered(problems: Iterator[Problem], kind: str, tally: Tally) -> Iterator[Problem]:
    seen: set[str] = set()
    for problem in problems:
        if kind not in ("all", problem.kind):
            tally.drop(problem.id, f"{problem.kind} problem, not {kind}")
        elif problem.id in seen:
            tally.drop(problem.id, "id used before")
        else:
            seen.add(problem.id)
            tally.kept += 1
            yield problem
