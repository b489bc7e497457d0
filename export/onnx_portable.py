"""Graphs in standard ONNX operators, for any runtime that supports opset 23.

    input_ids (batch, seq), attention_mask (batch, past + seq), past_key_values.N.key|value
    (batch, heads, past, head size)
      -> logits (batch, seq, vocabulary), present.N.key|value (batch, heads, past + seq, head size)

The KV cache grows by appending. Rows may be padded on either side, with zeros in the mask; a position is the number of
ones before it. In a float16 graph, only norms, softmax and logits are float32.
"""

from __future__ import annotations

from typing import ClassVar

from securecoderl_edge.export.onnx_graph import Graph
from securecoderl_edge.export.onnx_weights import Weights, rotation_of
from securecoderl_edge.models.architecture import Architecture
from securecoderl_edge.runtimes.onnx.names import APPENDED


class PortableGraph(Graph):
    """Builder of the nodes, from the token ids to the logits."""

    OPERATORS: ClassVar[dict[str, int]] = {"": 23}
    IR_VERSION = 11
    CACHE = APPENDED

    def __init__(self, weights: Weights, shape: Architecture, is_half: bool) -> None:
        super().__init__(weights, shape)
        self._is_half = is_half

    def _cache_type(self) -> int:
        types = self._onnx.TensorProto
        return int(types.FLOAT16 if self._is_half else types.FLOAT)

    def _read_masks(self) -> None:
        """Add the positions of the new tokens (batch, seq) and their attention mask (batch, 1, seq, total)."""
        truth = self._onnx.TensorProto.BOOL
        shape = self._shape
        sizes = [shape.query_size, shape.key_value_size, shape.key_value_size]
        self._constants(zero=0, one=1, index_1=1, zero_axis=[0], axis_1=[1], axes_1_2=[1, 2], parts=sizes)
        for name, of in (("seq", "input_ids"), ("total", "attention_mask")):
            self._node("Shape", [of], f"{name}_sizes")
            self._node("Gather", [f"{name}_sizes", "index_1"], name)
        self._node("Sub", ["total", "seq"], "past_length")
        self._node("CumSum", ["attention_mask", "index_1"], "ones_so_far")
        self._node("Sub", ["ones_so_far", "one"], "positions_or_less")
        self._node("Max", ["positions_or_less", "zero"], "all_positions")
        self._node("Unsqueeze", ["past_length", "zero_axis"], "first_new")
        self._node("Unsqueeze", ["total", "zero_axis"], "last_new")
        self._node("Slice", ["all_positions", "first_new", "last_new", "axis_1"], "positions")
        self._node("Range", ["zero", "total", "one"], "slots")
        self._node("Range", ["past_length", "total", "one"], "new_slots")
        self._node("Unsqueeze", ["new_slots", "axis_1"], "new_slots_down")
        self._node("LessOrEqual", ["slots", "new_slots_down"], "before")
        self._node("Cast", ["attention_mask"], "is_token", to=truth)
        self._node("Unsqueeze", ["is_token", "axes_1_2"], "is_token_across")
        self._node("And", ["before", "is_token_across"], "tokens_before")
        # Padding attends to itself: a softmax over nothing is NaN, and so is 0 times NaN.
        self._node("Equal", ["slots", "new_slots_down"], "itself")
        self._node("Or", ["tokens_before", "itself"], "visible")
        self._read_windows()

    def _read_windows(self) -> None:
        """Add the attention mask of layers with a window."""
        windows = {window for window in self._shape.windows if window is not None}
        if not windows:
            return
        self._constants(axes_1_3=[1, 3])
        self._node("Unsqueeze", ["positions", "axes_1_3"], "positions_down")
        self._node("Unsqueeze", ["all_positions", "axes_1_2"], "positions_across")
        self._node("Sub", ["positions_down", "positions_across"], "behind")
        for window in sorted(windows):
            self._constants(**{f"window_{window}": window})
            self._node("Less", ["behind", f"window_{window}"], f"near_{window}")
            self._node("And", ["visible", f"near_{window}"], f"visible_{window}")

    def _attend(self, layer: int, joined: str) -> str:
        shape, stem = self._shape, f"{layer}"
        query, key, value = self._split(joined, stem)
        rotation, window = rotation_of(shape, layer), shape.windows[layer]
        if rotation:
            query, key = (
                self._node("RotaryEmbedding", [part, *rotation, "positions"], f"{part}.rotated", num_heads=heads)
                for part, heads in ((query, shape.heads), (key, shape.key_value_heads))
            )
        past = [f"past_key_values.{layer}.{half}" for half in ("key", "value")]
        present = [f"present.{layer}.{half}" for half in ("key", "value")]
        return self._node(
            "Attention", [query, key, value, "visible" if window is None else f"visible_{window}", *past],
            [f"{stem}.attended", *present], q_num_heads=shape.heads, kv_num_heads=shape.key_value_heads,
            scale=shape.attention_scale, softmax_precision=self._onnx.TensorProto.FLOAT,
        )  # fmt: skip

    def _norm(self, value: str, weight: str, name: str) -> str:
        return self._node("RMSNormalization", [value, weight], name, epsilon=self._shape.norm_epsilon, axis=-1,
                          stash_type=self._onnx.TensorProto.FLOAT)  # fmt: skip

    def _add_and_norm(self, value: str, skip: str, weight: str | None, name: str) -> tuple[str, str]:
        total = self._node("Add", [value, skip], f"{name}.sum")
        return (total if weight is None else self._norm(total, weight, f"{name}.normed")), total

    def _predict(self, normed: str) -> None:
        logits = self._linear(normed, "head", "logits.half" if self._is_half else "logits")
        if self._is_half:
            self._node("Cast", [logits], "logits", to=self._onnx.TensorProto.FLOAT)
