"""What a config.json says about a Llama model; variants whose sums we would get wrong are refused."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import UsageError
from securecoderl_edge.files import read_json


@dataclass(frozen=True)
class LlamaShape:
    """Sizes and constants of a LlamaForCausalLM.

    Attributes:
        rope_factor: the divisor of positions under linear rope scaling; 1 without scaling.
    """

    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int
    head_size: int
    vocabulary: int
    context: int
    norm_epsilon: float
    rope_theta: float
    rope_factor: float
    tied: bool

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Hugging Face name and shape of every weight that the model must have."""
        query, key_value = self.heads * self.head_size, self.key_value_heads * self.head_size
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocabulary, self.hidden),
            "model.norm.weight": (self.hidden,),
        }
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocabulary, self.hidden)
        for layer in range(self.layers):
            stem = f"model.layers.{layer}"
            shapes |= {
                f"{stem}.input_layernorm.weight": (self.hidden,),
                f"{stem}.post_attention_layernorm.weight": (self.hidden,),
                f"{stem}.self_attn.q_proj.weight": (query, self.hidden),
                f"{stem}.self_attn.k_proj.weight": (key_value, self.hidden),
                f"{stem}.self_attn.v_proj.weight": (key_value, self.hidden),
                f"{stem}.self_attn.o_proj.weight": (self.hidden, query),
                f"{stem}.mlp.gate_proj.weight": (self.intermediate, self.hidden),
                f"{stem}.mlp.up_proj.weight": (self.intermediate, self.hidden),
                f"{stem}.mlp.down_proj.weight": (self.hidden, self.intermediate),
            }
        return shapes


def read_architecture(base: Path) -> LlamaShape:
    """Read and check ``base/config.json``; missing keys have the defaults of transformers' LlamaConfig.

    Raises:
        UsageError: another architecture, or a variant of Llama that export does not write (named).
    """
    config = read_json(base / "config.json")
    where = base / "config.json"
    if config.get("model_type") != "llama" or config.get("architectures", ["LlamaForCausalLM"]) != ["LlamaForCausalLM"]:
        found = config.get("architectures") or config.get("model_type")
        raise UsageError(f"{where}: export writes LlamaForCausalLM models, this one is {found}")
    for key, supported in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False)):
        if config.get(key, supported) != supported:
            raise UsageError(f"{where}: {key} = {config[key]} is not supported by export, only {supported}")
    if config.get("quantization_config"):
        raise UsageError(f"{where}: the model is already quantised; export starts from the unquantised base model")
    try:
        return _shape(config, where)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{where}: a size of the model is missing or no number ({error})") from None


def _shape(config: dict[str, Any], where: Path) -> LlamaShape:
    theta, factor = _rope(config, where)
    heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
    return LlamaShape(
        layers=int(config["num_hidden_layers"]),
        hidden=hidden,
        intermediate=int(config["intermediate_size"]),
        heads=heads,
        key_value_heads=int(config.get("num_key_value_heads") or heads),
        head_size=int(config.get("head_dim") or hidden // heads),
        vocabulary=int(config["vocab_size"]),
        context=int(config.get("max_position_embeddings", 2048)),
        norm_epsilon=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=theta,
        rope_factor=factor,
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def _rope(config: dict[str, Any], where: Path) -> tuple[float, float]:
    """Theta and linear factor; transformers 5 writes ``rope_parameters``, older versions ``rope_scaling``."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in ("default", "linear"):
        raise UsageError(f"{where}: rope type {kind!r} is not supported by export, only default and linear")
    partial = rope.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    if float(partial) != 1.0:
        raise UsageError(f"{where}: partial_rotary_factor = {partial} is not supported by export, only 1")
    return theta, float(rope["factor"]) if kind == "linear" else 1.0
