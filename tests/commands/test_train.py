"""``sce train``: the plan of a dry run, what is said, and what is refused."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from click.testing import CliRunner, Result
from quick import few
from small_runs import write_additions

from securecoderl_edge.cli import sce
from securecoderl_edge.errors import UsageError
from securecoderl_edge.training.checkpoint import checkpoints

SMALL = (
    "lora.rank=4", "sft.steps=2", "sft.batch_size=4", "binary.steps=2", "ppo.batch_size=8", "ppo.samples_per_prompt=4",
    "ppo.max_tokens=10", "selection.every=2", "readiness_problems=0",
)  # fmt: skip


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_additions(tmp_path_factory.mktemp("problems") / "problems.jsonl")


def words_of(model: Path, problems: Path, out: Path) -> list[str]:
    words = ["train", "--recipe", "starter", "--model", str(model), "--problems", str(problems), "--out", str(out)]
    return [*words, "--device", "cpu", *(word for override in SMALL for word in ("--set", override))]


def train(model: Path, problems: Path, out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(sce, [*words_of(model, problems, out), *arguments], catch_exceptions=False)


def long_training(model: Path, problems: Path, out: Path) -> list[str]:
    """The command of a training of 500 updates, for a process of its own."""
    words = words_of(model, problems, out)
    return [sys.executable, "-m", "securecoderl_edge", *words, "--phases", "sft", "--set", "sft.steps=500"]


def assert_two_updates_are_saved(out: Path) -> None:
    (newest,) = checkpoints(out / "phases" / "1-sft" / "checkpoints")[-1:]
    assert int(newest.name.removeprefix("step-")) >= 2


def test_a_measured_plan_has_times_and_writes_nothing(tiny_model: Path, problems: Path, tmp_path: Path) -> None:
    result = train(tiny_model, problems, tmp_path / "run", "--dry-run", "--measure", "--phases", "sft,binary")
    assert result.exit_code == 0
    assert not (tmp_path / "run").exists()
    text = result.stdout
    assert "18 of 18 fit the context; 2 more for validation" in text
    lines = {line.split()[0]: line.split() for line in text.splitlines() if line.strip()}
    assert lines["sft"][1:4] == ["2", "0.004", "4"]
    assert lines["binary"][1:7] == ["2", "0.0002", "2", "x", "4", "2"]
    assert "at most 160 sampled tokens" in text
    assert "s in all, estimated from one update" in text


def test_a_plan_needs_the_headers_of_the_model_alone(
    tiny_model: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without weights, tokenizer and torch: nothing of them can have been read, let alone measured."""
    (folder := tmp_path / "model").mkdir()
    (folder / "config.json").write_text((tiny_model / "config.json").read_text())
    words = ["--recipe", "starter", "--model", str(folder), "--problems", str(problems), "--phases", "rft,binary,ssd"]
    words += [word for override in SMALL for word in ("--set", override)]
    for device in (["--device", "cpu"], ["--gpu", "t4-16"]):
        script = (
            "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'peft', 'tokenizers'])); "
            f"from securecoderl_edge.cli import main; main({['train', '--dry-run', *device, *words]!r})"
        )
        ended = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stderr
        lines = {line.split()[0]: line.split() for line in ended.stdout.splitlines() if line.strip()}
        assert lines["problems"][1:] == ["18", "for", "training;", "2", "more", "for", "validation"]
        assert lines["rft"][1:7] == lines["ssd"][1:7] == ["25", "0.001", "2", "x", "4", "14"]
        assert lines["memory,"][2:] == ["rft", "ppo", "ssd"]
        assert ("--measure" in ended.stdout) == ("--gpu" not in device)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("words", [("--measure",), ("--gpu", "t4-16"), ("--dry-run", "--measure", "--gpu", "t4-16")])
def test_options_of_a_plan_that_contradict_each_other_are_refused(
    tiny_model: Path, problems: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError, match=r"Add --dry-run|Leave one out"):
        train(tiny_model, problems, tmp_path / "run", *words)


@pytest.mark.parametrize(("budget", "total"), [(25, 5), (24, 5), (1, 3), (1000, 9)])
def test_the_updates_that_a_budget_of_tokens_leaves_are_expected_from_those_so_far(
    tiny_model: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int, total: int
) -> None:
    def trained(settings: Any, folder: Path, *, log: Callable[[dict[str, Any]], None], **_: Any) -> Any:
        log({"phase": "binary", "step": 3, "steps": 9, "tokens_sampled": 15})
        raise KeyboardInterrupt

    monkeypatch.setattr("securecoderl_edge.training.train.train", trained)
    monkeypatch.setattr("securecoderl_edge.commands.train._describe", lambda row: "")
    words = ("--phases", "binary", "--set", "binary.steps=9", "--set", f"binary.max_tokens_sampled={budget}")
    ended = train(tiny_model, problems, tmp_path / "run", *words)
    assert f"training 3/{total}" in ended.stderr


