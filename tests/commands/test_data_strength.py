"""`sce data check --strength` and `sce data augment`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from dataset_files import BAD, GOOD, UNCHECKED, read_lines, write_lines

from securecoderl_edge.cli import sce
from securecoderl_edge.errors import SceError, UsageError

EVEN = "def even(n):\n    return n % 2 == 0"
WEAK = {
    "id": "weak",
    "statement": "Is n even?",
    "kind": "call",
    "entry_point": "even",
    "assertions": ["assert even(2) is True", "assert even(4)"],
    "solutions": [EVEN],
}
STRONG = {**WEAK, "id": "strong", "assertions": ["assert even(2)", "assert not even(3)"]}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_lines(Path("p.jsonl"), [WEAK, STRONG])


def run(*arguments: str) -> Result:
    return CliRunner().invoke(sce, ["data", *arguments])


def test_weak_problems_are_listed_counted_and_fail_the_check() -> None:
    result = run("check", "p.jsonl", "--strength")
    assert (result.exit_code, result.stdout) == (1, "weak: weak: passes: return True\n")
    lines = result.stderr.splitlines()
    assert lines[:2] == ["p.jsonl: 2 of 2 problems pass, 0 fail", "1 of 2 problems are weak (1 return True)"]
    assert lines[2].endswith("mutants pass all tests")
    assert run("check", "p.jsonl").exit_code == 0


def test_the_json_document_has_the_strength_of_each_problem() -> None:
    record = json.loads(run("check", "p.jsonl", "--strength", "--json").stdout)
    assert (record["total"], record["strength"]["weak"]) == (2, 1)
    assert [each["passing"] for each in record["strength"]["problems"]] == [["return True"], []]
    assert "strength" not in json.loads(run("check", "p.jsonl", "--json").stdout)


def test_weak_and_failing_problems_are_dropped_and_those_without_a_reference_stay() -> None:
    two = [{"input": "3", "output": "4"}, {"input": "", "output": "1"}]
    write_lines(Path("p.jsonl"), [WEAK, STRONG, BAD, {**UNCHECKED, "tests": two}])
    result = run("check", "p.jsonl", "--drop-weak", "out.jsonl", "--drop-failing", "good.jsonl")
    assert result.exit_code == 1
    assert [record["id"] for record in read_lines("out.jsonl")] == ["strong", "unchecked"]
    assert [record["id"] for record in read_lines("good.jsonl")] == ["weak", "strong", "unchecked"]


def test_a_file_of_weak_problems_alone_is_not_written() -> None:
    write_lines(Path("p.jsonl"), [WEAK])
    result = run("check", "p.jsonl", "--drop-weak", "out.jsonl")
    assert isinstance(result.exception, SceError)
    assert str(result.exception) == "out.jsonl was not written: every problem of p.jsonl fails or is weak"
    assert not Path("out.jsonl").exists()


def test_an_output_of_a_problem_cannot_steer_the_terminal() -> None:
    write_lines(Path("p.jsonl"), [{**GOOD, "tests": [{"input": "", "output": "\x1b[2J\n1"}], "solutions": []}])
    result = run("check", "p.jsonl", "--strength")
    assert "print '" in result.stdout
    assert all(each == "\n" or each.isprintable() for each in result.output)


def test_augmented_problems_are_weak_no_more() -> None:
    result = run("augment", "p.jsonl", "--out", "new.jsonl", "--tests", "3")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines() == [
        "p.jsonl: 6 new tests in 2 of 2 problems, in new.jsonl",
        "next: sce data check new.jsonl --strength",
    ]
    new = read_lines("new.jsonl")
    assert [(record["id"], record["tags"], len(record["assertions"])) for record in new] == [
        ("weak", ["augmented-tests:3"], 5),
        ("strong", ["augmented-tests:3"], 5),
    ]
    assert run("check", "new.jsonl", "--strength").exit_code == 0


def test_refused_problems_stay_as_they_are_and_are_told_with_the_reason() -> None:
    write_lines(Path("p.jsonl"), [STRONG, {**BAD, "id": "bad"}, UNCHECKED])
    result = run("augment", "p.jsonl", "--out", "new.jsonl", "--json")
    record = json.loads(result.stdout)
    assert (record["problems"], record["augmented"], record["added"]) == (3, {"strong": 5}, 5)
    assert record["refused"] == {
        "bad": "its reference fails the given tests (wrong)",
        "unchecked": "it has no reference solution",
    }
    assert [each["tests"] for each in read_lines("new.jsonl")[1:]] == [BAD["tests"], UNCHECKED["tests"]]
    assert "bad: no new tests: its reference fails" in run("augment", "p.jsonl", "--out", "other.jsonl").stdout


def test_augment_needs_a_file_that_is_not_the_source() -> None:
    assert "missing --out" in str(run("augment", "p.jsonl").exception)
    assert isinstance(run("augment", "p.jsonl", "--out", "p.jsonl", "--force").exception, UsageError)
    assert isinstance(run("augment", "nowhere.jsonl", "--out", "new.jsonl").exception, UsageError)
