"""Ways to run a model, behind one protocol; heavy imports happen when one is opened."""

from __future__ import annotations

from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models import ModelSpec
from securecoderl_edge.runtimes.protocol import Runtime

# Sequences decoded side by side: where more no longer raises the speed on two to eight cores.
DEFAULT_PARALLEL = {"gguf": 32, "onnx": 32, "hf": 64}


def open_runtime(
    spec: ModelSpec, *, threads: int | None = None, parallel: int | None = None, device: str = "cpu"
) -> Runtime:
    """Load a model.

    Args:
        threads: CPU threads; None leaves the choice to the runtime.
        parallel: sequences decoded side by side; None takes `DEFAULT_PARALLEL`.
        device: ``cpu`` is the only one.

    Raises:
        UsageError: another device.
        MissingExtra: the runtime's packages are not installed.
        SceError: the files are damaged or of a kind that the runtime cannot read.
    """
    if device != "cpu":
        raise UsageError(f"device {device!r} is not offered; models run on cpu")
    width = parallel or DEFAULT_PARALLEL[spec.kind]
    if spec.kind == "gguf":
        from securecoderl_edge.runtimes.gguf import GgufRuntime

        return GgufRuntime(Path(spec.source), threads=threads, parallel=width)
    if spec.kind == "onnx":
        from securecoderl_edge.runtimes.onnx import OnnxRuntime

        return OnnxRuntime(Path(spec.source), threads=threads, parallel=width)
    from securecoderl_edge.runtimes.hf import HfRuntime

    return HfRuntime(spec.source, spec.adapter, threads=threads, parallel=width, prompt_style=spec.prompt_style)
