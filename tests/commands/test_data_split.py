"""`sce data split`, `leaks`, `stats`, and the files that `check` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from dataset_files import BAD, GOOD, UNCHECKED, read_lines, write_lines

from securecoderl_edge.cli import sce
from securecoderl_edge.errors import SceError, UsageError

TEXTS = [
    "Count the vowels of a word that stands in the only line of the input.",
    "Given a square matrix, print the sum of the numbers on its main diagonal.",
    "A shop sells apples and pears; find the cheapest way to buy so many of each.",
    "Reverse the order of the digits of a large number without leading zeros.",
    "Decide whether a sequence of brackets of three kinds is balanced.",
]


def record(name: str, statement: str, **fields: Any) -> dict[str, Any]:
    return {**GOOD, "id": name, "statement": statement, **fields}


PROBLEMS = [record(str(number), text) for number, text in enumerate(TEXTS)]
NEAR_COPY = record("copy", TEXTS[0].replace("vowels", "consonants"))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(sce, ["data", *arguments])


def ids(path: str) -> list[str]:
    return [each["id"] for each in read_lines(path)]


def test_a_split_writes_two_files_and_says_what_is_in_them() -> None:
    write_lines(Path("all.jsonl"), [*PROBLEMS, NEAR_COPY])
    result = run("split", "all.jsonl", "--eval", "2")
    assert (result.exit_code, result.stdout) == (0, "")
    first, *more = result.stderr.splitlines()
    assert first.startswith("all.jsonl: 6 problems in 5 groups of near-duplicates;")
    assert first.endswith("2 for evaluation in all-eval.jsonl")
    sides = ids("all-train.jsonl"), ids("all-eval.jsonl")
    withheld = 6 - len(sides[0]) - len(sides[1])
    assert more == ([f"left out {withheld} near-duplicates of evaluation problems"] if withheld else [])
    assert not {"0", "copy"} <= {*sides[0], *sides[1]} or {"0", "copy"} <= set(sides[0])


def test_a_split_never_writes_over_what_it_splits() -> None:
    write_lines(Path("all.jsonl"), PROBLEMS)
    before = Path("all.jsonl").read_bytes()
    for flag in ("--train-out", "--eval-out"):
        result = run("split", "all.jsonl", "--eval", "2", flag, "./all.jsonl", "--force")
        assert isinstance(result.exception, UsageError)
        assert "is also an input file" in str(result.exception)
    assert Path("all.jsonl").read_bytes() == before


def test_a_style_of_prompts_without_a_model_measures_nothing_and_is_refused() -> None:
    write_lines(Path("all.jsonl"), PROBLEMS)
    result = run("stats", "all.jsonl", "--prompt-style", "paper")
    assert isinstance(result.exception, UsageError)
    assert "--model" in str(result.exception)


def test_a_check_says_how_many_tests_it_left_alone_and_keeps_a_failure_on_one_line() -> None:
    many = {**GOOD, "tests": [{"input": "", "output": "1\n"}] * 7}
    write_lines(Path("all.jsonl"), [many, {**many, "id": "bad\nproblem", "solutions": ["print(2)"]}, BAD])
    result = run("check", "all.jsonl")
    assert "2 problems have more than 5 tests; only these were run (see --max-tests)" in result.stderr
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == ["bad\\nproblem", "bad"]
    assert "--max-tests" not in run("check", "all.jsonl", "--max-tests", "7").stderr


def test_stats_look_at_all_tests() -> None:
    tests = [{"input": "", "output": str(number)} for number in range(9)]
    write_lines(Path("all.jsonl"), [{**GOOD, "tests": tests}])
    assert json.loads(run("stats", "all.jsonl", "--json").stdout)["tests"]["most"] == 9
    assert run("show", "all.jsonl", "good").stdout.count(": expected output") == 9


def test_a_split_keeps_all_tests_and_can_be_had_as_json() -> None:
    many = [{"input": str(number), "output": "1"} for number in range(9)]
    write_lines(Path("all.jsonl"), [record(each["id"], each["statement"], tests=many) for each in PROBLEMS])
    result = run("split", "all.jsonl", "--eval", "1", "--json", "--train-out", "t.jsonl", "--eval-out", "e.jsonl")
    found = json.loads(result.stdout)
    assert (found["problems"], found["groups"], found["withheld"]) == (5, 5, [])
    assert (found["train"], found["evaluation"]) == (ids("t.jsonl"), ids("e.jsonl"))
    assert {len(each["tests"]) for each in [*read_lines("t.jsonl"), *read_lines("e.jsonl")]} == {9}


def test_files_of_a_split_are_overwritten_only_by_force() -> None:
    write_lines(Path("all.jsonl"), PROBLEMS)
    Path("all-eval.jsonl").write_text("mine")
    refused = run("split", "all.jsonl", "--eval", "1")
    assert isinstance(refused.exception, UsageError)
    assert Path("all-eval.jsonl").read_text() == "mine"
    assert run("split", "all.jsonl", "--eval", "1", "--force").exit_code == 0
    same = run("split", "all.jsonl", "--train-out", "x.jsonl", "--eval-out", "./x.jsonl")
    assert "are the same file" in str(same.exception)


def test_leaks_are_listed_and_their_problems_can_be_left_out() -> None:
    function = {"kind": "call", "tests": [], "assertions": ["assert is_balanced('()')"]}
    write_lines(Path("train.jsonl"), [*PROBLEMS[:4], {**PROBLEMS[4], **function, "entry_point": "is_balanced"}])
    named = {**record("name", "Brackets."), **function, "entry_point": "isBalanced"}
    write_lines(Path("eval.jsonl"), [record("same", TEXTS[3]), NEAR_COPY, named])
    result = run("leaks", "train.jsonl", "eval.jsonl", "--out", "clean.jsonl")
    assert result.exit_code == 1
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    assert [(one, other, by) for one, other, _, by in rows] == [
        ("0", "copy", "words"),
        ("3", "same", "words"),
        ("4", "name", "name"),
    ]
    assert result.stderr.splitlines() == [
        "3 of 5 problems of train.jsonl have a duplicate in eval.jsonl: 1 exact, 1 near, 0 by code, 1 by name",
        "wrote 2 problems to clean.jsonl",
    ]
    clean = run("leaks", "clean.jsonl", "eval.jsonl", "--json")
    assert clean.exit_code == 0
    assert json.loads(clean.stdout) == {"problems": 2, "others": 3, "leaks": []}


def test_a_file_of_which_everything_leaks_is_not_written() -> None:
    write_lines(Path("train.jsonl"), PROBLEMS)
    result = run("leaks", "train.jsonl", "train.jsonl", "--out", "clean.jsonl")
    assert isinstance(result.exception, SceError)
    assert not Path("clean.jsonl").exists()


def test_a_check_writes_time_limits_and_the_solutions_that_pass() -> None:
    several = record("several", "Say 1.", solutions=["print(2)", "print(1)"], time_limit_s=0.2)
    write_lines(Path("p.jsonl"), [several, BAD, UNCHECKED])
    result = run("check", "p.jsonl", "--out", "all.jsonl", "--drop-failing", "good.jsonl")
    assert result.exit_code == 1
    assert (ids("all.jsonl"), ids("good.jsonl")) == (["several", "bad", "unchecked"], ["several", "unchecked"])
    (checked, unchecked) = read_lines("good.jsonl")
    assert (checked["solutions"], checked["time_limit_s"]) == (["print(1)"], 1.0)
    assert "time_limit_s" not in unchecked
    assert read_lines("all.jsonl")[1]["solutions"] == BAD["solutions"]
    assert "wrote 2 problems to good.jsonl, time limit 1 s" in result.stderr


def test_one_file_is_not_written_twice() -> None:
    write_lines(Path("p.jsonl"), [GOOD])
    result = run("check", "p.jsonl", "--out", "x.jsonl", "--drop-failing", "./x.jsonl")
    assert isinstance(result.exception, UsageError)


def test_solutions_that_return_outside_of_functions_are_counted() -> None:
    write_lines(Path("p.jsonl"), [{**GOOD, "solutions": ["print(1)\nreturn"]}, {**BAD, "solutions": ["return"]}])
    result = run("check", "p.jsonl", "--out", "out.jsonl")
    assert "2 solutions have a return outside a function: 1 pass inside a function, 1 do not" in result.stderr
    assert "def program():" in read_lines("out.jsonl")[0]["solutions"][0]


def test_the_figures_of_a_file_are_printed_one_a_line() -> None:
    write_lines(Path("p.jsonl"), [GOOD, *PROBLEMS])
    result = run("stats", "p.jsonl")
    assert (result.exit_code, result.stderr) == (0, "")
    shown = {line[:18].strip(): line[19:] for line in result.stdout.splitlines()}
    assert shown["problems"] == "6: 6 stdin"
    assert shown["constant output"].startswith(
        "passes 100.0% of the tests (mean over problems), at least half of them in 6 of 6"
    )
    assert json.loads(run("stats", "p.jsonl", "--json").stdout)["problems"] == 6


def test_lengths_are_printed_for_a_model() -> None:
    pytest.importorskip("tokenizers")
    write_lines(Path("p.jsonl"), PROBLEMS)
    shown = run("stats", "p.jsonl", "--model", "nano").stdout
    assert "(style stdin, nano)" in shown
    assert "prompts do not fit the context of" in shown
    one = run("show", "p.jsonl", "0", "--model", "nano")
    count = json.loads(run("show", "p.jsonl", "0", "--model", "nano", "--json").stdout)["prompt_tokens"]
    assert f"--- prompt: {count} tokens of nano" in one.stdout


def test_a_prompt_is_shown_in_the_style_asked_for() -> None:
    write_lines(Path("p.jsonl"), PROBLEMS)
    assert "### Response:" in run("show", "p.jsonl", "0", "--prompt-style", "paper").stdout
    refused = run("show", "p.jsonl", "0", "--prompt-style", "chat")
    assert isinstance(refused.exception, UsageError)
    assert "needs the chat template of a model. Add --model." in str(refused.exception)
