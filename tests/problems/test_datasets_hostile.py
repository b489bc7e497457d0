"""Records made to break an importer: each is left out, counted, and takes no other with it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from dataset_files import HUMANEVAL_RECORD, MBPP_RECORD, consume, only_problem, write_lines

from securecoderl_edge.problems.datasets.importing import import_problems

# JSON is read to this depth, but no text is made of it.
DEEP = functools.reduce(lambda inner, _: [inner], range(490), 1)


def imported_beside_a_good_one(tmp_path: Path, good: dict[str, Any], record: Any, format: str) -> dict[str, int]:
    """What is counted when a file holds a record and, before and after, good ones."""
    path = write_lines(tmp_path / "x.jsonl", [good, record, {**good, "task_id": "HumanEval/99", "name": "last"}])
    problems, dropped, tests = consume(import_problems(path, format))
    assert len(problems) == 2
    return dropped or tests


@pytest.mark.parametrize("number", [None, {"a": 1}, [1], True, ""])
def test_an_mbpp_problem_without_a_number_is_none(tmp_path: Path, number: Any) -> None:
    counts = imported_beside_a_good_one(tmp_path, MBPP_RECORD, {**MBPP_RECORD, "task_id": number}, "mbpp")
    assert counts == {'"task_id" or "test_list" is missing': 1}


def test_mbpp_tests_that_cannot_fail_are_left_out(tmp_path: Path) -> None:
    tests = ["assert add(1, 2) == 3", "assert True", "add(1, 2)", "assert add(", "pass"]
    path = write_lines(tmp_path / "x.jsonl", [{**MBPP_RECORD, "test_list": tests}])
    (problem,), dropped, counts = consume(import_problems(path))
    assert (problem.assertions, dropped) == (("assert add(1, 2) == 3",), {})
    assert counts == {"test asserts nothing": 3, "test is not Python": 1}


def test_a_long_program_is_parsed_once_for_all_of_its_tests(tmp_path: Path) -> None:
    code = f"{MBPP_RECORD['code']}\n" + "x = [1, 2, 3]\n" * 20_000
    tests = [f"assert add({number}, 0) == {number}" for number in range(3_000)]
    problem = only_problem(write_lines(tmp_path / "x.jsonl", [{**MBPP_RECORD, "code": code, "test_list": tests}]))
    assert problem.entry_point == "add"


def test_assertions_of_our_own_format_that_cannot_fail_are_left_out(tmp_path: Path) -> None:
    record = {"id": "a", "statement": "Add.", "kind": "call", "entry_point": "add"}
    path = write_lines(tmp_path / "x.jsonl", [{**record, "assertions": ["assert add(1, 2) == 3", "assert 1", "x ="]}])
    (problem,), _, counts = consume(import_problems(path))
    assert problem.assertions == ("assert add(1, 2) == 3",)
    assert counts == {"test asserts nothing": 1, "test is not Python": 1}


@pytest.mark.parametrize("name", ["not a name", "class", "f.g", "f()"])
def test_a_humaneval_entry_point_is_a_function_name(tmp_path: Path, name: str) -> None:
    record = {**HUMANEVAL_RECORD, "entry_point": name}
    counts = imported_beside_a_good_one(tmp_path, HUMANEVAL_RECORD, record, "humaneval")
    assert counts == {"entry_point is not a function name": 1}


def check(*lines: str, before: str = "") -> dict[str, Any]:
    return {**HUMANEVAL_RECORD, "test": f"{before}def check(f):\n" + "".join(f"    {line}\n" for line in lines)}


@pytest.mark.parametrize(
    ("lines", "before", "alone"),
    [
        (["assert f(1) == 2", "assert f(2) == 4"], "", 2),
        (["assert f(floor(1.5)) == 2"], "from math import *\n", 0),
        (["def same(x): return x", "assert f(same(1)) == 2", "assert f(2) == 4"], "", 1),
        (["class Same: x = 1", "assert f(Same.x) == 2"], "", 0),
        (["try:", "    1 / 0", "except ZeroDivisionError as error:", "    x = error", "assert f(1) == 2"], "", 1),
    ],
)
def test_assertions_that_need_what_is_beside_them_stay_with_it(
    tmp_path: Path, lines: list[str], before: str, alone: int
) -> None:
    problem = only_problem(write_lines(tmp_path / "x.jsonl", [check(*lines, before=before)]))
    singles = [assertion for assertion in problem.assertions if "def check" not in assertion]
    assert len(singles) == alone
    program = f"{HUMANEVAL_RECORD['prompt']}{HUMANEVAL_RECORD['canonical_solution']}"
    for assertion in problem.assertions:
        exec(f"{program}\n{assertion}", {})  # ours, not a stranger's


def test_the_parameter_of_a_lambda_is_not_the_candidate(tmp_path: Path) -> None:
    record = check("assert list(map(lambda f: f + 1, [f(1)])) == [3]", "assert (lambda x: f(x))(1) == 2")
    problem = only_problem(write_lines(tmp_path / "x.jsonl", [record]))
    assert problem.assertions == (
        "assert list(map(lambda f: f + 1, [double(1)])) == [3]",
        "assert (lambda x: double(x))(1) == 2",
    )


def test_a_value_beyond_what_python_can_work_with_costs_its_record_alone(tmp_path: Path) -> None:
    apps = {"name": "p", "question": "Add.", "fn_name": "f", "inputs": [[1]], "outputs": [2]}
    path = tmp_path / "data.json"
    path.write_text(json.dumps([apps, {**apps, "name": "deep", "inputs": [[DEEP]]}, {**apps, "name": "last"}]))
    problems, dropped, tests = consume(import_problems(path))
    assert [problem.id for problem in problems] == ["apps-plus/p", "apps-plus/last"]
    assert (dropped, tests) == ({"a value is nested too deeply or too large": 1}, {})
