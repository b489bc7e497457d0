"""A stopped run resumes as if it had not been stopped, and nothing else is resumed."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from once import Once
from quick import few
from safetensors.torch import load_file
from small_runs import untimed, weights

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.adapters import save_adapter
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.runs import Run
from securecoderl_edge.training.phase import Stopped
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.train import train

SOLUTIONS = ("print(int(input()) + 1)\n", "n = int(input())\nprint(n + 1)\n")


def policy(run: Run) -> dict[str, torch.Tensor]:
    return weights(run.path / "policy")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((), marks=pytest.mark.slow),
        ("ppo.advantage=gae",),
        ("lr_schedule=linear", "ppo.drop_zero_variance_groups=true"),
    ],
)
def resumed(
    request: pytest.FixtureRequest, epoch_settings: Callable[..., TrainSettings], once: Once
) -> tuple[TrainSettings, Run]:
    """Settings, and an uninterrupted run with them; read only."""
    config = epoch_settings(*request.param)
    name = f"resumed-{'-'.join(request.param)}"
    return config, Run(once(name, lambda folder: train(config, folder / "run")) / "run")


@pytest.mark.parametrize("updates", few([1, 4, 7], 4))
def test_a_run_that_was_stopped_and_resumed_equals_an_uninterrupted_one_bit_for_bit(
    resumed: tuple[TrainSettings, Run], tmp_path: Path, updates: int
) -> None:
    (config, whole), done = resumed, 0

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


def test_states_of_8_bits_are_resumed_bit_for_bit(epoch_settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    # Tensors of 4,096 numbers and more have such states.
    config = epoch_settings("lora.rank=64", "sft.steps=4", optimizer="adamw8bit", phases=("sft", "binary"))
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
    epoch_settings: Callable[..., TrainSettings], finished: Run, tmp_path: Path
) -> None:
    def crash(row: dict[str, Any]) -> None:
        if (row["phase"], row["step"]) == ("partial", 3):
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        train(epoch_settings(), tmp_path / "crashed", log=crash)
    resumed = train(epoch_settings(), tmp_path / "crashed")
    assert untimed(resumed) == untimed(finished)
    assert all(torch.equal(value, policy(finished)[key]) for key, value in policy(resumed).items())


def test_a_finished_run_is_not_repeated(epoch_settings: Callable[..., TrainSettings], finished: Run) -> None:
    seen: list[dict[str, Any]] = []
    train(epoch_settings(), finished.path, log=seen.append)
    assert seen == []


def test_other_settings_in_the_same_folder_are_refused_by_name(
    epoch_settings: Callable[..., TrainSettings], finished: Run
) -> None:
    with pytest.raises(UsageError, match=r"ppo\.epochs: 2 -> 3"):
        train(epoch_settings("ppo.epochs=3"), finished.path)


def test_a_run_without_its_settings_is_refused_instead_of_started_again(
    epoch_settings: Callable[..., TrainSettings], finished: Run, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(finished.path, copy)
    (copy / "config.toml").unlink()
    with pytest.raises(UsageError, match=r"config\.toml is missing"):
        train(epoch_settings(), copy)
    assert (copy / "phases").is_dir()


def test_a_folder_that_is_no_run_is_left_alone(epoch_settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    for resume in (True, False):
        with pytest.raises(UsageError, match="not a training run"):
            train(epoch_settings(), tmp_path, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_damaged_checkpoint_is_refused_by_name(epoch_settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        train(epoch_settings(), tmp_path / "run", should_stop=lambda: True)
    (optimizer,) = (tmp_path / "run").glob("phases/*/checkpoints/*/optimizer.safetensors")
    content = bytearray(optimizer.read_bytes())
    content[-1] ^= 1
    optimizer.write_bytes(content)
    with pytest.raises(SceError, match=r"optimizer\.safetensors is damaged"):
        train(epoch_settings(), tmp_path / "run")


def test_a_full_disk_stops_the_run_and_leaves_no_half_checkpoint(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(tensors: dict[str, torch.Tensor], path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("securecoderl_edge.training.checkpoint.save_file", no_space)
    with pytest.raises(SceError, match="No space left on device"):
        train(epoch_settings(), tmp_path / "run")
    assert list((tmp_path / "run/phases/1-sft/checkpoints").iterdir()) == []


def test_other_problems_under_the_same_name_are_refused(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    path, tests = tmp_path / "mine.jsonl", (Test("1\n", "2\n"),)
    for output, expected in (("2\n", None), ("3\n", UsageError)):
        tests = (Test("1\n", output),)
        write_problems(path, [Problem("p", "Read n. Print n + 1.", tests=tests, solutions=SOLUTIONS)])
        chosen = epoch_settings("sft.steps=1", problems=str(path), phases=("sft",))
        if expected is None:
            train(chosen, tmp_path / "run")
        else:
            with pytest.raises(expected, match=r"the content of .*mine\.jsonl"):
                train(chosen, tmp_path / "run")


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_damaged_record_of_a_run_is_named(
    content: str, epoch_settings: Callable[..., TrainSettings], finished: Run, tmp_path: Path
) -> None:
    copy = tmp_path / "run"
    shutil.copytree(finished.path, copy)
    (copy / "environment.json").write_text(content)
    with pytest.raises(SceError, match=r"environment\.json|the content of"):
        train(epoch_settings(), copy)


def test_a_damaged_state_of_a_checkpoint_is_named(epoch_settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        train(epoch_settings(), tmp_path / "run", should_stop=lambda: True)
    (state,) = (tmp_path / "run").glob("phases/*/checkpoints/*/state.json")
    whole = json.loads(state.read_text())
    lies = [
        {"step": 7},
        {"step": "1"},
        {"evaluations": -1},
        {"sha256": {}},
        {"running": {"advantage_sum": "a"}},
    ]
    texts = [json.dumps(whole | lie) for lie in lies]
    for content in ("{", "{}", '{"facts": {}, "sha256": 3, "step": 1, "optimizer": {}}', *texts):
        state.write_text(content)
        with pytest.raises(SceError, match=r"state\.json is damaged"):
            train(epoch_settings(), tmp_path / "run")


def test_a_policy_is_there_as_a_whole_or_not_at_all(
    epoch_settings: Callable[..., TrainSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(model: Any, folder: Path, base_name: str) -> None:
        save_adapter(model, folder, base_name)
        raise KeyboardInterrupt

    monkeypatch.setattr("securecoderl_edge.training.checkpoint.save_adapter", killed)
    with pytest.raises(KeyboardInterrupt):
        train(epoch_settings("sft.steps=1", phases=("sft",)), tmp_path / "run")
    assert [path.name for path in (tmp_path / "run/phases/1-sft").iterdir()] == ["checkpoints"]
    assert not (tmp_path / "run/policy").exists()
