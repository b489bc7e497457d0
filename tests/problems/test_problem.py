"""The problem format: what is accepted, what is refused, and that messages say where."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.problems.problem_file import (
    MAX_TESTS,
    ProblemError,
    problem_digest,
    problem_from_record,
    problem_to_record,
    write_problems,
)
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.system.rows import read_jsonl

STDIN: dict[str, Any] = {"id": "a", "statement": "Add.", "tests": [{"input": "1 2\n", "output": "3\n"}]}
CALL: dict[str, Any] = {
    "id": "b",
    "statement": "Add.",
    "kind": "call",
    "entry_point": "add",
    "assertions": ["assert add(1, 2) == 3"],
}


def problem_file(folder: Path, *records: Any) -> Path:
    path = folder / "problems.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def test_a_minimal_record_is_a_stdin_problem() -> None:
    assert problem_from_record(STDIN) == Problem("a", "Add.", tests=(Test("1 2\n", "3\n"),))


def test_a_call_problem_has_assertions_for_tests() -> None:
    problem = problem_from_record(CALL)
    assert (problem.kind, problem.entry_point, problem.test_count) == ("call", "add", 1)
    assert problem.tests == ()


def test_each_assertion_and_each_test_counts_up_to_the_limit() -> None:
    tests = [{"input": "", "output": str(number)} for number in range(9)]
    assertions = [f"assert f() == {number}" for number in range(9)]
    assert problem_from_record({**STDIN, "tests": tests}).test_count == MAX_TESTS
    assert problem_from_record({**CALL, "assertions": assertions}).test_count == MAX_TESTS
    assert problem_from_record({**STDIN, "tests": tests}, max_tests=7).tests[-1] == Test("", "6")


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ([], "expected a JSON object, found list"),
        ({**STDIN, "id": None}, '"id" is missing or empty'),
        ({**STDIN, "id": " "}, '"id" is missing or empty'),
        ({**STDIN, "id": 7}, '"id" must be a string, found int'),
        ({**STDIN, "statement": ""}, '"statement" is missing or empty'),
        ({**STDIN, "kind": "function"}, '"kind" must be "stdin" or "call", found \'function\''),
        ({**STDIN, "kind": []}, '"kind" must be'),
        ({**STDIN, "tests": []}, "no tests"),
        ({**STDIN, "tests": {"input": "1"}}, '"tests" must be a list'),
        ({**STDIN, "tests": ["1"]}, 'test 1 must be an object with "input" and "output"'),
        ({**STDIN, "tests": [{"input": "1"}]}, 'test 1 needs the strings "input" and "output"'),
        ({**STDIN, "tests": [{"input": 1, "output": "1"}]}, 'test 1 needs the strings "input" and "output"'),
        (
            {**STDIN, "tests": [*STDIN["tests"], {"input": "", "output": " \n"}]},
            "test 2: the expected output is empty",
        ),
        ({**CALL, "assertions": []}, "no assertions"),
        ({**CALL, "assertions": ["assert f()", " "]}, "assertion 2 is empty"),
        ({**CALL, "assertions": "assert f()"}, '"assertions" must be a list of strings'),
        ({**CALL, "entry_point": None}, '"entry_point" is missing or empty'),
        ({**STDIN, "solutions": [1]}, '"solutions" must be a list of strings'),
        ({**STDIN, "tags": "easy"}, '"tags" must be a list of strings'),
        ({**STDIN, "time_limit_s": "5"}, '"time_limit_s" must be a number'),
        ({**STDIN, "time_limit_s": True}, '"time_limit_s" must be a number'),
        ({**STDIN, "time_limit_s": 0}, '"time_limit_s" must be a positive number'),
        ({**STDIN, "time_limit_s": float("nan")}, '"time_limit_s" must be a positive number'),
        ({**STDIN, "time_limit_s": float("inf")}, '"time_limit_s" must be a positive number'),
        ({**STDIN, "time_limit_s": 10**400}, '"time_limit_s" must be a positive number'),
    ],
)
def test_a_record_that_breaks_the_format_is_refused_with_the_rule(record: Any, message: str) -> None:
    with pytest.raises(ProblemError) as caught:
        problem_from_record(record)
    assert str(caught.value).startswith(message)


def test_security_tests_have_a_name_and_a_weakness() -> None:
    named = {"name": "code", "cwe": 95}
    stdin = problem_from_record({**STDIN, "security_tests": [{**named, "input": "x", "output": "error"}]})
    assert stdin.security_tests == (SecurityTest("code", 95, "x", "error"),)
    call = {**CALL, "security_tests": [{**named, "assertion": "assert raises(add('', 1), TypeError)"}] * 9}
    assert len(problem_from_record(call).security_tests) == 9, "all of them: they are not samples of one kind"
    forbidding = problem_from_record({**STDIN, "security_tests": [{**named, "input": "x", "forbidden": "y"}]})
    assert forbidding.security_tests == (SecurityTest("code", 95, "x", forbidden="y"),)
    for problem in (stdin, forbidding, problem_from_record(call)):
        assert problem_from_record(problem_to_record(problem)) == problem
        assert problem.test_count == 1


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("x", 'security test 1 needs a "name"'),
        ({"cwe": 95, "input": "", "output": "1"}, 'security test 1 needs a "name"'),
        ({"name": "n", "cwe": "95", "input": "", "output": "1"}, '"cwe" must be the number'),
        ({"name": "n", "cwe": True, "input": "", "output": "1"}, '"cwe" must be the number'),
        ({"name": "n", "cwe": 0, "input": "", "output": "1"}, '"cwe" must be the number'),
        ({"name": "n", "cwe": 95, "input": "", "output": " "}, "security test 1: the expected output is empty"),
        ({"name": "n", "cwe": 95, "forbidden": "y"}, 'security test 1 needs the string "input"'),
        ({"name": "n", "cwe": 95, "input": "x", "forbidden": " "}, '"forbidden" is empty; it must be text'),
        ({"name": "n", "cwe": 95, "input": "x", "output": "1", "forbidden": "y"}, 'has "output" and "forbidden"'),
        ({"name": "n", "cwe": 95, "input": "xy", "forbidden": "y"}, "the input contains the forbidden text"),
        ({"name": "n", "cwe": 95, "input": "x"}, 'security test 1 needs "output" or "forbidden"'),
        ({"name": "n", "cwe": 95, "assertion": "assert f()"}, 'has "assertion", which is not for "kind": "stdin"'),
    ],
)
def test_a_malformed_security_test_is_refused(test: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=re.escape(message)):
        problem_from_record({**STDIN, "security_tests": [test]})
    with pytest.raises(ProblemError, match='has "input" and "output", which is not for "kind": "call"'):
        problem_from_record({**CALL, "security_tests": [{"name": "n", "cwe": 95, "input": "", "output": "1"}]})
    with pytest.raises(ProblemError, match='needs an "assertion"'):
        problem_from_record({**CALL, "security_tests": [{"name": "n", "cwe": 95}]})
    for wrong in ({}, "", 0):
        with pytest.raises(ProblemError, match='"security_tests" must be a list'):
            problem_from_record({**CALL, "security_tests": wrong})


def test_an_assertion_that_only_compares_is_refused() -> None:
    with pytest.raises(ProblemError, match=r"assertion 2 asserts nothing\. Write: assert add\(1, 2\) == 4"):
        problem_from_record({**CALL, "assertions": ["assert add(1, 2) == 3", "add(1, 2) == 4"]})
    for fails in ("check(add)", "if add(1, 2) != 3: raise ValueError"):
        assert problem_from_record({**CALL, "assertions": [fails]}).assertions == (fails,)


@pytest.mark.parametrize(
    ("assertion", "message"),
    [
        ("assert", "test is not Python"),
        ("add(1, 2)", "test asserts nothing"),
        ("assert True", "test asserts nothing"),
        ("assert (add(1, 2) == 3, 'a tuple is always true')", "test asserts nothing"),
        ("assert raises(add, ERRORS[0])", "raises(CALL, ERROR)"),
        ("assert raises(add, TypeError)", "raises(CALL, ERROR)"),
        ("assert raises('add(1, 2)', TypeError)", "raises(CALL, ERROR)"),
        ("raises(add('', 1), TypeError)", "Write: assert CONDITION"),
        ("assert raises(add('', 1), (TypeError, ERRORS[0]))", "raises(CALL, ERROR)"),
        ("assert raises(add('', 1), 'TypeError')", "raises(CALL, ERROR)"),
        ("assert raises(add('', 1), ())", "raises(CALL, ERROR)"),
        ("assert raises(add('', 1))", "raises(CALL, ERROR)"),
        ("assert raises(add('', 1), TypeError) and add(1, 2)", "raises(CALL, ERROR)"),
        ("assert raises(add('', 1), TypeError)\nassert add(1, 2) == 3", "raises(CALL, ERROR)"),
    ],
)
def test_a_security_assertion_that_cannot_fail_or_hold_is_refused(assertion: str, message: str) -> None:
    with pytest.raises(ProblemError, match=re.escape(message)):
        problem_from_record({**CALL, "security_tests": [{"name": "n", "cwe": 20, "assertion": assertion}]})


@pytest.mark.parametrize(
    ("misspelled", "meant"), [("solution", "solutions"), ("test_", "tests"), ("statment", "statement")]
)
def test_a_misspelled_field_is_named_and_others_are_ignored(misspelled: str, meant: str) -> None:
    record = {**STDIN, "level": 3, "text": "x"}
    assert problem_from_record({**record, "solutions": [], "solution": "x"}).solutions == ()
    record.pop(meant, None)
    with pytest.raises(ProblemError, match=f'unknown field "{misspelled}"; "{meant}" was probably meant'):
        problem_from_record({**record, misspelled: STDIN.get(meant)})


def test_names_of_fields_that_are_too_long_to_be_meant_are_compared_with_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for parts of a long name in ours takes far more memory than the record."""
    monkeypatch.setattr("difflib.get_close_matches", lambda name, *_: pytest.fail(name[:20]))
    assert problem_from_record({**STDIN, "solution" * 1000: "x"}).solutions == ()


