"""Resolve the name of a model to its files: a named model, run, phase, GGUF file, HF folder or HF repo id."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.languages.language import LANGUAGES, PYTHON
from securecoderl_edge.models.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from securecoderl_edge.models.catalog import ORIGINS, POLICIES, memory_needed
from securecoderl_edge.models.files import (
    BUILT_IN,
    MODEL_FILES,
    MODEL_NAMES,
    NANO,
    POLICY_ADAPTERS,
    SMOLLM2,
    base_folder,
    gguf_file,
)
from securecoderl_edge.models.gguf.header import MAGIC, header_strings, is_adapter
from securecoderl_edge.models.stored import aliases, pulled, stored_file
from securecoderl_edge.prompts.styles import OURS, STYLE_KEY, STYLES
from securecoderl_edge.runs import (
    DONE_FILE,
    ENVIRONMENT,
    LATEST,
    RUNS,
    SNAPSHOTS,
    Run,
    find_run,
    latest_run,
    phase_of,
    run_of,
)
from securecoderl_edge.runtimes.manifests import bits_per_weight
from securecoderl_edge.system.files import read_json, sha256_of
from securecoderl_edge.system.hub import is_hub_id
from securecoderl_edge.system.machine import available_memory_bytes
from securecoderl_edge.text import nearest

POLICY = "policy"
BASE = "base"
EXPORT = "export"

ONNX_MODEL = "model.onnx"
_FILES = ("*.onnx", "*.onnx.data", *MODEL_FILES)


@dataclass(frozen=True)
class ModelSpec:
    """One model, found but not loaded.

    Attributes:
        label: a short name for tables.
        kind: the runtime that reads it.
        source: the GGUF file, the ONNX or HF folder, the repo id, or the name of a built-in model. A run whose base is
            a GGUF file reads it in torch (``hf``).
        adapter: a LoRA adapter on ``source``: for a GGUF file another GGUF file, else a folder in PEFT format.
        role: its part in a run: ``base``, ``policy``, ``export``, the name of a phase, or that name with a step for a
            snapshot; empty outside a run.
        prompt_style: the prompt style that `sce` trained it with, or that its run evaluates it with; None if unknown.
            A GGUF file holds its own.
        exported: for an export, the role of the model it was made from.
        of_run: the run that it belongs to, if its files are not in it; see `run`.
    """

    label: str
    kind: Literal["gguf", "onnx", "hf"]
    source: str
    adapter: Path | None = None
    role: str = ""
    prompt_style: str | None = None
    exported: str = ""
    of_run: Run | None = field(default=None, compare=False)

    def run(self) -> Run | None:
        """The run that it is a part or an export of."""
        path = self.adapter or Path(self.source)
        return self.of_run or (run_of(path) if path.exists() else None)

    def language(self) -> str:
        """The language of its programs where nothing else is asked for: of its run, or of the built-in model."""
        if (run := self.run()) is not None:
            return run.language
        built_in = (each.name for each in LANGUAGES.values() if each.built_in_model == self.source)
        return next(built_in, PYTHON.name)

    def max_tokens(self) -> int | None:
        """The longest completion that its run trains with, if it has a run that names one."""
        return run.budget.max_tokens if (run := self.run()) is not None else None

    def folder(self) -> Path:
        """The folder of a model that torch computes; errors as in `base_folder`.

        A repo id is downloaded if the user named it, but not if a run or an adapter names it as its base.
        """
        return base_folder(self.source, download=self.adapter is None and self.of_run is None)

    def files(self) -> list[Path]:
        """The files that make up the model, in a fixed order; for a repo id, those that were downloaded."""
        if self.kind == "gguf":
            return [Path(self.source), *([self.adapter] if self.adapter else [])]
        folders = [folder for folder in (self._source_folder(), self.adapter) if folder is not None]
        matches = ({file for pattern in _FILES for file in folder.glob(pattern)} for folder in folders)
        return [file for files in matches for file in sorted(files) if file.is_file()]

    def file_bytes(self) -> int | None:
        """The size of the model on disk, adapter included; None for a repo that is not downloaded."""
        if self.kind == "hf" and self._source_folder() is None:
            return None
        return sum(file.stat().st_size for file in self.files())

    def bits_per_weight(self) -> float | None:
        """Bits per weight of an exported file, from its manifest."""
        return None if self.kind == "hf" else bits_per_weight(Path(self.source))

    def content_hash(self) -> str:
        """SHA-256 of the model's files: equal for copies, different after any change.

        A repo that is not downloaded hashes as its name.
        """
        digest = hashlib.sha256()
        for file in self.files():
            digest.update(sha256_of(file).encode())
        if self.kind == "hf" and self._source_folder() is None:
            digest.update(self.source.encode())
        return digest.hexdigest()

    def _source_folder(self) -> Path | None:
        """The folder with the files of ``source``; None for a repo that is not downloaded."""
        if self.source not in MODEL_NAMES and Path(self.source).is_dir():
            return Path(self.source)
        try:
            return base_folder(self.source, download=False)
        except SceError:
            return None


def resolve_model(text: str | None, language: str | None = None) -> ModelSpec:
    """Find the model that ``text`` names; without text the one that ``sce generate`` takes for a language
    (`default_model`).

    ``text`` is one of `MODEL_NAMES`, an alias of the user, a GGUF file, a GGUF file with a LoRA adapter
    (``BASE.gguf+LORA.gguf``), an HF or adapter folder, a run (its folder, its name under ``runs/`` or ``latest``), one
    part of a run (``RUN:sft``, ``RUN:policy``, ``RUN:base``), or, if none of these exists on disk, a Hugging Face repo
    id such as ``Qwen/Qwen2.5-Coder-0.5B``.

    Raises:
        UsageError: not found, or not a model; the message lists the possible names.
        SceError: a named model is not pulled, or the file of an alias is missing.
        MissingExtra: the package with the file of ``smollm2`` is not installed.
    """
    if text is None:
        return default_model(language)
    if text in BUILT_IN:
        return ModelSpec(text, "hf", text, prompt_style=OURS.style)
    if text == SMOLLM2:
        return replace(_from_file(Path(str(gguf_file(text)))), label=SMOLLM2)
    if base := POLICIES.get(text):
        return replace(with_gguf_adapter(resolve_model(base), POLICY_ADAPTERS[text]), label=text)
    if file := stored_file(text):
        return replace(_from_file(file), label=text)
    path = Path(text)
    if path.is_file() and text != str(RUNS / LATEST):
        return _from_file(path)
    run = find_run(text)
    if run is not None:
        return _policy(run)
    name, colon, part = text.rpartition(":")
    if colon and (run := find_run(name)) is not None:
        return _part(run, part)
    if text and path.is_dir():
        return _from_folder(path)
    if "+" in text and text.endswith(".gguf"):
        return _with_adapter(text)
    if is_hub_id(text):
        return ModelSpec(text, "hf", text)
    raise UsageError(_nothing_found(text))


def default_model(language: str | None = None) -> ModelSpec:
    """The newest export of the latest run's policy, else that policy; else, or if it is for another language, the
    largest pulled model that fits the free memory, else the built-in model for the language."""
    run = latest_run()
    if run is not None and language in (None, run.language):
        exports = [spec for spec in _exports(run) if spec.exported == POLICY]
        if exports:
            return max(exports, key=lambda spec: Path(spec.source).stat().st_mtime)
        if _has_policy(run):
            return _policy(run)
    free = available_memory_bytes()
    fitting = [name for name in pulled() if memory_needed(ORIGINS[name].bytes) <= free]
    if not fitting:
        return resolve_model(LANGUAGES[language or PYTHON.name].built_in_model)
    return resolve_model(fitting[-1])


def default_models() -> list[ModelSpec]:
    """The default models of ``sce bench``: base, SFT, policy and exports of the latest run, as far as they exist.

    Without any run it is only ``nano``.
    """
    run = latest_run()
    if run is None:
        return [resolve_model(NANO)]
    phases = [*map(phase_of, run.phase_folders())]
    models = [_part(run, BASE)]
    # If SFT was the last phase, the policy is its adapter: one row is enough.
    if phases[:1] == ["sft"] and phases[1:] and (run.phase_folders()[0] / "adapter" / ADAPTER_WEIGHTS).is_file():
        models.append(_part(run, "sft"))
    if _has_policy(run):
        models.append(_policy(run))
    return models + _exports(run)


def default_comparisons(models: Sequence[ModelSpec]) -> list[tuple[int, int]]:
    """Pairs of `default_models` to compare, by position: SFT with policy, each export with its source."""
    at = {spec.role: index for index, spec in enumerate(models) if spec.role != EXPORT}
    pairs = [(at["sft"], at[POLICY])] if "sft" in at and POLICY in at else []
    if not pairs and BASE in at and POLICY in at:
        pairs.append((at[BASE], at[POLICY]))
    exports = [(spec.exported, index) for index, spec in enumerate(models) if spec.role == EXPORT]
    return pairs + [(at[exported], index) for exported, index in exports if exported in at]


def with_distinct_labels(models: Sequence[ModelSpec]) -> list[ModelSpec]:
    """The same models with distinct labels: repeated labels become paths, and repeated paths get numbers."""
    labels = [spec.label for spec in models]
    labels = [str(spec.adapter or spec.source) if labels.count(spec.label) > 1 else spec.label for spec in models]
    distinct = []
    for index, (spec, label) in enumerate(zip(models, labels, strict=True)):
        earlier = labels[:index].count(label)
        distinct.append(replace(spec, label=f"{label} ({earlier + 1})" if earlier else label))
    return distinct


def _from_file(path: Path) -> ModelSpec:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None
    if magic != MAGIC:
        raise UsageError(f"{path}: not a GGUF file (it does not begin with GGUF)")
    if is_adapter(path):
        raise UsageError(f"{path}: a LoRA adapter, not a model; name its base, too: BASE.gguf+{path}")
    return ModelSpec(path.name.removesuffix(".gguf"), "gguf", str(path))


def _with_adapter(text: str) -> ModelSpec:
    """The model that ``BASE+LORA`` names; both may have a + in their names."""
    parts = text.split("+")
    pairs = [("+".join(parts[:cut]), "+".join(parts[cut:])) for cut in range(1, len(parts))]
    base, name = next((pair for pair in pairs if Path(pair[1]).is_file()), pairs[-1])
    spec, path = resolve_model(base), Path(name)
    if not path.is_file():
        raise UsageError(f"{name or text}: no such adapter file; write one with: sce export --format adapter")
    if spec.kind != "gguf" or spec.adapter is not None:
        raise UsageError(f"{base}: an adapter needs one GGUF file as its base; expected BASE.gguf+LORA.gguf")
    return with_gguf_adapter(spec, path)


def with_gguf_adapter(base: ModelSpec, adapter: Path) -> ModelSpec:
    """A GGUF file with an adapter, whose prompt style it has."""
    style, label = header_strings(adapter).get(STYLE_KEY), f"{base.label}+{adapter.name.removesuffix('.gguf')}"
    return replace(base, label=label, adapter=adapter, prompt_style=style if style in STYLES else None)


def _from_folder(path: Path) -> ModelSpec:
    label = path.resolve().name
    if (path / ONNX_MODEL).is_file():
        return ModelSpec(label, "onnx", str(path), prompt_style=style_in(path / "config.json"))
    if (path / ADAPTER_WEIGHTS).is_file():
        style, run = style_in(path / DONE_FILE), run_of(path)
        base = _base(run).source if run else base_of_adapter(path)
        return ModelSpec(label, "hf", base, path, role_in(run, path) if run else "", style)
    if (path / "config.json").is_file():
        return ModelSpec(label, "hf", str(path), prompt_style=style_in(path / "config.json"))
    files = sorted(path.glob("*.gguf"))
    if files:
        raise UsageError(f"{path}: a folder with GGUF files; choose one, for example {files[0]}")
    raise UsageError(
        f"{path}: not a model folder; expected {ENVIRONMENT} (a run), config.json (an HF model) or "
        f"{ADAPTER_WEIGHTS} (an adapter)"
    )


def base_of_adapter(path: Path) -> str:
    """The source of the model that an adapter's folder names as its base; errors as in `resolve_model`."""
    try:
        base = read_json(path / ADAPTER_CONFIG)["base_model_name_or_path"]
    except (SceError, KeyError):
        raise UsageError(f"{path / ADAPTER_CONFIG}: base_model_name_or_path is missing; add the base model") from None
    if (Path(str(base)) / ADAPTER_CONFIG).exists():
        raise UsageError(f"{path / ADAPTER_CONFIG}: its base model {base} is an adapter")
    return resolve_model(str(base)).source


