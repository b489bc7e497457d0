"""The operations of a decoder layer whose weights are frozen, each keeping as little as it can for its backward pass.

Autograd keeps the inputs of every elementary operation. A frozen weight needs no gradient, so its input need not be
kept; an activation function can be computed again from its inputs. For a Llama layer with LoRA on its attention this
leaves about 60 % of the memory and half of the elementwise work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from securecoderl_edge.models.families import SILU
from securecoderl_edge.models.int8 import Int8Linear
from securecoderl_edge.models.packed_weight import packed_linear
from securecoderl_edge.system.machine import cpu_has_matrix_units

# The backward pass of attention: scores at a time, which stay in the cache of a CPU; keys from which torch's is faster.
_SCORE_BYTES, _LONG = 1 << 20, 512
# Gated inputs of an MLP at a time, on a CPU; less than `heap` returns to the system.
_BLOCK_BYTES = 12 << 20


@dataclass(frozen=True)
class Projection:
    """A frozen linear layer, and the scale of its LoRA update if it has one."""

    linear: nn.Linear
    scale: float | None

    def weight(self, dtype: torch.dtype) -> Tensor:
        """(out, in) the frozen weight in ``dtype``."""
        linear = self.linear
        return linear.expanded(dtype) if isinstance(linear, Int8Linear) else linear.weight.to(dtype)


@contextmanager
def rounded_products(dtype: torch.dtype | None, device: str) -> Iterator[None]:
    """Inside the block, float32 matrix products of a CPU round their inputs to ``dtype`` if that is bfloat16.

    Sums and results stay float32, which bfloat16 matrices do not give. With matrix units (AMX) it takes half the time.
    """
    settings = getattr(torch.backends.mkldnn, "matmul", None)  # torch 2.9
    if dtype != torch.bfloat16 or device != "cpu" or settings is None:
        yield
        return
    before = settings.fp32_precision
    settings.fp32_precision = "bf16"
    try:
        yield
    finally:
        settings.fp32_precision = before


def score_bias(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias that is added to attention scores: 0 where ``visible``, minus infinity elsewhere."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, float("-inf"))


def torchs_attention(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """As `attend`, by torch's own kernels.

    Several heads may share keys and values. The CPU kernel supports that. GPU kernels with a mask do not, and the
    fallback would hold all scores in float32, so on a GPU each head gets a copy.
    """
    groups, is_cpu = query.shape[1] // keys.shape[1], query.device.type == "cpu"
    if groups > 1 and not is_cpu:
        keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    return functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=bias, is_causal=bias is None, scale=scale, enable_gqa=groups > 1 and is_cpu
    )


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float) -> Tensor:
    """(B, heads, L, D) attention of ``query`` to ``keys`` and ``values`` (B, kv heads, S, D), scores times ``scale``.

    Args:
        bias: (B or 1, 1, L, S), see `score_bias`; None for the plain causal mask.
    """
    if query.device.type != "cpu" or query.dtype == torch.float32 or keys.shape[2] > _LONG:
        return torchs_attention(query, keys, values, bias, scale)
    output: Tensor = _Attend.apply(query, keys, values, bias, scale)  # type: ignore[no-untyped-call]
    return output


class _Attend(torch.autograd.Function):
    """Attention on a CPU in 16 bits, by blocks of float32 whose products may be rounded.

    Torch's own backward pass takes twice as long (three times for nano), and so does its forward pass without AMX.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        ctx.save_for_backward(query, keys, values, bias)
        ctx.scale = scale
        if cpu_has_matrix_units():
            return torchs_attention(query, keys, values, bias, scale)
        v = _by_group(values, keys)
        output = torch.empty_like(_by_group(query, keys))
        for part, _, _, weights in _attention_weights(query, keys, bias, scale):
            with rounded_products(query.dtype, "cpu"):
                output[part] = weights @ v[part].float()
        return output.view(query.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        query, keys, values, bias = ctx.saved_tensors
        grouped_values, slopes = _by_group(values, keys), _by_group(gradients[0], keys)
        slopes_of = [torch.empty_like(_by_group(each, keys)) for each in (query, keys, values)]
        for part, q, k, weights in _attention_weights(query, keys, bias, ctx.scale):
            v, slope = grouped_values[part].float(), slopes[part].float()
            with rounded_products(query.dtype, "cpu"):
                slopes_of[2][part] = weights.transpose(1, 2) @ slope
                of_weights = slope @ v.transpose(1, 2)
                of_scores = torch._softmax_backward_data(of_weights, weights, -1, torch.float32).mul_(ctx.scale)
                slopes_of[0][part], slopes_of[1][part] = of_scores @ k, of_scores.transpose(1, 2) @ q
        return slopes_of[0].view_as(query), slopes_of[1].view_as(keys), slopes_of[2].view_as(values), None, None


def _by_group(heads: Tensor, keys: Tensor) -> Tensor:
    """(B * kv heads, heads per kv head * L, D) of (B, heads, L, D): the heads that share ``keys`` as one."""
    return heads.reshape(keys.shape[0] * keys.shape[1], -1, keys.shape[3])


def _attention_weights(
    query: Tensor, keys: Tensor, bias: Tensor | None, scale: float
) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
    """The weights of some rows of `_by_group` at a time, in float32: those rows, of queries and keys, too, weights."""
    length, (rows, groups, seen, _) = query.shape[2], keys.shape
    if bias is None:
        bias = score_bias(torch.ones(1, 1, length, seen, dtype=torch.bool).tril(), query.dtype)
    queries, grouped_keys = _by_group(query, keys), _by_group(keys, keys)
    owners = torch.arange(rows).repeat_interleave(groups) % len(bias)
    at_a_time = max(1, _SCORE_BYTES // (4 * queries.shape[1] * seen))
    for start in range(0, rows * groups, at_a_time):
        part = slice(start, start + at_a_time)
        q, k = queries[part].float(), grouped_keys[part].float()
        with rounded_products(query.dtype, "cpu"):
            scores = (q @ k.transpose(1, 2)).mul_(scale)
        scores.view(len(q), -1, length, seen).add_(bias[owners[part]])
        yield part, q, k, scores.softmax(-1)


def project(
    inputs: Tensor, layers: Sequence[Any], dtype: torch.dtype, gate: Tensor | None = None, activation: str = ""
) -> list[Tensor]:
    """(..., out) outputs of linear layers, with their active LoRA adapters, that read the same ``inputs`` (..., in).

    Args:
        layers: `nn.Linear`, `Int8Linear`, or one of them wrapped by peft. Another kind computes its output itself.
        dtype: the compute dtype.
        gate: like ``inputs``. With it the layers read `gated` inputs, which only another kind of layer keeps.
    """
    projections: list[Projection] = []
    factors: list[Tensor] = []
    for layer in layers:
        linear = getattr(layer, "base_layer", layer)
        if type(linear) not in (nn.Linear, Int8Linear):
            read = inputs if gate is None else gated(gate, inputs, activation)
            return [each(read) for each in layers]
        name = layer.active_adapters[0] if linear is not layer else ""
        projections.append(Projection(linear, layer.scaling[name] if name else None))
        if name:
            factors += [layer.lora_A[name].weight, layer.lora_B[name].weight]
    outputs: tuple[Tensor, ...] = _Project.apply(inputs.to(dtype), gate, activation, projections, *factors)  # type: ignore[no-untyped-call]
    return list(outputs)


class _Project(torch.autograd.Function):
    """y_i = x W_i^T + b_i + s_i (x A_i^T) B_i^T; only the factors A_i (r, in) and B_i (out, r) and x get gradients.

    x is ``inputs``, or ``activation(gate) * inputs``, which is computed again: kept, it would take a sixth of what a
    Llama layer keeps.
    """

    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, gate: Tensor | None, activation: str, projections: list[Projection], *factors: Tensor
    ) -> tuple[Tensor, ...]:
        dtype, flat = inputs.dtype, inputs.reshape(-1, inputs.shape[-1])
        lower = [factor.to(dtype) for factor in factors[::2]]
        joined = torch.cat(lower).T if lower else flat.new_empty(flat.shape[1], 0)
        uppers, layers = iter(factors[1::2]), []
        for projection in projections:
            bias, weight, upper = projection.linear.bias, projection.weight(dtype), None
            if projection.scale is not None:
                upper = (next(uppers) * projection.scale).to(dtype)
                if dtype != torch.float32:
                    # One product rounds once, see `joined_linear`; a sum of two would lose small updates.
                    weight = torch.cat([weight, upper], 1)
            layers.append((weight, None if bias is None else bias.to(dtype), upper))

        def products(read: Tensor) -> list[Tensor]:
            reduced = read @ joined
            parts, found = iter(reduced.split([len(part) for part in lower], 1)), [reduced]
            for weight, bias, upper in layers:
                if upper is None:
                    output = packed_linear(read, weight, bias)
                elif dtype == torch.float32:
                    output = packed_linear(read, weight, bias).addmm_(next(parts), upper.T)
                else:
                    output = packed_linear(torch.cat([read, next(parts)], 1), weight, bias)
                found.append(output)
            return found

        if gate is None:
            reduced, *outputs = products(flat)
        else:
            gates = gate.reshape(flat.shape)
            of_rows = [products(activated(gates[rows], activation).mul_(flat[rows])) for rows in _blocks(flat)]
            reduced, *outputs = of_rows[0] if len(of_rows) == 1 else map(torch.cat, zip(*of_rows, strict=True))
        if lower or gate is not None:
            ctx.save_for_backward(flat if gate is None else inputs, gate, reduced, *factors)
        ctx.projections, ctx.shape, ctx.activation = projections, inputs.shape, activation
        return tuple(output.view(*inputs.shape[:-1], -1) for output in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        nothing = gradients[0].new_empty(0)
        inputs, gate, reduced, *factors = ctx.saved_tensors or (nothing, None, nothing)
        sizes = [len(factor) for factor in factors[::2]]
        slopes: list[Tensor] = []  # of x A^T
        factor_gradients: list[Tensor] = []
        terms: list[tuple[Tensor, Tensor]] = []  # Their products add up to the gradient of x.
        number, start = 0, 0
        for projection, gradient in zip(ctx.projections, gradients, strict=True):
            gradient = gradient.reshape(-1, gradient.shape[-1])
            if ctx.needs_input_grad[0]:
                terms.append((gradient, projection.weight(gradient.dtype)))
            if projection.scale is None:
                continue
            upper, part = factors[2 * number + 1], reduced[:, start : start + sizes[number]]
            slopes.append((gradient @ upper.to(gradient.dtype)).mul_(projection.scale))
            factor_gradients.append((gradient.T @ part).to(upper.dtype).mul_(projection.scale))
            number, start = number + 1, start + sizes[number]
        slope = torch.cat(slopes, 1) if slopes else None
        if slope is not None and terms:
            terms.append((slope, torch.cat([factor.to(slope.dtype) for factor in factors[::2]])))

        def of_inputs(rows: slice) -> Tensor:
            (gradient, weight), *others = terms
            total = gradient[rows] @ weight
            for gradient, weight in others:
                total.addmm_(gradient[rows], weight)
            return total

        lower_gradients: list[Tensor] = []
        inputs_gradient, gate_gradient = None, None
        if gate is None:
            inputs_gradient = of_inputs(slice(None)) if terms else None
            if slope is not None:
                lower_gradients.append((slope.T @ inputs).to(factors[0].dtype))
        else:
            flat = inputs.reshape(-1, inputs.shape[-1])
            gates = gate.reshape(flat.shape)
            if terms:
                inputs_gradient, gate_gradient = torch.empty_like(flat), torch.empty_like(gates)
            for rows in _blocks(flat):
                active = activated(gates[rows], ctx.activation)
                if slope is not None:
                    lower_gradients.append((slope[rows].T @ (active * flat[rows])).to(factors[0].dtype))
                if inputs_gradient is not None and gate_gradient is not None:
                    gradient = of_inputs(rows)
                    torch.mul(gradient, active, out=inputs_gradient[rows])
                    gate_gradient[rows] = _gate_slope(gradient, gates[rows], flat[rows], ctx.activation)
        factor_slopes: list[Tensor | None] = []
        if lower_gradients:
            of_lower = sum(lower_gradients[1:], lower_gradients[0]).split(sizes)
            factor_slopes = [each for pair in zip(of_lower, factor_gradients, strict=True) for each in pair]
        if inputs_gradient is not None:
            inputs_gradient = inputs_gradient.view(ctx.shape)
        if gate_gradient is not None and gate is not None:
            gate_gradient = gate_gradient.view(gate.shape)
        return (inputs_gradient, gate_gradient, None, None, *factor_slopes)


def _blocks(rows: Tensor) -> list[slice]:
    """The parts of rows (N, in) that a product reads at a time where these inputs are computed and not kept.

    On a CPU a part stays in the cache, and needs no new pages of memory; a GPU computes all rows at once.
    """
    count = max(1, _BLOCK_BYTES // rows[:1].nbytes) if rows.is_cpu and len(rows) else max(1, len(rows))
    return [slice(start, start + count) for start in range(0, max(1, len(rows)), count)]


def rms_norm(hidden: Tensor, weight: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
    """(..., H) ``hidden`` (float32) scaled to mean square 1, times the frozen ``weight``, as ``dtype``."""
    output: Tensor = _RmsNorm.apply(hidden, weight.float(), epsilon, dtype)  # type: ignore[no-untyped-call]
    return output


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, weight: Tensor, epsilon: float, dtype: torch.dtype) -> Tensor:
        inverse = (hidden.square().mean(-1, keepdim=True) + epsilon).rsqrt_()
        ctx.save_for_backward(hidden, weight, inverse)
        return (hidden * inverse).mul_(weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        hidden, weight, inverse = ctx.saved_tensors
        slope = gradients[0] * weight
        along = (slope * hidden).mean(-1, keepdim=True).mul_(inverse.square())
        return slope.addcmul_(hidden, along, value=-1).mul_(inverse), None, None, None


def rotate(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotary position embedding (arXiv:2104.09864) of ``heads`` (B, heads, L, D) by angles (B or 1, 1, L, D / 2)."""
    output: Tensor = _Rotate.apply(heads, cosine, sine)  # type: ignore[no-untyped-call]
    return output


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        return rotated(heads, cosine, sine)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.saved_tensors
        return rotated(gradients[0], cosine, -sine), None, None


def rotated(heads: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """As `rotate`, without gradients; of cosines that come twice, (B or 1, 1, L, D), it is one operation less."""
    first, second = heads.chunk(2, -1)
    half = first.shape[-1]
    if cosine.shape[-1] > half:
        output = heads * cosine
        output[..., :half].addcmul_(second, sine, value=-1)
        output[..., half:].addcmul_(first, sine)
        return output
    output = torch.empty_like(heads)
    torch.mul(first, cosine, out=output[..., :half]).addcmul_(second, sine, value=-1)
    torch.mul(second, cosine, out=output[..., half:]).addcmul_(first, sine)
    return output


def gated(gate: Tensor, up: Tensor, activation: str) -> Tensor:
    """``activation(gate) * up`` (arXiv:2002.05202); the activation is one of `families`."""
    output: Tensor = _Gated.apply(gate, up, activation)  # type: ignore[no-untyped-call]
    return output


def activated(gate: Tensor, activation: str) -> Tensor:
    """The activation of an MLP, without gradients."""
    return functional.silu(gate) if activation == SILU else functional.gelu(gate, approximate="tanh")


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, activation: str) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.activation = activation
        return activated(gate, activation).mul_(up)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None]:
        gate, up = ctx.saved_tensors
        of_gate = _gate_slope(gradients[0].clone(), gate, up, ctx.activation)
        return of_gate, activated(gate, ctx.activation).mul_(gradients[0]), None


def _gate_slope(gradient: Tensor, gate: Tensor, up: Tensor, activation: str) -> Tensor:
    """The gradient of ``gate``, of ``gradient``, that of `gated`, which is overwritten."""
    slope: Tensor = gradient.mul_(up)
    if activation == SILU:
        slope = torch.ops.aten.silu_backward(slope, gate)
    else:
        slope = torch.ops.aten.gelu_backward(slope, gate, approximate="tanh")
    return slope
