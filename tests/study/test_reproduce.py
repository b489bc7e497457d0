"""``sce reproduce``: one whole small study by processes of their own, and what is refused before any of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_runs import run_sce
from places import ROOT
from study_engine.table3 import Table3Settings

from securecoderl_edge.commands import reproduce as reproduce_command
from securecoderl_edge.commands.options import flags_of
from securecoderl_edge.errors import SceError
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems

RECIPE = """
model = {model}
[lora]
rank = 4
[sft]
steps = 1
batch_size = 2
[ppo]
batch_size = 4
samples_per_prompt = 2
epochs = 1
max_tokens = 8
micro_batch_tokens = 400
[selection]
problems = 0
"""


def run(*args: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``sce reproduce``."""
    return run_sce("reproduce", *args)


@pytest.fixture
def folder(tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a recipe for a tiny model, and problems."""
    monkeypatch.chdir(tmp_path)
    tests, solutions = (Test("1\n", "2\n"), Test("4\n", "5\n")), ("print(int(input()) + 1)\n",)
    problems = [Problem(f"p{n}", f"Add {n}.", tests=tests, solutions=solutions) for n in range(8)]
    write_problems(tmp_path / "train.jsonl", problems[:6])
    write_problems(tmp_path / "eval.jsonl", problems[6:])
    (tmp_path / "tiny.toml").write_text(RECIPE.format(model=json.dumps(str(tiny_model))))
    return tmp_path


TABLE3 = (
    *("table3", "--recipe", "tiny.toml", "--train", "train.jsonl", "--eval", "eval.jsonl", "--variants", "sft,cont"),
    *("--seeds", "1", "--samples", "1", "--updates", "2", "--quant", "", "--jobs", "2"),
)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_study_ends_in_a_table_and_is_not_made_twice(folder: Path) -> None:
    code, out, err = run(*TABLE3, "--json")
    assert code == 0, err
    record = json.loads(out)
    assert record == json.loads((folder / "runs/table3/table3.json").read_text())
    assert record["steps"] == record["steps_done"] == 5
    assert {arm["title"]: arm["phases"] for arm in record["arms"]} == {
        "SFT": ["sft"],
        "PPO-cont": ["sft", "binary", "partial"],
    }
    for arm in record["arms"]:
        (result,) = arm["results"]
        assert result["metrics"]["syntax_rate"]["n"] == 2
        assert arm["command"].startswith("sce train --recipe tiny.toml --problems train.jsonl")
    assert [each["second"] for each in record["comparisons"]] == ["own-cont"]
    code, again, err = run(*TABLE3, "--markdown")
    assert code == 0, err
    assert "evaluated on" not in err
    assert "| PPO-cont | float |" in again
    assert json.loads((folder / "runs/table3/table3.json").read_text())["wall_seconds"] == record["wall_seconds"]


def test_a_dry_run_prints_the_commands_and_writes_nothing(folder: Path) -> None:
    code, out, err = run(*TABLE3, "--dry-run")
    assert (code, err) == (0, "")
    assert [line.split()[1] for line in out.splitlines()] == ["bench", "train", "bench", "train", "bench"]
    assert not (folder / "runs").exists()


def test_a_shard_trains_its_seeds_alone(folder: Path) -> None:
    args = [*TABLE3[: TABLE3.index("--seeds") + 1], "5", *TABLE3[TABLE3.index("--seeds") + 2 :]]
    code, out, err = run(*args, "--shard", "2/3", "--dry-run")
    assert code == 0, err
    assert {word for word in out.split() if word in map(str, range(42, 47))} == {"43", "46"}


def test_a_node_gets_the_flags_that_were_typed() -> None:
    typed = ["--splits", "eval,hard", "--seeds", "3", "--quant", "", "--quick"]
    config = Table3Settings(splits=("eval", "hard"), seeds=3, quant=(), quick=True)
    assert flags_of(config) == typed
    assert flags_of(Table3Settings()) == []


def test_merging_trains_nothing_and_needs_results_of_the_study(folder: Path) -> None:
    (folder / "part").mkdir()
    code, out, err = run(*TABLE3, "--merge", "part")
    assert (code, out, "part: no finished results of this study" in err) == (1, "", True)
    assert list((folder / "runs/table3").rglob("*.log")) == []


def test_a_step_that_fails_is_told_with_its_reason(folder: Path) -> None:
    (folder / "runs/table3/seed-42/own-sft").mkdir(parents=True)
    (folder / "runs/table3/seed-42/own-sft/thesis.txt").write_text("keep me")
    code, _, err = run(*TABLE3, "--variants", "sft")
    assert code == 1
    assert "own-sft, seed 42: training failed: " in err
    assert "sce train --recipe tiny.toml" in err
    assert "output: runs/table3/seed-42/own-sft.log" in err


def test_problems_that_cannot_be_read_are_told_before_anything_begins(folder: Path) -> None:
    (folder / "eval.jsonl").write_text("{}\n")
    code, _, err = run(*TABLE3)
    assert code == 2
    assert "eval.jsonl: unknown format" in err
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("table3", "--train", "train.jsonl"), "--train and --eval need each other"),
        (("table3", "--splits", "eval,sparse"), "unknown split 'sparse' of recipe starter; choose from eval, hard"),
        (("table3", "--recipe", "tiny.toml"), "missing evaluation problems. Give them with --eval FILE"),
        (("table3", "--recipe", "nothing"), "unknown recipe 'nothing'. Choose from "),
        (("table2", "nano", "--recipe", "nothing"), "unknown recipe 'nothing'. Choose from "),
        (("table3", "--dry-run", "--json"), "Leave out --json"),
        (("table3", "--json", "--markdown"), "--json and --markdown exclude each other"),
        (("table3", "--variants", "sft,sparse"), "'sparse' is not one of"),
        (("table3", "--updates", "1"), "--updates"),
        (("table3", "--quick", "--seeds", "3"), "--quick sets --seeds itself"),
        (("table3", "--set", "ppo.epoch=3"), "unknown setting 'epoch'"),
        (("table3", "--set", "ppo.epochs"), "expected key=value"),
        (("table3", "--set", "partial.steps=3"), "Use --updates"),
        (("table3", "--quant", "q8_0,q99"), "does not support --quant q99; choose from f32, f16, bf16, q8_0"),
        (("table2", "nano", "--quick", "--limit", "9"), "--quick sets --limit itself"),
        (("table2",), "Missing models to evaluate"),
        (("table2", "nano", "--recipe", "tiny.toml"), "--recipe tiny.toml needs --problems"),
        (("table3", "--seeds", "2", "--shard", "3/3"), "there are 2 seeds. Use at most 2 shards"),
        (("table3", "--shard", "2"), "expected I/N"),
        (("table3", "--engine", "slurm"), "choose local, ray or ray://HOST:PORT"),
        (("table3", "--engine", "ray", "--shard", "1/2"), "Leave out --shard"),
        (("table4",), "No such command 'table4'"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_begun(
    folder: Path, args: tuple[str, ...], message: str
) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, "")
    assert message in err
    assert not (folder / "runs").exists()


def test_a_model_that_cannot_be_opened_does_not_cost_the_others(folder: Path, tiny_model: Path) -> None:
    (folder / "broken.gguf").write_bytes(b"GGUF but no more than that")
    code, out, err = run(
        "table2", "broken.gguf", str(tiny_model), "--problems", "eval.jsonl", "--samples", "1", "--json"
    )
    assert code == 1
    assert "1 of 2 models could not be evaluated" in err
    (model,) = json.loads(out)["sets"]["eval.jsonl"]["models"]
    assert model["problems"] == 2


def test_models_are_measured_as_they_come_on_every_set(folder: Path, tiny_model: Path) -> None:
    flags = ("--problems", "train.jsonl,eval.jsonl", "--samples", "1")
    code, out, err = run("table2", str(tiny_model), *flags, "--json")
    assert code == 0, err
    record = json.loads(out)
    counts = {source: document["models"][0]["problems"] for source, document in record["sets"].items()}
    assert counts == {"train.jsonl": 6, "eval.jsonl": 2}
    assert record["sets"]["eval.jsonl"]["models"][0]["parameters"] > 10_000
    code, out, err = run("table2", str(tiny_model), *flags, "--markdown")
    assert code == 0, err
    assert out.count(" M | ") == 2


@pytest.mark.parametrize(("given", "cores", "jobs"), [((), 8, 2), ((), 1, 1), (("--jobs", "3"), 2, 3)])
def test_a_quick_study_runs_two_trainings_side_by_side_where_there_are_two_cores(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], cores: int, jobs: int
) -> None:
    asked: list[int] = []
    monkeypatch.setattr("study_engine.table3.cpu_count", lambda: cores)
    monkeypatch.setattr("study_engine.steps.run_study", lambda _study, jobs, *_: asked.append(jobs))
    few_problems = TABLE3[: TABLE3.index("--variants")]
    run(*few_problems, "--quick", *given)
    assert asked == [jobs]
    run(*few_problems, "--jobs", str(jobs))
    assert asked == [jobs, jobs]
    run(*few_problems)
    assert asked == [jobs, jobs, 1]


def test_a_plan_of_the_papers_table_tells_memory_and_days(folder: Path) -> None:
    code, out, err = run("table3", "--recipe", "paper-exact", "--dry-run")
    assert code == 0
    assert all(line.startswith("sce ") for line in out.splitlines())
    assert "memory of a training: about 5.0 GiB, estimated" in err
    assert " days of a V100 with 16 GB for 5 seeds" in err
    assert "not measured" in err


def test_a_gpu_that_is_missing_is_told_before_any_step(folder: Path) -> None:
    for arguments in (("--recipe", "paper-exact"), ("--device", "cuda", *TABLE3[1:])):
        code, out, err = run("table3", *arguments)
        assert (code, out) == (2, "")
        assert err.startswith("sce: --device cuda: ")
        assert len(err.splitlines()) == 1
    assert not (folder / "runs").exists()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package alone, as a wheel has it."""
    package = tmp_path_factory.mktemp("site") / "securecoderl_edge"
    package.mkdir()
    for part in (ROOT / "securecoderl_edge").iterdir():
        if part.name != "commands":
            (package / part.name).symlink_to(part)
    shutil.copytree(ROOT / "commands", package / "commands")
    return package.parent


def sce_of(installed: Path, *args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "securecoderl_edge", *args],
        cwd=installed, env={**os.environ, "PYTHONPATH": str(installed), **environment},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("args", [(), ("--help",), ("table3",), ("table2", "--help"), ("table4",)])
def test_without_a_clone_one_sentence_says_that_it_needs_one(installed: Path, args: tuple[str, ...]) -> None:
    done = sce_of(installed, "reproduce", *args)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "sce: reproduce needs a clone of the repository: install sce from one with pip install -e .\n"


def test_without_a_clone_the_command_is_listed_and_a_shell_completes_it(installed: Path) -> None:
    assert "  reproduce   Reproduce the paper's tables" in sce_of(installed, "--help").stdout
    words = {"_SCE_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    assert sce_of(installed, **words, COMP_WORDS="sce rep").stdout.splitlines() == ["plain,reproduce", "plain,report"]
    after = sce_of(installed, **{**words, "COMP_CWORD": "2"}, COMP_WORDS="sce reproduce ")
    assert (after.stdout.strip(), after.stderr) == ("", "")


def test_a_node_without_a_clone_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reproduce_command, "_IS_CLONE", False)
    with pytest.raises(SceError, match="needs a clone of the repository"):
        reproduce_command.trainer_of_node({}, 1)


def test_a_node_finds_the_work_by_a_name_of_the_package() -> None:
    assert reproduce_command.trainer_of_node.__module__ == "securecoderl_edge.commands.reproduce"
    with (
        pytest.raises(SceError, match="nowhere is missing there"),
        reproduce_command.trainer_of_node({"from": "nowhere"}, 1),
    ):
        pass
