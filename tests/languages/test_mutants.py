"""Programs with one fault."""

from __future__ import annotations

import ast
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securecoderl_edge.languages.mutants import Mutant, mutants
from securecoderl_edge.problems.sources import load_problems

LARGEST = '''"""Docstrings stay."""
import math

LIMIT = 7
UNUSED = 8

def helper(n: int = 1) -> int:
    return n if n < LIMIT else -n

def largest(numbers):
    """Text."""
    best = numbers[0]
    for each in numbers:
        if each > best and helper(each):
            best = each
    return best + 0.5

def other():
    return 3

if __name__ == "__main__":
    print(largest([1, 2]))
'''


def changes(source: str, entry_point: str = "") -> set[str]:
    return {each.change for each in mutants(source, entry_point, 500)}


@pytest.mark.parametrize(
    ("program", "change"),
    [
        ("a = 1 < 2", "line 1: < becomes <="),
        ("a = 1 < 2", "line 1: < becomes >="),
        ("a = 1 in b", "line 1: in becomes not in"),
        ("a = b is None", "line 1: is becomes is not"),
        ("a = b and c", "line 1: and becomes or"),
        ("a += 2", "line 1: + becomes -"),
        ("a = b % c", "line 1: % becomes //"),
        ("a = -b", "line 1: a minus is left out"),
        ("a = ''", "line 1: '' becomes 'x'"),
        ("a = True", "line 1: True becomes False"),
        ("a = 0", "line 1: 0 becomes 1"),
        ("if a:\n    b()", "line 1: a condition is negated"),
        ("if a:\n    b()", "line 2: left out"),
        ("for a in range(b, c): d()", "line 1: a range ends one earlier"),
    ],
)
def test_each_kind_of_fault_is_made(program: str, change: str) -> None:
    assert change in changes(program)


def test_only_what_the_entry_point_needs_is_changed() -> None:
    found = changes(LARGEST, "largest")
    assert {"line 4: 7 becomes 8", "line 8: < becomes <=", "line 14: > becomes >="} <= found
    lines = {int(each.partition(":")[0].removeprefix("line ")) for each in found}
    assert not lines & {1, 2, 5, 11, 19, 21, 22}, "docstrings, imports, other functions and demos stay"


def test_a_program_as_a_whole_is_changed_where_its_statements_lead() -> None:
    found = changes("def used(): return 1\ndef unused(): return 2\nprint(used())")
    assert {"line 1: 1 becomes 2", "line 3: left out"} <= found
    assert "line 2: 2 becomes 3" not in found


def test_statements_that_all_bind_and_name_one_variable_are_looked_at_once() -> None:
    started = time.process_time()
    assert mutants("x = 0\n" + "x = x + 1\n" * 1000 + "print(x)\n", most=1)
    assert time.process_time() - started < 3  # with each of them for each other one: ten


def test_a_method_is_found_in_its_class() -> None:
    assert "line 3: 1 becomes 2" in changes("class Solution:\n    def f(self):\n        return 1", "f")


def test_a_text_that_is_no_program_has_no_mutants() -> None:
    assert mutants("def f(:") == mutants("") == mutants("x = " + "(" * 5000 + ")" * 5000) == []


def test_few_mutants_are_of_all_kinds() -> None:
    few = mutants(LARGEST, "largest", 5)
    words = [next(word for word in (" becomes ", "left out", "negated") if word in each.change) for each in few]
    assert len(few) == 5
    assert set(words) == {" becomes ", "left out", "negated"}


PROGRAMS = [each.solutions[0] for each in load_problems("mbpp:validation")]


@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")  # of references
@settings(max_examples=30, deadline=None)
@given(program=st.sampled_from(PROGRAMS), most=st.integers(0, 30), seed=st.integers(0, 99))
def test_mutants_are_programs_that_differ_and_the_same_seed_gives_the_same(program: str, most: int, seed: int) -> None:
    found = mutants(program, "", most, seed)
    assert len(found) <= most
    texts = [ast.unparse(ast.parse(each.program)) for each in found]
    assert len({ast.unparse(ast.parse(program)), *texts}) == len(texts) + 1
    assert found == mutants(program, "", most, seed)
    assert all(isinstance(each, Mutant) and each == replace(each) for each in found)
