"""Prompts, and programs in completions."""

from __future__ import annotations

from securecoderl_edge.problems import Problem, Test
from securecoderl_edge.prompts import OURS, format_statement


def test_a_prompt_holds_the_statement_and_ends_where_the_program_begins() -> None:
    assert format_statement("  Add.\n") == "### Problem\nAdd.\n\n### Solution\n"


def test_given_code_stands_between_statement_and_solution() -> None:
    prompt = format_statement("Add.", "def add(a, b):\n    ")
    assert prompt == "### Problem\nAdd.\n\n### Given code\ndef add(a, b):\n\n### Solution\n"


def test_given_code_keeps_the_indentation_of_its_first_line() -> None:
    assert "### Given code\n    x = 1\n    y = 2\n\n" in format_statement("Add.", "\n    x = 1\n    y = 2\n")


def test_a_prompt_never_shows_tests_or_solutions() -> None:
    problem = Problem("a", "Add.", tests=(Test("secret input", "secret output"),), solutions=("secret program",))
    assert "secret" not in OURS.prompt(problem)


def test_a_problem_and_its_statement_give_the_same_prompt() -> None:
    problem = Problem("a", "Add.", tests=(Test("", "1"),), starter_code="x = 1")
    assert OURS.prompt(problem) == format_statement("Add.", "x = 1")


def test_half_of_a_surrogate_pair_becomes_a_question_mark_that_any_tokenizer_reads() -> None:
    prompt = format_statement("Print \ud83d.", "x = '\udc00'")
    assert prompt == format_statement("Print ?.", "x = '?'")
    assert format_statement("Print \U0001f600.") == format_statement("Print 😀.")
