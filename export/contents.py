"""Contents of an exported file, read from the file and compared with its manifest."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.export.manifest import CARD, AdapterManifest, GgufManifest, Manifest, OnnxManifest, read_manifest
from securecoderl_edge.export.onnx_weights import DATA, onnx_package
from securecoderl_edge.models.gguf.header import GgufHeader, read_header
from securecoderl_edge.models.gguf.layout import gguf_package
from securecoderl_edge.prompts.styles import STYLE_KEY
from securecoderl_edge.runtimes.manifests import check_hashes, is_plain_name, manifest_path
from securecoderl_edge.runtimes.onnx.model import MODEL
from securecoderl_edge.system.files import read_json
from securecoderl_edge.text import NORMALIZER_KEY


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
        found = _check_files(file, manifest)
        _require(file, manifest, _facts_of_folder(file))
        return manifest, found
    if not isinstance(manifest, GgufManifest | AdapterManifest):
        raise TypeError(type(manifest))
    found = check_hashes({file: manifest.sha256})[file]
    is_adapter = isinstance(manifest, AdapterManifest)
    _require(file, manifest, {"bytes": file.stat().st_size, **_facts_of_gguf(file, is_adapter)})
    return manifest, found


def _check_files(folder: Path, manifest: OnnxManifest) -> str:
    names = {*manifest.files}
    if not {MODEL, DATA} <= names or not all(map(is_plain_name, names)):
        raise SceError(f"{manifest_path(folder)}: not the manifest of an ONNX export. Export again.")
    extra = {path.name for path in folder.iterdir()} - {*names, manifest_path(folder).name, CARD}
    if extra:
        raise SceError(f"{folder} has files that are not in its manifest: {', '.join(sorted(extra))}. Export again.")
    return check_hashes({folder / name: expected for name, expected in manifest.files.items()})[folder / DATA]


def _require(file: Path, manifest: Manifest, facts: dict[str, Any]) -> None:
    for name, found in facts.items():
        if getattr(manifest, name) != found:
            expected = f"{manifest_path(file)} has {getattr(manifest, name)}"
            raise SceError(f"{file}: {name} is {found}, but {expected}. Export again.")


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
    places = {
        entry.value for weight in model.graph.initializer for entry in weight.external_data if entry.key == "location"
    }
    if places != {DATA}:
        raise SceError(f"{folder / MODEL}: reads weights from files other than {DATA}. Export again.")
    half = onnx.TensorProto.FLOAT16
    is_half = any(weight.data_type == half for weight in model.graph.initializer)
    return {
        "quant": f"int{min(bits)}" if bits else "f16" if is_half else "f32",
        "portable": all(node.domain == "" for node in model.graph.node),
        "bytes": sum((folder / name).stat().st_size for name in (MODEL, DATA)),
        "prompt_style": read_json(folder / "config.json").get(STYLE_KEY),
    }
