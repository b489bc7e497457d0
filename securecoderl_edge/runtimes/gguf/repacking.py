"""Weights that llama.cpp repacks for its faster kernels, on builds whose AMX kernels must be avoided.

llama.cpp uses either all kinds of repacked weights that the build has, or none (``use_extra_bufts``). Some builds crash
in the kind for AMX. Here the other kind, ``CPU_REPACK``, is requested per tensor, by the public
``tensor_buft_overrides``: with it a q4_k_m file of 1.3 B parameters decodes a third faster (benchmarks/decode.py).
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import llama_cpp

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.gguf.header import read_header
from securecoderl_edge.system.machine import cpu_flags

# ggml's numbers of the types that have such kernels on x86 with AVX2, for multiples of eight rows.
_Q4_0, _Q4_K, _IQ4_NL = 2, 12, 20
_TYPES, _ROWS_AT_A_TIME = (_Q4_0, _Q4_K, _IQ4_NL), 8
_BUFFER = b"CPU_REPACK"
_CPU = 0  # ggml's kind of device


class _Override(ctypes.Structure):
    _fields_ = (("pattern", ctypes.c_char_p), ("buffer_type", ctypes.c_void_p))


def repacked_weights(path: Path) -> Any:
    """The overrides for loading a model, to be kept alive by the caller; None if there is nothing to gain."""
    buffer_type = _find_buffer_type() if "avx2" in cpu_flags() else None
    names = _suitable(path)
    if buffer_type is None or not names:
        return None
    overrides = (_Override * (len(names) + 1))()  # the last one is empty, and ends the list
    for override, name in zip(overrides, names, strict=False):
        override.pattern, override.buffer_type = f"^{re.escape(name)}$".encode(), buffer_type
    return overrides


def _suitable(path: Path) -> list[str]:
    try:
        tensors = read_header(path).tensors
    except SceError:
        return []  # llama.cpp will report the error
    return [
        tensor.name
        for tensor in tensors
        if tensor.type in _TYPES
        and len(tensor.sizes) == 2
        and tensor.sizes[1] % _ROWS_AT_A_TIME == 0
        and not tensor.name.startswith("token_embd")  # read row by row
    ]


def _find_buffer_type() -> int | None:
    """The address of the buffer type, found in the library as llama.cpp does; None in builds without it."""
    folder = Path(llama_cpp.__file__).parent / "lib"
    try:
        ggml, base = (ctypes.CDLL(str(folder / name)) for name in ("libggml.so", "libggml-base.so"))
        device = _call(ggml.ggml_backend_dev_by_type, _CPU)
        registry = _call(base.ggml_backend_dev_backend_reg, ctypes.c_void_p(device))
        name = b"ggml_backend_dev_get_extra_bufts"
        address = _call(base.ggml_backend_reg_get_proc_address, ctypes.c_void_p(registry), ctypes.c_char_p(name))
    except (OSError, AttributeError):
        return None
    if not address:
        return None
    types = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)(device)
    name_of = base.ggml_backend_buft_name
    name_of.argtypes, name_of.restype = (ctypes.c_void_p,), ctypes.c_char_p
    index = 0
    while types and types[index]:
        if name_of(types[index]) == _BUFFER:
            return int(types[index])
        index += 1
    return None


def _call(function: Any, *arguments: Any) -> int | None:
    """Call a function of the library that returns an address."""
    function.restype = ctypes.c_void_p
    address: int | None = function(*arguments)
    return address
