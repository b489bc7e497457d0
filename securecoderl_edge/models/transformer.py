"""The forward pass that training differentiates: Llama and Qwen2 layers over frozen weights with LoRA.

It computes the same as Hugging Face's model (a test compares them) from the same modules, with three differences.
Prompts are processed once for all their completions; a layer keeps less for the backward pass (`fused`); and the
residual stream is always float32: sums over 24 layers exceed the range of float16, the compute dtype of a V100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from securecoderl_edge.models.fused import project, rms_norm, rotate, score_bias, shared_heads, swiglu

KeysValues = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Past:
    """The prompts that completions continue, as attention sees them.

    Attributes:
        layers: the KV cache of each layer (prompts, kv heads, C, D); gradients flow back through it.
        owners: (B,) the prompt of each completion.
        visible: (B, 1, L, C + L), True where a token sees a prompt's or a completion's token.
    """

    layers: Sequence[KeysValues]
    owners: Tensor
    visible: Tensor


def hidden_states(
    model: Any,
    tokens: Tensor,
    positions: Tensor | None = None,
    past: Past | None = None,
    *,
    dtype: torch.dtype | None = None,
    only: Tensor | None = None,
    recompute: bool = False,
) -> tuple[Tensor, list[KeysValues]]:
    """(B, L, H) last hidden states, float32, of right-padded ``tokens`` (B, L), and the KV cache of each layer.

    Under the causal mask no token sees the padding to its right.

    Args:
        positions: (B, L) places in their sequences, of tokens that continue a ``past``.
        dtype: of the matrix products; by default that of the embedding.
        only: (B,) the one token of each row whose hidden state is needed, (B, 1, H); the last layer computes only keys
            and values for the others. Not together with ``past``.
        recompute: keep only the inputs of each layer, and compute the layer again in the backward pass
            (gradient checkpointing, arXiv:1604.06174).
    """
    trunk = model.get_base_model().model if hasattr(model, "peft_config") else model.model
    embedded, device = trunk.embed_tokens(tokens), tokens.device
    dtype = dtype or embedded.dtype
    hidden = embedded.float()
    if positions is None:
        positions = torch.arange(tokens.shape[1], device=device)[None]
    cosine, sine = trunk.rotary_emb(hidden, positions)
    half = cosine.shape[-1] // 2  # the second half repeats the first
    angles = cosine[:, None, :, :half].to(dtype), sine[:, None, :, :half].to(dtype)
    # Added to the scores; built once here instead of in the attention of each layer.
    bias = None if past is None else score_bias(past.visible, dtype)
    kept: list[KeysValues] = []
    for number, layer in enumerate(trunk.layers):
        before = (*past.layers[number], past.owners) if past is not None else None
        wanted = only if number == len(trunk.layers) - 1 else None
        arguments = (layer, trunk.config, hidden, angles, bias, before, wanted, dtype)
        if recompute and torch.is_grad_enabled():
            hidden, keys, values = checkpoint(_layer, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            hidden, keys, values = _layer(*arguments)
        kept.append((keys, values))
    return rms_norm(hidden, trunk.norm.weight, trunk.config.rms_norm_eps, torch.float32), kept


def _layer(
    layer: Any,
    config: Any,
    hidden: Tensor,
    angles: tuple[Tensor, Tensor],
    bias: Tensor | None,
    past: tuple[Tensor, Tensor, Tensor] | None,
    only: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """One decoder layer; returns its output and its part of the KV cache, without that of ``past``."""
    attention, mlp = layer.self_attn, layer.mlp
    rows = len(hidden)

    def heads(flat: Tensor) -> Tensor:
        return flat.view(*flat.shape[:2], -1, attention.head_dim).transpose(1, 2)

    normed = rms_norm(hidden, layer.input_layernorm.weight, config.rms_norm_eps, dtype)
    inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
    query_angles = angles
    if only is None:
        query, key, value = map(heads, project(normed, inputs, dtype))
    else:
        key, value = map(heads, project(normed, inputs[1:], dtype))
        row = torch.arange(rows, device=only.device)
        hidden, normed = hidden[row, only][:, None], normed[row, only][:, None]
        query = heads(project(normed, inputs[:1], dtype)[0])
        query_angles = angles[0][0, 0, only][:, None, None], angles[1][0, 0, only][:, None, None]
        seen = torch.arange(key.shape[2], device=only.device) <= only[:, None]
        bias = score_bias(seen, dtype)[:, None, None]
    query, key = rotate(query, *query_angles), rotate(key, *angles)
    keys, values = key, value
    if past is not None:
        past_keys, past_values, owners = past
        # index_select adds up gradients in a fixed order on a CPU; keys[owners] does not with several threads.
        keys = torch.cat([past_keys.index_select(0, owners), key], 2)
        values = torch.cat([past_values.index_select(0, owners), value], 2)
    keys, values, shared = shared_heads(query, keys, values)
    mixed = functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=bias, is_causal=bias is None, enable_gqa=shared
    )
    flat = mixed.transpose(1, 2).reshape(rows, query.shape[2], -1)
    hidden = hidden + project(flat, (attention.o_proj,), dtype)[0]
    normed = rms_norm(hidden, layer.post_attention_layernorm.weight, config.rms_norm_eps, dtype)
    gate, up = project(normed, (mlp.gate_proj, mlp.up_proj), dtype)
    return hidden + project(swiglu(gate, up), (mlp.down_proj,), dtype)[0], key, value


def output_weight(model: Any) -> Tensor:
    """(V, H) the frozen output projection."""
    weight: Tensor = model.get_output_embeddings().weight
    return weight
