"""The first lines of a GGUF file, without any package: what kind of file it is.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import IO

_STRING = 8
# Bytes of each scalar type; arrays, which come after what is looked for here, end the reading.
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_LONGEST = 1 << 16


def is_adapter(path: Path) -> bool:
    """Whether a GGUF file holds a LoRA adapter and no model; False also for what is no GGUF file."""
    return header_strings(path).get("general.type") == "adapter"


def header_strings(path: Path) -> dict[str, str]:
    """The texts at the beginning of a header, up to the first list; empty for what is no GGUF file."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                return {}
            _version, _tensors, count = struct.unpack("<IQQ", file.read(20))
            return _strings(file, count)
    except (OSError, struct.error, UnicodeDecodeError, ValueError):
        return {}


def _strings(file: IO[bytes], count: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for _ in range(count):
        key = _text(file)
        (kind,) = struct.unpack("<I", file.read(4))
        if kind == _STRING:
            found[key] = _text(file)
        elif kind in _SCALARS:
            file.read(_SCALARS[kind])
        else:
            break
    return found


def _text(file: IO[bytes]) -> str:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > _LONGEST:
        raise ValueError(f"a text of {length} bytes")
    return file.read(length).decode("utf-8")
