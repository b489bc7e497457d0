"""What can go wrong with a run: damage, two at a time, NaN or Inf, other settings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from safetensors.torch import load_file
from small_runs import equal, outcome, rows, scripted

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.runs import Run
from securecoderl_edge.system.files import locked
from securecoderl_edge.training import phase
from securecoderl_edge.training.checkpoint import checkpoints
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import minibatches, ppo_update, rollout
from securecoderl_edge.training.update.learner import Learner

pytestmark = pytest.mark.usefixtures("varied_reward")


def test_a_checkpoint_of_another_base_model_is_refused(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    with pytest.raises(phase.Stopped):
        train(settings(), tmp_path / "run", should_stop=lambda: True)
    newest = checkpoints(tmp_path / "run/phases/1-sft/checkpoints")[-1]
    state = json.loads((newest / "state.json").read_text())
    state["facts"]["base_model"] = "another"
    (newest / "state.json").write_text(json.dumps(state))
    with pytest.raises(SceError, match=f"{newest.name} was made with other base model"):
        train(settings(), tmp_path / "run")


def test_half_a_checkpoint_is_refused_by_name_and_the_one_before_it_offered(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    with pytest.raises(phase.Stopped):
        train(settings(), tmp_path / "run", should_stop=lambda: True)
    folder = tmp_path / "run/phases/1-sft/checkpoints"
    shutil.copytree(checkpoints(folder)[-1], folder / "step-000009")
    (folder / "step-000009/state.json").unlink()
    with pytest.raises(
        SceError, match=r"step-000009 is not a complete checkpoint.*delete it to resume from step-000001"
    ):
        train(settings(), tmp_path / "run")


def test_two_trainings_do_not_work_in_one_folder(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with locked(tmp_path / "run"), pytest.raises(SceError, match="another process is using"):
        train(settings(), tmp_path / "run")


def test_what_a_killed_process_left_behind_is_cleared_away(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    with pytest.raises(phase.Stopped):
        train(settings(), tmp_path / "run", should_stop=lambda: True)
    left = tmp_path / "run/phases/1-sft/checkpoints/.step-000002.tmp-1-abcd"
    left.mkdir()
    train(settings(), tmp_path / "run")
    assert not left.exists()


def test_an_update_that_is_not_finite_stops_with_its_batch_saved_and_the_checkpoint_intact(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings("selection.problems=0", phases=("binary",))
    real, calls = minibatches.policy_loss, 0

    def broken(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        found = real(*arguments)
        return found if calls < 3 else replace(found, loss=found.loss * float("nan"))

    monkeypatch.setattr(minibatches, "policy_loss", broken)
    run = tmp_path / "a" / "run"
    with pytest.raises(SceError, match=r"NaN or Inf in the loss of binary update \d.*not-finite-00000\d.safetensors"):
        train(config, run)
    (saved,) = run.glob("phases/1-binary/not-finite-*.safetensors")
    assert {"tokens", "mask", "log_probs", "reference", "advantages", "rewards"} <= load_file(saved).keys()
    monkeypatch.setattr(minibatches, "policy_loss", real)
    assert equal(train(config, run).policy, train(config, tmp_path / "b" / "whole").policy)


def test_a_reward_that_is_not_finite_is_named(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout, "training_reward", lambda *_: float("inf"))
    with pytest.raises(SceError, match="NaN or Inf in a reward of binary update 1"):
        train(settings(phases=("binary",)), tmp_path / "run")


def test_running_out_of_memory_names_the_knob(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 9 bytes.")

    monkeypatch.setattr(ppo_update, "completion_log_probs", full)
    with pytest.raises(SceError, match=r"out of memory while .*Lower ppo\.micro_batch_tokens"):
        train(settings(phases=("binary",)), tmp_path / "run")


def test_a_phase_ends_after_its_newest_checkpoint_was_damaged_and_deleted(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though that one was the best, and the best before it came long before."""
    scripted(monkeypatch, 0.9, 0.1, 0.95, 0.2, 0.3, 0.4)
    asked = iter([False] * 3 + [True])
    config = settings("binary.steps=6", phases=("binary",))
    with pytest.raises(phase.Stopped):
        train(config, tmp_path / "run", should_stop=lambda: next(asked))
    folder = Run(tmp_path / "run").phase_folder(1, "binary")
    shutil.rmtree(folder / "checkpoints/step-000004")
    run = train(config, tmp_path / "run")
    assert outcome(run, "binary")["chosen_step"] == 0
    assert equal(folder / "best", run.policy)


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be reported later",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(...)`",
        "CUDA driver error: device not ready",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "HIP error: unspecified launch failure",
    ],
)
def test_a_gpu_that_fails_ends_the_run_with_the_way_to_resume_it(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    calls = count(1)

    def fails(self: Learner, *arguments: Any, real: Any = Learner.step, **named: Any) -> Any:
        if next(calls) == 2:
            raise RuntimeError(words)
        return real(self, *arguments, **named)

    monkeypatch.setattr(Learner, "step", fails)
    with pytest.raises(SceError, match=f"the GPU failed in sft update 2 of 2 .{words[:9]}") as caught:
        train(settings(), tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("step-000001 is intact: run the same command to resume")


def test_a_gpu_that_fails_before_the_first_checkpoint_is_said_to_leave_none(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("CUDA error: unknown error")

    monkeypatch.setattr(Learner, "step", fails)
    with pytest.raises(SceError, match=r"sft update 1 of 2 \(CUDA.*\)\. sft has no checkpoint yet: run the same"):
        train(settings("selection.problems=0"), tmp_path / "run")


def test_an_error_that_is_not_the_gpu_s_is_not_taken_for_one(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("The size of tensor a (3) must match the size of tensor b (4)")

    monkeypatch.setattr(Learner, "step", fails)
    with pytest.raises(RuntimeError, match="must match"):
        train(settings(), tmp_path / "run")


@pytest.mark.parametrize("words", ["CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"])
def test_memory_that_cuda_itself_lacks_names_the_setting_to_lower(
    settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError(words)

    monkeypatch.setattr(Learner, "step", fails)
    with pytest.raises(SceError, match=r"out of memory while .*\. Lower ppo.micro_batch_tokens and resume"):
        train(settings(), tmp_path / "run")


def test_starting_anew_throws_away_nothing_but_runs(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    (tmp_path / "mine/policy").mkdir(parents=True)
    (tmp_path / "mine/environment.json").write_text('{"id": "postman"}')
    with pytest.raises(UsageError, match="not a training run"):
        train(settings(), tmp_path / "mine", resume=False)
    assert (tmp_path / "mine/policy").exists()


@pytest.mark.parametrize("name", ["policy", "phases/2-binary/adapter"])
def test_a_damaged_result_of_a_run_is_not_gone_on_from(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path, name: str
) -> None:
    shutil.copytree(whole.path, tmp_path / "run")
    file = tmp_path / "run" / name / "adapter_model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    if name != "policy":
        shutil.rmtree(tmp_path / "run/policy")
    with pytest.raises(SceError, match=rf"{name}/adapter_model.safetensors is damaged"):
        train(settings(), tmp_path / "run")


def test_starting_anew_removes_links_and_not_what_they_lead_to(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.path, tmp_path / "run")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/thesis.tex").write_text("years of work")
    (tmp_path / "run/exports").symlink_to(tmp_path / "elsewhere")
    train(settings(phases=("sft",)), tmp_path / "run", resume=False)
    assert (tmp_path / "elsewhere/thesis.tex").exists()
    assert not (tmp_path / "run/exports").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"memory_gib": 0.1}, "does not fit|needs about"),
        ("prompt.style=chat", "chat"),
        ("prompt.max_tokens=5", "prompt"),
    ],
)
def test_a_new_run_that_is_refused_costs_nothing_of_the_old_one(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path, changed: Any, message: str
) -> None:
    shutil.copytree(whole.path, tmp_path / "run")
    asked = settings(changed) if isinstance(changed, str) else settings(**changed)
    with pytest.raises(SceError, match=message):
        train(asked, tmp_path / "run", resume=False)
    files = {path.relative_to(whole.path) for path in whole.path.rglob("*")}
    assert files <= {path.relative_to(tmp_path / "run") for path in (tmp_path / "run").rglob("*")}


def test_a_run_that_was_half_thrown_away_can_be_thrown_away_again(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(whole.path, tmp_path / "run")

    class Killed(BaseException):
        pass

    def killed(path: Path) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(Killed):
            train(settings(phases=("sft",)), tmp_path / "run", resume=False)
    assert train(settings(phases=("sft",)), tmp_path / "run", resume=False).policy.exists()


def test_a_run_that_was_refused_before_it_began_takes_other_settings(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"needs about .* GiB, .* 0\.1 GiB are available"):
        train(settings(memory_gib=0.1), tmp_path / "run")
    assert train(settings("seed=7", phases=("sft",)), tmp_path / "run").policy.is_dir()


def test_what_decides_memory_alone_may_change_while_a_run_goes_on(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(phase.Stopped):
        train(settings(), tmp_path / "a" / "run", should_stop=lambda: True)
    changed = settings("ppo.rollout_sequences=8", "checkpoint_every=2", gradient_checkpointing=True, memory_gib=9.0)
    run = train(changed, tmp_path / "a" / "run")
    assert "rollout_sequences = 8" in (run.path / "config.toml").read_text()
    # Computing layers again changes no bit; decoding fewer at a time is rounding, so the first updates are the same.
    same = ("loss/sft", "objective/reward", "grad_norm")
    for before, after in zip(rows(whole)[:3], rows(run)[:3], strict=True):
        for name in before.keys() & set(same):
            assert after[name] == pytest.approx(before[name], rel=1e-3)
    with pytest.raises(UsageError, match=r"other settings \(ppo.epochs"):
        train(settings("ppo.epochs=2"), run.path)


def test_a_run_that_has_made_something_does_not_take_other_settings(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    """Though its phases were deleted to save space: its policy is that of the settings that it was made with."""
    shutil.copytree(whole.path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run/phases")
    config = (tmp_path / "run/config.toml").read_text()
    with pytest.raises(UsageError, match=r"other settings \(seed"):
        train(settings(seed=7), tmp_path / "run")
    train(settings(gradient_checkpointing=True), tmp_path / "run")
    assert (tmp_path / "run/config.toml").read_text() == config
