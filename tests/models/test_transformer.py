"""The forward pass that training differentiates, against Hugging Face's, in every family, format and rope."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from tiny_models import build_model
from torch import Tensor

from securecoderl_edge.models.adapters import POLICY_ADAPTER, LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.transformer import Packing, hidden_states
from securecoderl_edge.training.update.sequences import completion_log_probs, make_batch

ROPES = {
    "plain": {"rope_type": "default", "rope_theta": 10000.0},
    "linear": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100000.0},
    "llama3": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64, "rope_theta": 10000.0,
    },
}  # fmt: skip
EVERY_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PAIRS = [([5, 6, 7], [8, 9, 1]), ([4], [3, 2, 2, 1]), ([5, 6, 7], [3, 3, 1])]


def adapted(
    folder: Path,
    precision: str = "fp32",
    targets: tuple[str, ...] = EVERY_LINEAR,
    products: torch.dtype | None = None,
) -> Any:
    base = load_base(folder, precision, products=products)
    model = add_adapters(base, LoraSettings(rank=4, targets=targets), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in adapter_parameters(model, POLICY_ADAPTER).values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def gradients(model: Any, loss: Tensor) -> Tensor:
    found = torch.autograd.grad(loss, list(adapter_parameters(model, POLICY_ADAPTER).values()))
    return torch.cat([gradient.flatten() for gradient in found])


@pytest.mark.parametrize("rope", ROPES)
@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_hidden_states_are_those_of_hugging_face(family: str, rope: str, tmp_path: Path) -> None:
    folder = build_model(tmp_path / "model", family, num_key_value_heads=2, rope_parameters=ROPES[rope])
    model = adapted(folder)
    tokens = torch.randint(2, 400, (2, 150), generator=torch.Generator().manual_seed(1))
    expected = model.get_base_model().model(input_ids=tokens).last_hidden_state
    actual, kept = hidden_states(model, tokens)
    torch.testing.assert_close(actual, expected.flatten(0, 1), atol=1e-4, rtol=1e-4)
    assert [keys.shape for keys, _ in kept] == [(2, 2, 150, 16)] * 2
    last, _ = hidden_states(model, tokens, only=torch.tensor([149, 17]))
    torch.testing.assert_close(last, actual[[149, 167]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("only", [None, [29, 0, 11]])
def test_padding_is_neither_computed_nor_seen(tiny_model: Path, only: list[int] | None) -> None:
    model = adapted(tiny_model)
    tokens = torch.randint(2, 400, (3, 30), generator=torch.Generator().manual_seed(1))
    lengths = [30, 1, 12]
    packing = Packing.of(lengths, tokens)
    assert packing.index is not None
    assert packing.index.tolist() == [*range(30), 30, *range(60, 72)]
    wanted = torch.tensor(only) if only else None
    whole, _ = hidden_states(model, tokens, only=wanted)
    for padding in (0, 7):
        padded = tokens.flatten().index_fill(0, torch.tensor([31, 59, 72, 89]), padding).view(3, 30)
        found, kept = hidden_states(model, padded, packing=packing, only=wanted)
        assert found.shape == ((3 if only else sum(lengths)), whole.shape[1])
        torch.testing.assert_close(found, whole if only else whole[packing.index], atol=1e-5, rtol=1e-5)
        assert not kept[0][0][1, :, 1:].any()


@pytest.mark.parametrize("precision", ["fp32", "int8", "bf16"])
def test_computing_layers_again_changes_neither_log_probs_nor_gradients(tiny_qwen: Path, precision: str) -> None:
    model = adapted(tiny_qwen, precision)
    batch = make_batch(PAIRS, padding=0, device="cpu")
    found = []
    for recompute in (False, True):
        compute = Compute("cpu", precision, torch.float32, recompute=recompute)
        log_probs, _ = completion_log_probs(model, batch, 0.7, compute)
        found.append((log_probs.detach(), gradients(model, log_probs.sum())))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def held_bytes(model: Any, tokens: Tensor, recompute: bool) -> int:
    """Bytes of tensors that are alive because of a forward pass."""

    def alive() -> int:
        gc.collect()
        storages = {
            each.untyped_storage().data_ptr(): each.untyped_storage().nbytes()
            for each in gc.get_objects()
            if issubclass(type(each), Tensor)  # asking what it is wakes deprecated things
        }
        return sum(storages.values())

    before = alive()
    # What passes through hooks of Python's is seen by its collector for as long as it is kept.
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor):
        hidden, _ = hidden_states(model, tokens, recompute=recompute)
    total = alive() - before
    del hidden
    return total


def test_computing_layers_again_frees_what_they_would_keep(tmp_path: Path) -> None:
    folder = build_model(tmp_path / "deep", num_hidden_layers=6, max_position_embeddings=1024)
    model = adapted(folder, "int8", ("q_proj", "v_proj"))
    tokens = torch.randint(2, 400, (1, 1000), generator=torch.Generator().manual_seed(1))
    plain, recomputed = held_bytes(model, tokens, False), held_bytes(model, tokens, True)
    assert recomputed < 0.4 * plain


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("products", [torch.float32, torch.float16, torch.bfloat16])
def test_the_ratio_of_the_policy_to_itself_is_exactly_one_in_every_format(
    tiny_model: Path, precision: str, products: torch.dtype
) -> None:
    model = adapted(tiny_model, precision)
    compute = Compute("cpu", precision, products, recompute=True)
    batch = make_batch(PAIRS, padding=0, device="cpu")
    with torch.no_grad():
        old, _ = completion_log_probs(model, batch, 0.7, compute)
    new, _ = completion_log_probs(model, batch, 0.7, compute)
    assert torch.equal((new - old).exp(), torch.ones_like(old))
    assert new.dtype == torch.float32
    found = gradients(model, new.sum())
    assert found.dtype == torch.float32
    assert bool(found.isfinite().all())


def test_linear_layers_that_are_kept_in_bfloat16_change_no_log_prob_and_no_gradient(tiny_model: Path) -> None:
    batch, found = make_batch(PAIRS, padding=0, device="cpu"), []
    first = adapter_parameters(adapted(tiny_model), POLICY_ADAPTER)
    for kept in (None, torch.bfloat16):
        model = adapted(tiny_model, products=kept)
        with torch.no_grad():
            for name, parameter in adapter_parameters(model, POLICY_ADAPTER).items():
                parameter.copy_(first[name])  # peft draws them in the dtype of the layer
        log_probs, _ = completion_log_probs(model, batch, 0.7, Compute("cpu", "fp32", torch.bfloat16))
        found.append((log_probs, gradients(model, log_probs.sum())))
    dtypes = {name.rsplit(".", 2)[1]: parameter.dtype for name, parameter in model.named_parameters()}
    assert {dtypes[name] for name in ("embed_tokens", "norm", "input_layernorm")} == {torch.float32}
    assert dtypes["base_layer"] == torch.bfloat16
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


@pytest.mark.parametrize("products", [torch.float32, torch.float16])
def test_gradients_of_an_int8_base_are_those_of_the_float_base(tmp_path: Path, products: torch.dtype) -> None:
    """Cosine above 0.999, length within 1 %, on weights of the usual size and a model that is not tiny."""
    folder = build_model(
        tmp_path / "model", hidden_size=256, intermediate_size=688, num_hidden_layers=4, initializer_range=0.02
    )
    pairs = [(list(range(5, 60)), list(range(60, 90))), (list(range(7, 40)), list(range(90, 160)))]
    batch = make_batch(pairs, padding=0, device="cpu")
    found = []
    for precision, dtype in (("fp32", torch.float32), ("int8", products)):
        model = add_adapters(load_base(folder, precision), LoraSettings(), seed=1)
        generator = torch.Generator().manual_seed(2)
        with torch.no_grad():
            for name, parameter in adapter_parameters(model, POLICY_ADAPTER).items():
                if "lora_B" in name:  # zero before training: half of all gradients would be
                    parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.01)
        log_probs, _ = completion_log_probs(model, batch, 1.0, Compute("cpu", precision, dtype))
        found.append(gradients(model, log_probs.sum()))
    cosine = torch.cosine_similarity(found[0], found[1], dim=0)
    assert float(cosine) > 0.999
    assert float(found[1].norm() / found[0].norm()) == pytest.approx(1, abs=0.01)
