"""The APPS importer: what becomes of each oddity of the format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dataset_files import consume, needs_shared, only_problem
from places import SHARED

from securecoderl_edge.problems.assertions import assertions_of, satisfies
from securecoderl_edge.problems.datasets.importing import import_problems
from securecoderl_edge.problems.problem import Test


def write_apps(folder: Path, examples: Any, **files: Any) -> Path:
    """One APPS problem; ``files`` are further files of its folder by stem, JSON unless they are text."""
    folder.mkdir(parents=True)
    (folder / "question.txt").write_text(files.pop("question", "Add the numbers."), encoding="utf-8")
    text = examples if isinstance(examples, str) else json.dumps(examples)
    (folder / "input_output.json").write_text(text, encoding="utf-8")
    for stem, content in files.items():
        if stem == "starter_code":
            (folder / "starter_code.py").write_text(content, encoding="utf-8")
        else:
            (folder / f"{stem}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def test_an_apps_root_a_split_and_one_problem_give_the_same_ids(tmp_path: Path) -> None:
    folder = write_apps(tmp_path / "apps" / "train" / "0001", {"inputs": ["1\n"], "outputs": ["1\n"]})
    ids = [[problem.id for problem in import_problems(path).problems] for path in (folder, *list(folder.parents)[:2])]
    assert ids == [["apps/train/0001"]] * 3


def test_a_relative_path_gives_the_same_apps_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_apps(tmp_path / "train" / "0001", {"inputs": ["1\n"], "outputs": ["1\n"]})
    monkeypatch.chdir(folder)
    assert only_problem(Path(".")).id == "apps/train/0001"


def test_apps_problems_come_in_name_order(tmp_path: Path) -> None:
    for name in ("0003", "0001", "0002"):
        write_apps(tmp_path / "test" / name, {"inputs": ["1"], "outputs": ["1"]})
    names = [problem.id for problem in import_problems(tmp_path).problems]
    assert names == ["apps/test/0001", "apps/test/0002", "apps/test/0003"]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("1\n2\n", "1\n2\n"),
        (["1\n2\n"], "1\n2\n"),
        (["1", "2"], "1\n2\n"),
        ([["1", "2"]], "1\n2\n"),
        (["1", "2\n"], "1\n2\n"),
    ],
)
def test_an_apps_input_or_output_may_be_text_or_lines_or_wrapped(tmp_path: Path, given: Any, text: str) -> None:
    folder = write_apps(tmp_path / "0001", {"inputs": [given], "outputs": [given]})
    assert only_problem(folder).tests == (Test(text, text),)


def test_a_number_is_printed_but_never_typed(tmp_path: Path) -> None:
    folder = write_apps(tmp_path / "0001", {"inputs": ["1", 2, "3"], "outputs": [12, 2, True]})
    problems, dropped, tests = consume(import_problems(folder))
    assert [problem.tests for problem in problems] == [(Test("1", "12"),)]
    assert (dropped, tests) == ({}, {"input or output is not text": 2})


def test_arguments_of_a_function_that_is_not_named_are_no_standard_input(tmp_path: Path) -> None:
    examples = {"inputs": [[1, 2], [3, 4]], "outputs": [3, 7]}
    folder = write_apps(tmp_path / "a" / "0001", examples)
    _, dropped, _ = consume(import_problems(folder))
    assert dropped == {"function arguments without a function name": 1}
    (folder / "starter_code.py").write_text("def add(a, b):\n")
    assert only_problem(folder).assertions == ("assert add(1, 2) == 3", "assert add(3, 4) == 7")


def test_apps_tests_that_expect_nothing_are_left_out_and_counted(tmp_path: Path) -> None:
    write_apps(tmp_path / "train" / "0001", {"inputs": ["1", "2", "3"], "outputs": ["1", " \n", [""]]})
    problems, dropped, tests = consume(import_problems(tmp_path))
    assert [problem.tests for problem in problems] == [(Test("1", "1"),)]
    assert (dropped, tests) == ({}, {"empty expected output": 2})


@pytest.mark.parametrize(
    ("examples", "reason"),
    [
        ({}, "no tests"),
        ("", "no tests"),
        ({"inputs": [], "outputs": []}, "no tests"),
        ({"inputs": ["1"], "outputs": ["1", "2"]}, "different numbers of inputs and outputs"),
        ({"inputs": "1", "outputs": "1"}, "inputs or outputs are not a list"),
        ({"inputs": ["1"], "outputs": [""]}, "no usable tests"),
        ({"inputs": [None], "outputs": ["1"]}, "no usable tests"),
        ({"inputs": [[1]], "outputs": [1], "fn_name": "not a name"}, "fn_name is not a function name"),
        ({"inputs": [1], "outputs": [1], "fn_name": "f"}, "no usable tests"),
        ('{"inputs": [', "input_output.json is not valid JSON"),
        ("[" * 200_000, "input_output.json is not valid JSON"),
        (f'{{"inputs": [{"9" * 200_000}]}}', "input_output.json has a number with too many digits"),
        ("[1]", "input_output.json is not a JSON object"),
    ],
)
def test_an_unusable_apps_problem_is_dropped_for_a_named_reason(tmp_path: Path, examples: Any, reason: str) -> None:
    write_apps(tmp_path / "train" / "0001", examples)
    problems, dropped, _ = consume(import_problems(tmp_path))
    assert (problems, dropped) == ([], {reason: 1})


def test_an_apps_problem_without_a_statement_is_dropped(tmp_path: Path) -> None:
    write_apps(tmp_path / "train" / "0001", {"inputs": ["1"], "outputs": ["1"]}, question=" \n")
    assert consume(import_problems(tmp_path))[1] == {"no statement": 1}


def test_an_apps_statement_in_another_encoding_is_dropped(tmp_path: Path) -> None:
    folder = write_apps(tmp_path / "train" / "0001", {"inputs": ["1"], "outputs": ["1"]})
    (folder / "question.txt").write_bytes("Größe".encode("latin-1"))
    assert consume(import_problems(tmp_path))[1] == {"question.txt is not UTF-8 text": 1}


def test_apps_solutions_and_difficulty_are_kept(tmp_path: Path) -> None:
    solutions = ["print(1)\r\n", "print(1)\n", "", 3]
    metadata = {"difficulty": "interview"}
    examples = {"inputs": ["1"], "outputs": ["1"]}
    problem = only_problem(write_apps(tmp_path / "0001", examples, solutions=solutions, metadata=metadata))
    assert (problem.solutions, problem.difficulty) == (("print(1)\n",), "interview")


def test_an_apps_call_problem_becomes_assertions_and_names_its_signature(tmp_path: Path) -> None:
    examples = {"fn_name": "add", "inputs": [[1, 2], ["a", "b"]], "outputs": [[3], ["ab"]]}
    problem = only_problem(write_apps(tmp_path / "0001", examples, starter_code="def add(a, b):\n\t"))
    assert problem.assertions == ("assert add(1, 2) == [3]", "assert add('a', 'b') == ['ab']")
    assert (problem.kind, problem.entry_point) == ("call", "add")
    assert "`add(a, b)`" in problem.statement


@pytest.mark.parametrize(
    ("outputs", "accepted", "others"),
    [
        ([[3], [3]], [3, [3], (3,)], [[[3]], [3, 3], "3"]),
        ([3, 3], [3], [[3], "3"]),
        ([[3, 4], [5]], [[3, 4], (3, 4)], [3, [[3, 4]]]),
        ([[[3]], [[4]]], [[3], [[3]], ((3,),)], [3]),
        ([[None], [None]], [None, [None]], [0, []]),
        ([[], []], [[], ()], [None, [[]]]),
        ([{"a": [1]}], [{"a": [1]}, {"a": (1,)}], [{"a": 1}]),
    ],
)
def test_an_apps_output_of_one_item_is_the_item_too_as_its_grader_has_it(
    tmp_path: Path, outputs: Any, accepted: list[Any], others: list[Any]
) -> None:
    examples = {"fn_name": "f", "inputs": [[1]] * len(outputs), "outputs": outputs}
    problem = only_problem(write_apps(tmp_path / "0001", examples, starter_code="def f(n):"))
    assertion = assertions_of(problem)[0]
    assert [value for value in (*accepted, *others) if satisfies(value, assertion)] == accepted


def test_an_apps_solution_class_is_asked_for_and_gets_its_imports(tmp_path: Path) -> None:
    starter = "class Solution:\n    def first(self, items: List[int]) -> int:\n        "
    solution = f"{starter}return items[0]\n"
    examples = {"fn_name": "first", "inputs": [[[4, 5]]], "outputs": [4]}
    problem = only_problem(write_apps(tmp_path / "0001", examples, starter_code=starter, solutions=[solution]))
    assert problem.assertions == ("assert first([4, 5]) == 4",)
    assert "the class `Solution` with the method `first(items: List[int]) -> int`" in problem.statement
    assert problem.solutions[0].startswith("from typing import List\n")
    assert problem.starter_code.startswith("from typing import List\n")


def test_values_without_a_literal_are_left_out_of_apps_calls(tmp_path: Path) -> None:
    examples = '{"fn_name": "f", "inputs": [[1], [2]], "outputs": [NaN, 2]}'
    write_apps(tmp_path / "train" / "0001", examples)
    problems, _, tests = consume(import_problems(tmp_path))
    assert [problem.assertions for problem in problems] == [("assert f(2) == 2",)]
    assert tests == {"value without a Python literal": 1}


def test_integer_keys_that_json_lost_are_restored(tmp_path: Path) -> None:
    examples = {"fn_name": "f", "inputs": [[{"1": 2}]], "outputs": [{"a": {"3": 4}}]}
    problem = only_problem(write_apps(tmp_path / "0001", examples))
    assert problem.assertions == ("assert f({1: 2}) == {'a': {3: 4}}",)


def test_keys_that_no_integer_was_written_as_stay_text(tmp_path: Path) -> None:
    examples = {
        "fn_name": "f",
        "inputs": [[{"01": 1, "1": 2}], [{"1_0": 3}]],
        "outputs": [{"-0": 4}, {"-7": 5, "0": 6}],
    }
    problem = only_problem(write_apps(tmp_path / "0001", examples))
    assert problem.assertions == (
        "assert f({'01': 1, '1': 2}) == {'-0': 4}",
        "assert f({'1_0': 3}) == {-7: 5, 0: 6}",
    )


def test_the_kind_filter_judges_by_the_data_and_counts(tmp_path: Path) -> None:
    write_apps(tmp_path / "train" / "0001", {"inputs": ["1"], "outputs": ["1"]})
    write_apps(tmp_path / "train" / "0002", {"inputs": [[1]], "outputs": [1], "fn_name": "f"})
    for kind, kept, reason in (
        ("stdin", "apps/train/0001", "call problem, not stdin"),
        ("call", "apps/train/0002", "stdin problem, not call"),
    ):
        imported = import_problems(tmp_path, kind=kind)
        problems, dropped, _ = consume(imported)
        assert ([problem.id for problem in problems], dropped) == ([kept], {})
        assert {reason: entry.count for reason, entry in imported.tally.filtered.items()} == {reason: 1}


@needs_shared
def test_the_apps_samples_import_as_one_stdin_and_one_call_problem() -> None:
    problems = list(import_problems(SHARED / "apps").problems)
    assert [(problem.id, problem.kind, problem.test_count) for problem in problems] == [
        ("apps/train/0001", "stdin", 1),
        ("apps/train/4184", "call", 8),
    ]
    assert [len(problem.solutions) for problem in problems] == [24, 8]


@pytest.mark.parametrize("is_text", [True, False])
def test_long_integers_of_apps_are_read_and_longer_ones_are_told_of(tmp_path: Path, is_text: bool) -> None:
    def imported(digits: int) -> tuple[int, dict[str, int], dict[str, int]]:
        examples = f'{{"fn_name": "f", "inputs": [[1], [2]], "outputs": [{"9" * digits}, 3]}}'
        told = json.dumps(examples) if is_text else examples
        path = tmp_path / f"{digits}.jsonl"
        path.write_text(f'{{"problem_id": 1, "question": "q", "input_output": {told}}}\n', encoding="utf-8")
        problems, dropped, tests = consume(import_problems(path))
        return sum(len(problem.assertions) for problem in problems), dropped, tests

    assert imported(50_000) == (2, {}, {})
    if is_text:
        assert imported(200_000) == (0, {"input_output has a number with too many digits": 1}, {})
    else:
        assert imported(200_000) == (1, {}, {"value without a Python literal": 1})
