"""Answers as models write them: each has the program that a reader would take out of it."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.prompts.chat import Untemplated
from securecoderl_edge.prompts.extraction import PromptFacts, extract_program, prompt_facts
from securecoderl_edge.prompts.helpers import definitions_in
from securecoderl_edge.prompts.styles import CHAT_STYLES, OURS, PromptFormat

ADD = "def add(a, b):\n    return a + b\n"
CALL = Problem("add", "Add two numbers.", kind="call", entry_point="add", assertions=("assert add(1, 2) == 3",))
STUB = 'def add(a, b):\n    """Add two numbers."""'
STUBBED = replace(CALL, statement=STUB)
GIVEN = replace(CALL, starter_code=f"import math\n\n\n{STUB}\n")
DOUBLE = "n = int(input())\nprint(2 * n)\n"
STDIN = Problem("double", "Double a number.", tests=(Test("2", "4"),))
DOCUMENTED = 'def add(a, b):\n    """Add.\n\n    ```python\n    add(1, 2)\n    ```\n    """\n    return a + b\n'


def fenced(program: str, label: str = "python") -> str:
    return f"```{label}\n{program.rstrip()}\n```\n"


PLUS, BY_PLUS = "def plus(a, b):\n    return a + b\n", "def add(a, b):\n    return plus(a, b)\n"
CALLING = "def add(a, b):\n    return {}(a, b)\n"
READ_N, PRINT_N = "a, b = map(int, input().split())\n", "print(a + b)\n"
TESTED = "from solution import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n"
IMPORTED = "from operator import add\n"
METHOD = "class Solution:\n    def add(self, a, b):\n        return a + b\n"
ASYNC, IMPORTING = f"async {ADD}", f"import math\n{ADD}"
LAMBDA = "add = lambda a, b: a + b\n"
READ = "print(2 * int(sys.stdin.read()))\n"
STDIN_READ, SCALED = "print(2 * int(stdin.read()))\n", "print(FACTOR * int(input()))\n"
FROM_SYS = "from sys import stdin\n"
NO_COLON = "def add(a, b)\n    return a\n"
ENDLESS = 'def add(a, b):\n    """Add.\n    return a + b\n'
COMPLETED = f"{STUB}\n    return a + b\n"
GIVEN_COMPLETED = f"import math\n\n\n{COMPLETED}"
TURNS = (
    *("<end_of_turn>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>", "<eos>", "</s>"),
    *("<｜end▁of▁sentence｜>", "<|EOT|>", "<|end_of_text|>"),
)


