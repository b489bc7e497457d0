"""Readers for files of records, one record at a time: JSONL, a JSON array, an object of records by name, the JSON of
SecureCodeRL, CSV, Parquet, Arrow; text files may be compressed with gzip, bzip2 or xz.

A record that cannot be read is yielded as `Unreadable`, and reading continues if the form permits: after a syntax error
in a JSON text the start of the next record is unknown.
"""

from __future__ import annotations

import codecs
import csv
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.datasets.records import Record, Unreadable
from securecoderl_edge.problems.datasets.tables import rows_of_table
from securecoderl_edge.system.rows import DAMAGES, LONGEST_LINE, bounded_lines, excess, open_unpacked

Form = Literal["lines", "array", "object", "prompts", "csv", "parquet", "arrow"]

_BOM = b"\xef\xbb\xbf"
_PIECE = 1 << 16
# The keys of SecureCodeRL's prompts; the second is from an older form, without tests.
_PROMPTS_KEYS = ("prompts_with_tests", "prompts")
_PROMPTS = re.compile(rb'\A\{[^{]*?"(?:prompts_with_tests|prompts)"\s*:\s*\[', re.DOTALL)
# A longer record is invalid: a string without an end would fill the memory.
_LONGEST_VALUE = LONGEST_LINE
# A syntax error this close to the end of the text read so far may be an incomplete record.
_LONGEST_TOKEN = 16
_SPACE = re.compile(r"[ \t\r\n]+")
_UNDECODED = re.compile("[\udc80-\udcff]")


def read_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file in constant memory.

    Raises:
        UsageError: no such file.
        SceError: it cannot be read at all, or is UTF-16 text.
        MissingExtra: Parquet without pyarrow.
    """
    form = form_of(path)
    if form in ("parquet", "arrow"):
        return rows_of_table(path, form)
    if form == "csv":
        return _cells(path)
    return _lines(path) if form == "lines" else _items(path, form)


def form_of(path: Path) -> Form:
    """The outer form of a file, from its beginning; errors as in `read_records`."""
    if not path.exists():
        raise UsageError(f"{path}: no such file")
    if path.is_dir():
        raise UsageError(f"{path}: a folder, not a file")
    try:
        with open_unpacked(path) as file:
            head = file.read(_PIECE)
    except (OSError, *DAMAGES) as error:
        raise SceError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):  # a file, a stream
        return "arrow"
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        raise SceError(f"{path}: compressed with Zstandard. Decompress it with: zstd -d {path}")
    if ".csv" in path.suffixes:
        return "csv"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SceError(f"{path}: UTF-16 text; convert it to UTF-8")
    head = head.removeprefix(_BOM).lstrip()
    if head.startswith(b"["):
        return "array"
    if _PROMPTS.match(head):
        return "prompts"
    return "object" if _is_object_of_records(head) else "lines"


def given_id(record: dict[str, Any], names: Sequence[str]) -> str | None:
    """The text or number in a record under the first of the names that has a value; None without one."""
    value = first_of(record, names)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    return str(value).strip() or None


def first_of(record: dict[str, Any], names: Sequence[str]) -> Any:
    """The value in a record under the first of the names that has one."""
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)


def count_records(path: Path) -> int:
    """Number of readable records, up to a break in the file."""
    return sum(not isinstance(record.value, Unreadable) for record in read_records(path))


def _is_object_of_records(head: bytes) -> bool:
    """Whether a text with this beginning is one object whose values are records, not the first of many lines."""
    first, newline, rest = head.partition(b"\n")
    try:
        line = json.loads(first)
    except (ValueError, RecursionError):
        line = None
    if isinstance(line, dict) and (
        (newline and rest.strip()) or not all(isinstance(each, dict) for each in line.values())
    ):
        return False
    after_key = head.partition(b":")[2].lstrip()
    return head.startswith(b"{") and after_key.startswith(b"{")


def _integer(digits: str) -> int | Unreadable:
    """An integer; Python rejects integers with thousands of digits."""
    limit = sys.get_int_max_str_digits()
    return Unreadable("a number with too many digits") if limit and len(digits) > limit else int(digits)


_DECODER = json.JSONDecoder(parse_int=_integer)


def _decoded(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value at ``start`` and its end; `Unreadable` for a value that is not valid text.

    Raises:
        json.JSONDecodeError: not a JSON value.
    """
    value, end = _DECODER.raw_decode(text, start)
    is_damaged = not text.isascii() and _UNDECODED.search(text, start, end)
    return (Unreadable("not UTF-8 text") if is_damaged else value), end


