"""What is written down beside an exported file: what it is, where it came from, how far it agrees with that."""

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
from securecoderl_edge.system.machine import installed

# Part of what makes two exports the same: raise it when the files we write change.
FORMAT_VERSION = 2
# The card of an ONNX folder: written when all else has been hashed, and nothing that runs.
CARD = "README.md"

_MOST = 1e18  # of any number in a manifest
_PACKAGES = (
    "securecoderl-edge", "gguf", "llama-cpp-python", "onnx", "onnxruntime", "torch", "transformers", "peft",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What an export is, where it came from, and how far it agrees with that.

    Attributes:
        bytes: of the file; of an ONNX folder's graph and weights.
        prompt_style: the style of prompts that the model was trained with here; None if that is not known.
        sources: sha256 of every file of the base and of the adapter that went into it.
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
    """Of a model as one GGUF file; see `GgufSummary` for what is in it."""

    file: str
    sha256: str
    bits_per_weight: float
    tensor_types: dict[str, int]
    tokenizer_pre: str
    tokenizer_fingerprint: str
    normaliser: str | None


@dataclass(frozen=True, kw_only=True)
class AdapterManifest(Manifest):
    """Of an adapter as one GGUF file. ``agreement`` is that of a float file of its base with llama.cpp applying it."""

    file: str
    sha256: str
    rank: int
    tensors: int


@dataclass(frozen=True, kw_only=True)
class OnnxManifest(Manifest):
    """Of an ONNX folder.

    Attributes:
        files: sha256 of every file in the folder but this one and the card.
        portable: in standard operators alone.
    """

    files: dict[str, str]
    portable: bool
    bits_per_weight: float


def types_in_words(manifest: GgufManifest) -> str:
    """``11 f32, 36 q8_0``: how many tensors have each type."""
    return ", ".join(f"{count} {kind}" for kind, count in manifest.tensor_types.items())


def hash_sources(base: Path, adapter: Path | None) -> dict[str, str]:
    """sha256 of each file that an export is made from.

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
    """The manifest of an exported file or folder.

    Raises:
        SceError: there is none, or it is damaged.
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
    raise SceError(f"{path}: is no manifest of an export by this version of sce; export again")


def _is_sound(manifest: Manifest) -> bool:
    """Whether it holds what it should: it may have been edited."""
    if not all(_is_of(getattr(manifest, name), hint) for name, hint in get_type_hints(type(manifest)).items()):
        return False
    found = manifest.agreement
    agreement = all(_is_of(getattr(found, name), hint) for name, hint in get_type_hints(Agreement).items())
    return agreement and found.top1 <= 1 and manifest.quant in BOUNDS


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a value is of a type that manifests have; numbers are neither negative nor endless."""
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


def versions() -> dict[str, str]:
    """The versions of what an export is made with."""
    return installed(_PACKAGES)
