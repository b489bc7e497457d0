"""The config.json of a model from the metadata of its GGUF file."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.architecture import architecture_of
from securecoderl_edge.models.families import FAMILIES
from securecoderl_edge.models.gguf.header import ROPE_DIVISORS, GgufHeader, Scalar

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
class _Beyond:
    """What a GGUF architecture has beyond `_KEYS`.

    Attributes:
        model_type: its name in config.json, if that is not the one in GGUF files.
        keys: further keys, as in `_KEYS`.
        others: further keys that are read below.
    """

    model_type: str = ""
    keys: dict[str, str] = field(default_factory=dict)
    others: frozenset[str] = frozenset()


# Of the families that have more than `_KEYS`.
_BEYOND = {
    "granite": _Beyond(
        keys={
            "attention_multiplier": "attention.scale",
            "embedding_multiplier": "embedding_scale",
            "residual_multiplier": "residual_scale",
            "logits_scaling": "logit_scale",
        },
    ),
    "gemma3": _Beyond(
        "gemma3_text",
        keys={"sliding_window": "attention.sliding_window", "final_logit_softcapping": "final_logit_softcapping"},
        others=frozenset({"attention.sliding_window_pattern", "rope.freq_base_swa"}),
    ),
}


def config_of(header: GgufHeader, divisors: list[float], path: Path) -> dict[str, Any]:
    """The config.json of a GGUF file, without the ids of special tokens.

    Args:
        divisors: the content of `ROPE_DIVISORS`; empty if the file has no such tensor.

    Raises:
        UsageError: another architecture, a property that config.json cannot express (named), or a value of a wrong
            type.
    """
    try:
        return _config_of(header, divisors, path)
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise UsageError(f"{path}: damaged metadata ({error!r}); download it again") from None


def _classes() -> dict[str, str]:
    """By its name in GGUF files the class of a family: the first of several, as Mistral's are files of Llama."""
    found: dict[str, str] = {}
    for name, family in FAMILIES.items():
        found.setdefault(family.name, name)
    return found


def _config_of(header: GgufHeader, divisors: list[float], path: Path) -> dict[str, Any]:
    values, tensors = header.values, {tensor.name: tensor for tensor in header.tensors}
    kind, classes = values.get("general.architecture"), _classes()
    if kind not in classes:
        raise UsageError(f"{path}: architecture {kind!r} is not supported as a base; choose {', '.join(classes)}")
    if int(values.get(f"{kind}.block_count", 0)) > len(tensors):  # checked before anything is made for each layer
        raise UsageError(f"{path}: damaged, it has fewer tensors than layers; download it again")
    name, beyond = classes[str(kind)], _BEYOND.get(str(kind), _Beyond())
    keys = _KEYS | beyond.keys
    both = {**values, **header.lists}
    own: dict[str, Any] = {
        key.removeprefix(f"{kind}."): value for key, value in both.items() if key.startswith(f"{kind}.")
    }
    unknown = sorted({*own} - {*keys.values()} - _OTHER_KEYS - beyond.others)
    if unknown:
        raise UsageError(f"{path}: {unknown[0]} is not supported in a base; give the Hugging Face folder instead")
    broken = sorted(key for key, value in own.items() if isinstance(value, float) and not math.isfinite(value))
    if broken:
        raise UsageError(f"{path}: {broken[0]} is {own[broken[0]]}; download the file again")
    if EMBEDDING not in tensors:
        raise UsageError(f"{path}: {EMBEDDING} is missing; this is not a whole language model")
    heads, hidden = (own.get(keys[name]) for name in ("num_attention_heads", "hidden_size"))
    if not isinstance(heads, int) or not isinstance(hidden, int) or not 0 < heads <= hidden:
        raise UsageError(f"{path}: damaged (num_attention_heads or hidden_size); download it again")
    config: dict[str, Any] = {
        "architectures": [name],
        "model_type": beyond.model_type or kind,
        "head_dim": hidden // heads,
        **{own_name: _tidy(own[key]) for own_name, key in keys.items() if key in own},
        FAMILIES[name].activation_key: FAMILIES[name].activation,
        "vocab_size": tensors[EMBEDDING].sizes[-1],
        "tie_word_embeddings": OUTPUT not in tensors,
        "attention_bias": "blk.0.attn_output.bias" in tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in tensors,
        "rope_parameters": _rope(own, path),
    }
    if kind == "gemma3":
        _add_gemma3(config, own, path)
    if kind == "granite":
        config.setdefault("attention_multiplier", config["head_dim"] ** -0.5)
        if own.get("rope.scaling.finetuned") is False:
            raise UsageError(f"{path}: granite without RoPE is not supported in a base; give the Hugging Face folder")
    shape = architecture_of(config, str(path))
    for key in ("attention.value_length", "rope.dimension_count"):
        if own.get(key, shape.head_size) != shape.head_size:
            raise UsageError(f"{path}: {key} = {own[key]} is not supported, only the head size {shape.head_size}")
    if divisors and 2 * len(divisors) != shape.head_size:
        raise UsageError(f"{path}: {ROPE_DIVISORS} does not fit the head size {shape.head_size}; download it again")
    if divisors:
        config["rope_parameters"] = _llama3_rope(config, divisors, path)
    return config


def _add_gemma3(config: dict[str, Any], own: dict[str, Any], path: Path) -> None:
    """Windows and the two rotary embeddings, with llama.cpp's values where the file names none."""
    layers = config["num_hidden_layers"]
    pattern = own.get("attention.sliding_window_pattern", 6)
    if isinstance(pattern, int):
        pattern = [pattern == 0 or layer % pattern < pattern - 1 for layer in range(layers)]
    if len(pattern) < layers:
        raise UsageError(f"{path}: attention.sliding_window_pattern is too short; download it again")
    is_local = [bool(each) and "sliding_window" in config for each in pattern[:layers]]
    local = {"rope_type": "default", "rope_theta": _tidy(own.get("rope.freq_base_swa", 10000.0))}
    # llama.cpp recognizes the 27B model, which has another factor of the scores, by its layers.
    scalar = config["hidden_size"] // config["num_attention_heads"] if layers == 62 else config["head_dim"]
    config |= {
        "query_pre_attn_scalar": scalar,
        "layer_types": ["sliding_attention" if each else "full_attention" for each in is_local],
        "rope_parameters": {"sliding_attention": local, "full_attention": config["rope_parameters"]},
    }


def _rope(own: dict[str, Any], path: Path) -> dict[str, Any]:
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
        expected = architecture_of({**config, "rope_parameters": rope}, str(path)).rope_divisors
        if all(abs(one - other) <= 1e-5 * one for one, other in zip(expected, divisors, strict=True)):
            return rope
    raise UsageError(f"{path}: {ROPE_DIVISORS} is not the RoPE of Llama 3; give the Hugging Face folder instead")


def _tidy(value: Scalar) -> Scalar:
    """The shortest number with the same float32: 1e-05, not 9.999999747378752e-06."""
    if not isinstance(value, float):
        return value
    import numpy as np

    shorter = (float(f"{value:.{digits}g}") for digits in range(1, 10))
    return next((short for short in shorter if np.float32(short) == np.float32(value)), value)
