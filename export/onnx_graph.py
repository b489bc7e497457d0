"""Graphs of Llama and Qwen2 models in the operators of onnxruntime (domain com.microsoft), the only runtime for them.

Attention is GroupQueryAttention. It applies the rotary embedding, updates the KV cache in place when past and present
are one buffer, and takes right-padded rows, whose lengths it reads from the mask. Quantized weights have 8 or 4 bits in
blocks of 32 (MatMulNBits, products in int8); the embedding then has 8 bits, too (GatherBlockQuantized).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from securecoderl_edge.export.onnx_weights import BLOCK, Weights, onnx_package
from securecoderl_edge.models.architecture import Architecture
from securecoderl_edge.runtimes.onnx.model import IN_PLACE

_MICROSOFT = "com.microsoft"
# Products are computed in int8: ten times as fast as float32, with little loss.
_ACCURACY_LEVEL = 4


class Graph:
    """Builder of the nodes, from the token ids to the logits."""

    # Versions of the operators by domain, and of the file format.
    OPERATORS: ClassVar[dict[str, int]] = {"": 21, _MICROSOFT: 1}
    IR_VERSION = 10
    CACHE = IN_PLACE

    def __init__(self, weights: Weights, shape: Architecture) -> None:
        self._weights, self._shape = weights, shape
        self._onnx = onnx_package()
        self._nodes: list[Any] = []

    def build(self) -> Any:
        """Build the graph with its inputs, outputs and initializers."""
        shape, make = self._shape, self._onnx.helper.make_tensor_value_info
        self._read_masks()
        skip = self._embed()
        normed = self._norm(skip, "0.input_layernorm.weight", "normed.0")
        for layer in range(shape.layers):
            normed, skip = self._layer(layer, normed, skip)
        self._predict(normed)
        integers, floats = self._onnx.TensorProto.INT64, self._cache_type()
        inputs = [
            make("input_ids", integers, ["batch", "seq"]),
            make("attention_mask", integers, ["batch", "total"]),
        ]
        outputs = [make("logits", self._onnx.TensorProto.FLOAT, ["batch", "seq", shape.vocabulary])]
        for layer, half in self._caches():
            sizes = ["batch", shape.key_value_heads, "past", shape.head_size]
            inputs.append(make(f"past_key_values.{layer}.{half}", floats, sizes))
            sizes = ["batch", shape.key_value_heads, "total", shape.head_size]
            outputs.append(make(f"present.{layer}.{half}", floats, sizes))
        initializers = list(self._weights.initializers.values())
        return self._onnx.helper.make_graph(self._nodes, shape.family, inputs, outputs, initializers)

    def _caches(self) -> Iterator[tuple[int, str]]:
        for layer in range(self._shape.layers):
            yield layer, "key"
            yield layer, "value"

    def _cache_type(self) -> int:
        """Element type of the KV cache."""
        return int(self._onnx.TensorProto.FLOAT)

    def _constants(self, **numbers: Any) -> None:
        import numpy as np

        for name, number in numbers.items():
            constant = self._onnx.numpy_helper.from_array(np.array(number, dtype=np.int64), name)
            self._weights.initializers[name] = constant

    def _read_masks(self) -> None:
        """Add the inputs of attention: the last position of each row, and the number of positions."""
        integers = self._onnx.TensorProto.INT32
        self._constants(axis_1=[1], one=[1], index_1=1)
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
                          bits=bits, block_size=BLOCK, gather_axis=0, quantize_axis=1)  # fmt: skip

    def _layer(self, layer: int, normed: str, skip: str) -> tuple[str, str]:
        """Add one layer; input and output are pairs: normalized, and the residual stream."""
        shape = self._shape
        stem, is_last = f"{layer}", layer == shape.layers - 1
        joined = self._linear(normed, f"{stem}.qkv", f"{stem}.qkv.o")
        if shape.has_attention_bias:
            joined = self._node("Add", [joined, f"{stem}.qkv.bias"], f"{stem}.qkv.biased")
        attended = self._attend(layer, joined)
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

    def _attend(self, layer: int, joined: str) -> str:
        """Add the attention of one layer; ``joined`` is the concatenation of queries, keys and values."""
        shape, stem = self._shape, f"{layer}"
        past = [f"past_key_values.{layer}.{half}" for half in ("key", "value")]
        present = [f"present.{layer}.{half}" for half in ("key", "value")]
        return self._node(
            "GroupQueryAttention",
            [joined, "", "", *past, "sequence_ends", "total_length", "cosines", "sines"],
            [f"{stem}.attended", *present], _MICROSOFT, num_heads=shape.heads, kv_num_heads=shape.key_value_heads,
            do_rotary=1, rotary_interleaved=0, scale=float(shape.head_size**-0.5),
        )  # fmt: skip

    def _norm(self, value: str, weight: str, name: str) -> str:
        """Add an RMS norm."""
        return self._node("SimplifiedLayerNormalization", [value, weight], name, epsilon=self._shape.norm_epsilon,
                          axis=-1, stash_type=1)  # fmt: skip

    def _predict(self, normed: str) -> None:
        self._linear(normed, "head", "logits")

    def _add_and_norm(self, value: str, skip: str, weight: str, name: str) -> tuple[str, str]:
        """Add ``value`` to the residual stream; return the sum normalized, and the sum."""
        outputs = [f"{name}.normed", "", "", f"{name}.sum"]
        self._node("SkipSimplifiedLayerNormalization", [value, skip, weight], outputs, _MICROSOFT,
                   epsilon=self._shape.norm_epsilon)  # fmt: skip
        return outputs[0], outputs[3]

    def _linear(self, value: str, name: str, output: str) -> str:
        if f"{name}.w" in self._weights.initializers:
            return self._node("MatMul", [value, f"{name}.w"], output)
        codes = self._weights.initializers[f"{name}.q"]
        rows, _, size = codes.dims
        return self._node(
            "MatMulNBits", [value, f"{name}.q", f"{name}.s"], output, _MICROSOFT, K=self._columns(name),
            N=rows, bits=8 * size // BLOCK, block_size=BLOCK, accuracy_level=_ACCURACY_LEVEL,
        )  # fmt: skip

    def _columns(self, name: str) -> int:
        """Input size of a linear layer; its blocks may be padded."""
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
