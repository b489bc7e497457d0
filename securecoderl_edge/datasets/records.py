"""Files of records, whatever their outer form, one record at a time: JSONL, a JSON array, an object of records by name,
the JSON of SecureCodeRL, Parquet.

A record that cannot be read is handed out as `Unreadable` and the rest goes on, as far as the form permits: a JSON text
that breaks off has nothing after the break.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from securecoderl_edge.errors import MissingExtra, SceError, UsageError
from securecoderl_edge.problems import decode_line

Form = Literal["lines", "array", "object", "prompts", "parquet"]

_BOM = b"\xef\xbb\xbf"
_HEAD_BYTES = 1 << 16
PROMPTS_KEY = "prompts_with_tests"
_PROMPTS = re.compile(rb'\A\{.*?"(?:prompts_with_tests|prompts)"\s*:\s*\[', re.DOTALL)
_ROWS_AT_A_TIME = 64


@dataclass(frozen=True)
class Unreadable:
    """What stands in the place of a record that is none; ``reason`` is the same for the same fault."""

    reason: str


@dataclass(frozen=True)
class Record:
    """One record of a file.

    Attributes:
        place: its line number, or ``record 3``, ``row 3``.
        name: what the file calls it: its key, or its number from 0.
        value: the decoded value, or `Unreadable`.
    """

    place: str
    name: str
    value: Any


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file in constant memory.

    Raises:
        UsageError: no such file.
        SceError: it cannot be read at all, or is UTF-16 text.
        MissingExtra: Parquet without pyarrow.
    """
    form = form_of(path)
    if form == "lines":
        return _lines(path)
    return _rows(path) if form == "parquet" else _items(path, form)


def form_of(path: Path) -> Form:
    """The outer form of a file, from its beginning; errors as in `read_records`."""
    if not path.exists():
        raise UsageError(f"{path}: no such file")
    if path.is_dir():
        raise UsageError(f"{path}: is a folder")
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SceError(f"{path}: is UTF-16 text; convert it to UTF-8")
    head = head.removeprefix(_BOM).lstrip()
    if head.startswith(b"["):
        return "array"
    if _PROMPTS.match(head):
        return "prompts"
    # An object of records, pretty-printed or not, has an object as its first value; a record has none there.
    after_key = head.partition(b":")[2].lstrip()
    return "object" if head.startswith(b"{") and after_key.startswith(b"{") else "lines"


def count_items(path: Path, prefix: str) -> int:
    """How many items the array ``prefix`` of a JSON file has; as many as there are before it breaks off."""
    import ijson

    count = 0
    try:
        with path.open("rb") as file:
            for place, event, _ in ijson.parse(_after_bom(file)):
                count += place == f"{prefix}.item" and event in ("start_map", "string", "number", "null")
    except (ijson.JSONError, UnicodeDecodeError, OSError):
        pass  # the reader that comes after says so
    return count


def _lines(path: Path) -> Iterator[Record]:
    name = -1
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    name += 1
                    yield Record(str(number), str(name), _decoded(line))
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        if name < 0:
            raise SceError(f"{path}: {error}") from None
        yield Record(f"after record {name}", "", Unreadable("the file is cut short"))
    except OSError as error:
        raise SceError(f"{path}: {error.strerror or error}") from None


def _decoded(line: bytes) -> Any:
    try:
        return decode_line(line, "")
    except SceError as error:
        return Unreadable("not UTF-8 text" if "UTF-8" in str(error) else "not valid JSON")


def _items(path: Path, form: Form) -> Iterator[Record]:
    import ijson

    count = 0
    try:
        with path.open("rb") as file:
            start = _after_bom(file)
            if form == "object":
                every = ijson.kvitems(start, "", use_float=True)
            else:
                prefix = "item" if form == "array" else f"{PROMPTS_KEY}.item"
                items = ijson.items(start, prefix, use_float=True)
                every = ((str(index), record) for index, record in enumerate(items))
            for name, value in every:
                yield Record(f"record {name}", name, value)
                count += 1
    except (ijson.JSONError, UnicodeDecodeError, OverflowError, RecursionError) as error:
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) or "UTF" in str(error) else "cut short"
        whole = f"the file is {reason} from here on: {' '.join(str(error).split())[:80]}"
        yield Record(f"after {count} records", "", Unreadable(whole))
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None


def _rows(path: Path) -> Iterator[Record]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise MissingExtra("pyarrow", "hub", "(the file is in Parquet's format)") from None
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as table:
            for batch in table.iter_batches(batch_size=_ROWS_AT_A_TIME):
                for value in batch.to_pylist():
                    yield Record(f"row {number}", str(number), value)
                    number += 1
    except (pyarrow.ArrowException, OSError) as error:
        if number == 0:
            raise SceError(f"{path}: no whole Parquet file ({str(error)[:120]}); download it again") from None
        yield Record(f"after {number} rows", "", Unreadable("the file is damaged from here on"))


def _after_bom(file: Any) -> Any:
    if file.read(len(_BOM)) != _BOM:
        file.seek(0)
    return file
