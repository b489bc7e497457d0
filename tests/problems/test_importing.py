"""Importers of JSONL formats, and how a format is recognized."""

from __future__ import annotations

import ast
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from dataset_files import (
    HUMANEVAL_RECORD,
    MBPP_RECORD,
    SHARED,
    consume,
    filtered_tests,
    needs_shared,
    only_problem,
    write_lines,
)

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.languages.python_source import signature
from securecoderl_edge.problems.datasets.importing import detect_format, import_problems
from securecoderl_edge.problems.problem import Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.sources import load_problems

# MBPP


def test_an_mbpp_problem_keeps_its_assertions_and_names_its_signature(tmp_path: Path) -> None:
    problem = only_problem(write_lines(tmp_path / "mbpp.jsonl", [MBPP_RECORD]))
    assert problem.id == "mbpp/7"
    assert problem.assertions == ("assert add(1, 2) == 3", "assert add(0, 0) == 0")
    assert problem.entry_point == "add"
    assert "`add(a, b)`" in problem.statement
    assert problem.solutions == ("def add(a, b):\n    return a + b",)


def test_mbpp_setup_code_runs_before_each_assertion(tmp_path: Path) -> None:
    record = {**MBPP_RECORD, "test_setup_code": "one = 1", "test_imports": ["import math"]}
    problem = only_problem(write_lines(tmp_path / "mbpp.jsonl", [record]))
    assert problem.assertions[0] == "import math\none = 1\nassert add(1, 2) == 3"


def test_mbpp_records_without_tests_or_statement_are_dropped(tmp_path: Path) -> None:
    records = [
        {**MBPP_RECORD, "test_list": []},
        {**MBPP_RECORD, "text": " "},
        {**MBPP_RECORD, "test_list": ["assert True"]},
        MBPP_RECORD,
        MBPP_RECORD,
    ]
    problems, dropped, _ = consume(import_problems(write_lines(tmp_path / "mbpp.jsonl", records), "mbpp"))
    assert len(problems) == 1
    assert dropped == {"no tests": 1, "no statement": 1, "no usable tests": 1, "duplicate id": 1}


# HumanEval


def test_a_humaneval_check_becomes_single_assertions(tmp_path: Path) -> None:
    problem = only_problem(write_lines(tmp_path / "h.jsonl", [HUMANEVAL_RECORD]))
    assert problem.id == "humaneval/9"
    assert problem.assertions == ("assert double(1) == 2", "assert double(0) == 0")
    assert problem.starter_code.startswith("def double")
    assert "`double(x: int) -> int`" in problem.statement


def test_a_humaneval_solution_is_a_whole_program(tmp_path: Path) -> None:
    problem = only_problem(write_lines(tmp_path / "h.jsonl", [HUMANEVAL_RECORD]))
    assert ast.parse(problem.solutions[0])
    assert problem.solutions[0].endswith("    return 2 * x\n")


def test_a_gzipped_file_is_read_like_a_plain_one(tmp_path: Path) -> None:
    packed = tmp_path / "h.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps(HUMANEVAL_RECORD).encode()))
    assert only_problem(packed) == only_problem(write_lines(tmp_path / "h.jsonl", [HUMANEVAL_RECORD]))


def test_what_depends_on_other_statements_of_a_check_stays_one_test(tmp_path: Path) -> None:
    test = (
        "def check(f):\n    assert f(1) == 2\n    assert True, 'always'\n    values = [1, 2]\n"
        "    for value in values:\n        assert f(value) == helper(value)\n    assert f(values)\n"
    )
    prompt = "import math\n\ndef helper(x):\n    return x + x\n\ndef double(x):\n    '''Twice.'''\n"
    record = {**HUMANEVAL_RECORD, "prompt": prompt, "test": test}
    imported = import_problems(write_lines(tmp_path / "h.jsonl", [record]))
    (problem,), _, tests = consume(imported)
    single, whole = problem.assertions
    assert single == "assert double(1) == 2"
    assert "def helper(x)" in whole
    assert "def double" not in whole
    assert whole.endswith("\n\ncheck(double)")
    assert (tests, filtered_tests(imported)) == ({}, {"assertion that always holds": 1})


