"""A training that is interrupted at any point loses the update in work, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from once import Once
from quick import few
from small_runs import equal, rows, untimed

from securecoderl_edge.models import sampling
from securecoderl_edge.runs import EVALUATIONS, Run
from securecoderl_edge.system.rows import RowFile
from securecoderl_edge.training import checkpoint, phase
from securecoderl_edge.training.checkpoint import checkpoints
from securecoderl_edge.training.phase import Stopped
from securecoderl_edge.training.settings import TrainSettings
from securecoderl_edge.training.train import train
from securecoderl_edge.training.update import minibatches, ppo_update, rollout
from securecoderl_edge.training.update.learner import Learner

# Where it can happen: what is called there, and whether it is done before the interruption comes.
PLACES: dict[str, tuple[object, str, bool]] = {
    "sampling": (sampling.PartialCompletions, "add", False),
    "scoring": (rollout, "result_of", False),
    "log-probabilities": (ppo_update, "completion_log_probs", True),
    "statistics of advantages": (ppo_update, "estimate_advantages", True),
    "forward pass": (minibatches, "completion_log_probs", True),
    "backward pass": (Learner, "backward", True),
    "optimizer": (torch.optim.AdamW, "step", True),
    "second epoch": (Learner, "step", True),
    "evaluation": (phase, "evaluate_policy", False),
    "rows": (phase.PhaseFiles, "write_rows", True),
    "snapshot": (phase.PhaseFiles, "take_snapshot", True),
    "checkpoint": (checkpoint, "save_file", True),
    "name of the checkpoint": (phase, "save_checkpoint", True),
}
# Of the phase's updates; with a value head, and with more than one optimizer step in each.
STEPS, LAST = 4, 2


@pytest.fixture(scope="module")
def config(settings: Callable[..., TrainSettings]) -> TrainSettings:
    overrides = ("ppo.advantage=gae", "ppo.epochs=2", "selection.every=3", f"binary.steps={STEPS}", "snapshot_every=1")
    return settings(*overrides, checkpoint_every=100, phases=("binary",))


@pytest.fixture(scope="module")
def whole(config: TrainSettings, once: Once) -> Run:
    return Run(once("never-interrupted", lambda folder: train(config, folder / "run")) / "run")


class Interruption:
    """Interrupts what is wrapped the first time that it is called after update `LAST`."""

    def __init__(self) -> None:
        self.is_armed = False

    def log(self, row: dict[str, Any]) -> None:
        self.is_armed |= row["step"] == LAST

    def wrapped(self, call: Callable[..., Any], is_done_before: bool) -> Callable[..., Any]:
        def interrupted(*arguments: Any, **options: Any) -> Any:
            if not self.is_armed:
                return call(*arguments, **options)
            if is_done_before:
                call(*arguments, **options)
            self.is_armed = False
            raise KeyboardInterrupt

        return interrupted


@pytest.mark.parametrize(
    "place", few([*PLACES], "sampling", "second epoch", "evaluation", "rows", "name of the checkpoint")
)
def test_an_update_that_is_interrupted_anywhere_is_made_again_with_the_same_result(
    config: TrainSettings, whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    interruption, (owner, name, is_done_before) = Interruption(), PLACES[place]
    monkeypatch.setattr(owner, name, interruption.wrapped(getattr(owner, name), is_done_before))
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", log=interruption.log)
    folder = Run(tmp_path / "run").phase_folder(1, "binary")
    # The evaluation at update 3 writes a checkpoint; those of earlier updates are written because of the interruption.
    of_third = place in ("checkpoint", "name of the checkpoint")
    assert checkpoints(folder / "checkpoints")[-1].name == ("step-000003" if of_third else "step-000002")
    resumed = train(config, tmp_path / "run")
    assert untimed(resumed) == untimed(whole)
    assert equal(resumed.policy, whole.policy)
    evaluations = [RowFile(run.phase_folder(1, "binary") / EVALUATIONS).read() for run in (resumed, whole)]
    assert evaluations[0] == evaluations[1]
    assert len(list((folder / "snapshots").glob("step-*"))) == STEPS
    assert not list(folder.rglob("*.tmp-*"))


def test_an_interruption_between_two_updates_loses_nothing(config: TrainSettings, tmp_path: Path) -> None:
    def log(row: dict[str, Any]) -> None:
        if row["step"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", log=log)
    run = Run(tmp_path / "run")
    assert run.progress() == "update 1 of binary is saved"
    assert [row["step"] for row in rows(run)] == [1]


def test_an_interruption_before_the_first_update_leaves_a_folder_that_goes_on(
    config: TrainSettings, whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    for module, name in (("resources", "load_base"), ("phase", "evaluate_policy")):
        with monkeypatch.context() as patch:
            patch.setattr(f"securecoderl_edge.training.{module}.{name}", interrupt)
            with pytest.raises(KeyboardInterrupt):
                train(config, tmp_path / "run")
        assert Run(tmp_path / "run").progress() == "no update is finished"
    assert untimed(train(config, tmp_path / "run")) == untimed(whole)


def test_a_run_goes_on_with_the_dtypes_that_it_began_with(
    config: TrainSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CPU with bfloat16 is timed, and another program on it can change the answer."""
    for is_fast in (False, True):
        monkeypatch.setattr("securecoderl_edge.models.device.cpu_has_bf16", lambda fast=is_fast: fast)
        monkeypatch.setattr("securecoderl_edge.models.device.bf16_products_are_far_faster", lambda fast=is_fast: fast)
        with pytest.raises(Stopped):
            train(config, tmp_path / "run", should_stop=lambda: True)
    assert [row["step"] for row in rows(Run(tmp_path / "run"))] == [1, 2]
    assert json.loads((tmp_path / "run" / "environment.json").read_text())["products"] == "torch.float32"


def test_what_an_update_changes_is_copied_only_while_it_is_made(
    config: TrainSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sampling needs the memory."""
    kept, draw = set[bool](), sampling.PartialCompletions.add
    learners: list[Learner] = []
    made = Learner.__post_init__
    monkeypatch.setattr(Learner, "__post_init__", lambda learner: (learners.append(learner), made(learner))[1])

    def drawing(*arguments: Any) -> Any:
        kept.add(learners[-1]._finished.weights is not None)
        return draw(*arguments)

    monkeypatch.setattr(sampling.PartialCompletions, "add", drawing)
    train(config, tmp_path / "run", log=lambda row: kept.clear() if row["step"] == 1 else None)
    assert kept == {False, True}  # True: the evaluation after update 3, which is interrupted with its update
