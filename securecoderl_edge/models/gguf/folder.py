"""A GGUF file as a Hugging Face folder: weights dequantized tensor by tensor, into the user's cache.

Files may be damaged or malicious: sizes are checked against the file before anything is read, and no text of the file
becomes a path.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.architecture import Architecture, architecture_of
from securecoderl_edge.models.gguf.config import config_of
from securecoderl_edge.models.gguf.header import ROPE_DIVISORS, GgufHeader, GgufTensor, read_header
from securecoderl_edge.models.gguf.layout import gguf_package, restored, tensor_names
from securecoderl_edge.models.gguf.tokenizer_files import tokenizer_files_of
from securecoderl_edge.system.files import known_sha256, read_json, remove_abandoned, temporary_beside
from securecoderl_edge.system.folders import cache_folder

if TYPE_CHECKING:
    import numpy as np

# In config.json: the GGUF file that a folder was made from.
SOURCE_KEY = "gguf_source"
# Increased when the written folders change: older ones are then made again.
_VERSION = 1
# Types that stay; all others become float32.
_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
# ggml's numbers of these types.
_F32, _TWO_BYTES = 0, (1, 30)
# Bytes that wait for the disk, so that waiting for it takes seconds at most: nothing interrupts it.
_UNSYNCED = 256 << 20
# Numbers that are dequantized at a time: gguf needs several times as much for its own steps.
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class _Weight:
    """One tensor to convert: where it is in the file, and what it becomes. Where the type stays, the numbers do."""

    name: str
    source: GgufTensor
    kind: str
    rows: int
    columns: int
    row_bytes: int
    dtype: str
    sizes: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return self.rows * self.columns * _BYTES[self.dtype]


def folder_of_gguf(path: Path, tell: Callable[[str], None] = lambda line: None) -> Path:
    """The Hugging Face folder of a GGUF file, in the user's cache under the file's hash; converted once.

    Args:
        tell: called with one line before a conversion.

    Raises:
        UsageError: an adapter, or a model that the folder cannot express (named).
        SceError: the file is damaged, or the cache folder cannot be written.
        MissingExtra: gguf or tokenizers is not installed.
    """
    target = converted_folder() / known_sha256(path)
    remove_abandoned(target)
    if _is_whole(target):
        return target
    tell(conversion_in_words(path, converted_bytes(read_header(path)), target))
    shutil.rmtree(target, ignore_errors=True)
    try:
        # A whole folder is never replaced: another process may be reading it.
        with temporary_beside(target) as temporary:
            temporary.mkdir()
            _convert(path, temporary, target.name)
    except SceError as error:
        if _is_whole(target):  # another process was faster
            return target
        if isinstance(error.__cause__, OSError):
            raise SceError(f"{error}. Set XDG_CACHE_HOME to another folder to keep converted models in.") from None
        raise
    return target


def converted_folder() -> Path:
    """Where the folders of GGUF files are."""
    return cache_folder() / "gguf"


def converted_bytes(header: GgufHeader) -> int:
    """The size of the weights that a GGUF file becomes."""
    return sum(math.prod(each.sizes) * (2 if each.type in _TWO_BYTES else 4) for each in header.weights)


def conversion_in_words(path: Path, size: int, target: Path) -> str:
    """One line on the conversion of a file to ``size`` bytes in ``target``."""
    return f"{path} ({path.stat().st_size / 1e9:.2f} GB) is converted once, to {size / 1e9:.2f} GB in {target}"


def architecture_of_gguf(header: GgufHeader, path: Path) -> Architecture:
    """The architecture of a GGUF file, from its ``header``; nothing is converted, and most weights are not read.

    Raises:
        UsageError, SceError: as `folder_of_gguf`.
    """
    _require_model(header, path)
    return architecture_of(config_of(header, _divisors(header, path), path), str(path))


def gguf_source(folder: Path) -> dict[str, Any] | None:
    """The note of a folder that was made from a GGUF file: its name, ``sha256`` and number of tensors by type."""
    note = read_json(folder / "config.json").get(SOURCE_KEY)
    return note if isinstance(note, dict) and isinstance(note.get("tensor_types"), dict) else None


def _is_whole(folder: Path) -> bool:
    if not (folder / "config.json").is_file() or not (folder / "model.safetensors").is_file():
        return False
    return (gguf_source(folder) or {}).get("version") == _VERSION


def _convert(path: Path, folder: Path, digest: str) -> None:
    gguf_package()
    header = read_header(path, with_lists=True)
    _require_model(header, path)
    kinds = _kinds(header, path)
    config = config_of(header, _divisors(header, path), path)
    shape = architecture_of(config, str(path))
    weights = _plan(header, kinds, shape, path)
    vocabulary = tokenizer_files_of(header, shape.vocabulary, path)
    matrices = [weight.dtype for weight in weights if weight.rows > 1]
    config |= {"dtype": {"F16": "float16", "BF16": "bfloat16"}[matrices[0]] if "F32" not in matrices else "float32"}
    config |= vocabulary.ids
    types = Counter(weight.kind.lower() for weight in weights)
    config[SOURCE_KEY] = {
        "name": header.values.get("general.name"),
        "sha256": digest,
        "tensor_types": dict(sorted(types.items())),
        "version": _VERSION,
    }
    license = header.values.get("general.license")
    if isinstance(license, str) and license.isprintable():
        (folder / "README.md").write_text(f"---\nlicense: {license}\n---\n", encoding="utf-8")
    for name, content in vocabulary.files.items():
        (folder / name).write_text(content, encoding="utf-8")
    _require_room(folder, sum(weight.bytes for weight in weights))
    with path.open("rb") as file, (folder / "model.safetensors").open("wb") as out:
        _write_weights(file, out, weights, shape, path)
    (folder / "generation_config.json").write_text(json.dumps(vocabulary.ids), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def _require_model(header: GgufHeader, path: Path) -> None:
    if header.values.get("general.type", "model") != "model":
        raise UsageError(f"{path}: not a model but of type {header.values['general.type']!r}. Give its base model.")
    parts = header.values.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise UsageError(f"{path}: one of {parts} parts. Join them with: llama-gguf-split --merge")


def _kinds(header: GgufHeader, path: Path) -> dict[str, Any]:
    """The type of each tensor, after a check that the whole tensor is in the file.

    Raises:
        SceError: a tensor is outside of the file, or has an unknown type.
    """
    import numpy as np

    gguf = gguf_package()
    kinds: dict[str, Any] = {}
    known = set()
    size = left = path.stat().st_size
    for tensor in header.tensors:
        try:
            kind = gguf.GGMLQuantizationType(tensor.type)
            block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
            if kind not in known:
                gguf.quants.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
                known.add(kind)
        except (ValueError, KeyError, NotImplementedError):
            raise SceError(f"{path}: {tensor.name} has the unknown type {tensor.type}; choose another file") from None
        columns, rows = tensor.sizes[0] if tensor.sizes else 0, math.prod(tensor.sizes[1:])
        if tensor.name in kinds or columns < 1 or rows < 1 or columns % block:
            raise SceError(f"{path}: damaged at tensor {tensor.name}; download it again")
        count = rows * columns // block * block_bytes
        left -= count  # tensors that share their bytes would make a small file a large folder
        if tensor.start + count > size or left < 0:
            raise SceError(f"{path}: ends before the end of tensor {tensor.name}; download it again")
        kinds[tensor.name] = kind
    return kinds


def _divisors(header: GgufHeader, path: Path) -> list[float]:
    """The content of `ROPE_DIVISORS`, if the file has it."""
    import numpy as np

    tensor = next((tensor for tensor in header.tensors if tensor.name == ROPE_DIVISORS), None)
    if tensor is None:
        return []
    if tensor.type != _F32 or len(tensor.sizes) != 1 or tensor.start + 4 * tensor.sizes[0] > path.stat().st_size:
        raise SceError(f"{path}: damaged at tensor {ROPE_DIVISORS}; download it again")
    divisors: list[float] = np.fromfile(path, np.float32, tensor.sizes[0], offset=tensor.start).tolist()
    return divisors


def _plan(header: GgufHeader, kinds: dict[str, Any], shape: Architecture, path: Path) -> list[_Weight]:
    """The tensors to convert, in the order of the file.

    Raises:
        UsageError: a tensor of this architecture is missing, has another shape, or is unknown.
    """
    gguf = gguf_package()
    tensors = {tensor.name: tensor for tensor in header.weights}
    weights, sizes = [], shape.tensors()
    for name, ((target, _),) in tensor_names(shape).items():
        tensor = tensors.pop(target, None)
        size = tensor.sizes[::-1] if tensor else None
        if tensor is None or size != sizes[name]:
            raise UsageError(f"{path}: {target}: expected shape {sizes[name]}, found {size}; download it again")
        kind = kinds[target]
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        rows, columns = math.prod(size[:-1]), size[-1]
        keeps_type = kind.name in _BYTES and not (shape.kind.norm_offset and rows == 1)
        row_bytes, dtype = columns // block * block_bytes, kind.name if keeps_type else "F32"
        weights.append(_Weight(name, tensor, kind.name, rows, columns, row_bytes, dtype, size))
    if tensors:
        raise UsageError(f"{path}: unknown tensor {min(tensors)} for a {shape.family} model")
    return sorted(weights, key=lambda weight: weight.source.start)


def _require_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise SceError(
            f"{folder.parent}: the converted model needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free. Set "
            "XDG_CACHE_HOME to a folder on another disk."
        )


def _write_weights(file: IO[bytes], out: IO[bytes], weights: list[_Weight], shape: Architecture, path: Path) -> None:
    """Write a safetensors file, one tensor in memory at a time."""
    import numpy as np

    index: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for weight in weights:
        index[weight.name] = {
            "dtype": weight.dtype,
            "shape": weight.sizes,
            "data_offsets": [end, end + weight.bytes],
        }
        end += weight.bytes
    text = json.dumps(index).encode()
    text += b" " * (-len(text) % 8)
    out.write(len(text).to_bytes(8, "little") + text)
    written = 0
    for weight in weights:
        values = restored(weight.name, _numbers(file, weight, path).reshape(weight.sizes), shape)
        written += out.write(np.ascontiguousarray(values).data)
        if written > _UNSYNCED:
            out.flush()
            os.fsync(out.fileno())
            written = 0


def _numbers(file: IO[bytes], weight: _Weight, path: Path) -> np.ndarray[Any, Any]:
    """The numbers of a tensor, float32 unless the file has them in a float type.

    Raises:
        SceError: NaN or Inf.
    """
    import numpy as np

    gguf = gguf_package()
    kind = gguf.GGMLQuantizationType[weight.kind]
    file.seek(weight.source.start)
    stored = np.fromfile(file, np.uint8, weight.rows * weight.row_bytes).reshape(weight.rows, weight.row_bytes)
    if weight.kind == weight.dtype:
        numbers = stored.view({"F32": np.float32, "F16": np.float16, "BF16": np.uint16}[weight.dtype])
    else:
        numbers = np.empty((weight.rows, weight.columns), np.float32)
    step = max(1, _AT_ONCE // weight.columns)
    for first in range(0, weight.rows, step):
        rows = gguf.quants.dequantize(stored[first : first + step], kind)
        if not np.isfinite(rows).all():
            raise SceError(f"{path}: {weight.source.name} has NaN or Inf; download it again")
        if weight.kind != weight.dtype:
            numbers[first : first + step] = rows
    return numbers
