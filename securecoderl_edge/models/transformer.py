"""The forward pass that training differentiates: the layers of an `Architecture` over frozen weights with LoRA.

It computes the same as Hugging Face's model (a test compares them) from the same modules, with four differences.
Prompts are processed once for all their completions; only attention computes padding; a layer keeps less for the
backward pass (`fused`); and the residual stream is always float32: sums over 24 layers exceed the range of float16, the
compute dtype of a V100.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.architecture import Architecture, architecture_of
from securecoderl_edge.models.fused import attend, project, rms_norm, rotate, score_bias
from securecoderl_edge.system.heap import bound_free_memory

# The attribute of a loaded model that keeps its architecture.
_ARCHITECTURE = "_sce_architecture"
KeysValues = tuple[Tensor, Tensor]
Angles = tuple[Tensor, Tensor]


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


@dataclass(frozen=True)
class Packing:
    """Where the N tokens of a pass lie in B rows of L: at ``index`` (N,) of the flattened rows, in order; None: all."""

    rows: int
    length: int
    index: Tensor | None = None

    @classmethod
    def of(cls, lengths: Sequence[int], tokens: Tensor) -> Packing:
        """That of right-padded ``tokens`` (B, L), of which each row has as many as ``lengths``."""
        rows, length = tokens.shape
        if sum(lengths) == tokens.numel():
            return cls(rows, length)
        index = [row * length + step for row, count in enumerate(lengths) for step in range(count)]
        return cls(rows, length, torch.tensor(index, device=tokens.device))

    def spread(self, flat: Tensor) -> Tensor:
        """(B, L, W) of (N, W), 0 on padding."""
        if self.index is not None:
            flat = flat.new_zeros(self.rows * self.length, flat.shape[1]).index_copy(0, self.index, flat)
        return flat.view(self.rows, self.length, -1)

    def gather(self, rows: Tensor) -> Tensor:
        """(N, W) of (B, L, W)."""
        flat = rows.reshape(self.rows * self.length, -1)
        return flat if self.index is None else flat.index_select(0, self.index)

    def number(self, columns: Tensor) -> Tensor:
        """(B,) which of the N tokens are in these ``columns`` (B,), one of each row."""
        wanted = torch.arange(self.rows, device=columns.device) * self.length + columns
        return wanted if self.index is None else torch.searchsorted(self.index, wanted)


@dataclass(frozen=True)
class _Sight:
    """What the tokens of a pass see in the layers with one window.

    Attributes:
        bias: added to the scores; None under the plain causal mask.
        angles: of the rotary embedding (B or 1, 1, L, D / 2); None without one.
        window: as in `Architecture`.
    """

    bias: Tensor | None
    angles: Angles | None
    window: int | None


def hidden_states(
    model: Any,
    tokens: Tensor,
    positions: Tensor | None = None,
    past: Past | None = None,
    *,
    dtype: torch.dtype | None = None,
    packing: Packing | None = None,
    only: Tensor | None = None,
    recompute: bool = False,
) -> tuple[Tensor, list[KeysValues]]:
    """(N, H) last hidden states, float32, of the tokens in right-padded ``tokens`` (B, L); the KV cache of each layer.

    Under the causal mask no token sees the padding to its right.

    Args:
        positions: (B, L) places in their sequences, of tokens that continue a ``past``.
        dtype: of the matrix products; by default that of the embedding.
        packing: where tokens are in ``tokens``; the rest is padding. None: there is none.
        only: (B,) the one token of each row whose hidden state is needed, (B, H); the last layer computes only keys
            and values for the others. Not together with ``past``.
        recompute: keep only the inputs of each layer, and compute the layer again in the backward pass
            (gradient checkpointing, arXiv:1604.06174).
    """
    trunk, shape = without_adapters(model).model, model_architecture(model)
    packing = packing or Packing(*tokens.shape)
    embedded = functional.embedding(packing.gather(tokens)[:, 0], trunk.embed_tokens.weight)
    dtype = dtype or embedded.dtype
    hidden = embedded.float()
    if shape.embedding_scale != 1:
        hidden = hidden * shape.embedding_scale
    if positions is None:
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
    sights = _sights(trunk, shape, positions, past, dtype)
    kept: list[KeysValues] = []
    for number, layer in enumerate(trunk.layers):
        before = (*past.layers[number], past.owners) if past is not None else None
        wanted = only if number == len(trunk.layers) - 1 else None
        sight = sights[shape.windows[number], shape.rotated[number]]
        arguments = (layer, shape, hidden, packing, sight, before, wanted, dtype)
        if recompute and torch.is_grad_enabled():
            hidden, keys, values = checkpoint(_layer, *arguments, use_reentrant=False, preserve_rng_state=False)
        else:
            hidden, keys, values = _layer(*arguments)
        kept.append((keys, values))
    return _normed(hidden, trunk.norm, shape, torch.float32), kept


def without_adapters(model: Any) -> Any:
    """The model that peft has wrapped, if it has."""
    return model.get_base_model() if hasattr(model, "peft_config") else model


def native_architecture(model: Any) -> Architecture | None:
    """The architecture of a loaded model; None if only transformers computes it."""
    base = without_adapters(model)
    if _ARCHITECTURE not in base.__dict__:
        config = {**base.config.to_dict(), "architectures": [type(base).__name__]}
        config.pop("quantization_config", None)  # LLM.int8, which loading has set
        try:
            base.__dict__[_ARCHITECTURE] = architecture_of(config, type(base).__name__)
        except UsageError:
            base.__dict__[_ARCHITECTURE] = None
    shape = base.__dict__[_ARCHITECTURE]
    assert shape is None or isinstance(shape, Architecture)
    return shape


def model_architecture(model: Any) -> Architecture:
    """The architecture of a model that is computed here."""
    shape = native_architecture(model)
    if shape is None:
        raise ValueError(f"{type(without_adapters(model)).__name__} is not computed here")
    return shape


def rotations(trunk: Any, shape: Architecture, positions: Tensor, window: int | None) -> Angles:
    """Cosines and sines (B or 1, L, D / 2), float32, of the rotary embedding in layers with ``window``."""
    like = torch.zeros((), device=positions.device)
    kinds = () if shape.local_rope_theta is None else ("full_attention" if window is None else "sliding_attention",)
    cosine, sine = trunk.rotary_emb(like, positions, *kinds)
    half = cosine.shape[-1] // 2  # the second half repeats the first
    return cosine[..., :half], sine[..., :half]


def _sights(
    trunk: Any, shape: Architecture, positions: Tensor, past: Past | None, dtype: torch.dtype
) -> dict[tuple[int | None, bool], _Sight]:
    """What is the same in all layers with one window, with and without rotary embedding, computed once."""
    sights = {}
    for window, rotated in set(zip(shape.windows, shape.rotated, strict=True)):
        angles = None
        if rotated:
            cosine, sine = rotations(trunk, shape, positions, window)
            angles = cosine[:, None].to(dtype), sine[:, None].to(dtype)
        sights[window, rotated] = _Sight(_bias(positions, past, window, dtype), angles, window)
    return sights


def _bias(positions: Tensor, past: Past | None, window: int | None, dtype: torch.dtype) -> Tensor | None:
    if past is None:
        if window is None or positions.shape[1] <= window:
            return None
        behind = positions[:, None, :, None] - positions[:, None, None, :]
        return score_bias((behind >= 0) & (behind < window), dtype)
    visible = past.visible
    if window is not None:
        before = torch.arange(visible.shape[-1] - positions.shape[1], device=positions.device)
        of_keys = torch.cat([before.expand(len(positions), -1), positions], 1)
        visible = visible & (positions[:, None, :, None] - of_keys[:, None, None, :] < window)
    return score_bias(visible, dtype)


def _layer(
    layer: Any,
    shape: Architecture,
    hidden: Tensor,
    packing: Packing,
    sight: _Sight,
    past: tuple[Tensor, Tensor, Tensor] | None,
    only: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor, Tensor]:
    """One decoder layer; returns its output and its part of the KV cache, without that of ``past``."""
    if hidden.is_cpu:
        bound_free_memory()  # Layers leave holes between what they keep.
    attention, norms = layer.self_attn, shape.kind.norms
    normed = _normed_at(norms.before_attention, hidden, layer, shape, dtype)
    inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
    asking, query_angles, bias = packing, sight.angles, sight.bias
    if only is None:
        query, key, value = project(normed, inputs, dtype)
    else:
        key, value = project(normed, inputs[1:], dtype)
        chosen, asking = packing.number(only), Packing(packing.rows, 1)
        hidden, normed = hidden.index_select(0, chosen), normed.index_select(0, chosen)
        (query,) = project(normed, inputs[:1], dtype)
        if sight.angles is not None:
            cosine, sine = (each[0, 0, only][:, None, None] for each in sight.angles)
            query_angles = cosine, sine
        behind = only[:, None] - torch.arange(packing.length, device=only.device)
        seen = (behind >= 0) & (behind < (sight.window or packing.length))
        bias = score_bias(seen, dtype)[:, None, None]
    query = _as_heads(query, asking, attention, "q_norm", shape)
    key = _as_heads(key, packing, attention, "k_norm", shape)
    value = _split_heads(value, packing, shape)
    if sight.angles is not None and query_angles is not None:
        query, key = rotate(query, *query_angles), rotate(key, *sight.angles)
    keys, values = key, value
    if past is not None:
        past_keys, past_values, owners = past
        # index_select adds up gradients in a fixed order on a CPU; keys[owners] does not with several threads.
        keys = torch.cat([past_keys.index_select(0, owners), key], 2)
        values = torch.cat([past_values.index_select(0, owners), value], 2)
    mixed = attend(query, keys, values, bias, shape.attention_scale)
    (out,) = project(asking.gather(mixed.transpose(1, 2)), (attention.o_proj,), dtype)
    hidden = _added(hidden, out, norms.after_attention, layer, shape)
    normed = _normed_at(norms.before_mlp, hidden, layer, shape, dtype)
    *inner, down = (layer.get_submodule(name) for name in shape.kind.mlp)
    projected = project(normed, inner, dtype)
    gate, up = projected if len(projected) == 2 else projected[0].chunk(2, -1)
    (out,) = project(up, (down,), dtype, gate, shape.kind.activation)
    return _added(hidden, out, norms.after_mlp, layer, shape), key, value


def _normed(hidden: Tensor, norm: Any, shape: Architecture, dtype: torch.dtype) -> Tensor:
    weight = norm.weight.float()
    if shape.kind.norm_offset:
        weight = weight + shape.kind.norm_offset
    return rms_norm(hidden.float(), weight, shape.norm_epsilon, dtype)


def _normed_at(name: str | None, hidden: Tensor, layer: Any, shape: Architecture, dtype: torch.dtype) -> Tensor:
    return hidden.to(dtype) if name is None else _normed(hidden, getattr(layer, name), shape, dtype)


def _added(hidden: Tensor, output: Tensor, norm: str | None, layer: Any, shape: Architecture) -> Tensor:
    """The residual stream after attention or the MLP has added its ``output``."""
    if norm is not None:
        output = _normed(output, getattr(layer, norm), shape, torch.float32)
    return hidden + output if shape.residual_scale == 1 else hidden + output.float() * shape.residual_scale


def _split_heads(flat: Tensor, packing: Packing, shape: Architecture) -> Tensor:
    """(B, heads, L, D) of (N, heads * D)."""
    return packing.spread(flat).view(packing.rows, packing.length, -1, shape.head_size).transpose(1, 2)


def _as_heads(flat: Tensor, packing: Packing, attention: Any, norm: str, shape: Architecture) -> Tensor:
    """The heads of a q or k projection, normalized if the family does."""
    if shape.kind.query_key_norm == "projection":
        flat = _normed(flat, getattr(attention, norm), shape, flat.dtype)
    heads = _split_heads(flat, packing, shape)
    if shape.kind.query_key_norm == "head":
        heads = _normed(heads, getattr(attention, norm), shape, flat.dtype)
    return heads


def output_weight(model: Any) -> Tensor:
    """(V, H) the frozen output projection."""
    weight: Tensor = model.get_output_embeddings().weight
    return weight
