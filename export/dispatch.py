"""Choice of an export by its options: kind of file, weight type, and path."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.export.card import foreign_sidecar
from securecoderl_edge.export.onnx import BITS, PORTABLE_TYPES
from securecoderl_edge.export.paths import check_name
from securecoderl_edge.export.run import QUANTS, ExportResult, export_adapter, export_gguf, export_onnx
from securecoderl_edge.export.workbench import Workbench
from securecoderl_edge.models.gguf.header import read_header
from securecoderl_edge.models.other import OtherArchitecture, find_architecture
from securecoderl_edge.prompts.styles import STYLE_KEY, STYLES
from securecoderl_edge.runs import latest_run, only_unfinished
from securecoderl_edge.runtimes.manifests import manifest_path
from securecoderl_edge.runtimes.spec import POLICY, ModelSpec, resolve_model

# dtypes of `hf` folders by weight type.
HF_DTYPES = {"f32": "float32", "f16": "float16"}
TYPES: dict[str, tuple[str, ...]] = {
    "gguf": QUANTS,
    "onnx": tuple(BITS),
    "portable": PORTABLE_TYPES,
    "adapter": ("f16", "f32"),
    "hf": tuple(HF_DTYPES),
}
DEFAULTS = {"gguf": "q8_0", "onnx": "int8", "portable": "f32", "adapter": "f16", "hf": "f32"}
_SUFFIXES = {
    "gguf": "-{}.gguf",
    "onnx": "-onnx-{}",
    "portable": "-onnx-portable-{}",
    "adapter": "-lora-{}.gguf",
    "hf": "-hf",
}


def find_source(source: str | None) -> ModelSpec:
    """Find the model to export; without a name it is the policy of the latest run.

    Raises:
        UsageError: no such model, or it is an export itself.
    """
    if source is None:
        run = latest_run()
        if run is None:
            none = "no finished training run in runs/. Run: sce train (or give a model: sce export nano)"
            raise UsageError(only_unfinished() or none)
        source = str(run.path)
    spec = resolve_model(source)
    if spec.kind == "gguf" and spec.adapter is None and not manifest_path(Path(spec.source)).is_file():
        style = read_header(Path(spec.source)).values.get(STYLE_KEY)
        return replace(spec, kind="hf", prompt_style=style if style in STYLES else None)  # dequantized
    if spec.adapter is not None and spec.kind == "gguf":
        how = f"llama-cli -m {shlex.quote(spec.source)} --lora {shlex.quote(str(spec.adapter))}"
        raise UsageError(f"{source} is an exported adapter on its base already. llama.cpp runs it: {how}")
    if spec.kind != "hf":
        raise UsageError(f"{source} is an exported file already. Give a training run or a Hugging Face folder.")
    return spec


def check_type(kind: str, quant: str) -> None:
    """Check the weight type of a kind of file; ``kind`` is a key of `TYPES`.

    Raises:
        UsageError: the kind does not have this type.
    """
    if quant not in TYPES[kind]:
        named = "--format onnx --portable" if kind == "portable" else f"--format {kind}"
        raise UsageError(f"{named} does not support --quant {quant}; choose from {', '.join(TYPES[kind])}")


def check_format(spec: ModelSpec, base: Path, kind: str) -> None:
    """Check that a kind of file can be written of a model; ``kind`` is a key of `TYPES`.

    Raises:
        UsageError: only a Hugging Face folder can; the message says why.
    """
    if kind == "hf":
        return
    shape = find_architecture(base)
    if isinstance(shape, OtherArchitecture):
        also = f"; {spec.adapter} is the adapter in PEFT's format" if spec.adapter else ""
        named = "--format onnx" if kind == "portable" else f"--format {kind}"
        raise UsageError(
            f"sce does not know how to write {named} of {shape.name} ({shape.reason}). Export it with --format hf{also}"
        )


def target_of(spec: ModelSpec, kind: str, quant: str, out: str | Path | None) -> Path:
    """Path of an export: ``out``, or its usual name in ``out`` with a slash at its end. Without ``out``, it is in the
    exports of its run, or in the current folder for a base model.

    Raises:
        UsageError: not a valid file name.
    """
    usual = _usual_target(spec, _SUFFIXES[kind].format(quant))
    target = usual if out is None else Path(out, usual.name) if str(out).endswith(os.sep) else Path(out)
    check_name(target)
    return target


def _usual_target(spec: ModelSpec, suffix: str) -> Path:
    run = spec.run()
    if run is not None and spec.role:
        return run.export_path(suffix, "" if spec.role == POLICY else spec.role)
    name = Path(spec.source).resolve().name if Path(spec.source).is_dir() else spec.source.split("/")[-1]
    return Path(f"{name.removesuffix('.gguf')}{suffix}")


def export_as(workbench: Workbench, kind: str, quant: str, out: Path, force: bool) -> ExportResult:
    """Write and verify one file, or folder, of ``kind``: gguf, onnx, portable or adapter.

    Raises:
        UsageError, SceError, MissingExtra: as in `export_gguf`; or a base model has no adapter to export; or a sidecar
            file would replace a file from elsewhere.
    """
    is_folder = kind in ("onnx", "portable")
    if not force and (file := foreign_sidecar(out, is_folder)):
        raise UsageError(
            f"{file} exists and was not written by sce export. Move it, overwrite it with --force, or choose another "
            "--out."
        )
    if is_folder:
        return export_onnx(workbench, quant, out, force, kind == "portable")
    return export_gguf(workbench, quant, out, force) if kind == "gguf" else export_adapter(workbench, quant, out, force)
