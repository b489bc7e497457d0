"""A decoder over merged weights with a KV cache, which sampling uses instead of the model in training.

It holds plain tensors: LoRA is merged into the weights; the q, k, v and the gate, up projections are fused. This saves
most of the Python and adapter overhead of a small model's decoding step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from securecoderl_edge.models.device import cpu_has_matrix_units
from securecoderl_edge.models.fused import rotated, shared_heads
from securecoderl_edge.models.int8 import Int8Linear


@dataclass(frozen=True)
class _MergedLayer:
    """Weights (out, in) of a layer; its norms' scales are in ``qkv`` and ``gate_up``."""

    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    gate_up: Tensor
    down: Tensor


class Decoder:
    """A Llama or Qwen2 decoder over merged weights; `refresh` takes them from the (possibly adapted) model.

    Constant factors (the scales of the norms and of the attention scores) are multiplied into the weights. As in
    training the residual stream is float32; ``dtype`` is the compute dtype.
    """

    def __init__(self, model: Any, dtype: torch.dtype) -> None:
        self._model = model
        base = model.get_base_model() if hasattr(model, "peft_config") else model
        self._trunk, self._causal = base.model, base
        config = base.config
        self.dtype = dtype
        self.device = base.device
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.head_size = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.context = config.max_position_embeddings
        self._epsilon = config.rms_norm_eps
        # With matrix units it takes half the time of two matrix products, which are slow in batches in bfloat16.
        self._fused = self.device.type == "cpu" and dtype == torch.bfloat16 and cpu_has_matrix_units()
        self.layers: list[_MergedLayer] = []

    @property
    def is_ready(self) -> bool:
        """Whether it holds weights to sample with."""
        return bool(self.layers)

    @property
    def weight_bytes(self) -> int:
        """Size of the merged weights, all of which each step reads."""
        every = (weight for layer in self.layers for weight in vars(layer).values() if weight is not None)
        return int(sum(weight.nbytes for weight in every) + self._head.nbytes)

    @property
    def cache_bytes_per_token(self) -> int:
        """Size of one token in the KV cache of all layers."""
        layers = len(self._trunk.layers)
        return int(2 * layers * self.kv_heads * self.head_size * self.dtype.itemsize)

    @torch.no_grad()
    def refresh(self) -> None:
        """Merge the current adapter into fresh copies of the weights."""
        self.release()
        trunk = self._trunk
        positions = torch.arange(self.context, device=self.device)
        angles = trunk.rotary_emb(torch.zeros((), device=self.device), positions[None])
        # The second half of the angles repeats the first.
        self._cosine, self._sine = (table[0, :, : self.head_size // 2].to(self.dtype) for table in angles)
        self._embedding = trunk.embed_tokens.weight
        self._head = self._prepared(self._causal.lm_head.weight)
        self._final_norm = trunk.norm.weight.float()
        self.layers = [self._merged(layer) for layer in trunk.layers]

    def release(self) -> None:
        """Free the memory of the merged weights; `refresh` is needed before the next sampling."""
        self.layers = []
        self._embedding = self._head = self._final_norm = self._cosine = self._sine = torch.empty(0)

    def _prepared(self, weight: Tensor) -> Tensor:
        return weight.to(self.dtype).contiguous()

    def _merged(self, layer: Any) -> _MergedLayer:
        attention, mlp = layer.self_attn, layer.mlp
        scale = self.head_size**-0.5
        # The factor of the scores goes into the queries.
        parts = [(attention.q_proj, scale), (attention.k_proj, 1.0), (attention.v_proj, 1.0)]
        qkv = torch.cat([merged_weight(linear) * factor for linear, factor in parts])
        biases = [linear.bias for linear, _ in parts]
        bias = None
        if biases[0] is not None:
            scaled = [bias.float() * factor for bias, (_, factor) in zip(biases, parts, strict=True)]
            bias = self._prepared(torch.cat(scaled))
        gate_up = torch.cat([merged_weight(mlp.gate_proj), merged_weight(mlp.up_proj)])
        return _MergedLayer(
            self._prepared(qkv.mul_(layer.input_layernorm.weight)),
            bias,
            self._prepared(merged_weight(attention.o_proj)),
            self._prepared(gate_up.mul_(layer.post_attention_layernorm.weight)),
            self._prepared(merged_weight(mlp.down_proj)),
        )

    def new_cache(self, rows: int, length: int) -> list[tuple[Tensor, Tensor]]:
        """A zeroed KV cache: keys and values of shape (rows, kv heads, length, head size) for each layer."""
        shape = (rows, self.kv_heads, length, self.head_size)
        return [
            (
                torch.zeros(shape, dtype=self.dtype, device=self.device),
                torch.zeros(shape, dtype=self.dtype, device=self.device),
            )
            for _ in self.layers
        ]

    def forward(
        self, tokens: Tensor, positions: Tensor, bias: Tensor, start: int, cache: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """Logits of the last position, (B, V), after writing ``tokens`` (B, T) into the cache at ``start``.

        ``bias`` (B, 1, T, length of the cache) is 0 for the entries that each token may see, minus infinity for others.
        """
        rows, width = tokens.shape
        hidden = self._embedding[tokens].float()
        cosine, sine = self._cosine[positions][:, None], self._sine[positions][:, None]
        turned, heads = self.heads + self.kv_heads, self.heads + 2 * self.kv_heads
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            projected = functional.linear(self._normed(hidden), layer.qkv, layer.qkv_bias)
            every = projected.view(rows, width, heads, self.head_size).transpose(1, 2)
            query_key = rotated(every[:, :turned], cosine, sine)
            keys[:, :, start : start + width] = query_key[:, self.heads :]
            values[:, :, start : start + width] = every[:, turned:]
            mixed = attended(query_key[:, : self.heads], keys, values, bias, fused=self._fused)
            hidden = hidden + functional.linear(mixed.transpose(1, 2).reshape(rows, width, -1), layer.out)
            gate, up = functional.linear(self._normed(hidden), layer.gate_up).chunk(2, -1)
            hidden = hidden + functional.linear(functional.silu(gate).mul_(up), layer.down)
        last = functional.rms_norm(hidden[:, -1], hidden.shape[-1:], self._final_norm, self._epsilon)
        logits: Tensor = functional.linear(last.to(self.dtype), self._head)
        return logits

    def _normed(self, hidden: Tensor) -> Tensor:
        # One norm and one factor per row: fewer passes than rms_norm, which is not fused on a CPU.
        mean_square = torch.linalg.vector_norm(hidden, dim=-1, keepdim=True).square_().div_(hidden.shape[-1])
        normed: Tensor = (hidden * mean_square.add_(self._epsilon).rsqrt_()).to(self.dtype)
        return normed


def merged_weight(linear: Any) -> Tensor:
    """(out, in) float32 weight of a linear layer with its active LoRA update, if any, added."""
    base = linear.base_layer if hasattr(linear, "base_layer") else linear
    weight: Tensor
    if isinstance(base, Int8Linear):
        weight = base.expanded(torch.float32)
    elif base.weight.dtype == torch.int8:  # LLM.int8
        from peft.utils.integrations import dequantize_module_weight

        weight = dequantize_module_weight(base).float()
    else:
        weight = base.weight.float()
    if base is not linear:
        weight = weight + linear.get_delta_weight(linear.active_adapters[0]).float()
    return weight


def attended(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, *, fused: bool = False) -> Tensor:
    """(B, heads, T, D) attention of scaled ``query`` to ``keys`` and ``values`` (B, kv heads, L, D).

    Args:
        fused: use torch's fused kernel for a single query as well.
    """
    rows, heads, width, size = query.shape
    if width > 1 or fused:
        keys, values, shared = shared_heads(query, keys, values)
        return functional.scaled_dot_product_attention(
            query, keys, values, attn_mask=bias, scale=1.0, enable_gqa=shared
        )
    # In float32 two matrix products are several times faster for a single query than the fused kernel, which is made
    # for many. The heads that share keys are the rows.
    scores = query.reshape(rows, keys.shape[1], -1, size) @ keys.transpose(-1, -2)
    mixed: Tensor = scores.add_(bias).softmax(-1) @ values
    return mixed.view(rows, heads, 1, size)
