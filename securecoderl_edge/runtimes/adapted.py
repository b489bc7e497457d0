"""The model that `--adapter` makes of another: the adapter of a run, a GGUF file, or a folder in PEFT's format."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.adapters import ADAPTER_WEIGHTS
from securecoderl_edge.models.catalog import POLICIES
from securecoderl_edge.models.files import POLICY_ADAPTERS, sha256_of_folder
from securecoderl_edge.models.gguf.header import is_adapter
from securecoderl_edge.runs import DONE_FILE, ENVIRONMENT, LATEST, RUNS, find_run, run_of
from securecoderl_edge.runtimes.bases import named_model, trained_on
from securecoderl_edge.runtimes.spec import POLICY, ModelSpec, resolve_model, role_in, style_in, with_gguf_adapter
from securecoderl_edge.text import did_you_mean


def resolve_adapted(model: str | None, adapter: str | None, language: str | None = None) -> ModelSpec:
    """`resolve_model`, with the adapter that ``adapter`` names; None: without one.

    ``adapter`` is a GGUF file, a folder in PEFT's format, a run or one of its phases (``RUN:sft``), or a policy of this
    package. Without a model, it is applied to the base that it names; if it names none, to the default model.

    Raises:
        UsageError: no such adapter or model, or an adapter that the model cannot take or that has another base.
        SceError, MissingExtra: as in `resolve_model`.
    """
    if adapter is None:
        return resolve_model(model, language)
    file = POLICY_ADAPTERS.get(adapter, Path(adapter))
    if os.path.isfile(file) and adapter != str(RUNS / LATEST):
        if not is_adapter(file):
            raise UsageError(f"--adapter {adapter}: not a GGUF file with a LoRA adapter. Give one, a run or a folder")
        base = POLICIES.get(adapter) or named_model(trained_on(file))
        return _on_gguf_file(_bare(resolve_model(model or base, language)), file)
    folder = _folder_of(adapter)
    if model is None:
        return resolve_model(adapter)
    spec = _bare(resolve_model(model, language))
    if spec.kind == "gguf":
        return with_gguf_adapter(spec, _exported(folder, adapter))
    return _on_folder(spec, folder, adapter)


def _bare(spec: ModelSpec) -> ModelSpec:
    """The model, which must be able to take an adapter."""
    if spec.adapter is not None:
        raise UsageError(f"{spec.label} has an adapter already, {spec.adapter}. Give its base, or leave out --adapter")
    if spec.kind == "onnx":
        raise UsageError(f"{spec.label}: an ONNX model takes no adapter. Give the model that it was exported from")
    return spec


def _on_gguf_file(spec: ModelSpec, file: Path) -> ModelSpec:
    if spec.kind != "gguf":
        raise UsageError(f"{file} needs a GGUF file as its base, and {spec.label} is not one. Give it with --model")
    return with_gguf_adapter(spec, file)


def _folder_of(text: str) -> Path:
    """The folder of the adapter that a run, one of its phases, or its own name means."""
    name, _, part = text.rpartition(":")
    if run := find_run(text):
        return run.adapter()
    if name and (run := find_run(name)):
        return run.adapter(None if part == POLICY else part)
    path = Path(text)
    if not os.path.exists(text):
        names = [*map(str, path.parent.glob("*")), *(each.parent.name for each in RUNS.glob(f"*/{ENVIRONMENT}"))]
        hint = did_you_mean(text, names) or " Write one with: sce export RUN --format adapter"
        raise UsageError(f"--adapter {text}: no such run, file or folder.{hint}")
    if not (path / ADAPTER_WEIGHTS).is_file():
        raise UsageError(f"--adapter {text}: not a folder of an adapter ({ADAPTER_WEIGHTS} is missing), and not a run")
    return path


def _exported(folder: Path, text: str) -> Path:
    """The newest file for llama.cpp that was exported of an adapter of a run."""
    run, files = run_of(folder), []
    if run is not None:
        role = role_in(run, folder)
        part = "" if role == POLICY else role
        exports = filter(is_adapter, run.exports.glob("*.gguf"))
        files = [file for file in exports if run.exported_part(file.name) == part]
    if not files:
        how = "Write it" if run else "Write one, and name it"
        raise UsageError(f"--adapter {text}: a GGUF file needs it as a file. {how}: sce export {text} --format adapter")
    return max(files, key=lambda file: file.stat().st_mtime)


def _on_folder(spec: ModelSpec, folder: Path, text: str) -> ModelSpec:
    """A model that torch computes, with an adapter in PEFT's format."""
    base, run = spec.folder(), run_of(folder)
    if run is not None and run.base_sha256 not in (None, sha256_of_folder(base)):
        raise UsageError(
            f"{folder}: an adapter of {run.base_model}, not of {spec.source} as it is now (their SHA-256 differ)"
        )
    style = style_in(folder / DONE_FILE) or (run.prompt_style if run else None)
    label = f"{spec.label}+{Path(text).name}"
    return replace(spec, label=label, adapter=folder, role="", prompt_style=style, of_run=None)
