"""APPS+ and the hub's APPS: one file, read record by record, whatever its keys are called."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dataset_files import consume, filtered_tests, needs_shared, only_problem, write_lines
from places import SHARED

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.datasets import record_files
from securecoderl_edge.problems.datasets.importing import detect_format, import_problems
from securecoderl_edge.problems.problem import Test

RECORD = {"name": "p1", "question": "Add.", "inputs": ["1 2\n"], "outputs": ["3\n"], "difficulty": "interview"}


def write(path: Path, records: Any) -> Path:
    path.write_text(json.dumps(records), encoding="utf-8")
    return path


@pytest.mark.parametrize("statement", ["question", "prompt", "description"])
@pytest.mark.parametrize(("inputs", "outputs"), [("inputs", "outputs"), ("input", "output")])
@pytest.mark.parametrize(("solutions", "value"), [("solutions", ["print(3)"]), ("canonical_solution", "print(3)")])
def test_the_same_things_are_found_under_all_of_their_names(
    tmp_path: Path, statement: str, inputs: str, outputs: str, solutions: str, value: Any
) -> None:
    record = {"name": "p1", statement: "Add.", inputs: ["1 2\n"], outputs: ["3\n"], solutions: value}
    problem = only_problem(write(tmp_path / "data.json", [record]))
    assert (problem.id, problem.source, problem.statement) == ("apps-plus/p1", "apps-plus", "Add.")
    assert (problem.tests, problem.solutions) == ((Test("1 2\n", "3\n"),), ("print(3)",))


def test_an_object_of_records_gives_them_their_names(tmp_path: Path) -> None:
    record = {key: value for key, value in RECORD.items() if key != "name"}
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"first": record, "second": record}, indent=2), encoding="utf-8")
    assert [problem.id for problem in import_problems(path).problems] == ["apps-plus/first", "apps-plus/second"]


def test_records_without_a_name_are_numbered(tmp_path: Path) -> None:
    record = {key: value for key, value in RECORD.items() if key != "name"}
    for path in (write(tmp_path / "array.json", [record] * 2), write_lines(tmp_path / "lines.jsonl", [record] * 2)):
        assert [problem.id for problem in import_problems(path).problems] == ["apps-plus/0", "apps-plus/1"]


def test_the_hub_s_jsonl_is_recognized_and_its_inner_json_read(tmp_path: Path) -> None:
    record = {
        "problem_id": 7, "question": "Add.", "solutions": json.dumps(["print(3)"]), "difficulty": "introductory",
        "input_output": json.dumps({"inputs": ["1\n"], "outputs": ["3\n"]}), "url": "", "starter_code": "",
    }  # fmt: skip
    path = write_lines(tmp_path / "train.jsonl", [record])
    assert detect_format(path) == "apps"
    problem = only_problem(path)
    assert (problem.id, problem.solutions, problem.difficulty) == ("apps/7", ("print(3)",), "introductory")


def test_a_function_name_makes_a_call_problem_and_a_blank_one_does_not(tmp_path: Path) -> None:
    call = {**RECORD, "fn_name": "add", "inputs": [[1, 2]], "outputs": [3], "starter_code": "def add(a, b):\n    pass"}
    problem = only_problem(write(tmp_path / "call.json", [call]))
    assert (problem.kind, problem.entry_point, problem.assertions) == ("call", "add", ("assert add(1, 2) == 3",))
    assert only_problem(write(tmp_path / "blank.json", [{**RECORD, "fn_name": ""}])).kind == "stdin"


def test_a_file_of_every_oddity_is_imported_with_exact_counts(tmp_path: Path) -> None:
    records: list[Any] = [
        RECORD,
        {"name": "prompt", "prompt": "Add.", "input": ["1"], "output": ["1"], "canonical_solution": "print(1)"},
        {**RECORD, "name": "lines", "inputs": [["1", "2"]], "outputs": [["3"]]},
        {**RECORD, "name": "numbers", "inputs": ["1", 2], "outputs": [1, 2]},
        {**RECORD, "name": "json", "inputs": json.dumps(["1"]), "outputs": json.dumps(["2"])},
        {**RECORD, "name": "blank-output", "inputs": ["1", "2"], "outputs": [" \n", "2"]},
        {**RECORD, "name": "strange-input", "inputs": [{"a": 1}, "2"], "outputs": ["1", "2"]},
        {
            **RECORD,
            "name": "constraints",
            "inputs": ["1", "2", "3"],
            "outputs": ["Constraints:\n1 <= N", "3", "1 \\leq N \\leq 10^5"],
        },
        {**RECORD, "name": "many", "inputs": ["1"] * 100_000, "outputs": ["2"] * 100_000},
        {**RECORD, "name": "call", "fn_name": "f", "inputs": [[1]], "outputs": [2]},
        # And those that cannot be used:
        {**RECORD, "name": "nothing-expected", "outputs": [""]},
        {**RECORD, "name": "no-tests", "inputs": [], "outputs": []},
        {**RECORD, "name": "unequal", "inputs": ["1", "2"]},
        {**RECORD, "name": "no-list", "inputs": {"a": 1}},
        {**RECORD, "name": "broken-json", "inputs": "[1"},
        {**RECORD, "name": "no-statement", "question": "  "},
        {**RECORD, "name": "statement-3", "question": 3},
        {**RECORD, "name": "bad-name", "fn_name": "not a name"},
        RECORD,
        "no object",
    ]
    imported = import_problems(write(tmp_path / "data.json", records), kind="stdin", max_tests=4)
    problems, dropped, tests = consume(imported)
    assert [problem.id.partition("/")[2] for problem in problems] == [
        "p1", "prompt", "lines", "numbers", "json", "blank-output", "strange-input", "constraints", "many",
    ]  # fmt: skip
    assert dropped == {
        "no usable tests": 1,
        "no tests": 1,
        "different numbers of inputs and outputs": 1,
        "inputs or outputs are not a list": 1,
        "inputs is not valid JSON": 1,
        "no statement": 1,
        "statement is not text": 1,
        "fn_name is not a function name": 1,
        "duplicate id": 1,
        "expected a JSON object, found str": 1,
    }
    assert tests == {
        "empty expected output": 2,
        "input or output is not text": 2,
        "expected output contains constraints of the statement": 2,
    }
    assert {reason: entry.count for reason, entry in imported.tally.filtered.items()} == {"call problem, not stdin": 1}
    assert filtered_tests(imported) == {"beyond the first 4 of a problem": 99_996}


def test_what_was_left_out_is_named_by_its_place(tmp_path: Path) -> None:
    imported = import_problems(write(tmp_path / "data.json", [RECORD, {**RECORD, "name": "x", "inputs": []}]))
    list(imported.problems)
    assert imported.tally.dropped["no tests"].first == "data.json:record 1"
    twice = import_problems(write(tmp_path / "data.json", [RECORD, RECORD]))
    list(twice.problems)
    assert twice.tally.dropped["duplicate id"].first == "data.json:record 1"


def test_solutions_that_are_no_programs_are_counted_and_forbidden_where_all_must_be_usable(tmp_path: Path) -> None:
    path = write(
        tmp_path / "data.json",
        [
            {**RECORD, "solutions": ["print(1)", 3]},
            {**RECORD, "name": "p2", "solutions": {"a": 1}},
            {**RECORD, "name": "p3", "solutions": '["print(1)'},
            {**RECORD, "name": "p4", "solutions": "[print(x) for x in range(3)]"},
        ],
    )
    imported = import_problems(path)
    solutions = [problem.solutions for problem in imported.problems]
    assert solutions == [("print(1)",), (), (), ("[print(x) for x in range(3)]",)]
    assert {reason: entry.count for reason, entry in imported.tally.dropped_solutions.items()} == {
        "solution is not text": 1,
        "solutions are not a list": 1,
        "solutions are not valid JSON": 1,
    }
    with pytest.raises(SceError, match="unusable solution: solution is not text"):
        list(import_problems(path, strict=True).problems)


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps([RECORD]).encode())
    assert only_problem(path).id == "apps-plus/p1"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            json.dumps([RECORD, RECORD])[:-30].encode(),
            "data.json:after 1 records: .*the file is truncated",
        ),
        (
            json.dumps([RECORD, RECORD]).encode().replace(b"}, {", b"}; {"),
            "data.json:after 1 records: .*the file is not valid JSON from here on",
        ),
    ],
)
def test_a_file_that_breaks_off_gives_what_is_before_and_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(content)
    problems, dropped, _ = consume(import_problems(path, "apps-plus"))
    assert (len(problems), sum(dropped.values())) == (content.count(b"Add.") // 2, 1)
    with pytest.raises(SceError, match=words):
        list(import_problems(path, "apps-plus", strict=True).problems)


@pytest.mark.parametrize("size", [10, 70_000])
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (b'"1 2\\n"', b"9" * 6000, "no usable tests"),
        (b'"Add. ', b'"Add \xff', "not UTF-8 text"),
        (b'"Add. ', b'"Add \xe4\xb8', "not UTF-8 text"),
    ],
)
def test_a_record_that_cannot_be_read_takes_no_other_with_it(
    tmp_path: Path, old: bytes, new: bytes, reason: str, size: int
) -> None:
    path = tmp_path / "data.json"
    records = [{**RECORD, "name": name, "question": "Add. " + "a" * size} for name in ("a", "b", "c")]
    before, _, after = json.dumps(records).encode().partition(b'"name": "b"')
    path.write_bytes(before + b'"name": "b"' + after.replace(old, new, 1))
    problems, dropped, _ = consume(import_problems(path, "apps-plus"))
    assert [problem.id for problem in problems] == ["apps-plus/a", "apps-plus/c"]
    assert dropped == {reason: 1}


def test_an_array_is_the_same_wherever_its_pieces_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [{**RECORD, "name": f"é-{n}", "question": '\\ "Add" 加 ' * n, "difficulty": "x"} for n in range(1, 9)]
    path = tmp_path / "data.json"
    path.write_text(json.dumps(records, ensure_ascii=False, indent=1), encoding="utf-8")
    for size in (1, 2, 3, 7, 64):
        monkeypatch.setattr(record_files, "_PIECE", size)
        assert [record.value for record in record_files._items(path, "array")] == records


def test_a_string_without_an_end_does_not_take_all_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("securecoderl_edge.problems.datasets.record_files._LONGEST_VALUE", 200_000)
    path = tmp_path / "data.json"
    path.write_text(f'[{json.dumps(RECORD)}, {{"question": "' + "a" * 10_000_000)
    tracemalloc.start()
    try:
        problems, dropped, _ = consume(import_problems(path, "apps-plus"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (len(problems), dropped) == (1, {"the file is truncated": 1})
    assert peak < 5_000_000


def test_values_behind_a_long_one_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def excess(text: bytes) -> str:
        counted.append(len(text))
        return ""

    monkeypatch.setattr(record_files, "excess", excess)
    path = write(tmp_path / "data.json", ["a" * 600_000, *["b" * 20] * 20_000])
    assert sum(1 for _ in record_files._items(path, "array")) == 20_001
    assert sum(counted) < 5 * path.stat().st_size


def test_text_in_utf_16_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    path.write_bytes(json.dumps([RECORD]).encode("utf-16"))
    with pytest.raises(SceError, match="UTF-16"):
        list(import_problems(path, "apps-plus").problems)


def test_an_array_of_something_else_is_not_recognized(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown format.*'text'"):
        import_problems(write(tmp_path / "data.json", [{"text": "hello"}]))
    with pytest.raises(UsageError, match="expected a JSON object, found int"):
        import_problems(write(tmp_path / "numbers.json", [1, 2]))


def test_a_large_array_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    record = json.dumps({**RECORD, "inputs": ["1 2\n" * 250], "outputs": ["3\n"]})
    with path.open("w") as out:
        out.write("[" + ",".join([record.replace("p1", f"p{n}") for n in range(5000)]) + "]")
    size = path.stat().st_size
    tracemalloc.start()
    try:
        count = sum(1 for _ in import_problems(path).problems)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 5000
    assert peak < size / 3


@needs_shared
def test_the_apps_samples_are_the_same_problems_in_both_layouts(tmp_path: Path) -> None:
    folders = [SHARED / "apps" / "train" / name for name in ("0001", "4184")]

    def read(folder: Path, file: str) -> str:
        return (folder / file).read_text(encoding="utf-8") if (folder / file).is_file() else ""

    records = [
        {
            "problem_id": int(folder.name),
            "question": read(folder, "question.txt"),
            "input_output": read(folder, "input_output.json"),
            "solutions": read(folder, "solutions.json"),
            "starter_code": read(folder, "starter_code.py"),
            "difficulty": json.loads(read(folder, "metadata.json") or "{}").get("difficulty", ""),
        }
        for folder in folders
    ]
    from_hub = list(import_problems(write_lines(tmp_path / "train.jsonl", records)).problems)
    from_folder = list(import_problems(SHARED / "apps").problems)
    assert [replace(problem, id="") for problem in from_hub] == [replace(problem, id="") for problem in from_folder]


def test_numbers_of_any_size_are_read_exactly(tmp_path: Path) -> None:
    call = {**RECORD, "fn_name": "f", "inputs": [[2**70]], "outputs": [1.5], "starter_code": "def f(n):"}
    problem = only_problem(write(tmp_path / "data.json", [call]))
    assert problem.assertions == (f"assert f({2**70}) == 1.5",)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ("[" * 100_000, "nested too deeply from here on"),
        ('[{"question":' * 50_000, "nested too deeply from here on"),
    ],
)
def test_json_that_would_take_all_memory_is_named(tmp_path: Path, broken: str, words: str) -> None:
    path = tmp_path / "data.json"
    long = {**RECORD, "name": "p2", "question": "Add. " * 20_000}
    path.write_text(f"[{json.dumps(RECORD)}, {json.dumps(long)}, {broken}", encoding="utf-8")
    problems, dropped, _ = consume(import_problems(path, "apps-plus"))
    assert problems[0].id == "apps-plus/p1"
    ((reason, count),) = dropped.items()
    assert words in reason
    assert count == 1
