"""Several processes that train one policy, started by torchrun: what they learn, how they fail, how they resume."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from places import TESTS

pytest.importorskip("torch", reason="needs the train extra")

import torch
from once import Once
from small_runs import equal, weights, write_additions

from securecoderl_edge.errors import UsageError
from securecoderl_edge.runs import Run, step_name
from securecoderl_edge.system.rows import RowFile
from securecoderl_edge.training import parallel
from securecoderl_edge.training.checkpoint import checkpoints
from securecoderl_edge.training.parallel import Team

SCRIPT = TESTS / "train_script.py"
# A value head, pass rates, a hint and an evaluation with fewer problems than processes: all that could be forgotten.
OVERRIDES = ("ppo.advantage=gae", "sampling.method=adaptive", "checkpoint_every=1", 'ppo.hint="Be brief."')


@pytest.fixture(scope="module")
def problems(once: Once) -> Path:
    return once("additions.jsonl", lambda file: write_additions(file, tests=3))


def command(processes: int, arguments: list[str], *options: str) -> list[str]:
    """What trains as so many processes; ``accelerate launch`` starts the same for several GPUs."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--rdzv-backend", "c10d"]
    launcher += ["--rdzv-endpoint", "127.0.0.1:0", *options]
    return [sys.executable, "-W", "ignore", *(launcher if processes > 1 else []), str(SCRIPT), *arguments]


class Trainer:
    """Trains a tiny model in a folder of runs of its own, as one process or several."""

    def __init__(self, model: Path, problems: Path, folder: Path) -> None:
        self._start, self._folder = [str(model), str(problems)], folder

    def arguments(self, name: str, *overrides: str) -> list[str]:
        # Apart from other runs, whose phases it would reuse.
        return [*self._start, str(self._folder / name / "run"), *OVERRIDES, *overrides]

    def __call__(
        self, name: str, processes: int, *overrides: str, fault: str = "", options: tuple[str, ...] = ()
    ) -> tuple[Run, str]:
        """The run, and what was written to standard error."""
        done = subprocess.run(
            command(processes, self.arguments(name, *overrides), *options),
            env={**os.environ, "FAULT": fault},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert (done.returncode == 0) == (not fault or bool(options)), done.stderr
        return Run(self._folder / name / "run"), done.stderr


@pytest.fixture
def trainer(tiny_model: Path, problems: Path, tmp_path: Path) -> Trainer:
    return Trainer(tiny_model, problems, tmp_path)


@pytest.fixture(scope="module")
def whole(tiny_model: Path, problems: Path, once: Once) -> dict[int, Run]:
    """Uninterrupted runs by number of processes; read only. Of two prompts, the third process gets none."""
    folder = once("teams", lambda folder: [Trainer(tiny_model, problems, folder)(str(n), n) for n in (1, 2, 3)])
    return {count: Run(folder / str(count) / "run") for count in (1, 2, 3)}


def metrics(run: Run) -> list[dict[str, Any]]:
    return RowFile(run.path / "metrics.jsonl").read()


def written_lines(file: Path) -> int:
    """Whole lines so far, of a file that another process writes."""
    return file.read_bytes().count(b"\n") if file.exists() else 0


def sessions(run: Run) -> list[int]:
    """The number of processes each time that the run was started."""
    record = json.loads((run.path / "environment.json").read_text())
    return [session["processes"] for session in record["sessions"]]


def assert_alike(one: Run, other: Run) -> None:
    """They are equal up to rounding."""
    # Adam's first steps divide gradients by themselves, so rounding shows in weights whose gradient is nearly 0.
    for key, value in weights(one.policy).items():
        torch.testing.assert_close(weights(other.policy)[key], value, atol=2e-4, rtol=1e-3)
    assert len(metrics(one)) == len(metrics(other)) == 9
    for first, second in zip(metrics(one), metrics(other), strict=True):
        for name in ("loss/sft", "objective/reward", "objective/kl", "tokens", "eval/reward", "loss/value"):
            assert second.get(name) == pytest.approx(first.get(name), abs=1e-4)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_learn_what_one_learns_from_the_same_batches(processes: int, whole: dict[int, Run]) -> None:
    assert_alike(whole[1], whole[processes])
    assert sessions(whole[processes]) == [processes]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("rank", "phase", "step"), [(1, "binary", 3), (0, "partial", 2)])
