"""``sce train`` ends by a signal or its own limit of time; folders of other trainings are refused first."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch
from cli_runs import run_sce
from quick import few
from small_runs import varied_reward, write_additions

from securecoderl_edge.commands import console
from securecoderl_edge.models import fused
from securecoderl_edge.models.gguf import weights as gguf_weights
from securecoderl_edge.models.sampling import PartialCompletions
from securecoderl_edge.runs import Run
from securecoderl_edge.system.files import locked
from securecoderl_edge.training import phase, readiness, resources
from securecoderl_edge.training.update import rollout, sequences
from securecoderl_edge.training.update.learner import Learner

SMALL = (
    "lora.rank=4", "binary.steps=3", "ppo.batch_size=8", "ppo.samples_per_prompt=4", "ppo.max_tokens=10",
    "selection.problems=1", "selection.every=2", "checkpoint_every=100", "readiness_problems=0",
)  # fmt: skip
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM)
# Of each stage, a piece of its work, and settings with which that is the first stage that does such work.
STAGES: dict[str, tuple[object, str, str]] = {
    "loading": (resources, "load_base", "selection.problems=0"),
    "readiness": (readiness, "zero_variance_rate", "readiness_problems=2"),
    "held-out evaluation": (phase, "evaluate_policy", "selection.problems=1"),
    "sampling": (PartialCompletions, "add", "selection.problems=0"),
    "scoring": (rollout, "result_of", "selection.problems=0"),
    "learning": (Learner, "backward", "selection.problems=0"),
}


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_additions(tmp_path_factory.mktemp("problems") / "problems.jsonl")


@pytest.fixture(autouse=True)
def groups_with_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "training_reward", varied_reward)
    monkeypatch.setattr("securecoderl_edge.commands.train._leave_terminal", lambda: None)


def train(model: Path, problems: Path, out: Path, *arguments: str) -> tuple[int, str]:
    words = ["--recipe", "starter", "--model", str(model), "--problems", str(problems), "--out", str(out)]
    words += [word for override in SMALL for word in ("--set", override)]
    code, _, told = run_sce("train", *words, "--device", "cpu", "--phases", "binary", *arguments)
    return code, told


class Sender:
    """Sends this process a signal when what is wrapped is called; counts the calls that come to their end after it."""

    def __init__(self, number: signal.Signals, at: int = 1) -> None:
        self.number, self.at, self.calls, self.calls_after = number, at, 0, 0

    def wrapped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def sending(*arguments: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self.at:
                os.kill(os.getpid(), self.number)
            done = call(*arguments, **options)
            self.calls_after += self.calls >= self.at
            return done

        return sending


@pytest.mark.parametrize("number", few(ENDS, signal.SIGTERM))
@pytest.mark.parametrize("stage", few([*STAGES], "loading", "held-out evaluation", "learning"))
def test_a_signal_is_honored_before_the_next_piece_of_work_in_every_stage(
    tiny_model: Path,
    problems: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    stage: str,
) -> None:
    owner, name, setting = STAGES[stage]
    sender = Sender(number)
    monkeypatch.setattr(owner, name, sender.wrapped(getattr(owner, name)))
    handler = signal.getsignal(number)
    code, told = train(tiny_model, problems, tmp_path / "run", "--max-minutes", "600", "--set", setting)
    assert (sender.calls, sender.calls_after) == (1, 0)
    assert code == (75 if number == signal.SIGALRM else 130)
    assert "no update is finished; run the same command to resume" in " ".join(told.split())
    assert signal.getsignal(number) == handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_signal_in_an_update_keeps_the_updates_before_it_and_names_them(
    tiny_model: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = Sender(signal.SIGALRM, at=3)  # one piece an update
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "backward", sender.wrapped(Learner.backward))
        code, told = train(tiny_model, problems, tmp_path / "run", "--max-minutes", "600")
    assert (code, sender.calls_after) == (75, 0)
    last = "the time of --max-minutes is over: update 2 of binary is saved; run the same command to resume"
    assert " ".join(told.split()).endswith(last)
    assert "interrupted" not in told
    monkeypatch.setattr(console, "QUIET_SECONDS", 0.0)
    code, told = train(tiny_model, problems, tmp_path / "run", "--max-minutes", "600")
    assert code == 0, told
    assert "training 2/3  sampling" in told
    assert "training 0/3" not in told
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]


class Dying:
    """Sends this process a signal when it is deleted, where Python loses the exception of the handler."""

    def __init__(self, number: signal.Signals) -> None:
        self.number = number

    def __del__(self) -> None:
        os.kill(os.getpid(), self.number)


@pytest.mark.parametrize("number", few(ENDS, signal.SIGTERM))
def test_a_signal_in_a_destructor_ends_the_update_too(
    tiny_model: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    ended = []

    def backward(*_: Any) -> None:
        dying = Dying(number)
        del dying
        for _ in range(200):  # a long update
            time.sleep(0.05)
        ended.append(True)

    monkeypatch.setattr(Learner, "backward", backward)
    report = sys.unraisablehook
    code, told = train(tiny_model, problems, tmp_path / "run", "--max-minutes", "600")
    assert not ended
    assert code == (75 if number == signal.SIGALRM else 130)
    assert "update 0 of binary is saved" in " ".join(told.split())
    assert "Traceback" not in told
    assert sys.unraisablehook == report


def test_a_signal_ends_a_backward_pass_in_the_middle(
    tiny_model: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass over thousands of tokens of a large model takes minutes on a CPU."""
    sender = Sender(signal.SIGTERM)
    monkeypatch.setattr(fused._RmsNorm, "backward", staticmethod(sender.wrapped(fused._RmsNorm.backward)))
    assert train(tiny_model, problems, tmp_path / "run")[0] == 130
    assert (sender.calls, sender.calls_after) == (1, 0)


