"""CodeContests and SecureCodeRL's own prompts."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest
from dataset_files import consume, only_problem, write_lines

from securecoderl_edge.problems.datasets.importing import detect_format, import_problems
from securecoderl_edge.problems.datasets.securecoderl import PAPER_TAG
from securecoderl_edge.problems.problem import Test
from securecoderl_edge.prompts.styles import PromptFormat

CONTEST = {
    "name": "1575_A. Another Sorting Problem",
    "description": "Sort the words.",
    "public_tests": {"input": ["1\n"], "output": ["2\n"]},
    "private_tests": {"input": ["3\n"], "output": ["4\n"]},
    "generated_tests": {"input": ["5\n", "6\n"], "output": ["", "7\n"]},
    "solutions": {"language": [2, 3, 1, 3], "solution": ["int main() {}", "print(2)", "print 2", "print(2)"]},
    "difficulty": 7,
    "cf_tags": ["sortings", ""],
    "time_limit": {"seconds": 2, "nanos": 500_000_000},
}


def test_a_contest_problem_keeps_its_python_solutions_and_tests_in_order(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "contests.jsonl", [CONTEST])
    assert detect_format(path) == "code-contests"
    (problem,), _, tests = consume(import_problems(path))
    assert problem.id == "code-contests/1575_A. Another Sorting Problem"
    assert problem.tests == (Test("1\n", "2\n"), Test("3\n", "4\n"), Test("6\n", "7\n"))
    assert tests == {"empty expected output": 1}
    assert problem.solutions == ("print(2)",)
    assert (problem.difficulty, problem.tags, problem.time_limit_s) == ("A", ("sortings",), 2.5)


@pytest.mark.parametrize(
    ("given", "difficulty"), [(1, "easy"), (6, "external"), (0, ""), (28, "V"), ("hard", "hard"), (True, "")]
)
def test_difficulties_get_their_names(tmp_path: Path, given: Any, difficulty: str) -> None:
    assert only_problem(write_lines(tmp_path / "c.jsonl", [{**CONTEST, "difficulty": given}])).difficulty == difficulty


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({"seconds": 2, "nanos": 500_000_000}, 2.5),
        ({"seconds": 0, "nanos": 0}, None),
        ({"seconds": True}, None),
        ({"seconds": 10**400}, None),
        ({"seconds": -1, "nanos": 2 * 10**9}, None),
        ({"seconds": float("nan")}, None),
        ("2 seconds", None),
    ],
)
def test_a_time_limit_is_a_sane_number_of_seconds_or_none(tmp_path: Path, given: Any, seconds: float | None) -> None:
    problem = only_problem(write_lines(tmp_path / "x.jsonl", [{**CONTEST, "time_limit": given}]))
    assert problem.time_limit_s == seconds


def test_tests_and_solutions_may_be_lists_of_objects(tmp_path: Path) -> None:
    record = {
        **CONTEST,
        "public_tests": [{"input": "1", "output": "2"}],
        "private_tests": None,
        "generated_tests": [],
        "solutions": [{"language": "PYTHON3", "solution": "print(2)"}, {"language": "CPP", "solution": "x"}],
        "time_limit": None,
    }
    problem = only_problem(write_lines(tmp_path / "c.jsonl", [record]))
    assert (problem.tests, problem.solutions, problem.time_limit_s) == ((Test("1", "2"),), ("print(2)",), None)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"description": " "}, "no statement"),
        ({"input_file": "in.txt"}, "reads or writes files, not standard input and output"),
        ({"public_tests": {"input": "1", "output": "2"}}, "inputs or outputs are not a list"),
        ({"public_tests": {}, "private_tests": {}, "generated_tests": {}}, "no tests"),
        ({"public_tests": {"input": ["1", "2"], "output": ["3"]}}, "different numbers of inputs and outputs"),
        ({"description": 3}, '"description" must be a string, found int'),
    ],
)
def test_a_contest_problem_that_cannot_be_used_is_counted(tmp_path: Path, change: Any, reason: str) -> None:
    _, dropped, _ = consume(import_problems(write_lines(tmp_path / "c.jsonl", [{**CONTEST, **change}])))
    assert dropped == {reason: 1}


# SecureCodeRL


def stub(question: str) -> str:
    """The prompt that the paper's data preparation makes of a question."""
    name = hashlib.md5(question[:50].encode(), usedforsecurity=False).hexdigest()[:5]
    return f'def solve_{name}():\n    """{question.strip()}\n    """\n'