def test_null_means_that_an_optional_field_is_missing() -> None:
    fields = dict.fromkeys(("starter_code", "solutions", "difficulty", "source", "tags", "time_limit_s"))
    assert problem_from_record({**STDIN, **fields}) == problem_from_record(STDIN)


TEXT = st.text(st.characters(), min_size=1, max_size=20)
VISIBLE = TEXT.filter(lambda text: bool(text.strip()))
PROBLEMS = st.builds(
    Problem,
    id=VISIBLE,
    statement=VISIBLE,
    tests=st.lists(st.builds(Test, TEXT, VISIBLE), min_size=1, max_size=MAX_TESTS).map(tuple),
    starter_code=TEXT,
    solutions=st.lists(TEXT).map(tuple),
    difficulty=TEXT,
    tags=st.lists(TEXT).map(tuple),
    time_limit_s=st.none() | st.floats(0.1, 100),
)


@given(PROBLEMS)
def test_a_problem_survives_its_record(problem: Problem) -> None:
    assert problem_from_record(json.loads(json.dumps(problem_to_record(problem)))) == problem


def test_problems_survive_a_file_even_with_odd_characters(tmp_path: Path) -> None:
    odd = "a\r\n\u2028\x85\x00\ud800🙂"
    problems = [
        Problem("a", odd, tests=(Test(odd, odd),), solutions=(odd,)),
        Problem("b", "Add.", kind="call", entry_point="f", assertions=("assert f()",), time_limit_s=2.5),
    ]
    assert write_problems(tmp_path / "out.jsonl", problems) == 2
    assert load_problems(str(tmp_path / "out.jsonl")) == problems


