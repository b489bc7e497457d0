"""Importers of LiveCodeBench and of sets that were made for RL with tests."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
from dataset_files import consume, only_problem, write_lines

from securecoderl_edge.problems.datasets.importing import detect_format, import_problems
from securecoderl_edge.problems.datasets.verified import text_in_pickle, unpacked
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.scoring.scorer import Scorer


def packed(value: Any, protocol: int = 4) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


def stdin_case(given: str, expected: str) -> dict[str, Any]:
    return {"input": given, "output": expected, "testtype": "stdin"}


LIVECODEBENCH = {
    "question_title": "Double it",
    "question_content": "Read n and print 2n.",
    "platform": "atcoder",
    "question_id": "abc300_a",
    "contest_id": "abc300",
    "contest_date": "2024-01-06T00:00:00",
    "starter_code": "",
    "difficulty": "easy",
    "public_test_cases": json.dumps([stdin_case("1\n", "2\n")]),
    "private_test_cases": packed(json.dumps([stdin_case("4\n", "8\n")])),
    "metadata": "{}",
}
FUNCTIONAL = {
    **LIVECODEBENCH,
    "question_id": "3091",
    "starter_code": "class Solution:\n    def pick(self, nums: List[int], word: str) -> List[int]:\n        ",
    "public_test_cases": json.dumps([{"input": '[1, 2]\n"ab"', "output": "[2]", "testtype": "functional"}]),
    "private_test_cases": packed(json.dumps([{"input": '[3]\n""', "output": "[3]", "testtype": "functional"}])),
    "metadata": json.dumps({"func_name": "pick"}),
}
CASES = [{"type": "stdin_stdout", "fn_name": None, "input": "1 2\n", "output": "3\n"}]
OPEN_R1 = {
    "source": "taco",
    "task_type": "verifiable_code",
    "in_source_id": "17",
    "prompt": "Print the sum of two integers.",
    "gold_standard_solution": "```python\nprint(sum(map(int, input().split())))\n```",
    "verification_info": {"language": "python", "test_cases": CASES},
    "metadata": {"difficulty": "EASY"},
    "problem_id": "vcp_17",
}
DEEPCODER = {
    "problem": "Return the sum of a list.",
    "solutions": ["```python\ndef total(xs):\n    return sum(xs)\n```"],
    "tests": json.dumps([{"type": "function_call", "fn_name": "total", "input": [[1, 2]], "output": [3]}]),
}
EURUS = {
    "data_source": "taco",
    "prompt": [
        {"role": "system", "content": "Think."},
        {"role": "user", "content": "Print the sum of two integers.\n\nWrite Python code to solve the problem."},
    ],
    "ability": "code",
    "reward_model": {"ground_truth": json.dumps({"inputs": ["1 2\n"], "outputs": ["3\n"]}), "style": "rule"},
    "extra_info": {"index": 0, "split": "train"},
}
CODEFORCES = {
    "id": "4/A",
    "title": "Split",
    "time_limit": 1.5,
    "memory_limit": 64.0,
    "description": "Split n into two positive parts.",
    "input_format": "One integer n.",
    "output_format": "Two integers.",
    "interaction_format": None,
    "note": None,
    "examples": [{"input": "8\n", "output": "4 4\n"}],
    "official_tests": [{"input": "5\n", "output": "1 4\n"}],
    "input_mode": "stdio",
    "generated_checker": (
        "import sys\n\ndef read(path):\n    with open(path) as file:\n        return file.read().split()\n\n"
        "given, expected, printed = map(read, sys.argv[1:4])\n"
        "right = len(printed) == 2 and sum(map(int, printed)) == int(given[0]) and '0' not in printed\n"
        "print(1 if right else 0)\nsys.exit(0)\n"
    ),
    "tags": ["math"],
}


def imported(
    tmp_path: Path, *records: Any, format: str = "auto"
) -> tuple[list[Problem], dict[str, int], dict[str, int]]:
    return consume(import_problems(write_lines(tmp_path / "x.jsonl", records), format))


@pytest.mark.parametrize(
    ("record", "format"),
    [
        (LIVECODEBENCH, "livecodebench"),
        (OPEN_R1, "open-r1"),
        (DEEPCODER, "deepcoder"),
        (EURUS, "eurus"),
        (CODEFORCES, "codeforces"),
        ({**EURUS, "question": "Add.", "input_output": "{}"}, "apps"),
    ],
)
def test_each_set_is_recognized_by_its_keys(tmp_path: Path, record: Any, format: str) -> None:
    assert detect_format(write_lines(tmp_path / "x.jsonl", [record])) == format


def test_public_and_private_tests_of_livecodebench_are_kept_with_its_rule(tmp_path: Path) -> None:
    problem = only_problem(write_lines(tmp_path / "x.jsonl", [LIVECODEBENCH]))
    assert (problem.id, problem.difficulty, problem.rule.name) == ("livecodebench/abc300_a", "easy", "livecodebench")
    assert problem.tests == (Test("1\n", "2\n"), Test("4\n", "8\n"))


def test_arguments_of_livecodebench_are_one_json_value_per_line(tmp_path: Path, scorer: Scorer) -> None:
    problem = only_problem(write_lines(tmp_path / "x.jsonl", [FUNCTIONAL]))
    assert problem.assertions == ("assert pick([1, 2], 'ab') == [2]", "assert pick([3], '') == [3]")
    assert "class `Solution` with the method `pick(nums: List[int], word: str) -> List[int]`" in problem.statement
    solution = "class Solution:\n    def pick(self, nums, word):\n        return nums[-1],\n"
    assert scorer.score(problem, solution).passes_all_tests  # a tuple is as good as a list there


class Evil:
    def __reduce__(self) -> Any:
        return (exec, ("raise SystemExit('unpickled')",))


@pytest.mark.parametrize("value", [Evil(), [json.dumps([])], ("a", "b"), b"bytes", 7, None])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_of_anything_but_one_text_is_dropped_and_never_unpickled(
    tmp_path: Path, value: Any, protocol: int
) -> None:
    record = {**LIVECODEBENCH, "private_test_cases": packed(value, protocol)}
    (problem,), dropped, tests = imported(tmp_path, record)
    assert problem.tests == (Test("1\n", "2\n"),)
    assert (dropped, tests) == ({}, {"private tests are not JSON text": 1})


def test_private_tests_that_are_a_bomb_are_dropped(tmp_path: Path) -> None:
    record = {**LIVECODEBENCH, "private_test_cases": packed(f"[{'[],' * 2_000_000}[]]")}
    assert imported(tmp_path, record) == ([], {"tests has more than 2,000,000 objects and lists": 1}, {})


@pytest.mark.parametrize("protocol", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("text", ["", "a", "é" * 300, "x" * 70_000])
def test_a_pickle_of_one_text_is_read(text: str, protocol: int) -> None:
    assert text_in_pickle(pickle.dumps(text, protocol)) == text


@pytest.mark.parametrize(
    "damaged",
    [
        "no base64!",
        packed("[]")[:-8],
        *(
            base64.b64encode(data).decode()
            for data in (b"no zlib", b"", zlib.compress(b""), zlib.compress(b"\x94" * 999))
        ),
        base64.b64encode(zlib.compress(b"\x80\x04\x8c\xff")).decode(),
    ],
)
def test_damaged_private_tests_have_no_text(damaged: str) -> None:
    assert unpacked(damaged) is None


def test_open_r1_has_tests_of_both_kinds_and_a_solution_in_a_fence(tmp_path: Path) -> None:
    call = {"type": "function_call", "fn_name": "f", "input": "[[1, 2], 3]", "output": "[6]"}
    info = {"language": "python", "test_cases": [call]}
    as_text = {**OPEN_R1, "problem_id": "b", "verification_info": json.dumps(info)}
    other = {**OPEN_R1, "problem_id": "c", "verification_info": {"language": "cpp", "test_cases": CASES}}
    (stdin, function, unsolved), dropped, _ = imported(tmp_path, OPEN_R1, as_text, other)
    assert (stdin.id, stdin.tests, stdin.rule.name) == ("open-r1/vcp_17", (Test("1 2\n", "3\n"),), "apps")
    assert stdin.solutions == ("print(sum(map(int, input().split())))\n",)
    assert (function.entry_point, function.assertions) == ("f", ("assert f([1, 2], 3) == [6]",))
    assert (unsolved.solutions, dropped) == ((), {})


def test_deepcoder_has_three_forms_of_tests(tmp_path: Path, scorer: Scorer) -> None:
    of_taco = {**DEEPCODER, "tests": json.dumps({"fn_name": "total", "inputs": [[[1, 2]]], "outputs": [[3]]})}
    metadata = {"func_name": "total"}
    case = {"input": "[1, 2]", "output": "3", "testtype": "functional", "metadata": metadata}
    of_lcb = {**DEEPCODER, "tests": json.dumps([case])}
    problems, dropped, _ = imported(tmp_path, DEEPCODER, of_taco, of_lcb)
    assert ([problem.id for problem in problems], dropped) == (["deepcoder/0", "deepcoder/1", "deepcoder/2"], {})
    found = [problem.assertions for problem in problems]
    assert sorted(set(found)) == [("assert total([1, 2]) == 3",), ("assert total([1, 2]) == [3]",)]
    assert all(scorer.score(problem, problem.solutions[0]).passes_all_tests for problem in problems)


def test_eurus_asks_in_messages_and_its_mathematics_is_filtered_out(tmp_path: Path) -> None:
    progress = import_problems(write_lines(tmp_path / "x.jsonl", [{**EURUS, "ability": "math"}, EURUS]))
    (problem,) = progress.problems
    assert problem.statement.startswith("Print the sum of two integers.")
    assert (problem.id, problem.tests, problem.rule.name) == ("eurus/1", (Test("1 2\n", "3\n"),), "apps")
    assert {reason: entry.count for reason, entry in progress.tally.filtered.items()} == {"not about code": 1}
    assert (progress.tally.read, progress.tally.dropped) == (2, {})


def test_a_checker_of_codeforces_reads_texts_in_place_of_files(tmp_path: Path, scorer: Scorer) -> None:
    problem = only_problem(write_lines(tmp_path / "x.jsonl", [CODEFORCES]))
    assert (problem.id, problem.time_limit_s, problem.tags) == ("codeforces/4/A", 1.5, ("math",))
    assert problem.statement.startswith("Split\n\nSplit n into two positive parts.\n\nInput:\nOne integer n.")
    assert scorer.score(problem, "n = int(input())\nprint(n - 1, 1)").passes_all_tests
    assert not scorer.score(problem, "n = int(input())\nprint(n, 0)").passes_all_tests
    assert not scorer.score(problem, "print(1)").passes_all_tests


def test_codeforces_problems_without_plain_input_and_output_are_dropped(tmp_path: Path) -> None:
    interactive = {**CODEFORCES, "interaction_format": "Ask."}
    files = {**CODEFORCES, "input_mode": "file"}
    examples = {**CODEFORCES, "official_tests": None, "generated_checker": None}
    problems, dropped, _ = imported(tmp_path, interactive, files, examples)
    assert [problem.tests for problem in problems] == [(Test("8\n", "4 4\n"),)]
    assert (problems[0].checker, problems[0].rule.name) == ("", "code_contests")
    assert dropped == {"interactive": 1, "reads or writes files, not standard input and output": 1}


ODD = [None, 7, True, "", "text", "[1", [], [1], [[1]], {}, {"a": 1}, {"inputs": 1, "outputs": {}}, [{"input": None}]]


@pytest.mark.parametrize(
    "record", [LIVECODEBENCH, FUNCTIONAL, OPEN_R1, DEEPCODER, EURUS, CODEFORCES], ids=lambda each: next(iter(each))
)
def test_a_field_of_another_type_costs_at_most_its_record(tmp_path: Path, record: dict[str, Any]) -> None:
    format = detect_format(write_lines(tmp_path / "x.jsonl", [record]))
    odd = [{**record, name: value} for name in record for value in ODD]
    odd += [{key: value for key, value in record.items() if key != name} for name in record]
    progress = import_problems(write_lines(tmp_path / "x.jsonl", [record, *odd]), format)
    problems = list(progress.problems)
    assert progress.tally.read == len(odd) + 1
    write_problems(tmp_path / "out.jsonl", problems)
    assert len(load_problems(str(tmp_path / "out.jsonl"))) == len(problems)
