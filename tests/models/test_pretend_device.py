"""Sampling as a GPU would do it, on the pretend device: the same completions, one read a token, nothing on the CPU."""

from __future__ import annotations

import heapq
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from decoded import PROMPTS, served
from once import Once
from pretend_device import NAME, BrokenRule, PretendTensor, Watch, expect_reads, pretend_device
from quick import few
from tiny_families import FAMILIES, VARIED, build_family

from securecoderl_edge.models import decoder as decoders
from securecoderl_edge.models import running_batch, sampling
from securecoderl_edge.models.adapters import LoraSettings, add_adapters
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.fused import score_bias
from securecoderl_edge.models.joined_linear import JoinedLinear
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.sampling import Sampler, TokenCompletion, sample
from securecoderl_edge.models.sizes import CACHE_GROWTH, CPU_PACE, GPU_PACE, Pace

# More tokens than a cache grows by; more than the window of the families that have one.
LENGTH = CACHE_GROWTH + 6


def adapted(folder: Path, device: str, precision: str = "fp32", dtype: torch.dtype = torch.float32) -> Any:
    """A model whose policy adapter does something."""
    model = add_adapters(load_base(folder, precision, device, dtype), LoraSettings(rank=4), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B.default" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    # Only float16 has a range to look at, once for each tensor; what int8 leaves unquantized may be float16, too.
    expect_reads(sum(tensor.dtype == torch.float16 for tensor in tensors_of(model).values()))
    return model


def tensors_of(model: Any) -> dict[str, torch.Tensor]:
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def reads_of(done: list[TokenCompletion], parallel: int) -> int:
    """Those of sampling: one for each token step, and one for prompts that are computed together, for their time.

    ``parallel`` completions are decoded at a time; the next takes the place of one that has ended.
    """
    ends, starts = [0] * parallel, set()
    for each in done:
        start = heapq.heappop(ends)
        starts.add(start)
        heapq.heappush(ends, start + len(each.token_ids))
    return max(ends) + len(starts)


def sampler(length: int = LENGTH, ends: frozenset[int] = frozenset()) -> Sampler:
    return Sampler(0.8, length, ends, torch.rand(6, length, generator=torch.Generator().manual_seed(4)))


def drawn(decoder: Decoder, how: Sampler, parallel: int | None = None) -> list[TokenCompletion]:
    return sample(decoder, PROMPTS, 2, how, parallel)


@pytest.mark.parametrize("family", few(FAMILIES, *VARIED))
def test_every_family_samples_on_a_device_what_it_samples_on_the_cpu(family: str, once: Once) -> None:
    """With rows that end early, rows that take their places, and for windows a cache that grows."""
    folder = once(f"family-{family}", lambda folder: build_family(folder, family))
    how = sampler(LENGTH if family == "llama" or any(read_architecture(folder).windows) else LENGTH // 3)
    unended = drawn(Decoder(adapted(folder, "cpu"), torch.float32), how)
    how = replace(how, end_tokens=frozenset({unended[0].token_ids[3], unended[3].token_ids[9]}))
    here = drawn(Decoder(adapted(folder, "cpu"), torch.float32), how, parallel=3)
    with pretend_device():
        there = drawn(Decoder(adapted(folder, NAME), torch.float32), how, parallel=3)
        expect_reads(reads_of(there, 3))
    assert len({len(done.token_ids) for done in here}) > 1
    assert [done.token_ids for done in there] == [done.token_ids for done in here]
    for one, other in zip(there, here, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-3)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        pytest.param("fp16", torch.float16, marks=pytest.mark.slow),
        ("bf16", torch.bfloat16),
        ("int8", torch.float16),
    ],
)
@pytest.mark.parametrize("int8_decoder", few([False, True], True))
def test_products_in_16_bits_multiply_one_dtype(
    tiny_qwen: Path, precision: str, dtype: torch.dtype, int8_decoder: bool
) -> None:
    with pretend_device():
        done = drawn(Decoder(adapted(tiny_qwen, NAME, precision, dtype), dtype, int8=int8_decoder), sampler())
        expect_reads(reads_of(done, 6))
    assert {len(each.token_ids) for each in done} == {LENGTH}


