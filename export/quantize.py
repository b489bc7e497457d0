"""Quantization by llama.cpp, from another GGUF file, tensor by tensor, in a child process.

    q8_0             half the size of f16 (`gguf` writes it itself)
    q6_k             smaller
    q5_k_m, q5_k_s, q5_0
    q4_k_m           a third of the size of f16; the usual choice for little memory
    q4_k_s, q4_0     smaller
    iq4_nl, iq4_xs   similar size, with unevenly spaced values
    q3_k_m           the smallest type

k-quants need rows of a multiple of 256. For other rows llama.cpp chooses another type, so the size of a file is read
from the file.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.system import processes
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.system.processes import ask_watched, write_message

# llama.cpp has the same names in capitals.
LLAMA_CPP_TYPES = ("q6_k", "q5_k_m", "q5_k_s", "q5_0", "q4_k_m", "q4_k_s", "q4_0", "iq4_nl", "iq4_xs", "q3_k_m")


# What llama.cpp logs before each tensor, and the level of its errors.
_TENSOR, _ERROR = re.compile(rb"\[\s*(\d+)/\s*(\d+)\]"), 4


def quantize(
    source: Path,
    target: Path,
    kind: str,
    on_tensor: Callable[[int, int], None] = lambda done, total: None,
    pre_tokenizer: str | None = None,
) -> None:
    """Quantize the GGUF file ``source`` to the type ``kind``, and write it to ``target`` with the same metadata.

    Args:
        kind: a type of llama.cpp, also a float type.
        on_tensor: called with the number of tensors that are written, and that of all.
        pre_tokenizer: llama.cpp's name of the pre-tokenizer, in place of the one that ``source`` names.

    Raises:
        SceError: llama.cpp fails or crashes.
    """
    request = {"source": str(source), "target": str(target), "type": kind.upper(), "pre_tokenizer": pre_tokenizer}

    def watch(message: dict[str, Any]) -> None:
        on_tensor(message["done"], message["total"])

    answers = ask_watched("securecoderl_edge.export.quantize", request, watch)
    if answers.death:
        raise SceError(f"llama.cpp could not quantize {source} to {kind}: it {answers.crash_report()}")


def main() -> None:
    """Read a request from standard input and serve it; the exit status is that of llama.cpp."""
    import llama_cpp

    request, answers = processes.request(), processes.answers()  # output of llama.cpp is not an answer

    @llama_cpp.llama_log_callback  # type: ignore[untyped-decorator, unused-ignore]
    def watch(level: int, text: bytes, _data: Any) -> None:
        if level == _ERROR:
            sys.stderr.write(text.decode("utf-8", "replace"))
        elif found := _TENSOR.match(text):
            write_message(answers, {"done": int(found[1]) - 1, "total": int(found[2])})

    llama_cpp.llama_log_set(watch, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    parameters = llama_cpp.llama_model_quantize_default_params()
    everything = "ALL" if request["type"] == "F32" else "MOSTLY"
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_{everything}_{request['type']}")
    parameters.nthread = cpu_count()
    parameters.allow_requantize = True
    overrides = (llama_cpp.llama_model_kv_override * 2)()  # the last one is empty, and ends the list
    if request["pre_tokenizer"] is not None:
        overrides[0].tag = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_STR
        overrides[0].key = b"tokenizer.ggml.pre"
        overrides[0].value.val_str = request["pre_tokenizer"].encode()
        parameters.kv_overrides = overrides
    status = llama_cpp.llama_model_quantize(
        request["source"].encode(), request["target"].encode(), ctypes.byref(parameters)
    )
    sys.exit(1 if status else 0)


if __name__ == "__main__":
    main()
