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
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from securecoderl_edge.errors import MissingExtra, SceError, UsageError
from securecoderl_edge.problems import decode_line

Form = Literal["lines", "array", "object", "prompts", "parquet"]

_BOM = b"\xef\xbb\xbf"
_HEAD_BYTES = 1 << 16
# Where SecureCodeRL's prompts stand; the second is of an older form, without tests.
_PROMPTS_KEYS = ("prompts_with_tests", "prompts")
_PROMPTS = re.compile(rb'\A\{.*?"(?:prompts_with_tests|prompts)"\s*:\s*\[', re.DOTALL)
_ROWS_AT_A_TIME = 64
_DEEPEST = 100


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


def count_items(path: Path) -> int:
    """How many records there are, as many as come before a break."""
    return sum(not isinstance(record.value, Unreadable) for record in read_records(path))


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
            for name, value in _values(ijson.basic_parse(_after_bom(file)), form):
                name = str(count) if name is None else name
                yield Record(f"record {name}", name, value)
                count += 1
    # A ValueError is text in another encoding. A SystemError is how ijson's C code says that a number has more digits
    # than Python reads; it may come up at any call after the piece of the file with that number was read.
    except (ijson.JSONError, _TooDeep, ValueError, SystemError) as error:
        text = " ".join(str(error).split())[:80]
        reason = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) or "UTF" in text else "cut short"
        reason = "nested too deeply" if isinstance(error, _TooDeep) else reason
        reason = "no JSON with numbers of a sane length" if isinstance(error, SystemError) else reason
        yield Record(f"after {count} records", "", Unreadable(f"the file is {reason} from here on: {text}"))
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None


def _values(events: Iterator[tuple[str, Any]], form: Form) -> Iterator[tuple[str | None, Any]]:
    """The values in the outermost array or object of a JSON text with their keys, or in the array of prompts."""
    import ijson

    next(events)
    key: str | None = None
    builder, depth = None, 0
    for event, value in events:
        if builder is None:
            # Between values: a key, the end, or the beginning of the next value.
            if event == "map_key":
                key = value
                continue
            if event in ("end_map", "end_array"):
                continue
            if form == "prompts" and key in _PROMPTS_KEYS and event == "start_array":
                key = None
                continue
            builder, depth = ijson.ObjectBuilder(), 0
        depth += event.startswith("start_") - event.startswith("end_")
        if depth > _DEEPEST:
            raise _TooDeep(f"more than {_DEEPEST} levels")
        builder.event(event, float(value) if isinstance(value, Decimal) else value)
        if depth == 0:
            if form != "prompts" or key is None:
                yield key, builder.value
            builder = None


class _TooDeep(Exception):
    """JSON that no data set is nested like."""


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
