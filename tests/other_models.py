"""Small random models that only transformers computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_models import train_tokenizer

SMALL = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "intermediate_size": 96}
GPT = {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 512}
# Class of transformers, its configuration, and layers that get LoRA.
MODELS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "StarCoder2": ("Starcoder2", {**SMALL, "num_key_value_heads": 2}, ("q_proj", "v_proj", "o_proj", "c_fc")),
    "Phi": ("Phi", SMALL, ("q_proj", "dense", "fc1")),
    "GPT-2": ("GPT2", GPT, ("c_attn", "c_proj", "c_fc")),
    "CodeGen": ("CodeGen", {**GPT, "rotary_dim": 8}, ("qkv_proj", "out_proj")),
    "LFM2": ("Lfm2", {**SMALL, "num_key_value_heads": 2, "layer_types": ["conv", "full_attention"]},
             ("q_proj", "in_proj", "w1")),
    "Llama with half of its heads rotated": ("Llama", {**SMALL, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8,
        "original_max_position_embeddings": 256,
    }}, ("q_proj", "down_proj")),
}  # fmt: skip


def build_other(folder: Path, name: str) -> Path:
    """Write a random model of `MODELS` with its tokenizer."""
    import torch
    import transformers

    size = train_tokenizer(folder)
    kind, special, _ = MODELS[name]
    ids = {"vocab_size": size, "bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    torch.manual_seed(3)
    config = getattr(transformers, f"{kind}Config")(**special, **ids, initializer_range=0.15)
    ending = "LMHeadModel" if kind == "GPT2" else "ForCausalLM"
    model = getattr(transformers, f"{kind}{ending}")(config)
    model.save_pretrained(folder)
    return folder
