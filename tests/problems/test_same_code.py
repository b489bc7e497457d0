"""The same task in other words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.same_code import code_form, same_tasks
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.problems.train_eval_split import find_leaks, find_leaks_in_other_words

PRIME = '''def is_prime(n):
    """Whether n is prime."""
    if n < 2:
        return False
    for d in range(2, n):
        if n % d == 0:
            return False
    return True
'''
RENAMED = """import math
def checkPrimality(number: int) -> bool:
    if number < 3:
        return False  # none
    for factor in range(2, number):
        if number % factor == 0:
            return False
    return True
"""
MEASURED = Problem(
    "m", "Tell prime numbers.", "call", entry_point="is_prime", assertions=("assert is_prime(2)",), solutions=(PRIME,)
)


def leaks(problem: Problem) -> list[tuple[str, str]]:
    assert find_leaks([problem], [MEASURED]) == []
    return [(leak.other_id, leak.by) for leak in find_leaks_in_other_words([problem], [MEASURED])]


def other(**fields: object) -> Problem:
    return replace(MEASURED, id="t", statement="Nothing alike here.", **fields)  # type: ignore[arg-type]


def test_a_reference_with_other_names_constants_and_annotations_is_found() -> None:
    assert leaks(other(entry_point="checkPrimality", solutions=(RENAMED,))) == [("m", "code")]


def test_a_function_of_the_same_name_is_found_in_any_spelling() -> None:
    assert leaks(other(entry_point="isPrime", solutions=())) == [("m", "name")]
    assert leaks(other(entry_point="is_odd", solutions=())) == []


@pytest.mark.parametrize("name", ["solve", "f", "main", "Solution"])
def test_a_name_of_any_task_proves_nothing(name: str) -> None:
    both = [other(entry_point=name, solutions=())]
    assert list(same_tasks(both, both)) == []


def test_another_operator_another_builtin_or_another_method_is_another_program() -> None:
    for old, new in (("n % d", "n // d"), ("range", "list"), ("n < 2", "n <= 2")):
        assert code_form(PRIME) != code_form(PRIME.replace(old, new))
    one = "def f(s):\n    t = s.strip()\n    return [x for x in t.split() if x and len(x) > 3 and not x.isdigit()]"
    assert code_form(one) != code_form(one.replace("isdigit", "isalpha"))


def test_a_regular_expression_is_part_of_the_program_and_a_word_is_not() -> None:
    program = (
        "import re\ndef f(text):\n    if re.search('^a+$', text):\n        return 'Found it'\n"
        "    else:\n        return 'Not found'"
    )
    assert code_form(program) != code_form(program.replace("^a+$", "^b+$"))
    assert code_form(program) == code_form(program.replace("Found it", "Yes")) != ""


def test_a_small_program_or_a_broken_one_has_no_form() -> None:
    assert code_form("def f(a, b):\n    return a + b") == code_form("def f(:") == ""


def test_the_words_come_first_and_each_problem_once() -> None:
    same_words = replace(MEASURED, id="w")
    assert find_leaks_in_other_words([same_words], [MEASURED]) == []
    assert [leak.by for leak in find_leaks([same_words], [MEASURED])] == ["words"]
    assert leaks(other(solutions=(PRIME, RENAMED))) == [("m", "code")]


def test_the_leaks_of_mbpp_clean_are_those_that_its_page_counts() -> None:
    clean = load_problems("mbpp:clean")
    found = {"code": set[int](), "name": set[int]()}
    for number, _, by in same_tasks(clean, load_problems("mbpp:test")):
        found[by].add(number)
    page = (Path(__file__).parents[2] / "docs/guides/public-benchmarks.md").read_text()
    counts = len(found["code"]), len(found["name"] - found["code"])
    said = f"{sum(counts)} of {len(clean)} problems of mbpp:clean have a duplicate in mbpp:test: 0 exact, 0 near"
    assert f"{said}, {counts[0]} by code, {counts[1]} by name" in page
