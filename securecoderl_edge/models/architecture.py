"""Architecture of a model, from its config.json: the facts by which one forward pass computes all families.

`transformer` and `decoder` compute what an `Architecture` says, and the exporters write it. Variants that they do not
compute are rejected by name.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.families import FAMILIES, QKV, SPLIT_MLP, Family
from securecoderl_edge.system.files import read_json

EXPORTED_ROPE_TYPES = ("default", "linear", "llama3")
# Bounds of what a file can claim, above all models, so that nothing is made for each of a billion layers.
_MOST_LAYERS, _LARGEST_HEAD, _LARGEST_SIZE = 10_000, 1 << 16, 1 << 26
# Other types change the rotation as the text grows, so cached keys of a prompt would become wrong.
_ROPE_TYPES = (*EXPORTED_ROPE_TYPES, "yarn")
_SLIDING, _FULL = "sliding_attention", ("full_attention", "attention")

# Variants that nothing here computes, with the values that are supported.
_ONLY_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "partial_rotary_factor": (1.0,),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "use_bidirectional_attention": (False, None),
    "num_local_experts": (0, None),
}


@dataclass(frozen=True)
class Architecture:
    """Sizes and constants of a model, and what its family computes.

    Attributes:
        rope_type: as transformers names it.
        rope_factor: the divisor of positions under linear rope scaling; 1 without scaling.
        rope_divisors: under llama3 scaling the divisor of each pair's rotation speed (head_size / 2); empty otherwise.
        rotated: for each layer, whether it has a rotary embedding.
        windows: for each layer, the number of tokens that a token attends to, itself included; None for all.
        local_rope_theta: base of the rotary embedding in layers with a window, if they have one of their own.
        biases: names within a layer of the linear layers with a bias.
        attention_scale: factor of the attention scores.
        embedding_scale, residual_scale, logit_scale: factors of the embedding, of what attention and MLP add, and of
            the logits.
    """

    kind: Family
    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_size: int
    vocabulary: int
    context: int
    norm_epsilon: float
    rope_type: str
    rope_theta: float
    rope_factor: float
    tied: bool
    rotated: tuple[bool, ...]
    windows: tuple[int | None, ...]
    biases: frozenset[str]
    attention_scale: float
    rope_divisors: tuple[float, ...] = ()
    local_rope_theta: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0

    @property
    def family(self) -> str:
        """The family's name in GGUF files."""
        return self.kind.name

    @property
    def query_size(self) -> int:
        """Outputs of the q projection."""
        return self.heads * self.head_size

    @property
    def key_value_size(self) -> int:
        """Outputs of the k projection, and of the v projection."""
        return self.key_value_heads * self.head_size

    @property
    def rope_exports(self) -> bool:
        """Whether `sce export` writes this rotary embedding."""
        return self.rope_type in EXPORTED_ROPE_TYPES

    def linears(self) -> dict[str, tuple[int, int]]:
        """Name within a layer and (out, in) of each linear layer."""
        inner = (self.intermediate, self.hidden)
        inputs = [inner, inner] if len(self.kind.mlp) == 3 else [(2 * self.intermediate, self.hidden)]
        mlp = zip(self.kind.mlp, [*inputs, (self.hidden, self.intermediate)], strict=True)
        return {
            "self_attn.q_proj": (self.query_size, self.hidden),
            "self_attn.k_proj": (self.key_value_size, self.hidden),
            "self_attn.v_proj": (self.key_value_size, self.hidden),
            "self_attn.o_proj": (self.hidden, self.query_size),
            **dict(mlp),
        }

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Hugging Face name and shape of every weight that the model must have."""
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocabulary, self.hidden),
            "model.norm.weight": (self.hidden,),
        }
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocabulary, self.hidden)
        for layer in range(self.layers):
            stem = f"model.layers.{layer}"
            for name in self.kind.norms.names():
                shapes[f"{stem}.{name}.weight"] = (self.hidden,)
            for name, size in self._query_key_norms().items():
                shapes[f"{stem}.{name}.weight"] = (size,)
            for name, shape in self.linears().items():
                shapes[f"{stem}.{name}.weight"] = shape
                if name in self.biases:
                    shapes[f"{stem}.{name}.bias"] = shape[:1]
        return shapes

    def split_names(self, name: str) -> list[tuple[str, slice]]:
        """The names that a tensor has in a model with separate gate and up layers, each with its rows of the tensor."""
        if len(self.kind.mlp) == 3:
            return [(name, slice(None))]
        both, down = (f".{each}." for each in self.kind.mlp)
        if both in name:
            parts = slice(0, self.intermediate), slice(self.intermediate, None)
            return [(name.replace(both, f".{each}."), rows) for each, rows in zip(SPLIT_MLP[:2], parts, strict=True)]
        return [(name.replace(down, f".{SPLIT_MLP[2]}."), slice(None))]

    def parameters(self) -> int:
        """Number of parameters of the model."""
        return sum(math.prod(shape) for shape in self.tensors().values())

    def lora_sizes(self) -> dict[str, int]:
        """Outputs plus inputs, over all layers, of the linear layers by their last name."""
        return {name.split(".")[1]: self.layers * sum(sizes) for name, sizes in self.linears().items()}

    def _query_key_norms(self) -> dict[str, int]:
        if not self.kind.query_key_norm:
            return {}
        alone = self.kind.query_key_norm == "head"
        return {
            "self_attn.q_norm": self.head_size if alone else self.query_size,
            "self_attn.k_norm": self.head_size if alone else self.key_value_size,
        }


def read_architecture(folder: Path) -> Architecture:
    """Read and check ``folder/config.json``; missing keys have the defaults of transformers.

    Raises:
        UsageError: another architecture, or an unsupported variant (named).
        SceError: no readable config.json.
    """
    return architecture_of(read_json(folder / "config.json"), str(folder / "config.json"))


def architecture_of(config: dict[str, Any], where: str) -> Architecture:
    """The architecture of a decoded config.json; errors as in `read_architecture`."""
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else config.get("model_type", "unknown")
    if not isinstance(name, str) or name not in FAMILIES:
        raise UsageError(f"{where}: architecture {name} is not supported, only {', '.join(FAMILIES)}")
    kind = FAMILIES[name]
    if config.get("quantization_config"):
        raise UsageError(f"{where}: the model is already quantized; give the folder with the original weights")
    config = {**kind.defaults, **config}
    try:
        return _read(kind, config, where)
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{where}: missing or invalid value ({what})") from None


def _read(kind: Family, config: dict[str, Any], where: str) -> Architecture:
    layers = _size(config, "num_hidden_layers", _MOST_LAYERS)
    heads, hidden = (_size(config, key) for key in ("num_attention_heads", "hidden_size"))
    types = _layer_types(kind, config, layers)
    rope, local_theta = _ropes(config, where, types)
    _refuse_variants(kind, config, rope, types, where)
    rope_type = rope.get("rope_type") or rope.get("type") or "default"
    if rope_type not in _ROPE_TYPES:
        raise UsageError(f"{where}: rope type {rope_type} is not supported")
    head_size = _size({"head_dim": config.get("head_dim") or hidden // heads}, "head_dim", _LARGEST_HEAD)
    shared = config.get("num_key_value_heads") or heads
    key_value_heads = _size({"num_key_value_heads": shared}, "num_key_value_heads", heads)
    # transformers 5 writes it into ``rope_parameters``, older versions next to ``rope_scaling``.
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    context = _size({"max_position_embeddings": 2048, **config}, "max_position_embeddings")
    if kind.name == "qwen2" and head_size * heads != hidden:
        raise UsageError(f"{where}: head_dim = {config.get('head_dim')} is not supported, only hidden_size / heads")
    scalar = config.get("query_pre_attn_scalar") or head_size
    return Architecture(
        kind=kind,
        layers=layers,
        hidden=hidden,
        intermediate=_size(config, "shared_intermediate_size" if len(kind.mlp) == 2 else "intermediate_size"),
        heads=heads,
        key_value_heads=key_value_heads,
        head_size=head_size,
        vocabulary=_size(config, "vocab_size"),
        context=context,
        norm_epsilon=float(config.get("rms_norm_eps", 1e-6)),
        rope_type=str(rope_type),
        rope_theta=theta,
        rope_factor=float(rope["factor"]) if rope_type == "linear" else 1.0,
        tied=bool(config.get("tie_word_embeddings", False)),
        rotated=_rotated(kind, config, layers),
        # A window as long as the context hides nothing, but its layers may rotate otherwise.
        windows=_windows(config, types, context if local_theta is None else None),
        biases=_biases(kind, config),
        attention_scale=float(config.get("attention_multiplier") or scalar**-0.5),
        rope_divisors=_llama3_divisors(rope, theta, head_size) if rope_type == "llama3" else (),
        local_rope_theta=local_theta,
        embedding_scale=hidden**0.5 if kind.scales_embedding else float(config.get("embedding_multiplier", 1.0)),
        residual_scale=float(config.get("residual_multiplier", 1.0)),
        logit_scale=1 / float(config.get("logits_scaling", 1.0)),
    )


def _refuse_variants(
    kind: Family, config: dict[str, Any], rope: dict[str, Any], types: tuple[str, ...], where: str
) -> None:
    supported = {**_ONLY_SUPPORTED, kind.activation_key: (kind.activation,)}
    for key, allowed in supported.items():
        found = rope.get(key, config.get(key, allowed[0]))
        if found not in allowed:
            raise UsageError(f"{where}: {key} = {found} is not supported, only {allowed[0]}")
    for found in types:
        if found not in (*_FULL, _SLIDING):
            raise UsageError(f"{where}: layers of type {found} are not supported, only attention")


def _layer_types(kind: Family, config: dict[str, Any], layers: int) -> tuple[str, ...]:
    """The kind of attention in each layer, by the rule of its class where config.json has no list."""
    listed = config.get("layer_types") or config.get("layers_block_type")
    if listed:
        types = tuple(str(each) for each in listed)
        if len(types) < layers:
            raise ValueError(f"layer_types has {len(types)} of {layers} layers")
        return types[:layers]
    if "sliding_window_pattern" in kind.defaults:
        every = int(config["sliding_window_pattern"])  # the last of each group of layers has no window; with 0 all have
        return tuple(_FULL[0] if every and (layer + 1) % every == 0 else _SLIDING for layer in range(layers))
    if "use_sliding_window" in config:
        first = int(config.get("max_window_layers", 28)) if config["use_sliding_window"] else layers
        return tuple(_SLIDING if layer >= first else _FULL[0] for layer in range(layers))
    if kind.mlp != SPLIT_MLP:
        raise KeyError("layer_types")  # this class makes Mamba layers where nothing is said
    return (_FULL[0],) * layers


def _windows(config: dict[str, Any], types: tuple[str, ...], most: int | None) -> tuple[int | None, ...]:
    window = config.get("sliding_window")
    if window is None or (most is not None and int(window) >= most):
        return (None,) * len(types)
    if int(window) < 1:
        raise ValueError(f"sliding_window = {window}")
    return tuple(int(window) if each == _SLIDING else None for each in types)


def _rotated(kind: Family, config: dict[str, Any], layers: int) -> tuple[bool, ...]:
    if "position_embedding_type" in kind.defaults:
        return (config["position_embedding_type"] == "rope",) * layers
    if "no_rope_layer_interval" not in kind.defaults:
        return (True,) * layers
    listed, interval = config.get("no_rope_layers"), int(config["no_rope_layer_interval"])
    return tuple(bool(listed[layer]) if listed else (layer + 1) % interval != 0 for layer in range(layers))


def _biases(kind: Family, config: dict[str, Any]) -> frozenset[str]:
    if kind.biases is not None:
        return frozenset(kind.biases)
    attention = (*QKV, "self_attn.o_proj") if config.get("attention_bias") else ()
    mlp = kind.mlp if config.get("mlp_bias") and len(kind.mlp) == 3 else ()
    return frozenset((*attention, *mlp))


def _ropes(config: dict[str, Any], where: str, types: tuple[str, ...]) -> tuple[dict[str, Any], float | None]:
    """Settings of the rotary embedding, and the base of a second one in layers with a window (Gemma 3)."""
    rope = _rope(config, where)
    if not set(rope) & {_SLIDING, _FULL[0]}:
        local = config.get("rope_local_base_freq")
        return rope, float(local) if local is not None and _SLIDING in types else None
    local = rope.get(_SLIDING) or {}
    if (local.get("rope_type") or "default") != "default":
        raise UsageError(f"{where}: rope type {local['rope_type']} is not supported in layers with a window")
    return rope.get(_FULL[0]) or {}, float(local.get("rope_theta") or 10000.0) if _SLIDING in types else None


def _rope(config: dict[str, Any], where: str) -> dict[str, Any]:
    """Settings of the rotary embedding, under the key of transformers 5 or that of older versions."""
    ropes = [config[name] for name in ("rope_parameters", "rope_scaling") if config.get(name)]
    for rope in ropes:
        if not isinstance(rope, dict):
            raise UsageError(f"{where}: rope type {rope} is not supported")
    # If both exist and differ, the version of transformers decides between them.
    kinds = [(rope.get("rope_type") or rope.get("type") or "default", rope.get("factor", 1.0)) for rope in ropes]
    if len(set(map(str, kinds))) > 1:
        raise UsageError(f"{where}: rope_parameters and rope_scaling contradict each other; remove one of them")
    return ropes[0] if ropes else {}


def _llama3_divisors(rope: dict[str, Any], theta: float, head_size: int) -> tuple[float, ...]:
    """Divisors of the rotation speeds in Llama 3.1: the factor for slow pairs, 1 for fast pairs, in between for others.

    Source: transformers, "llama3" among its rope parameters; the Llama 3 report, arXiv:2407.21783, has no formula.
    """
    factor, low, high = (float(rope[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = float(rope["original_max_position_embeddings"])
    divisors = []
    for pair in range(head_size // 2):
        turns = trained * theta ** (-2 * pair / head_size) / (2 * math.pi)  # in the context it was first trained with
        smooth = min(1.0, max(0.0, (turns - low) / (high - low)))
        divisors.append(1 / ((1 - smooth) / factor + smooth))
    return tuple(divisors)


def _size(config: dict[str, Any], key: str, most: int = _LARGEST_SIZE) -> int:
    try:
        size = int(config[key])
    except (TypeError, ValueError, OverflowError):
        size = 0
    if not 1 <= size <= most:
        raise ValueError(f"{key} = {str(config[key])[:99]}")
    return size
