"""What a problem gives away, and the reward without it."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from securecoderl_edge.languages.python_source import compared_value
from securecoderl_edge.problems.leakage import LEAST_HIDDEN, constant_passes, is_visible, without_visible_tests
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.shown_example import with_one_example

SHOWN, FIRST, SECOND = Test("1 2\n", "3\n"), Test("4 4\n", "8\n"), Test("10 9\n", "19\n")
PROBLEM = Problem("sum", "Add.\n\nExample input:\n1  2\n\nExample output:\n3", tests=(FIRST, SHOWN, SECOND))


def test_a_test_is_shown_when_both_its_ends_stand_in_the_statement() -> None:
    assert [is_visible(PROBLEM, test) for test in PROBLEM.tests] == [False, True, False]
    assert not is_visible(PROBLEM, Test("1 2\n", "4\n"))
    assert not is_visible(PROBLEM, Test("2 2\n", "3\n"))


def test_shown_tests_go_and_the_others_stay_in_order() -> None:
    assert without_visible_tests(PROBLEM) == replace(PROBLEM, tests=(FIRST, SECOND))


def test_a_problem_keeps_its_tests_where_too_few_are_hidden_or_none_is_shown() -> None:
    few = replace(PROBLEM, tests=(SHOWN, *PROBLEM.tests[:1])[:LEAST_HIDDEN])
    assert without_visible_tests(few) == few
    hidden = replace(PROBLEM, tests=(FIRST, SECOND))
    assert without_visible_tests(hidden) == hidden


def test_assertions_that_are_shown_go_as_well() -> None:
    shown, *others = ("assert f(1) == 2", "assert f(2) == 3", "assert f(3) == 4")
    call = Problem("f", f"Write f.\n{shown}", kind="call", entry_point="f", assertions=(shown, *others))
    assert without_visible_tests(call) == replace(call, assertions=tuple(others))
    few = replace(call, assertions=(shown, *others)[:LEAST_HIDDEN])
    assert without_visible_tests(few) == few


def test_only_the_first_shown_test_goes_if_one_is_to_go() -> None:
    every = ("assert f(1) == 2", "assert f(2) == 3", "assert f(3) == 4")
    call = Problem("f", "\n".join(every), kind="call", entry_point="f", assertions=every)
    assert without_visible_tests(call) == call, "no hidden test would be left"
    assert without_visible_tests(call, 1) == replace(call, assertions=every[1:])
    assert without_visible_tests(PROBLEM, 1) == without_visible_tests(PROBLEM)


@pytest.mark.parametrize("argument", ["+".join(["1"] * 600), f"{'-' * 500}1"])
def test_an_assertion_that_is_nested_deeply_is_no_example(argument: str) -> None:
    assertion = f"assert f({argument}) == 2"
    problem = Problem("sum", "Add.\nInput: x = 1 Output: 2", kind="call", entry_point="f", assertions=(assertion,))
    assert not is_visible(problem, assertion)
    assert compared_value(assertion) is None
    assert with_one_example(problem).statement.endswith(assertion)


def test_of_thousands_of_constants_the_most_frequent_are_tried() -> None:
    texts = (*(f"assert f({each}) == {each}" for each in range(5000)), "assert f(-1) == 4999", "assert f(-2) == 4999")
    problem = Problem("p", "s", "call", entry_point="f", assertions=texts)
    started = time.process_time()
    assert constant_passes(problem) == 3
    assert time.process_time() - started < 6  # with each of them: fifteen
