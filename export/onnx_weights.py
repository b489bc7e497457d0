"""Weights of an ONNX graph: a file next to it, and the initializers that point into the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

from securecoderl_edge.errors import SceError, needs
from securecoderl_edge.models.architecture import Architecture
from securecoderl_edge.models.families import QKV, SPLIT_MLP

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

DATA = "model.onnx.data"
BLOCK = 32

_SMALLEST_BITS_OF_VOCABULARY = 8
_PAGE, _LARGE = 4096, 1 << 16
_ROWS_AT_A_TIME = 2048
_LAYER = "model.layers."
_ROTATION, _LOCAL_ROTATION = ("cosines", "sines"), ("cosines.local", "sines.local")


def quantize_blocks(weight: Floats, bits: int) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Quantize to ``bits`` in blocks of 32 along a row, in the layout of MatMulNBits.

    The largest absolute value of a block is exact; the zero point is 2^(bits - 1).

    Args:
        weight: (N, K).

    Returns:
        codes (N, blocks, 32 * bits / 8), with 4 bits two per byte, the first in the lower half; scales (N, blocks).
    """
    import numpy as np

    rows, columns = weight.shape
    blocks = -(-columns // BLOCK)
    codes = np.empty((rows, blocks, BLOCK * bits // 8), dtype=np.uint8)
    scales = np.empty((rows, blocks), dtype=np.float32)
    zero = 1 << (bits - 1)
    for start in range(0, rows, _ROWS_AT_A_TIME):
        part = np.zeros((len(weight[start : start + _ROWS_AT_A_TIME]), blocks * BLOCK), dtype=np.float32)
        part[:, :columns] = weight[start : start + _ROWS_AT_A_TIME]
        part = part.reshape(len(part), blocks, BLOCK)
        furthest = np.take_along_axis(part, np.abs(part).argmax(-1, keepdims=True), -1)
        scale = furthest / -zero
        inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
        rounded = np.clip(np.rint(part * inverse) + zero, 0, 2 * zero - 1).astype(np.uint8)
        if bits == 4:
            rounded = rounded[..., 0::2] | (rounded[..., 1::2] << 4)
        codes[start : start + len(part)] = rounded
        scales[start : start + len(part)] = scale[..., 0]
    return codes, scales


def rotation_of(shape: Architecture, layer: int) -> tuple[str, ...]:
    """Names of the cosines and sines of a layer; empty if it has no rotary embedding."""
    if not shape.rotated[layer]:
        return ()
    is_local = shape.local_rope_theta is not None and shape.windows[layer] is not None
    return _LOCAL_ROTATION if is_local else _ROTATION


def onnx_package() -> Any:
    """Import the onnx package.

    Raises:
        MissingExtra: it is not installed.
    """
    with needs("onnx", "onnx"):
        import onnx
    return onnx


class Weights:
    """Writer of the initializers, in one file next to the graph; tensors may come in any order.

    A linear layer ``NAME`` becomes ``NAME.w`` (in, out), or ``NAME.q`` and ``NAME.s``; q, k and v become one, ``qkv``,
    and gate and up two. Norms include their offset, and weights the factors of the residual stream and of the logits.

    Args:
        data: the file to write to.
        bits: of linear layers; None for floating point.
        is_half: whether floating point is float16.
    """

    def __init__(self, data: IO[bytes], shape: Architecture, bits: int | None, is_half: bool = False) -> None:
        self._data, self._shape, self._bits, self._is_half = data, shape, bits, is_half
        self._waiting: dict[str, Floats] = {}
        self.initializers: dict[str, Any] = {}
        self.bytes = 0

    def add(self, name: str, value: Floats) -> None:
        """Write one tensor, under its Hugging Face name; parts of ``qkv`` wait for each other.

        Raises:
            SceError: it has NaN or Inf, or exceeds the range of float16.
        """
        import numpy as np

        if not np.isfinite(value).all():
            raise SceError(f"weight {name} has NaN or Inf: the model or its adapter is damaged")
        before = self._data.tell()
        for part, rows in self._shape.split_names(name):
            self._add(part, self._folded(part, value[rows]))
        self.bytes += self._data.tell() - before

    @property
    def vocabulary_bits(self) -> int | None:
        """Bits of the embedding and the output layer."""
        return None if self._bits is None else max(self._bits, _SMALLEST_BITS_OF_VOCABULARY)

    def add_constants(self) -> None:
        """Write the cosines and sines of the rotary embeddings (context, head_size / 2), and the embedding's factor."""
        import numpy as np

        shape = self._shape
        exponents = -(np.arange(0, shape.head_size, 2, dtype=np.float64) / shape.head_size)
        divisors = np.array(shape.rope_divisors) if shape.rope_divisors else shape.rope_factor
        speeds: dict[tuple[str, ...], Any] = {_ROTATION: shape.rope_theta**exponents / divisors}
        if shape.local_rope_theta is not None:
            speeds[_LOCAL_ROTATION] = shape.local_rope_theta**exponents
        for names in sorted({rotation_of(shape, layer) for layer in range(shape.layers)} - {()}):
            # As in transformers: frequencies and positions in float32, for equal angles at far positions.
            angles = np.outer(np.arange(shape.context, dtype=np.float32), speeds[names].astype(np.float32))
            self._write(names[0], np.cos(angles))
            self._write(names[1], np.sin(angles))
        if shape.embedding_scale != 1:
            self._write("embedding.scale", np.array([shape.embedding_scale], dtype=np.float32))

    def _add(self, name: str, value: Floats) -> None:
        stem = name.removeprefix(_LAYER)
        if name == "model.embed_tokens.weight":
            self._add_vocabulary(value)
        elif name == "lm_head.weight":
            self._add_linear("head", value, self.vocabulary_bits)
        elif any(f".{linear}." in name for linear in QKV):
            self._add_attention(stem, value)
        elif value.ndim == 2:
            self._add_linear(stem.removesuffix(".weight"), value, self._bits)
        else:
            self._write(stem, value)

    def _folded(self, name: str, value: Floats) -> Floats:
        """A weight with the offset of norms, and times the factor of the logits or of the residual stream."""
        shape, layer = self._shape, name.rpartition(".")[0]
        norms = shape.kind.norms
        if layer.endswith("norm"):
            value = value + shape.kind.norm_offset
        if layer == "model.norm":
            return value * shape.logit_scale
        # What is last before attention or MLP are added.
        ends = (norms.after_attention or "self_attn.o_proj", norms.after_mlp or SPLIT_MLP[2])
        return value * shape.residual_scale if layer.endswith(ends) else value

    def _add_vocabulary(self, value: Floats) -> None:
        bits = self.vocabulary_bits
        if bits is None:
            self._write("embedding.w", value)
            if self._shape.tied:
                self._add_linear("head", value, None)
            return
        codes, scales = quantize_blocks(value, bits)
        self._write("embedding.q", codes.reshape(len(codes), -1))
        self._write("embedding.s", scales)
        if self._shape.tied:
            # The same bytes, under the names of the output layer.
            self._alias("head.q", "embedding.q", codes.shape)
            self._alias("head.s", "embedding.s", scales.shape)

    def _add_attention(self, stem: str, value: Floats) -> None:
        import numpy as np

        layer, _, part = stem.partition(".self_attn.")
        kind = part.rpartition(".")[2]
        self._waiting[stem] = value
        parts = [f"{layer}.self_attn.{each}_proj.{kind}" for each in "qkv"]
        if not all(each in self._waiting for each in parts):
            return
        whole = np.concatenate([self._waiting.pop(each) for each in parts])
        if kind == "bias":
            self._write(f"{layer}.qkv.bias", whole)
        else:
            self._add_linear(f"{layer}.qkv", whole, self._bits)

    def _add_linear(self, name: str, value: Floats, bits: int | None) -> None:
        if bits is None:
            self._write(f"{name}.w", value.T)
            return
        codes, scales = quantize_blocks(value, bits)
        self._write(f"{name}.q", codes)
        self._write(f"{name}.s", scales)

    def _write(self, name: str, value: npt.NDArray[Any]) -> None:
        import numpy as np

        onnx = onnx_package()
        if self._is_half:
            if value.size and np.abs(value).max() > np.finfo(np.float16).max:
                raise SceError(f"weight {name} exceeds the range of float16. Export with --quant f32.")
            value = value.astype(np.float16)
        value = np.ascontiguousarray(value)
        alignment = _PAGE if value.nbytes >= _LARGE else 64
        self._data.write(b"\0" * (-self._data.tell() % alignment))
        tensor = onnx.TensorProto(
            name=name,
            data_type=onnx.helper.np_dtype_to_tensor_dtype(value.dtype),
            dims=value.shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        location = {"location": DATA, "offset": str(self._data.tell()), "length": str(value.nbytes)}
        for key, text in location.items():
            tensor.external_data.add(key=key, value=text)
        self._data.write(value.data.cast("B"))
        self.initializers[name] = tensor

    def _alias(self, name: str, of: str, sizes: Sequence[int]) -> None:
        tensor = type(self.initializers[of])()
        tensor.CopyFrom(self.initializers[of])
        tensor.name = name
        tensor.dims[:] = sizes
        self.initializers[name] = tensor
