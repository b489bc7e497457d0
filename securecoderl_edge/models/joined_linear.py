"""Linear layers that read the same inputs as one product, for decoding: with their LoRA updates merged, or apart.

Merged costs nothing per token, but rounds W + s B A to the dtype of the product. A bfloat16 number has 8 bits: of an
update that is a thousandth of its weight nearly all is lost, and the sampler would draw from an earlier policy.

Apart, the factors are more columns of the weight: y = [x, x A^T] [W, s B]^T. The product adds W's part and that of the
factors in float32 and rounds once, so no update is too small. Two products whose results are added would round twice,
and lose the update of each output that is below half a unit of its last digit. `benchmarks/sampler_agreement.py`
measures both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from securecoderl_edge.models.int8 import Int8Linear, Int8Weight
from securecoderl_edge.models.packed_weight import packed, packed_linear


@dataclass(frozen=True)
class JoinedLinear:
    """Linear layers of ``in`` inputs with ``out`` outputs together.

    Attributes:
        weight: (out, in), or (out, in + R) if the LoRA updates are apart: R is the sum of their ranks. See `packed`.
        bias: (out).
        reduce: (R, in) the first factors of the LoRA updates that are apart.
    """

    weight: Tensor | Int8Weight
    bias: Tensor | None
    reduce: Tensor | None = None

    @classmethod
    def of(
        cls,
        parts: Sequence[tuple[Any, float]],
        norm: Tensor | None,
        dtype: torch.dtype,
        *,
        int8: bool,
        merge: bool,
        packs: bool = True,
    ) -> JoinedLinear:
        """Linear layers, each with a factor for its outputs.

        Args:
            norm: (in) factors of the inputs, those of the norm before; with int8 they must stay in the norm.
            merge: add the LoRA updates to the weights.
            packs: `product_of` will not be asked, so weights may be `packed`.
        """
        biases = [linear.bias.float() * factor for linear, factor in parts if linear.bias is not None]
        bias = torch.cat(biases).to(dtype).contiguous() if biases else None
        of_layer = merged_weight if merge else base_weight
        weight = torch.cat([of_layer(linear) * factor for linear, factor in parts])
        if norm is not None:
            weight *= norm
        if int8:
            return cls(Int8Weight.of(weight), bias)
        reduce = None
        if not merge and any(_is_adapted(linear) for linear, _ in parts):
            reduce, upper = _joined_factors(parts)
            if norm is not None:
                reduce *= norm
            weight, reduce = torch.cat([weight, upper], 1), reduce.to(dtype)
        joined = weight.to(dtype).contiguous()
        return cls(packed(joined) if packs else joined, bias, reduce)

    @property
    def nbytes(self) -> int:
        """Size in memory."""
        return sum(int(each.nbytes) for each in (self.weight, self.bias, self.reduce) if each is not None)

    def product_of(self, shape: tuple[int, ...], dtype: torch.dtype, write: Callable[[Tensor], object]) -> Tensor:
        """(..., out) outputs for inputs of ``shape`` (..., in), which ``write`` writes where the product reads them.

        On a GPU each copy is a kernel: inputs that are made or cast in their place, next to those of the factors that
        are apart, need none. A CPU takes longer to write to a part of each row.
        """
        weight, reduce = self.weight, self.reduce
        if isinstance(weight, Int8Weight):
            inputs = weight.codes.new_empty(shape, dtype=dtype)
            write(inputs)
            return weight.product(inputs, self.bias)
        inputs = weight.new_empty((*shape[:-1], weight.shape[1]))
        write(inputs[..., : shape[-1]])
        if reduce is not None:
            flat = inputs.flatten(0, -2)
            torch.mm(flat[:, : shape[-1]], reduce.T, out=flat[:, shape[-1] :])
        return functional.linear(inputs, weight, self.bias)

    def product(self, inputs: Tensor) -> Tensor:
        """(..., out) outputs for ``inputs`` (..., in)."""
        if isinstance(self.weight, Int8Weight):
            return self.weight.product(inputs, self.bias)
        if self.reduce is not None:
            inputs = torch.cat([inputs, functional.linear(inputs, self.reduce)], -1)
        return packed_linear(inputs, self.weight, self.bias)


@dataclass(frozen=True)
class SharedLinear:
    """As `JoinedLinear`, of `Int8Linear` layers in float32: it reads their weights, and has no copy of them.

    Attributes:
        weights, biases: of each layer.
        reduce, upper: (R, in) and (out, R) the factors of the LoRA updates.
    """

    weights: tuple[Int8Weight, ...]
    biases: tuple[Tensor | None, ...]
    reduce: Tensor
    upper: Tensor

    @classmethod
    def of(cls, parts: Sequence[tuple[Any, float]]) -> SharedLinear:
        """Linear layers, each with a factor for its outputs."""
        bases = [(_base(linear), factor) for linear, factor in parts]
        weights = tuple(Int8Weight(base.weight, base.scale * factor) for base, factor in bases)
        biases = tuple(None if base.bias is None else base.bias.float() * factor for base, factor in bases)
        return cls(weights, biases, *_joined_factors(parts))

    @property
    def nbytes(self) -> int:
        """Size in memory of what is its own."""
        return self.reduce.nbytes + self.upper.nbytes

    def product(self, inputs: Tensor) -> Tensor:
        """(..., out) outputs for ``inputs`` (..., in)."""
        parts = [weight.product(inputs, bias) for weight, bias in zip(self.weights, self.biases, strict=True)]
        output = torch.cat(parts, -1)
        return output.add_(functional.linear(functional.linear(inputs, self.reduce), self.upper))


def base_weight(linear: Any) -> Tensor:
    """(out, in) float32 weight of a linear layer without its LoRA update."""
    base = _base(linear)
    if isinstance(base, Int8Linear):
        return base.expanded(torch.float32)
    weight: Tensor = base.weight
    if weight.dtype == torch.int8:  # LLM.int8
        from peft.utils.integrations import dequantize_module_weight

        weight = dequantize_module_weight(base)
    return weight.float()


def merged_weight(linear: Any) -> Tensor:
    """(out, in) float32 weight of a linear layer with its active LoRA update, if any, added."""
    weight = base_weight(linear)
    if _is_adapted(linear):
        weight = weight + linear.get_delta_weight(linear.active_adapters[0]).float()
    return weight


def _base(linear: Any) -> Any:
    return linear.base_layer if _is_adapted(linear) else linear


def _is_adapted(linear: Any) -> bool:
    return hasattr(linear, "base_layer")


def _joined_factors(parts: Sequence[tuple[Any, float]]) -> tuple[Tensor, Tensor]:
    """The factors of the LoRA updates of layers, each with a factor for its outputs, as those of one layer."""
    factors = [_factors(linear) for linear, _ in parts]
    upper = torch.block_diag(*(each * factor for (_, each), (_, factor) in zip(factors, parts, strict=True)))
    return torch.cat([lower for lower, _ in factors]), upper


def _factors(linear: Any) -> tuple[Tensor, Tensor]:
    """A (r, in) and s B (out, r) of the active LoRA update, in float32; empty, with r = 0, where there is none."""
    if not _is_adapted(linear):
        like = linear.weight
        return like.new_empty((0, linear.in_features), dtype=torch.float32), like.new_empty(
            (linear.out_features, 0), dtype=torch.float32
        )
    name = linear.active_adapters[0]
    lower, upper = (each[name].weight.detach().float() for each in (linear.lora_A, linear.lora_B))
    return lower, upper * linear.scaling[name]
