"""Manifests of exported files: contents, sources, agreement with the original; and checks of files against them."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from securecoderl_edge.errors import SceError
from securecoderl_edge.export.agreement import BOUNDS, Agreement
from securecoderl_edge.export.merge import COMPANION_FILES
from securecoderl_edge.export.onnx_weights import DATA, onnx_package
from securecoderl_edge.models.adapters import ADAPTER_CONFIG, ADAPTER_WEIGHTS
from securecoderl_edge.models.files import sha256_of_weights
from securecoderl_edge.models.gguf.header import GgufHeader, read_header
from securecoderl_edge.models.gguf.layout import gguf_package
from securecoderl_edge.prompts.styles import STYLE_KEY
from securecoderl_edge.runtimes.manifests import check_hashes, is_plain_name, manifest_path
from securecoderl_edge.runtimes.onnx.names import MODEL
from securecoderl_edge.system.files import known_sha256, read_json, sha256_of
from securecoderl_edge.text import NORMALIZER_KEY

# Two exports are the same only if this is equal: increase it when the written files change.
# The key, among the sources, of a GGUF file that was written in another type.
SOURCE_FILE = "base/model.gguf"
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


def hash_sources(base: Path, adapter: Path | None, file: Path | None = None) -> dict[str, str]:
    """Compute the sha256 of each file that an export is made from.

    Args:
        file: a GGUF file that is written in another type; it is `SOURCE_FILE`.

    Raises:
        UsageError: the base has no safetensors files.
        SceError: a file cannot be read.
    """
    given = {} if file is None else {SOURCE_FILE: known_sha256(file)}
    weights = given | {f"base/{name}": digest for name, digest in sha256_of_weights(base).items()}
    paths = {f"base/{name}": base / name for name in ("config.json", *COMPANION_FILES)}
    if adapter:
        paths |= {f"adapter/{name}": adapter / name for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS)}
    return weights | {name: sha256_of(path) for name, path in paths.items() if path.is_file()}


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


def tensor_types(path: Path) -> tuple[dict[str, int], int]:
    """Count the tensors of a GGUF file by type, and the bytes of all.

    Raises:
        SceError: not a GGUF file, or a damaged one.
    """
    return _types_in(read_header(path), path)


def check_content(file: Path) -> tuple[Manifest, str]:
    """Check a file, or an ONNX folder, against its manifest.

    Returns:
        the manifest; sha256 of the file, or of the weights of a folder.

    Raises:
        SceError: they do not match, or the manifest is damaged.
    """
    manifest = read_manifest(file)
    if file.is_dir() != isinstance(manifest, OnnxManifest):
        raise SceError(f"{manifest_path(file)}: belongs to another export. Export again.")
    if isinstance(manifest, OnnxManifest):
        digest = _check_files(file, manifest)
        _require(file, manifest, _facts_of_folder(file))
        return manifest, digest
    if not isinstance(manifest, GgufManifest | AdapterManifest):
        raise TypeError(type(manifest))
    digest = check_hashes({file: manifest.sha256})[file]
    is_adapter = isinstance(manifest, AdapterManifest)
    _require(file, manifest, {"bytes": file.stat().st_size, **_facts_of_gguf(file, is_adapter)})
    return manifest, digest


def _check_files(folder: Path, manifest: OnnxManifest) -> str:
    names = {*manifest.files}
    if not {MODEL, DATA} <= names or not all(map(is_plain_name, names)):
        raise SceError(f"{manifest_path(folder)}: not the manifest of an ONNX export. Export again.")
    extra = {path.name for path in folder.iterdir()} - {*names, manifest_path(folder).name, CARD}
    if extra:
        raise SceError(f"{folder} has files that are not in its manifest: {', '.join(sorted(extra))}. Export again.")
    return check_hashes({folder / name: expected for name, expected in manifest.files.items()})[folder / DATA]


def _require(file: Path, manifest: Manifest, facts: dict[str, Any]) -> None:
    for name, value in facts.items():
        if getattr(manifest, name) != value:
            expected = f"{manifest_path(file)} has {getattr(manifest, name)}"
            raise SceError(f"{file}: {name} is {value}, but {expected}. Export again.")


def _facts_of_gguf(path: Path, is_adapter: bool) -> dict[str, Any]:
    header = read_header(path)
    types, data_bytes = _types_in(header, path)
    facts: dict[str, Any] = {"prompt_style": header.values.get(STYLE_KEY)}
    if is_adapter:
        return {**facts, "quant": "/".join(types), "tensors": len(header.tensors)}  # LoRA tensors all have one type
    parameters = sum(math.prod(tensor.sizes) for tensor in header.weights)
    return {
        **facts,
        "quant": _quant_of(header),
        "tensor_types": types,
        "parameters": parameters,
        "bits_per_weight": round(8 * data_bytes / max(1, parameters), 3),
        "tokenizer_pre": header.values.get("tokenizer.ggml.pre"),
        "normalizer": header.values.get(NORMALIZER_KEY),
    }


def _quant_of(header: GgufHeader) -> str:
    """Read the weight type that the header gives for the whole model."""
    try:
        kind = gguf_package().LlamaFileType(header.values.get("general.file_type"))
    except ValueError:
        return "unknown"
    return str(kind.name.lower().removeprefix("all_").removeprefix("mostly_"))


def _types_in(header: GgufHeader, path: Path) -> tuple[dict[str, int], int]:
    gguf = gguf_package()
    counts: Counter[str] = Counter()
    data_bytes = 0
    for tensor in header.weights:
        try:
            kind = gguf.GGMLQuantizationType(tensor.type)
        except ValueError:
            raise SceError(f"{path}: tensor {tensor.name} has the unknown type {tensor.type}") from None
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        data_bytes += math.prod(tensor.sizes) // block * block_bytes
        counts[kind.name.lower()] += 1
    return dict(sorted(counts.items())), data_bytes


def _facts_of_folder(folder: Path) -> dict[str, Any]:
    """Read the weight type of the linear layers, whether all operators are standard, the size and the prompt style."""
    onnx = onnx_package()
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(folder / MODEL, load_external_data=False)
        bits = {
            int(onnx.helper.get_node_attr_value(node, "bits"))
            for node in model.graph.node
            if node.op_type == "MatMulNBits"
        }
    except (DecodeError, ValueError, TypeError, OverflowError) as error:
        raise SceError(f"{folder / MODEL}: not an ONNX graph of sce export ({error})") from None
    locations = {
        entry.value for weight in model.graph.initializer for entry in weight.external_data if entry.key == "location"
    }
    if locations != {DATA}:
        raise SceError(f"{folder / MODEL}: reads weights from files other than {DATA}. Export again.")
    half = onnx.TensorProto.FLOAT16
    is_half = any(weight.data_type == half for weight in model.graph.initializer)
    return {
        "quant": f"int{min(bits)}" if bits else "f16" if is_half else "f32",
        "portable": all(node.domain == "" for node in model.graph.node),
        "bytes": sum((folder / name).stat().st_size for name in (MODEL, DATA)),
        "prompt_style": read_json(folder / "config.json").get(STYLE_KEY),
    }
