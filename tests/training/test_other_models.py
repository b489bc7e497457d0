"""A model that only transformers computes, from training to a merged folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from cli_runs import run_sce
from once import Once
from other_models import MODELS, build_other
from small_runs import EPOCHS, rows, settings_maker, varied_reward, write_additions

from securecoderl_edge.errors import UsageError
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.runs import Run
from securecoderl_edge.runtimes.hf import HfRuntime
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.training.plan import make_plan
from securecoderl_edge.training.train import train


@pytest.fixture(scope="module", params=["GPT-2", "StarCoder2"])
def trained(request: pytest.FixtureRequest, once: Once, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    name = request.param
    base = once(f"other-{name}", lambda folder: build_other(folder, name))
    folder = tmp_path_factory.mktemp("other")
    problems = write_additions(folder / "problems.jsonl")
    targets = json.dumps(list(MODELS[name][2]))
    settings = settings_maker(base, problems, EPOCHS)(
        f"lora.targets={targets}",
        "ppo.advantage=gae",
        "sft.steps=8",
        "readiness_problems=0",
        "sft.learning_rate=0.003",
        phases=("sft", "partial"),
    )
    said: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("securecoderl_edge.training.update.rollout.training_reward", varied_reward)
        run = train(settings, folder / "run", say=said.append)
    assert any("transformers computes" in line for line in said)
    return base, run


def test_it_is_trained_with_supervision_and_with_rewards(trained: tuple[Path, Run]) -> None:
    _, run = trained
    supervised = [row for row in rows(run) if row["phase"] == "sft" and "loss/sft" in row]
    assert sum(row["loss/sft"] for row in supervised[-2:]) < sum(row["loss/sft"] for row in supervised[:2])
    rewarded = [row for row in rows(run) if row["phase"] == "partial" and "val/ratio" in row]
    assert rewarded
    assert all(row["grad_norm"] > 0 and row["val/first_ratio_error"] < 1e-4 for row in rewarded)


def test_its_merged_folder_answers_as_the_policy(trained: tuple[Path, Run], tmp_path: Path) -> None:
    base, run = trained
    code, _, told = run_sce("export", str(run.path), "--format", "hf", "--out", str(tmp_path / "merged"))
    assert code == 0, told
    prompts = ["n = int(input())\n", "print"]
    answers = [
        HfRuntime(str(folder), adapter, threads=1).generate(prompts, 1, Sampling(0.0, 12))
        for folder, adapter in ((base, run.policy), (tmp_path / "merged", None))
    ]
    assert [done.token_ids for (done,) in answers[0]] == [done.token_ids for (done,) in answers[1]]
    tokens = torch.tensor([[5, 6, 7]])
    changed = load_base(tmp_path / "merged")(input_ids=tokens).logits - load_base(base)(input_ids=tokens).logits
    assert float(changed.abs().max()) > 0


def test_every_command_says_in_one_line_who_computes_it(trained: tuple[Path, Run], tmp_path: Path) -> None:
    _, run = trained
    for words in (
        ("generate", "Print 1.", "--model", str(run.path), "--max-tokens", "4", "--raw"),
        ("bench", str(run.path), "--limit", "1", "--max-tokens", "4", "--threads", "1"),
    ):
        _, _, told = run_sce(*words)
        assert told.count("slower, without a memory plan") == 1


@pytest.mark.parametrize("kind", ["gguf", "onnx", "adapter"])
def test_other_formats_are_refused_with_the_reason_and_the_way_out(trained: tuple[Path, Run], kind: str) -> None:
    _, run = trained
    code, _, told = run_sce("export", str(run.path), "--format", kind)
    told = " ".join(told.split())
    assert code == 2
    assert "is not supported, only LlamaForCausalLM" in told
    assert "Export it with --format hf" in told
    assert "policy is the adapter in PEFT's format" in told


def test_what_it_cannot_do_is_said_before_anything_is_loaded(trained: tuple[Path, Run], tmp_path: Path) -> None:
    base, _ = trained
    problems = write_additions(tmp_path / "problems.jsonl")
    make = settings_maker(base, problems, EPOCHS)
    with pytest.raises(UsageError, match=r"no linear layer .*lora\.targets"):
        train(make('lora.targets=["k_project"]'), tmp_path / "run")
    targets = 'lora.targets=["c_proj"]'
    with pytest.raises(UsageError, match="--gradient-checkpointing is not supported"):
        train(make(targets, gradient_checkpointing=True), tmp_path / "run")
    plan = make_plan(make(targets, phases=("partial",)))
    assert any("The memory is a lower bound" in line for line in plan.missing)
