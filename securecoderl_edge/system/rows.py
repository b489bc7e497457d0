"""Files of JSON lines: appending rows, and reading them back."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import math
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.system.files import write_atomically, writing

# Bytes of a line, as a record of a data set can be; decoded, JSON takes up to 25 times as many.
LONGEST_LINE = 1 << 26
# In one record: objects and lists take up to a hundred times their length, other values ten times.
_MOST_CONTAINERS, _MOST_COMMAS = 2_000_000, 4_000_000
# In a row; a compressed file can have billions.
_MOST_BLANK = 10_000_000
# `LONGEST_LINE` times, in a line that is left out.
_MOST_PARTS = 16
# What reading a compressed file that is damaged raises; bzip2 raises an OSError without a number.
DAMAGES = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
_OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


class RowFile:
    """A JSONL file of rows for (phase, step); a resumed run first drops the rows of steps that it will repeat."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, rows: Iterable[Mapping[str, Any]], *, waits: bool = True) -> None:
        """Write the rows, and wait until they are on disk; without that, a power cut may lose them.

        Raises:
            SceError: the file cannot be written.
        """
        text = "".join(json.dumps(finite(row)) + "\n" for row in rows)
        with writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as out:
                out.write(text)
                out.flush()
                if waits:
                    os.fsync(out.fileno())

    def read(self) -> list[dict[str, Any]]:
        """All rows; none if there is no file.

        Raises:
            SceError: a line is not a JSON object; the message begins with file and line.
        """
        damaged: list[int] = []
        rows = [row for _, row in read_objects(self.path, damaged.append)] if self.path.exists() else []
        if damaged:
            raise SceError(f"{self.path}:{damaged[0]}: not a JSON object")
        return rows

    def rewind(self, phase: str, step: int) -> None:
        """Drop rows of ``phase`` after ``step``, and lines that are not rows: a crash truncates the last one."""
        if not self.path.exists():
            return
        rows = [row for _, row in read_objects(self.path) if isinstance(row.get("step"), int)]
        with write_atomically(self.path) as out:
            out.writelines(f"{json.dumps(row)}\n" for row in rows if row.get("phase") != phase or row["step"] <= step)


def read_objects(
    path: Path, broken: Callable[[int], object] = lambda number: None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield ``(line number, object)`` for each line of a file that is a JSON object.

    Args:
        broken: called with the number of every other line that is not blank.

    Raises:
        UsageError, SceError: the file cannot be read, as in `read_jsonl`.
    """
    for number, value in read_jsonl(path, broken):
        if isinstance(value, dict):
            yield number, value
        else:
            broken(number)


def read_jsonl(path: Path, broken: Callable[[int], object] | None = None) -> Iterator[tuple[int, Any]]:
    """Yield ``(line number, decoded value)`` for each non-blank line; a compressed file is unpacked on the way.

    Args:
        broken: called with the number of a line that is not JSON; without it such a line is an error.

    Raises:
        UsageError: the file does not exist, or is a folder.
        SceError: it cannot be read, or a line is not JSON.
    """
    if not path.exists() or path.is_dir():
        raise UsageError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    try:
        with open_unpacked(path) as lines:
            yield from decode_lines(lines, path, broken)
    except (OSError, *DAMAGES) as error:
        raise SceError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def decode_lines(
    lines: IO[bytes], name: object, broken: Callable[[int], object] | None = None
) -> Iterator[tuple[int, Any]]:
    """`read_jsonl` for a file that is open, such as standard input; ``name`` is its name in messages."""
    for number, line in enumerate(bounded_lines(lines), 1):
        if line is not None and not line.strip():
            continue
        try:
            if line is None:
                raise SceError(f"{name}:{number}: a line of more than {LONGEST_LINE >> 20} MiB")
            value = decode_line(line, f"{name}:{number}")
        except SceError:
            if broken is None:
                raise
            broken(number)
        else:
            yield number, value


def open_unpacked(path: Path) -> IO[bytes]:
    """The bytes of a file, decompressed if it ends in ``.gz``, ``.bz2`` or ``.xz``."""
    opened: IO[bytes] = _OPENERS.get(path.suffix, open)(path, "rb")
    return opened


def bounded_lines(file: IO[bytes]) -> Iterator[bytes | None]:
    """The lines of a file; None for one that is longer than `LONGEST_LINE`, which a small compressed file can have.

    Raises:
        SceError: it has nothing but blank lines for too long, or a line that does not end.
    """
    blank = 0
    name = getattr(file, "name", "the file")
    while line := file.readline(LONGEST_LINE):
        is_whole = len(line) < LONGEST_LINE or line.endswith(b"\n")
        blank = blank + 1 if line.isspace() else 0
        if blank > _MOST_BLANK:
            raise SceError(f"{name}: more than {_MOST_BLANK:,} blank lines")
        yield line if is_whole else None
        parts = 1  # read after the line was reported, for callers that stop there
        while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            line, parts = file.readline(LONGEST_LINE), parts + 1
            if parts > _MOST_PARTS:
                raise SceError(f"{name}: a line of more than {_MOST_PARTS * LONGEST_LINE >> 30} GiB")


def decode_line(line: bytes, where: str) -> Any:
    """The JSON value in one line of a file.

    Raises:
        SceError: it is not JSON; the message begins with ``where``.
    """
    if reason := excess(line):
        raise SceError(f"{where}: {reason}")
    try:
        return json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise SceError(f"{where}: not UTF-8 text ({error.reason} at byte {error.start} of the line)") from None
    except (ValueError, RecursionError) as error:
        fault = f"not valid JSON ({getattr(error, 'msg', error)})"
        raise SceError(f"{where}: {'a number with too many digits' if type(error) is ValueError else fault}") from None


def excess(text: bytes) -> str:
    """Why the JSON or CSV of one record would take too much memory; empty if it does not."""
    if len(text) <= _MOST_CONTAINERS:
        return ""
    if text.count(b"{") + text.count(b"[") > _MOST_CONTAINERS:
        return f"more than {_MOST_CONTAINERS:,} objects and lists"
    return f"more than {_MOST_COMMAS:,} values" if text.count(b",") > _MOST_COMMAS else ""


def drop_truncated_line(path: Path) -> None:
    """Remove the last line of a file of rows if an interruption truncated it."""
    if path.exists():
        with writing(path):
            os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def finite(value: Any) -> Any:
    """JSON has no NaN or infinity: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, (list, tuple)) else value
