"""Phases that other runs have made are reused, and runs start from policies of others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from small_runs import equal, rows

from securecoderl_edge.errors import UsageError
from securecoderl_edge.runs import Run
from securecoderl_edge.training.phase import Stopped
from securecoderl_edge.training.recipe import resolve
from securecoderl_edge.training.reuse import phase_keys
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.train import train

pytestmark = pytest.mark.usefixtures("varied_reward")


def test_a_phase_that_is_reused_brings_its_snapshots(settings: Callable[..., TrainSettings], tmp_path: Path) -> None:
    one = train(settings("snapshot_every=2", phases=("sft", "binary")), tmp_path / "one")
    two = train(settings("snapshot_every=2"), tmp_path / "two")
    taken = two.path / "phases/2-binary"
    assert not (taken / "checkpoints").exists(), "it was to be reused"
    for step in ("step-000002", "step-000004"):
        assert equal(taken / "snapshots" / step, one.path / "phases/2-binary/snapshots" / step)


def test_finished_phases_of_a_run_with_the_same_inputs_are_reused(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.path, tmp_path / "first")
    said: list[str] = []
    simple = train(settings(phases=("sft", "binary")), tmp_path / "second", say=said.append)
    assert [message.split(":")[0] for message in said] == ["sft", "binary"]
    assert equal(simple.policy, whole.phase_folder(2, "binary") / "adapter")
    for name in ("1-sft", "2-binary"):
        evaluations = Path("phases", name, "evaluations.jsonl")
        assert (simple.path / evaluations).read_bytes() == (whole.path / evaluations).read_bytes()
    assert [(row["phase"], row["step"]) for row in rows(simple)] == [
        (row["phase"], row["step"]) for row in rows(whole) if row["phase"] != "partial"
    ]
    # As if it had been trained here.
    alone = train(settings(phases=("sft", "binary")), tmp_path / "elsewhere" / "second", say=said.append)
    assert len(said) == 2
    assert equal(simple.policy, alone.policy)


@pytest.mark.parametrize(
    ("overrides", "flags", "taken"),
    [
        (("sft.learning_rate=0.1",), {}, 0),
        pytest.param((), {"seed": 7}, 0, marks=pytest.mark.slow),
        pytest.param(("lora.rank=2",), {}, 0, marks=pytest.mark.slow),
        (("ppo.kl_coefficient=0.9",), {}, 1),
        pytest.param(("binary.steps=3",), {}, 1, marks=pytest.mark.slow),
        (("partial.steps=1",), {}, 2),
        (("partial.steps=1", "lr_schedule=linear"), {}, 0),
        (("checkpoint_every=7",), {}, 3),
    ],
)
def test_only_what_depends_on_the_same_settings_is_reused(
    settings: Callable[..., TrainSettings],
    whole: Run,
    tmp_path: Path,
    overrides: tuple[str, ...],
    flags: dict[str, Any],
    taken: int,
) -> None:
    shutil.copytree(whole.path, tmp_path / "first")
    said: list[str] = []
    made: list[dict[str, Any]] = []
    with suppress(Stopped):  # after the first update: what is reused comes before it
        train(
            settings(*overrides, **flags),
            tmp_path / "second",
            log=made.append,
            say=said.append,
            should_stop=lambda: bool(made),
        )
    assert len(said) == taken


def test_self_training_depends_on_what_it_samples_and_not_on_the_rest_of_ppo(
    settings: Callable[..., TrainSettings],
) -> None:
    phases = ("sft", "rft", "ssd", "binary")
    plain = phase_keys(settings(phases=phases), {})
    for name in ("ppo.kl_coefficient=0.9", "ppo.learning_rate=0.1", "ppo.epochs=3"):
        other = phase_keys(settings(name, phases=phases), {})
        assert [phase for phase in phases if other[phase] != plain[phase]] == ["binary"]
    for name in ("ppo.temperature=0.9", "ppo.samples_per_prompt=2"):
        other = phase_keys(settings(name, phases=phases), {})
        assert other["rft"] != plain["rft"]
        assert other["ssd"] != plain["ssd"]


def test_a_damaged_phase_is_trained_instead_of_reused(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.path, tmp_path / "first")
    file = Run(tmp_path / "first").phase_folder(1, "sft") / "adapter/adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    said: list[str] = []
    train(settings(phases=("sft",)), tmp_path / "second", say=said.append)
    assert said == []


def test_nothing_is_reused_when_a_run_is_to_start_anew(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.path, tmp_path / "first")
    said: list[str] = []
    train(settings(phases=("sft",)), tmp_path / "second", resume=False, say=said.append)
    assert said == []


def test_a_run_starts_from_a_phase_of_another_and_measures_the_kl_from_its_supervised_policy(
    settings: Callable[..., TrainSettings], tmp_path: Path
) -> None:
    last = "selection.problems=0"
    first = train(settings(last), tmp_path / "a" / "first")
    continued = train(settings(last, phases=("partial",), init=f"{first.path}:binary"), tmp_path / "b" / "continued")
    # The same updates as in the run that had all phases.
    assert equal(continued.policy, first.policy)
    fresh = train(settings(last, phases=("partial",), init=f"{first.path}:sft"), tmp_path / "b" / "fresh")
    assert rows(fresh)[0]["objective/kl"] == pytest.approx(0, abs=1e-5)
    assert not equal(fresh.policy, continued.policy)


@pytest.mark.parametrize(("init", "message"), [("nothing", "unknown run"), (":nothing", "unknown phase 'nothing'")])
def test_a_run_cannot_start_from_what_is_not_there(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path, init: str, message: str
) -> None:
    name = f"{whole.path}{init}" if init.startswith(":") else init
    with pytest.raises(UsageError, match=message):
        train(settings(init=name), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_does_not_start_from_a_policy_of_another_base_model(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="has another base model than nano"):
        train(settings(init=str(whole.path), model="nano"), tmp_path / "run")


def test_a_run_is_not_thrown_away_when_it_is_what_to_start_from(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.path, tmp_path / "run")
    with pytest.raises(UsageError, match="would delete the run that"):
        train(settings(init=str(tmp_path / "run")), tmp_path / "run", resume=False)
    assert equal(tmp_path / "run/policy", whole.policy)


@pytest.mark.parametrize("override", ["lora.alpha=1", "lora.rank=2", "lora.targets=['q_proj']"])
def test_a_run_does_not_start_from_an_adapter_of_another_kind(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path, override: str
) -> None:
    with pytest.raises(UsageError, match=r"differs from \[lora\] in rank, alpha or targets"):
        train(settings(override, init=str(whole.path)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_base_model_with_another_configuration_is_another_base_model(
    settings: Callable[..., TrainSettings], whole: Run, tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(tiny_model, tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps(config | {"rms_norm_eps": 0.1}))
    with pytest.raises(UsageError, match="another base model"):
        train(settings(model=str(tmp_path / "model"), init=str(whole.path)), tmp_path / "run")


def test_a_run_that_starts_from_another_chooses_by_no_problem_which_that_one_was_trained_on(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    from securecoderl_edge.training.inputs import find_inputs

    first = train(settings(init=str(whole.path), phases=("partial",), seed=7), tmp_path / "first")
    second = find_inputs(settings(init=str(first.path), phases=("partial",), seed=9))
    assert find_inputs(settings(seed=7)).hold_out_seed == 7
    assert second.hold_out_seed == 42


def test_a_run_whose_name_has_a_colon_can_be_started_from(
    settings: Callable[..., TrainSettings], whole: Run, tmp_path: Path
) -> None:
    shutil.copytree(whole.path, tmp_path / "a:b")
    for init in (tmp_path / "a:b", f"{tmp_path}/a:b:sft"):
        train(settings(init=str(init), phases=("partial",)), tmp_path / f"run-{init}".replace("/", "-"))


@pytest.mark.parametrize(
    ("recipe", "flags", "keys"),
    [
        ("starter", {}, ("c7ed0d8642", "2f1a96430c", "07d0eb977c")),
        ("starter", {"phases": ["sft", "rft"]}, ("c7ed0d8642", "3c1e3a795b")),
        ("starter", {"phases": ["sft", "ssd"]}, ("c7ed0d8642", "3a6d7d7404")),
        ("paper-v100", {"model": "nano"}, ("3e070c3967", "885a79b228", "600629d021")),
    ],
)
def test_phases_of_earlier_versions_are_still_reused(recipe: str, flags: dict[str, Any], keys: tuple[str, ...]) -> None:
    """A new setting that does as before leaves the keys as they were: these are of 827b20e5."""
    made = phase_keys(resolve(recipe, (), flags), {"base_sha256": "b", "problems_sha256": "p"})
    assert tuple(key[:10] for key in made.values()) == keys


@pytest.mark.parametrize("override", ["sampling.method=adaptive", "sampling.resample=2"])
def test_the_choice_of_prompts_matters_to_phases_that_choose(override: str) -> None:
    inputs = {"base_sha256": "b", "problems_sha256": "p"}
    drops = "ppo.drop_zero_variance_groups=true"

    def keys(*phases: str) -> list[tuple[str, str]]:
        before, after = (
            phase_keys(resolve("starter", given, {"phases": phases}), inputs).values()
            for given in ((drops,), (drops, override))
        )
        return list(zip(before, after, strict=True))

    assert [old == new for old, new in keys("sft", "rft", "binary")] == [True, True, False]
