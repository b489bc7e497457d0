"""Prompts and tests as users hand them in."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.generation.examples import example_sections
from securecoderl_edge.generation.inputs import GivenTests, parse_test, read_prompt, read_requests, read_tests
from securecoderl_edge.problems.problem import Test


def test_a_test_on_the_command_line_has_an_input_and_an_output() -> None:
    assert parse_test("in=3 4,out=7") == Test("3 4\n", "7")


def test_escapes_in_a_test_become_line_breaks_tabs_and_backslashes() -> None:
    assert parse_test(r"in=1\n2\t3\n,out=a\\n\nb") == Test("1\n2\t3\n", "a\\n\nb")


def test_a_test_may_have_no_input() -> None:
    assert parse_test("in=,out=hello") == Test("", "hello")


@pytest.mark.parametrize("text", ["", "3=4", "in=3", "out=4", "3,out=4", "in=3,out=", "in=3,out=  "])
def test_a_malformed_test_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--test"):
        parse_test(text)


@pytest.mark.parametrize(
    "text",
    [
        '{"input": "1", "output": "2"}\n{"input": "3", "output": "4"}\n',
        '[{"input": "1", "output": "2"}, {"input": "3", "output": "4"}]',
        '{"id": "x",\n "tests": [{"input": "1", "output": "2"}, {"input": "3", "output": "4"}]}',
    ],
    ids=["lines", "list", "problem"],
)
def test_tests_are_read_from_lines_a_list_or_a_problem(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tests.json"
    path.write_text(text)
    assert read_tests(path) == GivenTests((Test("1", "2"), Test("3", "4")))


@pytest.mark.parametrize(
    "text",
    [
        '["f(1) == 2", "assert f(2)"]',
        '"f(1) == 2"\n"f(2)"\n',
        '{"assertion": "f(1) == 2"}\n{"assertion": "f(2)"}\n',
        '{"kind": "call", "entry_point": "f", "assertions": ["assert f(1) == 2", "assert f(2)"]}',
        "assert f(1) == 2\nassert f(2)\n",
    ],
    ids=["list", "lines", "objects", "problem", "text"],
)
def test_assertions_are_read_as_well(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tests.json"
    path.write_text(text)
    assert read_tests(path) == GivenTests(assertions=("assert f(1) == 2", "assert f(2)"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"input": "1", "output": "2"}\n{"input": "1"}\n', "tests.json:2: test 1 needs"),
        ('{"input": "1", "output": "2"}\nnonsense\n', "tests.json:2: not valid JSON"),
        ('[{"input": "1", "output": " "}]', "the expected output is empty"),
        ("[]", "json: no tests; expected objects"),
        ("3", "test 1 must be an object"),
        ("[3]", "test 1 must be an object"),
        ('["2 == 2"]', "the test calls no function"),
        ("nothing to see here", "no tests; expected objects"),
    ],
)
def test_a_malformed_tests_file_is_named_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "tests.json"
    path.write_text(text)
    with pytest.raises(SceError, match=message):
        read_tests(path)


def test_a_missing_tests_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_tests(tmp_path / "missing.json")


def test_the_example_of_a_statement_is_found() -> None:
    prompt = "Add two numbers.\n\nExample input:\n1 2\n3\nExample output:\n6"
    assert example_sections(prompt) == (Test("1 2\n3\n", "6"),)


def test_several_examples_and_text_after_them_are_told_apart() -> None:
    prompt = "Add.\n\nExample input:\n1\nExample output:\n2\nExample input:\n3\nExample output:\n4\n\nBe quick.\n"
    assert example_sections(prompt) == (Test("1\n", "2"), Test("3\n", "4"))


@pytest.mark.parametrize(
    "prompt", ["Say hello.", "Example input: 3", "Example input:\n3\nExample output:\n", "Example output:\n3"]
)
def test_a_prompt_without_a_whole_example_has_none(prompt: str) -> None:
    assert example_sections(prompt) == ()


def test_a_prompt_is_the_argument_or_stdin_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text("from a file", encoding="utf-8")
    assert read_prompt("from the argument", io.BytesIO()) == "from the argument"
    assert read_prompt("-", io.BytesIO("vom Eingabestrom ü".encode())) == "vom Eingabestrom ü"
    assert read_prompt(None, io.BytesIO(b"\xef\xbb\xbffrom stdin")) == "from stdin"
    assert read_prompt(f"@{tmp_path / 'prompt.txt'}", io.BytesIO()) == "from a file"


@pytest.mark.parametrize("argument", ["", "  \n", "-", None])
def test_an_empty_prompt_is_a_usage_error(argument: str | None) -> None:
    with pytest.raises(UsageError, match="empty prompt"):
        read_prompt(argument, io.BytesIO(b" \n"))


def test_a_terminal_without_a_prompt_gets_an_example() -> None:
    class Terminal(io.BytesIO):
        def isatty(self) -> bool:
            return True

    with pytest.raises(UsageError, match="missing prompt; give one"):
        read_prompt(None, Terminal())


def test_a_prompt_that_is_not_text_is_refused() -> None:
    with pytest.raises(SceError, match="not UTF-8"):
        read_prompt("-", io.BytesIO(b"\xff\xfe"))


def test_a_prompt_file_that_is_missing_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_prompt("@missing.txt", io.BytesIO())


def test_requests_are_prompts_or_problems_and_get_ids(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    records = [
        {"prompt": "Say hello."},
        {"id": "sum", "statement": "Add.", "tests": [{"input": "1 2", "output": "3"}]},
        {"statement": "Echo.\n\nExample input:\nx\nExample output:\nx", "starter_code": "def echo(): ..."},
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    requests = read_requests(path)
    assert [(request.id, request.test_count) for request in requests] == [("1", 0), ("sum", 1), ("3", 0)]
    assert [request.starter_code for request in requests] == ["", "", "def echo(): ..."]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ('{"prompt": " "}\n', ':1: "prompt" is missing or empty'),
        ('{"prompt": "a"}\n{}\n', ':2: "prompt" is missing or empty'),
        ('{"prompt": "a"}\n[1]\n', ":2: expected an object"),
        ('{"prompt": "a", "starter_code": 1}\n', ':1: "starter_code" must be a string'),
        ('{"id": "x", "prompt": "a"}\n{"id": "x", "prompt": "b"}\n', ":2: duplicate id 'x'"),
    ],
)
def test_malformed_requests_are_named_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text(text)
    with pytest.raises(SceError, match=message):
        read_requests(path)


def test_an_output_that_is_blank_once_it_is_unescaped_is_refused() -> None:
    with pytest.raises(UsageError, match="the expected output is empty"):
        parse_test(r"in=1,out=\n")


def test_many_headings_without_an_output_take_linear_time() -> None:
    assert example_sections("Example input:\n" * 200_000) == ()
    assert len(example_sections("Example input:\n1\nExample output:\n2\n\n" * 20_000)) == 20_000
