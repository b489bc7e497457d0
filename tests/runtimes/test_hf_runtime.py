"""Models that torch computes: the format of their weights, their memory, and what they answer in it."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from once import Once
from tiny_models import build_adapter, build_model

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models import device
from securecoderl_edge.models.int8 import Int8Linear, Int8Weight
from securecoderl_edge.runtimes import hf
from securecoderl_edge.runtimes.hf import HfRuntime
from securecoderl_edge.runtimes.opening import RuntimeSettings, open_runtime, precision_of
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.runtimes.spec import resolve_model


@pytest.fixture(scope="module")
def wide(once: Once) -> Path:
    """Most of its weights are in its layers, as in real models."""
    sizes = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4, "initializer_range": 0.05}
    return once("wide", lambda folder: build_model(folder, **sizes))


def alive() -> dict[int, int]:
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), torch.Tensor)]
    found = {id(each): each.nbytes for each in tensors if each.is_mkldnn}  # packed weights have no storage to ask
    plain = (each.untyped_storage() for each in tensors if not each.is_mkldnn)
    return found | {storage.data_ptr(): storage.nbytes() for storage in plain}


@pytest.mark.parametrize(
    ("precision", "ratio"), [pytest.param("fp32", 1.0, marks=pytest.mark.slow), ("bf16", 0.5), ("int8", 0.25)]
)
def test_the_weights_are_in_memory_once_in_their_format(precision: str, ratio: float, wide: Path) -> None:
    weights = (wide / "model.safetensors").stat().st_size
    before = alive()
    runtime = HfRuntime(str(wide), threads=1, base_precision=precision)
    runtime.generate(["print"], 1, Sampling(0.0, 2))
    held = sum(size for place, size in alive().items() if place not in before)
    # Beside the layers: embedding, norms and tables of angles.
    assert ratio * weights * 0.8 < held < ratio * weights * 1.1 + 1.2e6
    runtime.close()


@pytest.mark.parametrize(("precision", "most"), [("bf16", 0.1), ("int8", 0.1)])
def test_formats_with_fewer_bits_give_nearly_the_same_probabilities(precision: str, most: float, wide: Path) -> None:
    prompts = ["n = int(input())\n", "for i in range(10):"]
    exact = HfRuntime(str(wide), threads=1).generate(prompts, 1, Sampling(0.0, 1))
    rounded = HfRuntime(str(wide), threads=1, base_precision=precision).generate(prompts, 1, Sampling(0.0, 1))
    for (one,), (other,) in zip(exact, rounded, strict=True):
        assert one.logprobs[0] == pytest.approx(other.logprobs[0], abs=most)
        assert one.logprobs != other.logprobs


def test_an_int8_weight_multiplies_as_an_int8_layer_does() -> None:
    generator = torch.Generator().manual_seed(1)
    linear = Int8Linear(40, 2500, bias=True)
    weight, inputs = torch.randn(2500, 40, generator=generator), torch.randn(3, 2, 40, generator=generator)
    linear.quantize(weight)
    linear.bias = torch.nn.Parameter(torch.randn(2500, generator=generator), requires_grad=False)
    torch.testing.assert_close(Int8Weight.of(weight).product(inputs, linear.bias), linear(inputs))


def test_an_int8_weight_multiplies_in_float16_what_its_codes_would_overflow() -> None:
    linear = Int8Linear(512, 2500, bias=False)
    weight, inputs = torch.full((2500, 512), 0.02), torch.full((1, 512), 24.0, dtype=torch.float16)
    linear.quantize(weight)
    torch.testing.assert_close(Int8Weight.of(weight).product(inputs, None), linear(inputs))


def test_auto_means_bf16_only_where_it_was_measured_to_be_faster(wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = resolve_model(str(wide))
    for is_faster, expected in ((True, "bf16"), (False, "fp32")):
        monkeypatch.setattr(device, "bf16_is_faster", lambda *_, answer=is_faster: answer)
        assert precision_of(spec, "auto") == expected
        assert open_runtime(spec, RuntimeSettings("cpu", threads=1)).base_precision == expected  # type: ignore[attr-defined]
    assert precision_of(spec, "int8") == "int8"
    with pytest.raises(UsageError, match="unknown base precision 'fp8'; choose from auto, fp32, fp16, bf16, int8"):
        open_runtime(spec, RuntimeSettings("cpu", base_precision="fp8"))


def test_a_cpu_without_bfloat16_is_not_asked_to_emulate_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cpu_has_bf16", lambda: False)
    monkeypatch.setattr(torch, "ones", None)  # nothing is measured
    device.bf16_is_faster.cache_clear()
    try:
        assert not device.bf16_is_faster(64, 128)
    finally:
        device.bf16_is_faster.cache_clear()


def test_a_model_without_room_is_refused_before_it_is_loaded(wide: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hf, "available_memory_bytes", lambda: 15_000_000)
    monkeypatch.setattr(hf, "load_base", None)
    with pytest.raises(SceError, match=r"GiB of memory in fp32, .* are free\. Use --base-precision bf16 or .* int8"):
        HfRuntime(str(wide))
    monkeypatch.undo()
    monkeypatch.setattr(hf, "available_memory_bytes", lambda: 15_000_000)
    HfRuntime(str(wide), threads=1, base_precision="int8").close()


def test_an_adapter_of_a_layer_that_would_not_get_it_is_refused(tmp_path: Path) -> None:
    base = build_model(tmp_path / "base", tie_word_embeddings=False)
    adapter = build_adapter(tmp_path / "adapter", base, target_modules=["q_proj", "lm_head"])
    with pytest.raises(UsageError, match="an adapter of lm_head is not supported"):
        HfRuntime(str(base), adapter, threads=1)
