"""Whether llama.cpp can compute on a GPU; a build for CPUs is not imported to find out."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path


def can_offload() -> bool:
    """Whether this build of llama.cpp can compute on a GPU of this machine.

    Raises:
        ImportError: llama-cpp-python is not installed, or broken.
    """
    # The import takes 0.15 s, a fifth of the CPU time of a short `sce generate`.
    if _is_for_cpus():
        return False
    import llama_cpp

    from securecoderl_edge.runtimes.gguf.llama import quiet

    quiet()
    return bool(llama_cpp.llama_supports_gpu_offload())


def _is_for_cpus() -> bool:
    package = importlib.util.find_spec("llama_cpp")
    # LLAMA_CPP_LIB_PATH is llama-cpp-python's own: the folder of other libraries.
    chosen = os.environ.get("LLAMA_CPP_LIB_PATH") or (
        package and package.origin and Path(package.origin).parent / "lib"
    )
    names = [file.name for file in Path(chosen).glob("*ggml-*")] if chosen else []
    return bool(names) and all(re.search("ggml-(base|blas|cpu)", name) for name in names)
