"""Runtimes for models, behind one protocol; heavy imports happen when one is opened."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.other import OtherArchitecture, find_architecture
from securecoderl_edge.runtimes.manifests import check_same_base, check_unchanged
from securecoderl_edge.runtimes.placement import Placement, place
from securecoderl_edge.runtimes.protocol import Runtime
from securecoderl_edge.runtimes.spec import ModelSpec

# Sequences decoded in parallel; more do not raise the speed on two to eight cores.
DEFAULT_PARALLEL = {"gguf": 32, "onnx": 32, "hf": 64}


def open_runtime(
    spec: ModelSpec,
    *,
    threads: int | None = None,
    parallel: int | None = None,
    device: str = "cpu",
    base_precision: str = "auto",
    reuses_prefixes: bool = False,
    gpu_layers: int | None = None,
) -> Runtime:
    """Load a model.

    Args:
        threads: CPU threads; None leaves the choice to the runtime.
        parallel: sequences decoded in parallel; None means `DEFAULT_PARALLEL`.
        device, gpu_layers: see `place`.
        base_precision: of a model that torch computes, see `hf.choose_precision`; other files have their own.
        reuses_prefixes: see `GgufRuntime`; other runtimes process every prompt from its start.

    Raises:
        UsageError: a device that the model cannot use, or an adapter of another base.
        MissingExtra: the runtime's packages are not installed.
        SceError: the files are damaged or of a kind that the runtime cannot read.
    """
    placement = place(spec, device, gpu_layers)
    width = parallel or DEFAULT_PARALLEL[spec.kind]
    if spec.kind != "hf":
        return _open_exported(spec, threads, width, reuses_prefixes, placement)
    from securecoderl_edge.runtimes.hf import HfRuntime

    spec.folder()  # is there, or is downloaded if the user named it
    return HfRuntime(spec.source, spec.adapter, threads, width, spec.prompt_style, base_precision, placement.device)


def precision_of(spec: ModelSpec, asked: str, device: str = "cpu") -> str | None:
    """The format of the weights of a model that torch computes, ``auto`` resolved; None for other files.

    Args:
        device: ``cpu`` or ``cuda``.

    Raises:
        SceError: as in `open_runtime`.
    """
    if spec.kind != "hf":
        return None
    from securecoderl_edge.models.packages import require_torch
    from securecoderl_edge.runtimes.hf import choose_precision

    require_torch()
    return choose_precision(asked, find_architecture(spec.folder()), device)


def note_on(spec: ModelSpec) -> str | None:
    """What a user should know before a model is used, one line.

    Raises:
        SceError: as in `open_runtime`.
    """
    shape = find_architecture(spec.folder()) if spec.kind == "hf" else None
    return shape.note if isinstance(shape, OtherArchitecture) else None


def _open_exported(
    spec: ModelSpec, threads: int | None, parallel: int, reuses_prefixes: bool, placement: Placement
) -> Runtime:
    """Load a file, and its adapter, while a thread checks them against their manifests."""
    path = Path(spec.source)
    if spec.adapter is not None:
        check_same_base(path, spec.adapter)
    with ThreadPoolExecutor(1) as checker:
        check = checker.submit(_check_files, path, spec.adapter)
        try:
            if spec.kind == "gguf":
                from securecoderl_edge.runtimes.gguf.runtime import GgufRuntime

                runtime: Runtime = GgufRuntime(
                    path, threads, parallel, reuses_prefixes, spec.adapter, placement.gpu_layers
                )
            else:
                from securecoderl_edge.runtimes.onnx.runtime import OnnxRuntime

                runtime = OnnxRuntime(path, threads=threads, parallel=parallel, device=placement.device)
        except SceError:
            # A changed file explains the failure better than the error of the loader.
            check.result()
            raise
        try:
            check.result()
        except SceError:
            runtime.close()
            raise
        return runtime


def _check_files(path: Path, adapter: Path | None) -> None:
    check_unchanged(path)
    if adapter is not None:
        check_unchanged(adapter)