@pytest.mark.parametrize("number", few([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], signal.SIGINT, signal.SIGHUP))
def test_a_run_that_is_asked_to_end_saves_the_update_and_goes_on_from_there(
    tiny_model: Path, problems: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def describe(row: dict[str, Any]) -> str:
        os.kill(os.getpid(), number)
        return "update"

    monkeypatch.setattr("securecoderl_edge.commands.train._describe", describe)
    monkeypatch.setattr("securecoderl_edge.commands.train._leave_terminal", lambda: None)
    handler = signal.getsignal(number)
    stopped = train(tiny_model, problems, tmp_path / "run", "--phases", "sft")
    assert stopped.exit_code != 0
    assert "stopped: update 1 of sft is saved; run the same command to resume" in stopped.stderr
    assert signal.getsignal(number) == handler
    monkeypatch.undo()
    result = train(tiny_model, problems, tmp_path / "run", "--phases", "sft")
    assert result.exit_code == 0
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert "sft 1/2" not in result.stderr


def read_until_update_2(read: Callable[[], bytes]) -> None:
    """Read what a training of 500 updates prints until two are done, or more: a bar shows ten states in a second."""
    shown = b""
    while not re.search(rb"sft ([2-9]|\d\d+)/500", shown):
        more = read()
        assert more, shown
        shown += more


@pytest.mark.slow
def test_a_closed_terminal_ends_a_run_with_its_update_saved(tiny_model: Path, problems: Path, tmp_path: Path) -> None:
    master, terminal = pty.openpty()
    with subprocess.Popen(
        long_training(tiny_model, problems, tmp_path / "run"),
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:  # fmt: skip
        os.close(terminal)
        read_until_update_2(lambda: os.read(master, 4096))
        os.close(master)
        assert process.wait(timeout=120) == 130
    assert_two_updates_are_saved(tmp_path / "run")


@pytest.mark.parametrize("number", few([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], signal.SIGINT))
def test_a_reader_that_ends_by_the_same_signal_takes_no_update_with_it(
    tiny_model: Path, problems: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """``sce train 2>&1 | tee log``: Ctrl-C ends tee before the line that answers it is written."""
    with subprocess.Popen(
        long_training(tiny_model, problems, tmp_path / "run"),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0,
    ) as process:  # fmt: skip
        read_until_update_2(lambda: process.stdout.read(4096))
        process.stdout.close()
        process.send_signal(number)
        assert process.wait(timeout=120) == 130
    assert_two_updates_are_saved(tmp_path / "run")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--set", "ppo.max_tokens=5000"), "no room for a prompt in a context of"),
        (("--problems", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--init", "nowhere"), "unknown run"),
        (("--set", "lora.targets=['nothing']"), "this model has no linear layer nothing. Choose from"),
        (
            (
                "--set",
                "ppo.advantage=gae",
                "--set",
                "ppo.value_warmup_steps=2",
                "--set",
                "ppo.drop_zero_variance_groups=false",
            ),
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


def test_a_plan_of_sft_without_solutions_is_refused_as_the_training_is(tiny_model: Path, tmp_path: Path) -> None:
    tests = [{"input": "", "output": "1"}]
    rows = [json.dumps({"id": name, "statement": f"Print {name}.", "tests": tests}) for name in ("a", "b")]
    (file := tmp_path / "none.jsonl").write_text("\n".join(rows))
    for phases, others in (("sft", "binary"), ("sft,partial", "partial")):
        for more in (("--dry-run",), ()):
            with pytest.raises(UsageError, match=f"so SFT cannot run. Leave it out with --phases {others}$"):
                train(tiny_model, file, tmp_path / "run", "--phases", phases, *more)
    words = ("--phases", "partial", "--dry-run", "--set", "ppo.batch_size=12", "--set", "ppo.samples_per_prompt=4")
    shown = train(tiny_model, file, tmp_path / "run", *words).stdout
    assert "fewer than an update of partial takes: problems repeat in it" in shown


@pytest.mark.parametrize(
    ("name", "words"),
    [("rewards:f", "expected FILE.py:NAME, such as rewards.py:brevity"), ("away.py:f", r"away.py: No such file")],
)
def test_a_reward_function_that_cannot_be_found_is_a_usage_error(
    tiny_model: Path, problems: Path, tmp_path: Path, name: str, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        train(tiny_model, problems, tmp_path / "run", "--reward-function", name, "--set", "reward.function=other.py:f")
    assert not (tmp_path / "run").exists()


def test_a_plan_shows_the_own_reward_with_its_weight_and_the_phases_that_use_it(
    tiny_model: Path, problems: Path, tmp_path: Path
) -> None:
    (file := tmp_path / "rewards.py").write_text("def f(completions, **columns): 1 / 0")
    words = ("--dry-run", "--phases", "sft,rft,binary")
    own = ("--reward-function", f"{file}:f", "--set", "reward.function_weight=0.2")
    shown = train(tiny_model, problems, tmp_path / "run", *words, *own).stdout
    assert f"\nreward          0.8 R + 0.2 f in rft, binary; f is {file}:f\n" in shown
    assert "\nreward " not in train(tiny_model, problems, tmp_path / "run", *words).stdout


def test_a_run_says_which_step_it_kept_and_why(tiny_model: Path, problems: Path, tmp_path: Path) -> None:
    result = train(tiny_model, problems, tmp_path / "run", "--phases", "sft,binary")
    assert result.exit_code == 0
    assert "sft: selected step" in result.stderr
    assert "binary: selected step" in result.stderr
    assert "held-out problems (reward " in result.stderr
    again = train(tiny_model, problems, tmp_path / "run", "--phases", "sft,binary")
    assert "is finished: nothing was trained" in again.stderr
    assert "nothing was trained" not in result.stderr


@pytest.mark.parametrize("words", [(), ("--measure",)])
def test_a_plan_downloads_nothing_of_a_model_that_is_half_here(
    tmp_path: Path, tiny_model: Path, problems: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    asked = []

    def base_folder(name: str, download: bool = True, **_: Any) -> Path:
        asked.append((name, download))
        return tiny_model

    for module in ("base", "inputs"):
        monkeypatch.setattr(f"securecoderl_edge.training.{module}.base_folder", base_folder)
    result = train(Path("someone/model"), problems, tmp_path / "run", "--dry-run", *words, "--phases", "sft")
    assert result.exit_code == 0, result.output
    assert asked == [("someone/model", False)]
