"""A whole training run on a tiny model: phases, resuming, and what it leaves on disk."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from securecoderl_edge import collect, sft, updates
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.model import load_base, save_adapter
from securecoderl_edge.problems import Problem, Test, write_problems
from securecoderl_edge.reward import Score
from securecoderl_edge.runs import Run
from securecoderl_edge.scorer import Scorer
from securecoderl_edge.settings import RewardSettings, TrainSettings, resolve
from securecoderl_edge.train import Stopped, train

SOLUTIONS = ("print(int(input()) + 1)\n", "n = int(input())\nprint(n + 1)\n")
TIMES = ("seconds", "seconds_sample", "seconds_score", "seconds_update", "tokens_per_second", "peak_rss_mib")


@pytest.fixture(scope="module", autouse=True)
def varied_reward() -> Iterator[None]:
    """A random tiny model never solves anything: without differences in reward there would be nothing to learn."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collect, "training_reward", lambda score, weight, *_: len(score.program) % 7 / 7)
        yield


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("problems") / "problems.jsonl"
    tests = tuple(Test(f"{n}\n", f"{n + 1}\n") for n in range(5))
    write_problems(
        path, [Problem(f"p{n}", f"Read n. Print n + 1. ({n})", tests=tests, solutions=SOLUTIONS) for n in range(6)]
    )
    return path


@pytest.fixture(scope="module")
def settings(tiny_model: Path, problems: Path) -> Callable[..., TrainSettings]:
    def make(*overrides: str, **flags: Any) -> TrainSettings:
        small = (
            "lora.rank=4",
            "sft.steps=3",
            "sft.batch_size=4",
            "binary.steps=2",
            "partial.steps=3",
            "ppo.batch_size=8",
            "ppo.epochs=2",
            "ppo.samples_per_prompt=4",
            "ppo.max_tokens=12",
            "ppo.micro_batch_tokens=200",
            "checkpoint_every=2",
            "rate_schedule=constant",
            "ppo.skip_flat_groups=false",
        )
        values = {"model": str(tiny_model), "problems": str(problems), "device": "cpu", **flags}
        return resolve("starter", (*small, *overrides), values)

    return make


@pytest.fixture(scope="module")
def finished(settings: Callable[..., TrainSettings], tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(settings(), tmp_path_factory.mktemp("runs") / "whole")


def rows(run: Run, name: str = "metrics.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / name).read_text().splitlines()]


def untimed(run: Run) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows(run)]


def policy(run: Run) -> dict[str, torch.Tensor]:
    return load_file(run.policy / "adapter_model.safetensors")


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
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *address, **_: asked.append(address) or [])
    monkeypatch.setattr("socket.socket.connect", lambda _, address: asked.append(address))
    train(settings(), tmp_path / "run")
    assert asked == []


