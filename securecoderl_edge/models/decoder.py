"""A decoder over prepared weights with a KV cache, which sampling uses instead of the model in training.

It holds plain tensors, on a CPU in the order that is multiplied fastest (see `packed_weight`). LoRA is merged into the
weights, or in 16 bits computed next to them (see `joined_linear`); the q, k, v and the gate, up projections are fused.
This saves most of the Python and adapter overhead of a small model's decoding step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from securecoderl_edge.models.fused import activated, rotated, torchs_attention
from securecoderl_edge.models.int8 import Int8Linear
from securecoderl_edge.models.joined_linear import JoinedLinear, SharedLinear
from securecoderl_edge.models.packed_weight import packed, packed_linear
from securecoderl_edge.models.sizes import CPU_PACE, GPU_PACE
from securecoderl_edge.models.transformer import model_architecture, rotations, without_adapters
from securecoderl_edge.system.machine import cpu_has_matrix_units

# Positions whose angles are computed at a time.
_ANGLES = 4096

# Keys and values of each layer, (rows, kv heads, entries, head size).
KeyValueCache = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class _DecodingLayer:
    """The linear layers and the norms of a layer.

    Attributes:
        qkv_norm, gate_up_norm: scales of the norms before ``qkv`` and ``gate_up``; None if they are in those weights.
        query_key_norm: scales of the norms of q and k: (heads of q and k, 1, D), or (outputs of q and k).
        attention_norm, mlp_norm: scales of the norms after attention and MLP.
    """

    window: int | None
    rotated: bool
    qkv: JoinedLinear | SharedLinear
    out: JoinedLinear | SharedLinear
    gate_up: JoinedLinear | SharedLinear
    down: JoinedLinear | SharedLinear
    qkv_norm: Tensor | None
    gate_up_norm: Tensor | None
    query_key_norm: Tensor | None
    attention_norm: Tensor | None
    mlp_norm: Tensor | None

    @property
    def nbytes(self) -> int:
        """Size of all weights."""
        parts = (Tensor, JoinedLinear, SharedLinear)
        return sum(int(value.nbytes) for value in vars(self).values() if isinstance(value, parts))


class Decoder:
    """A decoder over prepared weights; `refresh` takes them from the (possibly adapted) model.

    Constant factors (the scales of the norms, of the attention scores, of the residual stream and of the logits) are
    multiplied into the weights. As in training the residual stream is float32; ``dtype`` is the compute dtype.
    """

    def __init__(self, model: Any, dtype: torch.dtype, *, int8: bool = False, merge: bool | None = None) -> None:
        """A decoder of ``model`` without weights.

        Args:
            dtype: of the products.
            int8: keep the layers' weights in 8 bits, see `int8`.
            merge: add the LoRA update to the weights, instead of computing it next to them. By default where the
                weights have the digits for it, in float32; and in int8, for which nothing trains. But a base in int8
                that is computed in float32 on a CPU is there to save memory: its weights are read, and not copied.
        """
        self._int8 = int8
        self._shares = dtype == torch.float32 and not int8 and merge is None and _is_small(model)
        self._merge = (int8 or dtype == torch.float32) if merge is None else merge
        self._causal = without_adapters(model)
        self._trunk, self._shape = self._causal.model, model_architecture(model)
        self.dtype = dtype
        self.device = self._causal.device
        self.context = self._shape.context
        self.layers: list[_DecodingLayer] = []
        # Whether it computes with few kernels, as a GPU needs it; a CPU is faster with fewer passes over memory.
        self.on_card = self.device.type == "cuda"
        # With matrix units it takes half the time of two matrix products, which are slow in batches in bfloat16.
        self._fused = self.on_card or (dtype == torch.bfloat16 and cpu_has_matrix_units())
        self.pace = GPU_PACE if self.on_card else CPU_PACE
        # See `recorded_step`.
        self.records_steps = self.on_card
        self.last_graph: Any = None
        # Tokens of prompts that it has processed, and the time for them.
        self.prompt_tokens, self.prompt_seconds = 0, 0.0

    @property
    def weight_bytes(self) -> int:
        """Size of the weights, all of which each step reads."""
        return int(sum(layer.nbytes for layer in self.layers) + self._head.nbytes)

    @property
    def cache_bytes_per_token(self) -> int:
        """Size of one token in the KV cache of all layers."""
        return int(2 * self._shape.layers * self._shape.key_value_size * self.dtype.itemsize)

    @torch.no_grad()
    def refresh(self, *, take: bool = False) -> None:
        """Make fresh copies of the weights, with the current adapter.

        Args:
            take: remove each layer from the model once it is copied, so that only one copy of the weights remains. The
                model cannot be used afterwards.
        """
        self.release()
        trunk = self._trunk
        self._embedding = trunk.embed_tokens.weight
        output = self._causal.lm_head.weight
        # Packed only if it is a copy anyway: the model keeps its own, with a large vocabulary a quarter of all weights.
        self._head = output if output.dtype == self.dtype else packed(output.to(self.dtype).contiguous())
        self._final_norm = self._scale(trunk.norm) * self._shape.logit_scale
        for number, layer in enumerate(trunk.layers):
            self.layers.append(self._prepared_layer(number, layer))
            if take:
                trunk.layers[number] = torch.nn.Identity()

    def release(self) -> None:
        """Free the memory of the weights; `refresh` is needed before the next sampling."""
        self.layers = []
        self._angles: dict[int | None, tuple[Tensor, Tensor]] = {}
        self._embedding = self._head = self._final_norm = torch.empty(0)

    def _scale(self, norm: Any) -> Tensor:
        scale: Tensor = norm.weight.float() + self._shape.kind.norm_offset
        return scale

    def _prepared_layer(self, number: int, layer: Any) -> _DecodingLayer:
        shape, attention = self._shape, layer.self_attn
        norms, normed_heads = shape.kind.norms, shape.kind.query_key_norm
        # The factor of the scores goes into the queries, or into their norm.
        scale = shape.attention_scale
        parts = [(attention.q_proj, 1.0 if normed_heads else scale), (attention.k_proj, 1.0), (attention.v_proj, 1.0)]
        query_key_norm = None
        if normed_heads:
            scales = self._scale(attention.q_norm) * scale, self._scale(attention.k_norm)
            if normed_heads == "head":
                counts = shape.heads, shape.key_value_heads
                scales = tuple(each.expand(count, 1, -1) for each, count in zip(scales, counts, strict=True))  # type: ignore[assignment]
            query_key_norm = torch.cat(scales)
        *inner, down = ((layer.get_submodule(name), 1.0) for name in shape.kind.mlp)
        # A norm after a linear layer takes the factor of the residual stream.
        residual = shape.residual_scale
        after = [
            None if name is None else self._scale(getattr(layer, name)) * residual
            for name in (norms.after_attention, norms.after_mlp)
        ]
        return _DecodingLayer(
            shape.windows[number],
            shape.rotated[number],
            self._joined(parts, layer, norms.before_attention),
            self._joined([(attention.o_proj, 1.0 if norms.after_attention else residual)], layer),
            self._joined(inner, layer, norms.before_mlp),
            self._joined([(down[0], 1.0 if norms.after_mlp else residual)], layer),
            self._separate(norms.before_attention, layer),
            self._separate(norms.before_mlp, layer),
            query_key_norm,
            *after,
        )

    def _joined(
        self, parts: Sequence[tuple[Any, float]], layer: Any, norm: str | None = None
    ) -> JoinedLinear | SharedLinear:
        """Linear layers as one, each times its factor, after ``norm``."""
        if self._shares:
            return SharedLinear.of(parts)
        scale = self._scale(getattr(layer, norm)) if norm is not None and not self._int8 else None
        packs = not self.on_card
        return JoinedLinear.of(parts, scale, self.dtype, int8=self._int8, merge=self._merge, packs=packs)

    def _separate(self, norm: str | None, layer: Any) -> Tensor | None:
        # In a row that shares one int8 scale, large factors of some columns would cost the others their digits.
        return self._scale(getattr(layer, norm)) if norm is not None and (self._int8 or self._shares) else None

    def new_cache(self, rows: int, length: int) -> KeyValueCache:
        """A zeroed KV cache: keys and values of shape (rows, kv heads, length, head size) for each layer."""
        shape = (rows, self._shape.key_value_heads, length, self._shape.head_size)
        zeros = partial(torch.zeros, shape, dtype=self.dtype, device=self.device)
        return [(zeros(), zeros()) for _ in self.layers]

    def forward(
        self, tokens: Tensor, positions: Tensor, bias: Tensor, start: int | Tensor, cache: KeyValueCache
    ) -> Tensor:
        """Logits of the last position, (B, V), after writing ``tokens`` (B, T) into the cache at ``start``.

        ``bias`` (B, 1, T, length of the cache) is 0 for the entries that each token may see, minus infinity for others.
        Entries of a row must be in the order of its text, without gaps, for windows count them. For one token ``start``
        may be on the device, of shape (1,).
        """
        rows, width = tokens.shape
        at: slice | Tensor
        if isinstance(start, Tensor):
            at, end = start, bias.shape[-1]
        else:
            at, end = slice(start, start + width), start + width
        shape = self._shape
        hidden = functional.embedding(tokens, self._embedding).float()
        if shape.embedding_scale != 1:
            hidden = hidden * shape.embedding_scale
        sights = {
            window: (self._angles_at(window, positions, end), _within(bias, window, start, end))
            for window in set(shape.windows)
        }
        turned, heads = shape.heads + shape.key_value_heads, shape.heads + 2 * shape.key_value_heads
        norms, activation = shape.kind.norms, shape.kind.activation
        for layer, (keys, values) in zip(self.layers, cache, strict=True):
            (cosine, sine), seen = sights[layer.window]
            normed = self._normed(hidden, layer.qkv_norm) if norms.before_attention else hidden
            projected = self._product(layer.qkv, normed)
            if layer.query_key_norm is not None and shape.kind.query_key_norm == "projection":
                projected = self._norm_projections(projected, layer.query_key_norm)
            every = projected.view(rows, width, heads, shape.head_size).transpose(1, 2)
            query_key = every[:, :turned]
            if layer.query_key_norm is not None and shape.kind.query_key_norm == "head":
                query_key = (self._rms(query_key.float()) * layer.query_key_norm).to(self.dtype)
            if layer.rotated:
                query_key = rotated(query_key, cosine, sine)
            keys[:, :, at] = query_key[:, shape.heads :]
            values[:, :, at] = every[:, turned:]
            mixed = self._attended(query_key[:, : shape.heads], keys, values, seen)
            hidden = self._added(hidden, self._product(layer.out, mixed), layer.attention_norm)
            normed = self._normed(hidden, layer.gate_up_norm) if norms.before_mlp else hidden
            gate, up = self._product(layer.gate_up, normed).chunk(2, -1)
            hidden = self._added(hidden, self._product(layer.down, activated(gate, activation), up), layer.mlp_norm)
        last = functional.rms_norm(hidden[:, -1], hidden.shape[-1:], self._final_norm, shape.norm_epsilon)
        return packed_linear(last.to(self.dtype), self._head)

    def _angles_at(self, window: int | None, positions: Tensor, bound: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines (B, 1, T, D / 2) in layers with ``window``; every position is below ``bound``."""
        if not any(self._shape.rotated):
            return positions, positions  # no layer reads them
        table = self._angles.get(window)
        if table is None or len(table[0]) < bound:
            length = min(self.context, -(-bound // _ANGLES) * _ANGLES)
            every = torch.arange(max(length, bound), device=self.device)[None]
            cosine, sine = rotations(self._trunk, self._shape, every, window)
            if self.on_card:
                cosine = torch.cat([cosine, cosine], -1)  # see `rotated`
            table = self._angles[window] = cosine[0].to(self.dtype), sine[0].to(self.dtype)
        return table[0][positions][:, None], table[1][positions][:, None]

    def _attended(self, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        """(B, T, ...) outputs of all heads for scaled ``query`` (B, heads, T, D)."""
        if query.shape[2] > 1:
            mixed = torchs_attention(query, keys, values, bias, 1.0).transpose(1, 2)
        else:
            mixed = attended(query, keys, values, bias, fused=self._fused)
        return mixed if self.on_card else mixed.flatten(2)

    def _product(self, linear: JoinedLinear | SharedLinear, inputs: Tensor, factor: Tensor | None = None) -> Tensor:
        """(B, T, out) outputs of ``linear`` for ``inputs`` (B, T, ...), times ``factor`` of their shape."""
        if not self.on_card or isinstance(linear, SharedLinear):
            return linear.product(inputs.to(self.dtype) if factor is None else inputs.mul_(factor))

        def write(place: Tensor) -> None:
            if factor is None:
                place.view(inputs.shape).copy_(inputs)
            else:
                torch.mul(inputs, factor, out=place)

        return linear.product_of((*inputs.shape[:2], math.prod(inputs.shape[2:])), self.dtype, write)

    def _rms(self, values: Tensor) -> Tensor:
        if self.on_card:
            return functional.rms_norm(values, values.shape[-1:], None, self._shape.norm_epsilon)
        # One norm and one factor per row: fewer passes than rms_norm, which is not fused on a CPU.
        mean_square = torch.linalg.vector_norm(values, dim=-1, keepdim=True).square_().div_(values.shape[-1])
        normed: Tensor = values * mean_square.add_(self._shape.norm_epsilon).rsqrt_()
        return normed

    def _normed(self, hidden: Tensor, scale: Tensor | None) -> Tensor:
        normed = self._rms(hidden)
        return normed if scale is None else normed * scale

    def _norm_projections(self, projected: Tensor, scale: Tensor) -> Tensor:
        sizes = [self._shape.query_size, self._shape.key_value_size, self._shape.key_value_size]
        query, key, value = projected.split(sizes, -1)
        normed = torch.cat([self._rms(query.float()), self._rms(key.float())], -1) * scale
        return torch.cat([normed.to(self.dtype), value], -1)

    def _added(self, hidden: Tensor, output: Tensor, norm: Tensor | None) -> Tensor:
        return hidden + (output if norm is None else self._rms(output.float()) * norm)


def _is_small(model: Any) -> bool:
    """Whether the layers of a model are in int8 on a CPU."""
    parts = without_adapters(model).model.layers.modules()
    return any(isinstance(each, Int8Linear) and each.weight.is_cpu for each in parts)


def _within(bias: Tensor, window: int | None, start: int | Tensor, end: int) -> Tensor:
    """``bias`` without the entries that are a ``window`` or more before a token; the first token is at ``start``.

    No token is at ``end`` or behind it.
    """
    width, length = bias.shape[-2:]
    if window is None or end <= window:
        return bias
    own = (start + torch.arange(width, device=bias.device))[:, None]
    behind = own - torch.arange(length, device=bias.device)
    return bias.masked_fill(behind >= window, float("-inf"))


def attended(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, *, fused: bool = False) -> Tensor:
    """(B, 1, kv heads, heads of each, D) attention of one scaled ``query`` (B, heads, 1, D).

    Args:
        keys, values: (B, kv heads, L, D).
        bias: (B, 1, 1, L), see `score_bias`.
        fused: use torch's fused kernel. In float32 on a CPU two matrix products are several times faster for a single
            query; the kernel is made for many.
    """
    # The heads that share keys all see the same entries: they are as queries of one head. On a card the kernel that
    # takes a mask takes no heads that share keys; on a CPU keys are read once for all of them.
    grouped = query.reshape(len(query), keys.shape[1], -1, query.shape[-1])
    if fused:
        mixed = functional.scaled_dot_product_attention(grouped, keys, values, attn_mask=bias, scale=1.0)
    else:
        mixed = (grouped @ keys.transpose(-1, -2)).add_(bias).softmax(-1) @ values
    return mixed[:, None]