def test_a_signal_ends_a_backward_pass_of_transformers_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its layers have no Python in it, where alone a handler can run."""
    layers = torch.nn.Sequential(*(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh()) for _ in range(9)))
    asked = []

    def unpack(tensor: torch.Tensor) -> torch.Tensor:
        if not asked:
            os.kill(os.getpid(), signal.SIGINT)
        asked.append(tensor)
        return tensor

    hooks = torch.autograd.graph.saved_tensors_hooks
    monkeypatch.setattr(torch.autograd.graph, "saved_tensors_hooks", lambda pack, _: hooks(pack, unpack))
    with sequences.interruptible_backward():
        loss = layers(torch.ones(2, 4)).sum()
    with pytest.raises(KeyboardInterrupt):
        loss.backward()
    assert len(asked) <= 1


def test_a_signal_ends_the_check_of_a_file(
    tiny_model: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf", reason="needs the gguf extra")
    from securecoderl_edge.export.gguf import write_gguf

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_gguf(tiny_model, None, "f32", tmp_path / "tiny.gguf", "m")
    sender = Sender(signal.SIGTERM, at=2)
    monkeypatch.setattr(gguf_weights, "_numbers", sender.wrapped(gguf_weights._numbers))
    code, told = train(tmp_path / "tiny.gguf", problems, tmp_path / "run")
    assert (code, sender.calls, sender.calls_after) == (130, 2, 0)
    assert "is read once, to check it" in told
    assert list((tmp_path / "cache" / "securecoderl-edge" / "gguf").iterdir()) == []


def test_signals_that_repeat_do_not_stop_the_saving_and_ctrl_c_does(
    tiny_model: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for second, is_saved in ((signal.SIGTERM, True), (signal.SIGINT, False)):
        out = tmp_path / second.name
        with monkeypatch.context() as patch:
            patch.setattr(Learner, "backward", Sender(signal.SIGTERM, at=2).wrapped(Learner.backward))
            save = Sender(second, at=2).wrapped(phase.save_checkpoint)  # the first is before the first update
            patch.setattr(phase, "save_checkpoint", save)
            assert train(tiny_model, problems, out)[0] == 130
        assert Run(out).progress() == f"update {int(is_saved)} of binary is saved"


def test_a_folder_of_another_training_is_refused_before_anything_is_loaded(
    tiny_model: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = tmp_path / "run", tmp_path / "thesis"
    assert train(tiny_model, problems, run, "--max-steps", "1")[0] == 0
    other.mkdir()
    (other / "thesis.tex").write_text("precious")

    def load(*_: Any, **__: Any) -> Any:
        raise AssertionError("something was loaded")

    for name in ("securecoderl_edge.models.packages.require_torch", "securecoderl_edge.models.files.sha256_of_folder"):
        monkeypatch.setattr(name, load)
    for out, words, message in (
        (run, ("--max-steps", "1", "--set", "ppo.epochs=3"), "was made with other settings (ppo.epochs: 1 -> 3)"),
        (run, ("--max-steps", "2"), "was made with other settings (binary.steps: 1 -> 2"),
        (other, (), "is not a training run"),
        (other, ("--no-resume",), "is not a training run"),
    ):
        code, told = train(tiny_model, problems, out, *words)
        assert (code, message in " ".join(told.split())) == (2, True), told
    with locked(run):
        code, told = train(tiny_model, problems, run, "--max-steps", "1")
    assert (code, "another process is using" in told) == (1, True)
    assert (other / "thesis.tex").read_text() == "precious"