def role_in(run: Run, path: Path) -> str:
    """The role of an adapter's folder: RUN/policy, RUN/phases/1-sft/adapter or .../1-sft/snapshots/step-000040."""
    parts = path.resolve().relative_to(run.path.resolve()).parts
    if len(parts) < 2 or parts[0] != "phases":
        return "-".join(parts)
    phase = phase_of(Path(parts[1]))
    return f"{phase}-{path.resolve().name}" if SNAPSHOTS in parts else phase


def _part(run: Run, part: str) -> ModelSpec:
    if part == POLICY:
        return _policy(run)
    if part == BASE:
        return _base(run)
    return replace(_base(run), label=f"{run.name}:{part}", adapter=run.adapter(part), role=part)


def _policy(run: Run) -> ModelSpec:
    return replace(_base(run), label=run.name, adapter=run.adapter(), role=POLICY)


def _has_policy(run: Run) -> bool:
    return (run.policy / ADAPTER_WEIGHTS).is_file()


def _base(run: Run) -> ModelSpec:
    name = run.base_model
    if name in MODEL_NAMES or os.path.exists(name) or is_hub_id(name):
        label = Path(name).name.removesuffix(".gguf")
        return ModelSpec(label, "hf", name, role=BASE, prompt_style=run.prompt_style, of_run=run)
    raise UsageError(f"{run.path}: its base model {name} is missing; put it back")