def _lines(path: Path) -> Iterator[Record]:
    name = -1
    try:
        with open_unpacked(path) as lines:
            for number, line in enumerate(bounded_lines(lines), 1):
                if line is None or line.strip():
                    name += 1
                    value = Unreadable("too long") if line is None else _of_line(line)
                    yield Record(str(number), str(name), value)
    except DAMAGES:
        yield Record(f"after record {name}", "", Unreadable("the file is truncated"))
    except OSError as error:
        raise SceError(f"{path}: {error.strerror or error}") from None


def _of_line(line: bytes) -> Any:
    if reason := excess(line):
        return Unreadable(reason)
    text = line.decode("utf-8", "surrogateescape").removeprefix("\ufeff").strip()
    try:
        value, end = _decoded(text)
    except RecursionError:
        return Unreadable("nested too deeply")
    except ValueError:
        return Unreadable("not UTF-8 text" if _UNDECODED.search(text) else "not valid JSON")
    return value if end == len(text) else Unreadable("not valid JSON")


def _items(path: Path, form: Form) -> Iterator[Record]:
    count = 0
    try:
        with open_unpacked(path) as file:
            text = _Text(file)
            for key, value in _values(text, form):
                name = str(count) if key is None else key
                yield Record(f"record {name}", name, value)
                count += 1
            if text.sign():
                text.skip("end of the file")
    except RecursionError:
        yield Record(f"after {count} records", "", Unreadable("the file is nested too deeply from here on"))
    except (json.JSONDecodeError, *DAMAGES) as error:
        is_broken = isinstance(error, json.JSONDecodeError) and not _is_cut(error)
        fault = "the file is not valid JSON from here on" if is_broken else "the file is truncated"
        yield Record(f"after {count} records", "", Unreadable(fault))
    except OSError as error:
        raise SceError(f"{path}: {error.strerror or error}") from None


def _values(text: _Text, form: Form) -> Iterator[tuple[str | None, Any]]:
    """The values in the next array or object, with their keys; or, of prompts, those in its arrays of prompts."""
    end = "]" if form == "array" else "}"
    text.skip("[{")
    while text.sign() != end:
        key = None
        if form != "array":
            key = str(text.value())
            text.skip(":")
        if form != "prompts":
            yield key, text.value()
        elif key in _PROMPTS_KEYS and text.sign() == "[":
            yield from _values(text, "array")
        else:
            text.value()
        if text.sign() != end:
            text.skip(",")
    text.skip(end)


