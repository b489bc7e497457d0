"""The sampler against Hugging Face's generate, and the sequences that it draws."""

from __future__ import annotations

import builtins
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from tiny_models import build_adapter

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.adapters import LoraSettings, add_adapters
from securecoderl_edge.models.decoder import Decoder, attended
from securecoderl_edge.models.drawing import draw_tokens
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.other import sample_with_generate
from securecoderl_edge.models.packages import require_torch
from securecoderl_edge.models.sampling import Sampler, TokenCompletion, sample
from securecoderl_edge.models.sizes import CACHE_GROWTH, CPU_PACE, GPU_PACE, Pace
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.runtimes.hf import HfRuntime
from securecoderl_edge.runtimes.protocol import Sampling

PROMPTS = ["n = int(input())\n", "for i in range(10):", "print", "while left < right:\n    middle ="]


@pytest.fixture(scope="module")
def tokenizer(tiny_model: Path) -> Any:
    return read_tokenizer(tiny_model)


@pytest.fixture(params=["llama", "qwen2"])
def adapted(request: pytest.FixtureRequest, tiny_model: Path, tiny_qwen: Path) -> Any:
    """A model whose policy adapter does something."""
    folder = tiny_model if request.param == "llama" else tiny_qwen
    model = add_adapters(load_base(folder), LoraSettings(rank=4), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B.default" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def draw(
    decoder: Decoder, tokenizer: Any, temperature: float, samples: int = 1, seed: int = 0, length: int = 20
) -> list[TokenCompletion]:
    tokens = [tokenizer.encode_prompt(prompt) for prompt in PROMPTS]
    uniforms = torch.rand(len(PROMPTS) * samples, length, generator=torch.Generator().manual_seed(seed))
    sampler = Sampler(temperature, length, frozenset({tokenizer.eos_token_id}), uniforms)
    return sample(decoder, tokens, samples, sampler)


def test_greedy_sampling_of_ragged_prompts_equals_hf_generate(adapted: Any, tokenizer: Any) -> None:
    drawn = draw(Decoder(adapted, torch.float32), tokenizer, temperature=0)
    for prompt, done in zip(PROMPTS, drawn, strict=True):
        inputs = torch.tensor([tokenizer.encode_prompt(prompt)])
        expected = adapted.generate(
            inputs, max_new_tokens=20, do_sample=False, pad_token_id=0, eos_token_id=tokenizer.eos_token_id
        )
        assert list(done.token_ids) == expected[0, inputs.shape[1] :].tolist()


def test_the_decoder_follows_the_adapter_only_after_a_refresh(adapted: Any, tokenizer: Any) -> None:
    decoder = Decoder(adapted, torch.float32)
    before = draw(decoder, tokenizer, temperature=0)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B.default" in name:
                parameter.mul_(-3)
    assert draw(decoder, tokenizer, temperature=0) == before
    decoder.refresh()
    assert draw(decoder, tokenizer, temperature=0) != before


def test_equal_seeds_give_equal_samples_and_other_seeds_others(adapted: Any, tokenizer: Any) -> None:
    decoder = Decoder(adapted, torch.float32)
    first = draw(decoder, tokenizer, 1.0, samples=3, seed=5)
    assert first == draw(decoder, tokenizer, 1.0, samples=3, seed=5)
    assert first != draw(decoder, tokenizer, 1.0, samples=3, seed=6)
    assert [(done.prompt, done.sample) for done in first] == [(p, s) for p in range(len(PROMPTS)) for s in range(3)]


def test_log_probs_are_those_of_a_full_forward_pass(adapted: Any, tokenizer: Any) -> None:
    drawn = draw(Decoder(adapted, torch.float32), tokenizer, 1.0, samples=2, length=3 * CACHE_GROWTH)
    assert max(len(done.token_ids) for done in drawn) > 2 * CACHE_GROWTH, "the cache must grow more than once"
    for done in drawn:
        prompt = tokenizer.encode_prompt(PROMPTS[done.prompt])
        tokens = torch.tensor([[*prompt, *done.token_ids]])
        with torch.no_grad():
            logits = adapted(tokens).logits[0, len(prompt) - 1 : -1]
        expected = logits.log_softmax(-1).gather(-1, tokens[0, len(prompt) :, None])[:, 0]
        torch.testing.assert_close(torch.tensor(done.log_probs), expected, atol=1e-4, rtol=1e-4)


