"""Weights in oneDNN's order: the products are those of torch, and nothing is kept twice."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from torch.nn import functional

from securecoderl_edge.models.packed_weight import packed, packed_linear

LARGE = (2311, 517)  # no multiples of a block; more than 4 MiB in float32


def is_packable(dtype: torch.dtype) -> bool:
    if not torch.backends.mkldnn.is_available():
        return False
    return dtype == torch.float32 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [(1,), (8,), (33,), (2, 3), (300,)])
@pytest.mark.parametrize("has_bias", [False, True])
def test_a_packed_weight_multiplies_as_the_weight_does(
    dtype: torch.dtype, rows: tuple[int, ...], has_bias: bool
) -> None:
    weight, bias = torch.randn(LARGE).to(dtype), torch.randn(LARGE[0]).to(dtype) if has_bias else None
    wide = torch.randn(*rows, 2 * LARGE[1]).to(dtype)
    inputs = wide[..., : LARGE[1]]  # a part of each row
    exact = functional.linear(inputs.double(), weight.double(), None if bias is None else bias.double())
    near = 1e-4 if dtype == torch.float32 else 0.3  # half a unit of the last of 8 bits, of numbers up to 100
    order = packed(weight)
    assert order.is_mkldnn == is_packable(dtype)
    assert order.nbytes < 1.1 * weight.nbytes
    for each in (order, weight):
        found = packed_linear(inputs, each, bias)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), exact, atol=near, rtol=0.01 if near > 0.1 else 1e-5)


def test_small_weights_and_weights_in_float16_stay_as_they_are() -> None:
    for weight in (torch.randn(64, 32), torch.randn(LARGE).half()):
        assert packed(weight) is weight
    inputs = torch.randn(3, 32)
    small = torch.randn(64, 32)
    assert torch.equal(packed_linear(inputs, small), functional.linear(inputs, small))


def test_a_number_that_is_not_finite_is_not_lost() -> None:
    weight = torch.randn(LARGE)
    weight[7, 5] = torch.nan
    found = packed_linear(torch.randn(4, LARGE[1]), packed(weight))
    assert bool(found[:, 7].isnan().all())
    assert bool(found[:, :7].isfinite().all())
