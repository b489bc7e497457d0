"""ONNX graphs of the natively computed families, written with the `onnx` package, tensor by tensor.

    input_ids (batch, seq), attention_mask (batch, total), past_key_values.N.key|value (batch, heads, past, head size)
      -> logits (batch, seq, vocabulary), present.N.key|value (batch, heads, total, head size)

There are two kinds of graph. One is for onnxruntime (`onnx_graph`), in float32, 8 or 4 bits. The other has only
standard operators (`onnx_portable`), in float32 or float16, for any runtime that supports opset 23.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.export.llama_cpp import require_known_rope
from securecoderl_edge.export.merge import merged_tensors, weights_of
from securecoderl_edge.export.onnx_graph import Graph
from securecoderl_edge.export.onnx_portable import PortableGraph
from securecoderl_edge.export.onnx_weights import DATA, Weights, onnx_package
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.runtimes.onnx.names import CACHE_KEY, MODEL

# Bits of the linear layers; None is float32. The output layer and the embedding have at least 8.
BITS = {"f32": None, "int8": 8, "int4": 4}
PORTABLE_TYPES = ("f32", "f16")


@dataclass(frozen=True)
class OnnxSummary:
    """Summary of a written graph.

    Attributes:
        bits_per_weight: bits of weight data per parameter, scales included.
    """

    parameters: int
    bits_per_weight: float


def write_onnx(base: Path, adapter: Path | None, quant: str, folder: Path, portable: bool = False) -> OnnxSummary:
    """Write ``base`` with ``adapter`` merged in as `MODEL` and `DATA` in ``folder``.

    Args:
        quant: one of `BITS`, or of `PORTABLE_TYPES`.
        folder: an existing folder; callers pass a temporary one and rename it.
        portable: use only standard operators.

    Raises:
        UsageError: architecture or adapter that export does not support (named).
        SceError: a source file is missing or damaged, or a weight exceeds the range of the type.
        MissingExtra: onnx is not installed.
    """
    onnx = onnx_package()
    shape = read_architecture(base)
    require_known_rope(base, shape)
    unit = 16 if any(shape.rotated) else 8
    if shape.head_size % unit and not portable:
        raise UsageError(
            f"{base}: onnxruntime's attention does not support a head size of {shape.head_size}, only multiples of "
            f"{unit}; use --portable"
        )
    expected = set(weights_of(base, shape))
    with (folder / DATA).open("wb") as data:
        weights = Weights(data, shape, None if portable else BITS[quant], is_half=quant == "f16")
        for name, tensor in merged_tensors(base, adapter):
            if name in expected:
                weights.add(name, tensor.contiguous().numpy())
        weights.add_constants()
        graph = PortableGraph(weights, shape, quant == "f16") if portable else Graph(weights, shape)
        model = onnx.helper.make_model(
            graph.build(),
            opset_imports=[onnx.helper.make_opsetid(domain, version) for domain, version in graph.OPERATORS.items()],
            ir_version=graph.IR_VERSION,
            producer_name="securecoderl-edge",
        )
        onnx.helper.set_model_props(model, {CACHE_KEY: graph.CACHE})
    onnx.save(model, folder / MODEL)
    parameters = shape.parameters()
    return OnnxSummary(parameters, round(8 * weights.bytes / parameters, 3))
