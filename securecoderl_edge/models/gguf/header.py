"""A reader for the header of a GGUF file, its metadata and tensors, without other packages.

Files may be damaged or malicious: every size is checked against the size of the file.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from securecoderl_edge.errors import SceError

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
# How each scalar type is stored.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_LONGEST_TEXT = 1 << 24  # chat templates are the longest
_MOST_SIZES = 8
_LONGEST_LIST = 4096  # numbers per layer; those of the vocabulary are longer
_MOST_ENTRIES = 1 << 22  # merges of the largest tokenizers are half a million
_ALIGNMENT = 32

Scalar = int | float | bool | str


# llama.cpp reads the divisors of llama3 RoPE from a tensor of this name.
ROPE_DIVISORS = "rope_freqs.weight"
# Of an adapter: the SHA-256 of the GGUF file that it was trained on.
BASE_KEY = "securecoderl_edge.base_sha256"


@dataclass(frozen=True)
class GgufTensor:
    """One tensor: its sizes as the file has them, the fastest first, ggml's number of its type, its place in the file.

    The place may lie outside of the file.
    """

    name: str
    sizes: tuple[int, ...]
    type: int
    start: int


@dataclass(frozen=True)
class GgufHeader:
    """Metadata by its keys, and the tensors; ``lists`` has all lists, or only the short ones of numbers."""

    values: dict[str, Scalar]
    tensors: tuple[GgufTensor, ...]
    lists: dict[str, tuple[Any, ...]]

    @property
    def weights(self) -> tuple[GgufTensor, ...]:
        """The tensors that are weights of the model."""
        return tuple(tensor for tensor in self.tensors if tensor.name != ROPE_DIVISORS)


def is_adapter(path: Path) -> bool:
    """Whether a file is a GGUF file with a LoRA adapter instead of a model."""
    return header_strings(path).get("general.type") == "adapter"


def lacks_pre_tokenizer(path: Path) -> bool:
    """Whether a byte-level vocabulary does not name its pre-tokenizer, so that llama.cpp takes a default one."""
    if header_strings(path).get("tokenizer.ggml.pre"):  # mostly before the vocabulary, which takes 50 ms to skip
        return False
    try:
        values = read_header(path).values
    except SceError:
        return False  # opening it tells more
    return values.get("tokenizer.ggml.model") == "gpt2" and not values.get("tokenizer.ggml.pre")


def header_strings(path: Path) -> dict[str, str]:
    """The texts at the beginning of a header, up to the first list; empty for other files."""
    try:
        with path.open("rb") as file:
            reader = _Reader(file)
            _, count = reader.begin()
            values: dict[str, Scalar] = {}
            for _ in range(count):
                if not reader.pair(values):
                    break
    except (OSError, ValueError):
        return {}
    return {key: value for key, value in values.items() if isinstance(value, str)}


def read_header(path: Path, with_lists: bool = False) -> GgufHeader:
    """The whole header; its lists, such as the vocabulary, only on request.

    Raises:
        SceError: it is not a GGUF file, or damaged.
    """
    try:
        with path.open("rb") as file:
            reader = _Reader(file)
            count, pairs = reader.begin()
            values: dict[str, Scalar] = {}
            lists: dict[str, tuple[Any, ...]] = {}
            for _ in range(pairs):
                reader.pair(values, lists, with_lists)
            tensors = [reader.tensor() for _ in range(count)]
            start = _data_start(values, file.tell())
            return GgufHeader(values, tuple(replace(each, start=start + each.start) for each in tensors), lists)
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise SceError(f"{path}: not a GGUF file, or damaged ({error}); export or download it again") from None


def _data_start(values: dict[str, Scalar], position: int) -> int:
    """Where the data of the first tensor begins, after a header that ends at ``position``."""
    alignment = values.get("general.alignment", _ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"an alignment of {alignment}")
    return -(-position // alignment) * alignment


class _Reader:
    """Reads values one after the other; `ValueError` if the file is too short for them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = os.fstat(file.fileno()).st_size

    def begin(self) -> tuple[int, int]:
        """Read the numbers of tensors and of key-value pairs."""
        if self._take(4) != MAGIC:
            raise ValueError("it does not begin with GGUF")
        version, tensors, pairs = struct.unpack("<IQQ", self._take(20))
        if version not in _VERSIONS:
            raise ValueError(f"version {version} of the format")
        # A tensor and a pair take more than 12 bytes each.
        if tensors + pairs > self._left // 12:
            raise ValueError(f"{tensors} tensors and {pairs} values in {self._left} bytes")
        return tensors, pairs

    def pair(
        self, values: dict[str, Scalar], lists: dict[str, tuple[Any, ...]] | None = None, with_lists: bool = False
    ) -> bool:
        """Read one pair into ``values`` or ``lists``; False at a list, without ``lists``.

        Args:
            with_lists: read all lists, not only the short ones of numbers.
        """
        key, kind = self._text(), int(self._number("I"))
        if kind == _STRING:
            values[key] = self._text()
        elif kind in _SCALARS:
            values[key] = self._number(_SCALARS[kind])
        elif kind == _ARRAY:
            if lists is None:
                return False
            if (entries := self._list(with_lists)) is not None:
                lists[key] = entries
        else:
            raise ValueError(f"{key!r} has the unknown type {kind}")
        return True

    def tensor(self) -> GgufTensor:
        """Read the description of one tensor."""
        name, dimensions = self._text(), self._number("I")
        if dimensions > _MOST_SIZES:
            raise ValueError(f"a tensor with {dimensions} dimensions")
        sizes = tuple(int(self._number("Q")) for _ in range(int(dimensions)))
        kind, offset = self._number("I"), self._number("Q")
        return GgufTensor(name, sizes, int(kind), int(offset))

    def _list(self, is_wanted: bool) -> tuple[Any, ...] | None:
        """A list; of those that are not wanted only a short one of numbers, others are skipped."""
        kind, count = int(self._number("I")), int(self._number("Q"))
        if is_wanted and count > _MOST_ENTRIES:
            raise ValueError(f"a list of {count} entries")
        if kind == _STRING:
            if count > self._left // 8:
                raise ValueError(f"a list of {count} texts in {self._left} bytes")
            texts = self._texts(count, is_wanted)
            return tuple(texts) if is_wanted else None
        if kind in _SCALARS and (is_wanted or count <= _LONGEST_LIST):
            return struct.unpack(packed := f"<{count}{_SCALARS[kind]}", self._take(struct.calcsize(packed)))
        if kind not in _SCALARS:
            raise ValueError(f"a list with the unknown type {kind}")
        self._skip(count * struct.calcsize(f"<{_SCALARS[kind]}"))
        return None

    def _texts(self, count: int, is_wanted: bool) -> list[str]:
        """Read or skip texts; vocabularies have up to a million, so no more is called for each than must be."""
        read, unpack = self._file.read, struct.Struct("<Q").unpack
        texts = []
        for _ in range(count):
            if self._left < 8:
                raise ValueError(f"expected {8 - self._left} more bytes")
            (length,) = unpack(read(8))
            self._left -= 8 + length
            if self._left < 0 or (is_wanted and length > _LONGEST_TEXT):
                raise ValueError(f"a text of {length} bytes")
            if is_wanted:
                texts.append(read(length).decode("utf-8"))
            elif length < 1024:
                read(length)
            else:
                self._file.seek(length, os.SEEK_CUR)
        return texts

    def _text(self) -> str:
        length = int(self._number("Q"))
        if length > _LONGEST_TEXT:
            raise ValueError(f"a text of {length} bytes")
        return self._take(length).decode("utf-8")

    def _number(self, kind: str) -> int | float | bool:
        (value,) = struct.unpack(f"<{kind}", self._take(struct.calcsize(f"<{kind}")))
        return value  # type: ignore[no-any-return]

    def _take(self, count: int) -> bytes:
        self._account_for(count)
        return self._file.read(count)

    def _skip(self, count: int) -> None:
        self._account_for(count)
        self._file.seek(count, os.SEEK_CUR)

    def _account_for(self, count: int) -> None:
        if count > self._left:
            raise ValueError(f"expected {count} more bytes, found {self._left}")
        self._left -= count