def test_messages_of_humaneval_assertions_are_left_out(tmp_path: Path) -> None:
    record = {**HUMANEVAL_RECORD, "test": 'def check(candidate):\n    assert candidate(1) == 2, "message"\n'}
    assert only_problem(write_lines(tmp_path / "h.jsonl", [record])).assertions == ("assert double(1) == 2",)


def test_humaneval_records_without_a_check_are_dropped(tmp_path: Path) -> None:
    records = [
        {**HUMANEVAL_RECORD, "test": ""},
        {**HUMANEVAL_RECORD, "test": "def check("},
        {**HUMANEVAL_RECORD, "test": "def check(candidate):\n    assert True\n"},
    ]
    _, dropped, _ = consume(import_problems(write_lines(tmp_path / "h.jsonl", records)))
    assert dropped == {"no tests": 1, "test does not define check(candidate)": 1, "no usable tests": 1}


# Our own JSONL, detection, failures


def test_importing_our_own_file_filters_where_loading_refuses(tmp_path: Path) -> None:
    blank, good = {"input": "1", "output": " "}, {"input": "1", "output": "2"}
    records = [
        {"id": "a", "statement": "s", "tests": [blank, good]},
        {"id": "b", "statement": "s", "tests": [blank]},
        {"id": "c", "statement": "s", "tests": []},
    ]
    path = write_lines(tmp_path / "p.jsonl", records)
    problems, dropped, tests = consume(import_problems(path))
    assert [(problem.id, problem.tests) for problem in problems] == [("a", (Test("1", "2"),))]
    assert (dropped, tests) == ({"no usable tests": 1, "no tests": 1}, {"empty expected output": 2})
    with pytest.raises(SceError, match=r"p\.jsonl:1: test 1: the expected output is empty"):
        load_problems(str(path))


def test_an_import_keeps_more_tests_than_loading_does(tmp_path: Path) -> None:
    tests = [{"input": str(number), "output": "1"} for number in range(9)]
    path = write_lines(tmp_path / "p.jsonl", [{"id": "a", "statement": "s", "tests": tests}])
    assert only_problem(path).test_count == 9
    assert load_problems(str(path))[0].test_count == 5


@pytest.mark.parametrize(("format", "record"), [("mbpp", MBPP_RECORD), ("humaneval", HUMANEVAL_RECORD)])
def test_an_imported_problem_survives_writing_and_loading(tmp_path: Path, format: str, record: Any) -> None:
    problem = only_problem(write_lines(tmp_path / "source.jsonl", [record]), format)
    write_problems(tmp_path / "out.jsonl", [problem])
    assert load_problems(str(tmp_path / "out.jsonl")) == [problem]


@pytest.mark.parametrize(
    ("record", "format"),
    [(MBPP_RECORD, "mbpp"), (HUMANEVAL_RECORD, "humaneval"), ({"id": "a", "statement": "s"}, "jsonl")],
)
def test_a_jsonl_format_is_recognized_by_its_keys(tmp_path: Path, record: Any, format: str) -> None:
    assert detect_format(write_lines(tmp_path / "any-name.txt", [record])) == format


def test_an_unknown_format_is_described_by_its_keys(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="keys of the first record: 'code', 'name'"):
        detect_format(write_lines(tmp_path / "x.jsonl", [{"name": 1, "code": 2}]))


@pytest.mark.parametrize(
    ("wrong", "right"), [("statment", "statement"), ("asertions", "assertions"), ("entry_pont", "entry_point")]
)
def test_a_misspelled_field_is_named_with_the_one_that_was_meant(tmp_path: Path, wrong: str, right: str) -> None:
    record = {"id": "a", "statement": "x", "kind": "call", "entry_point": "f", "assertions": ["assert f() == 1"]}
    record[wrong] = record.pop(right)
    file = write_lines(tmp_path / "mine.jsonl", [record])
    words = f'unknown field "{wrong}"; "{right}" was probably meant'
    imported = import_problems(file, "jsonl")
    assert list(imported.problems) == []
    assert list(imported.tally.dropped) == [words]
    if right == "statement":
        with pytest.raises(UsageError, match=words):
            detect_format(file)


