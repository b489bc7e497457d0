"""``sce train``: the plan of a dry run, what is said, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from small_runs import write_additions

from securecoderl_edge.cli import sce
from securecoderl_edge.errors import UsageError

SMALL = (
    "lora.rank=4", "sft.steps=2", "sft.batch_size=4", "binary.steps=2", "ppo.batch_size=8", "ppo.samples_per_prompt=4",
    "ppo.max_tokens=10", "selection.every=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_additions(tmp_path_factory.mktemp("problems") / "problems.jsonl")


def train(model: Path, problems: Path, out: Path, *arguments: str) -> Result:
    words = ["train", "--model", str(model), "--problems", str(problems), "--out", str(out), "--device", "cpu"]
    words += [word for override in SMALL for word in ("--set", override)]
    return CliRunner().invoke(sce, [*words, *arguments], catch_exceptions=False)


def test_a_dry_run_prints_the_plan_and_writes_nothing(tiny_model: Path, problems: Path, tmp_path: Path) -> None:
    result = train(tiny_model, problems, tmp_path / "run", "--dry-run", "--phases", "sft,binary")
    assert result.exit_code == 0
    assert not (tmp_path / "run").exists()
    text = result.stdout
    assert "18 of 18 fit; 2 more held out" in text
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert lines["sft"][1:4] == ["2", "0.0003", "4"]
    assert lines["binary"][1:7] == ["2", "0.001", "2", "x", "4", "2"]
    assert "at most 160 tokens sampled" in text
    assert "in all about" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "ppo.max_tokens=5000"), "no prompt leaves 5000 tokens of room for the answer"),
        (("--problems", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--init", "nowhere"), "no such run"),
        (("--set", "lora.targets=['nothing']"), "LoRA does not fit"),
        (
            ("--set", "ppo.advantage=gae", "--set", "ppo.value_warmup_steps=2", "--set", "ppo.skip_flat_groups=false"),
            "value_warmup_steps",
        ),
    ],
)
def test_a_dry_run_of_what_cannot_work_is_a_usage_error(
    tiny_model: Path, problems: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        train(tiny_model, problems, tmp_path / "run", "--dry-run", *arguments)
    assert not (tmp_path / "run").exists()


def test_a_run_says_which_step_it_kept_and_why(tiny_model: Path, problems: Path, tmp_path: Path) -> None:
    result = train(tiny_model, problems, tmp_path / "run", "--phases", "sft,binary", "--rollout", "hf")
    assert result.exit_code == 0
    assert "sft: kept step" in result.stderr
    assert "binary: kept step" in result.stderr
    assert "held-out problems (R " in result.stderr
