"""What an exported file holds, read from the file, and whether that is what its manifest says."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.export.gguf import ROPE_DIVISORS, gguf_package
from securecoderl_edge.export.manifest import (
    CARD,
    AdapterManifest,
    GgufManifest,
    Manifest,
    OnnxManifest,
    read_manifest,
)
from securecoderl_edge.export.onnx import MODEL
from securecoderl_edge.export.onnx_weights import DATA, onnx_package
from securecoderl_edge.manifests import check_hashes, manifest_path


def tensor_types(path: Path) -> tuple[dict[str, int], int]:
    """How many weights of a GGUF file have each type, and the bytes of all tensors.

    Raises:
        SceError: it is no GGUF file, or a damaged one.
    """
    tensors = _read_gguf(path).tensors
    types = Counter(tensor.tensor_type.name.lower() for tensor in tensors if tensor.name != ROPE_DIVISORS)
    return dict(sorted(types.items())), sum(int(tensor.n_bytes) for tensor in tensors)


def check_content(file: Path) -> tuple[Manifest, str]:
    """Check that a file, or an ONNX folder, is the one that its manifest describes, and of the type that it names.

    Returns:
        the manifest; sha256 of the file, of the weights of a folder.

    Raises:
        SceError: it is not, or the manifest is damaged.
    """
    manifest = read_manifest(file)
    if file.is_dir() != isinstance(manifest, OnnxManifest):
        raise SceError(f"{manifest_path(file)}: is the manifest of something else; export again")
    if isinstance(manifest, OnnxManifest):
        found = _check_files(file, manifest)
        _require_type(file, manifest, *_onnx_type(file))
        return manifest, found
    if not isinstance(manifest, GgufManifest | AdapterManifest):
        raise TypeError(type(manifest))
    found = check_hashes({file: manifest.sha256})[file]
    if isinstance(manifest, AdapterManifest):
        # Its factors alone; they have one type.
        _require_type(file, manifest, "/".join(tensor_types(file)[0]))
    else:
        _require_type(file, manifest, _gguf_type(file))
        if tensor_types(file)[0] != manifest.tensor_types:
            raise SceError(f"{file} has other types of tensors than {manifest_path(file)} says; export again")
    return manifest, found


def _check_files(folder: Path, manifest: OnnxManifest) -> str:
    names = {*manifest.files}
    # A name in a manifest must not lead out of the folder.
    if not {MODEL, DATA} <= names or any(Path(name).name != name or "\0" in name for name in names):
        raise SceError(f"{manifest_path(folder)}: is no manifest of an export; export again")
    extra = {path.name for path in folder.iterdir()} - {*names, manifest_path(folder).name, CARD}
    if extra:
        raise SceError(f"{folder} is not what was exported: {', '.join(sorted(extra))}")
    return check_hashes({folder / name: expected for name, expected in manifest.files.items()})[folder / DATA]


def _require_type(file: Path, manifest: Manifest, found: str, portable: bool = False) -> None:
    said = isinstance(manifest, OnnxManifest) and manifest.portable
    if (found, portable) != (manifest.quant, said):
        named = [f"{quant}{' in standard operators' if standard else ''}"
                 for quant, standard in ((found, portable), (manifest.quant, said))]  # fmt: skip
        raise SceError(f"{file} is {named[0]}, and {manifest_path(file)} says {named[1]}; export again")


def _gguf_type(path: Path) -> str:
    """What the header of a model says."""
    gguf = gguf_package()
    field = _read_gguf(path).get_field("general.file_type")
    try:
        return str(gguf.LlamaFileType(int(field.contents())).name.lower().removeprefix("all_").removeprefix("mostly_"))
    except (AttributeError, TypeError, ValueError):
        return "of an unknown type"


def _onnx_type(folder: Path) -> tuple[str, bool]:
    """The type of the linear layers of a graph, and whether it has standard operators alone."""
    onnx = onnx_package()
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(folder / MODEL, load_external_data=False)
    except (DecodeError, ValueError) as error:
        raise SceError(f"{folder / MODEL}: is no ONNX graph ({error})") from None
    is_standard = all(node.domain == "" for node in model.graph.node)
    bits = {
        int(onnx.helper.get_node_attr_value(node, "bits")) for node in model.graph.node if node.op_type == "MatMulNBits"
    }
    if bits:
        return f"int{min(bits)}", is_standard
    half = onnx.TensorProto.FLOAT16
    is_half = any(weight.data_type == half for weight in model.graph.initializer)
    return "f16" if is_half else "f32", is_standard


def _read_gguf(path: Path) -> Any:
    gguf = gguf_package()
    try:
        return gguf.GGUFReader(path)
    except (OSError, ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError, struct.error) as error:
        raise SceError(f"{path}: is no GGUF file, or a damaged one ({error})") from None