ANSWERS: dict[str, tuple[Problem, str, str]] = {
    # labels
    "labelled after bare": (CALL, f"Example:\n{fenced('3', '')}Code:\n{fenced(ADD)}", ADD),
    "labelled before bare": (CALL, f"{fenced(ADD)}Output:\n{fenced('3', '')}", ADD),
    "input and output in bare blocks": (STDIN, f"{fenced('2', '')}gives\n{fenced('4', '')}{fenced(DOUBLE)}", DOUBLE),
    "other language first": (CALL, f"{fenced('pip install x', 'bash')}{fenced(ADD)}", ADD),
    "other language last": (CALL, f"{fenced(ADD)}{fenced('function add(a, b) {}', 'js')}", ADD),
    "label in capitals": (CALL, fenced(ADD, "Python"), ADD),
    "label with attributes": (CALL, fenced(ADD, 'python title="add.py"'), ADD),
    "label in braces": (CALL, fenced(ADD, "{.python}"), ADD),
    "label with a file": (CALL, fenced(ADD, "python:add.py"), ADD),
    "tildes": (CALL, f"~~~python\n{ADD}~~~\n", ADD),
    "four backticks": (CALL, f"````python\n{ADD}````\n", ADD),
    "bare code that defines it, output labelled": (CALL, f"{fenced(ADD, '')}{fenced('3', 'output')}", ADD),
    # several blocks
    "usage first": (CALL, f"Use it so:\n{fenced('print(add(1, 2))')}Here it is:\n{fenced(ADD)}", ADD),
    "usage last": (CALL, f"{fenced(ADD)}Use it so:\n{fenced('print(add(1, 2))')}", ADD),
    "corrected": (CALL, f"{fenced(ADD.replace('+', '-'))}That is wrong.\n{fenced(ADD)}", ADD),
    "corrected program": (STDIN, f"{fenced(DOUBLE.replace('2', '3'))}No, twice:\n{fenced(DOUBLE)}", DOUBLE),
    "draft that breaks off": (CALL, f"{fenced('def add(a, b')}{fenced(ADD)}", ADD),
    "second version breaks off": (CALL, f"{fenced(ADD)}Or:\n```python\ndef add(a, b):\n    return sum((a,", ADD),
    "second version without a colon": (CALL, f"{fenced(ADD)}Or:\n{fenced(NO_COLON)}", ADD),
    "usage program after the program": (STDIN, f"{fenced(DOUBLE)}Try:\n{fenced('print(2 * 4)')}", DOUBLE),
    "helper first": (CALL, f"{fenced(PLUS)}Then:\n{fenced(BY_PLUS)}", f"{PLUS}\n{BY_PLUS}"),
    "imports first": (STDIN, f"{fenced('import sys')}{fenced(READ)}", f"import sys\n\n{READ}"),
    "imports from first": (STDIN, f"{fenced(FROM_SYS)}{fenced(STDIN_READ)}", f"{FROM_SYS}\n{STDIN_READ}"),
    "constant first": (STDIN, f"{fenced('FACTOR = 2')}{fenced(SCALED)}", f"FACTOR = 2\n\n{SCALED}"),
    **{
        f"helper: {helper}": (CALL, f"{fenced(helper)}Then:\n{fenced(program)}", f"{helper}\n\n{program}")
        for helper, program in (
            ("from math import (\n    gcd,\n    comb,\n)", "def add(a, b):\n    return comb(a, b)\n"),
            ("try:\n    from math import comb\nexcept ImportError:\n    comb = None", CALLING.format("comb")),
            ("A, B = 1, 0", "def add(a, b):\n    return A * a + b + B\n"),
            ("import sys\nsys.setrecursionlimit(10**6)", "def add(a, b):\n    return sys.maxsize\n"),
            (f"# For add(a, b).\n{PLUS.rstrip()}", BY_PLUS),
            (f"{PLUS}\n\nif __name__ == '__main__':\n    print(plus(1, 2))", BY_PLUS),
            (f"{PLUS}\nprint(plus(1, 2))", BY_PLUS),
            ("class Sums:\n    def of(self, a, b):\n        return a + b", CALLING.format("Sums().of")),
        )
    },
    "example that binds a parameter": (CALL, f"{fenced('a = 1, b = 2', '')}gives 3:\n{fenced(ADD)}", ADD),
    "reads, then prints": (STDIN, f"{fenced(READ_N)}Then:\n{fenced(PRINT_N)}", f"{READ_N}\n{PRINT_N}"),
    "tests behind it": (CALL, f"{fenced(ADD)}Test:\n{fenced(TESTED)}", ADD),
    "alias behind it": (CALL, f"{fenced(ADD)}Test:\n{fenced('add = add')}", ADD),
    **{
        f"stub behind it: {stub}": (CALL, f"{fenced(ADD)}Your stub:\n{fenced(f'def add(a, b):{stub}')}", ADD)
        for stub in ("\n    ...", "\n    pass", ' ...', '\n    """Add."""', '\n    """Add."""\n    # TODO\n    pass')
    },
    "imported alone": (CALL, f"{fenced('print(1)')}{fenced(IMPORTED)}", IMPORTED),
    "helper that is repeated": (CALL, f"{fenced('import math')}{fenced(IMPORTING)}", IMPORTING),
    "helper that is not used": (CALL, f"{fenced('import math')}{fenced(ADD)}", ADD),
    "method of a class": (CALL, f"{fenced('print(1)')}{fenced(METHOD)}",
                          METHOD),
    "lambda": (CALL, f"{fenced('add(1, 2)')}{fenced(LAMBDA)}", LAMBDA),
    "async": (CALL, f"{fenced('1')}{fenced(ASYNC)}", ASYNC),
    "program outside, output in a block": (CALL, f"{ADD}\nOutput:\n{fenced('3', '')}", ADD),
    # fences in strings, on lines with text, unclosed
    "fence in a docstring": (CALL, f"{fenced(DOCUMENTED)}It adds.\n", DOCUMENTED),
    "fence in a docstring, bare": (CALL, fenced(DOCUMENTED, ""), DOCUMENTED),
    "fence in a docstring, unclosed": (CALL, f"```python\n{DOCUMENTED}", DOCUMENTED),
    "fence in a comment": (CALL, fenced(f"# ```python\n{ADD}"), f"# ```python\n{ADD}"),
    "fence in a string": (STDIN, fenced('print("```")\n'), 'print("```")\n'),
    "docstring never closed": (CALL, f"{fenced(ENDLESS)}Text.\n", ENDLESS),
    "fence behind text": (CALL, f"Answer: ```python\n{ADD}```", ADD),
    "fence behind a sentence": (CALL, f"Here is the code ```py\n{ADD}```\nDone.", ADD),
    "text behind the end": (CALL, f"```python\n{ADD}```This adds.\n", ADD),
    "text behind the end with blank": (CALL, f"```python\n{ADD}``` Hope this helps!\n", ADD),
    "end behind the last line": (CALL, f"```python\n{ADD.rstrip()}```\nDone.", ADD.rstrip()),
    "only an end behind the last line": (CALL, f"{ADD.rstrip()}```\nDone.", ADD.rstrip()),
    "one line": (STDIN, "```python print(2 * int(input()))```", "print(2 * int(input()))"),
    "one line, bare": (STDIN, "Use ```print(2 * int(input()))```.", "print(2 * int(input()))"),
    "code behind the fence": (CALL, "```def add(a, b):\n    return a + b\n```", ADD),
    "code behind the label": (CALL, f"```python {ADD}```", ADD),
    "block in a block of Markdown": (CALL, f"````markdown\n# Adding\n{fenced(ADD)}````\n", ADD),
    "blocks in a block of Markdown": (CALL, f"````md\n{fenced(CALLING)}No:\n{fenced(ADD)}````\n", ADD),
    "unclosed before its output": (CALL, f"```python\n{ADD}\nOutput:\n```\n3\n```\n", ADD),
    "quoted": (CALL, "So:\n> ```python\n> def add(a, b):\n>     return a + b\n> ```\n> It adds.\n\nDone.\n", ADD),
    "quotation mark before a block": (CALL, f"> {fenced(ADD)}", ADD),
    "session": (CALL, fenced(">>> def add(a, b):\n...     return a + b\n...\n>>> add(1, 2)\n3"), f"{ADD}\nadd(1, 2)"),
    "zero-width space before code": (CALL, f"\u200b{ADD}", ADD),
    "zero-width space before a fence": (CALL, f"\u200b{fenced(ADD)}", ADD),
    "solution tags": (CALL, f"Here:\n<solution>\n{ADD}</solution>\n", ADD),
    "solution tags around a block": (CALL, f"<solution>\n{fenced(ADD)}</solution>\n", ADD),
    "unclosed": (CALL, f"Sure!\n```python\n{ADD}", ADD),
    "unclosed before prose": (CALL, f"```python\n{ADD}\nThis function adds two numbers.\nIt is fast.\n", f"{ADD}\n"),
    "unclosed before another": (CALL, f"```python\nimport os\n\n```python\n{ADD}```\n", ADD),
    "indented": (CALL, "1. Code:\n\n   ```python\n   def add(a, b):\n       return a + b\n   ```\n", ADD),
    "in an item of a list": (CALL, f"- ```python\n{ADD}```\n", ADD),
    "indented without a fence": (CALL, "The code:\n\n    def add(a, b):\n        return a + b\n", ADD),
    "all indented in a fence": (CALL, "```python\n    def add(a, b):\n        return a + b\n```\n", ADD),
    "carriage returns": (CALL, f"Code:\r\n```python\r\n{ADD}```\r\n", ADD),
    # marks of bytes, roles, turns, thoughts, tags
    "byte-order mark before a fence": (CALL, f"\ufeff{fenced(ADD)}", ADD),
    "byte-order mark before code": (CALL, f"\ufeff{ADD}", ADD),
    "role": (CALL, f"assistant\n{fenced(ADD)}", ADD),
    "role before code": (CALL, f"assistant\n{ADD}", ADD),
    **{
        f"turn {token}": (CALL, f"{ADD}{token}{more}", ADD)
        for token in TURNS
        for more in ("", "\n", "\n<|im_start|>user\nThanks")
    },
    **{
        f"turn {token} within a line": (CALL, f"{ADD.rstrip()}{token}Question: add?\n{PLUS}", ADD.rstrip())
        for token in ("<end_of_turn>", "<|endoftext|>", "<|im_end|>", "<eos>")
    },
    **{
        f"header {header}": (CALL, f"{header}{answer}", ADD)
        for header in (
            "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|start_of_role|>assistant<|end_of_role|>",
            "<|channel|>final<|message|>", "<|start|>assistant<|channel|>final<|message|>", "[/INST]", "<|assistant|>",
            "<|eot_id|>", "<|begin_of_text|>", "<｜Assistant｜>", "<|begin_of_solution|>\n",
            "<|channel|>analysis<|message|>Add.<|end|><|start|>assistant<|channel|>final<|message|>",
        )
        for answer in (ADD, fenced(ADD))
    },
    **{
        f"{token} within a line": (CALL, f"{ADD.rstrip()}{token}[INST] More [/INST]\nMore", ADD.rstrip())
        for token in ("</s>", "<unk>", "<file_sep>", "<|file_sep|>")
    },
    "end of a sequence in a string": (STDIN, 'print("</s>", "<unk>") # </s> x\n', 'print("</s>", "<unk>") # </s> x\n'),
    **{
        f"thought: {thoughts[:30]}": (CALL, f"{thoughts}\n{answer}", ADD)
        for thoughts in (
            "<think>a</think>\n<think>b</think>", "<think>\na\n<think>\nb\n</think>\nc\n</think>",
            "<think>\n<think>\na\n</think>", "<think><think>a</think>b</think>", "<THINK>a</THINK>",
            "<Thought>a</Thought>", "<|begin_of_thought|>a\n<|end_of_thought|>\n\n<|begin_of_solution|>",
            "Let me think about it.\n<think>\n```python\ndef add(a): pass\n```\n</think>",
        )
        for answer in (ADD, fenced(ADD))
    },
    "thought behind it": (CALL, f"{fenced(ADD)}<think>\nOr:\n{fenced(BY_PLUS)}</think>\nDone.\n", ADD),
    "thought behind it, unfinished": (CALL, f"{fenced(ADD)}<think>\nOr:\n{fenced(BY_PLUS)}", ADD),
    "thought in a string": (STDIN, 'print("""\n<think>\n""")\n', 'print("""\n<think>\n""")\n'),
    "token in a string": (STDIN, 'print("a<|endoftext|>b")\n', 'print("a<|endoftext|>b")\n'),
    "thought with a draft": (CALL, f"<think>\n{fenced('def add(a): pass')}</think>\n{fenced(ADD)}", ADD),
    "thought, then tags": (CALL, f"<think>Add.</think>\n<answer>\n{ADD}</answer>", f"\n{ADD}"),
    "thought, then tags with a fence": (CALL, f"<think>Add.</think><answer>\n{fenced(ADD)}</answer>", ADD),
    "tags on the line": (CALL, f"<answer>{ADD.rstrip()}</answer>", ADD.rstrip()),
    "tag never closed": (CALL, f"<answer>\n{ADD}", f"\n{ADD}"),
    "code tags": (CALL, f"Here:\n<code>\n{ADD}</code>\nDone.\n", f"\n{ADD}"),
    "answer and code tags": (CALL, f"<answer>\n<code>\n{ADD}</code>\n</answer>\n", f"\n{ADD}"),
    "Code Llama's tags": (CALL, f"[PYTHON]\n{ADD}[/PYTHON]\n[TESTS]\nassert 1\n[/TESTS]\n", f"\n{ADD}"),
    "MBPP's tags": (CALL, f"[BEGIN]\n{ADD}[DONE]\nYou are an expert", f"\n{ADD}"),
    "MBPP's last tag": (CALL, f"{ADD}[DONE]\nYou are an expert", ADD),
    "tags in a string": (STDIN, 'print("""\n<code>\n""")\n', 'print("""\n<code>\n""")\n'),
    # prose
    **{
        f"before: {prose[:24]}": (CALL, f"{prose}\n\n{ADD}", ADD)
        for prose in (
            "Sure, here is the function:", "Solution:", "**Solution:**", "here is the solution to your problem:",
            "当然，这是代码：", "下面是 Python 代码：", "以下のコードです。", "다음은 코드입니다.",
            "Вот решение:", "Решение:",
            "यहाँ कोड है:", "นี่คือโค้ด:", "إليك الكود:", "OK", "Answer", "Certainly.", "code:", "Here's:",
            "Solution (in Python):", "Solution\n=======", "def add is what we write:",
            "Voici la fonction :", "¡Claro! Aquí está el código:", "Hier ist die Lösung:", "> Here is a quote", "---",
            "1. Read both numbers.\n2. Add them.", "- Read both numbers.\n- Add them.", "*Here is the code:*",
        )
    },
    **{
        f"behind: {prose[:24]}": (CALL, f"{ADD}\n{prose}\n", f"{ADD}\n")
        for prose in (
            "This function adds two numbers.", "Note: works for floats, too.", "this function adds two numbers.",
            "✅ Done!", "Call `add(1, 2)`.", "Explanation (short): sums numbers.", "यह दो संख्याओं को जोड़ता है।", "OK",
            "这个函数返回两个数的和。", "**Explanation:** adds.", "**Explanation**", "Explanation:\n- a is added to b",
            "The function `add` returns `a + b`.", "You can call it like this: add(1, 2)", "Hope this helps!",
            "Cette fonction additionne deux nombres.", "---\nNote that it is short.", "Time complexity: O(1)",
        )
    },
    "heading in the middle": (CALL, f"We add.\n\n### Solution\n{fenced(ADD)}", ADD),
    "heading before bare code": (CALL, f"We add them up.\n\n### Solution\n\n{ADD}", f"### Solution\n\n{ADD}"),
    "headings with other words": (CALL, f"### Approach\nWe add.\n### Code\n{fenced(ADD)}### Complexity\nO(1)\n", ADD),
    # stubs and bodies
    "stub completed": (STUBBED, COMPLETED, COMPLETED),
    "signature completed": (replace(CALL, statement="def add(a, b):"), ADD, ADD),
    "body of a stub": (STUBBED, "    return a + b\n", COMPLETED),
    "body": (GIVEN, "    return a + b\n", GIVEN_COMPLETED),
    "body and more": (GIVEN, "    return a + b\n\n\ndef other():\n    pass\n", f"{GIVEN_COMPLETED}\n\n"),
    "body in a fence": (GIVEN, "```python\n    return a + b\n```\n", GIVEN_COMPLETED),
    **{
        f"body: {body[:20]}{more}": (GIVEN, more.format(body), f"import math\n\n\n{STUB}\n{body}")
        for body in (
            "    c = a\n# Add b.\n    return c + b\n",
            "# Add them.\n    return a + b\n",
            "    return plus(a, b)\n\n\ndef plus(a, b):\n    return a + b\n",
            "    def add(x, y):\n        return x + y\n    return add(a, b)\n",
        )
        for more in ("{}", "```python\n{}```\n", "{}\n\ndef main():\n    print(add(1, 2))\n", "{}\n# Test\nprint(1)\n")
    },
    "whole program for given code": (GIVEN, fenced(ADD), ADD),
    "given code repeated": (GIVEN, GIVEN_COMPLETED, GIVEN_COMPLETED),
    "statement repeated on a line of code": (replace(STDIN, statement="n"), DOUBLE, DOUBLE),
    "statement repeated": (STDIN, f"Double a number.\n\n{DOUBLE}", f"\n{DOUBLE}"),
    # where the prompt began a file or a block
    "sentence and a fence": (CALL, f"Here is the code:\n{fenced(ADD)}It adds.\n", ADD),
    "a fence behind a comment": (CALL, f"# Solution\n{fenced(ADD)}", ADD),
    "a sentence before a program": (STDIN, f"The program doubles a number.\n\n{DOUBLE}", DOUBLE),
    "tags behind a sentence": (CALL, f"Here is the code:\n<answer>\n{fenced(ADD)}</answer>\n", ADD),
    "list before a fence": (CALL, f"1. Read both.\n2. Add them.\n{fenced(ADD)}", ADD),
    # none of these
    "no code": (CALL, "I cannot do that.", "I cannot do that."),
    "a program as it is": (STDIN, DOUBLE, DOUBLE),
}  # fmt: skip