def test_gae_trains_with_a_ratio_of_one_and_a_value_head_that_learns(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    run = train(settings("ppo.advantage=gae", "ppo.samples_per_prompt=1", phases=("partial",)), tmp_path / "gae")
    assert {row["val/first_ratio_error"] for row in rows(run)} == {0.0}
    checkpoint = sorted((run.path / "phases/1-partial/checkpoints").glob("step-*"))[-1]
    assert any(value.abs().max() > 0 for value in load_file(checkpoint / "value_head.safetensors").values())


def test_varied_groups_are_those_with_two_rewards_and_keep_their_rows_together() -> None:
    rewards = torch.tensor([1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.4, 0.0])
    assert updates.rows_of_varied_groups(rewards, 2) == [2, 3, 6, 7]
    assert updates.rows_of_varied_groups(rewards, 4) == list(range(8))
    assert updates.rows_of_varied_groups(torch.ones(4), 2) == []


def test_a_batch_whose_groups_are_all_flat_changes_nothing(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "training_reward", lambda score, weight, *_: 0.4)
    run = train(settings("ppo.skip_flat_groups=true"), tmp_path / "flat")
    found = [row for row in rows(run) if row["phase"] != "sft"]
    assert [row["learnt_from"] for row in found] == [0] * 5
    assert not any("objective/kl" in row for row in found), "what was not measured is not reported"
    after_sft = load_file(run.path / "phases/1-sft/adapter/adapter_model.safetensors")
    assert all(torch.equal(value, after_sft[name]) for name, value in policy(run).items())


def test_skipping_flat_groups_learns_from_the_others(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    run = train(settings("ppo.skip_flat_groups=true"), tmp_path / "skipping")
    found = [row for row in rows(run) if row["phase"] != "sft"]
    assert all(row["learnt_from"] in (0, 4, 8) for row in found)
    learnt = [row for row in found if row["learnt_from"]]
    assert {row["val/first_ratio_error"] for row in learnt} == {0.0}
    assert any(row["gradient_norm"] > 0 for row in learnt)


def test_a_program_that_is_drawn_several_times_is_run_once_and_scored_for_each_sample(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts: list[updates.Rollout] = []
    run_programs: list[tuple[str, str]] = []
    real, score_async = updates.collect, Scorer.score_async

    def collecting(*arguments: Any) -> updates.Rollout:
        rollouts.append(real(*arguments))
        return rollouts[-1]

    def scoring(scorer: Scorer, problem: Problem, program: str, extract: str) -> Any:
        run_programs.append((problem.id, program))
        return score_async(scorer, problem, program, extract=extract)

    monkeypatch.setattr(updates, "collect", collecting)
    monkeypatch.setattr(Scorer, "score_async", scoring)
    train(settings("ppo.temperature=0.01", "binary.steps=1", phases=("binary",)), tmp_path / "run")
    (rollout,) = rollouts
    distinct = {(done.prompt, done.token_ids) for done in rollout.completions}
    assert len(run_programs) == len(distinct) < len(rollout.completions) == 8
    for done, score in zip(rollout.completions, rollout.scores, strict=True):
        assert (score.id, score.sample) == (rollout.problems[done.prompt].id, done.sample)
        assert (score.id, score.program) in run_programs


def test_flat_groups_that_are_skipped_count_as_the_zeros_that_they_are(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("securecoderl_edge.device.cpu_has_bf16", lambda: False)  # whose rounding depends on the batch
    monkeypatch.setattr(collect, "training_reward", lambda score, weight, *_: float(len(score.program) % 9 == 0))
    found = []
    for skip in ("true", "false"):
        chosen = settings(
            f"ppo.skip_flat_groups={skip}",
            "ppo.kl_coefficient=0",
            "ppo.batch_size=32",
            "binary.steps=1",
            phases=("sft", "binary"),
        )
        found.append(rows(train(chosen, tmp_path / skip))[-1])
    skipping, whole = found
    assert 0 < skipping["learnt_from"] < whole["learnt_from"] == 32
    assert skipping["gradient_norm"] == pytest.approx(whole["gradient_norm"], rel=1e-3)


@pytest.mark.parametrize(
    "overrides", [(), ("ppo.advantage=gae",), ("rate_schedule=linear", "ppo.skip_flat_groups=true")]
)
@pytest.mark.parametrize("updates", [1, 4, 7])
def test_a_run_that_was_stopped_and_resumed_equals_an_uninterrupted_one_bit_for_bit(
    settings: Callable[..., TrainSettings], tmp_path: Path, overrides: tuple[str, ...], updates: int
) -> None:
    config = settings(*overrides)
    whole = train(config, tmp_path / "alone" / "whole")
    done = 0

    def stop_after() -> bool:
        nonlocal done
        done += 1
        return done == updates

    with pytest.raises(Stopped):
        train(config, tmp_path / "parts", should_stop=stop_after)
    parts = train(config, tmp_path / "parts")
    assert untimed(parts) == untimed(whole)
    assert policy(parts).keys() == policy(whole).keys()
    assert all(torch.equal(value, policy(whole)[key]) for key, value in policy(parts).items())


def test_states_of_8_bits_are_resumed_bit_for_bit(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    # Tensors of 4,096 numbers and more have such states.
    config = settings("lora.rank=64", "sft.steps=4", optimizer="adamw8bit", phases=("sft", "binary"))
    whole = train(config, tmp_path / "a" / "whole")
    asked = iter((False, True, False, False, True))
    parts = tmp_path / "b" / "parts"
    for _ in range(2):
        with pytest.raises(Stopped):
            train(config, parts, should_stop=lambda: next(asked))
    saved = load_file(next((parts / "phases/1-sft/checkpoints").glob("step-*/optimizer.safetensors")))
    assert {tensor.dtype for tensor in saved.values()} >= {torch.uint8, torch.float32}
    train(config, parts)
    first, second = (load_file(run / "policy/adapter_model.safetensors") for run in (whole.path, parts))
    assert all(torch.equal(value, second[key]) for key, value in first.items())


def test_updates_lost_in_a_crash_are_repeated_with_the_same_result(
    settings: Callable[..., TrainSettings], finished: Run, tmp_path: Path
) -> None:
    def crash(row: dict[str, Any]) -> None:
        if (row["phase"], row["step"]) == ("partial", 3):
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        train(settings(), tmp_path / "crashed", log=crash)
    resumed = train(settings(), tmp_path / "crashed")
    assert untimed(resumed) == untimed(finished)
    assert all(torch.equal(value, policy(finished)[key]) for key, value in policy(resumed).items())


def test_a_finished_run_is_not_repeated(settings: Callable[..., TrainSettings], finished: Run) -> None:
    seen: list[dict[str, Any]] = []
    train(settings(), finished.path, log=seen.append)
    assert seen == []


def test_other_settings_in_the_same_folder_are_refused_by_name(
    settings: Callable[..., TrainSettings], finished: Run
) -> None:
    with pytest.raises(UsageError, match=r"ppo\.epochs: 2 -> 3"):
        train(settings("ppo.epochs=3"), finished.path)


def test_a_run_without_its_settings_is_refused_instead_of_started_again(
    settings: Callable[..., TrainSettings], finished: Run, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(finished.path, copy)
    (copy / "config.toml").unlink()
    with pytest.raises(UsageError, match=r"config\.toml is gone"):
        train(settings(), copy)
    assert (copy / "phases").is_dir()


def test_a_folder_that_is_no_run_is_left_alone(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    for resume in (True, False):
        with pytest.raises(UsageError, match="not a training run"):
            train(settings(), tmp_path, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_damaged_checkpoint_is_refused_by_name(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        train(settings(), tmp_path / "run", should_stop=lambda: True)
    (optimizer,) = (tmp_path / "run").glob("phases/*/checkpoints/*/optimizer.safetensors")
    content = bytearray(optimizer.read_bytes())
    content[-1] ^= 1
    optimizer.write_bytes(content)
    with pytest.raises(SceError, match=r"optimizer\.safetensors is damaged"):
        train(settings(), tmp_path / "run")


def test_a_full_disk_stops_the_run_and_leaves_no_half_checkpoint(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(tensors: dict[str, torch.Tensor], path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("securecoderl_edge.checkpoint.save_file", no_space)
    with pytest.raises(SceError, match="No space left on device"):
        train(settings(), tmp_path / "run")
    assert list((tmp_path / "run/phases/1-sft/checkpoints").iterdir()) == []


def test_a_warm_start_on_the_shortest_solutions_sees_no_others(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    losses = []
    for name, solutions in (("both", SOLUTIONS[::-1]), ("short", SOLUTIONS[:1])):
        tests = (Test("1\n", "2\n"),)
        write_problems(tmp_path / name, [Problem("p", "Read n. Print n + 1.", tests=tests, solutions=solutions)])
        chosen = settings("sft.solutions=shortest", "sft.steps=4", problems=str(tmp_path / name), phases=("sft",))
        losses.append([row["loss/sft"] for row in rows(train(chosen, tmp_path / f"run-{name}"))])
    assert losses[0] == losses[1]


def test_no_start_token_comes_between_a_prompt_and_its_solution(
    settings: Callable[..., TrainSettings], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    make_batch = sft.make_batch
    monkeypatch.setattr(sft, "make_batch", lambda pairs, *rest: (seen.extend(pairs), make_batch(pairs, *rest))[1])
    train(settings(model=str(folder), phases=("sft",)), tmp_path / "run")
    assert seen
    for prompt, solution in seen:
        assert prompt[0] == 0
        assert 0 not in prompt[1:] + solution


def test_other_problems_under_the_same_name_are_refused(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    path, tests = tmp_path / "mine.jsonl", (Test("1\n", "2\n"),)
    for output, expected in (("2\n", None), ("3\n", UsageError)):
        tests = (Test("1\n", output),)
        write_problems(path, [Problem("p", "Read n. Print n + 1.", tests=tests, solutions=SOLUTIONS)])
        chosen = settings("sft.steps=1", problems=str(path), phases=("sft",))
        if expected is None:
            train(chosen, tmp_path / "run")
        else:
            with pytest.raises(expected, match=r"made from other .*mine\.jsonl"):
                train(chosen, tmp_path / "run")


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_damaged_record_of_a_run_is_named(
    content: str, settings: Callable[..., TrainSettings], finished: Run, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(finished.path, copy)
    (copy / "environment.json").write_text(content)
    with pytest.raises(SceError, match=r"environment\.json|other weights"):
        train(settings(), copy)


def test_a_damaged_state_of_a_checkpoint_is_named(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        train(settings(), tmp_path / "run", should_stop=lambda: True)
    (state,) = (tmp_path / "run").glob("phases/*/checkpoints/*/state.json")
    whole = json.loads(state.read_text())
    lies = [{"step": 7}, {"step": "1"}, {"ended": 3}, {"pass_rate": "high"}, {"evaluations": -1}, {"sha256": {}}]
    texts = [json.dumps(whole | lie) for lie in lies]
    for content in ("{", "{}", '{"facts": {}, "sha256": 3, "step": 1, "optimizer": {}}', *texts):
        state.write_text(content)
        with pytest.raises(SceError, match=r"state\.json is damaged"):
            train(settings(), tmp_path / "run")


def test_a_policy_is_there_as_a_whole_or_not_at_all(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(model: Any, folder: Path, base_name: str) -> None:
        save_adapter(model, folder, base_name)
        raise KeyboardInterrupt

    monkeypatch.setattr("securecoderl_edge.published.save_adapter", killed)
    with pytest.raises(KeyboardInterrupt):
        train(settings("sft.steps=1", phases=("sft",)), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run/phases/1-sft").iterdir()] == ["checkpoints"]
    assert not (tmp_path / "run/policy").exists()


def test_a_model_in_a_folder_is_recorded_so_that_it_is_found_from_elsewhere(
    settings: Callable[..., TrainSettings], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(tiny_model, tmp_path / "models/tiny")
    monkeypatch.chdir(tmp_path)
    run = train(settings("sft.steps=1", model="models/tiny", phases=("sft",)), Path("run"))
    monkeypatch.chdir(tmp_path / "models")
    record = json.loads((tmp_path / run.policy / "adapter_config.json").read_text())
    for base in (Run(tmp_path / "run").base_model, record["base_model_name_or_path"]):
        assert Path(base) == (tmp_path / "models/tiny").resolve()


def test_each_phase_is_paid_by_its_own_reward_in_the_reading_asked_for(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[tuple[float, str]] = []

    def pay(score: Score, weight: float, reward: RewardSettings, passes: int) -> float:
        paid.append((weight, reward.reading))
        return 0.5

    monkeypatch.setattr(collect, "training_reward", pay)
    train(settings("reward.reading=paper"), tmp_path / "run")
    assert paid == [(0.0, "paper")] * 2 * 8 + [(1.0, "paper")] * 3 * 8


def test_the_kl_penalty_changes_what_is_learnt(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    policies = []
    for coefficient in (0.0, 5.0):
        chosen = settings(f"ppo.kl_coefficient={coefficient}", "ppo.learning_rate=0.01", phases=("binary",))
        policies.append(policy(train(chosen, tmp_path / f"{coefficient}")))
    assert any(not torch.equal(value, policies[1][name]) for name, value in policies[0].items())


def test_problems_without_solutions_cannot_warm_start(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    path = tmp_path / "bare.jsonl"
    write_problems(path, [Problem("p", "Read n. Print it.", tests=(Test("1\n", "1\n"),))])
    with pytest.raises(SceError, match="--phases binary,partial"):
        train(settings(problems=str(path)), tmp_path / "run")


@pytest.mark.parametrize(
    ("overrides", "flags", "message"),
    [
        (("ppo.samples_per_prompt=1",), {}, "at least 2"),
        (("ppo.advantage=gae", "ppo.skip_flat_groups=true"), {}, "learns from every sample"),
        (("ppo.batch_size=9",), {}, "no multiple"),
        (("ppo.learning_rat=1",), {}, "unknown setting 'learning_rat'"),
        (("sft.steps=0",), {}, "at least 1"),
        ((), {"phases": ("binary", "sft")}, "sft must come first"),
        ((), {"phases": ()}, "empty"),
    ],
)
def test_impossible_settings_are_usage_errors(
    settings: Callable[..., TrainSettings], overrides: tuple[str, ...], flags: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        settings(*overrides, **flags)
