"""The program in a completion."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quick import few

import securecoderl_edge
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.sources import load_problems
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program, prompt_facts
from securecoderl_edge.prompts.styles import OURS

PROGRAM = "import sys\n\nn = int(input())\nprint(n * 2)\n"
PROBLEM = Problem("p", "Double a number.", tests=(Test("2", "4"),))


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("print(1)\n", "print(1)\n"),
        ("", ""),
        ("```python\nprint(1)\n```\n", "print(1)\n"),
        ("```\nprint(1)\n```", "print(1)\n"),
        ("~~~py\nprint(1)\n~~~\n", "print(1)\n"),
        ("Here it is:\n\n```python\nprint(1)\n```\nIt prints 1.\n", "print(1)\n"),
        ("```python\nprint(1)\n```\n```python\nprint(2)\n```\n", "print(2)\n"),
        ("Install it:\n```bash\npip install x\n```\nThen:\n```python\nprint(1)\n```\n", "print(1)\n"),
        ("```text\nno\n```\n", "no\n"),
        ("- First:\n\n  ```python\n  if 1:\n      print(1)\n  ```\n", "if 1:\n    print(1)\n"),
        ("```python\r\nprint(1)\r\n```\r\n", "print(1)\r\n"),
        # cut off
        ("```python\nprint(1)\n", "print(1)\n"),
        ("```python\nprint(1)\n``", "print(1)\n"),
        ("```python", "```python"),
        ("print(1)\nprint(", "print(1)\nprint("),
        ("print(1)<|im_e", "print(1)"),
        # the prompt ended in an opened block
        ("print(1)\n```\nIt prints one.\n", "print(1)\n"),
        ("print(1)\n```\nOutput:\n```\n1\n```\n", "print(1)\n"),
        # sentences
        ("Sure! Here is the program:\n\nprint(1)\n", "print(1)\n"),
        ("python\nprint(1)\n", "print(1)\n"),
        ("Here it is:\n\nPython3\nCopy code\nprint(1)\n", "print(1)\n"),
        ("python = 3\nprint(python)\n", "python = 3\nprint(python)\n"),
        ("Certainly, this program doubles:\nprint(1)\n\nThis prints a one.\nprint(2)\n", "print(1)\n\n"),
        ("1. Read the number\n2. Print it\nprint(1)\n", "print(1)\n"),
        ("print(1)\nExplanation:\nIt prints.\n", "print(1)\n"),
        ("I cannot solve this problem.", "I cannot solve this problem."),
        # what looks like prose and is none
        (
            "N = int(input())\nTotal = N if N else 0\nprint(Total)",
            "N = int(input())\nTotal = N if N else 0\nprint(Total)",
        ),
        ('x = """\nThis is a text.\n```python\nno\n```\n"""\n', 'x = """\nThis is a text.\n```python\nno\n```\n"""\n'),
        ("f(\nThis is broken)\n", "f(\nThis is broken)\n"),
        ("for i in range n:\n    pass\n", "for i in range n:\n    pass\n"),
        # our own template, special tokens, thoughts
        ("print(1)\n### Problem\nAnother.\n", "print(1)"),
        ("print(1)\n### Solution\nprint(2)\n", "print(1)"),
        ("```python\nprint(1)\n### Problem\n```\n", "print(1)\n### Problem\n"),
        ("x = '''### Problem'''\n", "x = '''### Problem'''\n"),
        ("<|assistant|>\nprint(1)<|im_end|>\n<|user|>\nThanks", "\nprint(1)"),
        ("<s> print('</s>')\n</s>", "print('</s>')\n"),
        ("<think>\nprint(0)\n</think>\nprint(1)\n", "\nprint(1)\n"),
        # nothing that could pass for an empty program, which runs clean
        ("<think>\nprint(0)\n", "<think>\nprint(0)\n"),
        ("### Problem\nnonsense (((", "### Problem\nnonsense ((("),
        ("```python\n```", "```python\n```"),
        ("<s>", "<s>"),
        ("# Plan\n\nWe read it and print it.\n", "# Plan\n\nWe read it and print it.\n"),
        ("# <|endoftext|>\nprint(1)", "# <|endoftext|>\nprint(1)"),
        # no program is cut at a word that it holds, none is mended
        ("print(42)\nDo this thing now\nprint(43)\n", "print(42)\nDo this thing now\nprint(43)\n"),
        ('print("<s> {}", "a <|endoftext|> b")\n', 'print("<s> {}", "a <|endoftext|> b")\n'),
        ("### Solution by brute force\nprint(1)\n", "### Solution by brute force\nprint(1)\n"),
        ("print(1)\n### Problem 2\nprint(2)\n", "print(1)\n### Problem 2\nprint(2)\n"),
        ("### Solution\nprint(1)\n", "print(1)\n"),
    ],
)
def test_a_program_is_taken_out_of_a_completion(completion: str, program: str) -> None:
    assert extract_program(completion, PromptFacts()) == program


@pytest.mark.parametrize(
    "echo",
    [
        OURS.prompt(PROBLEM),
        "\n" + OURS.prompt(PROBLEM),
        "Double a number.\n",
        "### Problem\nOther\n\n### Solution\n",
    ],
)
@pytest.mark.parametrize("answer", [PROGRAM, f"```python\n{PROGRAM}```\n", f"Here is my program:\n{PROGRAM}"])
def test_a_repeated_prompt_is_cut(echo: str, answer: str) -> None:
    assert extract_program(echo + answer, PromptFacts.of(PROBLEM)) == PROGRAM


def test_a_fence_is_closed_only_by_a_fence_of_its_own_kind() -> None:
    completion = '````python\ntext = """\n```\n~~~\n"""\n````\n'
    assert extract_program(completion, PromptFacts()) == 'text = """\n```\n~~~\n"""\n'


@functools.cache
def programs() -> list[str]:
    """Reference solutions, our own sources and those of the standard library's larger modules."""
    solutions = [
        problem.solutions[0] for split in ("eval", "security", "hard") for problem in load_problems(f"starter:{split}")
    ]
    folders = (Path(securecoderl_edge.__file__).parent, Path(ast.__file__).parent)
    return solutions + [path.read_text(encoding="utf-8") for folder in folders for path in sorted(folder.glob("*.py"))]


