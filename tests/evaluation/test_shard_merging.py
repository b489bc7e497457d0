"""Shards of an evaluation: together they are the rows of one run, and what does not fit together is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_runs import run_sce
from fake_runtime import FakeRuntime, mixed, problem
from once import Once

from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.shards import Shard, shard_of
from securecoderl_edge.problems.problem_file import write_problems

pytestmark = pytest.mark.usefixtures("one_sandbox")

# Batches of two problems, so five problems make three.
ARGS = ("good.gguf", "other.gguf", "--problems", "five.jsonl", "--samples", "2")
BATCH = 4


def bench(*args: str) -> tuple[int, str, str]:
    return run_sce("bench", *args)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_problems(tmp_path / "five.jsonl", [problem(number) for number in range(5)])
    for name in ("good", "other"):
        (tmp_path / f"{name}.gguf").write_text(f"GGUF {name}")
    monkeypatch.setattr("securecoderl_edge.evaluation.bench.BATCH", BATCH)
    monkeypatch.setattr("securecoderl_edge.runtimes.opening.open_runtime", lambda spec, **_: FakeRuntime(mixed))
    monkeypatch.setattr("securecoderl_edge.sandbox.calibration._seconds", lambda: 0.0)
    return tmp_path


@pytest.fixture
def shards(folder: Path, once: Once) -> list[str]:
    def make(shared: Path) -> None:
        for number in (1, 2, 3):
            code, _, err = bench(*ARGS, "--compare", "--shard", f"{number}/3", "--out", str(shared / str(number)))
            assert code == 0, err
            assert f"shard {number}/3: {1 if number == 3 else 2} of 5 problems" in err

    shutil.copytree(once("shards", make), "shards")
    return [f"shards/{number}" for number in (1, 2, 3)]


def rows(folder: str) -> list[dict[str, Any]]:
    """All rows below a folder, without what differs from run to run."""
    found = [json.loads(line) for path in sorted(Path(folder).glob("*/rows.jsonl")) for line in path.open()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in found]


def test_merged_rows_are_those_of_one_run_in_its_order(shards: list[str]) -> None:
    assert bench(*ARGS, "--out", "whole")[0] == 0
    code, out, err = bench("--merge", *reversed(shards), "--out", "merged", "--json")
    assert code == 0, err
    assert len(rows("whole")) == 20
    assert rows("merged") == rows("whole")
    merged, whole = json.loads(out), json.loads(Path("whole/bench.json").read_text())
    for ours, theirs in zip(merged["models"], whole["models"], strict=True):
        assert ours == theirs
    assert [(each["first"], each["second"]) for each in merged["comparisons"]] == [("good", "other")]
    assert merged["settings"] == whole["settings"]
    assert len(merged["machines"]) == 3


def test_a_merge_takes_no_engine(shards: list[str]) -> None:
    code, _, err = bench("--merge", *shards, "--engine", "ray")
    assert (code, "--merge joins files on this machine. Leave out --engine." in err) == (2, True)


def test_the_tables_are_those_of_one_run(shards: list[str]) -> None:
    for form in ("--markdown", "--csv"):
        assert bench("--merge", *shards, form)[0] == 0
    assert bench("--merge", *shards, "--csv")[1] == bench(*ARGS, "--csv")[1]
    assert "pass@2 %" in bench("--merge", *shards)[1]


def test_an_evaluation_resumes_in_a_merged_folder(shards: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert bench("--merge", *shards, "--out", "merged")[0] == 0
    assert bench("--merge", *shards, "--out", "merged")[0] == 0  # a second time adds nothing
    assert "good: 0 programs in " in bench(*ARGS, "--out", "merged")[2]


def test_merging_needs_no_model_and_takes_time_limits_of_several_machines(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, seconds in ((1, 0.0), (2, 1.0)):
        monkeypatch.setattr("securecoderl_edge.sandbox.calibration._seconds", lambda seconds=seconds: seconds)
        bench(*ARGS, "--shard", f"{number}/2", "--out", f"shards/{number}")
    for path in folder.glob("*.gguf"):
        path.unlink()
    code, out, err = bench("--merge", "shards/1", "shards/2", "--json")
    assert code == 0, err
    assert json.loads(out)["time_factor"] > 1


def forget(path: str) -> Callable[[], None]:
    return lambda: shutil.rmtree(path)


def change(path: str, old: str, new: str) -> Callable[[], None]:
    def act() -> None:
        (file,) = Path().glob(path)
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    return act


@pytest.mark.parametrize(
    ("act", "folders", "code", "message"),
    [
        (lambda: None, (1, 3), 2, "missing shard 2/3"),
        (lambda: shutil.copytree("shards/1", "shards/4"), (1, 2, 3, 4), 2, "are both shard 1/3"),
        (forget("shards/2"), (1, 2, 3), 2, "shards/2: not a finished shard"),
        (change("shards/2/bench.json", '"seed": 42', '"seed": 7'), (1, 2, 3), 1, "seed is 7, but 42 in shards/1"),
        (change("shards/2/bench.json", '"2/3"', "null"), (1, 2, 3), 2, "shards/2: not a shard"),
        (change("shards/2/bench.json", '"2/3"', '"2/4"'), (1, 2, 3), 1, "shard is I/4, but I/3 in shards/1"),
        (change("shards/2/bench.json", '"log"', '"lug"'), (1, 2, 3), 1, "bench.json is damaged"),
        (change("shards/1/bench.json", '"file_bytes": 9', '"file_bytes": [9]'), (1, 2, 3), 1, "one is not a number"),
        (change("shards/2/bench.json", '"model": "good"', '"model": ["good"]'), (1, 2, 3), 1, "one is not text"),
        (change("shards/2/good-*/settings.json", '"sha256": "', '"sha256": "0'), (1, 2, 3), 1, "good has another co"),
        (change("shards/2/good-*/rows.jsonl", '"id": "p3"', '"id": "p"'), (1, 2, 3), 1, "rows are missing"),
        (change("shards/2/good-*/rows.jsonl", '"id": "p3"', '"ib": "p3"'), (1, 2, 3), 1, "record 3 is damaged"),
        (
            change("shards/2/good-*/rows.jsonl", '"between_tokens_ms": [', '"finish": 1, "x": ['),
            (1, 2, 3),
            1,
            "invalid f",
        ),
        (
            change("shards/2/good-*/usage.jsonl", 'gpu_bytes": 0', 'gpu_bytes": 1e300'),
            (1, 2, 3),
            1,
            "not the usage of a batch",
        ),
        (
            change("shards/2/good-*/usage.jsonl", '"decode_seconds"', '"seconds"'),
            (1, 2, 3),
            1,
            "not the usage of a batch",
        ),
        (change("shards/2/good-*/settings.json", '"label": "', '"label": ["x"], "no": "'), (1, 2, 3), 1, "not text"),
        (change("shards/2/bench.json", '"load_average": [', '"load_average": [NaN, '), (1, 2, 3), 1, "is damaged"),
        (change("five.jsonl", "(3)", "(three)"), (1, 2, 3), 1, "are of other problems than here"),
    ],
)
def test_shards_that_do_not_fit_together_are_refused(
    shards: list[str], act: Callable[[], object], folders: tuple[int, ...], code: int, message: str
) -> None:
    act()
    found, out, err = bench("--merge", *(f"shards/{number}" for number in folders))
    assert (found, out, message in err) == (code, "", True), err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((*ARGS, "--shard", "1/2"), "--shard needs --out"),
        (("nano", "--shard", "1/2", "--out", "x"), "--shard needs --base-precision for models of torch"),
        ((*ARGS, "--shard", "4/4", "--out", "x"), "there are 3 batches of up to 2 problems. Use at most 3 shards"),
        ((*ARGS, "--shard", "3/2", "--out", "x"), "expected I/N"),
        ((*ARGS, "--shard", "half", "--out", "x"), "expected I/N"),
        (("--merge",), "--merge needs the folders"),
        (("--merge", "x", "--samples", "2"), "Leave out --samples"),
    ],
)
def test_what_is_no_shard_is_said_before_anything_is_evaluated(
    folder: Path, args: tuple[str, ...], message: str
) -> None:
    code, out, err = bench(*args)
    assert (code, out, message in err) == (2, "", True), err


def test_shards_share_all_items_about_equally() -> None:
    parts = [list(Shard(index, 3).of(range(8), "things")) for index in (1, 2, 3)]
    assert parts == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert shard_of("2/3") == Shard(2, 3)
    assert shard_of(None) == Shard()
    with pytest.raises(UsageError):
        shard_of("0/3")
