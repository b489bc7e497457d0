"""Batches of completions: what is masked, and that sharing prompts, splitting and padding change nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from tiny_models import build_model, int8_of

from securecoderl_edge.models import transformer
from securecoderl_edge.models.adapters import (
    POLICY_ADAPTER,
    LoraSettings,
    adapter_parameters,
    add_adapters,
    load_adapter,
    reference_active,
    save_adapter,
)
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.training.update.sequences import completion_log_probs, make_batch, micro_batches

PAIRS = [([5, 6, 7], [8, 9, 1]), ([4], [3, 2, 2, 2, 2, 1]), ([9, 9, 9, 9, 9], [1])]
# Two prompts with several completions each, not side by side; one completion was drawn twice.
SHARED = [*PAIRS, ([5, 6, 7], [8]), ([4], [7, 1]), ([5, 6, 7], [3, 3, 3, 3, 1]), ([5, 6, 7], [8, 9, 1])]


@pytest.fixture(params=["fp32", "int8"])
def model(request: pytest.FixtureRequest, tiny_model: Path) -> Any:
    adapted = add_adapters(load_base(tiny_model, request.param), LoraSettings(rank=4), seed=1)
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in adapter_parameters(adapted, POLICY_ADAPTER).values():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
    return adapted


def naive_log_probs(model: Any, prompt: list[int], completion: list[int], temperature: float) -> torch.Tensor:
    tokens = torch.tensor([prompt + completion])
    every = (model(tokens[:, :-1]).logits / temperature).log_softmax(-1)
    chosen: torch.Tensor = every.gather(-1, tokens[:, 1:, None])[0, len(prompt) - 1 :, 0]
    return chosen


def gradients(model: Any, loss: torch.Tensor) -> torch.Tensor:
    found = torch.autograd.grad(loss, list(adapter_parameters(model, POLICY_ADAPTER).values()))
    return torch.cat([gradient.flatten() for gradient in found])


def test_the_mask_covers_completions_with_their_end_token_and_nothing_else() -> None:
    batch = make_batch(PAIRS, padding=0, device="cpu")
    for row, (prompt, completion) in enumerate(PAIRS):
        assert batch.tokens[row][batch.mask[row] > 0].tolist() == completion
        assert batch.sequences[row] == (tuple(prompt), tuple(completion))


def test_micro_batches_hold_every_row_once_within_the_bound() -> None:
    batch = make_batch(SHARED * 2, padding=0, device="cpu")
    for bound in (1, 14, 30, 1000):
        pieces = list(micro_batches(batch, bound))
        assert sorted(row for piece in pieces for row in piece) == list(range(len(SHARED) * 2))
        for piece in pieces:
            distinct = {batch.sequences[row] for row in piece}
            prompts = {prompt for prompt, _ in distinct}
            padded = len(prompts) * max(map(len, prompts)) + len(distinct) * batch.rows(piece).tokens.shape[1]
            assert len(distinct) == 1 or padded <= bound


def test_micro_batches_keep_the_completions_of_a_prompt_together() -> None:
    batch = make_batch(SHARED, padding=0, device="cpu")
    pieces = list(micro_batches(batch, max_tokens=24))
    assert len(pieces) > 1
    for prompt in {prompt for prompt, _ in batch.sequences}:
        assert sum(any(batch.sequences[row][0] == prompt for row in piece) for piece in pieces) == 1


def test_log_probs_do_not_depend_on_padding_or_on_the_other_rows(model: Any) -> None:
    batch = make_batch(SHARED, padding=0, device="cpu")
    together, _ = completion_log_probs(model, batch, 0.7)
    for row in range(len(SHARED)):
        alone = batch.rows([row])
        apart, _ = completion_log_probs(model, alone, 0.7)
        torch.testing.assert_close(apart[0], together[row, : apart.shape[1]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("pairs", [PAIRS, SHARED, [([5, 6], [1]), ([5, 6], [7])]])
def test_log_probs_and_their_gradients_equal_the_naive_ones_of_separate_sequences(
    model: Any, pairs: list[tuple[list[int], list[int]]]
) -> None:
    batch = make_batch(pairs, padding=0, device="cpu")
    actual, hidden = completion_log_probs(model, batch, 0.7)
    expected = [naive_log_probs(model, prompt, completion, 0.7) for prompt, completion in pairs]
    for row, naive in enumerate(expected):
        torch.testing.assert_close(actual[row, : len(naive)], naive, atol=1e-5, rtol=1e-5)
        assert not actual[row, len(naive) :].any()
    assert len(hidden) == sum(len(naive) for naive in expected)
    logits = (hidden @ model.get_output_embeddings().weight.T / 0.7).log_softmax(-1)
    told = logits.gather(-1, batch.tokens[batch.mask > 0][:, None])[:, 0]
    torch.testing.assert_close(told, torch.cat(expected), atol=1e-5, rtol=1e-5)
    weights = torch.randn(len(hidden), generator=torch.Generator().manual_seed(3))
    slopes = gradients(model, (actual[batch.mask > 0] * weights).sum())
    torch.testing.assert_close(slopes, gradients(model, (torch.cat(expected) * weights).sum()), atol=1e-4, rtol=1e-4)


def test_grouped_key_value_heads_and_a_config_that_asks_for_eager_attention_change_nothing(tmp_path: Path) -> None:
    # Eager attention would add our mask to the scores instead of applying it.
    folder = build_model(tmp_path / "grouped", num_key_value_heads=2)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "attn_implementation": "eager"}))
    model = load_base(folder)
    actual, _ = completion_log_probs(model, make_batch(SHARED, padding=0, device="cpu"), 0.7)
    for row, (prompt, completion) in enumerate(SHARED):
        naive = naive_log_probs(model, prompt, completion, 0.7)
        torch.testing.assert_close(actual[row, : len(naive)], naive, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("completions", "processed"), [([[6, 7, 1], [6, 8, 1]] * 4, 2), ([[6, 7, 1]] * 8, 1)])
def test_a_prompt_and_equal_completions_of_it_are_processed_once(
    model: Any, completions: list[list[int]], processed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    embedding = transformer.functional.embedding
    monkeypatch.setattr(
        transformer.functional, "embedding", lambda ids, weight: seen.append(ids.numel()) or embedding(ids, weight)
    )
    pairs = [([5] * 50, completion) for completion in completions]
    completion_log_probs(model, make_batch(pairs, padding=0, device="cpu"), 1.0)
    assert sum(seen) == 50 + processed * 2


def test_the_same_forward_pass_twice_gives_a_ratio_of_exactly_one(model: Any) -> None:
    batch = make_batch(PAIRS, padding=0, device="cpu")
    with torch.no_grad():
        old, _ = completion_log_probs(model, batch, 0.7)
    new, _ = completion_log_probs(model, batch, 0.7)
    assert torch.equal(old, new)


def test_several_threads_add_up_float32_gradients_in_one_order(tiny_model: Path) -> None:
    model = add_adapters(load_base(tiny_model), LoraSettings(rank=4), seed=1)
    with torch.no_grad():
        for parameter in adapter_parameters(model, POLICY_ADAPTER).values():
            parameter.add_(0.1)
    # One long prompt of many completions: its gradients are sums that torch divides among the threads.
    pairs = [(list(range(2, 400)), [sample, 3, 1]) for sample in range(8, 24)]
    batch = make_batch(pairs, padding=0, device="cpu")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        found = [gradients(model, completion_log_probs(model, batch, 0.7)[0].sum()) for _ in range(40)]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(again, found[0]) for again in found[1:])


def test_the_reference_adapter_is_the_untrained_one_and_leaves_the_policy_active(model: Any) -> None:
    batch = make_batch(PAIRS, padding=0, device="cpu")
    policy, _ = completion_log_probs(model, batch, 1.0)
    with reference_active(model):
        reference, _ = completion_log_probs(model, batch, 1.0)
    again, _ = completion_log_probs(model, batch, 1.0)
    assert not torch.allclose(policy, reference)
    assert torch.equal(policy, again)
    trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trainable
    assert all(f".{POLICY_ADAPTER}." in name for name in trainable)


def test_an_adapter_comes_back_from_its_file_and_peft_reads_it(model: Any, tiny_model: Path, tmp_path: Path) -> None:
    from peft import PeftModel

    save_adapter(model, tmp_path, "tiny")
    fresh = add_adapters(load_base(tiny_model), LoraSettings(rank=4), seed=9)
    load_adapter(fresh, tmp_path)
    for name, parameter in adapter_parameters(fresh, POLICY_ADAPTER).items():
        assert torch.equal(parameter, adapter_parameters(model, POLICY_ADAPTER)[name])
    plain = PeftModel.from_pretrained(load_base(tiny_model), tmp_path)
    tokens = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(plain(tokens).logits, fresh(tokens).logits)


def test_int8_linear_computes_with_its_dequantized_weight_and_passes_gradients_through() -> None:
    torch.manual_seed(0)
    linear = torch.nn.Linear(32, 16)
    quantized = int8_of(linear)
    inputs = torch.randn(4, 32, requires_grad=True)
    output = quantized(inputs)
    weight = quantized.expanded(torch.float32)
    torch.testing.assert_close(output, torch.nn.functional.linear(inputs, weight, linear.bias))
    (gradient,) = torch.autograd.grad(output.sum(), inputs)
    torch.testing.assert_close(gradient, weight.sum(0).expand_as(gradient))
    bound = linear.weight.abs().amax(1, keepdim=True) / 127 / 2
    assert bool(((weight - linear.weight).abs() <= bound + 1e-6).all())
