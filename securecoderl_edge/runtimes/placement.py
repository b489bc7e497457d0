"""Where a model is computed: the CPU, or a GPU as far as its runtime can use one."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from securecoderl_edge.errors import UsageError, needs
from securecoderl_edge.models.catalog import DEFAULT_PULL
from securecoderl_edge.models.files import BUILT_IN
from securecoderl_edge.models.packages import find_torch
from securecoderl_edge.models.stored import pulled
from securecoderl_edge.runtimes.spec import ModelSpec

ALL_LAYERS = -1  # llama.cpp's number for it
_CUDA_PROVIDER = "CUDAExecutionProvider"
_ONLY_FATAL = 4


@dataclass(frozen=True)
class Placement:
    """A resolved device, ``cpu`` or ``cuda``, and how many layers of a GGUF file are on it."""

    device: str = "cpu"
    gpu_layers: int = 0


def choose_placement(spec: ModelSpec, device: str = "cpu", gpu_layers: int | None = None) -> Placement:
    """Resolve ``auto`` for a model: a GPU if its runtime can use one.

    Args:
        gpu_layers: of a GGUF file; all by default.

    Raises:
        UsageError: a GPU is asked for that the model's runtime cannot use.
        MissingExtra: the runtime's packages are not installed.
    """
    if device == "cpu":
        return Placement()
    if spec.kind == "hf":
        return Placement(_torchs_device(device))
    is_possible, fix = _in_llama_cpp() if spec.kind == "gguf" else _in_onnxruntime()
    is_wanted = device == "cuda" or (spec.kind == "gguf" and bool(gpu_layers))
    if not is_possible and is_wanted:
        raise UsageError(f"{spec.label}: no GPU can compute it. {fix}")
    if not is_possible or (spec.kind == "gguf" and gpu_layers == 0):
        return Placement()
    return Placement("cuda", 0 if spec.kind == "onnx" else ALL_LAYERS if gpu_layers is None else gpu_layers)


def check_device(
    specs: Sequence[ModelSpec],
    device: str,
    gpu_layers: int | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> None:
    """Check, before anything slow begins, that all models can be computed where they should be.

    Args:
        tell: called with one line if ``auto`` passes over a GPU that cannot be used.

    Raises:
        UsageError: ``gpu_layers`` has no effect; others, too, as in `choose_placement`.
        MissingExtra: as in `choose_placement`; for a built-in model, also on the CPU.
    """
    if any(spec.source in BUILT_IN for spec in specs):
        # Not everyone wants it who gets it by default.
        extra = "" if importlib.util.find_spec("llama_cpp") else "the extra laptop, and "
        how = f"--model {pulled()[0]}" if pulled() else f"sce models pull {DEFAULT_PULL}"
        find_torch(f"(or take a model that needs no torch: {extra}{how})")
    if gpu_layers is not None and (device == "cpu" or all(spec.kind != "gguf" for spec in specs)):
        raise UsageError("--gpu-layers is for GGUF files on a GPU. Leave it out, or add --device cuda.")
    for spec in specs if device == "cuda" else ():
        choose_placement(spec, device, gpu_layers)
    if device == "auto" and any(spec.kind == "hf" for spec in specs):
        _torchs_device(device, tell)


def check_childs_device(device: str) -> None:
    """As `check_device`, for a model in torch in a child process, which resolves ``auto``; torch is not imported."""
    if device == "cuda":
        _torchs_device(device)
    else:
        find_torch()


def _torchs_device(device: str, tell: Callable[[str], None] = lambda line: None) -> str:
    from securecoderl_edge.models.packages import require_torch

    require_torch()
    from securecoderl_edge.models.device import choose_device

    return choose_device(device, tell)


def _in_llama_cpp() -> tuple[bool, str]:
    with needs("llama_cpp", "gguf"):
        is_possible = can_offload()
    fix = "This llama-cpp-python has no CUDA: reinstall it with CMAKE_ARGS=-DGGML_CUDA=on, or use --device cpu"
    return is_possible, fix


def _in_onnxruntime() -> tuple[bool, str]:
    with needs("onnxruntime", "onnx"):
        import onnxruntime
    if _CUDA_PROVIDER not in onnxruntime.get_available_providers():
        return False, "This onnxruntime has no CUDA: install onnxruntime-gpu instead, or use --device cpu"
    fix = "onnxruntime cannot load CUDA: pip install 'onnxruntime-gpu[cuda,cudnn]', or use --device cpu"
    return _onnxruntime_loads_cuda(), fix


@cache
def _onnxruntime_loads_cuda() -> bool:
    """Try it out on the smallest graph: a build with CUDA names it also where CUDA's libraries are missing."""
    with needs("onnx", "onnx"):
        import onnx
    import onnxruntime

    make, kind = onnx.helper, onnx.TensorProto.FLOAT
    names = [make.make_tensor_value_info(name, kind, [1]) for name in ("input", "output")]
    graph = make.make_graph([make.make_node("Identity", ["input"], ["output"])], "identity", names[:1], names[1:])
    # An old version of the format, which every onnxruntime reads.
    model = make.make_model(graph, ir_version=8, opset_imports=[make.make_opsetid("", 13)])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ONLY_FATAL
    providers = [_CUDA_PROVIDER, "CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)
    return bool(session.get_providers()[0] == _CUDA_PROVIDER)


def can_offload() -> bool:
    """Whether this build of llama.cpp can compute on a GPU of this machine; one for CPUs is not imported to find out.

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
    """Whether llama-cpp-python was built for CPUs only, by the names of its libraries."""
    package = importlib.util.find_spec("llama_cpp")
    # LLAMA_CPP_LIB_PATH is llama-cpp-python's own: the folder of other libraries.
    chosen = os.environ.get("LLAMA_CPP_LIB_PATH") or (
        package and package.origin and Path(package.origin).parent / "lib"
    )
    names = [file.name for file in Path(chosen).glob("*ggml-*")] if chosen else []
    return bool(names) and all(re.search("ggml-(base|blas|cpu)", name) for name in names)
