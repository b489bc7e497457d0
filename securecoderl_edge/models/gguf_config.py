"""The config.json of a model from the metadata of its GGUF file."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.architecture import architecture_of
from securecoderl_edge.models.gguf_header import GgufHeader, Scalar
from securecoderl_edge.models.gguf_layout import ROPE_DIVISORS

EMBEDDING, OUTPUT = "token_embd.weight", "output.weight"

# Keys of config.json, and of the metadata below the name of the architecture.
_KEYS = {
    "num_hidden_layers": "block_count",
    "max_position_embeddings": "context_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
# Read below, or without effect on the output.
_OTHER_KEYS = {
    "vocab_size", "rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "attention.value_length", "tensor_data_layout",
}  # fmt: skip
# First contexts that are tried for llama3 RoPE. Llama 3.1 to 3.3 have 8192.
_FIRST_CONTEXTS = [8192, *(1 << bits for bits in range(4, 20))]


@dataclass(frozen=True)
class _Family:
    """What a GGUF architecture has beyond `_KEYS`.

    Attributes:
        name: class of transformers.
        fixed: settings of config.json that are the same for all its models.
        keys: further keys, as in `_KEYS`.
    """

    name: str
    fixed: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, str] = field(default_factory=dict)


FAMILIES = {
    "llama": _Family("LlamaForCausalLM"),
    "qwen2": _Family("Qwen2ForCausalLM"),
}


def config_of(header: GgufHeader, divisors: list[float], path: Path) -> dict[str, Any]:
    """The config.json of a GGUF file, without the ids of special tokens.

    Args:
        divisors: the content of `ROPE_DIVISORS`; empty if the file has no such tensor.

    Raises:
        UsageError: another architecture, or a property that config.json cannot express (named).
    """
    values, tensors = header.values, {tensor.name: tensor for tensor in header.tensors}
    kind = values.get("general.architecture")
    if kind not in FAMILIES:
        raise UsageError(f"{path}: architecture {kind!r} is not supported as a base; choose {', '.join(FAMILIES)}")
    if int(values.get(f"{kind}.block_count", 0)) > len(tensors):  # checked before anything is made for each layer
        raise UsageError(f"{path}: damaged, it has fewer tensors than layers; download it again")
    family = FAMILIES[str(kind)]
    keys = _KEYS | family.keys
    own = {key.removeprefix(f"{kind}."): value for key, value in values.items() if key.startswith(f"{kind}.")}
    unknown = sorted({*own} - {*keys.values()} - _OTHER_KEYS)
    unknown += sorted(key for key in header.lists if key.startswith(f"{kind}."))
    if unknown:
        raise UsageError(f"{path}: {unknown[0]} is not supported in a base; give the Hugging Face folder instead")
    broken = sorted(key for key, value in own.items() if isinstance(value, float) and not math.isfinite(value))
    if broken:
        raise UsageError(f"{path}: {broken[0]} is {own[broken[0]]}; download the file again")
    if EMBEDDING not in tensors:
        raise UsageError(f"{path}: {EMBEDDING} is missing; this is not a whole language model")
    config = {
        "architectures": [family.name],
        "model_type": kind,
        **family.fixed,
        **{name: _tidy(own[key]) for name, key in keys.items() if key in own},
        "hidden_act": "silu",
        "vocab_size": tensors[EMBEDDING].sizes[-1],
        "tie_word_embeddings": OUTPUT not in tensors,
        "rope_parameters": _rope(own, path),
    }
    shape = architecture_of(config, str(path))
    for key in ("attention.value_length", "rope.dimension_count"):
        if own.get(key, shape.head_size) != shape.head_size:
            raise UsageError(f"{path}: {key} = {own[key]} is not supported, only the head size {shape.head_size}")
    if divisors and 2 * len(divisors) != shape.head_size:
        raise UsageError(f"{path}: {ROPE_DIVISORS} does not fit the head size {shape.head_size}; download it again")
    if divisors:
        config["rope_parameters"] = _llama3_rope(config, divisors, path)
    return config


def _rope(own: dict[str, Scalar], path: Path) -> dict[str, Any]:
    kind = own.get("rope.scaling.type", "none")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": _tidy(own.get("rope.freq_base", 10000.0))}
    if kind == "linear":
        return {**rope, "rope_type": "linear", "factor": _tidy(own.get("rope.scaling.factor", 1.0))}
    if kind != "none":
        raise UsageError(f"{path}: RoPE scaling {kind!r} is not supported in a base; give the Hugging Face folder")
    return rope


def _llama3_rope(config: dict[str, Any], divisors: list[float], path: Path) -> dict[str, Any]:
    """The settings of llama3 RoPE that give ``divisors``: the file holds only these."""
    for first in _FIRST_CONTEXTS:
        rope = {
            **config["rope_parameters"],
            "rope_type": "llama3",
            "factor": _tidy(max(divisors)),
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": first,
        }
        found = architecture_of({**config, "rope_parameters": rope}, str(path)).rope_divisors
        if all(abs(one - other) <= 1e-5 * one for one, other in zip(found, divisors, strict=True)):
            return rope
    raise UsageError(f"{path}: {ROPE_DIVISORS} is not the RoPE of Llama 3; give the Hugging Face folder instead")


def _tidy(value: Scalar) -> Scalar:
    """The shortest number with the same float32: 1e-05, not 9.999999747378752e-06."""
    if not isinstance(value, float):
        return value
    import numpy as np

    shorter = (float(f"{value:.{digits}g}") for digits in range(1, 10))
    return next((short for short in shorter if np.float32(short) == np.float32(value)), value)
