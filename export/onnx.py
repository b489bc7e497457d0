"""A Llama or Qwen2 model as an ONNX graph for onnxruntime, written with the `onnx` package alone, tensor by tensor.

    input_ids (batch, seq), attention_mask (batch, total), past_key_values.N.key|value (batch, heads, past, head size)
      -> logits (batch, seq, vocabulary), present.N.key|value (batch, heads, total, head size)

Attention is onnxruntime's GroupQueryAttention: it rotates, keeps keys and values in place when past and present are one
buffer, and takes rows of different lengths padded on the right, whose lengths it reads from the mask. Weights are
float32, or 8 or 4 bits in blocks of 32 (MatMulNBits, products in int8), the embedding then in 8 bits too. These are
operators of onnxruntime (domain com.microsoft), so the graph runs there and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from securecoderl_edge.architecture import Architecture, read_architecture
from securecoderl_edge.errors import MissingExtra, SceError, UsageError
from securecoderl_edge.export.gguf import ROPE_TYPES
from securecoderl_edge.export.merge import merged_tensors, tensor_shapes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

MODEL, DATA = "model.onnx", "model.onnx.data"
# Bits of the linear layers; None is float32. The output layer and the embedding have 8 where the others have 4.
BITS = {"f32": None, "int8": 8, "int4": 4}

_MICROSOFT = "com.microsoft"
_OPSET, _IR = 21, 10
_BLOCK = 32
# The sums of products are made in int8: ten times as fast as float32, at little cost.
_ACCURACY_LEVEL = 4
_SMALLEST_BITS_OF_VOCABULARY = 8
_PAGE, _LARGE = 4096, 1 << 16
_ROWS_AT_A_TIME = 2048
_LAYER = "model.layers."


@dataclass(frozen=True)
class OnnxSummary:
    """What was written.

    Attributes:
        bits_per_weight: bits of weight data, scales included, over parameters.
    """

    parameters: int
    bits_per_weight: float


def write_onnx(base: Path, adapter: Path | None, quant: str, folder: Path) -> OnnxSummary:
    """Write ``base`` with ``adapter`` merged in as `MODEL` and `DATA` in ``folder``.

    Args:
        quant: one of `BITS`.
        folder: exists; callers pass a temporary one and rename it.

    Raises:
        UsageError: architecture or adapter that export does not support (named).
        SceError: a source file is missing or damaged.
        MissingExtra: onnx is not installed.
    """
    onnx = _onnx_package()
    shape = read_architecture(base)
    if shape.rope_type not in ROPE_TYPES:
        raise UsageError(
            f"{base}: rope type {shape.rope_type!r} is not supported by export, only {', '.join(ROPE_TYPES)}"
        )
    if shape.head_size % 8:
        raise UsageError(f"{base}: heads of {shape.head_size} numbers are not supported by onnxruntime's attention")
    found, expected = tensor_shapes(base), shape.tensors()
    for name, sizes in expected.items():
        if found.get(name) != sizes:
            raise UsageError(f"{base}: weight {name} should be {sizes}, found {found.get(name, 'none')}")
    with (folder / DATA).open("wb") as data:
        weights = _Weights(data, shape, BITS[quant])
        for name, tensor in merged_tensors(base, adapter):
            if name in expected:
                weights.add(name, tensor.contiguous().numpy())
        weights.add_rotation()
        graph = _Graph(weights, shape)
        model = onnx.helper.make_model(
            graph.build(),
            opset_imports=[onnx.helper.make_opsetid("", _OPSET), onnx.helper.make_opsetid(_MICROSOFT, 1)],
            ir_version=_IR,
            producer_name="securecoderl-edge",
        )
    onnx.save(model, folder / MODEL)
    parameters = shape.parameters()
    return OnnxSummary(parameters, round(8 * weights.bytes / parameters, 3))


def quantise_blocks(weight: Floats, bits: int) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Round to ``bits`` in blocks of 32 along a row, as MatMulNBits reads them.

    The number of a block that is furthest from 0 is met exactly; the zero point is 2^(bits - 1).

    Args:
        weight: (N, K).

    Returns:
        codes (N, blocks, 32 * bits / 8), two to a byte with 4 bits, the first in the lower half; scales (N, blocks).
    """
    import numpy as np

    rows, columns = weight.shape
    blocks = -(-columns // _BLOCK)
    codes = np.empty((rows, blocks, _BLOCK * bits // 8), dtype=np.uint8)
    scales = np.empty((rows, blocks), dtype=np.float32)
    zero = 1 << (bits - 1)
    for start in range(0, rows, _ROWS_AT_A_TIME):
        part = np.zeros((len(weight[start : start + _ROWS_AT_A_TIME]), blocks * _BLOCK), dtype=np.float32)
        part[:, :columns] = weight[start : start + _ROWS_AT_A_TIME]
        part = part.reshape(len(part), blocks, _BLOCK)
        furthest = np.take_along_axis(part, np.abs(part).argmax(-1, keepdims=True), -1)
        scale = furthest / -zero
        inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
        rounded = np.clip(np.rint(part * inverse) + zero, 0, 2 * zero - 1).astype(np.uint8)
        if bits == 4:
            rounded = rounded[..., 0::2] | (rounded[..., 1::2] << 4)
        codes[start : start + len(part)] = rounded
        scales[start : start + len(part)] = scale[..., 0]
    return codes, scales


def _onnx_package() -> Any:
    try:
        import onnx
    except ModuleNotFoundError:
        raise MissingExtra("onnx", "onnx") from None
    return onnx


class _Weights:
    """Initialisers in one file beside the graph, written as the tensors come, whatever their order.

    A linear layer ``NAME`` becomes ``NAME.w`` (in, out), or ``NAME.q`` and ``NAME.s``; q, k and v become one, ``qkv``.
    """

    def __init__(self, data: IO[bytes], shape: Architecture, bits: int | None) -> None:
        self._data, self._shape, self._bits = data, shape, bits
        self._waiting: dict[str, Floats] = {}
        self.initialisers: dict[str, Any] = {}
        self.bytes = 0

    def add(self, name: str, value: Floats) -> None:
        """Write one tensor, under its Hugging Face name; parts of ``qkv`` wait for each other.

        Raises:
            SceError: it holds numbers that are not finite.
        """
        import numpy as np

        if not np.isfinite(value).all():
            raise SceError(f"weight {name} has values that are not finite; the model or its adapter is broken")
        before, stem = self._data.tell(), name.removeprefix(_LAYER)
        if name == "model.embed_tokens.weight":
            self._add_vocabulary(value)
        elif name == "lm_head.weight":
            self._add_linear("head", value, self.vocabulary_bits)
        elif ".self_attn." in name and name.rpartition(".self_attn.")[2][0] in "qkv":
            self._add_attention(stem, value)
        elif value.ndim == 2:
            self._add_linear(stem.removesuffix(".weight"), value, self._bits)
        else:
            self._write(stem, value)
        self.bytes += self._data.tell() - before

    @property
    def vocabulary_bits(self) -> int | None:
        """Of embedding and output layer."""
        return None if self._bits is None else max(self._bits, _SMALLEST_BITS_OF_VOCABULARY)

    def add_rotation(self) -> None:
        """Write cosines and sines (context, head_size / 2) of every position."""
        import numpy as np

        shape = self._shape
        speeds = shape.rope_theta ** -(np.arange(0, shape.head_size, 2, dtype=np.float64) / shape.head_size)
        speeds /= np.array(shape.rope_divisors) if shape.rope_divisors else shape.rope_factor
        # As transformers: speeds and positions in float32, so that the angles of far positions are the same.
        angles = np.outer(np.arange(shape.context, dtype=np.float32), speeds.astype(np.float32))
        self._write("cosines", np.cos(angles))
        self._write("sines", np.sin(angles))

    def _add_vocabulary(self, value: Floats) -> None:
        bits = self.vocabulary_bits
        if bits is None:
            self._write("embedding.w", value)
            if self._shape.tied:
                self._add_linear("head", value, None)
            return
        codes, scales = quantise_blocks(value, bits)
        self._write("embedding.q", codes.reshape(len(codes), -1))
        self._write("embedding.s", scales)
        if self._shape.tied:
            # The same bytes under the names that the output layer has for them.
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
        codes, scales = quantise_blocks(value, bits)
        self._write(f"{name}.q", codes)
        self._write(f"{name}.s", scales)

    def _write(self, name: str, value: npt.NDArray[Any]) -> None:
        import numpy as np

        onnx = _onnx_package()
        value = np.ascontiguousarray(value)
        alignment = _PAGE if value.nbytes >= _LARGE else 64
        self._data.write(b"\0" * (-self._data.tell() % alignment))
        tensor = onnx.TensorProto(
            name=name,
            data_type=onnx.helper.np_dtype_to_tensor_dtype(value.dtype),
            dims=value.shape,
            data_location=onnx.TensorProto.EXTERNAL,
        )
        place = {"location": DATA, "offset": str(self._data.tell()), "length": str(value.nbytes)}
        for key, text in place.items():
            tensor.external_data.add(key=key, value=text)
        self._data.write(value.data.cast("B"))
        self.initialisers[name] = tensor

    def _alias(self, name: str, of: str, sizes: Sequence[int]) -> None:
        tensor = type(self.initialisers[of])()
        tensor.CopyFrom(self.initialisers[of])
        tensor.name = name
        tensor.dims[:] = sizes
        self.initialisers[name] = tensor


class _Graph:
    """The nodes, from the token ids to the logits."""

    def __init__(self, weights: _Weights, shape: Architecture) -> None:
        self._weights, self._shape = weights, shape
        self._onnx = _onnx_package()
        self._nodes: list[Any] = []

    def build(self) -> Any:
        """The graph, with its inputs, outputs and initialisers."""
        shape, make = self._shape, self._onnx.helper.make_tensor_value_info
        self._count_tokens()
        skip = self._embed()
        normed = self._node("SimplifiedLayerNormalization", [skip, "0.input_layernorm.weight"], "normed.0",
                            epsilon=shape.norm_epsilon, axis=-1, stash_type=1)  # fmt: skip
        for layer in range(shape.layers):
            normed, skip = self._layer(layer, normed, skip)
        self._linear(normed, "head", "logits")
        integers, floats = self._onnx.TensorProto.INT64, self._onnx.TensorProto.FLOAT
        inputs = [
            make("input_ids", integers, ["batch", "seq"]),
            make("attention_mask", integers, ["batch", "total"]),
        ]
        outputs = [make("logits", floats, ["batch", "seq", shape.vocabulary])]
        for layer, half in self._caches():
            sizes = ["batch", shape.key_value_heads, "past", shape.head_size]
            inputs.append(make(f"past_key_values.{layer}.{half}", floats, sizes))
            sizes = ["batch", shape.key_value_heads, "total", shape.head_size]
            outputs.append(make(f"present.{layer}.{half}", floats, sizes))
        initialisers = list(self._weights.initialisers.values())
        return self._onnx.helper.make_graph(self._nodes, shape.family, inputs, outputs, initialisers)

    def _caches(self) -> Iterator[tuple[int, str]]:
        for layer in range(self._shape.layers):
            yield layer, "key"
            yield layer, "value"

    def _count_tokens(self) -> None:
        """What attention asks for: the last position of each row, and how many positions there are."""
        import numpy as np

        integers = self._onnx.TensorProto.INT32
        for name, number in (("axis_1", [1]), ("one", [1]), ("index_1", 1)):
            constant = self._onnx.numpy_helper.from_array(np.array(number, dtype=np.int64), name)
            self._weights.initialisers[name] = constant
        self._node("ReduceSum", ["attention_mask", "axis_1"], "lengths", keepdims=0)
        self._node("Sub", ["lengths", "one"], "last_positions")
        self._node("Cast", ["last_positions"], "sequence_ends", to=integers)
        self._node("Shape", ["attention_mask"], "mask_sizes")
        self._node("Gather", ["mask_sizes", "index_1"], "total_long")
        self._node("Cast", ["total_long"], "total_length", to=integers)

    def _embed(self) -> str:
        bits = self._weights.vocabulary_bits
        if bits is None:
            return self._node("Gather", ["embedding.w", "input_ids"], "embedded")
        return self._node("GatherBlockQuantized", ["embedding.q", "input_ids", "embedding.s"], "embedded", _MICROSOFT,
                          bits=bits, block_size=_BLOCK, gather_axis=0, quantize_axis=1)  # fmt: skip

    def _layer(self, layer: int, normed: str, skip: str) -> tuple[str, str]:
        """One layer; its input, normalised and not, to that of the next."""
        shape = self._shape
        stem, is_last = f"{layer}", layer == shape.layers - 1
        joined = self._linear(normed, f"{stem}.qkv", f"{stem}.qkv.o")
        if shape.family == "qwen2":
            joined = self._node("Add", [joined, f"{stem}.qkv.bias"], f"{stem}.qkv.biased")
        past = [f"past_key_values.{layer}.{half}" for half in ("key", "value")]
        present = [f"present.{layer}.{half}" for half in ("key", "value")]
        attended = self._node(
            "GroupQueryAttention",
            [joined, "", "", *past, "sequence_ends", "total_length", "cosines", "sines"],
            [f"{stem}.attended", *present], _MICROSOFT, num_heads=shape.heads, kv_num_heads=shape.key_value_heads,
            do_rotary=1, rotary_interleaved=0, scale=float(shape.head_size**-0.5),
        )  # fmt: skip
        out = self._linear(attended, f"{stem}.self_attn.o_proj", f"{stem}.o")
        middle = self._add_and_norm(out, skip, f"{stem}.post_attention_layernorm.weight", f"{stem}.middle")
        gate = self._linear(middle[0], f"{stem}.mlp.gate_proj", f"{stem}.gate")
        up = self._linear(middle[0], f"{stem}.mlp.up_proj", f"{stem}.up")
        self._node("Sigmoid", [gate], f"{stem}.sigmoid")
        self._node("Mul", [gate, f"{stem}.sigmoid"], f"{stem}.silu")
        self._node("Mul", [f"{stem}.silu", up], f"{stem}.gated")
        down = self._linear(f"{stem}.gated", f"{stem}.mlp.down_proj", f"{stem}.down")
        following = "model.norm.weight" if is_last else f"{layer + 1}.input_layernorm.weight"
        return self._add_and_norm(down, middle[1], following, f"{stem}.end")

    def _add_and_norm(self, value: str, skip: str, weight: str, name: str) -> tuple[str, str]:
        """The sum with the residual stream, normalised and as it is."""
        outputs = [f"{name}.normed", "", "", f"{name}.sum"]
        self._node("SkipSimplifiedLayerNormalization", [value, skip, weight], outputs, _MICROSOFT,
                   epsilon=self._shape.norm_epsilon)  # fmt: skip
        return outputs[0], outputs[3]

    def _linear(self, value: str, name: str, output: str) -> str:
        if f"{name}.w" in self._weights.initialisers:
            return self._node("MatMul", [value, f"{name}.w"], output)
        codes = self._weights.initialisers[f"{name}.q"]
        rows, _, size = codes.dims
        return self._node(
            "MatMulNBits", [value, f"{name}.q", f"{name}.s"], output, _MICROSOFT, K=self._columns(name),
            N=rows, bits=8 * size // _BLOCK, block_size=_BLOCK, accuracy_level=_ACCURACY_LEVEL,
        )  # fmt: skip

    def _columns(self, name: str) -> int:
        """Inputs of a linear layer, which its blocks may exceed."""
        shape = self._shape
        sizes = {"o_proj": shape.query_size, "down_proj": shape.intermediate}
        return sizes.get(name.rpartition(".")[2], shape.hidden)

    def _node(
        self, operator: str, inputs: list[str], outputs: str | list[str], domain: str = "", **settings: Any
    ) -> str:
        names = [outputs] if isinstance(outputs, str) else outputs
        made = self._onnx.helper.make_node(operator, inputs, names, f"{names[0]}/{operator}", domain=domain, **settings)
        self._nodes.append(made)
        return names[0]
