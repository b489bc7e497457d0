"""Operations of a layer with frozen weights: what they compute, their gradients, and what they keep."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tiny_models import int8_of

pytest.importorskip("torch", reason="needs the train extra")

import torch
from torch import Tensor, nn
from torch.nn import functional

from securecoderl_edge.models import fused
from securecoderl_edge.models.fused import attend, gated, project, rms_norm, rotate, score_bias

GENERATOR = torch.Generator().manual_seed(3)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


def kept_bytes(function: Callable[[], Any]) -> int:
    """Bytes that autograd keeps of a computation, weights apart."""
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, nn.Parameter):
            seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = function()
    del result
    return sum(seen.values())


def test_gradients_are_those_of_finite_differences() -> None:
    heads, angles = random(2, 3, 4, 6).requires_grad_(), random(1, 1, 4, 3)
    assert torch.autograd.gradcheck(lambda x: rotate(x, angles.cos(), angles.sin()), heads)
    gate, up = random(5, 7).requires_grad_(), random(5, 7).requires_grad_()
    assert torch.autograd.gradcheck(gated, (gate, up, "silu"))


def test_rms_norm_is_that_of_torch_with_its_gradient() -> None:
    weight = random(16).float()
    ours, theirs = (random(3, 5, 16).float().requires_grad_() for _ in range(2))
    theirs.data.copy_(ours.data)
    slope = random(3, 5, 16).float()
    rms_norm(ours, weight, 1e-6, torch.float32).backward(slope)
    functional.rms_norm(theirs, (16,), weight, 1e-6).backward(slope)
    torch.testing.assert_close(ours.grad, theirs.grad)
    expected = functional.rms_norm(theirs, (16,), weight, 1e-6)
    torch.testing.assert_close(rms_norm(ours, weight, 1e-6, torch.float32), expected)
    assert rms_norm(ours, weight, 1e-6, torch.float16).dtype == torch.float16


def test_swiglu_and_rotation_are_what_their_papers_say() -> None:
    gate, up = random(4, 6), random(4, 6)
    torch.testing.assert_close(gated(gate, up, "silu"), gate * gate.sigmoid() * up)
    heads, angle = random(1, 1, 1, 2), torch.tensor([[[[0.3]]]], dtype=torch.float64)
    turned = torch.view_as_complex(heads) * torch.polar(torch.ones_like(angle[..., 0]), angle[..., 0])
    torch.testing.assert_close(rotate(heads, angle.cos(), angle.sin()), torch.view_as_real(turned))


@pytest.fixture
def layers() -> list[Any]:
    """Layers as peft makes them: with an adapter, without, int8 with an adapter and a bias, with an adapter again."""
    from peft import LoraConfig, get_peft_model

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 6, bias=False)
            self.plain = nn.Linear(8, 5, bias=False)
            self.quantized = int8_of(nn.Linear(8, 7))
            self.last = nn.Linear(8, 7, bias=False)
            self.config: dict[str, Any] = {}

    torch.manual_seed(1)
    model = get_peft_model(Model(), LoraConfig(r=2, lora_alpha=6, target_modules=["first", "quantized", "last"]))
    inner = model.base_model.model
    for parameter in inner.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter)
    return [inner.first, inner.plain, inner.quantized, inner.last]


def test_projections_and_their_gradients_are_those_of_peft(layers: list[Any]) -> None:
    inputs = torch.randn(2, 3, 8, generator=GENERATOR, requires_grad=True)
    trained = [p for layer in layers for p in layer.parameters() if p.requires_grad]
    ours, theirs = project(inputs, layers, torch.float32), [layer(inputs) for layer in layers]
    slopes = [torch.randn(output.shape, generator=GENERATOR) for output in theirs]
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected)
    found = torch.autograd.grad(ours, [inputs, *trained], slopes)
    for mine, expected in zip(found, torch.autograd.grad(theirs, [inputs, *trained], slopes), strict=True):
        torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("activation", ["silu", "gelu_pytorch_tanh"])
@pytest.mark.parametrize("which", [[0, 1, 2, 3], [1]])
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_layers_read_gated_inputs(
    layers: list[Any], which: list[int], activation: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "_BLOCK_BYTES", rows * 8 * 4)
    layers = [layers[number] for number in which]
    gate, up = (torch.randn(2, 3, 8, generator=GENERATOR, requires_grad=True) for _ in range(2))
    trained = [p for layer in layers for p in layer.parameters() if p.requires_grad]
    ours = project(up, layers, torch.float32, gate, activation)
    function = functional.silu if activation == "silu" else partial(functional.gelu, approximate="tanh")
    theirs = [layer(function(gate) * up) for layer in layers]
    slopes = [torch.randn(output.shape, generator=GENERATOR) for output in theirs]
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected)
    found = torch.autograd.grad(ours, [gate, up, *trained], slopes)
    for mine, expected in zip(found, torch.autograd.grad(theirs, [gate, up, *trained], slopes), strict=True):
        torch.testing.assert_close(mine, expected)


def test_gated_inputs_are_computed_again_instead_of_kept(layers: list[Any]) -> None:
    gate, up = (torch.randn(100, 8, requires_grad=True) for _ in range(2))
    together = kept_bytes(lambda: project(up, layers[:1], torch.float32, gate, "silu"))
    assert together == gate.nbytes + up.nbytes + 100 * 2 * 4  # and x A^T


def test_only_the_inputs_of_adapters_are_kept(layers: list[Any]) -> None:
    inputs = torch.randn(100, 8, generator=GENERATOR, requires_grad=True)
    assert kept_bytes(lambda: project(inputs, layers[1:2], torch.float32)) == 0
    with_adapter = kept_bytes(lambda: project(inputs, layers[:1], torch.float32))
    assert with_adapter == inputs.nbytes + 100 * 2 * 4  # and x A^T


def test_activations_are_computed_again_instead_of_kept() -> None:
    gate, up = (torch.randn(100, 8, requires_grad=True) for _ in range(2))
    assert kept_bytes(lambda: gated(gate * 1, up * 1, "silu")) < kept_bytes(
        lambda: functional.silu(gate * 1) * (up * 1)
    )


def test_layers_of_another_kind_compute_themselves() -> None:
    class Doubling(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return 2 * super().forward(inputs)

    layer, inputs, gate = Doubling(4, 4), torch.randn(2, 4), torch.randn(2, 4)
    torch.testing.assert_close(project(inputs, [layer], torch.float32)[0], layer(inputs))
    expected = layer(functional.silu(gate) * inputs)
    torch.testing.assert_close(project(inputs, [layer], torch.float32, gate, "silu")[0], expected)


@pytest.mark.parametrize("matrix_units", [False, True])
@pytest.mark.parametrize("at_a_time", [1, 1 << 20])
@pytest.mark.parametrize("rows_of_bias", [1, 3])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_attention_and_its_gradients_are_those_of_torch(
    dtype: torch.dtype,
    tolerance: float,
    rows_of_bias: int,
    at_a_time: int,
    matrix_units: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fused, "_SCORE_BYTES", at_a_time)
    monkeypatch.setattr(fused, "cpu_has_matrix_units", lambda: matrix_units)
    generator = torch.Generator().manual_seed(9)
    query = torch.randn(3, 6, 5, 8, generator=generator).to(dtype).requires_grad_()
    keys, values = (torch.randn(3, 2, 7, 8, generator=generator).to(dtype).requires_grad_() for _ in range(2))
    visible = torch.rand(rows_of_bias, 1, 5, 7, generator=generator) > 0.4
    visible[..., 0] = True
    slope = torch.randn(3, 6, 5, 8, generator=generator).to(dtype)
    ours = fused._Attend.apply(query, keys, values, score_bias(visible, dtype), 0.3)  # type: ignore[no-untyped-call]
    wide = [each.detach().float().requires_grad_() for each in (query, keys, values)]
    torchs = torch.nn.functional.scaled_dot_product_attention(*wide, attn_mask=visible, scale=0.3, enable_gqa=True)
    torch.testing.assert_close(ours.float(), torchs, atol=tolerance, rtol=tolerance)
    found = torch.autograd.grad(ours, (query, keys, values), slope)
    for own, expected in zip(found, torch.autograd.grad(torchs, wide, slope.float()), strict=True):
        torch.testing.assert_close(own.float(), expected, atol=tolerance, rtol=tolerance)


def test_attention_without_a_bias_is_causal_with_its_gradient() -> None:
    generator = torch.Generator().manual_seed(10)
    tensors = [torch.randn(2, heads, 6, 8, generator=generator).bfloat16() for heads in (4, 2, 2)]
    causal = score_bias(torch.ones(1, 1, 6, 6, dtype=torch.bool).tril(), torch.bfloat16)
    results = []
    for bias in (None, causal):
        inputs = [each.clone().requires_grad_() for each in tensors]
        output = attend(*inputs, bias, 0.3)
        results.append([output, *torch.autograd.grad(output.float().square().sum(), inputs)])
    for without, given in zip(*results, strict=True):
        assert torch.equal(without, given)