def watched(folder: Path, how: Sampler, pace: Pace = CPU_PACE) -> Watch:
    with pretend_device() as watch:
        decoder = Decoder(adapted(folder, NAME), torch.float32)
        decoder.pace = pace
        decoder.refresh()
        expect_reads(0)
        watch.uploads.clear()
        watch.launches = 0
        drawn(decoder, how)
    return watch


def test_a_token_step_reads_the_device_once_and_copies_to_it_once(tiny_qwen: Path) -> None:
    few, many = (watched(tiny_qwen, sampler(length)) for length in (4, 14))
    # One more for the prompts, so that their time is measured.
    assert (few.reads.total(), many.reads.total()) == (1 + 4, 1 + 14)
    assert many.uploads.total() - few.uploads.total() == 10


def test_rounds_of_tokens_read_the_device_once_and_copy_to_it_once(tiny_qwen: Path) -> None:
    """The first token comes before the cache has room for others."""
    pace = replace(GPU_PACE, rounds=4)
    few, many = (watched(tiny_qwen, sampler(length), pace) for length in (1 + 4, 1 + 4 * 4 + 2))
    assert (few.reads.total(), many.reads.total()) == (1 + 2, 1 + 6)
    assert many.uploads.total() - few.uploads.total() == 4


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


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
def test_a_loaded_model_is_on_the_device_as_a_whole(tiny_qwen: Path, precision: str) -> None:
    with pretend_device():
        model = adapted(tiny_qwen, NAME, precision, torch.float16)
        tensors = tensors_of(model)
        decoder = Decoder(model, torch.float16)
        decoder.refresh()
        parts = [part for layer in decoder.layers for part in vars(layer).values()]
        parts += [each for part in parts if isinstance(part, JoinedLinear) for each in vars(part).values()]
        held = [part for part in parts if isinstance(part, torch.Tensor)]
    assert [name for name, tensor in tensors.items() if not isinstance(tensor, PretendTensor)] == []
    assert held
    assert all(isinstance(tensor, PretendTensor) for tensor in held)


# Faults in the code that runs for each token. On a CPU every one of them goes unseen.


def test_a_mask_on_the_cpu_is_found(tiny_qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets_the_device(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(visible.shape, dtype=dtype)

    monkeypatch.setattr(running_batch, "score_bias", forgets_the_device)
    with pytest.raises(BrokenRule, match=r"models/fused.py:torchs_attention: .* operands on the device and on the CPU"):
        watched(tiny_qwen, sampler(2))
    assert score_bias is not running_batch.score_bias


def test_a_number_read_in_every_layer_is_found(tiny_qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looks(gate: torch.Tensor, activation: str, real: Any = decoders.activated) -> torch.Tensor:
        return real(gate, activation) if gate.isfinite().all().item() else gate

    monkeypatch.setattr(decoders, "activated", looks)
    assert watched(tiny_qwen, sampler(2)).reads.total() == 1 + 2 + 2 * 2  # two layers


def test_a_second_read_of_a_step_is_counted(tiny_qwen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def looks(*args: Any, real: Any = sampling.draw_tokens, **kwargs: Any) -> Any:
        tokens, log_probs = real(*args, **kwargs)
        assert log_probs.max().item() <= 0
        return tokens, log_probs

    monkeypatch.setattr(sampling, "draw_tokens", looks)
    assert watched(tiny_qwen, sampler(5)).reads.total() == 1 + 2 * 5


def test_an_open_batch_decodes_on_a_device_what_it_decodes_on_the_cpu_with_one_read_a_step(once: Once) -> None:
    folder = once("family-llama", lambda folder: build_family(folder, "llama"))
    here, _ = served(Decoder(adapted(folder, "cpu"), torch.float32))
    with pretend_device():
        decoder = Decoder(adapted(folder, NAME), torch.float32)
        there, steps = served(decoder)
        expect_reads(steps + 4)  # each of the four tasks came alone
    assert there == here
