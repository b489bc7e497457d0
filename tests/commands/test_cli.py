"""The `sce` group: help, typos, exit codes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import docs_reference
import pytest
from cli_runs import run_sce
from click.testing import CliRunner
from places import ROOT

from securecoderl_edge import cli
from securecoderl_edge.errors import SceError, UsageError, install_command
from securecoderl_edge.problems.sources import load_problems


def run(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "securecoderl_edge", *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_help_names_every_command_and_exits_0() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    assert all(f"\n  {name} " in shown.stdout for name in cli.COMMANDS)


def test_no_command_loads_what_is_heavy_before_it_runs() -> None:
    heavy = (
        "{'torch', 'transformers', 'tokenizers', 'llama_cpp', 'onnxruntime', 'bandit', 'numpy', 'asyncio', 'jinja2'}"
    )
    names = [f"securecoderl_edge.commands.{path.stem}" for path in (ROOT / "commands").glob("*.py")]
    code = f"import sys; [__import__(name) for name in {names}]; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_characters_that_the_output_cannot_encode_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"id": "a", "statement": "≥", "tests": [{"input": "", "output": "1"}]}\n')
    command = [sys.executable, "-m", "securecoderl_edge", "data", "show", "p.jsonl", "a"]
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, env=environment)
    assert (shown.returncode, b"\\u2265" in shown.stdout) == (0, True), shown.stderr


def test_no_arguments_show_the_help() -> None:
    shown = run()
    assert "sce train" in shown.stdout + shown.stderr


def test_a_mistyped_command_is_a_usage_error_with_a_suggestion() -> None:
    shown = run("tarin")
    assert shown.returncode == 2
    assert "Did you mean 'train'?" in shown.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SceError("no space"), 1),
        (UsageError("no such model"), 2),
        (KeyboardInterrupt(), 130),
        (MemoryError(), 1),
        (ValueError("oops"), 1),
    ],
)
def test_errors_become_one_line_and_an_exit_code(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: failing)
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train"])
    assert stopped.value.code == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.strip().splitlines()) == 1
    assert shown.err.lstrip().startswith("sce: ")  # click ends the line of a ^C first
    assert ("a bug" in shown.err) == isinstance(error, ValueError)


def test_what_a_message_quotes_cannot_steer_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def failing() -> None:
        raise SceError("architecture \x1b]0;owned\x07 is not supported")

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: failing)
    with pytest.raises(SystemExit):
        cli.main(["train"])
    assert capsys.readouterr().err == "sce: architecture \\x1b]0;owned\\x07 is not supported\n"


@pytest.mark.parametrize(
    "name", ["a.##[error]x", "a.##VSO[task]x", "a\n::error::b.py", "a\n ::error::b.##[c]", "::a.x"]
)
def test_no_message_about_a_file_commands_a_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text("print(1)")
    Path("a.out").write_text("1")
    Path(name).write_text("password = 'x##[error]'")
    documents = [("scan", ".", "--format", each) for each in ("json", "sarif", "junit")]
    for words in (("scan", "."), ("scan", name), ("score", "."), ("score", name), ("train", name), *documents):
        for line in "".join(run_sce(*words)[1:]).splitlines():
            assert not line.lstrip().startswith("::")
            assert "##[" not in line
            assert "##vso[" not in line.lower()


def test_debug_shows_the_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def failing() -> None:
        raise SceError("no space")

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: failing)
    with pytest.raises(SystemExit):
        cli.main(["--debug", "train"])
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("train", "--recipe", "nope"), 2, "unknown recipe 'nope'. Choose from base, instruct, paper-exact"),
        (("train", "--model", "nope"), 2, "unknown model 'nope'"),
        (("train", "--problems", "nope.jsonl"), 2, "nope.jsonl: no such file"),
        (("train", "--set", "ppo.epoch=1"), 2, "unknown setting 'epoch'"),
        (("train", "--phases", "sft,ppo"), 2, "'ppo' is not one of sft, binary, scheduled, partial"),
        (("train", "--max-steps", "0"), 2, "0 is not in the range"),
        (("train", "--seed", str(2**64)), 2, "is not in the range"),
        (("train", "--set", "reward.memory_mib=64"), 2, "memory_mib must be at least 128"),
        (("train", "--set", "reward.wall_seconds=1e300"), 2, "wall_seconds must be at least 0.1 and at most 86400.0"),
        (("bench", "nano", "--threads", "99999999999"), 2, "is not in the range"),
        (("bench", "nano", "--samples", "999999999"), 2, "is not in the range"),
        (("export",), 2, "sce train"),
        (("bench", "nope.gguf"), 2, "nope.gguf"),
        (("generate", "--model", "nope", "x"), 2, "nope"),
        (("score", "nope.py", "--input", "1", "--expect", "1"), 2, "nope.py"),
        (("report",), 2, "sce train"),
        (("report", "nope"), 2, "unknown training run 'nope'"),
        (("data", "show", "nope.jsonl", "x"), 2, "nope.jsonl"),
    ],
)
def test_bad_input_gets_one_sentence_and_no_traceback(
    args: tuple[str, ...], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if args[0] == "train":  # without it that is what is said first
        pytest.importorskip("torch", reason="needs the train extra")
    monkeypatch.chdir(tmp_path)
    status, stdout, stderr = run_sce(*args)
    assert status == code, stderr
    assert message in stderr
    assert "Traceback" not in stderr
    assert stdout == ""
    assert not list(tmp_path.iterdir())


def test_a_malformed_problems_file_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pytest.importorskip("torch", reason="needs the train extra")
    (tmp_path / "bad.jsonl").write_text(
        '{"id": "a", "statement": "s", "tests": [{"input": "", "output": "1"}]}\n{oops\n'
    )
    code, _, told = run_sce("train", "--problems", "bad.jsonl")
    assert code == 1
    assert "bad.jsonl:2: not valid JSON" in told
    assert not (tmp_path / "runs").exists()


def test_an_extra_that_is_not_installed_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import sys; sys.modules['torch'] = None\nfrom securecoderl_edge.cli import main\nmain(['train'])"
    shown = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 1
    assert "[train]" in install_command("train")
    assert shown.stderr.splitlines()[-1] == f"sce: torch is not installed; run: {install_command('train')}"


def test_train_makes_a_run_that_is_the_latest_and_says_what_is_next(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from securecoderl_edge.training import inputs

    monkeypatch.chdir(tmp_path)
    arguments = ["train", "--recipe", "starter", "--model", str(tiny_model), "--max-steps", "1", "--batch-size", "8"]
    # The packaged problems, but not all: each is tokenized.
    monkeypatch.setattr(inputs, "load_problems", lambda source, **given: load_problems(source, **given)[::25])
    small = ("ppo.max_tokens=8", "sft.batch_size=2", "selection.problems=2", "readiness_problems=2")
    arguments += [word for override in small for word in ("--set", override)]
    result = CliRunner().invoke(cli.sce, arguments)
    assert result.exit_code == 0, result.output
    assert "next: sce export" in result.stderr
    assert (tmp_path / "runs/latest").read_text() == "starter\n"
    assert (tmp_path / "runs/starter/policy/adapter_model.safetensors").is_file()
    assert len((tmp_path / "runs/starter/metrics.jsonl").read_text().splitlines()) == 3


@pytest.mark.slow
def test_ctrl_c_saves_a_checkpoint_and_exits_130(tiny_model: Path, tmp_path: Path) -> None:
    arguments = ["train", "--recipe", "starter", "--model", str(tiny_model), "--phases", "sft", "--out", "r"]
    command = [
        sys.executable,
        "-m",
        "securecoderl_edge",
        *arguments,
        "--set",
        "sft.batch_size=2",
        "--set",
        "sft.steps=500",
    ]
    metrics = tmp_path / "r/metrics.jsonl"
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    # The row of an update comes before it counts as finished, so the second one shows that the first is.
    while not (metrics.exists() and metrics.read_text().count("\n") > 1) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    (checkpoint,) = sorted((tmp_path / "r/phases/1-sft/checkpoints").iterdir())[-1:]
    done = int(checkpoint.name.partition("-")[2])
    assert 0 < done < 500
    # The signal may come between the row of an update and its end; a resumed run writes that row anew.
    assert len(metrics.read_text().splitlines()) in (done, done + 1)


def test_a_full_disk_behind_stdout_is_one_sentence() -> None:
    with open("/dev/full", "w") as full:
        shown = subprocess.run(
            [sys.executable, "-m", "securecoderl_edge", "--version"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (shown.returncode, shown.stderr) == (1, "sce: standard output: No space left on device\n")


def test_a_file_that_the_system_refuses_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @click.command()
    def failing() -> None:
        raise PermissionError(13, "Permission denied", "secret.txt")

    monkeypatch.setattr(cli.LazyGroup, "get_command", lambda *_: failing)
    with pytest.raises(SystemExit) as left:
        cli.main(["train"])
    assert left.value.code == 1
    assert capsys.readouterr().err == "sce: secret.txt: Permission denied\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_given_its_completion_script(shell: str) -> None:
    shown = run("completion", shell)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "_SCE_COMPLETE=" in shown.stdout
    assert f"{shell}_complete" in shown.stdout


def completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """What bash is offered for the last of the words."""
    monkeypatch.setenv("_SCE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", " ".join(("sce", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit):
        cli.main([])
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]


def test_commands_flags_and_models_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("starter", "nightly"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "environment.json").write_text("{}")
    assert completed(monkeypatch, capsys, "ge") == ["generate"]
    assert "--repair" in completed(monkeypatch, capsys, "generate", "--re")
    assert completed(monkeypatch, capsys, "bench", "n") == ["n", "nano", "nano-c", "nightly"]
    assert "starter" in completed(monkeypatch, capsys, "generate", "--model", "st")
    assert completed(monkeypatch, capsys, "train", "--recipe", "qw") == ["qw", "qwen-0.5b"]
    assert completed(monkeypatch, capsys, "train", "--init", "ni") == ["ni", "nightly"]
    assert "mbpp:clean" in completed(monkeypatch, capsys, "train", "--problems", "mb")
    assert "starter:security" in completed(monkeypatch, capsys, "data", "show", "starter:s")
    assert completed(monkeypatch, capsys, "models", "path", "nano-") == ["nano-c"]
    assert "nano-c" not in completed(monkeypatch, capsys, "models", "rm", "nano-")


def test_every_command_has_examples_which_it_would_accept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("answers.jsonl", "mine.jsonl", "shop.py", "sum.py", "test_shop.py", "functions.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "folder").mkdir()
    for words in docs_reference.commands():
        shown = CliRunner().invoke(cli.sce, [*words, "--help"]).output
        lines = [shlex.split(line) for line in shown.splitlines() if line.startswith("    sce ")]
        is_small = words[0] in ("config", "models") and len(words) == 2  # the group shows it
        assert lines or is_small or words in (["data"], ["reproduce"], ["completion"]), words
        for line in lines:
            assert not _refused(line), line


def _refused(words: list[str]) -> str:
    """What is wrong with a command line, without running it."""
    context, command, words = click.Context(cli.sce), cli.sce, words[1:]
    while isinstance(command, click.Group) and words:
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]
    words = words[: words.index(">")] if ">" in words else words
    try:
        command.make_context("sce", words)
    except click.UsageError as error:
        return error.message
    return ""


@pytest.mark.parametrize("words", ["CUDA error: an illegal memory access was encountered", "HIP error: lost"])
def test_a_gpu_that_fails_ends_any_command_with_one_sentence(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError(f"{words}\nCompile with TORCH_USE_CUDA_DSA")

    monkeypatch.setattr("securecoderl_edge.commands.doctor.doctor.callback", fails)
    with pytest.raises(SystemExit) as ended:
        cli.main(["doctor"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        f"sce: the GPU failed ({words}). Run the same command again, or add --device cpu\n"
    )


def test_an_older_python_is_refused_in_one_sentence() -> None:
    code = "import sys; sys.version_info = (3, 10); import securecoderl_edge"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("sce needs Python 3.11 or newer, and this is ")
    assert done.stderr.count("\n") == 1


def test_pip_refuses_an_older_python_in_one_sentence_before_it_compares_versions() -> None:
    code = "import runpy, sys; sys.version_info = (3, 10); runpy.run_path('setup.py')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("securecoderl-edge needs Python 3.11 or newer, and this is ")
    assert done.stderr.count("\n") == 1


def test_a_second_ctrl_c_while_libraries_clean_up_prints_no_traceback() -> None:
    program = """
import atexit, os, signal, sys
from securecoderl_edge import cli
atexit.register(os.kill, os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, signal.default_int_handler)
cli.sce.main = lambda **_: os.kill(os.getpid(), signal.SIGINT)
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr.strip()) == (-signal.SIGINT, "sce: interrupted")