def test_a_failed_write_leaves_no_file(tmp_path: Path) -> None:
    def failing() -> Any:
        yield problem_from_record(STDIN)
        raise SceError("stop")

    with pytest.raises(SceError, match="stop"):
        write_problems(tmp_path / "out.jsonl", failing())
    assert list(tmp_path.iterdir()) == []


def test_blank_lines_are_skipped_and_counted_in_line_numbers(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('\n{"a": 1}\n \n2\n', encoding="utf-8")
    assert list(read_jsonl(path)) == [(2, {"a": 1}), (4, 2)]


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"])
def test_a_byte_order_mark_and_windows_line_ends_do_no_harm(tmp_path: Path, prefix: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(prefix + b'{"a": 1}\r\n{"b": 2}')
    assert list(read_jsonl(path)) == [(1, {"a": 1}), (2, {"b": 2})]


def test_a_gzipped_problem_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "problems.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(STDIN).encode()))
    assert load_problems(str(path)) == [problem_from_record(STDIN)]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 200_000, "not valid JSON"),
        (b"9" * 200_000, "a number with too many digits"),
        (b'{"id": "\xff"}', "not UTF-8 text (invalid start byte at byte 8 of the line)"),
        ('{"id": "a"}'.encode("utf-16"), "not UTF-8 text"),
    ],
)
def test_a_line_that_cannot_be_decoded_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"1\n" * 20_000 + line + b"\n")
    with pytest.raises(SceError) as caught:
        list(read_jsonl(path))
    assert str(caught.value).startswith(f"{path}:20001: {message}")


def test_a_record_that_breaks_the_format_is_named_with_file_and_line(tmp_path: Path) -> None:
    path = problem_file(tmp_path, STDIN, {**STDIN, "id": "b", "tests": []})
    with pytest.raises(SceError, match=r"problems\.jsonl:2: no tests"):
        load_problems(str(path))


def test_a_repeated_id_is_named_with_both_lines(tmp_path: Path) -> None:
    path = problem_file(tmp_path, STDIN, CALL, STDIN)
    with pytest.raises(SceError, match=r"problems\.jsonl:3: duplicate id 'a', already used in line 1"):
        load_problems(str(path))


def test_the_first_faults_of_a_file_are_named_together(tmp_path: Path) -> None:
    bad = {**STDIN, "statement": ""}
    path = problem_file(tmp_path, bad, STDIN, {**CALL, "kind": "stdin"}, *[bad] * 9)
    with pytest.raises(SceError) as caught:
        load_problems(str(path))
    *faults, hint = str(caught.value).splitlines()
    assert [int(fault.split(":")[1]) for fault in faults] == [1, 3, 4, 5, 6]
    assert '"assertions" are for "kind": "call"' in faults[1]
    assert hint.startswith("To drop unusable problems")


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        load_problems(str(tmp_path / "nowhere.jsonl"))


