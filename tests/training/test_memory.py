"""The memory plan: that it grows with what takes memory, names the knob that helps, and tells the truth."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from once import Once
from places import ROOT
from quick import few
from tiny_families import build_family

pytest.importorskip("torch", reason="needs the train extra")


from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.adapters import LoraSettings, add_adapters
from securecoderl_edge.models.architecture import Architecture, architecture_of, read_architecture
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.models.sizes import GIB, Formats
from securecoderl_edge.training.base import known_shapes
from securecoderl_edge.training.memory import MemoryPlan, fitting_plan, plan_memory
from securecoderl_edge.training.phase_settings import SftSettings
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.update.learner import memory_for

V100 = Formats.of("cuda", "int8", "float16", "float16")
PAPER = "deepseek-ai/deepseek-coder-1.3b-instruct"


@pytest.fixture
def shape() -> Architecture:
    return architecture_of(known_shapes()[PAPER], PAPER)


@pytest.fixture
def settings() -> TrainSettings:
    return resolve("paper-v100", (), {})


def with_ppo(settings: TrainSettings, **changes: Any) -> TrainSettings:
    return replace(settings, ppo=replace(settings.ppo, **changes))


def test_the_paper_s_run_fits_a_v100_with_room(shape: Architecture, settings: TrainSettings) -> None:
    plans = {phase: plan_memory(shape, settings, V100, 1024, phase) for phase in settings.phases}
    assert all(plan.peak < 16 * GIB for plan in plans.values())
    # "int8 + checkpointing at most 4 GiB of GPU memory in the update"
    assert sum((*plans["partial"].always.values(), *plans["partial"].update.values())) < 4 * GIB
    # The weights alone, by hand: 1.214e9 numbers of linear layers in int8, their scales, the rest in float16.
    linears = 24 * (4 * 2048**2 + 3 * 2048 * 5504)
    scales = 24 * (5 * 2048 + 2 * 5504) * 4
    assert plans["sft"].always["base weights"] == linears + scales + (1_346_471_936 - linears) * 2


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"max_tokens": 1024}, "sampling"),
        ({"micro_batch_tokens": 65536, "batch_size": 32}, "update"),
        ({"batch_size": 64, "rollout_sequences": 64}, "sampling"),
    ],
)
def test_what_takes_more_memory_raises_its_part(
    shape: Architecture, settings: TrainSettings, change: dict[str, int], part: str
) -> None:
    def total(of: TrainSettings) -> int:
        return sum(getattr(plan_memory(shape, of, V100, 1024, "partial"), part).values())

    assert total(with_ppo(settings, **change)) > total(settings)


def test_a_piece_holds_no_more_prompts_than_a_minibatch(shape: Architecture, settings: TrainSettings) -> None:
    def update(batch: int, minibatches: int) -> dict[str, int]:
        of = with_ppo(settings, batch_size=batch, minibatches=minibatches, micro_batch_tokens=65536)
        return plan_memory(shape, of, V100, 1024, "partial").update

    assert update(16, 4) == update(4, 1) != update(16, 1)


def test_checkpointing_and_8_bit_states_save_what_they_promise(shape: Architecture, settings: TrainSettings) -> None:
    def plan(**changes: Any) -> MemoryPlan:
        return plan_memory(shape, replace(settings, **changes), V100, 1024, "partial")

    assert plan(gradient_checkpointing=False).update["activations"] > 3 * plan().update["activations"]
    saved = plan().always["optimizer"] - plan(optimizer="adamw8bit").always["optimizer"]
    trained = plan().always["adapters"] // 8
    assert saved == pytest.approx(trained * (8 - 2 - 8 / 256), rel=0.01)


@pytest.mark.parametrize(
    ("changes", "ppo", "limit", "knob"),
    [
        ({}, {"batch_size": 64, "rollout_sequences": 64}, 16, "Use --set ppo.rollout_sequences=32"),
        ({"gradient_checkpointing": False, "selection.problems": 0}, {"micro_batch_tokens": 8192, "batch_size": 8}, 8,
         "Use --gradient-checkpointing"),
        ({"selection.problems": 0}, {"micro_batch_tokens": 65536, "batch_size": 32}, 8,
         "--set ppo.micro_batch_tokens="),
        ({}, {}, 1, "take a smaller model"),
    ],
)  # fmt: skip
def test_too_little_memory_is_refused_with_the_first_knob_that_helps(
    shape: Architecture, settings: TrainSettings, changes: dict[str, Any], ppo: dict[str, int], limit: int, knob: str
) -> None:
    if changes.pop("selection.problems", None) == 0:
        settings = replace(settings, selection=replace(settings.selection, problems=0))
    settings = with_ppo(replace(settings, **changes), **ppo)
    with pytest.raises(
        UsageError, match=rf"partial needs about \d+\.\d GiB, most of it in \w+; {limit}\.0 GiB"
    ) as caught:
        fitting_plan(shape, settings, V100, 1024, "partial", limit * GIB)
    assert knob in str(caught.value)


def test_a_base_in_float32_is_pointed_to_int8(shape: Architecture, settings: TrainSettings) -> None:
    settings = replace(settings, base_precision="fp32", selection=replace(settings.selection, problems=0))
    with pytest.raises(UsageError, match="--base-precision int8"):
        fitting_plan(shape, settings, Formats.of("cpu", "fp32", "fp32", "bf16"), 64, "partial", 7 * GIB)


def test_what_fits_in_int8_is_not_said_to_be_too_large_for_it(shape: Architecture, settings: TrainSettings) -> None:
    settings = replace(settings, base_precision="fp32", selection=replace(settings.selection, problems=0))
    settings = with_ppo(settings, micro_batch_tokens=settings.ppo.max_tokens, rollout_sequences=1, batch_size=4)
    in_int8 = plan_memory(shape, replace(settings, base_precision="int8"), V100, 64, "partial").peak
    with pytest.raises(UsageError, match=r"are available\. Use .*--base-precision int8"):
        fitting_plan(shape, settings, Formats.of("cuda", "fp32", "float32", "float16"), 64, "partial", in_int8)


def test_running_out_names_the_lines_of_the_plan() -> None:
    plan = MemoryPlan({"base weights": GIB}, {"KV cache": 2 * GIB}, {"activations": 3 * GIB})
    with pytest.raises(Exception, match=r"base weights 1.00, KV cache 2.00\)\. Lower the knob"):  # noqa: SIM117
        with memory_for("sampling", "the knob", plan):
            raise RuntimeError("not enough memory: you tried to allocate")


MEASURE = """
import json, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import gpu_fit_worker
from securecoderl_edge.system.heap import return_large_blocks
return_large_blocks()
print(json.dumps(gpu_fit_worker.measure_training(sys.argv[2], Path(sys.argv[3]), sys.argv[4], False)))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peaks are read from /proc")
@pytest.mark.parametrize("kind", ["update", "sft"])
def test_the_plan_is_at_most_8_percent_below_and_15_above_the_measured_peak(kind: str, tmp_path: Path) -> None:
    """On the real code and eight layers of the paper's model; without the memory of Python and torch."""
    benchmarks = ROOT / "benchmarks"
    sys.path.insert(0, str(benchmarks))
    try:
        from random_model import make_model
    finally:
        sys.path.remove(str(benchmarks))
    make_model(tmp_path / "model", None, layers=8)
    arguments = [str(benchmarks), kind, str(tmp_path / "model"), "int8"]
    small = "import gpu_fit_worker; gpu_fit_worker.NEW_TOKENS = 16; gpu_fit_worker.PROMPT_TOKENS = 384"
    code = MEASURE.replace("import gpu_fit_worker", small, 1)
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    parts = ["sft"] if kind == "sft" else ["sampling", "learning"]
    for part in parts:
        planned, measured = (figures[f"{part}{key}"] - figures["before_gib"] for key in ("_planned_gib", "_gib"))
        # Without `heap.bound_free_memory` learning takes 13 % more than planned.
        assert 0.92 * measured < planned < 1.15 * measured, figures


