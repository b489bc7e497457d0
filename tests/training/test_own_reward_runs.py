"""Training with a reward function of the user's: it counts, it is recorded, and a run resumes bit for bit."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import TESTS

pytest.importorskip("torch", reason="needs the train extra")

from small_runs import PHASES, equal, rows, settings_maker, untimed

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.models.sampling import TokenCompletion
from securecoderl_edge.runs import ENVIRONMENT, Run
from securecoderl_edge.scoring.score import Score
from securecoderl_edge.system.files import read_json, sha256_of
from securecoderl_edge.training.reuse import phase_keys
from securecoderl_edge.training.settings import RewardSettings, TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update.rollout import Rollout
from securecoderl_edge.training.update.supervised import correct_rows

# Ten lines: rewards of a random tiny model must differ, so they follow from the text alone.
FUNCTION = """
import zlib

def brevity(prompts, completions, scores, problems, **columns):
    numbers = []
    for text, score, problem in zip(completions, scores, problems):
        assert score["program"] is not None and problem["tests"]
        checksum = zlib.crc32(text.encode()) % 8
        numbers.append(None if checksum == 0 else checksum / 7 - len(text) / 1000)
    return numbers
"""
SMALL = ("binary.steps=2", "selection.problems=0")


@pytest.fixture
def function(tmp_path: Path) -> str:
    file = tmp_path / "rewards.py"
    file.write_text(FUNCTION)
    return f"{file}:brevity"


@pytest.fixture
def own_settings(tiny_model: Path, once: Any, function: str) -> Callable[..., TrainSettings]:
    from small_runs import write_additions

    problems = once("additions.jsonl", lambda file: write_additions(file, tests=3))
    make = settings_maker(tiny_model, problems, (*PHASES, *SMALL))

    def with_function(*overrides: str, **flags: Any) -> TrainSettings:
        return make(f"reward.function={function}", *overrides, **{"phases": ("binary",), **flags})

    return with_function


def test_a_run_learns_from_it_alone_records_it_and_is_not_mixed_with_runs_of_another_file(
    own_settings: Callable[..., TrainSettings], function: str, tmp_path: Path
) -> None:
    chosen, said = own_settings("reward.function_weight=1"), list[str]()
    run = train(chosen, tmp_path / "runs" / "one", say=said.append)
    made = rows(run)
    assert [row["step"] for row in made] == [1, 2]
    assert all(row["objective/reward"] != row["reward"] and row["groups_used"] == 2 for row in made)
    assert all(math.isfinite(row["function_reward"]) and row["grad_norm"] > 0 for row in made)
    assert any("function_reward" in row for row in rows(run, "samples.jsonl"))
    assert read_json(run.path / ENVIRONMENT)["reward_function_sha256"] == sha256_of(tmp_path / "rewards.py")

    again = train(chosen, tmp_path / "runs" / "two", say=said.append)
    assert [line for line in said if "reused from run one" in line]
    assert equal(run.policy, again.policy)
    (tmp_path / "rewards.py").write_text(FUNCTION.replace("% 8", "% 9"))
    for out in ("one", "two"):
        with pytest.raises(UsageError, match=r"the content of .*rewards.py:brevity is not that of .*'s start"):
            train(chosen, tmp_path / "runs" / out)
    said.clear()
    other = train(chosen, tmp_path / "runs" / "three", say=said.append)
    assert not [line for line in said if "reused" in line]
    assert not equal(run.policy, other.policy)


def test_a_failure_ends_the_run_in_a_sentence_and_the_same_command_resumes_it(
    own_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    trouble, file = tmp_path / "trouble", tmp_path / "rewards.py"
    check = f"    if __import__('pathlib').Path({str(trouble)!r}).exists():\n        raise OSError('no judge')\n"
    file.write_text(FUNCTION.replace("    numbers = []\n", f"    numbers = []\n{check}"))
    chosen = own_settings("reward.function_weight=1")
    whole = train(chosen, tmp_path / "a" / "whole")

    def fail_later(row: dict[str, Any]) -> None:
        trouble.touch()

    with pytest.raises(SceError) as caught:
        train(chosen, tmp_path / "b" / "stopped", log=fail_later)
    words = str(caught.value)
    assert f"reward function brevity of {file} failed: OSError: no judge (line " in words
    assert words.endswith("step-000001 is intact: run the same command to resume")
    trouble.unlink()
    resumed = train(chosen, tmp_path / "b" / "stopped")
    assert untimed(resumed) == untimed(whole)
    assert equal(resumed.policy, whole.policy)


@pytest.mark.timeout(600)
def test_a_run_killed_in_an_update_resumes_bit_for_bit(
    own_settings: Callable[..., TrainSettings], function: str, tiny_model: Path, tmp_path: Path
) -> None:
    problems = own_settings().problems
    overrides = (
        f"reward.function={function}", "reward.function_weight=0.5", 'phases=["binary"]', "binary.steps=2",
        "checkpoint_every=1", "selection.problems=0", "readiness_problems=0",
    )  # fmt: skip

    def run(out: Path, **environment: str) -> int:
        script = [sys.executable, "-W", "ignore", str(TESTS / "train_script.py"), str(tiny_model), problems, str(out)]
        return subprocess.run([*script, *overrides], env={**os.environ, **environment}, check=False).returncode

    assert run(tmp_path / "a" / "whole") == 0
    assert run(tmp_path / "b" / "killed", FAULT="0 binary 2 SIGKILL") == -9
    assert len(rows(Run(tmp_path / "b" / "killed"))) == 1
    assert run(tmp_path / "b" / "killed") == 0
    whole, killed = Run(tmp_path / "a" / "whole"), Run(tmp_path / "b" / "killed")
    assert len(untimed(whole)) == 2
    assert untimed(killed) == untimed(whole)
    assert equal(killed.policy, whole.policy)


def test_a_file_that_cannot_be_loaded_is_told_before_a_run_is_deleted(
    own_settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    run = train(own_settings(), tmp_path / "run")
    (tmp_path / "rewards.py").write_text("import nowhere\n")
    with pytest.raises(SceError, match=r"rewards.py cannot be loaded: ModuleNotFoundError"):
        train(own_settings(), run.path, resume=False)
    assert run.policy.exists()


def test_rft_keeps_the_programs_with_the_highest_reward() -> None:
    def rollout(numbers: list[float | None], passes: list[bool], finished: bool = True) -> Rollout:
        scores = [
            Score("p", 0, 4 if passed else 3, int(passed), 1, 1, 1, 0, 1, 1, 1, (), (), str(place), 0)
            for place, passed in enumerate(passes)
        ]
        completions = [TokenCompletion(0, place, (1,), (0.0,), finished) for place in range(len(numbers))]
        return Rollout([None], completions, scores, [], own=numbers)  # type: ignore[list-item]

    added, replaced = RewardSettings(), RewardSettings(function_weight=1)
    passes = [True, True, False, True]
    assert correct_rows(rollout([0.1, None, 0.9, 0.5], passes), added, 2) == [0, 3]
    assert correct_rows(rollout([0.5, 0.5, 0.5, 0.5], passes), added, 2) == [0, 1]
    assert correct_rows(rollout([-0.1, None, -0.9, -0.5], passes), added, 2) == [0, 1]
    assert correct_rows(rollout([0.1, None, 0.9, 0.5], passes), replaced, 2) == [2, 3]
    assert correct_rows(rollout([0.1, None, 0.0, -0.5], passes), replaced, 2) == [0]
    assert correct_rows(rollout([0.1, None, 0.9, 0.5], passes, finished=False), replaced, 2) == []


@pytest.mark.slow
def test_rft_and_evaluations_use_it(own_settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    chosen = own_settings(
        "reward.function_weight=1",
        "rft.steps=2",
        "ppo.batch_size=64",
        "selection.problems=2",
        "selection.every=1",
        phases=("rft",),
    )
    run = train(chosen, tmp_path / "run")
    made = rows(run)
    assert all(math.isfinite(row["function_reward"]) for row in made)
    assert all(row["eval/reward"] != row["reward"] for row in made)


def test_only_phases_with_a_reward_depend_on_it(own_settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    phases = ("sft", "binary", "rft")
    chosen = own_settings(phases=phases)
    plain = phase_keys(chosen, {"reward_function_sha256": "1"})

    def changed(settings: TrainSettings, sha256: str = "1") -> list[str]:
        keys = phase_keys(settings, {"reward_function_sha256": sha256})
        return [phase for phase in phases if keys[phase] != plain[phase]]

    assert changed(chosen, "2") == ["binary", "rft"]
    assert changed(own_settings(f"reward.function={tmp_path / 'moved' / 'rewards.py'}:brevity", phases=phases)) == []
    for override in (f"reward.function={tmp_path / 'rewards.py'}:other", "reward.function_weight=0.7"):
        assert changed(own_settings(override, phases=phases)) == ["binary", "rft"]
    for override in ("reward.combine=gate", "reward.ignored_input=zero"):
        assert changed(own_settings(override, phases=phases)) == ["binary", "rft"]
