"""Whether llama.cpp can compute on a GPU; without importing it, if its build has none."""

from __future__ import annotations

import importlib.util
import os
import re
from pathlib import Path

_CPU = {"base", "blas", "cpu"}


def can_offload() -> bool:
    """Whether this build of llama.cpp can compute on a GPU of this machine.

    Raises:
        ImportError: llama-cpp-python is not installed, or broken.
    """
    # The import takes 0.15 s, a fifth of the CPU time of a short `sce generate`.
    kinds = _backends()
    if kinds and kinds <= _CPU:
        return False
    import llama_cpp

    from securecoderl_edge.runtimes.gguf.llama import quiet

    quiet()
    return bool(llama_cpp.llama_supports_gpu_offload())


def _backends() -> set[str]:
    """What the build's libraries compute on, such as ``cpu`` and ``cuda``; empty if it is one single library."""
    package = importlib.util.find_spec("llama_cpp")
    within = [Path(folder, "lib") for folder in (package and package.submodule_search_locations) or []]
    chosen = os.environ.get("LLAMA_CPP_LIB_PATH")  # llama-cpp-python's own, for other libraries than its package's
    names = [file.name for folder in ([Path(chosen)] if chosen else within) for file in folder.glob("*ggml-*")]
    return {found.group(1) for name in names if (found := re.search(r"ggml-([a-z]+)", name))}
