"""What is written down beside an exported file: what it is, where it came from, how far it agrees with that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securecoderl_edge.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from securecoderl_edge.export.agreement import Agreement
from securecoderl_edge.export.merge import COMPANION_FILES
from securecoderl_edge.files import sha256_of
from securecoderl_edge.machine import installed
from securecoderl_edge.weight_files import weight_files

# Part of what makes two exports the same: raise it when the files we write change.
FORMAT_VERSION = 2

_PACKAGES = (
    "securecoderl-edge", "gguf", "llama-cpp-python", "onnx", "onnxruntime", "torch", "transformers", "peft",
)  # fmt: skip


@dataclass(frozen=True)
class Manifest:
    """What an exported file is, where it came from, and how far it agrees with that.

    Attributes:
        prompt_style: the style of prompts that the model was trained with here; None if that is not known.
        sources: sha256 of every file of the base and of the adapter that went into it.
    """

    format_version: int
    file: str
    sha256: str
    bytes: int
    quant: str
    prompt_style: str | None
    parameters: int
    bits_per_weight: float
    tensor_types: dict[str, int]
    tokenizer_pre: str
    tokenizer_fingerprint: str
    normaliser: str | None
    sources: dict[str, str]
    agreement: Agreement
    versions: dict[str, str]


@dataclass(frozen=True)
class AdapterManifest:
    """What an exported adapter is; as `Manifest`, but it needs the base that ``sources`` names by its hashes.

    Attributes:
        agreement: of a float file of the base with the adapter applied by llama.cpp.
    """

    format_version: int
    file: str
    sha256: str
    bytes: int
    quant: str
    prompt_style: str | None
    rank: int
    tensors: int
    parameters: int
    sources: dict[str, str]
    agreement: Agreement
    versions: dict[str, str]


@dataclass(frozen=True)
class OnnxManifest:
    """What an exported ONNX folder is; as `Manifest`.

    Attributes:
        files: sha256 of every file in the folder but this one.
        bytes: of the graph and its weights.
        portable: in standard operators alone.
    """

    format_version: int
    files: dict[str, str]
    bytes: int
    quant: str
    portable: bool
    prompt_style: str | None
    parameters: int
    bits_per_weight: float
    sources: dict[str, str]
    agreement: Agreement
    versions: dict[str, str]


def types_in_words(manifest: Manifest) -> str:
    """``11 f32, 36 q8_0``: how many tensors have each type."""
    return ", ".join(f"{count} {kind}" for kind, count in manifest.tensor_types.items())


def manifest_path(file: Path) -> Path:
    """Where the manifest of an exported file or folder stands."""
    return file / "manifest.json" if file.is_dir() else file.with_name(f"{file.name}.manifest.json")


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


def find_earlier(out: Path, quant: str, sources: dict[str, str], prompt_style: str | None) -> Manifest | None:
    """The manifest beside ``out`` if it describes this very file and this very export."""
    try:
        record: dict[str, Any] = json.loads(manifest_path(out).read_text(encoding="utf-8"))
        manifest = Manifest(**{**record, "agreement": Agreement(**record["agreement"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    wanted = (FORMAT_VERSION, quant, sources, prompt_style)
    same = (manifest.format_version, manifest.quant, manifest.sources, manifest.prompt_style) == wanted
    return manifest if same and sha256_of(out) == manifest.sha256 else None


def versions() -> dict[str, str]:
    """The versions of what an export is made with."""
    return installed(_PACKAGES)
