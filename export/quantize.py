"""Quantization by llama.cpp, from a float GGUF file, in a child process.

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
import sys
from pathlib import Path

from securecoderl_edge.errors import SceError
from securecoderl_edge.system import processes
from securecoderl_edge.system.machine import cpu_count
from securecoderl_edge.system.processes import ask

# llama.cpp has the same names in capitals.
LLAMA_CPP_TYPES = ("q6_k", "q5_k_m", "q5_k_s", "q5_0", "q4_k_m", "q4_k_s", "q4_0", "iq4_nl", "iq4_xs", "q3_k_m")


def quantize(source: Path, target: Path, kind: str) -> None:
    """Quantize the float GGUF file ``source`` to the type ``kind``, and write it to ``target``.

    Raises:
        SceError: llama.cpp fails or crashes.
    """
    request = {"source": str(source), "target": str(target), "type": kind.upper()}
    answers = ask("securecoderl_edge.export.quantize", request)
    if answers.death:
        raise SceError(f"llama.cpp could not quantize the float file to {kind}: it {answers.crash_report()}")


def main() -> None:
    """Read a request from standard input and serve it; the exit status is that of llama.cpp."""
    import llama_cpp

    from securecoderl_edge.runtimes.gguf.llama import quiet

    request, _ = processes.request(), processes.answers()  # output of llama.cpp is not an answer
    quiet()
    llama_cpp.llama_backend_init()
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{request['type']}")
    parameters.nthread = cpu_count()
    status = llama_cpp.llama_model_quantize(
        request["source"].encode(), request["target"].encode(), ctypes.byref(parameters)
    )
    sys.exit(1 if status else 0)


if __name__ == "__main__":
    main()
