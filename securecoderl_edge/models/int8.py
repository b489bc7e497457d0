"""Weight-only 8-bit linear layers for a frozen base model.

Each output row is stored as int8 with one float32 scale, ``w ~ q * scale``, ``scale = max|w| / 127``. The weight is
expanded to the input's dtype inside the matrix product. So training and evaluation compute the same numbers (PPO's
ratios need that), all devices work, and only the int8 weight is kept for the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_BLOCK_ROWS = 64


class _Int8MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, quantized: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(quantized, scale)
        return functional.linear(inputs, _expand(quantized, scale, inputs.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = gradients
        quantized, scale = ctx.saved_tensors
        return gradient @ _expand(quantized, scale, gradient.dtype), None, None, None


class Int8Linear(nn.Linear):
    """A frozen `nn.Linear` whose weight is int8 with row-wise scales; peft wraps it like any other linear layer."""

    scale: Tensor

    def __init__(self, in_features: int, out_features: int, *, bias: bool = False) -> None:
        """A layer without content, on the meta device; `quantize` gives it a weight."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = in_features, out_features
        shape = (out_features, in_features)
        self.weight = nn.Parameter(torch.empty(shape, dtype=torch.int8, device="meta"), requires_grad=False)
        self.register_buffer("scale", torch.empty(out_features, device="meta"))
        empty = nn.Parameter(torch.empty(out_features, device="meta"), requires_grad=False) if bias else None
        self.register_parameter("bias", empty)

    def quantize(self, weight: Tensor) -> None:
        """Take the content of ``weight`` (out, in), on its device."""
        wide = weight.float()
        scale = wide.abs().amax(1).clamp_min(1e-12) / 127
        self.weight = nn.Parameter((wide / scale[:, None]).round_().to(torch.int8), requires_grad=False)
        self.scale = scale

    def forward(self, inputs: Tensor) -> Tensor:
        if torch.is_autocast_enabled(inputs.device.type):
            inputs = inputs.to(torch.get_autocast_dtype(inputs.device.type))
        bias = None if self.bias is None else self.bias.to(inputs.dtype)
        output: Tensor = _Int8MatMul.apply(inputs, self.weight, self.scale, bias)  # type: ignore[no-untyped-call]
        return output

    def expanded(self, dtype: torch.dtype) -> Tensor:
        """(out, in) the weight that this layer computes with when its inputs are of ``dtype``."""
        return _expand(self.weight, self.scale, dtype)


def with_int8_linears(model: nn.Module) -> None:
    """Replace every `nn.Linear` of an empty ``model`` by an empty `Int8Linear`, except ``lm_head``.

    The output layer stays: rounding it moves every logit, and training reads it as one matrix.
    """
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and name != "lm_head":
                setattr(parent, name, Int8Linear(child.in_features, child.out_features, bias=child.bias is not None))


def _expand(quantized: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    # Multiplied in float32: a small scale has few digits in float16, and the sampler expands in float32 too. A CPU
    # works in blocks that fit into its cache, which is as fast as a matrix product in 16 bits.
    expanded = torch.empty(quantized.shape, dtype=dtype, device=quantized.device)
    rows = _BLOCK_ROWS if quantized.device.type == "cpu" else len(quantized)
    for start in range(0, len(quantized), rows):
        block = slice(start, start + rows)
        torch.mul(quantized[block], scale[block, None], out=expanded[block])
    return expanded
