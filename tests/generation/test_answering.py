"""Choice among programs by what they do, inputs for it, and repair."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from fake_runtime import FakeRuntime, Writer
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.generation.agreement import agreement
from securecoderl_edge.generation.answering import Answerer
from securecoderl_edge.generation.answers import Answer
from securecoderl_edge.generation.execution_inputs import MOST_INPUTS, begun_tests, inputs_for
from securecoderl_edge.generation.inputs import GivenTests, prompt_problem
from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.styles import OURS, PromptFormat
from securecoderl_edge.runtimes.protocol import Sampling
from securecoderl_edge.scoring.results import results_on
from securecoderl_edge.scoring.scorer import Scorer

HALF = prompt_problem("Write a function half(n). half(4) -> 2")
RIGHT, ALSO, WRONG = (f"def half(n):\n    return {value}\n" for value in ("n // 2", "int(n // 2)", "2"))
TEMPLATE = ChatTemplate("{% for m in messages %}{{ m.content }}\n{% endfor %}", {}, "a test")
CHAT = PromptFormat("chat", TEMPLATE)


@pytest.fixture(scope="module")
def scorer() -> Iterator[Scorer]:
    with Scorer(2) as scorer:
        yield scorer


def answered(scorer: Scorer, write: Writer, problem: Problem = HALF, n: int = 3, format: PromptFormat = OURS) -> Answer:
    return Answerer(FakeRuntime(write), scorer, n, Sampling(), format).answer([problem])[0]


def in_turn(*texts: str) -> Writer:
    return lambda _prompt, sample, _rng: texts[sample]


def test_the_program_wins_that_agrees_with_most_others(scorer: Scorer) -> None:
    answer = answered(scorer, in_turn(WRONG, RIGHT, ALSO))
    assert answer.best.score.program in (RIGHT.strip("\n"), ALSO.strip("\n"), RIGHT, ALSO)
    assert [each.agreement > 0.4 for each in answer.candidates] == [True, True, False]
    assert answer.accepted == 3
    assert 0 < answer.inputs <= MOST_INPUTS


def test_equal_programs_are_not_compared(scorer: Scorer) -> None:
    answer = answered(scorer, in_turn(RIGHT, RIGHT, RIGHT))
    assert (answer.inputs, answer.best.agreement) == (0, 0)


def test_tests_decide_before_agreement(scorer: Scorer) -> None:
    problem = prompt_problem(
        "Write half(n).", given=GivenTests(assertions=("assert half(8) == 4", "assert half(2) == 1"))
    )
    answer = answered(scorer, in_turn(WRONG, f"{WRONG}# 2\n", RIGHT), problem)
    assert "n // 2" in answer.best.score.program
    assert (answer.accepted, answer.inputs) == (1, 0)


def test_the_verdict_says_what_a_program_tried_in_vain(scorer: Scorer) -> None:
    curious = f"{RIGHT}\ntry:\n    open('/etc/passwd')\nexcept OSError:\n    pass\n"
    answered_once = answered(scorer, in_turn(curious), n=1)
    assert answered_once.verdict() == "passed 1/1 tests, tried to read /etc/passwd: refused, Bandit: no findings"


def test_failures_are_no_agreement(scorer: Scorer) -> None:
    crash = "def half(n):\n    return n[0]\n"
    results = results_on(scorer, HALF, ["half(6)", "half(0)"], [crash, f"{crash}#\n", RIGHT])
    assert agreement([crash, f"{crash}#\n", RIGHT], results) == [0, 0, 0]


def test_results_are_equal_up_to_rounding_and_space(scorer: Scorer) -> None:
    inputs = ["half(0.3)"]
    programs = ["def half(n):\n    return n / 3\n", "def half(n):\n    return n * (1 / 3)\n"]
    assert agreement(programs, results_on(scorer, HALF, inputs, programs)) == [1, 1]
    reads = Problem("p", "Double.", tests=(Test("1", "2"),))
    programs = ["print(2 * int(input()))", "print(2 * int(input()), ' ')\nprint()"]
    assert agreement(programs, results_on(scorer, reads, ["3\n", "4\n"], programs)) == [1, 1]


def test_a_program_that_hangs_or_floods_only_loses(scorer: Scorer) -> None:
    programs = ["def half(n):\n    while n: pass\n", "def half(n):\n    return 'x' * 10 ** 9\n", RIGHT, ALSO]
    assert agreement(programs, results_on(scorer, HALF, ["half(6)"], programs)) == pytest.approx([0, 0, 1 / 3, 1 / 3])


def test_results_with_many_digits_are_read_once(scorer: Scorer) -> None:
    program = "def half(n):\n    return f'{n}' * 70_000\n"
    (results,) = results_on(scorer, HALF, [f"half({number})" for number in range(9)], [program]).values()
    assert len(set(results)) == 9


def test_a_chat_model_writes_inputs_behind_the_beginning_of_a_test(scorer: Scorer) -> None:
    def write(prompt: str, sample: int, _: object) -> str:
        if prompt.endswith("```python\nassert half("):
            return "9) == 7\nassert half(-3) == 0\n"
        return (WRONG, RIGHT, ALSO)[sample]

    answer = answered(scorer, write, format=CHAT)
    assert "agrees with" in answer.verdict()
    assert answer.input_tokens > 0
    assert answer.tokens > sum(len(each.completion.token_ids) for each in answer.candidates)


def test_inputs_are_those_of_the_model_and_changes_of_the_examples() -> None:
    written = "```python\nassert half(9) == 7\nassert half(n) == 1\nassert other(3) == 4\nassert half(4) == 2\n"
    inputs = inputs_for(HALF, written, 1)
    assert inputs[0] == "half(9)"
    assert all(each.startswith("half(") for each in inputs)
    assert "half(4)" not in inputs  # it is a test already
    assert inputs == inputs_for(HALF, written, 1)
    assert inputs_for(HALF, "", 1) != inputs_for(HALF, "", 2)


def test_without_an_example_or_a_chat_model_there_is_no_input(scorer: Scorer) -> None:
    untested = prompt_problem("Write a function half(n).")
    assert inputs_for(untested, "", 1) == []
    assert begun_tests(untested, OURS) is None
    assert answered(scorer, in_turn(WRONG, RIGHT, ALSO), untested).inputs == 0


def test_inputs_of_a_program_are_texts() -> None:
    problem = Problem("p", "Sum.", tests=(Test("2 3\n", "5"),))
    written = "Example input:\n7 8\nExample output:\n0\n"
    inputs = inputs_for(problem, written, 3)
    assert inputs[0] == "7 8\n"
    assert all(each.endswith("\n") and len(each.split()) == 2 for each in inputs)
    begun = begun_tests(problem, CHAT)
    assert begun is not None
    assert begun[0].endswith("Example input:\n")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@given(st.lists(VALUES, min_size=1, max_size=3), st.integers(0, 99))
def test_changed_calls_have_literal_arguments(values: list[object], seed: int) -> None:
    call = f"half({', '.join(map(repr, values))})"
    problem = replace(HALF, assertions=(f"assert {call} == 1",))
    for text in inputs_for(problem, "", seed):
        assert parse(text) is not None
        assert text.startswith("half(")
