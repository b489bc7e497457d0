"""Manifests of exported files: contents, sources, and agreement with the original."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from securecoderl_edge.errors import SceError
from securecoderl_edge.export.agreement import BOUNDS, Agreement
from securecoderl_edge.export.merge import COMPANION_FILES
from securecoderl_edge.models.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from securecoderl_edge.models.files import weight_files
from securecoderl_edge.runtimes.manifests import manifest_path
from securecoderl_edge.system.files import read_json, sha256_of

# Two exports are the same only if this is equal: increase it when the written files change.
FORMAT_VERSION = 2
# The card of an ONNX folder: written after all other files were hashed; no program reads it.
CARD = "README.md"

_MOST = 1e18  # limit of numbers in a manifest
# Packages that an export depends on.
PACKAGES = (
    "securecoderl-edge", "gguf", "llama-cpp-python", "onnx", "onnxruntime", "torch", "transformers", "peft",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Facts that all kinds of exports have: contents, sources, and agreement with the original.

    Attributes:
        bytes: size of the file; of graph and weights of an ONNX folder.
        prompt_style: prompt style that the model was trained with; None if unknown.
        sources: sha256 of every file of the base and of the adapter that the export was made from.
    """

    format_version: int
    quant: str
    prompt_style: str | None
    bytes: int
    parameters: int
    sources: dict[str, str]
    agreement: Agreement
    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class GgufManifest(Manifest):
    """Manifest of a model in one GGUF file; `GgufSummary` describes the fields."""

    file: str
    sha256: str
    bits_per_weight: float
    tensor_types: dict[str, int]
    tokenizer_pre: str
    tokenizer_fingerprint: str
    normalizer: str | None


@dataclass(frozen=True, kw_only=True)
class AdapterManifest(Manifest):
    """Manifest of an adapter in one GGUF file.

    Attributes:
        bounds: weight type with the bounds of ``agreement``, which was measured on a file of the base in llama.cpp: the
            GGUF file that the base was converted from, else a float file.
    """

    file: str
    sha256: str
    rank: int
    tensors: int
    bounds: str


@dataclass(frozen=True, kw_only=True)
class OnnxManifest(Manifest):
    """Manifest of an ONNX folder.

    Attributes:
        files: sha256 of every file in the folder except the manifest and the card.
        portable: whether the graph has only standard operators.
    """

    files: dict[str, str]
    portable: bool
    bits_per_weight: float


def types_in_words(manifest: GgufManifest) -> str:
    """Count tensors by type: ``11 f32, 36 q8_0``."""
    return ", ".join(f"{count} {kind}" for kind, count in manifest.tensor_types.items())


def hash_sources(base: Path, adapter: Path | None) -> dict[str, str]:
    """Compute the sha256 of each file that an export is made from.

    Raises:
        UsageError: the base has no safetensors files.
        SceError: a file cannot be read.
    """
    paths = {f"base/{path.name}": path for path in weight_files(base)}
    paths |= {f"base/{name}": base / name for name in ("config.json", *COMPANION_FILES)}
    if adapter:
        paths |= {f"adapter/{name}": adapter / name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)}
    return {name: sha256_of(path) for name, path in paths.items() if path.is_file()}


def read_manifest(file: Path) -> Manifest:
    """Read the manifest of an exported file or folder.

    Raises:
        SceError: it is missing or damaged.
    """
    path = manifest_path(file)
    record = read_json(path)
    kinds: tuple[type[Manifest], ...] = (GgufManifest, AdapterManifest, OnnxManifest)
    for kind in kinds:
        if {field.name for field in fields(kind)} == {*record}:
            try:
                manifest = kind(**{**record, "agreement": Agreement(**record["agreement"])})
            except TypeError:
                break
            if _is_sound(manifest):
                return manifest
    raise SceError(f"{path}: not an export manifest of this version of sce. Export again.")


def _is_sound(manifest: Manifest) -> bool:
    """Whether all fields are valid: a manifest may have been edited."""
    for part in (manifest, manifest.agreement):
        if not all(_is_of(getattr(part, name), hint) for name, hint in get_type_hints(type(part)).items()):
            return False
    return manifest.agreement.top1 <= 1 and manifest.quant in BOUNDS and getattr(manifest, "bounds", "f32") in BOUNDS


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a value has the type of its field; numbers are neither negative nor huge."""
    if hint in (int, float):
        is_number = isinstance(value, int | float if hint is float else int) and not isinstance(value, bool)
        return is_number and 0 <= value < _MOST
    if get_origin(hint) is dict:
        kinds = get_args(hint)
        return isinstance(value, dict) and all(
            _is_of(part, kind) for pair in value.items() for part, kind in zip(pair, kinds, strict=True)
        )
    if get_origin(hint) is UnionType:
        return any(_is_of(value, each) for each in get_args(hint))
    if hint is str:
        return isinstance(value, str) and value.isprintable()
    return isinstance(value, hint)
