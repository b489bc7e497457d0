"""A small random model of every family that is computed natively, in the shapes that tell right from wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_models import train_tokenizer

# Numbers that no default has, so that a factor that is left out shows.
_GRANITE: dict[str, Any] = {
    "attention_multiplier": 0.4, "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 2.0,
}  # fmt: skip
# Granite 4 without experts and Mamba layers; the class checks the sizes of those all the same.
_DENSE: dict[str, Any] = {
    "shared_intermediate_size": 128, "num_local_experts": 0, "layer_types": ["attention"] * 5, "mamba_n_heads": 24,
}  # fmt: skip
_TIED = {"tie_word_embeddings": True}
WINDOW = 24
# What is special about each: class of transformers, and fields of its configuration.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "mistral": ("Mistral", {"sliding_window": WINDOW, "head_dim": 32}),
    "qwen2": ("Qwen2", _TIED),
    "qwen2-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 2}),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "qwen3-biases": ("Qwen3", {"head_dim": 32, "attention_bias": True}),
    "smollm3": ("SmolLM3", _TIED),
    "granite": ("Granite", _GRANITE),
    "granite4": ("GraniteMoeHybrid", {**_GRANITE, **_DENSE, "position_embedding_type": "rope"}),
    "granite4-nope": ("GraniteMoeHybrid", {**_DENSE, "attention_multiplier": 0.2}),
    "olmo2": ("Olmo2", {}),
    "gemma3-short": ("Gemma3Text", {**_TIED, "head_dim": 32, "sliding_window": 4096, "sliding_window_pattern": 2}),
    "gemma3": (
        "Gemma3Text",
        {**_TIED, "head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": WINDOW, "sliding_window_pattern": 3,
         "num_hidden_layers": 6},
    ),
}  # fmt: skip


# Between them they have everything that a family can have: what is the same for all families is tried with these.
VARIED = ("llama-biases", "granite4", "olmo2", "gemma3")


def build_family(folder: Path, name: str, **changes: Any) -> Path:
    """Write a random model of the family ``name`` with its tokenizer; ``changes`` are fields of its config."""
    import torch
    import transformers

    size = train_tokenizer(folder)
    kind, special = FAMILIES[name]
    settings: dict[str, Any] = {
        "vocab_size": size + 5,  # more rows than tokens, as real models have
        "hidden_size": 96,
        "intermediate_size": 128,
        "num_hidden_layers": 5,
        "num_attention_heads": 6,  # heads of 16 numbers: onnxruntime rotates multiples of that
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": 1,
        "pad_token_id": 0,
        # The usual initialization gives near-uniform output, where rounding decides which token is best.
        "initializer_range": 0.15,
        **special,
        **changes,
    }
    torch.manual_seed(7)
    config = getattr(transformers, f"{kind}Config")(**settings)
    model = getattr(transformers, f"{kind.removesuffix('Text')}ForCausalLM")(config)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            # They begin as zeros and ones, which would hide that they are left out.
            if parameter_name.endswith("bias"):
                parameter.normal_(0, 0.3)
            elif "norm" in parameter_name:
                parameter.add_(torch.rand_like(parameter) * 0.6 - 0.3)
    model.save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    assert written["architectures"] == [type(model).__name__]
    return folder
