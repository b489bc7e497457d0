"""Rows of Parquet and Arrow files, in bounded memory: such a file can be a millionth of its content.

pyarrow is native code, which reads files of strangers in this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError, needs
from securecoderl_edge.problems.datasets.records import Record, Unreadable
from securecoderl_edge.system.heap import bounded_memory

_ROWS_AT_A_TIME = 64
# Of a batch, and of what reading one may take.
_BYTES_AT_A_TIME, _MOST_BYTES, _MOST_VALUES = 256 << 20, 768 << 20, 4_000_000
_SMALL = 64 << 20
# What its rows may have in all: so many times the bytes of the file, and these.
_MOST_TIMES, _ANYWAY = 200, 1 << 30


def rows_of_table(path: Path, form: str) -> Iterator[Record]:
    """The rows of a file in ``parquet`` or ``arrow``; errors as in `record_files.read_records`."""
    with needs("pyarrow", "hub", "(to read Parquet and Arrow files)"):
        import pyarrow
    number, batches = 0, _batches(path, form)
    try:
        left = _ANYWAY + _MOST_TIMES * path.stat().st_size
        while True:
            with bounded_memory(_MOST_BYTES):
                batch = next(batches, None)
            if batch is None:
                break
            for value in _values_of(batch):
                left -= _size(value)
                if left < 0:
                    raise SceError(f"{path}: row {number}: the rows have more than {_MOST_TIMES} times its bytes")
                yield Record(f"row {number}", str(number), value)
                number += 1
    except MemoryError:
        raise SceError(f"{path}: row {number} takes more than {_MOST_BYTES >> 20:,} MiB of memory") from None
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:  # such as a name that is no text
        if number == 0:
            raise SceError(
                f"{path}: damaged {form.capitalize()} file ({str(error)[:120]}); download it again"
            ) from None
        yield Record(f"after {number} rows", "", Unreadable("the file is damaged from here on"))


def _batches(path: Path, form: str) -> Iterator[Any]:
    """Pieces of a table, without its times: they have values that Python cannot represent, and nobody needs them."""
    import pyarrow.ipc
    import pyarrow.parquet

    def kept(schema: Any) -> list[str]:
        return [field.name for field in schema if not pyarrow.types.is_temporal(field.type)]

    if form == "parquet":
        with pyarrow.parquet.ParquetFile(path) as table:
            columns = kept(table.schema_arrow)
            for group in range(table.num_row_groups):
                rows = _rows_at_a_time(table.metadata.row_group(group))
                yield from table.iter_batches(batch_size=rows, row_groups=[group], columns=columns)
        return
    with pyarrow.memory_map(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        reader = pyarrow.ipc.open_file(source) if is_file else pyarrow.ipc.open_stream(source)
        batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
        for batch in batches:
            batch.validate(full=True)  # Arrow believes what a file says about its own sizes
            yield batch.select(kept(batch.schema))


def _rows_at_a_time(group: Any) -> int:
    """Rows of a row group that fit into memory, even if each has the longest value of a dictionary."""
    longest = max((group.column(number).total_uncompressed_size for number in range(group.num_columns)), default=0)
    return max(1, min(_ROWS_AT_A_TIME, _BYTES_AT_A_TIME // max(1, longest)))


def _values_of(batch: Any) -> Iterator[Any]:
    """The rows of a batch; those of a small one at once, which takes a tenth of the time."""
    is_small = batch.nbytes < _SMALL and _count_all(batch) <= _MOST_VALUES
    step = batch.num_rows if is_small else 1
    for first in range(0, batch.num_rows, max(1, step)):
        with bounded_memory(_MOST_BYTES):
            rows = [_of_row(batch, row, is_small) for row in range(first, first + step)]
        yield from rows


def _of_row(batch: Any, row: int, is_small: bool) -> Any:
    try:
        own = batch.slice(row, 1)
        if not is_small and _count_all(own) > _MOST_VALUES:
            return Unreadable(f"more than {_MOST_VALUES:,} values")
        return own.to_pylist()[0]
    except UnicodeDecodeError:
        return Unreadable("not UTF-8 text")
    except (ValueError, OverflowError):
        return Unreadable("a value that Python cannot represent")


def _count_all(batch: Any) -> int:
    return sum(map(_count, batch.columns))


def _count(array: Any) -> int:
    """The number of values in an array, with those in lists and structures."""
    parts = array.flatten() if hasattr(array, "flatten") else ()
    return len(array) + sum(map(_count, parts if isinstance(parts, list) else (parts,) if parts else ()))


def _size(value: Any) -> int:
    """About as many bytes as a value has."""
    if isinstance(value, (str, bytes)):
        return len(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 8 + sum(map(_size, inner))
