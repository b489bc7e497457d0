"""What must hold on a GPU. `--cuda-tests-on cpu` runs the same bodies without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from decoded import sampled, served
from once import Once
from small_runs import an_update
from tiny_families import build_family

from securecoderl_edge.errors import SceError
from securecoderl_edge.models.adapters import POLICY_ADAPTER, LoraSettings, adapter_parameters, add_adapters
from securecoderl_edge.models.architecture import read_architecture
from securecoderl_edge.models.decoder import Decoder
from securecoderl_edge.models.device import Compute
from securecoderl_edge.models.drawing import draw_tokens
from securecoderl_edge.models.int8 import Int8Linear
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.running_batch import RunningBatch
from securecoderl_edge.models.sampling import Sampler, sample
from securecoderl_edge.models.sizes import CACHE_GROWTH, GPU_PACE, HAS_BF16, HAS_INT8_UNITS
from securecoderl_edge.models.tokenizer import read_tokenizer
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.checkpoint import PhaseProgress, load_latest, save_checkpoint
from securecoderl_edge.training.memory import plan_memory
from securecoderl_edge.training.phase_settings import PpoSettings, SftSettings
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.update.learner import Learner, Update, make_optimizer, make_value_head, memory_for
from securecoderl_edge.training.update.ppo_update import ppo_update
from securecoderl_edge.training.update.sequences import completion_log_probs, make_batch
from securecoderl_edge.training.update.supervised import sft_update

pytestmark = [pytest.mark.cuda, pytest.mark.usefixtures("varied_reward")]

PROBLEMS = [Problem(f"p{n}", f"Add {n}.", tests=(Test("1\n", f"{n}\n"),), solutions=("print(1)",)) for n in range(4)]
PPO = PpoSettings(batch_size=8, samples_per_prompt=4, max_tokens=10, epochs=1, learning_rate=0.01)
PAIRS = [([5, 6, 7], [8, 9, 1]), ([4], [3, 2, 2, 1])]
PRODUCTS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# Of log-probabilities and, as cosine, of gradients, against float32 on the CPU.
BOUNDS = {"fp32": (1e-4, 0.99999), "fp16": (0.05, 0.99), "bf16": (0.3, 0.95)}


def on(device: str, precision: str = "fp32", products: str = "fp32") -> Compute:
    return Compute(device, precision, PRODUCTS[products], PRODUCTS[products])


def needs_on_gpu(device: str, capability: tuple[int, int]) -> None:
    if device == "cuda" and torch.cuda.get_device_capability() < capability:
        pytest.skip("needs compute capability {}.{}".format(*capability))


def only_on_gpu(device: str, why: str) -> None:
    if device == "cpu":
        pytest.skip(f"not on a CPU: {why}")


def make_learner(folder: Path, compute: Compute, *, optimizer: str = "adamw", value_head: bool = False) -> Learner:
    base = load_base(folder, compute.base_precision, compute.device, compute.products)
    model = add_adapters(base, LoraSettings(rank=64), seed=3)
    head = make_value_head(model.config.hidden_size, 3).to(compute.device) if value_head else None
    groups = [{"params": list(adapter_parameters(model, POLICY_ADAPTER).values()), "lr": 0.01}]
    groups += [{"params": list(head.parameters()), "lr": 0.01}] if head is not None else []
    decoder = Decoder(model, compute.rollout_dtype)
    return Learner(model, read_tokenizer(folder), compute, make_optimizer(optimizer, groups), decoder, head)


def policy(learner: Learner) -> torch.Tensor:
    values = adapter_parameters(learner.model, POLICY_ADAPTER).values()
    return torch.cat([value.detach().flatten().cpu() for value in values])


def rl(learner: Learner, scorer: Scorer, ppo: PpoSettings = PPO, step: int = 1) -> dict[str, Any]:
    return ppo_update(learner, an_update(PROBLEMS, scorer, ppo=ppo, step=step))[0]


def supervised(step: int) -> Update:
    return an_update(PROBLEMS, None, "sft", sft=SftSettings(batch_size=4), seed=0, step=step)


def log_probs_and_gradient(folder: Path, compute: Compute) -> tuple[torch.Tensor, torch.Tensor]:
    model = make_learner(folder, compute).model
    found, _ = completion_log_probs(model, make_batch(PAIRS, 0, compute.device), 0.7, compute)
    gradients = torch.autograd.grad(found.sum(), list(adapter_parameters(model, POLICY_ADAPTER).values()))
    return found.detach().cpu(), torch.cat([gradient.flatten().float().cpu() for gradient in gradients])


def test_greedy_sampling_in_float32_finds_the_tokens_of_the_cpu(accelerator: str, tiny_model: Path) -> None:
    drawn = []
    for device in ("cpu", accelerator):
        decoder = Decoder(make_learner(tiny_model, on(device)).model, torch.float32)
        sampler = Sampler(0.0, 12, frozenset({1}), torch.zeros(2, 12))
        drawn.append([each.token_ids for each in sample(decoder, [[5, 6, 7], [4, 9]], 1, sampler)])
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("products", ["fp32", "fp16"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_recorded_steps_draw_what_eager_ones_draw(accelerator: str, family: str, products: str, tmp_path: Path) -> None:
    decoder = Decoder(load_base(build_family(tmp_path, family), "fp32", accelerator), PRODUCTS[products])

    def drawn() -> tuple[object, ...]:
        return sampled(decoder), sampled(decoder, parallel=5), served(decoder)

    recorded = drawn()
    assert (decoder.last_graph is not None) == (accelerator == "cuda")
    decoder.records_steps = False
    assert drawn() == recorded


@pytest.mark.parametrize("products", ["fp32", "fp16"])
def test_rounds_that_are_read_at_once_are_those_that_are_read_one_by_one(
    accelerator: str, products: str, tiny_qwen: Path
) -> None:
    """No row ends before the others, so that both have the same shapes; each bit must be equal."""
    decoder = Decoder(load_base(tiny_qwen, "fp32", accelerator), PRODUCTS[products])
    uniforms = torch.rand(6, 3 * CACHE_GROWTH, generator=torch.Generator().manual_seed(3))
    how, drawn = Sampler(0.8, 3 * CACHE_GROWTH, frozenset(), uniforms, tempered=True), []
    for rounds in (1, 8):
        decoder.pace = replace(GPU_PACE, rounds=rounds, growth=CACHE_GROWTH)
        drawn.append(sample(decoder, [[5, 6, 7], [4, 9]], 3, how))
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("products", ["fp32", "fp16"])
@pytest.mark.parametrize("family", ["qwen2", "mistral", "gemma3"])
def test_few_kernels_compute_what_many_compute(accelerator: str, family: str, products: str, once: Once) -> None:
    """With heads that share keys, masks of odd lengths and windows."""
    folder = once(f"family-{family}", lambda folder: build_family(folder, family))
    model = add_adapters(load_base(folder, "fp32", accelerator), LoraSettings(rank=4), seed=1)
    seen = []
    for on_card in (False, True):
        decoder = Decoder(model, PRODUCTS[products], merge=False)
        decoder.on_card = on_card
        decoder.refresh()
        batch, logits = RunningBatch(decoder), []
        with torch.no_grad():
            batch.admit([0, 1], [[5, 6, 7], [4, 9]])
            for token in range(10, 10 + CACHE_GROWTH + 5):
                batch.step(torch.tensor([token, token + 1], device=accelerator))
                logits.append(batch.logits.float())
        seen.append(torch.stack(logits))
    torch.testing.assert_close(seen[1], seen[0], atol=1e-3 if products == "fp32" else 0.1, rtol=0)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_few_passes_draw_the_tokens_of_the_cpu(accelerator: str, temperature: float) -> None:
    """Of a large vocabulary whose last block is not full, and of one of full blocks."""
    for vocabulary in (50257, 151936):
        generator = torch.Generator().manual_seed(vocabulary)
        logits = (torch.randn(16, vocabulary, generator=generator) * 4).half()
        uniforms = torch.rand(16, generator=generator)
        expected, log_probs = draw_tokens(logits, temperature, uniforms, tempered=True)
        there = draw_tokens(logits.to(accelerator), temperature, uniforms.to(accelerator), tempered=True)
        drawn, found = (each.cpu() for each in there)
        same = drawn == expected
        assert same.sum() >= 14  # rounding of sums over the vocabulary
        torch.testing.assert_close(found[same], log_probs[same], atol=1e-4, rtol=0)


def test_steps_are_recorded_where_other_memory_is_cached(accelerator: str, tiny_model: Path) -> None:
    only_on_gpu(accelerator, "there is no allocator that keeps memory")
    decoder = Decoder(load_base(tiny_model, "fp32", accelerator), torch.float32)
    sampled(decoder)
    expected, decoder.last_graph = sampled(decoder), None
    torch.cuda.empty_cache()
    reserved, total = torch.cuda.memory_reserved(), torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((reserved + (256 << 20)) / total)
    try:
        torch.empty(256 << 20, dtype=torch.uint8, device=accelerator)  # the allocator keeps it, and has no more
        assert sampled(decoder) == expected
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("products", ["fp32", "fp16", "bf16"])
def test_log_probabilities_and_gradients_are_those_of_the_cpu(
    accelerator: str, tiny_model: Path, products: str
) -> None:
    if products == "bf16":
        needs_on_gpu(accelerator, HAS_BF16)
    expected, direction = log_probs_and_gradient(tiny_model, on("cpu"))
    found, gradient = log_probs_and_gradient(tiny_model, on(accelerator, products=products))
    most, cosine = BOUNDS[products]
    torch.testing.assert_close(found, expected, atol=most, rtol=0)
    assert float(torch.cosine_similarity(gradient, direction, dim=0)) > cosine


@pytest.mark.parametrize("products", ["fp32", "fp16"])
def test_an_int8_layer_computes_with_its_expansion(accelerator: str, products: str) -> None:
    generator = torch.Generator().manual_seed(1)
    layer = Int8Linear(96, 160)
    layer.quantize(torch.randn(160, 96, generator=generator).to(accelerator))
    inputs = torch.randn(7, 96, generator=generator).to(accelerator, PRODUCTS[products])
    assert torch.equal(layer(inputs), inputs @ layer.expanded(inputs.dtype).T)


@pytest.mark.parametrize("advantage", ["rloo", "gae", "batch", "grpo"])
@pytest.mark.parametrize("products", ["fp32", "fp16"])
def test_an_rl_update_on_int8_weights_begins_at_ratio_one_and_moves_the_policy(
    accelerator: str, tiny_model: Path, scorer: Scorer, advantage: str, products: str
) -> None:
    compute = on(accelerator, "int8", products)
    learner = make_learner(tiny_model, compute, value_head=advantage == "gae")
    before = policy(learner)
    row = rl(learner, scorer, replace(PPO, advantage=advantage))
    assert row["val/first_ratio_error"] == 0
    assert bool(policy(learner).isfinite().all())
    assert not torch.equal(policy(learner), before)


@pytest.mark.parametrize("optimizer", ["adamw", "adamw8bit"])
def test_supervised_updates_learn(accelerator: str, tiny_model: Path, optimizer: str) -> None:
    if optimizer != "adamw":
        pytest.importorskip("bitsandbytes")
    learner = make_learner(tiny_model, on(accelerator), optimizer=optimizer)
    losses = [sft_update(learner, supervised(step))[0]["loss/sft"] for step in range(1, 7)]
    assert losses[-1] < losses[0]


def test_int8_of_bitsandbytes_begins_at_ratio_one(accelerator: str, tiny_model: Path, scorer: Scorer) -> None:
    pytest.importorskip("bitsandbytes")
    only_on_gpu(accelerator, "bitsandbytes computes other numbers there")
    needs_on_gpu(accelerator, HAS_INT8_UNITS)
    assert rl(make_learner(tiny_model, on(accelerator, "int8-bnb", "fp16")), scorer)["val/first_ratio_error"] == 0


@pytest.fixture
def update_twice(accelerator: str, tiny_model: Path, scorer: Scorer) -> Callable[..., Learner]:
    """Two float16 updates with a value head; with a folder the second by another learner, from a checkpoint."""

    def make(folder: Path | None = None) -> Learner:
        ppo = replace(PPO, advantage="gae", samples_per_prompt=1)
        learner = make_learner(tiny_model, on(accelerator, "int8", "fp16"), value_head=True)
        learner.scaler.load_state_dict({**learner.scaler.state_dict(), "scale": 512.0})  # a new one has another
        rl(learner, scorer, ppo)
        if folder is not None:
            save_checkpoint(folder, learner, PhaseProgress(step=1), "tiny", {}, ())
            learner = make_learner(tiny_model, learner.compute, value_head=True)
            assert load_latest(folder, learner, {}).step == 1
        rl(learner, scorer, ppo, step=2)
        return learner

    return make


def test_two_equal_runs_are_equal(update_twice: Callable[..., Learner]) -> None:
    assert torch.equal(policy(update_twice()), policy(update_twice()))


def test_a_resumed_run_continues_bit_for_bit_at_its_loss_scale(
    update_twice: Callable[..., Learner], tmp_path: Path
) -> None:
    whole, resumed = update_twice(), update_twice(tmp_path)
    assert whole.scaler.get_scale() == resumed.scaler.get_scale() <= 512
    assert torch.equal(policy(whole), policy(resumed))


def test_a_checkpoint_loads_on_the_cpu(accelerator: str, tiny_model: Path, tmp_path: Path) -> None:
    learner, other = (make_learner(tiny_model, on(device)) for device in (accelerator, "cpu"))
    sft_update(learner, supervised(1))
    save_checkpoint(tmp_path, learner, PhaseProgress(step=1), "tiny", {}, ())
    load_latest(tmp_path, other, {})
    assert torch.equal(policy(learner), policy(other))
    sft_update(other, supervised(2))


def test_the_memory_plan_covers_the_peak_of_the_allocator(accelerator: str, tiny_model: Path, scorer: Scorer) -> None:
    only_on_gpu(accelerator, "there is no allocator to ask; benchmarks/gpu_fit.py compares resident memory")
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    compute = on(accelerator, "int8", "fp16")
    learner = make_learner(tiny_model, compute)
    rl(learner, scorer)
    settings = TrainSettings(ppo=PPO, lora=LoraSettings(rank=64))
    longest = max(map(len, learner.prompts.values()))
    plan = plan_memory(read_architecture(tiny_model), settings, compute.formats(), longest, "partial")
    assert torch.cuda.max_memory_allocated() - before <= plan.peak


def test_out_of_memory_names_the_setting_to_lower(accelerator: str) -> None:
    only_on_gpu(accelerator, "the system may kill the process instead")
    words = r"out of memory while sampling.*Lower ppo\.rollout_sequences"
    with pytest.raises(SceError, match=words), memory_for("sampling", "ppo.rollout_sequences"):
        torch.empty(1 << 50, dtype=torch.uint8, device=accelerator)
