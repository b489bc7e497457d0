"""Prompts for problems in C, and the program in a completion of one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securecoderl_edge.languages.targets import TargetBudget
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program, is_over
from securecoderl_edge.prompts.helpers import has_needed
from securecoderl_edge.prompts.styles import OURS, PromptFormat, question

PROBLEM = Problem("add", "Add two numbers.", tests=(Test("1 2", "3"),), language="c")
FUNCTION = Problem(
    "f",
    "Add.",
    tests=(Test("1 2", "3"),),
    language="c",
    entry_point="add",
    starter_code="int add(int a, int b);",
    driver="int main(void) { return 0; }",
)
PROGRAM = """#include <stdio.h>

typedef struct { int value; } Node;
Node first;

Node make(int value) {
    Node new = {value};
    return new;
}

Node
after(Node node)
{
    /* It's the next one.
Not the End of it. */
    // Don't stop here
    puts("What's this? \\" /* no comment");
    return node;
}

int main(void) { return 0; }
"""


@pytest.mark.parametrize(
    "completion",
    [
        PROGRAM,
        f"```c\n{PROGRAM}```",
        f"```\n{PROGRAM}```\nDone.",
        f"Here is the program:\n\n```c\n{PROGRAM}```\nIt reads two numbers.",
        f"```python\nprint(1)\n```\nIn C:\n```C\n{PROGRAM}```",
        f"Here is the program:\n\n{PROGRAM}\nThis program adds the numbers that it reads.\n",
        f"{PROGRAM}\n### Problem\nAnother one.\n",
        f"{OURS.prompt(PROBLEM)}{PROGRAM}",
    ],
)
def test_the_program_is_found(completion: str) -> None:
    assert extract_program(completion, PromptFacts.of(PROBLEM)).strip() == PROGRAM.strip()


@pytest.mark.parametrize("style", ["stdin", "paper", "code"])
def test_every_style_has_the_statement_and_says_c(style: str) -> None:
    prompt = PromptFormat(style).prompt(PROBLEM)
    assert PROBLEM.statement in prompt
    assert "C11" in prompt or "/*\nAdd two numbers.\n*/\n" in prompt
    assert "def " not in prompt
    assert extract_program(PROGRAM, PromptFacts.of(PROBLEM, PromptFormat(style))).strip() == PROGRAM.strip()


def test_a_chat_question_asks_for_c_and_a_function_without_main() -> None:
    assert "Write a C11 program that reads standard input" in question(PROBLEM)
    asked = question(FUNCTION)
    assert "```c\nint add(int a, int b);\n```" in asked
    assert "Write the function `add` in C11, without `main`." in asked
    assert "standard input" not in asked


def test_a_statement_cannot_end_the_comment_that_it_stands_in() -> None:
    hostile = Problem("x", "Ends */ here.", tests=(Test("1", "2"),), language="c")
    assert PromptFormat("code").prompt(hostile).count("*/") == 1


def test_python_prompts_have_no_language_section() -> None:
    python = Problem("add", "Add two numbers.", tests=(Test("1 2", "3"),))
    assert OURS.prompt(python) == "### Problem\nAdd two numbers.\n\n### Solution\n"


def test_every_style_names_the_target_and_its_limits() -> None:
    budget = TargetBudget(code_bytes=512, stack_bytes=64, heap=False, float=False, recursion=False)
    told = "Target: ARM Cortex-M3: at most 512 bytes of code, at most 64 bytes of stack, no heap, no floating point, "
    for style in ("stdin", "paper", "code"):
        assert f"{told}no recursion." in PromptFormat(style).prompt(replace(PROBLEM, target="cortex-m3", budget=budget))
        assert "Target: ARM Cortex-M3.\n" in PromptFormat(style).prompt(replace(PROBLEM, target="cortex-m3"))
        assert "Target" not in PromptFormat(style).prompt(PROBLEM)
    assert told in question(replace(PROBLEM, target="cortex-m3", budget=budget))


def test_neither_a_closed_block_nor_an_open_function_is_over() -> None:
    asked = PromptFacts.of(PROBLEM, OURS)
    assert not is_over(f"```c\n{PROGRAM}```\n", asked)  # a corrected one may follow
    assert not is_over(PROGRAM[:60], asked)


@given(st.text(alphabet="ab ;{}()/*\"'\\\n#`<|C:.", max_size=200))
def test_any_text_has_a_program(text: str) -> None:
    assert isinstance(extract_program(text, PromptFacts.of(PROBLEM)), str)


@pytest.mark.parametrize(
    "piece", ["main(", "main ", "add(", "add (", "/*", "int a;\n", "f() {", '"', "\\", "```c\n/*\n"]
)
@pytest.mark.parametrize("problem", [PROBLEM, FUNCTION], ids=["program", "function"])
def test_long_texts_of_any_kind_are_read_in_one_pass(problem: Problem, piece: str) -> None:
    """A test that hangs here says that the time grows with the square of the length."""
    extract_program(piece * (200_000 // len(piece)), PromptFacts.of(problem))


@pytest.mark.parametrize(
    ("text", "name", "is_defined"),
    [
        ("int main(void) {\n}", "", True),
        ("int\nmain ()\n\n{\n}", "", True),
        ("int f(void);\nint main(int n, char *a[]) {}", "", True),
        ("void each(int (*f)(int), int n) { f(n); }", "each", True),
        ("int main(void);", "", False),
        ("int f(void) { main(); }", "", False),
        ("int domain(void) {}", "", False),
        ("main( {", "", False),
        ("int x = f(1); int g(void) {}", "f", False),
        ("", "", False),
    ],
)
def test_a_function_is_defined_by_its_body(text: str, name: str, is_defined: bool) -> None:
    assert has_needed(text, "c", name) == 2 * is_defined