def test_an_empty_file_holds_no_problems(tmp_path: Path) -> None:
    with pytest.raises(SceError, match="the file is empty"):
        load_problems(str(problem_file(tmp_path)))


def test_a_folder_is_no_problem_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a folder, not a file"):
        load_problems(str(tmp_path))


def test_an_unknown_built_in_set_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="unknown built-in problem set starter:nothing"):
        load_problems("starter:nothing")


def test_a_problem_in_c_says_so_and_a_python_problem_has_no_such_field() -> None:
    problem = problem_from_record({**STDIN, "language": "c"})
    assert problem.language == "c"
    assert problem_to_record(problem)["language"] == "c"
    python = problem_from_record({**STDIN, "language": "python"})
    assert python == problem_from_record(STDIN)
    assert "language" not in problem_to_record(python)
    assert problem_digest(python) != problem_digest(problem)


@pytest.mark.parametrize("language", ["rust", "C", "", None, 3, ["c"]])
def test_an_unknown_language_is_refused_by_name(language: Any) -> None:
    with pytest.raises(ProblemError, match='"language" must be "python" or "c", found'):
        problem_from_record({**STDIN, "language": language})


def test_a_function_in_c_has_a_driver_and_is_judged_by_tests() -> None:
    record = {**STDIN, "language": "c", "entry_point": "add", "driver": "int main(void) {}"}
    problem = problem_from_record(record)
    assert (problem.kind, problem.entry_point, problem.driver) == ("stdin", "add", "int main(void) {}")
    assert problem_from_record(problem_to_record(problem)) == problem
    assert problem.whole_program("int x;") == 'int x;\n#line 1 "driver.c"\nint main(void) {}'
    assert problem_from_record(STDIN).whole_program("x") == "x"
    declared = problem_from_record({**record, "starter_code": "int add(int a, int b);"})
    assert declared.driver_apart == 'int add(int a, int b);\n#line 1 "driver.c"\nint main(void) {}'
    assert problem_from_record(STDIN).driver_apart == ""


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        ({**STDIN, "driver": "int main(void) {}", "entry_point": "f"}, '"driver" is for problems in C'),
        ({**STDIN, "language": "c", "driver": "int main(void) {}"}, '"entry_point" is missing or empty'),
        ({**CALL, "language": "c"}, '"kind": "call" is for Python'),
    ],
)
def test_a_driver_and_a_call_need_the_right_language(record: dict[str, Any], fault: str) -> None:
    with pytest.raises(ProblemError, match=fault):
        problem_from_record(record)


TARGET = {**STDIN, "language": "c", "target": "cortex-m3"}


def test_a_target_and_its_budget_survive_a_record_and_change_no_other_problem() -> None:
    budget = {"code_bytes": 512, "stack_bytes": 0, "heap": False, "float": False, "recursion": False}
    for limits in (None, {}, budget, {"heap": False}, {"heap": True, "code_bytes": 9}):
        problem = problem_from_record(TARGET | ({} if limits is None else {"budget": limits}))
        record = problem_to_record(problem)
        assert problem_from_record(record) == problem
        assert record.get("budget", {}) == {name: value for name, value in (limits or {}).items() if value is not True}
    plain = problem_to_record(problem_from_record({**STDIN, "language": "c"}))
    assert not {"target", "budget"} & plain.keys()
    assert problem_digest(problem_from_record(TARGET)) != problem_digest(
        problem_from_record(TARGET | {"budget": budget})
    )


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({"target": "cortex-m99"}, '"target" must be "cortex-m3", found'),
        ({"target": 3}, '"target" must be a string'),
        ({"language": "python"}, '"target" is for problems in C'),
        ({"target": "", "budget": {"heap": False}}, '"budget" needs a "target"'),
        ({"budget": []}, '"budget" must be an object of code_bytes, stack_bytes, heap, float, recursion'),
        ({"budget": {"flash": 9}}, '"budget" must be an object of'),
        ({"budget": {"code_bytes": -1}}, '"code_bytes" must be a number of bytes'),
        ({"budget": {"code_bytes": 1.5}}, '"code_bytes" must be a number of bytes'),
        ({"budget": {"stack_bytes": True}}, '"stack_bytes" must be a number of bytes'),
        ({"budget": {"heap": 0}}, '"heap" must be true or false'),
    ],
)
def test_a_malformed_target_or_budget_is_refused(more: dict[str, Any], fault: str) -> None:
    with pytest.raises(ProblemError, match=re.escape(fault)):
        problem_from_record(TARGET | more)
