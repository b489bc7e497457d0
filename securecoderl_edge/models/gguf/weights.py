"""The weights of a GGUF file under their Hugging Face names, dequantized one at a time when they are read.

Files may be damaged or malicious: sizes are checked against the file before anything is read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.architecture import Architecture
from securecoderl_edge.models.gguf.dequantize import dequantize
from securecoderl_edge.models.gguf.header import GgufHeader, GgufTensor
from securecoderl_edge.models.gguf.layout import gguf_package, restored, tensor_names

if TYPE_CHECKING:
    import numpy as np

# Types that stay; all others become float32.
_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
# Numbers that are dequantized at a time.
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class GgufWeight:
    """One weight: where it is in the file, and what it becomes. Where the type stays, the numbers do.

    ``kind`` is the file's type of it, ``dtype`` that of the numbers, named as in safetensors files: F32, F16 or BF16.
    """

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
        """Bytes of the numbers."""
        return self.rows * self.columns * _BYTES[self.dtype]


class GgufWeights:
    """All weights of a GGUF file.

    Raises:
        UsageError: a tensor of this architecture is missing, has another shape, or is unknown.
        SceError: a tensor is outside of the file, or has an unknown type.
    """

    def __init__(self, path: Path, header: GgufHeader, shape: Architecture) -> None:
        self._path, self._shape = path, shape
        self.weights = _plan(header, _kinds(header, path), shape, path)

    def read(self) -> Iterator[tuple[GgufWeight, np.ndarray[Any, Any]]]:
        """Each weight and its numbers, in the order of the file; uint16 stands for BF16.

        Raises:
            SceError: NaN or Inf.
        """
        with self._path.open("rb") as file:
            for weight in self.weights:
                # No name for the numbers: it would keep them while the next ones are made.
                yield (
                    weight,
                    restored(weight.name, _numbers(file, weight, self._path).reshape(weight.sizes), self._shape),
                )

    def sha256(self, on_weight: Callable[[int, int], None] = lambda done, total: None) -> str:
        """SHA-256 of the safetensors file that earlier versions wrote of these weights: it identifies them in runs and
        manifests. Errors as in `read`.

        Args:
            on_weight: called with the number of weights that are read, and that of all.
        """
        import numpy as np

        index: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        end = 0
        for weight in self.weights:
            offsets = [end, end := end + weight.bytes]
            index[weight.name] = {"dtype": weight.dtype, "shape": weight.sizes, "data_offsets": offsets}
        text = json.dumps(index).encode()
        text += b" " * (-len(text) % 8)
        digest = hashlib.sha256(len(text).to_bytes(8, "little") + text)
        for done, (_, numbers) in enumerate(self.read()):
            on_weight(done, len(self.weights))
            digest.update(np.ascontiguousarray(numbers).data)
            del numbers
        return digest.hexdigest()


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
                dequantize(np.zeros((1, block_bytes), np.uint8), kind)
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


def _plan(header: GgufHeader, kinds: dict[str, Any], shape: Architecture, path: Path) -> list[GgufWeight]:
    """The weights, in the order of the file.

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
        weights.append(GgufWeight(name, tensor, kind.name, rows, columns, row_bytes, dtype, size))
    if tensors:
        raise UsageError(f"{path}: unknown tensor {min(tensors)} for a {shape.family} model")
    return sorted(weights, key=lambda weight: weight.source.start)


def _numbers(file: IO[bytes], weight: GgufWeight, path: Path) -> np.ndarray[Any, Any]:
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
        rows = dequantize(stored[first : first + step], kind)
        if not np.isfinite(rows).all():
            raise SceError(f"{path}: {weight.source.name} has NaN or Inf; download it again")
        if weight.kind != weight.dtype:
            numbers[first : first + step] = rows
    return numbers
