"""Weight-only 8-bit linear layers for a frozen base model.

Each output row is stored as int8 with one float32 scale, ``w ~ q * scale``, ``scale = max|w| / 127``. The weight is
expanded to the input's dtype inside the matrix product. So training and evaluation compute the same numbers (PPO's
ratios need that), all devices work, and only the int8 weight is kept for the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_BLOCK_ROWS = 64
_PRODUCT_BYTES = 4 << 20  # of a part of a weight that is expanded, so that it stays in the cache


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
        codes, self.scale = _quantized(weight)
        self.weight = nn.Parameter(codes, requires_grad=False)

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


@dataclass(frozen=True)
class Int8Weight:
    """A weight (out, in) that only products read: ``codes`` int8, one float32 ``scale`` for each row."""

    codes: Tensor
    scale: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> Int8Weight:
        """Quantized as by `Int8Linear`."""
        return cls(*_quantized(weight))

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return int(self.codes.nbytes + self.scale.nbytes)

    def product(self, inputs: Tensor, bias: Tensor | None) -> Tensor:
        """``inputs`` (..., in) times the weight, plus ``bias``; the weight is expanded a part at a time."""
        output = inputs.new_empty((*inputs.shape[:-1], len(self.codes)))
        count = max(1, _PRODUCT_BYTES // (self.codes.shape[1] * inputs.element_size()))
        for start in range(0, len(self.codes), count):
            rows = slice(start, start + count)
            codes, scale = self.codes[rows], self.scale[rows]
            if inputs.dtype == torch.float16:  # products with the codes would overflow
                output[..., rows] = functional.linear(inputs, _expand(codes, scale, inputs.dtype))
            else:
                output[..., rows] = functional.linear(inputs, codes.to(inputs.dtype)).mul_(scale.to(inputs.dtype))
        return output if bias is None else output.add_(bias)


def quantize_linears(model: nn.Module) -> None:
    """Replace every `nn.Linear` of a loaded ``model`` by its `Int8Linear`, except the output layer."""
    head = model.get_output_embeddings()  # type: ignore[operator]
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and child is not head:
                layer = Int8Linear(child.in_features, child.out_features)
                layer.quantize(child.weight.detach())
                layer.bias = child.bias
                setattr(parent, name, layer)


def _quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    wide = weight.float()
    scale = wide.abs().amax(1).clamp_min(1e-12) / 127
    return (wide / scale[:, None]).round_().to(torch.int8), scale


def _expand(quantized: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    # Multiplied in float32: a small scale has few digits in float16. A CPU works in blocks that fit into its cache,
    # which is as fast as a matrix product in 16 bits.
    expanded = torch.empty(quantized.shape, dtype=dtype, device=quantized.device)
    rows = _BLOCK_ROWS if quantized.device.type == "cpu" else len(quantized)
    for start in range(0, len(quantized), rows):
        block = slice(start, start + rows)
        torch.mul(quantized[block], scale[block, None], out=expanded[block])
    return expanded
