"""A whole training run on a tiny model: phases, resuming, and what it leaves on disk."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from safetensors.torch import load_file
from small_runs import rows, varied_reward, weights

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.loading import load_base
from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.runs import Run
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.training.settings import RewardSettings, TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import prompt_sampling, rollout, supervised

SOLUTIONS = ("print(int(input()) + 1)\n", "n = int(input())\nprint(n + 1)\n")


def policy(run: Run) -> dict[str, torch.Tensor]:
    return weights(run.path / "policy")


def test_every_update_of_every_phase_has_its_row(finished: Run) -> None:
    expected = [("sft", n) for n in (1, 2, 3)] + [("binary", n) for n in (1, 2)] + [("partial", n) for n in (1, 2, 3)]
    assert [(row["phase"], row["step"]) for row in rows(finished)] == expected


def test_the_final_adapter_is_usable_with_peft_alone(finished: Run, tiny_model: Path) -> None:
    from peft import PeftModel

    model = PeftModel.from_pretrained(load_base(tiny_model), finished.policy)
    assert model(torch.tensor([[3, 4]])).logits.isfinite().all()


def test_the_ratio_is_exactly_one_in_the_first_epoch_of_every_update(finished: Run) -> None:
    assert {row["val/first_ratio_error"] for row in rows(finished) if row["phase"] != "sft"} == {0.0}


def test_the_kl_starts_at_zero_because_the_reference_is_the_supervised_policy(finished: Run) -> None:
    first = next(row for row in rows(finished) if row["phase"] == "binary")
    later = [row for row in rows(finished) if row["phase"] == "partial"]
    assert first["objective/kl"] == 0
    assert any(row["objective/kl"] != 0 for row in later)


def test_training_on_local_files_asks_no_other_machine_for_anything(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *address, **_: asked.append(address) or [])
    monkeypatch.setattr("socket.socket.connect", lambda _, address: asked.append(address))
    train(epoch_settings(), tmp_path / "run")
    assert asked == []


def test_gae_trains_with_a_ratio_of_one_and_a_value_head_that_learns(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    run = train(epoch_settings("ppo.advantage=gae", "ppo.samples_per_prompt=1", phases=("partial",)), tmp_path / "gae")
    assert {row["val/first_ratio_error"] for row in rows(run)} == {0.0}
    checkpoint = sorted((run.path / "phases/1-partial/checkpoints").glob("step-*"))[-1]
    assert any(value.abs().max() > 0 for value in load_file(checkpoint / "value_head.safetensors").values())


def test_varied_groups_are_those_with_two_rewards_and_keep_their_rows_together() -> None:
    rewards = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.4, 0.0])
    assert prompt_sampling.rows_of_varied_groups(rewards, 2) == [2, 3, 6, 7]
    assert prompt_sampling.rows_of_varied_groups(rewards, 4) == list(range(8))
    assert prompt_sampling.rows_of_varied_groups(torch.ones(4), 2) == []


def test_a_batch_whose_groups_are_all_flat_changes_nothing(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "training_reward", lambda score, weight, *_: 0.4)
    run = train(epoch_settings("ppo.drop_zero_variance_groups=true"), tmp_path / "flat")
    found = [row for row in rows(run) if row["phase"] != "sft"]
    assert [row["groups_used"] for row in found] == [0] * 5
    assert [row["objective/kl"] for row in found] == pytest.approx([0.0] * 5, abs=1e-3), "of dropped groups, too"
    after_sft = load_file(run.path / "phases/1-sft/adapter/adapter_model.safetensors")
    assert all(torch.equal(value, after_sft[name]) for name, value in policy(run).items())


def half_are_flat(score: Score, weight: float, *_: Any) -> float:
    """Rewards that differ between the completions of every second problem alone."""
    return varied_reward(score, weight) if int(score.id[1:]) % 2 else 0.4


def test_skipping_flat_groups_learns_from_the_others(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "training_reward", half_are_flat)
    chosen = epoch_settings("ppo.drop_zero_variance_groups=true", "selection.problems=0", "binary.steps=3")
    found = [row for row in rows(train(chosen, tmp_path / "skipping")) if row["phase"] != "sft"]
    # Three updates of two problems see each of the six once.
    assert [sum(row["groups_used"] for row in found if row["phase"] == phase) for phase in ("binary", "partial")] == [
        3,
        3,
    ]
    trained = [row for row in found if row["groups_used"]]
    assert {row["val/first_ratio_error"] for row in trained} == {0.0}
    assert any(row["grad_norm"] > 0 for row in trained)


def test_a_program_that_is_drawn_several_times_is_run_once_and_scored_for_each_sample(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts: list[rollout.Rollout] = []
    run_programs: list[tuple[str, str]] = []
    real, score_async = prompt_sampling.collect, Scorer.score_async

    def collecting(*arguments: Any, **options: Any) -> rollout.Rollout:
        rollouts.append(real(*arguments, **options))
        return rollouts[-1]

    def scoring(scorer: Scorer, problem: Problem, program: str, extract: str) -> Any:
        run_programs.append((problem.id, program))
        return score_async(scorer, problem, program, extract=extract)

    monkeypatch.setattr(prompt_sampling, "collect", collecting)
    monkeypatch.setattr(Scorer, "score_async", scoring)
    train(epoch_settings("ppo.temperature=0.01", "binary.steps=1", phases=("binary",)), tmp_path / "run")
    (made,) = rollouts
    distinct = {(done.prompt, done.token_ids) for done in made.completions}
    assert len(run_programs) == len(distinct) < len(made.completions) == 8
    for done, score in zip(made.completions, made.scores, strict=True):
        assert (score.id, score.sample) == (made.problems[done.prompt].id, done.sample)
        assert (score.id, score.program) in run_programs


def test_flat_groups_that_are_skipped_count_as_the_zeros_that_they_are(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "securecoderl_edge.models.device.cpu_has_bf16", lambda: False
    )  # whose rounding depends on the batch
    monkeypatch.setattr(rollout, "training_reward", half_are_flat)
    found = []
    for skip in ("true", "false"):
        chosen = epoch_settings(
            f"ppo.drop_zero_variance_groups={skip}",
            "ppo.kl_coefficient=0",
            "ppo.batch_size=32",
            "binary.steps=1",
            phases=("sft", "binary"),
        )
        found.append(rows(train(chosen, tmp_path / skip))[-1])
    skipping, whole = found
    assert 0 < skipping["groups_used"] < whole["groups_used"] == 8
    assert skipping["grad_norm"] == pytest.approx(whole["grad_norm"], rel=1e-3)


def test_a_warm_start_on_the_shortest_solutions_sees_no_others(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    losses = []
    for name, solutions in (("both", SOLUTIONS[::-1]), ("short", SOLUTIONS[:1])):
        tests = (Test("1\n", "2\n"),)
        write_problems(tmp_path / name, [Problem("p", "Read n. Print n + 1.", tests=tests, solutions=solutions)])
        chosen = epoch_settings("sft.solutions=shortest", "sft.steps=4", problems=str(tmp_path / name), phases=("sft",))
        losses.append([row["loss/sft"] for row in rows(train(chosen, tmp_path / f"run-{name}"))])
    assert losses[0] == losses[1]


def test_no_start_token_comes_between_a_prompt_and_its_solution(
    epoch_settings: Callable[..., TrainSettings], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_model, folder)
    document = json.loads((folder / "tokenizer.json").read_text())
    first, sequence = {"SpecialToken": {"id": "<pad>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [first, sequence],
        "pair": [first, sequence],
        "special_tokens": {"<pad>": {"id": "<pad>", "ids": [0], "tokens": ["<pad>"]}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(document))
    seen: list[tuple[list[int], list[int]]] = []
    make_batch = supervised.make_batch
    monkeypatch.setattr(
        supervised, "make_batch", lambda pairs, *rest: (seen.extend(pairs), make_batch(pairs, *rest))[1]
    )
    train(epoch_settings(model=str(folder), phases=("sft",)), tmp_path / "run")
    assert seen
    for prompt, solution in seen:
        assert prompt[0] == 0
        assert 0 not in [*prompt[1:], *solution]


def test_a_model_in_a_folder_is_recorded_so_that_it_is_found_from_elsewhere(
    epoch_settings: Callable[..., TrainSettings], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_model, tmp_path / "models/tiny")
    monkeypatch.chdir(tmp_path)
    run = train(epoch_settings("sft.steps=1", model="models/tiny", phases=("sft",)), Path("run"))
    monkeypatch.chdir(tmp_path / "models")
    record = json.loads((tmp_path / run.policy / "adapter_config.json").read_text())
    for base in (Run(tmp_path / "run").base_model, record["base_model_name_or_path"]):
        assert Path(base) == (tmp_path / "models/tiny").resolve()


def test_each_phase_is_paid_by_its_own_reward_in_the_reading_asked_for(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[tuple[float, str]] = []

    def pay(score: Score, weight: float, reward: RewardSettings, passes: int) -> float:
        paid.append((weight, reward.unparsable))
        return 0.5

    monkeypatch.setattr(rollout, "training_reward", pay)
    train(epoch_settings("reward.unparsable=paper"), tmp_path / "run")
    assert paid == [(0.0, "paper")] * 2 * 8 + [(1.0, "paper")] * 3 * 8


def test_security_tests_are_part_of_the_reward_and_of_the_metrics(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    attack = (SecurityTest("code", 95, 'print("OW""NED")\n', forbidden="OWNED"),)
    problems = [
        Problem(f"p{n}", f"Print n + 1. {n}", tests=(Test("1\n", "2\n"), Test("3\n", "4\n")), security_tests=attack)
        for n in range(20)
    ]
    write_problems(tmp_path / "attacked.jsonl", [replace(problem, solutions=SOLUTIONS) for problem in problems])
    programs = itertools.cycle(("print(eval(input()) + 1)", SOLUTIONS[0]))
    monkeypatch.setattr(rollout, "extract_program", lambda *_: next(programs))
    found: dict[str, list[dict[str, Any]]] = {}
    for rule in ("both", "bandit"):
        settings = epoch_settings(f"reward.security={rule}", problems=str(tmp_path / "attacked.jsonl"))
        run = train(settings, tmp_path / rule)
        found[rule] = [row for row in rows(run) if row["phase"] == "partial"]
    for rule, rewards in (("both", (0.6, 1.0)), ("bandit", (0.8, 1.0))):
        for row in found[rule]:
            assert (row["all_tests_rate"], row["func_sec_rate"], row["security_tests_rate"]) == (1.0, 0.5, 0.5)
            assert row["reward"] == pytest.approx(sum(rewards) / 2)


def test_the_kl_penalty_changes_the_result(epoch_settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    policies = []
    for coefficient in (0.0, 5.0):
        chosen = epoch_settings(f"ppo.kl_coefficient={coefficient}", "ppo.learning_rate=0.01", phases=("binary",))
        policies.append(policy(train(chosen, tmp_path / f"{coefficient}")))
    assert any(not torch.equal(value, policies[1][name]) for name, value in policies[0].items())


def test_problems_without_solutions_cannot_warm_start(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    path = tmp_path / "bare.jsonl"
    write_problems(path, [Problem("p", "Read n. Print it.", tests=(Test("1\n", "1\n"),))])
    with pytest.raises(SceError, match="--phases binary,partial"):
        train(epoch_settings(problems=str(path)), tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "flags", "message"),
    [
        (("ppo.samples_per_prompt=1",), {}, "at least 2"),
        (("ppo.advantage=gae", "ppo.drop_zero_variance_groups=true"), {}, "uses every completion"),
        (("ppo.minibatches=4",), {}, "a batch has 2 prompts, which ppo.minibatches 4 does not divide"),
        (("ppo.batch_size=9",), {}, "not a multiple"),
        (("ppo.learning_rat=1",), {}, "unknown setting 'learning_rat'"),
        (("sft.steps=0",), {}, "at least 1"),
        ((), {"phases": ("binary", "sft")}, "sft must come first"),
        ((), {"phases": ()}, "empty"),
    ],
)
def test_impossible_settings_are_usage_errors(
    epoch_settings: Callable[..., TrainSettings], overrides: tuple[str, ...], flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        epoch_settings(*overrides, **flags)