@pytest.mark.parametrize("family", ["llama", "qwen3", "olmo2", "granite4", "gemma3"])
@pytest.mark.parametrize("precision", few(["fp32", "bf16"], "bf16"))
def test_what_layers_keep_is_planned_for_every_kind_of_norm(family: str, precision: str, once: Once) -> None:
    import torch

    from securecoderl_edge.models.transformer import hidden_states

    folder = once(f"family-{family}", lambda made: build_family(made, family))
    shape, dtype = read_architecture(folder), {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    targets = tuple(name.split(".")[1] for name in shape.linears())
    model = add_adapters(load_base(folder), LoraSettings(rank=4, targets=targets), seed=1)
    own, kept = {parameter.data_ptr() for parameter in model.parameters()}, {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    tokens = 512
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        hidden_states(model, torch.randint(2, 300, (1, tokens)), dtype=dtype)
    found = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    settings = replace(
        resolve("starter", (), {}),
        lora=LoraSettings(rank=4, targets=targets),
        sft=SftSettings(batch_size=1, max_tokens=1),
    )
    formats = Formats.of("cpu", "fp32", "bfloat16" if precision == "bf16" else "float32", "float32")
    planned = plan_memory(shape, settings, formats, tokens, "sft").update["activations"]
    assert 0.9 * found < planned < 1.2 * found