def prompts(count: int, **changes: Any) -> list[dict[str, Any]]:
    return [
        {
            "prompt": stub(f"Question {number}: read a number.\n\n-----Input-----\nA number."),
            "test_cases": {"inputs": ["1\n"], "outputs": [f"{number}\n"]},
            "problem_id": f"apps_plus_{number}",
            "difficulty": "interview",
            "num_tests": 1,
            **changes,
        }
        for number in range(count)
    ]


def write(path: Path, records: list[dict[str, Any]], indent: int | None = 2) -> Path:
    head = {"count": len(records), "max_tests_per_problem": 5, "format_version": "2.0"}
    path.write_text(json.dumps({**head, "prompts_with_tests": records}, indent=indent), encoding="utf-8")
    return path


@pytest.mark.parametrize("indent", [2, None])
def test_the_prompts_of_the_paper_are_recognized_and_their_statements_taken_out(
    tmp_path: Path, indent: int | None
) -> None:
    path = write(tmp_path / "ppo_prompts_with_tests.json", prompts(2), indent)
    assert detect_format(path) == "securecoderl"
    problem = next(import_problems(path).problems)
    assert problem.statement == "Question 0: read a number.\n\n-----Input-----\nA number."
    assert (problem.id, problem.difficulty) == ("securecoderl/apps_plus_0", "interview")
    assert problem.tests == (Test("1\n", "0\n"),)


def test_the_paper_style_makes_the_paper_s_prompt_of_it_again(tmp_path: Path) -> None:
    records = prompts(3)
    problems = import_problems(write(tmp_path / "p.json", records)).problems
    for problem, record in zip(problems, records, strict=True):
        expected = f"### Instruction:\nComplete the following code:\n\n{record['prompt']}\n\n### Response:\n"
        assert PromptFormat("paper").prompt(problem) == expected


def test_the_hundred_prompts_that_the_paper_drew_carry_a_tag(tmp_path: Path) -> None:
    records = prompts(300)
    # One that cannot be used changes nothing about which of the others were drawn.
    records[0]["test_cases"] = {"inputs": [], "outputs": []}
    problems, dropped, _ = consume(import_problems(write(tmp_path / "p.json", records)))
    rng = random.Random()
    rng.seed(42)
    drawn = {record["problem_id"] for record in rng.sample(records, 100)}
    tagged = {problem.id.partition("/")[2] for problem in problems if PAPER_TAG in problem.tags}
    assert tagged == drawn - {"apps_plus_0"}
    assert dropped == {"no tests": 1}


@pytest.mark.parametrize("name", ["p.json", "p.json.gz"])
def test_of_prompts_that_are_not_all_there_the_paper_drew_none(tmp_path: Path, name: str) -> None:
    text = json.dumps({"count": 7408, "prompts_with_tests": prompts(150)}).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    problems, _, _ = consume(import_problems(path))
    assert len(problems) == 150
    assert not any(PAPER_TAG in problem.tags for problem in problems)


def test_function_calls_among_the_prompts_are_left_out_and_counted(tmp_path: Path) -> None:
    records = prompts(4)
    records[1]["test_cases"] = {"inputs": ["[[1, 2], 'a']\n", "['\\d', {}]\n"], "outputs": ["3\n", "4\n"]}
    records[2]["test_cases"] = {"inputs": ["[1, 2]\n3\n"], "outputs": ["3\n"]}
    records[3]["test_cases"] = {"inputs": ["[not a list\n"], "outputs": ["3\n"]}
    problems, dropped, _ = consume(import_problems(write(tmp_path / "p.json", records)))
    assert len(problems) == 3
    assert dropped == {"function arguments without a function name": 1}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"prompt": 3}, '"prompt" is not text'),
        ({"prompt": 'def solve_abcde():\n    """\n    """\n'}, "no statement"),
        ({"test_cases": []}, '"test_cases" is not a JSON object'),
        ({"test_cases": {"inputs": "1", "outputs": ["1"]}}, "inputs or outputs are not a list"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_counted(tmp_path: Path, change: Any, reason: str) -> None:
    assert consume(import_problems(write(tmp_path / "p.json", prompts(1, **change))))[1] == {reason: 1}


def test_a_prompt_that_is_no_stub_is_the_statement_itself(tmp_path: Path) -> None:
    path = write(tmp_path / "p.json", prompts(1, prompt="Read a number and double it."))
    assert next(import_problems(path).problems).statement == "Read a number and double it."
