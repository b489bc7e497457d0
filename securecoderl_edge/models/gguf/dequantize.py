"""The numbers of quantized tensors: by ggml's own functions where llama-cpp-python is installed, else by gguf's.

Both give the same bits; ggml's take a twentieth of the time or less.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securecoderl_edge.models.gguf.layout import gguf_package

if TYPE_CHECKING:
    import numpy as np

_LIBRARY = {"darwin": "libggml-base.dylib", "win32": "ggml-base.dll"}.get(sys.platform, "libggml-base.so")


def dequantize(stored: np.ndarray[Any, Any], kind: Any) -> np.ndarray[Any, Any]:
    """The numbers (rows, columns) of ``stored`` (rows, bytes), whole blocks of a type of gguf's, in float32."""
    import numpy as np

    gguf = gguf_package()
    function = _function(kind.name)
    if function is None:
        return gguf.quants.dequantize(stored, kind)  # type: ignore[no-any-return]
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    stored = np.ascontiguousarray(stored)
    rows, row_bytes = stored.shape
    numbers = np.empty((rows, row_bytes // block_bytes * block), np.float32)
    function(stored.ctypes.data, numbers.ctypes.data, numbers.size)
    return numbers


@cache
def _function(name: str) -> Callable[[int, int, int], None] | None:
    """ggml's function for a type; None if there is none, as for float types, or no library."""
    found = importlib.util.find_spec("llama_cpp")
    for folder in (found.submodule_search_locations if found else None) or []:
        try:
            library = ctypes.CDLL(str(Path(folder) / "lib" / _LIBRARY))
            function: Any = getattr(library, f"dequantize_row_{name.lower().replace('_k', '_K')}")
        except (OSError, AttributeError):
            continue
        function.argtypes, function.restype = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64), None
        return function  # type: ignore[no-any-return]
    return None
