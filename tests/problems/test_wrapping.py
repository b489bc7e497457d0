"""Call problems as programs, and examples that no test repeats."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli_runs import run_sce

from securecoderl_edge.problems.leakage import is_visible
from securecoderl_edge.problems.near_duplicates import normalized_words
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import write_problems
from securecoderl_edge.problems.shown_example import with_one_example
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.problems.wrapping import NotWrapped, wrapped
from securecoderl_edge.sandbox import Limits
from securecoderl_edge.scoring.reference_solutions import check_problems
from securecoderl_edge.scoring.scorer import Scorer

ADD = Problem(
    id="add",
    statement="Add a to b.\n\nWrite the function `add(a, b)`.",
    kind="call",
    entry_point="add",
    assertions=(
        "assert add(1, 2) == 3",
        "assert add(b=4, a=[1]) == [1, 4]",
        "assert add(**{'a': 'x', 'b': 'é'}) == 'xé'",
    ),
    solutions=("def add(a, b):\n    return [*a, b] if isinstance(a, list) else a + b",),
)


def of(*assertions: str) -> Problem:
    return replace(ADD, assertions=assertions)


def test_arguments_are_lines_of_json_in_the_order_of_the_parameters() -> None:
    assert wrapped(ADD).tests == (
        Test("1\n2\n", "3\n"),
        Test("[1]\n4\n", "[1, 4]\n"),
        Test('"x"\n"\\u00e9"\n', "xé\n"),
    )


@pytest.mark.parametrize(
    "assertion",
    [
        "assert add((1,), 2) == 3",  # JSON makes a list of the tuple
        "assert add({1: 2}, 2) == 3",  # and texts of keys
        "assert add(float('inf'), 2) == 3",
        "assert add(1) == 3",  # a default, which a program that reads two lines lacks
        "assert add(1, 2) == {3}",
        "assert add(1, 2) == {'a': 3}",
        "assert add(1, 2) == [0.1]",  # another right program prints 0.10000000000000002
        "assert add(1, 2) == 1e22",
        "assert add(1, 2) == ''",
        "assert add(1, 2) != 3",
        "assert add(add(1, 2), 2) == 3",
        "assert len(add(1, 2)) == 3",
        "x = 1\nassert add(x, 2) == 3",
        "assert raises(add(1, 2), ValueError)",
    ],
)
def test_a_test_that_has_no_such_form_is_left_out(assertion: str) -> None:
    with pytest.raises(NotWrapped, match="no test has arguments that JSON keeps"):
        wrapped(of(assertion))
    assert wrapped(of(assertion, ADD.assertions[0])).tests == (Test("1\n2\n", "3\n"),)


def test_decimals_may_differ_in_their_last_digits_and_nothing_else() -> None:
    problem = wrapped(of("assert abs(add(0.1, 0.2) - 0.3) < 1e-9"))
    assert problem.rule.name == "numbers"
    assert wrapped(ADD).rule.name == "exact"
    # Sets with a rule of their own, which would let other outputs pass.
    assert wrapped(replace(ADD, source="apps")).rule.name == "exact"


@pytest.mark.parametrize(
    ("kind", "reason"), [({"kind": "stdin"}, "not a call problem"), ({"solutions": ()}, "no reference")]
)
def test_a_problem_without_function_or_reference_is_refused(kind: dict[str, str], reason: str) -> None:
    with pytest.raises(NotWrapped, match=reason):
        wrapped(replace(ADD, **kind))  # type: ignore[arg-type]


def test_the_example_of_the_statement_is_wrapped_too_and_duplicates_are_still_found() -> None:
    shown = replace(ADD, statement=f"{ADD.statement} For example:\nassert add(7, 8) == 15")
    problem = wrapped(shown)
    assert problem.statement.endswith("Example input:\n7\n8\n\nExample output:\n15")
    assert "assert" not in problem.statement
    assert normalized_words(problem) == normalized_words(shown)


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(1, Limits(cpu_seconds=5, wall_seconds=30)) as opened:
        yield opened


def test_wrapped_references_pass_functions_and_methods_alike(scorer: Scorer) -> None:
    method = "from typing import *\nclass Solution:\n    def add(self, a, b):\n        return a + b"
    problems = [ADD, replace(of(ADD.assertions[0]), id="method", solutions=(method,))]
    problems += load_problems("humaneval")[:4]
    report = check_problems([wrapped(each) for each in problems], scorer)
    assert (report.passed, report.failed) == (len(problems), ())
    wrong = replace(wrapped(ADD), solutions=wrapped(replace(ADD, solutions=("def add(a, b): return a",))).solutions)
    assert check_problems([wrong], scorer).passed == 0


# One example


def test_a_test_that_the_statement_shows_is_left_out() -> None:
    shown = replace(ADD, statement=f"{ADD.statement} For example:\n{ADD.assertions[0]}")
    assert with_one_example(shown) == replace(shown, assertions=ADD.assertions[1:])


def test_else_the_first_test_becomes_the_example_as_people_write_it() -> None:
    problem = of("assert each_agrees([add(**{'a': 1, 'b': 0.5})], [1.5], 1e-06)")
    done = with_one_example(problem)
    assert done.statement == f"{ADD.statement} For example:\nassert add(a=1, b=0.5) == 1.5"
    assert done.assertions == ()
    stdin = with_one_example(Problem("s", "Double n.", tests=(Test("4\n", "8\n"), Test("5\n", "10\n"))))
    assert stdin.statement == "Double n.\n\nExample input:\n4\n\nExample output:\n8"
    assert stdin.tests == (Test("5\n", "10\n"),)


@pytest.mark.parametrize(
    ("assertion", "visible"),
    [
        ("assert f(nums=[1, 2], key='a') == True", True),
        ("assert f([1, 2], 'a') == True", True),
        ("x = 1\nassert f([1, 2], 'a') == True", True),
        ("assert f([1, 2], 'b') == True", False),
        ("assert f([1], 'a') == True", False),
        ("assert f([None], 'true') == 3", True),
        ("assert g([1, 2], 'a') == True", False),
        ("assert f(f([1, 2], 'a')) == True", False),
        ("not python (", False),
    ],
)
def test_examples_in_the_form_of_leetcode_are_visible(assertion: str, visible: bool) -> None:
    statement = (
        'Example 1:\nInput: nums = [1,2], key = "a"\nOutput: true\n\nInput: nums = [null], key = "true"\nOutput: 3'
    )
    problem = Problem("l", statement, kind="call", entry_point="f", assertions=(assertion,))
    assert is_visible(problem, assertion) is visible


def test_sce_data_wrap_writes_the_file_and_counts_what_it_leaves_out(tmp_path: Path) -> None:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_problems(source, [ADD, replace(ADD, id="other", solutions=())])
    code, counts, _ = run_sce("data", "wrap", str(source), "--out", str(out), "--json")
    assert code == 0
    assert json.loads(counts) == {"problems": 2, "wrapped": 1, "left_out": {"it has no reference solution": 1}}
    assert [each.kind for each in load_problems(str(out))] == ["stdin"]
    write_problems(source, [replace(ADD, solutions=())])
    for words, fault in (
        (["--out", str(out)], "exists"),
        (["--out", str(out), "--force"], "no problem"),
        ([], "--out"),
    ):
        code, _, said = run_sce("data", "wrap", str(source), *words)
        assert code in (1, 2)
        assert fault in said
    assert [each.id for each in load_problems(str(out))] == ["add"]
