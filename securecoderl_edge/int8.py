"""Weight-only 8-bit linear layers for a frozen base model.

Each output row is stored as int8 with one float32 scale, ``w ~ q * scale``, ``scale = max|w| / 127``. The weight is
expanded to the input's dtype inside the matrix product, so train and eval compute the same numbers (PPO's ratios need
that), any device works, and nothing but the int8 weight is kept for the backward pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class _Int8MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, quantised: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(quantised, scale)
        return functional.linear(inputs, _expand(quantised, scale, inputs.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = gradients
        quantised, scale = ctx.saved_tensors
        return gradient @ _expand(quantised, scale, gradient.dtype), None, None, None


class Int8Linear(nn.Linear):
    """A frozen `nn.Linear` whose weight is int8 with row-wise scales; peft wraps it like any other linear layer."""

    scale: Tensor

    def __init__(self, source: nn.Linear) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = source.in_features, source.out_features
        weight = source.weight.detach().float()
        scale = weight.abs().amax(1).clamp_min(1e-12) / 127
        self.weight = nn.Parameter((weight / scale[:, None]).round().to(torch.int8), requires_grad=False)
        self.register_buffer("scale", scale)
        bias = None if source.bias is None else nn.Parameter(source.bias.detach(), requires_grad=False)
        self.register_parameter("bias", bias)

    def forward(self, inputs: Tensor) -> Tensor:
        if torch.is_autocast_enabled(inputs.device.type):
            inputs = inputs.to(torch.get_autocast_dtype(inputs.device.type))
        bias = None if self.bias is None else self.bias.to(inputs.dtype)
        output: Tensor = _Int8MatMul.apply(inputs, self.weight, self.scale, bias)  # type: ignore[no-untyped-call]
        return output

    def dequantised(self) -> Tensor:
        """(out, in) the float32 weight that this layer computes with."""
        return _expand(self.weight, self.scale, torch.float32)


def quantise_linears(model: nn.Module, skip: tuple[str, ...] = ("lm_head",)) -> None:
    """Replace every `nn.Linear` of ``model`` by an `Int8Linear`, in place, except those named in ``skip``."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and name not in skip:
                setattr(parent, name, Int8Linear(child))


def _expand(quantised: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    return quantised.to(dtype) * scale.to(dtype)[:, None]
