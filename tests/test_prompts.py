"""Prompts, and programs in completions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.problems import Problem, Test
from securecoderl_edge.prompts import extract_program, format_prompt, format_statement


def test_a_prompt_holds_the_statement_and_ends_where_the_program_begins() -> None:
    assert format_statement("  Add.\n") == "### Problem\nAdd.\n\n### Solution\n"


def test_given_code_stands_between_statement_and_solution() -> None:
    prompt = format_statement("Add.", "def add(a, b):\n    ")
    assert prompt == "### Problem\nAdd.\n\n### Given code\ndef add(a, b):\n\n### Solution\n"


def test_given_code_keeps_the_indentation_of_its_first_line() -> None:
    assert "### Given code\n    x = 1\n    y = 2\n\n" in format_statement("Add.", "\n    x = 1\n    y = 2\n")


def test_a_prompt_never_shows_tests_or_solutions() -> None:
    problem = Problem("a", "Add.", tests=(Test("secret input", "secret output"),), solutions=("secret program",))
    assert "secret" not in format_prompt(problem)


def test_a_problem_and_its_statement_give_the_same_prompt() -> None:
    problem = Problem("a", "Add.", tests=(Test("", "1"),), starter_code="x = 1")
    assert format_prompt(problem) == format_statement("Add.", "x = 1")


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("print(1)\n", "print(1)\n"),
        ("", ""),
        ("```python\nprint(1)\n```\n", "print(1)\n"),
        ("```\nprint(1)\n```", "print(1)\n"),
        ("~~~py\nprint(1)\n~~~\n", "print(1)\n"),
        ("Here it is:\n\n```python\nprint(1)\n```\nIt prints 1.\n", "print(1)\n"),
        ("```python\nprint(1)\n", "print(1)\n"),
        ("```python\nprint(1)\n```\n```python\nprint(2)\n```\n", "print(1)\n"),
        ("```python", ""),
        ("```python\r\nprint(1)\r\n```\r\n", "print(1)\r\n"),
        ("print(1)\n### Problem\nAnother.\n", "print(1)"),
        ("print(1)\n### Solution\nprint(2)\n", "print(1)"),
        ("### Problem\nprint(1)\n", ""),
        ("```python\nprint(1)\n### Problem\n```\n", "print(1)"),
        ("x = '''### Problem'''\n", "x = '''### Problem'''\n"),
    ],
)
def test_a_program_is_taken_out_of_a_completion(completion: str, program: str) -> None:
    assert extract_program(completion) == program


def test_a_fence_is_closed_only_by_a_fence_of_its_own_kind() -> None:
    completion = '````python\ntext = """\n```\n~~~\n"""\n````\n'
    assert extract_program(completion) == 'text = """\n```\n~~~\n"""\n'


@given(st.text())
def test_a_raw_completion_is_the_program(completion: str) -> None:
    assert extract_program(completion, "raw") == completion


@given(st.text(alphabet="ab`~#\n\r "))
def test_a_program_is_always_part_of_its_completion(completion: str) -> None:
    assert extract_program(completion) in completion


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 'auto' or 'raw'"):
        extract_program("", "json")


def test_half_of_a_surrogate_pair_becomes_a_question_mark_that_any_tokenizer_reads() -> None:
    prompt = format_statement("Print \ud83d.", "x = '\udc00'")
    assert prompt == format_statement("Print ?.", "x = '?'")
    assert format_statement("Print \U0001f600.") == format_statement("Print 😀.")