def test_a_folder_without_problems_is_no_apps_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no data file"):
        import_problems(tmp_path)


def test_an_empty_file_is_said_to_be_empty(tmp_path: Path) -> None:
    with pytest.raises(SceError, match="the file is empty"):
        import_problems(write_lines(tmp_path / "x.jsonl", []))


@pytest.mark.parametrize("format", ["auto", "apps", "apps-plus", "mbpp", "humaneval", "jsonl"])
def test_a_missing_source_is_a_usage_error(tmp_path: Path, format: str) -> None:
    with pytest.raises(UsageError, match="no such file"):
        import_problems(tmp_path / "nowhere", format)


def test_a_folder_cannot_be_imported_as_a_file_format(tmp_path: Path) -> None:
    for format in ("apps-plus", "mbpp"):
        with pytest.raises(UsageError, match="no data file"):
            import_problems(tmp_path, format)


@pytest.mark.parametrize(
    ("format", "line"),
    [
        ("mbpp", '{"task_id": 1'),
        ("mbpp", '{"id": "a"}'),
        ("mbpp", '{"task_id": 1, "test_list": "assert f()"}'),
        ("mbpp", '{"task_id": 1, "test_list": [], "code": 3}'),
        ("humaneval", '"a"'),
        ("humaneval", '{"task_id": "1", "prompt": "def f(): pass", "entry_point": 7}'),
        ("jsonl", '{"id": 3, "statement": "s", "tests": [{"input": "", "output": "1"}]}'),
        ("jsonl", '{"id": "a", "statement": "s", "tests": [{"input": "", "output": 1}]}'),
        ("jsonl", "7"),
    ],
)
def test_a_malformed_line_is_named_with_file_and_number(tmp_path: Path, format: str, line: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f"\n{line}\n", encoding="utf-8")
    imported = import_problems(path, format)
    assert list(imported.problems) == []
    assert [(entry.count, entry.first) for entry in imported.tally.dropped.values()] == [(1, "x.jsonl:2")]
    with pytest.raises(SceError, match=r"x\.jsonl:2: unusable record"):
        list(import_problems(path, format, strict=True).problems)


def test_a_gzip_file_that_breaks_off_gives_what_is_before_the_break(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    lines = (f"{json.dumps({**MBPP_RECORD, 'task_id': number, 'text': str(number) * 9})}\n" for number in range(999))
    path.write_bytes(gzip.compress("".join(lines).encode())[:-400])
    problems, dropped, _ = consume(import_problems(path, "mbpp"))
    assert 100 < len(problems) < 999
    assert dropped == {"the file is truncated": 1}


def test_what_is_no_gzip_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(b"{}")
    with pytest.raises(SceError, match=r"x\.jsonl\.gz: "):
        list(import_problems(path, "mbpp").problems)


def test_problems_are_read_as_they_are_consumed(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "x.jsonl", [MBPP_RECORD, "not a record"])
    imported = import_problems(path)
    assert next(imported.problems).id == "mbpp/7"
    assert imported.tally.read == 1
    assert next(imported.problems, None) is None
    assert imported.tally.read == 2


# The real files


@needs_shared
def test_all_of_mbpp_imports() -> None:
    problems, dropped, _ = consume(import_problems(SHARED / "mbpp.jsonl"))
    assert (len(problems), dropped) == (974, {})
    assert all(signature(problem.solutions[0], problem.entry_point or "") for problem in problems)


@needs_shared
def test_all_of_humaneval_imports() -> None:
    imported = import_problems(SHARED / "HumanEval.jsonl.gz", strict=True)
    problems, dropped, tests = consume(imported)
    assert (len(problems), dropped, tests) == (164, {}, {})
    assert filtered_tests(imported) == {"assertion that always holds": 48}
    assert all("candidate" not in assertion for p in problems for assertion in p.assertions if "\n" not in assertion)
