"""Graphs in the operators of onnxruntime (domain com.microsoft), the only runtime for them.

Attention is GroupQueryAttention. It applies the rotary embedding, updates the KV cache in place when past and present
are one buffer, and takes right-padded rows, whose lengths it reads from the mask. Quantized weights have 8 or 4 bits in
blocks of 32 (MatMulNBits, products in int8); the embedding then has 8 bits, too (GatherBlockQuantized).
"""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

from securecoderl_edge.export.onnx_weights import BLOCK, Weights, onnx_package, rotation_of
from securecoderl_edge.models.architecture import Architecture
from securecoderl_edge.models.families import GELU
from securecoderl_edge.runtimes.onnx.names import IN_PLACE

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
        skip, first = self._embed(), shape.kind.norms.before_attention
        normed = skip if first is None else self._norm(skip, f"0.{first}.weight", "normed.0")
        for layer in range(shape.layers):
            normed, skip = self._layer(layer, normed, skip)
        self._predict(normed)
        integers, floats = self._onnx.TensorProto.INT64, self._cache_type()
        inputs = [
            make("input_ids", integers, ["batch", "seq"]),
            make("attention_mask", integers, ["batch", "total"]),
        ]
        outputs = [make("logits", self._onnx.TensorProto.FLOAT, ["batch", "seq", shape.vocabulary])]
        for layer, half in product(range(shape.layers), ("key", "value")):
            sizes = ["batch", shape.key_value_heads, "past", shape.head_size]
            inputs.append(make(f"past_key_values.{layer}.{half}", floats, sizes))
            sizes = ["batch", shape.key_value_heads, "total", shape.head_size]
            outputs.append(make(f"present.{layer}.{half}", floats, sizes))
        initializers = list(self._weights.initializers.values())
        return self._onnx.helper.make_graph(self._nodes, shape.family, inputs, outputs, initializers)

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
            self._node("Gather", ["embedding.w", "input_ids"], "embedded")
        else:
            self._node("GatherBlockQuantized", ["embedding.q", "input_ids", "embedding.s"], "embedded", _MICROSOFT,
                       bits=bits, block_size=BLOCK, gather_axis=0, quantize_axis=1)  # fmt: skip
        if self._shape.embedding_scale == 1:
            return "embedded"
        return self._node("Mul", ["embedded", "embedding.scale"], "embedded.scaled")

    def _layer(self, layer: int, normed: str, skip: str) -> tuple[str, str]:
        """Add one layer; input and output are pairs: what attention takes, and the residual stream."""
        norms, stem = self._shape.kind.norms, f"{layer}"
        joined = self._linear(normed, f"{stem}.qkv", f"{stem}.qkv.o")
        attended = self._attend(layer, joined)
        out = self._linear(attended, f"{stem}.self_attn.o_proj", f"{stem}.o")
        if norms.after_attention is not None:
            out = self._norm(out, f"{stem}.{norms.after_attention}.weight", f"{stem}.o.normed")
        normed, skip = self._add_and_norm(out, skip, self._norm_in(layer, norms.before_mlp), f"{stem}.middle")
        gate = self._linear(normed, f"{stem}.mlp.gate_proj", f"{stem}.gate")
        up = self._linear(normed, f"{stem}.mlp.up_proj", f"{stem}.up")
        self._node("Mul", [self._activate(gate, stem), up], f"{stem}.gated")
        down = self._linear(f"{stem}.gated", f"{stem}.mlp.down_proj", f"{stem}.down")
        if norms.after_mlp is not None:
            down = self._norm(down, f"{stem}.{norms.after_mlp}.weight", f"{stem}.down.normed")
        following = self._norm_in(layer + 1, norms.before_attention)
        return self._add_and_norm(down, skip, following, f"{stem}.end")

    def _norm_in(self, layer: int, name: str | None) -> str | None:
        """The weight of a layer's norm; after the last layer that of the model's norm."""
        if layer == self._shape.layers:
            return "model.norm.weight"
        return None if name is None else f"{layer}.{name}.weight"

    def _activate(self, gate: str, stem: str) -> str:
        if self._shape.kind.activation == GELU:
            return self._node("Gelu", [gate], f"{stem}.gelu", approximate="tanh")
        self._node("Sigmoid", [gate], f"{stem}.sigmoid")
        return self._node("Mul", [gate, f"{stem}.sigmoid"], f"{stem}.silu")

    def _attend(self, layer: int, joined: str) -> str:
        """Add the attention of one layer; ``joined`` is the concatenation of queries, keys and values."""
        shape, stem = self._shape, f"{layer}"
        inputs = self._split(joined, stem) if shape.kind.query_key_norm else [joined, "", ""]
        past = [f"past_key_values.{layer}.{half}" for half in ("key", "value")]
        present = [f"present.{layer}.{half}" for half in ("key", "value")]
        rotation, window = rotation_of(shape, layer), shape.windows[layer]
        return self._node(
            "GroupQueryAttention", [*inputs, *past, "sequence_ends", "total_length", *rotation],
            [f"{stem}.attended", *present], _MICROSOFT, num_heads=shape.heads, kv_num_heads=shape.key_value_heads,
            do_rotary=int(bool(rotation)), rotary_interleaved=0, scale=shape.attention_scale,
            **({} if window is None else {"local_window_size": window}),
        )  # fmt: skip

    def _split(self, joined: str, stem: str) -> list[str]:
        """Take queries, keys and values apart, and add their norms if there are some."""
        shape = self._shape
        sizes = [shape.query_size, shape.key_value_size, shape.key_value_size]
        self._constants(parts=sizes)
        query, key, value = parts = [f"{stem}.{part}" for part in ("query", "key", "value")]
        self._node("Split", [joined, "parts"], parts, axis=-1)
        norms = [f"{stem}.self_attn.{name}.weight" for name in ("q_norm", "k_norm")]
        return [self._norm_heads(query, norms[0]), self._norm_heads(key, norms[1]), value]

    def _norm_heads(self, part: str, weight: str) -> str:
        """Normalize queries or keys (batch, seq, heads * head size), if the family does: each head, or all at once."""
        if not self._shape.kind.query_key_norm:
            return part
        if self._shape.kind.query_key_norm == "projection":
            return self._norm(part, weight, f"{part}.normed")
        self._constants(heads=[0, 0, -1, self._shape.head_size], flat=[0, 0, -1])
        self._node("Reshape", [part, "heads"], f"{part}.heads")
        self._norm(f"{part}.heads", weight, f"{part}.heads.normed")
        return self._node("Reshape", [f"{part}.heads.normed", "flat"], f"{part}.normed")

    def _norm(self, value: str, weight: str, name: str) -> str:
        """Add an RMS norm."""
        return self._node("SimplifiedLayerNormalization", [value, weight], name, epsilon=self._shape.norm_epsilon,
                          axis=-1, stash_type=1)  # fmt: skip

    def _predict(self, normed: str) -> None:
        self._linear(normed, "head", "logits")

    def _add_and_norm(self, value: str, skip: str, weight: str | None, name: str) -> tuple[str, str]:
        """Add ``value`` to the residual stream; return the sum normalized (or not, without weight), and the sum."""
        if weight is None:
            return (self._node("Add", [value, skip], f"{name}.sum"),) * 2
        outputs = [f"{name}.normed", "", "", f"{name}.sum"]
        self._node("SkipSimplifiedLayerNormalization", [value, skip, weight], outputs, _MICROSOFT,
                   epsilon=self._shape.norm_epsilon)  # fmt: skip
        return outputs[0], outputs[3]

    def _linear(self, value: str, name: str, output: str) -> str:
        """Add a linear layer, with its bias if it has one."""
        if f"{name}.w" in self._weights.initializers:
            self._node("MatMul", [value, f"{name}.w"], output)
        else:
            rows, _, size = self._weights.initializers[f"{name}.q"].dims
            self._node(
                "MatMulNBits", [value, f"{name}.q", f"{name}.s"], output, _MICROSOFT, K=self._columns(name),
                N=rows, bits=8 * size // BLOCK, block_size=BLOCK, accuracy_level=_ACCURACY_LEVEL,
            )  # fmt: skip
        if f"{name}.bias" not in self._weights.initializers:
            return output
        return self._node("Add", [output, f"{name}.bias"], f"{name}.biased")

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
