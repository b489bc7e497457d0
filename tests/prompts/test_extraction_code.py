"""Completions of a file that was begun (prompt style ``code``): where the answer ends."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest
from asked import BEGUN, BODY, CALL, CODE, GIVEN, STDIN

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program


@pytest.mark.parametrize(
    "more",
    [
        "",
        "\n\n",
        "\n\ndef other(x):\n    return x +",
        "\nclass Other:\n",
        "\nif __name__ == '__main__':\n    print(double([1]))\n",
        "\nprint(double([1]))\n",
        "\n# Test\n",
        "\n```\n\nThis doubles.",
        "\nassert double([1]) == [2]\n",
        "<|endoftext|>",
        '\n"""\nNext problem',
    ],
)
def test_an_open_function_ends_where_a_line_is_no_longer_indented(more: str) -> None:
    program = extract_program(f"{BODY}{more}", PromptFacts.of(BEGUN, CODE))
    assert program.rstrip() == f"{GIVEN}\n{BODY}".rstrip()


@pytest.mark.parametrize(
    "used",
    [
        "\n\n@cache\ndef helper(x, y):\n    return x * y\n\n\nFACTOR: int = 2\n",
        "\n\nFACTOR = (\n    2\n)\n\n\n# It multiplies.\n@cache\n@count(\n    1\n)\n"
        "async def helper(x, y):\n    return x\n",
        "\n\nfrom operator import mul as helper\nFACTOR = int('2')\n",
    ],
)
@pytest.mark.parametrize(
    "other",
    [
        "",
        "\n@cache\ndef other(x):\n    return x\n",
        "\n@cache\n",
        "\nFACTOR = 3\n",
        "\nnumbers = eval(input())\n",
        "\nimport os\n",
    ],
)
def test_what_an_open_function_uses_is_a_part_of_it_and_the_rest_is_not(used: str, other: str) -> None:
    body = "    return [helper(number, FACTOR) for number in numbers]\n"
    program = extract_program(f"{body}{used}{other}", PromptFacts.of(BEGUN, CODE))
    assert program.rstrip() == f"{GIVEN}\n{body}{used}".rstrip()


def test_unindented_lines_within_strings_and_brackets_do_not_end_a_function() -> None:
    body = '    text = """\nnot the end\n"""\n    return [\n2 * number\nfor number in numbers]\n'
    program = extract_program(f"{body}\nprint(1)\n", PromptFacts.of(BEGUN, CODE))
    assert program == f"{GIVEN}\n{body}\n"
    ast.parse(program)


@pytest.mark.parametrize("fence", ["", "```python\n"])
def test_a_whole_program_stands_for_itself(fence: str) -> None:
    whole = f"def double(numbers):\n{BODY}"
    assert extract_program(f"{fence}{whole}", PromptFacts.of(BEGUN, CODE)) == whole
    assert extract_program(f"\n{fence}{whole}", PromptFacts.of(BEGUN, CODE)).strip() == whole.strip()


def test_a_body_alone_in_a_fence_goes_on_where_the_given_code_ends() -> None:
    assert extract_program(f"```python\n{BODY}```\n", PromptFacts.of(BEGUN, CODE)) == f"{GIVEN}\n{BODY}"
    assert extract_program(f"```python\n{BODY}```\n", PromptFacts.of(CALL, CODE)) == dedent(BODY)


def test_a_paragraph_of_prose_ends_a_program_of_its_own() -> None:
    program = f"def double(numbers):\n{BODY}"
    prose = "\nThis function takes a list and returns a new one.\nIt runs in linear time.\n"
    assert extract_program(f"{program}{prose}", PromptFacts.of(CALL, CODE)).rstrip() == program.rstrip()
    # In the midst of statements it is a fault of the program.
    fault = f"{program}This function is wrong\nx = 1\n"
    assert extract_program(fault, PromptFacts.of(CALL, CODE)) == fault


def test_a_repeated_beginning_is_not_doubled() -> None:
    assert extract_program(f"{GIVEN}\n{BODY}", PromptFacts.of(BEGUN, CODE)) == f"{GIVEN}\n{BODY}"


def test_without_given_code_a_function_call_program_ends_at_the_first_test_of_its_own() -> None:
    program = f"import math\n\ndef helper(x):\n    return x\n\ndef double(numbers):\n{BODY}"
    for more in ("assert double([1]) == [2]\n", "print(double([1]))\n", '"""\nWrite a function', "```\n"):
        assert extract_program(f"{program}{more}", PromptFacts.of(CALL, CODE)) == program


def test_a_program_that_reads_and_prints_ends_at_the_next_problem_alone() -> None:
    program = "n = int(input())\nassert n < 10\nprint(2 * n)\n"
    assert extract_program(f'{program}"""\nTriple a number.\n"""\n', PromptFacts.of(STDIN, CODE)) == program
    documented = '"""Doubles."""\nprint(2)\n'
    assert extract_program(documented, PromptFacts.of(STDIN, CODE)) == documented


@pytest.mark.parametrize("completion", ["", "\n", "    ", "   return", "é" * 50, "'''", '    """', "```"])
@pytest.mark.parametrize("problem", [BEGUN, CALL, STDIN])
def test_any_text_gives_some_program(completion: str, problem: Problem) -> None:
    assert isinstance(extract_program(completion, PromptFacts.of(problem, CODE)), str)
