"""Problems of strangers, as clients of the server send them, and what programs print cost bounded work and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from securecoderl_edge.problems import leakage
from securecoderl_edge.problems.assertions import assertions_of, satisfies
from securecoderl_edge.problems.leakage import constant_passes, is_visible
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.sandbox.noting import noting
from securecoderl_edge.scoring.scorer import Scorer
from securecoderl_edge.scoring.signs import ignores_input

MEBIBYTE = 1 << 20
CALL = Problem("p", "Say.", "call", entry_point="f", assertions=tuple(f"assert f({n}) == {n}" for n in range(5)))
CHECKED = Problem("p", "Say.", tests=(Test("1", "1"),), checker="def check(*_):\n    return True\n")


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Fails if more memory than this was taken at a time."""
    tracemalloc.start()
    try:
        yield
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < size


def test_very_many_imports_of_a_given_code_are_not_looked_at() -> None:
    imports = "".join(f"import a{number}\n" for number in range(80_000))
    problem = replace(CALL, starter_code=f"import math\n{imports}", assertions=("assert f(math.pi) == a79999.x",))
    with at_most(8 * MEBIBYTE):
        (assertion,) = assertions_of(problem)
    assert "import math" in assertion.setup
    assert "import a" not in assertion.setup


def test_a_statement_that_imports_many_names_is_used_once() -> None:
    names = [f"a{number}" for number in range(500)]
    given, used = f"import {', '.join(names)}\n", " + ".join(names)
    (assertion,) = assertions_of(replace(CALL, starter_code=given, assertions=(f"assert f({used}) == 1",)))
    assert assertion.setup.count("import") == 1
    long = f"import math, {', '.join(f'a{number}' for number in range(100_000))}\n"
    with at_most(8 * MEBIBYTE):
        (assertion,) = assertions_of(replace(CALL, starter_code=long, assertions=("assert f(math.pi) == 1",)))
    assert not assertion.setup


def test_long_imports_are_not_repeated_before_thousands_of_assertions() -> None:
    used = " + ".join(f"a{number}" for number in range(100))
    for filler, count in (("b" * 4_000, 200), ("b", 1_000)):
        given = "".join(f"from {filler} import a{number}\n" for number in range(100))
        problem = replace(CALL, starter_code=given, assertions=(f"assert f({used}) == 1",) * count)
        with at_most(32 * MEBIBYTE):
            assertions = assertions_of(problem)
        assert all(bool(each.setup) == (filler == "b") for each in assertions)


def test_of_very_many_values_a_few_are_tried_as_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []

    def counted(*arguments: Any) -> bool:
        tried.append(arguments)
        return satisfies(*arguments)

    monkeypatch.setattr(leakage, "satisfies", counted)
    lists = [", ".join(map(str, (*range(5 - start, 6), *range(8_000)))) for start in range(5)]
    problem = replace(CALL, assertions=tuple(f"assert f(1) in [{each}]" for each in lists))
    assert constant_passes(problem) == 5
    assert len(tried) < 2_000


def test_no_example_has_thousands_of_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = ("1," * count for count in (20, 5_000))
    for arguments in (few, many):
        problem = replace(
            CALL, statement=f"Input: {arguments[:-1]} Output: 2", assertions=(f"assert f({arguments})==2",)
        )
        assert is_visible(problem, problem.assertions[0]) == (arguments == few)


@pytest.mark.parametrize(
    ("use", "most"),
    [
        (lambda number: noting(f"f('{number}', '{'x' * MEBIBYTE}')", "f", False), 8),
        (lambda number: assertions_of(replace(CALL, starter_code=f"import math\n# {number}\n{'#' * MEBIBYTE}")), 30),
        (
            lambda number: ignores_input(
                replace(CALL, solutions=(f"def f(x): return x + {number}", "#" * MEBIBYTE)), "def f(x): return 1"
            ),
            80,
        ),
    ],
    ids=["a call with all output", "given code", "solutions"],
)
def test_not_all_texts_of_others_are_kept(use: Callable[[int], object], most: int) -> None:
    use(0)
    with at_most(most * MEBIBYTE):
        for number in range(1, 100):
            use(number)


def test_what_programs_print_for_a_checker_is_not_kept(scorer: Scorer) -> None:
    program = "print({}, chr(0) * 1_000_000)"
    scorer.score(CHECKED, program.format("'first'"))
    tracemalloc.start()
    try:
        for number in range(8):
            assert scorer.score(CHECKED, program.format(number)).verdicts == ("pass",)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < MEBIBYTE
