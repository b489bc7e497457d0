"""Sampling as a GPU would do it, on the pretend device: the same completions, one read a token, nothing on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from decoded import PROMPTS, served
from once import Once
from pretend_device import NAME, BrokenRule, PretendTensor, Watch, pretend_device
from tiny_families import FAMILIES, build_family

from securecoderl_edge.models import decoder as decoders
from securecoderl_edge.models import sampling
from securecoderl_edge.models.adapters import LoraSettings, add_adapters
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.fused import score_bias
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.sampling import Sampler, TokenCompletion, sample
from securecoderl_edge.models.sizes import CACHE_GROWTH

# More tokens than a cache grows by; more than the window of the families that have one.
LENGTH = CACHE_GROWTH + 6
DRAW, PREFILL = "models/sampling.py:PartialCompletions.draw", "models/sampling.py:_prefill"


def adapted(folder: Path, device: str, precision: str = "fp32", dtype: torch.dtype = torch.float32) -> Any:
    """A model whose policy adapter does something."""
    model = add_adapters(load_base(folder, precision, device, dtype), LoraSettings(rank=4), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B.default" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return model


def sampler(length: int = LENGTH, ends: frozenset[int] = frozenset()) -> Sampler:
    return Sampler(0.8, length, ends, torch.rand(6, length, generator=torch.Generator().manual_seed(4)))


def drawn(decoder: Decoder, how: Sampler, parallel: int | None = None) -> list[TokenCompletion]:
    return sample(decoder, PROMPTS, 2, how, parallel)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_samples_on_a_device_what_it_samples_on_the_cpu(family: str, once: Once) -> None:
    """With rows that end early, rows that take their places, a cache that grows."""
    folder = once(f"family-{family}", lambda folder: build_family(folder, family))
    unended = drawn(Decoder(adapted(folder, "cpu"), torch.float32), sampler())
    how = replace(sampler(), end_tokens=frozenset({unended[0].token_ids[3], unended[3].token_ids[9]}))
    here = drawn(Decoder(adapted(folder, "cpu"), torch.float32), how, parallel=3)
    with pretend_device():
        there = drawn(Decoder(adapted(folder, NAME), torch.float32), how, parallel=3)
    assert len({len(done.token_ids) for done in here}) > 1
    assert [done.token_ids for done in there] == [done.token_ids for done in here]
    for one, other in zip(there, here, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-3)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16), ("int8", torch.float16)]
)
@pytest.mark.parametrize("int8_decoder", [False, True])
def test_products_in_16_bits_multiply_one_dtype(
    tiny_qwen: Path, precision: str, dtype: torch.dtype, int8_decoder: bool
) -> None:
    with pretend_device():
        done = drawn(Decoder(adapted(tiny_qwen, NAME, precision, dtype), dtype, int8=int8_decoder), sampler())
    assert {len(each.token_ids) for each in done} == {LENGTH}


def watched(folder: Path, how: Sampler, parallel: int | None = None) -> Watch:
    with pretend_device() as watch:
        decoder = Decoder(adapted(folder, NAME), torch.float32)
        decoder.refresh()
        watch.reads.clear()
        watch.uploads.clear()
        watch.launches = 0
        drawn(decoder, how, parallel)
    return watch


def test_a_token_step_reads_the_device_once_and_copies_to_it_once(tiny_qwen: Path) -> None:
    few, many = (watched(tiny_qwen, sampler(length)) for length in (4, 14))
    assert {place: many.reads[place] - few.reads[place] for place in many.reads} == {DRAW: 10, PREFILL: 0}
    assert {place: count - few.uploads[place] for place, count in many.uploads.items() if count > 3} == {DRAW: 10}


def test_a_token_step_takes_as_many_operations_whatever_the_number_of_sequences(tiny_qwen: Path) -> None:
    def operations(samples: int, length: int) -> int:
        how = replace(sampler(length), uniforms=torch.rand(3 * samples, length))
        with pretend_device() as watch:
            decoder = Decoder(adapted(tiny_qwen, NAME), torch.float32)
            decoder.refresh()
            before = watch.launches
            sample(decoder, PROMPTS, samples, how)
        return watch.launches - before

    assert operations(1, 14) - operations(1, 4) == operations(8, 14) - operations(8, 4)


def test_refilling_and_dropping_rows_read_nothing_but_the_prompts_time(tiny_qwen: Path) -> None:
    unended = drawn(Decoder(adapted(tiny_qwen, "cpu"), torch.float32), sampler())
    ends = frozenset({unended[0].token_ids[3], unended[3].token_ids[9]})
    watch = watched(tiny_qwen, sampler(ends=ends), parallel=3)
    assert watch.reads.keys() == {DRAW, PREFILL}
    assert watch.reads[PREFILL] > 1
    assert watch.reads[DRAW] <= 2 * LENGTH  # six completions, three at a time


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_a_loaded_model_is_on_the_device_as_a_whole(tiny_qwen: Path, precision: str) -> None:
    with pretend_device() as watch:
        model = adapted(tiny_qwen, NAME, precision, torch.float16)
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        decoder = Decoder(model, torch.float16)
        decoder.refresh()
        held = [
            tensor for layer in decoder.layers for tensor in vars(layer).values() if isinstance(tensor, torch.Tensor)
        ]
    assert [name for name, tensor in tensors.items() if not isinstance(tensor, PretendTensor)] == []
    assert held
    assert all(isinstance(tensor, PretendTensor) for tensor in held)
    # Only float16 has a range to look at; what int8 leaves unquantized is float16 here.
    assert bool(watch.reads) == (precision in ("fp16", "int8"))


# Faults in the code that runs for each token. On a CPU every one of them goes unseen.


def test_a_mask_on_the_cpu_is_found(tiny_qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets_the_device(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(visible.shape, dtype=dtype)

    monkeypatch.setattr(sampling, "score_bias", forgets_the_device)
    with pytest.raises(BrokenRule, match=r"models/fused.py:torchs_attention: .* operands on the device and on the CPU"):
        watched(tiny_qwen, sampler(2))
    assert score_bias is not sampling.score_bias


def test_a_number_read_in_every_layer_is_found(tiny_qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looks(gate: torch.Tensor, activation: str, real: Any = decoders.activated) -> torch.Tensor:
        return real(gate, activation) if gate.isfinite().all().item() else gate

    monkeypatch.setattr(decoders, "activated", looks)
    with pytest.raises(BrokenRule, match=r"models/decoder.py:Decoder.forward: .* reads the device"):
        watched(tiny_qwen, sampler(2))


def test_a_second_read_of_a_step_is_counted(tiny_qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looks(*args: Any, real: Any = sampling.draw_tokens, **kwargs: Any) -> Any:
        tokens, log_probs = real(*args, **kwargs)
        assert log_probs.max().item() <= 0
        return tokens, log_probs

    monkeypatch.setattr(sampling, "draw_tokens", looks)
    assert watched(tiny_qwen, sampler(5)).reads[DRAW] == 10


def test_an_open_batch_decodes_on_a_device_what_it_decodes_on_the_cpu_with_one_read_a_step(once: Once) -> None:
    folder = once("family-llama", lambda folder: build_family(folder, "llama"))
    here, _ = served(Decoder(adapted(folder, "cpu"), torch.float32))
    with pretend_device() as watch:
        decoder = Decoder(adapted(folder, NAME), torch.float32)
        before = watch.reads["runtimes/hf_batch.py:HfBatch._draw"]
        there, steps = served(decoder)
        assert watch.reads["runtimes/hf_batch.py:HfBatch._draw"] - before == steps
    assert there == here
