"""Problems to start a file with: each shows one kind, and its statement names the fields that matter."""

from __future__ import annotations

import json

from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.problems.problem_file import problem_to_record

EXAMPLES = (
    Problem(
        id="sum",
        statement="Read two integers from one line and print their sum.",
        tests=(Test("1 2", "3"), Test("-4 4", "0")),
        solutions=("a, b = map(int, input().split())\nprint(a + b)",),
    ),
    Problem(
        id="is-even",
        statement="Write a function is_even(number) that returns whether an integer is even.",
        kind="call",
        entry_point="is_even",
        assertions=("assert is_even(4) == True", "assert is_even(-3) == False"),
        solutions=("def is_even(number):\n    return number % 2 == 0",),
    ),
    Problem(
        id="evaluate",
        statement="Read a sum such as 1+2+3 and print its value. The line can come from anybody.",
        tests=(Test("1+2+3", "6"), Test("10+5", "15")),
        security_tests=(SecurityTest("code in the input", 95, "print(7*6) or 1", forbidden="42"),),
        solutions=("print(sum(map(int, input().split('+'))))",),
        insecure_solutions=("print(eval(input()))",),
    ),
)
# What the examples show, in their order.
EXPLAINED = (
    "a program that reads standard input: tests have an input and an output",
    "a function: entry_point names it, and assertions call it",
    "security_tests: input that a secure program resists; insecure_solutions show that they can fail",
)


def example_line() -> str:
    """The shortest example, as a line of a problem file."""
    return json.dumps(problem_to_record(EXAMPLES[0]))
