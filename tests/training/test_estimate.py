"""Plans for GPUs that are not here: memory and time from sizes and data sheets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.architecture import Architecture, architecture_of
from securecoderl_edge.models.gpus import GPUS
from securecoderl_edge.models.sizes import Formats
from securecoderl_edge.training.base import known_shapes
from securecoderl_edge.training.estimate import seconds_of_sampling, seconds_per_update
from securecoderl_edge.training.memory import GIB, MemoryPlan, plan_memory, require_free_memory
from securecoderl_edge.training.phase_settings import PpoSettings
from securecoderl_edge.training.plan import make_plan
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.settings import TrainSettings

HALF = Formats.of("cuda", "fp16", "float16", "float16")
V100 = GPUS["v100-16"]


@pytest.fixture
def paper() -> TrainSettings:
    return resolve("paper-exact", (), {})


@pytest.fixture
def shape(paper: TrainSettings) -> Architecture:
    return architecture_of(known_shapes()[paper.model], paper.model)


def test_more_work_takes_longer(shape: Architecture, paper: TrainSettings) -> None:
    def update(settings: TrainSettings, phase: str = "binary", prompt: int = 500) -> float:
        return seconds_per_update(shape, settings, HALF, V100, phase, prompt)

    ppo = paper.ppo
    base = update(paper)
    assert update(paper, prompt=1000) > base
    assert update(replace(paper, ppo=replace(ppo, epochs=8))) > base
    assert update(replace(paper, ppo=replace(ppo, max_tokens=1024))) > base
    free = replace(paper, ppo=replace(ppo, kl_coefficient=0.0))
    assert update(free) < base
    assert update(replace(paper, gradient_checkpointing=False)) < base
    longer = replace(paper, sft=replace(paper.sft, batch_size=32))
    assert update(longer, "sft") == pytest.approx(2 * update(paper, "sft"))


def test_an_update_takes_as_long_as_the_host_takes_to_start_it(shape: Architecture, paper: TrainSettings) -> None:
    """On an H200 an RL update of this recipe with short prompts took 4.4 s (benchmarks/results/gpu-day.json)."""
    update = partial(seconds_per_update, shape, formats=HALF, gpu=GPUS["h200-141"], longest_prompt=200)
    assert 3 < update(settings=paper, phase="binary") < 6
    halved = replace(paper, ppo=replace(paper.ppo, micro_batch_tokens=paper.ppo.micro_batch_tokens // 2))
    assert update(settings=halved, phase="sft") == pytest.approx(2 * update(settings=paper, phase="sft"), rel=0.2)


def test_completions_that_are_decoded_together_cost_less_than_one_after_the_other(shape: Architecture) -> None:
    ppo = PpoSettings(max_tokens=100, rollout_sequences=32)
    seconds = partial(seconds_of_sampling, shape, HALF, V100, ppo, prompt=500)
    one, many = (seconds(completions=count) for count in (1, 32))
    assert one < many < 32 * one
    assert seconds(completions=64) > 1.9 * many
    assert seconds(completions=0) == 0
    assert seconds(completions=8, samples=8) < seconds(completions=8)


def test_a_faster_gpu_is_planned_to_be_faster(paper: TrainSettings) -> None:
    times = [make_plan(paper, GPUS[name]).seconds for name in ("t4-16", "v100-16", "a100-40", "h100-80")]
    assert all(times)
    assert times == sorted(times, key=lambda each: -(each or 0))


def test_a_budget_of_tokens_shortens_the_plan_by_the_updates_that_it_leaves_out(paper: TrainSettings) -> None:
    of_update = paper.ppo.batch_size * paper.ppo.max_tokens
    paper = replace(paper, phases=("binary",), selection=replace(paper.selection, problems=0))

    def seconds(budget: int | None) -> float | None:
        binary = replace(paper.binary, steps=8, max_tokens_sampled=budget)
        return make_plan(replace(paper, binary=binary), V100).phases[0].seconds

    whole = seconds(None)
    assert whole is not None
    assert seconds(100 * of_update) == whole
    assert seconds(4 * of_update) == seconds(3 * of_update + 1) == pytest.approx(whole / 2)


def test_a_plan_for_another_gpu_says_what_it_is_based_on(paper: TrainSettings) -> None:
    plan = make_plan(paper, V100)
    assert plan.gpu == V100
    assert plan.limit_bytes == V100.memory_bytes
    assert max(phase.memory.peak for phase in plan.phases) < 16 * GIB
    assert any("planned for 7,300" in line for line in plan.missing)
    assert plan.phases[0].steps == -(-3 * 7300 // 16)


def test_a_laptop_plans_for_a_gpu_with_bfloat16() -> None:
    settings = resolve("paper-v100", (), {"base_precision": "bf16"})
    assert make_plan(settings, GPUS["a100-40"]).products_in == "bfloat16"
    with pytest.raises(UsageError, match=r"bf16 needs compute capability 8\.0, this GPU has 7\.0"):
        make_plan(settings, V100)


def test_a_run_that_is_too_large_for_a_card_is_refused_with_what_helps() -> None:
    settings = resolve("paper-v100", (), {"base_precision": "fp32"})
    with pytest.raises(UsageError, match=r"11\.7 GiB are available\. Use --set ppo.rollout_sequences"):
        make_plan(settings, GPUS["rtx3060-12"])


@pytest.mark.parametrize("checkpointing", [True, False])
def test_bitsandbytes_keeps_the_inputs_of_all_layers_even_with_checkpointing(
    shape: Architecture, paper: TrainSettings, checkpointing: bool
) -> None:
    settings = replace(paper, gradient_checkpointing=checkpointing)
    plans = [
        plan_memory(shape, settings, Formats.of("cuda", base, "float16", "float16"), 1024, "binary")
        for base in ("int8", "int8-bnb")
    ]
    more = plans[1].update["activations"] - plans[0].update["activations"]
    # One micro-batch: two prompts with their completions; q, k and v share an input, and so do gate and up.
    inputs = 2 * shape.hidden + shape.query_size + shape.intermediate
    assert more >= shape.layers * 2 * (1024 + 512) * 2 * inputs


def test_memory_that_another_process_holds_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    plan = MemoryPlan({"base weights": 5 * GIB}, {}, {})
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (3 * GIB, 16 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    with pytest.raises(UsageError, match=r"3\.0 of the GPU's 16\.0 GiB are free: another process uses it"):
        require_free_memory(plan, "cuda")
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 2 * GIB)  # our own
    require_free_memory(plan, "cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", pytest.fail)
    require_free_memory(plan, "cpu")
