"""Architecture of a Llama or Qwen2 model, from its config.json; unsupported variants are rejected."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import UsageError
from securecoderl_edge.system.files import read_json

FAMILIES = {"LlamaForCausalLM": "llama", "Qwen2ForCausalLM": "qwen2"}
# Variants that the layers of `transformer`, `decoder` and the exporters do not compute.
_ONLY_SUPPORTED = {
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "partial_rotary_factor": 1.0,
    "use_sliding_window": False,
}
# Other types change the rotation as the text grows, so cached keys of a prompt would become wrong.
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
EXPORTED_ROPE_TYPES = ("default", "linear", "llama3")


@dataclass(frozen=True)
class Architecture:
    """Sizes and constants of a LlamaForCausalLM or a Qwen2ForCausalLM.

    Attributes:
        family: ``llama`` or ``qwen2``, whose q, k and v projections have biases.
        rope_type: as transformers names it.
        rope_factor: the divisor of positions under linear rope scaling; 1 without scaling.
        rope_divisors: under llama3 scaling the divisor of each pair's rotation speed (head_size / 2); empty otherwise.
    """

    family: str
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
    rope_divisors: tuple[float, ...] = ()

    @property
    def query_size(self) -> int:
        """Outputs of the q projection."""
        return self.heads * self.head_size

    @property
    def key_value_size(self) -> int:
        """Outputs of the k projection, and of the v projection."""
        return self.key_value_heads * self.head_size

    @property
    def has_attention_bias(self) -> bool:
        """Whether the q, k and v projections have biases."""
        return self.family == "qwen2"

    @property
    def gguf_permutes_rotary(self) -> bool:
        """Whether llama.cpp rotates neighboring numbers of a head, so that rows of q and k change places in a file."""
        return self.family == "llama"

    @property
    def rope_exports(self) -> bool:
        """Whether `sce export` writes this rotary embedding."""
        return self.rope_type in EXPORTED_ROPE_TYPES

    def linears(self) -> dict[str, tuple[int, int]]:
        """Name within a layer and (out, in) of each linear layer."""
        return {
            "self_attn.q_proj": (self.query_size, self.hidden),
            "self_attn.k_proj": (self.key_value_size, self.hidden),
            "self_attn.v_proj": (self.key_value_size, self.hidden),
            "self_attn.o_proj": (self.hidden, self.query_size),
            "mlp.gate_proj": (self.intermediate, self.hidden),
            "mlp.up_proj": (self.intermediate, self.hidden),
            "mlp.down_proj": (self.hidden, self.intermediate),
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
            shapes[f"{stem}.input_layernorm.weight"] = (self.hidden,)
            shapes[f"{stem}.post_attention_layernorm.weight"] = (self.hidden,)
            for name, shape in self.linears().items():
                shapes[f"{stem}.{name}.weight"] = shape
                if self.has_attention_bias and name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
                    shapes[f"{stem}.{name}.bias"] = shape[:1]
        return shapes

    def parameters(self) -> int:
        """Number of parameters of the model."""
        return sum(math.prod(shape) for shape in self.tensors().values())


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
    if name not in FAMILIES:
        raise UsageError(f"{where}: architecture {name} is not supported, only {', '.join(FAMILIES)}")
    if config.get("quantization_config"):
        raise UsageError(f"{where}: the model is already quantized; give the folder with the original weights")
    rope = _rope(config, where)
    for key, only in _ONLY_SUPPORTED.items():
        found = rope.get(key, config.get(key, only))
        if found != only:
            raise UsageError(f"{where}: {key} = {found} is not supported, only {only}")
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in _ROPE_TYPES:
        raise UsageError(f"{where}: rope type {kind} is not supported")
    try:
        heads, hidden = _size(config, "num_attention_heads"), _size(config, "hidden_size")
        head_size = int(config.get("head_dim") or hidden // heads)
        # transformers 5 writes it into ``rope_parameters``, older versions next to ``rope_scaling``.
        theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
        if FAMILIES[name] == "qwen2" and head_size * heads != hidden:
            raise UsageError(f"{where}: head_dim = {config.get('head_dim')} is not supported, only hidden_size / heads")
        return Architecture(
            family=FAMILIES[name],
            layers=_size(config, "num_hidden_layers"),
            hidden=hidden,
            intermediate=_size(config, "intermediate_size"),
            heads=heads,
            key_value_heads=int(config.get("num_key_value_heads") or heads),
            head_size=head_size,
            vocabulary=_size(config, "vocab_size"),
            context=_size({"max_position_embeddings": 2048, **config}, "max_position_embeddings"),
            norm_epsilon=float(config.get("rms_norm_eps", 1e-6)),
            rope_type=str(kind),
            rope_theta=theta,
            rope_factor=float(rope["factor"]) if kind == "linear" else 1.0,
            tied=bool(config.get("tie_word_embeddings", False)),
            rope_divisors=_llama3_divisors(rope, theta, head_size) if kind == "llama3" else (),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{where}: missing or invalid value ({what})") from None


def _rope(config: dict[str, Any], where: str) -> dict[str, Any]:
    """Settings of the rotary embedding, under the key of transformers 5 or that of older versions."""
    found = [config[name] for name in ("rope_parameters", "rope_scaling") if config.get(name)]
    for rope in found:
        if not isinstance(rope, dict):
            raise UsageError(f"{where}: rope type {rope} is not supported")
    # If both exist and differ, the version of transformers decides between them.
    kinds = [(rope.get("rope_type") or rope.get("type") or "default", rope.get("factor", 1.0)) for rope in found]
    if len(set(map(str, kinds))) > 1:
        raise UsageError(f"{where}: rope_parameters and rope_scaling contradict each other; remove one of them")
    return found[0] if found else {}


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


def _size(config: dict[str, Any], key: str) -> int:
    try:
        size = int(config[key])
    except (TypeError, ValueError, OverflowError):
        size = 0
    if size < 1:
        raise ValueError(f"{key} = {config[key]!r}")
    return size