def _exports(run: Run) -> list[ModelSpec]:
    files = [_from_file(file) for file in sorted(run.exports.glob("*.gguf")) if not is_adapter(file)]
    folders = [_from_folder(file.parent) for file in sorted(run.exports.glob(f"*/{ONNX_MODEL}"))]
    return [
        replace(spec, role=EXPORT, exported=run.exported_part(Path(spec.source).name) or POLICY)
        for spec in (*files, *folders)
    ]


def style_in(file: Path) -> str | None:
    """The prompt style that export or training wrote into a JSON file next to the weights."""
    try:
        style = read_json(file).get(STYLE_KEY)
    except SceError:
        return None
    return style if style in STYLES else None


def _nothing_found(text: str) -> str:
    runs = sorted(path.parent.name for path in RUNS.glob(f"*/{ENVIRONMENT}"))
    known = f"Runs in ./runs: {', '.join(runs)}" if runs else "No run in ./runs yet; train one with: sce train"
    exports = [file for run in runs if (file := RUNS / run / "exports" / f"{Path(text).name}.gguf").is_file()]
    if exports:  # the label of this file in tables
        known = f"Did you mean {exports[0]}?"
    if Path(f"{text}.gguf").is_file():
        known = f"Did you mean {text}.gguf?"
    elif not exports and (near := nearest(text, [*MODEL_NAMES, *aliases()])):
        known = f"Did you mean {near}?"
    if text.endswith(".gguf") or text.count("/") > 1:
        return f"unknown model {text!r}: no such file or folder. {known}"
    return (
        f"unknown model {text!r}: expected a file, a folder, a run, {', '.join(MODEL_NAMES)} or a Hugging Face repo id "
        f"(owner/name). {known}"
    )
