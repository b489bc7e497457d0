"""Inputs for programs that no test tells apart: written by the model, and made from examples by small changes.

Expected results that a model writes are often wrong, so only its inputs are used (Chen et al., "CodeT", ICLR 2023, use
both).
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import replace

from securecoderl_edge.generation.examples import example_sections, examples_in
from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.problems.changed_values import changed, literal_arguments
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.prompts.shown_tests import with_tests_shown
from securecoderl_edge.prompts.styles import PromptFormat
from securecoderl_edge.text import replace_surrogates

MOST_INPUTS = 12
_CHANGED = 6  # of these at most
_LONGEST = 2_000
_INTEGER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")


def begun_tests(problem: Problem, format: PromptFormat) -> tuple[str, str] | None:
    """The prompt that asks a chat model for tests of a problem, and the beginning of the answer, its end.

    Small models write the program again unless their answer begins with a test. None for other models.
    """
    if format.chat is None:
        return None
    statement = with_tests_shown(problem).statement.strip()
    if problem.starter_code.strip():
        statement += f"\n\n```python\n{problem.starter_code.rstrip()}\n```"
    if problem.kind == "call":
        asked = f"Write six tests of `{problem.entry_point}` with different arguments, common and unusual ones."
        begun = f"```python\nassert {problem.entry_point}("
    else:
        asked = "Write five tests of this program with different inputs, common and unusual ones."
        begun = "Example input:\n"
    chat = replace(format.chat, thinks=False)
    prompt = chat.ask(f"{statement}\n\n{asked} Do not write the program.")
    return replace_surrogates(prompt + begun), begun


def inputs_for(problem: Problem, answer: str, seed: int) -> list[str]:
    """The inputs of a problem: calls of its function, or texts that a program reads.

    Args:
        answer: the model's, with the beginning of `begun_tests`; may be empty.
        seed: of the changes.
    """
    if problem.kind == "call":
        given = list(_calls("\n".join(problem.assertions), problem.entry_point))
        written = list(_calls(answer, problem.entry_point))
    else:
        given = [test.input for test in problem.tests]
        written = [test.input for test in example_sections(answer)]
    new = [each for each in dict.fromkeys(written) if each not in given and len(each) <= _LONGEST]
    generator = random.Random(seed)
    change = _changed_call if problem.kind == "call" else _changed_text
    sources, changed = [*given, *new], []
    for _ in range(4 * _CHANGED if sources else 0):
        text = change(generator.choice(sources), generator)
        if text and text not in sources and text not in changed:
            changed.append(text)
    return [*new[: MOST_INPUTS - min(_CHANGED, len(changed))], *changed[:_CHANGED]]


def _calls(text: str, name: str | None) -> Iterator[str]:
    """The calls of a function with literal arguments in the examples of a text."""
    for assertion in examples_in(text).assertions:
        tree = parse(assertion)
        for node in ast.walk(tree) if tree else ():
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                if literal_arguments(node) is not None:
                    yield ast.unparse(node)
                break


def _changed_call(text: str, generator: random.Random) -> str:
    """A call with one argument changed."""
    match parse(text):
        case ast.Module(body=[ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call)]):
            values = literal_arguments(call)
            if values:
                place = generator.randrange(len(values))
                values[place] = changed(values[place], generator)
                names = [*([""] * len(call.args)), *(f"{each.arg}=" for each in call.keywords)]
                return f"{name}({', '.join(f'{word}{value!r}' for word, value in zip(names, values, strict=True))})"
    return ""


def _changed_text(text: str, generator: random.Random) -> str:
    """An input with one number changed; the numbers of a program's input often count what follows."""
    numbers = list(_INTEGER.finditer(text))
    if not numbers:
        return ""
    chosen = generator.choice(numbers)
    return f"{text[: chosen.start()]}{changed(int(chosen[0][:18]), generator)}{text[chosen.end() :]}"
