"""HumanEval+ and MBPP+, as EvalPlus publishes them: inputs and a reference solution, without expected outputs.

Two forms are read: the JSONL of its releases (base_input, plus_input), and the tables on Hugging Face, whose ``test``
assigns ``inputs``. The expected outputs are those of the reference solution, which the caller runs in the sandbox.
Source: Liu et al., 2023, https://github.com/evalplus/evalplus
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

from securecoderl_edge.languages.python_source import called_function, is_function_name, parse, signature
from securecoderl_edge.problems.datasets.evalplus_inputs import literal_inputs, with_python_types
from securecoderl_edge.problems.datasets.evalplus_tests import (
    HUMANEVAL_PLUS,
    MBPP_PLUS,
    EvalplusTask,
    Evaluate,
    tests_of,
)
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally
from securecoderl_edge.problems.problem import BASE_TAG, Problem
from securecoderl_edge.problems.problem_file import ProblemError, text, texts

# EvalPlus gives a program four times as long as the reference solution.
_TIME_FACTOR, _LEAST_SECONDS = 4, 5.0
_LONGEST_TEST = 1 << 22
# That of HumanEval+ 32, which the table on Hugging Face does not have as a number.
_ROOT_TOLERANCE = 1e-4


def looks_like_one(record: dict[str, Any]) -> bool:
    """Whether a record has inputs of EvalPlus, in either form."""
    if {"task_id", "base_input", "plus_input", "canonical_solution"} <= record.keys():
        return True
    test = record.get("test")
    return "task_id" in record and isinstance(test, str) and "inputs = [" in test and "assertion(" in test


def problem_from(record: dict[str, Any], _name: str, tally: Tally, evaluate: Evaluate) -> Problem:
    """The problem in a record, with expected outputs from its reference solution.

    Raises:
        ProblemError: it cannot be used.
    """
    task = _task(record)
    tests, slowest, has_base = tests_of(task, tally, evaluate)
    return Problem(
        id=task.id,
        statement=task.statement,
        kind="call",
        entry_point=task.entry_point,
        assertions=tests,
        starter_code=task.starter_code,
        solutions=(task.reference,),
        source=task.id.partition("/")[0],
        tags=(BASE_TAG,) if has_base else (),
        time_limit_s=max(_LEAST_SECONDS, round(_TIME_FACTOR * slowest, 1)),
    )


def _task(record: dict[str, Any]) -> EvalplusTask:
    task_id = str(record.get("task_id", ""))
    is_mbpp = not task_id.startswith("HumanEval/")
    number = task_id.rpartition("/")[2]
    if not number.isdecimal():
        raise ProblemError('"task_id" does not end in a number')
    prompt = text(record, "prompt")
    reference = text(record, "canonical_solution") or text(record, "code")
    if not reference.strip():
        raise DropRecord("no canonical_solution")
    examples = texts(record, "test_list")
    name = text(record, "entry_point") or (called_function(examples[0], reference) if examples else None) or ""
    if not is_function_name(name):
        raise DropRecord("entry_point is not a function name")
    base, plus, tolerance = _inputs(record, number, is_mbpp)
    if not is_mbpp:
        header = signature(prompt, name) or name
        return EvalplusTask(
            f"{HUMANEVAL_PLUS}/{number}",
            f"Complete the function `{header}` of the given code, and write the whole program.",
            name, prompt + reference, prompt.rstrip(), base, plus,
            _ROOT_TOLERANCE if name == "find_zero" and not tolerance else tolerance,
        )  # fmt: skip
    words, example = _described(prompt, examples)
    header = signature(reference, name) or name
    statement = f"{words}\n\nWrite the function `{header}`."
    statement += f" For example:\n{example}" if example else ""
    return EvalplusTask(f"{MBPP_PLUS}/{number}", statement, name, reference.strip(), "", base, plus, tolerance)


def _described(prompt: str, examples: Sequence[str]) -> tuple[str, str]:
    """The task in words, and an assertion as an example; EvalPlus puts both into a docstring."""
    lines = prompt.strip().removeprefix('"""').removesuffix('"""').strip().splitlines()
    words = [line for line in lines if not line.startswith("assert ")]
    found = [line for line in lines if line.startswith("assert ")] + list(examples)
    if not any(map(str.strip, words)):
        raise DropRecord("no statement")
    return "\n".join(words).strip(), found[0].strip() if found else ""


def _inputs(record: dict[str, Any], number: str, is_mbpp: bool) -> tuple[list[list[Any]], list[list[Any]], float]:
    """Base inputs, other inputs, and the tolerance."""
    if "base_input" not in record:
        test = text(record, "test")
        tree = parse(test) if len(test) <= _LONGEST_TEST else None
        inputs = literal_inputs(tree) if tree else None
        if not tree or not inputs:
            raise DropRecord("the inputs are not Python literals")
        return [], inputs, _tolerance(tree)
    parts = []
    for name in ("base_input", "plus_input"):
        found = record[name] or []  # MBPP+ 793 has an empty object
        if not isinstance(found, list) or not all(isinstance(arguments, list) for arguments in found):
            raise ProblemError(f'"{name}" must be a list of lists of arguments')
        parts.append(with_python_types(number, found) if is_mbpp else found)
    tolerance = record.get("atol", 0)
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance < math.inf:
        raise ProblemError('"atol" must be a number')
    if not any(parts):
        raise DropRecord("no tests")
    return parts[0], parts[1], float(tolerance)


def _tolerance(tree: ast.AST) -> float:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="assertion"), args=[_, _, ast.Constant(value=int() | float() as tolerance)]):
                return float(tolerance)
    return 0.0