def test_tokens_are_drawn_as_often_as_their_probability_says() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -torch.inf, 1.0, -torch.inf])
    many = (logits.expand(40_000, -1), 0.5, torch.rand(40_000, generator=torch.Generator().manual_seed(3)))
    drawn, log_probs = draw_tokens(*many)
    expected = (logits / 0.5).softmax(-1)
    frequency = drawn.bincount(minlength=len(logits)) / len(drawn)
    # Six standard errors of a frequency; what is impossible is never drawn.
    assert bool(((frequency - expected).abs() <= 6 * (expected * (1 - expected) / len(drawn)).sqrt()).all())
    torch.testing.assert_close(log_probs, logits.log_softmax(-1)[drawn])


@pytest.mark.parametrize("size", [3, 256, 257, 960, 1000])
def test_a_token_is_drawn_where_the_running_sum_passes_its_random_number(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    logits = torch.randn(400, size, generator=generator) * 3
    logits[torch.rand(logits.shape, generator=generator) < 0.5] = -torch.inf
    logits[:, size // 2] = 0.0
    uniforms = torch.rand(400, generator=generator)
    uniforms[:100], uniforms[100:200] = 0.0, 1 - 2**-24  # the smallest and the largest
    drawn, _ = draw_tokens(logits, 1.0, uniforms)
    rows = logits.double().softmax(-1).tolist()
    for row, uniform, token in zip(rows, uniforms.tolist(), drawn.tolist(), strict=True):
        assert row[token] > 0
        assert sum(row[:token]) <= uniform + 1e-6
        assert sum(row[: token + 1]) >= uniform - 1e-6


def test_log_probs_that_are_tempered_are_those_of_the_distribution_that_tokens_come_from() -> None:
    logits = torch.randn(50, 9, generator=torch.Generator().manual_seed(5))
    uniforms = torch.rand(50, generator=torch.Generator().manual_seed(6))

    def without_the_first(scores: torch.Tensor) -> torch.Tensor:
        return scores.index_fill(-1, torch.tensor([0]), -torch.inf)

    for truncate, kept in ((None, logits / 0.5), (without_the_first, without_the_first(logits / 0.5))):
        plain, _ = draw_tokens(logits, 0.5, uniforms, truncate)
        drawn, log_probs = draw_tokens(logits, 0.5, uniforms, truncate, tempered=True)
        assert torch.equal(drawn, plain)
        torch.testing.assert_close(log_probs, kept.log_softmax(-1).gather(-1, drawn[:, None])[:, 0])


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("tempered", [False, True])
def test_few_passes_over_16_bits_draw_what_float32_draws(
    temperature: float, tempered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rows at once, or in slices; a number near the border of two tokens may take either."""
    generator = torch.Generator().manual_seed(8)
    logits = (torch.randn(300, 1000, generator=generator) * 4).bfloat16()
    uniforms = torch.rand(300, generator=generator)
    expected, log_probs = draw_tokens(logits.float(), temperature, uniforms, tempered=tempered)
    for rows in (300, 7):
        monkeypatch.setattr("securecoderl_edge.models.drawing.drawn_at_a_time", lambda *_, rows=rows: rows)
        drawn, found = draw_tokens(logits, temperature, uniforms, tempered=tempered)
        same = drawn == expected
        assert same.sum() >= 298
        torch.testing.assert_close(found[same], log_probs[same], atol=1e-5, rtol=1e-5)


def test_logits_that_are_not_finite_draw_a_token_of_the_vocabulary() -> None:
    """Which the next step looks up before the host reads that its probability is no number."""
    logits = torch.zeros(4, 300)
    logits[0], logits[1], logits[2, 7], logits[3, 5] = torch.nan, -torch.inf, torch.inf, torch.nan
    for temperature in (0.0, 0.5, 1.0):
        drawn, log_probs = draw_tokens(logits, temperature, torch.full((4,), 0.9))
        assert bool(((drawn >= 0) & (drawn < 300)).all())
        assert not bool(log_probs.isfinite().any())


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_one_query_attends_as_the_kernel_for_many_heads_says(kv_heads: int, fused: bool) -> None:
    generator = torch.Generator().manual_seed(4)
    query = torch.randn(3, 4, 1, 8, generator=generator)
    keys, values = (torch.randn(3, kv_heads, 10, 8, generator=generator) for _ in range(2))
    visible = torch.rand(3, 1, 1, 10, generator=generator) > 0.4
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, keys, values, attn_mask=visible, enable_gqa=kv_heads < 4
    )
    bias = torch.zeros(visible.shape).masked_fill(~visible, -torch.inf)
    mixed = attended(query * 8**-0.5, keys, values, bias, fused=fused)
    torch.testing.assert_close(mixed.flatten(2, 3), expected.transpose(1, 2))


def test_completions_stop_at_the_end_token_and_are_reported_as_they_finish(adapted: Any, tokenizer: Any) -> None:
    decoder = Decoder(adapted, torch.float32)
    finished: list[TokenCompletion] = []
    ends = frozenset(range(0, 400, 3))  # many end tokens: sequences end at different lengths
    tokens = [tokenizer.encode_prompt(prompt) for prompt in PROMPTS]
    uniforms = torch.rand(len(PROMPTS) * 8, 20, generator=torch.Generator().manual_seed(0))
    drawn = sample(decoder, tokens, 8, Sampler(1.0, 20, ends, uniforms, on_finished=finished.append))
    assert sorted(finished, key=lambda done: (done.prompt, done.sample)) == drawn
    assert len({len(done.token_ids) for done in drawn}) > 3
    for done in drawn:
        assert not set(done.token_ids[:-1]) & ends
        assert done.finished == (done.token_ids[-1] in ends)


def test_dropping_finished_rows_changes_no_completion(adapted: Any, tokenizer: Any) -> None:
    decoder = Decoder(adapted, torch.float32)
    tokens = [tokenizer.encode_prompt(prompt) for prompt in PROMPTS]
    ends = frozenset(range(0, 400, 7))

    uniforms = torch.rand(len(PROMPTS) * 2, 20, generator=torch.Generator().manual_seed(0))

    def run() -> list[tuple[int, ...]]:
        return [done.token_ids for done in sample(decoder, tokens, 2, Sampler(1.0, 20, ends, uniforms))]

    compacted = run()
    decoder.pace = replace(decoder.pace, drop_at=1.1)
    assert run() == compacted


@pytest.mark.parametrize("parallel", [6, 7, 11, 100])
def test_a_prompt_is_processed_once_for_all_of_its_completions_whenever_they_begin(
    parallel: int, adapted: Any, tokenizer: Any
) -> None:
    decoder = Decoder(adapted, torch.float32)
    tokens = [tokenizer.encode_prompt(prompt * repeats) for prompt in PROMPTS for repeats in (3, 1)]
    uniforms = torch.rand(len(tokens) * 3, 20, generator=torch.Generator().manual_seed(0))
    sampler = Sampler(1.0, 20, frozenset(range(0, 400, 7)), uniforms)
    together = sample(decoder, tokens, 3, sampler)
    decoder.prompt_tokens = 0
    drawn = sample(decoder, tokens, 3, sampler, parallel)
    assert [done.token_ids for done in drawn] == [done.token_ids for done in together]
    assert decoder.prompt_tokens == sum(map(len, tokens))


@pytest.mark.parametrize("parallel", [1, 2, 3, 7])
def test_a_waiting_completion_takes_the_place_of_a_finished_one(
    parallel: int, adapted: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer prompts than the batch, and shorter ones, come in; each has its own numbers, so the text is the same."""
    decoder = Decoder(adapted, torch.float32)
    tokens = [tokenizer.encode_prompt(prompt * repeats) for prompt in PROMPTS for repeats in (3, 1, 6)]
    ends = frozenset(range(0, 400, 9))
    uniforms = torch.rand(len(tokens) * 2, 50, generator=torch.Generator().manual_seed(0))
    sampler = Sampler(1.0, 50, ends, uniforms)
    together = sample(decoder, tokens, 2, sampler)
    rows: list[int] = []
    forward = decoder.forward

    def counted(*arguments: Any) -> Any:
        rows.append(len(arguments[0]))
        return forward(*arguments)

    monkeypatch.setattr(decoder, "forward", counted)
    drawn = sample(decoder, tokens, 2, sampler, parallel)
    assert [done.token_ids for done in drawn] == [done.token_ids for done in together]
    assert max(rows) <= max(parallel, 1)
    assert len(rows) < sum(len(done.token_ids) for done in drawn) + len(tokens) * 2 or parallel == 1


@pytest.mark.parametrize("pace", [CPU_PACE, GPU_PACE])
def test_finished_rows_do_not_make_the_cache_longer_than_a_completion(pace: Pace, adapted: Any, tokenizer: Any) -> None:
    """A few rows end after the others: too few to be dropped at once, and those that take the places go on for long."""
    decoder = Decoder(adapted, torch.float32)
    decoder.pace, decoder.on_card = pace, pace is GPU_PACE
    lengths = [145] * 13 + [150] * 3 + [150] * 29
    drawn = [0] * len(lengths)
    widths: list[int] = []

    def is_last(prompt: int, _sample: int, _token: int) -> bool:
        drawn[prompt] += 1
        return drawn[prompt] == lengths[prompt]

    forward = decoder.forward

    def watched(*arguments: Any) -> Any:
        widths.append(arguments[4][0][0].shape[2])
        return forward(*arguments)

    decoder.forward = watched  # type: ignore[method-assign]
    prompt = tokenizer.encode_prompt("print")
    sampler = Sampler(1.0, 150, frozenset(), torch.rand(len(lengths), 150), on_token=is_last)
    sample(decoder, [prompt] * len(lengths), 1, sampler, 16)
    assert drawn == lengths
    assert max(widths) <= len(prompt) + 150 + CACHE_GROWTH


def test_generate_of_transformers_draws_the_same_completions(adapted: Any, tokenizer: Any) -> None:
    tokens = [tokenizer.encode_prompt(prompt) for prompt in PROMPTS]
    uniforms = torch.rand(len(PROMPTS) * 3, 20, generator=torch.Generator().manual_seed(0))
    stopped: list[tuple[int, int]] = []

    def stop(prompt: int, index: int, token: int) -> bool:
        stopped.append((prompt, index))
        return token % 11 == 0

    sampler = Sampler(1.0, 20, frozenset(range(0, 400, 9)), uniforms, on_token=stop)
    expected = sample(Decoder(adapted, torch.float32), tokens, 3, sampler)
    calls = sorted(stopped)
    stopped.clear()
    for parallel in (None, 5):
        drawn = sample_with_generate(adapted, tokens, 3, sampler, 0, parallel)
        assert [(done.token_ids, done.finished) for done in drawn] == [(d.token_ids, d.finished) for d in expected]
        for ours, theirs in zip(drawn, expected, strict=True):
            assert ours.log_probs == pytest.approx(theirs.log_probs, abs=1e-4)
        assert sorted(stopped) == calls
        stopped.clear()


@pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json", "model.safetensors"])
def test_a_damaged_model_folder_is_named(file: str, tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    (folder / file).write_text('{"a":')
    with pytest.raises(SceError, match=rf"{folder}.*(not a tokenizer|not valid JSON)|cannot load the .* of {folder}"):
        HfRuntime(str(folder))


def test_an_adapter_is_computed_as_its_own_configuration_says(tiny_model: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    adapter = build_adapter(tmp_path / "rslora", tiny_model, use_rslora=True, target_modules=r".*\.(q_proj|down_proj)")
    runtime = HfRuntime(str(tiny_model), adapter, threads=1)
    prompt = torch.tensor([read_tokenizer(tiny_model).encode_prompt(PROMPTS[0])])
    done = runtime.generate([PROMPTS[0]], 1, Sampling(0.0, 12))[0][0]
    model = PeftModel.from_pretrained(load_base(tiny_model), adapter)
    expected = model.generate(prompt, max_new_tokens=12, do_sample=False, pad_token_id=0, eos_token_id=1)
    assert list(done.token_ids) == expected[0, prompt.shape[1] :].tolist()
    with pytest.raises(UsageError, match="use_dora"):
        HfRuntime(str(tiny_model), build_adapter(tmp_path / "dora", tiny_model, use_dora=True), threads=1)


def test_text_that_is_no_unicode_is_refused_and_a_tiny_temperature_is_greedy(tiny_model: Path) -> None:
    runtime = HfRuntime(str(tiny_model), threads=1)
    with pytest.raises(SceError, match="not valid Unicode"):
        runtime.generate(["\ud800"], 1, Sampling())
    tiny, greedy = (runtime.generate(["print"], 1, Sampling(value, 4))[0][0] for value in (1e-300, 0.0))
    assert tiny.token_ids == greedy.token_ids


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ModuleNotFoundError("No module named 'peft'", name="peft"), "peft is not installed"),
        (ImportError("cannot import name 'x' from 'peft'", name="peft"), "peft is installed but cannot be imported"),
    ],
)
def test_a_broken_package_and_a_missing_one_are_different_errors(
    error: ImportError, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def failing(name: str, *rest: Any) -> Any:
        if name == "peft":
            raise error
        return real(name, *rest)

    monkeypatch.setattr("builtins.__import__", failing)
    with pytest.raises(SceError, match=message):
        require_torch()


def test_numbers_that_are_not_finite_are_not_sampled_from(adapted: Any, tokenizer: Any) -> None:
    with torch.no_grad():
        adapted.get_base_model().model.layers[1].mlp.up_proj.weight.fill_(float("nan"))
    with pytest.raises(SceError, match="NaN or Inf in the logits with float32; check the weights"):
        draw(Decoder(adapted, torch.float32), tokenizer, temperature=1.0)
