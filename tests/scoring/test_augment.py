"""More tests from a reference."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from securecoderl_edge.problems.assertions import assertions_of
from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.problems.problem_file import problem_from_record, problem_to_record
from securecoderl_edge.scoring import augment as module
from securecoderl_edge.scoring.augment import LEAST_OUTPUTS, augment, augment_all
from securecoderl_edge.scoring.reference_solutions import check_problems
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.scoring.strength import measure_strength

DOUBLE = "def f(n):\n    return 2 * n"


def call(*assertions: str, solutions: tuple[str, ...] = (DOUBLE,), name: str = "f") -> Problem:
    return Problem("p", "Write it.", "call", entry_point=name, assertions=assertions, solutions=solutions)


def added(problem: Problem, scorer: Scorer) -> list[str]:
    """The new assertions; all tests still pass the check, and a file keeps them."""
    done = augment(problem, scorer)
    assert done.refusal == ""
    assert (done.problem.id, done.problem.tags[-1]) == (problem.id, f"augmented-tests:{done.added}")
    assert check_problems([done.problem], scorer).failed == ()
    assert problem_from_record(json.loads(json.dumps(problem_to_record(done.problem))), 999) == done.problem
    tests = done.problem.assertions or done.problem.tests
    given = problem.assertions or problem.tests
    new = [each for each in tests if each not in given]
    assert set(given) <= set(tests)
    assert len(new) == done.added == len(tests) - len(given)
    return new  # type: ignore[return-value]


def refusal(problem: Problem, scorer: Scorer) -> str:
    done = augment(problem, scorer)
    assert (done.problem, done.added) == (problem, 0)
    return done.refusal


def test_new_tests_have_other_inputs_and_the_outputs_of_the_reference(scorer: Scorer) -> None:
    new = added(call("assert f(21) == 42", "assert f(34) == 68"), scorer)
    assert len(new) == 5
    for test in new:
        given, _, expected = test.removeprefix("assert f(").partition(") == ")
        assert 2 * int(given) == int(expected)
        assert int(given) not in (21, 34)


@pytest.mark.parametrize(
    ("assertion", "solution", "form"),
    [
        ("assert f(3) is True", "def f(n): return n % 2 == 1", "assert f("),
        ("assert f(3)", "def f(n): return n % 2 == 1", "assert f("),
        ("assert not f(4)", "def f(n): return n % 2 == 1", "assert f("),
        ("assert len(f(3)) == 3", "def f(n): return 'x' * n", "assert len(f("),
        ("assert Solution().f(3) == 6", "class Solution:\n    def f(self, n): return 2 * n", "assert Solution().f("),
        ("k = 3\nassert f(n=5) == 8", "def f(n): return n + k", "k = 3\nassert f(n="),
        ("assert abs(f(3) - 1.5) < 0.1", "def f(n): return n / 2", "assert abs(f("),
        ("assert f(3) == [0.1]", "def f(n): return [n / 30]", "assert each_agrees([f("),
        ("assert 'a' in f('ab')", "def f(s): return s.upper() + s", "assert f('"),
    ],
)
def test_a_new_test_looks_at_what_the_given_one_looks_at(
    assertion: str, solution: str, form: str, scorer: Scorer
) -> None:
    assert all(each.startswith(form) for each in added(call(assertion, solutions=(solution,)), scorer))


def test_a_weak_problem_is_mended(scorer: Scorer) -> None:
    weak = call("assert f(2) == True", "assert f(4) == True", solutions=("def f(n):\n    return n % 2 == 0",))
    strong = augment(weak, scorer).problem
    for problem, is_weak in ((weak, True), (strong, False)):
        report = check_problems([problem], scorer)
        (found,) = measure_strength([problem], report.passing, scorer, 0).problems
        assert found.is_weak is is_weak
    assert strong.assertions[:3] == ("assert f(2) == True", strong.assertions[1], "assert f(4) == True")
    assert strong.assertions[1].endswith("== False"), "training uses the first tests, so these differ"


@pytest.mark.parametrize(
    ("solutions", "reason"),
    [
        ((), "no reference solution"),
        (("def f(n): return 0",), "fails the given tests (wrong)"),
        (("def f(n): raise ValueError",), "fails the given tests (crash)"),
        (("def f(n): return (",), "fails the given tests (does not parse)"),
        (("import random\ndef f(n): return 2 * n if n < 3 else random.random()",), "different results in two runs"),
        (("import os\ndef f(n): return 2 * n if n < 3 else os.urandom(4)[0]",), "different results in two runs"),
        (("from datetime import date\ndef f(n): return 2 * n + date.today().year * 0",), "reads the clock"),
        (("def f(n):\n    assert n < 3\n    return 2 * n",), "no literal result"),
        (("def f(n): return 2 * n if n < 3 else object()",), "no literal result"),
        ((DOUBLE, "def f(n): return 2 * n if n < 3 else 0"), "different results for every other input"),
    ],
)  # fmt: skip
def test_a_problem_is_refused_with_the_reason(solutions: tuple[str, ...], reason: str, scorer: Scorer) -> None:
    assert reason in refusal(call("assert f(1) == 2", "assert f(2) == 4", solutions=solutions), scorer)


def test_two_outputs_are_enough_if_the_reference_only_chooses_among_constants(scorer: Scorer) -> None:
    test = "assert f(1) == 2"
    assert added(call(test, solutions=("def f(n): return 2 if n % 2 else 4",)), scorer)
    few = refusal(call(test, solutions=("def f(n): return 2 * min(n, 1 + 1)",)), scorer)
    assert few == f"its reference gives 2 outputs for all inputs, and {LEAST_OUTPUTS} are needed"
    one = refusal(call(test, solutions=("def f(n): return n and 2",)), scorer)
    assert one == "its reference gives 1 outputs for all inputs, and 2 are needed"


def test_inputs_on_which_the_reference_raises_are_left_out(scorer: Scorer) -> None:
    picky = "def f(n):\n    if n % 3 == 0:\n        raise ValueError\n    return 2 * n"
    new = added(call("assert f(20) == 40", "assert raises(f(30), ValueError)", solutions=(picky,)), scorer)
    assert all(int(each[len("assert f(") : each.index(")")]) % 3 for each in new)


def test_an_input_on_which_an_insecure_solution_differs_is_an_attack_and_no_test(scorer: Scorer) -> None:
    problem = replace(
        call(
            "assert f('ab', 1) == 'AB'",
            "assert f('cd', 1) == 'CD'",
            solutions=("def f(s, n): return (s * n).replace('B', 'b').upper()",),
        ),
        security_tests=(SecurityTest("x", 20, assertion="assert f('q', 1) == 'Q'"),),
        insecure_solutions=("def f(s, n): return s.upper() if 'q' not in s else ''",),
    )
    done = augment(problem, scorer)
    assert done.added
    assert done.problem.security_tests == problem.security_tests
    assert all(", 1)" in each for each in done.problem.assertions), "with another n the two differ"


@pytest.mark.parametrize(
    "text", ["x = [1]\nassert f(x) == 2", "assert f() == 2", "def t(): return f(1)\nassert t() == 2"]
)
def test_a_test_without_literal_arguments_gives_no_inputs(text: str, scorer: Scorer) -> None:
    solution = "def f(n=1): return 2"
    assert "no test calls the function with literal arguments" in refusal(call(text, solutions=(solution,)), scorer)


def test_a_program_that_reads_gets_inputs_of_the_same_form(scorer: Scorer) -> None:
    total = "n = int(input())\nprint(sum(map(int, input().split()[:n])))"
    problem = Problem("p", "s", tests=(Test("2\n3 4\n", "7\n"), Test("3\n5 5 5\n", "15\n")), solutions=(total,))
    for test in added(problem, scorer):
        count, numbers = test.input.rstrip("\n").split("\n")  # type: ignore[attr-defined]
        assert len(numbers.split()) == int(count)
        assert sum(map(int, numbers.split())) == int(test.output)  # type: ignore[attr-defined]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_reference_in_c_records_outputs_too(scorer: Scorer) -> None:
    double = '#include <stdio.h>\nint main(void) { int n; scanf("%d", &n); printf("%d\\n", 2 * n); return 0; }\n'
    problem = Problem("p", "s", tests=(Test("21\n", "42\n"), Test("34\n", "68\n")), solutions=(double,), language="c")
    assert all(2 * int(test.input) == int(test.output) for test in added(problem, scorer))  # type: ignore[attr-defined]


def test_many_problems_are_augmented_in_their_order_and_the_seed_decides(scorer: Scorer) -> None:
    problems = [replace(call("assert f(21) == 42", "assert f(34) == 68"), id=str(number)) for number in range(3)]
    seen: list[None] = []
    first = augment_all(problems, scorer, 2, 1, 2, lambda: seen.append(None))
    assert [each.problem.id for each in first] == ["0", "1", "2"]
    assert len(seen) == 3
    assert first == augment_all(problems, scorer, 2, 1, 1)
    assert first != augment_all(problems, scorer, 2, 2, 1)


def test_assertions_are_read_as_often_whatever_their_number(scorer: Scorer, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Problem] = []
    monkeypatch.setattr(module, "assertions_of", lambda problem: calls.append(problem) or assertions_of(problem))
    counts = []
    for number in (3, 9):
        calls.clear()
        assert augment(call(*(f"assert f({each}) == {2 * each}" for each in range(1, number))), scorer).added
        counts.append(len(calls))
    assert counts[0] == counts[1]


def test_the_tag_of_a_second_augmentation_takes_the_place_of_the_first(scorer: Scorer) -> None:
    once = augment(call("assert f(21) == 42", "assert f(34) == 68"), scorer, 2).problem
    twice = augment(once, scorer, 1).problem
    assert twice.tags == ("augmented-tests:1",)
    assert len(twice.assertions) == 5