class _Text:
    """A file of JSON, decoded value by value; only the piece with the current value is in memory.

    No library does this for files of strangers: ijson 3.6 crashes the process at an integer of 4,301 digits, ends at
    NaN and at the first byte that is not UTF-8, and replaces surrogates.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8")("surrogateescape").decode
        self._text, self._start, self._is_whole, self._is_counted = "", 0, False, False
        self._read(_PIECE)
        self._text = self._text.removeprefix("\ufeff")

    def sign(self) -> str:
        """Peek at the next character that is not white space; empty at the end."""
        while True:
            if space := _SPACE.match(self._text, self._start):
                self._start = space.end()
            if self._start < len(self._text) or self._is_whole:
                return self._text[self._start : self._start + 1]
            self._read(_PIECE)

    def skip(self, signs: str) -> None:
        """Skip one of the characters in ``signs``.

        Raises:
            json.JSONDecodeError: another character follows.
        """
        if not (sign := self.sign()) or sign not in signs:
            raise json.JSONDecodeError(f"Expecting {signs}", self._text, self._start)
        self._start += 1

    def value(self) -> Any:
        """The next value.

        Raises:
            json.JSONDecodeError, RecursionError: not a JSON value.
        """
        self.sign()
        size = _PIECE
        while True:
            if self._is_excess():
                raise json.JSONDecodeError("Too many values", self._text, self._start)
            try:
                value, end = _decoded(self._text, self._start)
                if end < len(self._text) or self._is_whole:
                    self._start = end
                    return value
            except json.JSONDecodeError as error:
                if self._is_whole or not _is_cut(error) or len(error.doc) - self._start > _LONGEST_VALUE:
                    raise
            if len(self._text) - self._start > _LONGEST_VALUE:  # a number without an end
                raise json.JSONDecodeError("Too long a value", self._text, self._start)
            self._read(size)
            size *= 2  # so that a long value is not decoded from its beginning for every piece of it

    def _is_excess(self) -> bool:
        """Whether the text read so far has too many values; what is left of it after some of them has no more."""
        if self._is_counted or len(self._text) - self._start <= _PIECE:
            return False
        self._is_counted = True
        return bool(excess(self._text[self._start :].encode("utf-8", "surrogateescape")))

    def _read(self, size: int) -> None:
        piece = self._file.read(size)
        self._is_whole = len(piece) < size
        self._text = self._text[self._start :] + self._decode(piece, final=self._is_whole)
        self._start, self._is_counted = 0, False


def _is_cut(error: json.JSONDecodeError) -> bool:
    return error.msg.startswith("Unterminated string") or error.pos >= len(error.doc) - _LONGEST_TOKEN


def _cells(path: Path) -> Iterator[Record]:
    """The rows of a CSV file; a cell with a JSON list or object has that value, an empty one is left out."""
    csv.field_size_limit(_LONGEST_VALUE)
    number = 0
    try:
        with open_unpacked(path) as file:
            lines = _CsvLines(file)
            for number, row in enumerate(csv.DictReader(lines), 1):
                lines.characters = 0
                cells = {(key or "").removeprefix("\ufeff"): _of_cell(cell) for key, cell in row.items() if cell}
                is_damaged = any(isinstance(each, Unreadable) for each in cells.values())
                yield Record(f"row {number}", str(number - 1), Unreadable("not UTF-8 text") if is_damaged else cells)
    except (csv.Error, *DAMAGES):
        yield Record(f"after {number} rows", "", Unreadable("the file is damaged from here on"))
    except OSError as error:
        raise SceError(f"{path}: {error.strerror or error}") from None


class _CsvLines(Iterator[str]):
    """The lines of a CSV file, decoded. A row can have many, in cells with line ends.

    Attributes:
        characters: of the row so far; its reader sets them to 0 when it has a row.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._lines, self.characters = bounded_lines(file), 0

    def __next__(self) -> str:
        """The next line.

        Raises:
            csv.Error: the row has several lines, and more characters than one may have.
        """
        line = next(self._lines)
        text = "\0" if line is None or excess(line) else line.decode("utf-8", "surrogateescape")
        if self.characters and self.characters + len(text) > _LONGEST_VALUE:
            raise csv.Error("too long a row")
        self.characters += len(text)
        return text


def _of_cell(cell: Any) -> Any:
    if not isinstance(cell, str):  # cells beyond the header
        return None
    value = _of_line(cell.encode("utf-8", "surrogateescape")) if cell.lstrip()[:1] in ("[", "{") else None
    if isinstance(value, (list, dict)):
        return value
    return Unreadable("not UTF-8 text") if _UNDECODED.search(cell) else cell
