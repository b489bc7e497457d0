"""Figures about a set of problems, against counts by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from securecoderl_edge.models.files import NANO
from securecoderl_edge.problems.leakage import constant_passes
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.problems.statistics import Spread, compute_stats, spread
from securecoderl_edge.prompts.fitting import CUT
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.runtimes.opening import Reader, open_reader
from securecoderl_edge.runtimes.spec import resolve_model


def stdin(name: str, statement: str, *outputs: str, **fields: str) -> Problem:
    tests = tuple(Test(str(number), output) for number, output in enumerate(outputs))
    return Problem(name, statement, tests=tests, difficulty=fields.get("difficulty", ""), source="mine")


def call(*assertions: str) -> Problem:
    return Problem("c", "Call.", kind="call", entry_point="f", assertions=assertions, source="apps")


@pytest.mark.parametrize(
    ("problem", "passes"),
    [
        (stdin("a", "s", "1", "2", "3"), 1),
        (stdin("a", "s", "yes", "no", "yes\n", "yes  \n\n"), 3),
        (stdin("a", "s", "1 2", "1  2"), 1),
        (call("assert f(1) == 2", "assert f(2) == 2", "assert f(3) == 4"), 2),
        (call("assert f(1) is True", "assert f(2)", "assert not f(3)"), 2),
        (call("assert f(1) == 1", "assert f(2) == True", "assert f(3) == 1.0"), 3),
        (call("assert abs(f(1) - 1.5) < 0.1", "assert abs(f(2) - 1.55) < 0.1", "assert abs(f(3) - 2) < 0.1"), 2),
        (call("assert f(1) == [1, 2]", "assert f(2) == (1, 2)"), 2),
        (replace(call("assert f(1) == [1, 2]", "assert f(2) == (1, 2)"), source="mbpp"), 1),
        (call("assert f(1) == '2'", "assert f(2) == 2"), 1),
        (call("assert check(f)", "assert f(1) > 2"), 1),
    ],
)
def test_the_best_constant_answer_passes_so_many_tests(problem: Problem, passes: int) -> None:
    assert constant_passes(problem) == passes


def test_percentiles_are_values_that_occur() -> None:
    assert spread(list(range(1, 101))) == Spread(1, 50, 90, 99, 100)
    assert spread([7]) == Spread(7, 7, 7, 7, 7)
    assert spread([3, 1]) == Spread(1, 1, 3, 3, 3)


def test_problems_are_counted_by_hand() -> None:
    text = "Read a list of numbers and print the largest of them, or nothing if the list is empty."
    problems = [
        replace(stdin("a", text, "1", "1", difficulty="easy"), solutions=("print(1)", "print(1)  # again")),
        stdin("b", text.upper(), "1", "2", "2", difficulty="easy"),
        stdin("c", text.replace("largest", "smallest"), "1", "2", "3", "4"),
        call("assert f(1) == 2"),
    ]
    found = compute_stats(problems)
    assert (found.problems, found.kinds) == (4, {"stdin": 3, "call": 1})
    assert found.difficulties == {"easy": 2, "not given": 2}
    assert (found.sources, found.without_solution) == ({"mine": 3, "apps": 1}, 3)
    assert (found.tests.least, found.tests.most, found.solutions.most) == (1, 4, 2)
    assert (found.equal_statements, found.near_duplicates, found.groups) == (1, 3, 2)
    assert found.constant_share == pytest.approx((1 + 2 / 3 + 1 / 4 + 1) / 4)
    assert (found.constant_half, found.constant_all) == (3, 1)


def test_lengths_are_those_of_prompt_and_shortest_solution() -> None:
    reader = Reader(PromptFormat("stdin"), lambda text: len(text.split()), context=12)
    problems = [
        replace(stdin("a", "one two", "1"), solutions=("a b c d", "a b c")),
        stdin("b", "one two three four five six seven eight", "1"),
    ]
    lengths = reader.lengths(problems)
    # Two headings of two words each.
    assert (lengths.prompts.least, lengths.prompts.most) == (6, 12)
    assert lengths.solutions == Spread(3, 3, 3, 3, 3)
    assert (lengths.context, lengths.too_long) == (12, 1)


def test_half_of_the_tests_is_half_and_one_test_is_never_all() -> None:
    three, four = stdin("a", "s", "1", "2", "3"), stdin("b", "t", "1", "1", "2", "3")
    found = compute_stats([three, four, stdin("c", "u", "1")])
    assert (found.constant_half, found.constant_all) == (2, 0)
    assert compute_stats([three]).constant_half == 0


def test_lone_surrogates_are_counted_as_the_model_is_given_them() -> None:
    def count(text: str) -> int:
        return len(text.encode("utf-8"))

    problem = replace(stdin("a", "\ud800", "1"), solutions=("print('\udc00')",))
    lengths = Reader(PromptFormat("stdin"), count, context=None).lengths([problem])
    assert lengths.solutions == spread([count("print('?')")])


def test_tokens_are_counted_as_the_runtime_counts_them(tiny_model: Path) -> None:
    from securecoderl_edge.runtimes.hf import HfRuntime

    runtime = HfRuntime(str(tiny_model))
    with open_reader(resolve_model(str(tiny_model)), "stdin") as reader:
        for problem in load_problems("starter:eval")[:5]:
            prompt = reader.format.prompt(problem)
            assert reader.count(prompt) == runtime.count_tokens(prompt) == runtime.generate(
                [prompt], 1, _greedy()
            )[0][0].prompt_tokens  # fmt: skip
        assert reader.context == runtime.context


def _greedy() -> object:
    from securecoderl_edge.runtimes.protocol import Sampling

    return Sampling(0.0, 1)


def test_the_built_in_model_reads_our_own_style() -> None:
    pytest.importorskip("tokenizers")
    with open_reader(resolve_model(NANO)) as reader:
        assert reader.format == PromptFormat("stdin")
        assert reader.count(CUT) > 0
