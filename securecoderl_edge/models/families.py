"""The families of models that `transformer`, `decoder` and the exporters compute: what their classes have in common.

Adding a family that computes nothing new is one row each of `FAMILIES`, `tests/tiny_families.py` and
`tests/supported_models.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
SPLIT_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
SILU, GELU = "silu", "gelu_pytorch_tanh"


@dataclass(frozen=True)
class Norms:
    """Names of a layer's norms, by place; None where there is none.

    ``after_...`` norms apply to what attention or MLP add to the residual stream.
    """

    before_attention: str | None = "input_layernorm"
    after_attention: str | None = None
    before_mlp: str | None = "post_attention_layernorm"
    after_mlp: str | None = None

    def names(self) -> list[str]:
        """The names of all norms of a layer."""
        return [name for name in vars(self).values() if name is not None]


_AFTER = Norms(None, "post_attention_layernorm", None, "post_feedforward_layernorm")
_AROUND = Norms(
    "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
)


@dataclass(frozen=True)
class Family:
    """What all models of one class of transformers have in common.

    Attributes:
        name: in GGUF files.
        norms: the norms of a layer.
        norm_offset: added to the weights of norms.
        query_key_norm: ``head`` normalizes each head of q and k before the rotation, ``projection`` all heads at once.
        activation: of the MLP, and the key of config.json that names it.
        biases: linear layers that always have biases; None if config.json decides.
        mlp: linear layers of the MLP; two names mean that gate and up are one layer.
        defaults: values of keys that a config.json may leave out, where they are not Llama's.
        scales_embedding: whether the embedding is multiplied by the square root of the hidden size.
        permutes_rotary: whether llama.cpp rotates neighboring numbers of a head, so that rows of q and k change places.
        windows_in_gguf: whether llama.cpp applies the sliding windows of this family.
    """

    name: str
    norms: Norms = Norms()
    norm_offset: float = 0.0
    query_key_norm: str = ""
    activation: str = SILU
    activation_key: str = "hidden_act"
    biases: tuple[str, ...] | None = None
    mlp: tuple[str, ...] = SPLIT_MLP
    defaults: Mapping[str, Any] = field(default_factory=dict)
    scales_embedding: bool = False
    permutes_rotary: bool = False
    windows_in_gguf: bool = False


# Contexts that config.json may leave out.
_MEDIUM, _LONG = {"max_position_embeddings": 32_768}, {"max_position_embeddings": 131_072}
FAMILIES = {
    "LlamaForCausalLM": Family("llama", permutes_rotary=True),
    # Its class reads no biases, and applies a window in all layers; in GGUF it is a Llama.
    "MistralForCausalLM": Family(
        "llama", biases=(), permutes_rotary=True,
        defaults={"sliding_window": 4096, "sliding_window_pattern": 0, "num_key_value_heads": 8, **_LONG},
    ),
    "Qwen2ForCausalLM": Family("qwen2", biases=QKV, defaults={"num_key_value_heads": 32, **_MEDIUM}),
    "Qwen3ForCausalLM": Family(
        "qwen3", query_key_norm="head", defaults={"head_dim": 128, "num_key_value_heads": 32, **_MEDIUM}
    ),
    "SmolLM3ForCausalLM": Family(
        "smollm3",
        permutes_rotary=True,
        defaults={
            "rope_theta": 2e6, "tie_word_embeddings": True, "no_rope_layer_interval": 4, "num_key_value_heads": 4,
            **_MEDIUM,
        },
    ),
    "GraniteForCausalLM": Family("granite", permutes_rotary=True, defaults={"attention_multiplier": 1.0}),
    # Granite 4 in its dense form: the class for mixtures of experts and Mamba layers, without either.
    "GraniteMoeHybridForCausalLM": Family(
        "granite",
        mlp=("shared_mlp.input_linear", "shared_mlp.output_linear"),
        defaults={"attention_multiplier": 1.0, "position_embedding_type": None, "num_local_experts": 8},
        permutes_rotary=True,
    ),
    "Olmo2ForCausalLM": Family("olmo2", _AFTER, query_key_norm="projection", defaults={"rms_norm_eps": 1e-5}),
    "Gemma3ForCausalLM": Family(
        "gemma3",
        _AROUND,
        norm_offset=1.0,
        query_key_norm="head",
        activation=GELU,
        activation_key="hidden_activation",
        defaults={
            "head_dim": 256, "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "rope_theta": 1e6,
            "sliding_window": 4096, "sliding_window_pattern": 6, "tie_word_embeddings": True, "vocab_size": 262_208,
            **_LONG, "rope_local_base_freq": 10000.0,
        },
        scales_embedding=True,
        windows_in_gguf=True,
    ),
}  # fmt: skip