def test_a_program_comes_back_as_it_is() -> None:
    assert [text for text in programs() if extract_program(text, PromptFacts.of(PROBLEM)) != text] == []


SENTENCES = st.sampled_from(["", "Here is the code:\n\n", "Sure!\n", "This program's idea is simple.\n\n"])


@given(st.data(), SENTENCES, st.sampled_from(["python", "py", "Python", ""]), st.booleans())
def test_a_fenced_program_is_found_whatever_is_around_it(
    data: st.DataObject, sentence: str, label: str, is_closed: bool
) -> None:
    program = data.draw(st.sampled_from([text for text in programs() if "```" not in text]))
    end = f"```\n{sentence}" if is_closed else ""
    assert extract_program(f"{sentence}```{label}\n{program}{end}", PromptFacts()) == program


@given(st.text() | st.text(alphabet="ab`~#\n\r<|>/'\"\\([{}]): A!"))
def test_any_text_has_a_program_which_is_part_of_it(completion: str) -> None:
    program = extract_program(completion, PromptFacts.of(PROBLEM))
    assert all(line in completion for line in program.split("\n"))


@given(st.text())
def test_a_raw_completion_is_the_program(completion: str) -> None:
    assert extract_program(completion, prompt_facts(PROBLEM, extract="raw")) == completion


@pytest.mark.parametrize(
    "piece",
    [
        "```bash\n",
        "<|x|>",
        "<|x",
        "(",
        '"""',
        "'",
        "\\\n",
        "\n",
        "A b\n",
        "- ",
        "### Problem\n",
        "<think>",
        " ",
        "<s>",
        "~~~a",
        "> ```\n",
        "> a\n",
        "````md\n```\n",
        "<think>\n</think>\nx\n",
        "def f(): ...\n",
        "```python\nimport a\n```\n",
        '```python\n\\"""\n```\n',
        "```python\n\\'''\n```\n",
        "Call `",
        "from import ",
    ],
)
def test_long_texts_of_any_kind_are_read_in_one_pass(piece: str) -> None:
    """A test that hangs here says that the time grows with the square of the length."""
    extract_program(piece * (200_000 // len(piece)), PromptFacts.of(PROBLEM))


@pytest.mark.parametrize(
    "piece", ["main(", "main()", "f(", "int f(int a)\n", "/* ", "{", ";", "```c\nint f(void) {}\n```\n"]
)
@pytest.mark.parametrize("entry_point", ["", "f"])
def test_long_texts_in_c_are_read_in_one_pass(piece: str, entry_point: str) -> None:
    """As above; a client can ask so for any function."""
    extract_program(piece * (300_000 // len(piece)), PromptFacts(language="c", entry_point=entry_point))


@pytest.mark.parametrize("line", ["```{}`", "~~~{}`", "```{}", "# {}", "'{}", "<|{}", "### Solution{}x", "A{}:x"])
@pytest.mark.parametrize("filling", few(["a", " ", "`", "~", "\\", "A b\n- c\nx\n"], "a", " ", "`"))
def test_a_long_line_of_any_kind_is_read_in_one_pass(line: str, filling: str) -> None:
    extract_program(line.format(filling * (200_000 // len(filling))) + "\nprint(1)\n", PromptFacts.of(PROBLEM))


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of auto, definitions, raw"):
        prompt_facts(PROBLEM, extract="json")


def test_a_line_full_of_fences_takes_no_quadratic_time_and_hides_no_block_behind_it() -> None:
    """A client's completion can have a mebibyte; with quadratic work this would take minutes."""
    flood = "``` " * (1 << 18)
    assert extract_program(f"{flood}\n```python\nprint(1)\n```\n", PromptFacts()).strip() == "print(1)"
