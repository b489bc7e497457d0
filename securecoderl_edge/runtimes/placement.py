"""Where a model is computed: the CPU, or a GPU as far as its runtime can use one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from securecoderl_edge.errors import UsageError, needs
from securecoderl_edge.models.packages import find_torch
from securecoderl_edge.runtimes.gguf import offload
from securecoderl_edge.runtimes.spec import ModelSpec

ALL_LAYERS = -1  # llama.cpp's number for it
_CUDA_PROVIDER = "CUDAExecutionProvider"
_ONLY_FATAL = 4
# A graph whose output is its input, in the format of ONNX.
_IDENTITY = (
    b'\x08\x07:7\n\x10\n\x01x\x12\x01y"\x08Identity\x12\x01gZ\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01'
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x02\x10\r"
)


@dataclass(frozen=True)
class Placement:
    """A resolved device, ``cpu`` or ``cuda``, and how many layers of a GGUF file are on it."""

    device: str = "cpu"
    gpu_layers: int = 0


def place(spec: ModelSpec, device: str = "cpu", gpu_layers: int | None = None) -> Placement:
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
    """Check, before anything slow begins, that all models can be computed where they should be. Errors as in `place`.

    Args:
        tell: called with one line if ``auto`` passes over a GPU that cannot be used.

    Raises:
        UsageError: ``gpu_layers`` has no effect.
    """
    if gpu_layers is not None and (device == "cpu" or all(spec.kind != "gguf" for spec in specs)):
        raise UsageError("--gpu-layers is for GGUF files on a GPU. Leave it out, or add --device cuda.")
    for spec in specs if device == "cuda" else ():
        place(spec, device, gpu_layers)
    if device == "auto" and any(spec.kind == "hf" for spec in specs):
        _torchs_device(device, tell)


def check_childs_device(device: str) -> None:
    """As `check_device`, for a model in torch in a child process, which resolves ``auto``; torch is not imported."""
    if device == "cuda":
        _torchs_device(device)
    else:
        find_torch()


def _torchs_device(asked: str, tell: Callable[[str], None] = lambda line: None) -> str:
    from securecoderl_edge.models.packages import require_torch

    require_torch()
    from securecoderl_edge.models.device import choose_device

    return choose_device(asked, tell)


def _in_llama_cpp() -> tuple[bool, str]:
    with needs("llama_cpp", "gguf"):
        is_possible = offload.can_offload()
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
    """Try it out: a build with CUDA names it also where CUDA's libraries are missing."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ONLY_FATAL
    session = onnxruntime.InferenceSession(_IDENTITY, options, providers=[_CUDA_PROVIDER, "CPUExecutionProvider"])
    return bool(session.get_providers()[0] == _CUDA_PROVIDER)
