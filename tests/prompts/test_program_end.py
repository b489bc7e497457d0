"""Generation may stop where the program has ended: nothing that could follow would change what is extracted."""

from __future__ import annotations

import pytest
from asked import BEGUN, BODY, CALL, CODE, STDIN
from hypothesis import given, settings
from hypothesis import strategies as st
from quick import few

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.chat import ChatTemplate
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program, is_over
from securecoderl_edge.prompts.styles import OURS, PromptFormat

CHAT = PromptFormat("chat", ChatTemplate("{% for m in messages %}{{ m.content }}{% endfor %}", {}, "a test"))
THINKING = PromptFormat("chat", ChatTemplate("{{ messages[0].content }}<think>", {}, "a test", thinks=True))
PAPER = PromptFormat("paper")
PREFILLED = PromptFormat("prefilled", CHAT.chat)
PROBLEMS, FORMATS = (STDIN, CALL, BEGUN), (OURS, PAPER, CODE, CHAT, THINKING, PREFILLED)
_LINES = (
    "n = int(input())", "print(n * 2)", "def double(numbers):", "    return [2 * n for n in numbers]", "", "   ",
    "# A comment", 'text = """', '"""', "'''", "    '''", "```", "```python", "```bash", "~~~", "   ```", "````",
    "Here is the program:", "This doubles the number.", "### Problem", "### Solution", "### Instruction:",
    "### Response:", "### Problem of sorts", "Double a number.", "Double.", "assert double([1]) == [2]", "<|EOT|>",
    "<s>", "print(1)<|endoftext|>", "<think>", "</think>", "numbers = [", "]", "if n:", "x = 'a", "1. First, read it",
    "    return helper(numbers)", "def helper(x):", "    return x", "</s>", "<answer>", "</answer>",
    "from helper import double", "> ```python", "> print(1)", "````markdown", "✅ Done!", ">>> print(1)",
)  # fmt: skip
TEXTS = st.lists(st.sampled_from(_LINES), max_size=14).map("\n".join)


def check_that_what_follows_the_end_changes_nothing(
    problem: Problem, format: PromptFormat, text: str, with_prompt: bool
) -> None:
    if with_prompt:
        text = format.prompt(problem) + text
    asked = PromptFacts.of(problem, format)
    whole = extract_program(text, PromptFacts.of(problem, format))
    for end in range(len(text) + 1):
        if (end == len(text) or text[end - 1 : end] == "\n") and is_over(text[:end], asked):
            assert extract_program(text[:end], PromptFacts.of(problem, format)) == whole, text[:end]


@pytest.mark.parametrize(
    ("problem", "format", "text"),
    [
        (STDIN, OURS, "n = int(input())\n````markdown\n   ```\n### Problem\nn = int(input())\n```"),
        (BEGUN, CODE, f"<answer>\n{BODY}\n<answer>\nn = int(input())"),
        (BEGUN, CODE, f"<think>\n</think>\n<answer>\n{BODY}\n<answer>\nn = int(input())"),
    ],
)
def test_a_longer_block_or_another_tag_may_still_follow(problem: Problem, format: PromptFormat, text: str) -> None:
    check_that_what_follows_the_end_changes_nothing(problem, format, text, False)


@pytest.mark.parametrize("examples", few([600, 3000], 600))
def test_what_follows_the_end_changes_nothing(examples: int) -> None:
    texts = given(st.sampled_from(PROBLEMS), st.sampled_from(FORMATS), TEXTS, st.booleans())
    settings(max_examples=examples, deadline=None)(texts(check_that_what_follows_the_end_changes_nothing))()


@pytest.mark.parametrize(
    ("problem", "format", "text"),
    [
        (STDIN, OURS, "print(int(input()) * 2)\n\n### Problem\n"),
        (STDIN, PAPER, "print(int(input()) * 2)\n### Instruction:\n"),
        (STDIN, CODE, 'print(int(input()) * 2)\n\n"""\n'),
        (CALL, CODE, "def double(numbers):\n    return [2 * n for n in numbers]\n\nassert double([1]) == [2]\n"),
        (BEGUN, CODE, f"{BODY}\n\ndef other(x):\n"),
        (CALL, PREFILLED, "def double(numbers):\n    return [2 * n for n in numbers]\n```\n"),
        (
            CALL,
            PREFILLED,
            'def double(numbers):\n    """\n    ```\n    """\n    return [2 * n for n in numbers]\n```\n',
        ),
    ],
)
def test_the_end_is_seen_with_the_line_that_is_no_longer_part_of_it(
    problem: Problem, format: PromptFormat, text: str
) -> None:
    asked = PromptFacts.of(problem, format)
    ends = [end for end in range(len(text) + 1) if is_over(text[:end], asked)]
    assert ends == [len(text)]


@pytest.mark.parametrize(
    "text",
    [
        "print(1)\n",
        "### Problem\nDouble a number.\n",
        "def f():\n    return 1\n\nprint(f())\n",
        "print(1)\n```\n",
        "We read it:\n\n```python\n",
        "Here is the program:\n\nIt doubles the number.\n",
        "",
    ],
)
def test_a_program_that_may_go_on_is_not_over(text: str) -> None:
    assert not is_over(text, PromptFacts.of(STDIN, OURS))


@pytest.mark.parametrize("format", [CODE, PREFILLED])
@pytest.mark.parametrize(
    "start", ["We read it and double it.\n\n", "<answer>\n", "```python\n", "1. Read the number.\n"]
)
def test_words_before_a_program_do_not_end_it(format: PromptFormat, start: str) -> None:
    assert not is_over(f"{start}```python\nprint(1)\n```\n", PromptFacts.of(STDIN, format))
