"""What llama.cpp computes for each family: models with another property cannot be exported to it."""

from __future__ import annotations

import math
from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.architecture import EXPORTED_ROPE_TYPES, Architecture, read_architecture
from securecoderl_edge.models.families import GELU, QKV
from securecoderl_edge.models.gguf.layout import llama_cpp_attention_scale

# Families for which it reads these from the file; for others they are fixed.
_READS_ALL_BIASES = _READS_DIVISORS = ("llama", "granite")
_READS_FACTORS = "granite"
# SmolLM3: every fourth layer has no rotary embedding.
_UNROTATED_INTERVAL = 4


def require_known_rope(base: Path, shape: Architecture) -> None:
    """Check that the rotary embedding can be exported: training supports more types.

    Raises:
        UsageError: it cannot.
    """
    if not shape.rope_exports:
        known = ", ".join(EXPORTED_ROPE_TYPES)
        raise UsageError(f"{base}: export does not support RoPE type {shape.rope_type!r}; supported: {known}")


def require_expressible(base: Path, shape: Architecture) -> None:
    """Check that llama.cpp computes what the model does.

    Raises:
        UsageError: it does not; the message names the property.
    """
    require_known_rope(base, shape)
    interval = _UNROTATED_INTERVAL if shape.family == "smollm3" else shape.layers + 1
    rotated = [(layer + 1) % interval != 0 for layer in range(shape.layers)]
    factors = (shape.embedding_scale, shape.residual_scale, shape.logit_scale)
    usual = (shape.hidden**0.5 if shape.kind.scales_embedding else 1.0, 1.0, 1.0)
    scale = llama_cpp_attention_scale(shape)
    unsupported = {
        "llama3 RoPE": bool(shape.rope_divisors) and shape.family not in _READS_DIVISORS,
        "biases outside of q, k and v": bool(shape.biases - {*QKV}) and shape.family not in _READS_ALL_BIASES,
        "layers without RoPE at these places": [*shape.rotated] != rotated
        and not (shape.family == _READS_FACTORS and not any(shape.rotated)),
        "local RoPE without a window": shape.local_rope_theta is not None and not any(shape.windows),
        "windows of several sizes": len({*shape.windows} - {None}) > 1,
        "factors of embedding, layers or logits": shape.family != _READS_FACTORS and factors != usual,
        "this factor of the attention scores": shape.family not in (_READS_FACTORS, "gemma3")
        and not math.isclose(shape.attention_scale, scale),
        "an output layer that is the embedding": shape.family == "olmo2" and shape.tied,
        "heads of this size": shape.family == "olmo2" and shape.head_size * shape.heads != shape.hidden,
    }
    reason = next((name for name, is_there in unsupported.items() if is_there), None)
    if reason is not None:
        raise UsageError(f"{base}: llama.cpp does not support {reason} in {shape.family} models. Export to onnx or hf.")


def bounds_of(quant: str, base: Path) -> str:
    """The entry of `agreement.BOUNDS` for a GGUF file of ``quant`` of a model."""
    is_gelu = quant == "f32" and read_architecture(base).kind.activation == GELU
    return f"{quant} with GELU" if is_gelu else quant