def test_a_killed_process_ends_all_and_the_same_command_resumes_bit_for_bit(
    rank: int, phase: str, step: int, trainer: Trainer, whole: dict[int, Run]
) -> None:
    run, said = trainer("killed", 2, "checkpoint_every=1000", fault=f"{rank} {phase} {step} SIGKILL")
    if rank:  # the first process, which writes, has saved what was finished
        assert checkpoints(next(run.path.glob(f"phases/*-{phase}/checkpoints")))[-1].name == step_name(step - 1)
    assert f"sce: process {1 - rank} stops because another process of the run has ended (" in said
    assert "the same command resumes from the last checkpoint" in said
    # Of the launcher: which one it was.
    _, _, cause = said.partition("Root Cause")
    assert f"rank      : {rank} " in cause
    assert "Signal 9 (SIGKILL)" in cause
    run, _ = trainer("killed", 2)
    assert equal(run.policy, whole[2].policy)
    assert sessions(run) == [2, 2]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [("bug", "sce: ZeroDivisionError: a bug"), ("memory", "sce: out of memory while computing the SFT loss")],
)
def test_an_error_in_one_process_ends_all_and_spares_the_checkpoint(kind: str, sentence: str, trainer: Trainer) -> None:
    run, said = trainer(kind, 2, fault=f"1 sft 2 {kind}")
    assert sentence in said
    assert "sce: process 0 stops because another process of the run has ended (" in said
    assert [path.name for path in sorted(run.path.glob("phases/*/checkpoints/*"))] == ["step-000000", "step-000001"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_loss_that_is_no_number_in_one_process_is_saved_by_the_first(trainer: Trainer) -> None:
    run, said = trainer("nan", 2, fault="1 sft 2 nan")
    (file,) = run.path.glob("phases/1-sft/not-finite-*.safetensors")
    assert said.count(f"sce: NaN or Inf in the loss of sft update 2; its tensors are in {file}") == 2


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1)])
def test_a_run_resumes_with_another_number_of_processes(
    first: int, second: int, trainer: Trainer, whole: dict[int, Run]
) -> None:
    trainer("moved", first, fault="0 partial 2 SIGKILL")
    run, _ = trainer("moved", second)
    assert sessions(run) == [first, second]
    assert_alike(run, whole[1])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_signal_to_the_launcher_saves_the_last_finished_update(trainer: Trainer, tmp_path: Path) -> None:
    run = Run(tmp_path / "stopped" / "run")
    arguments = trainer.arguments("stopped", "checkpoint_every=1000", "sft.steps=1000", "selection.problems=0")
    with subprocess.Popen(command(2, arguments), stderr=subprocess.PIPE, text=True) as launcher:
        deadline = time.monotonic() + 120
        # The row of an update is written before the update counts as finished: the second says that one is.
        while written_lines(run.path / "metrics.jsonl") < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        launcher.send_signal(signal.SIGTERM)
        _, said = launcher.communicate(timeout=120)
    last, saved = metrics(run)[-1]["step"], checkpoints(run.path / "phases/1-sft/checkpoints")[-1]
    assert saved.name in (step_name(last - 1), step_name(last))
    # The first process may see that the other has ended before its own signal counts.
    told = f"stopped: update {int(saved.name[5:])} of sft is saved; run the same command to resume"
    assert told in said or "process 0 stops because another process of the run has ended" in said, said


@pytest.mark.slow
def test_phases_of_runs_with_another_number_of_processes_are_reused(
    trainer: Trainer, whole: dict[int, Run], tmp_path: Path
) -> None:
    shutil.copytree(whole[2].path, tmp_path / "one" / "of-two")
    run, said = trainer("one", 1)
    assert "partial: reused from run of-two" in said
    assert equal(run.policy, whole[2].policy)


@pytest.mark.parametrize(("processes", "gpus", "sharing"), [(1, 0, 1), (1, 8, 1), (8, 8, 1), (2, 1, 2), (3, 2, 2)])
def test_processes_that_share_a_gpu_share_its_memory(
    processes: int, gpus: int, sharing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    team = Team()
    team.local_count = processes
    assert team.sharing("cuda") == sharing
    assert team.sharing("cpu") == processes


@pytest.mark.parametrize(("local", "gpu"), [("0", 0), ("1", 1), ("2", 0)])
def test_each_process_takes_the_next_gpu(local: str, gpu: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("LOCAL_RANK", local)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(parallel, "_Processes", Team)
    parallel.join("auto")
    assert chosen == [gpu]
    parallel.join("cpu")
    assert chosen == [gpu]


def test_an_environment_without_a_launcher_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(UsageError, match=r"no launcher started this process \(.*RANK.*\). Use torchrun"):
        parallel.join("cpu")


def test_a_team_of_one_asks_nobody() -> None:
    team, tensor = Team(), torch.ones(2)
    team.add_up([tensor])
    team.wait()
    assert tensor.tolist() == [1, 1]
    assert team.share([1, 2, 3]) == team.collect([1, 2, 3]) == [1, 2, 3]
    assert (team.agree(True), team.agree(False), team.is_writer) == (True, False, True)
