"""Decoding's linear layers: equal to the layers they join, and of no update too small for the dtype."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from torch import Tensor

from securecoderl_edge.models import int8, packed_weight
from securecoderl_edge.models.adapters import LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.fused import project
from securecoderl_edge.models.joined_linear import JoinedLinear, SharedLinear
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.running_batch import RunningBatch
from securecoderl_edge.models.transformer import hidden_states, output_weight

ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
HALVES = [torch.bfloat16, torch.float16]
PROMPT, COMPLETION = [5, 6, 7, 8, 9, 10], [11, 12, 13, 14, 15, 16, 17, 18, 19, 20]


def adapted(folder: Path, targets: tuple[str, ...], size: float, precision: str = "fp32") -> Any:
    """A model whose policy adapter is plus or minus ``size`` in every entry of its second factors."""
    model = add_adapters(load_base(folder, precision), LoraSettings(rank=4, targets=targets), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in adapter_parameters(model).items():
            if "lora_B" in name:
                parameter.copy_(size * torch.randn(parameter.shape, generator=generator).sign())
    return model


def layers_of(model: Any) -> list[Any]:
    attention = model.get_base_model().model.layers[0].self_attn
    return [attention.q_proj, attention.k_proj, attention.v_proj]


@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), ("k_proj",), ("q_proj", "k_proj", "v_proj"), ("o_proj",)])
@pytest.mark.parametrize("merge", [True, False])
def test_joined_layers_compute_what_each_computes_alone(tiny_qwen: Path, targets: tuple[str, ...], merge: bool) -> None:
    layers = layers_of(adapted(tiny_qwen, targets, 0.3))
    width = layers[0].in_features
    inputs, norm = torch.randn(3, 5, width), torch.rand(width) + 0.5
    joined = JoinedLinear.of(
        [(layer, factor) for layer, factor in zip(layers, (0.25, 1.0, 2.0), strict=True)],
        norm, torch.float32, int8=False, merge=merge,
    )  # fmt: skip
    assert (joined.reduce is None) == (merge or targets == ("o_proj",))
    with torch.no_grad():
        alone = [layer(inputs * norm) * factor for layer, factor in zip(layers, (0.25, 1.0, 2.0), strict=True)]
    torch.testing.assert_close(joined.product(inputs), torch.cat(alone, -1), atol=1e-5, rtol=1e-5)


def moved(compute: Any, model: Any, inputs: Tensor) -> Tensor:
    """What the adapter changes in the outputs of ``compute``."""
    with torch.no_grad():
        after = compute(model, inputs).float()
        for name, parameter in adapter_parameters(model).items():
            if "lora_B" in name:
                parameter.zero_()
        return after - compute(model, inputs).float()


def share_of(found: Tensor, true: Tensor) -> float:
    """How much of the ``true`` change is in the one that was found."""
    return float((found * true).sum() / (true * true).sum())


@pytest.mark.parametrize("dtype", HALVES)
def test_an_update_below_the_last_digit_of_every_weight_and_output_is_realised_by_sampler_and_learner(
    tiny_qwen: Path, dtype: torch.dtype
) -> None:
    size = 2e-5
    inputs = torch.randn(4000, layers_of(adapted(tiny_qwen, ALL, size))[0].in_features).to(dtype)

    def by_sampler(merge: bool) -> Any:
        def compute(model: Any, values: Tensor) -> Tensor:
            # Weights that the dtype holds exactly, as those of a base in 16 bits.
            for layer in layers_of(model):
                layer.base_layer.weight.data = layer.base_layer.weight.to(dtype).float()
            parts = [(layer, 1.0) for layer in layers_of(model)]
            kind = torch.float32 if values.dtype == torch.float32 else dtype
            return JoinedLinear.of(parts, None, kind, int8=False, merge=merge).product(values)

        return compute

    def by_learner(model: Any, values: Tensor) -> Tensor:
        return torch.cat(project(values, layers_of(model), dtype), -1)

    true = moved(by_sampler(True), adapted(tiny_qwen, ALL, size), inputs.float())
    shares = {
        name: share_of(moved(compute, adapted(tiny_qwen, ALL, size), inputs), true)
        for name, compute in (("merged", by_sampler(True)), ("apart", by_sampler(False)), ("learner", by_learner))
    }
    assert shares["apart"] == pytest.approx(1, abs=0.15)
    assert shares["learner"] == pytest.approx(1, abs=0.15)
    assert abs(shares["merged"] - 1) > 0.3 or dtype == torch.float16


def by_decoder(model: Any, dtype: torch.dtype) -> Tensor:
    """(rows x T, V) log-probabilities along a completion, token by token with a KV cache."""
    decoder = Decoder(model, dtype)
    decoder.refresh()
    batch, seen = RunningBatch(decoder), []
    with torch.no_grad():
        batch.admit([0], [PROMPT])
        for token in COMPLETION:
            seen.append(batch.logits.float().log_softmax(-1))
            batch.step(torch.tensor([token]))
    return torch.cat(seen)


def by_learner(model: Any, dtype: torch.dtype) -> Tensor:
    """The same by training's forward pass, which never merges."""
    with torch.no_grad():
        states, _ = hidden_states(model, torch.tensor([[*PROMPT, *COMPLETION]]), dtype=dtype)
        return (states[len(PROMPT) - 1 : -1] @ output_weight(model).float().T).log_softmax(-1)


