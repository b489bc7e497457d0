"""Several processes that train one policy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from places import TESTS

pytest.importorskip("torch", reason="needs the train extra")

import torch
from safetensors.torch import load_file
from small_runs import write_additions

from securecoderl_edge.errors import UsageError
from securecoderl_edge.system.rows import RowFile
from securecoderl_edge.training.parallel import Team
from securecoderl_edge.training.settings import resolve
from securecoderl_edge.training.train import _check_team

SCRIPT = TESTS / "train_script.py"
# What `accelerate launch` starts for several GPUs; its own starter for processors needs MPI.
LAUNCH = ("torch.distributed.run", "--nproc_per_node", "2", "--rdzv_backend", "c10d", "--rdzv_endpoint", "127.0.0.1:0")


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_additions(tmp_path_factory.mktemp("problems") / "problems.jsonl", tests=3)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("overrides", [(), ("ppo.advantage=gae",)], ids=["rloo", "gae"])
def test_two_processes_learn_what_one_learns_from_the_same_batch(
    tiny_model: Path, problems: Path, tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    arguments = [str(tiny_model), str(problems)]
    alone, together = tmp_path / "a" / "alone", tmp_path / "b" / "together"
    subprocess.run([sys.executable, str(SCRIPT), *arguments, str(alone), *overrides], check=True, timeout=300)
    subprocess.run(
        [sys.executable, "-m", *LAUNCH, str(SCRIPT), *arguments, str(together), *overrides], check=True, timeout=300
    )
    one, two = (load_file(path / "policy/adapter_model.safetensors") for path in (alone, together))
    # Adam's first steps divide gradients by themselves, so rounding shows in weights whose gradient is nearly 0.
    for key, value in one.items():
        torch.testing.assert_close(two[key], value, atol=2e-4, rtol=1e-3)
    rows = [RowFile(path / "metrics.jsonl").read() for path in (alone, together)]
    assert len(rows[0]) == len(rows[1]) == 9
    for first, second in zip(*rows, strict=True):
        for name in ("loss/sft", "objective/reward", "objective/kl", "tokens", "eval/reward", "loss/value"):
            assert second.get(name) == pytest.approx(first.get(name), abs=1e-4)
    assert json.loads((together / "environment.json").read_text())["processes"] == 2


def test_prompts_that_cannot_be_shared_evenly_are_refused() -> None:
    team = Team()
    team.count = 3
    with pytest.raises(UsageError, match="8 prompts per update cannot be divided among 3 processes"):
        _check_team(resolve("starter", (), {}), team)


def test_a_team_of_one_asks_nobody() -> None:
    team, tensor = Team(), torch.ones(2)
    team.add_up([tensor])
    team.wait()
    assert tensor.tolist() == [1, 1]
    assert team.share([1, 2, 3]) == team.collect([1, 2, 3]) == [1, 2, 3]
    assert (team.agree(True), team.agree(False), team.is_writer) == (True, False, True)
