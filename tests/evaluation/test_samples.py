"""Programs of an evaluation as EvalPlus reads them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_runs import run_sce
from fake_runtime import FakeRuntime, always

from securecoderl_edge.errors import UsageError
from securecoderl_edge.evaluation.evaluate import Evaluation
from securecoderl_edge.evaluation.samples import data_set_of, is_whole, write_samples
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.runtimes.protocol import Usage

HUMANEVAL = Problem("humaneval/3", "s", "call", entry_point="f", assertions=("assert f(1) == 1",), source="humaneval")
MBPP_PLUS = replace(HUMANEVAL, id="mbpp-plus/2", source="mbpp-plus")


def evaluation(label: str, *rows: tuple[str, int, str]) -> Evaluation:
    return Evaluation(
        label, tuple({"id": name, "sample": sample, "program": text} for name, sample, text in rows), Usage()
    )


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_file_has_every_sample_of_a_model_under_the_ids_of_evalplus(tmp_path: Path) -> None:
    rows = [("humaneval/3", sample, f"def f(x):\n    return {sample}\n") for sample in range(2)]
    (path,) = write_samples(tmp_path / "new", [HUMANEVAL], [evaluation("runs/one (2)", *rows)])
    assert path == tmp_path / "new" / "runs-one-2.jsonl"
    assert [sample["task_id"] for sample in lines(path)] == ["HumanEval/3"] * 2
    (other,) = write_samples(tmp_path, [MBPP_PLUS], [evaluation("m", ("mbpp-plus/2", 0, ""))])
    assert lines(other) == [{"task_id": "Mbpp/2", "solution": "from typing import *\n\n"}]


@pytest.mark.parametrize(
    "program",
    [
        "def f(x: List[int]) -> Optional[int]:\n    return x\n",
        "from __future__ import annotations\nx = 1\ndef f(x: List[int]):\n    return x\n",
        '"""About f."""\nfrom __future__ import annotations\ndef f(x):\n    return cast(int, x)\n',
        "def f(x):\n    return x\n\nif __name__ == '__main__':\n    raise SystemExit(1)\n",
        "List = 5\ndef f(x):\n    return x if List == 5 else None\n",
    ],
)
def test_a_program_runs_alone_where_it_ran_in_the_sandbox(program: str, tmp_path: Path) -> None:
    (path,) = write_samples(tmp_path, [HUMANEVAL], [evaluation("m", ("humaneval/3", 0, program))])
    names: dict[str, Any] = {}
    exec(lines(path)[0]["solution"], names)  # the test's own text
    assert names["f"](7) == 7


def test_text_that_is_no_program_stays_as_it_is(tmp_path: Path) -> None:
    for text in ("def f(:\n", "\ud800", "x\x00"):
        (path,) = write_samples(tmp_path, [HUMANEVAL], [evaluation("m", ("humaneval/3", 0, text))])
        assert lines(path)[0]["solution"] == text


def test_models_whose_names_give_one_file_name_get_two_files(tmp_path: Path) -> None:
    both = [evaluation(label, ("humaneval/3", 0, "x = 1\n")) for label in ("a/b", "a b")]
    assert [path.name for path in write_samples(tmp_path, [HUMANEVAL], both)] == ["a-b.jsonl", "a-b-2.jsonl"]


def test_only_problems_of_one_of_the_two_data_sets_have_samples() -> None:
    assert (data_set_of([HUMANEVAL]), data_set_of([MBPP_PLUS])) == ("humaneval", "mbpp")
    foreign = replace(HUMANEVAL, source="apps")
    for problems in ([foreign], [HUMANEVAL, foreign], [HUMANEVAL, MBPP_PLUS], [replace(HUMANEVAL, id="humaneval/x")]):
        with pytest.raises(UsageError, match="--evalplus needs problems of HumanEval or MBPP"):
            data_set_of(problems)


def test_a_part_of_a_data_set_is_known_to_be_one() -> None:
    assert is_whole(load_problems("humaneval"))
    assert is_whole(load_problems("mbpp:all"))
    for source in ("mbpp", "mbpp:train"):
        assert not is_whole(load_problems(source))
    assert not is_whole(load_problems("humaneval")[:-1])


@pytest.mark.usefixtures("one_sandbox")
def test_the_command_writes_samples_and_says_how_to_grade_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.gguf").write_text("GGUF")
    text = "def f(x):\n    return x\n"
    monkeypatch.setattr("securecoderl_edge.runtimes.opening.open_runtime", lambda *_, **__: FakeRuntime(always(text)))
    code, _, err = run_sce(
        "bench", "m.gguf", "--problems", "humaneval", "--limit", "2", "--samples", "2", "--evalplus", "samples"
    )
    assert code == 0, err
    assert "to grade: evalplus.evaluate --dataset humaneval --samples samples/m.jsonl" in err
    assert "EvalPlus grades whole data sets only" in err
    found = lines(tmp_path / "samples" / "m.jsonl")
    assert [each["task_id"] for each in found] == ["HumanEval/0", "HumanEval/0", "HumanEval/1", "HumanEval/1"]
    assert all(each["solution"].startswith("from typing import *\n") for each in found)


def test_other_problems_are_refused_before_anything_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.gguf").write_text("GGUF")
    code, _, err = run_sce("bench", "m.gguf", "--limit", "2", "--evalplus", "samples")
    assert (code, "--evalplus needs problems of HumanEval or MBPP" in err) == (2, True)
    assert not (tmp_path / "samples").exists()