@pytest.mark.parametrize(
    ("dtype", "precision"), [(torch.bfloat16, "bf16"), (torch.bfloat16, "fp32"), (torch.float16, "fp32")]
)
@pytest.mark.parametrize("size", [2e-5, 2e-3, 0.1])
def test_sampler_and_learner_are_as_far_from_float32_with_an_adapter_as_without(
    tiny_qwen: Path, dtype: torch.dtype, precision: str, size: float
) -> None:
    def error(size: float, compute: Any) -> float:
        model = adapted(tiny_qwen, ALL, size, precision)
        return float((compute(model, dtype) - by_learner(model, torch.float32)).abs().mean())

    for compute in (by_decoder, by_learner):
        floor = error(0.0, compute)
        assert 0 < error(size, compute) < 1.5 * floor


def test_in_float32_the_sampler_with_merged_weights_is_the_learner(tiny_qwen: Path) -> None:
    model = adapted(tiny_qwen, ALL, 2e-3)
    torch.testing.assert_close(by_decoder(model, torch.float32), by_learner(model, torch.float32), atol=1e-5, rtol=1e-5)


def test_the_sampler_with_packed_weights_is_the_learner(tiny_qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_weight, "_LARGE_BYTES", 0)
    model = adapted(tiny_qwen, ALL, 2e-3)
    torch.testing.assert_close(by_decoder(model, torch.float32), by_learner(model, torch.float32), atol=1e-5, rtol=1e-5)
    decoder = Decoder(model, torch.float32)
    decoder.refresh()
    weight = decoder.layers[0].down.weight
    assert isinstance(weight, Tensor)
    assert weight.is_mkldnn == torch.backends.mkldnn.is_available()


def test_the_output_layer_is_not_kept_twice(tiny_qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_weight, "_LARGE_BYTES", 0)
    model = adapted(tiny_qwen, ("q_proj",), 2e-3)
    decoder = Decoder(model, torch.float32)
    decoder.refresh()
    output = model.get_output_embeddings().weight
    assert decoder._head.data_ptr() == output.data_ptr()
    layers = sum(layer.nbytes for layer in decoder.layers)
    assert decoder.weight_bytes == layers + output.nbytes


@pytest.mark.parametrize("targets", [ALL, ("q_proj", "down_proj")])
def test_the_sampler_of_a_base_in_int8_is_the_learner_and_has_no_copy_of_it(
    tiny_qwen: Path, targets: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(int8, "_PRODUCT_BYTES", 3 * 4 * 32)
    model = adapted(tiny_qwen, targets, 0.1, "int8")
    torch.testing.assert_close(by_decoder(model, torch.float32), by_learner(model, torch.float32), atol=1e-5, rtol=1e-5)
    decoder = Decoder(model, torch.float32)
    decoder.refresh()
    down, base = decoder.layers[0].down, model.get_base_model().model.layers[0].mlp.down_proj
    assert isinstance(down, SharedLinear)
    assert down.weights[0].codes.data_ptr() == base.base_layer.weight.data_ptr()
    assert sum(layer.nbytes for layer in decoder.layers) < sum(
        part.weight.nbytes for part in model.modules() if isinstance(part, int8.Int8Linear)
    )