# What ends another way where the prompt began a file or a block.
OTHERWISE = {
    "code": {"only an end behind the last line"},
    "prefilled": {"MBPP's last tag"},
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("style", ["stdin", "paper", "chat", "code", "prefilled"])
def test_the_program_of_an_answer_is_found(name: str, style: str) -> None:
    problem, completion, program = ANSWERS[name]
    chat = Untemplated("") if style in CHAT_STYLES else None
    found = extract_program(completion, PromptFacts.of(problem, PromptFormat(style, chat)))
    is_found = found.replace("\r", "").strip("\n") == program.strip("\n")
    assert is_found != (name in OTHERWISE.get(style, ())), found


def test_the_programs_of_the_table_are_programs() -> None:
    broken = {"docstring never closed", "no code"}
    for name in ANSWERS.keys() - broken:
        ast.parse(ANSWERS[name][2])


@pytest.mark.parametrize(
    ("program", "kept"),
    [
        ("def f(x):\n    return x\nassert f(1) == 2\n", "def f(x):\n    return x\n"),
        ("def f(x):\n    return x\n\nprint(\n    f(1),\n)\nx = f(2)\n", "def f(x):\n    return x\n\nx = f(2)\n"),
        (
            "import re\nN: int = 3\n@g\ndef f(x):\n    assert x\n",
            "import re\nN: int = 3\n@g\ndef f(x):\n    assert x\n",
        ),
        (
            "def f(\n    x,\n):\n    return x\nif __name__ == '__main__':\n    f(1)\n",
            "def f(\n    x,\n):\n    return x\n",
        ),
        ('def f(x):\n    """\nassert f(1)\n"""\nassert f("', 'def f(x):\n    """\nassert f(1)\n"""\n'),
        ("x == 1\nx += 1\nfor i in x:\n    pass\nasync def f(): pass\n", "async def f(): pass\n"),
        ("# What it does\ndef f(): pass\n", "# What it does\ndef f(): pass\n"),
        ("a, b = 1, 2\n", "a, b = 1, 2\n"),
    ],
)
def test_tests_and_examples_beside_definitions_can_be_left_out(program: str, kept: str) -> None:
    assert definitions_in(program) == kept


def test_definitions_are_extracted_of_functions_in_python_only() -> None:
    answer = fenced(f"{ADD}assert add(1, 2) == 4\n")
    assert "assert" not in extract_program(answer, prompt_facts(CALL, OURS, "definitions"))
    assert "assert" in extract_program(answer, prompt_facts(CALL, OURS))
    assert "assert" in extract_program(answer, prompt_facts(STDIN, OURS, "definitions"))
