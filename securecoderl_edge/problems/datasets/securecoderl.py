"""SecureCodeRL's ``ppo_prompts_with_tests.json`` (format 2.0), the problems of the paper's own runs.

    {"count": 7408, "format_version": "2.0", "prompts_with_tests": [
        {"problem_id": ..., "difficulty": ..., "prompt": "def solve_ab12c(): ...", with the statement as its docstring,
         "test_cases": {"inputs": ["1 2\\n", ...], "outputs": ["3\\n", ...]}}, ...]}

The statement is taken out of the stub. The list also contains call problems of APPS+, with their arguments printed as a
list and without the name of the function. They cannot be solved, so they are dropped.

The paper evaluated on 100 prompts, sampled from the whole list by Python's ``random`` with seed 42. The usable ones
have the tag `PAPER_TAG`. Source: https://github.com/SuryanshSS1011/SecureCodeRL
"""

from __future__ import annotations

import ast
import random
import re
from pathlib import Path
from typing import Any

from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.problems.datasets.record_files import count_records, given_id
from securecoderl_edge.problems.datasets.stdin_tests import stdin_tests
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import ProblemError
from securecoderl_edge.system.rows import open_unpacked

SOURCE = "securecoderl"
PAPER_TAG = "paper-eval"
PAPER_SEED, PAPER_PROMPTS = 42, 100

_HEAD_BYTES = 4096
_COUNT = re.compile(rb'"count"\s*:\s*(\d{1,9})')
_STUB = re.compile(r'def solve_\w*\(\):\n    """')


def _statement(prompt: str) -> str:
    """The prompt, or the docstring of the function stub that it is."""
    stub, text = _STUB.match(prompt), prompt.rstrip()
    is_stub = stub is not None and text.endswith('"""') and len(text) >= stub.end() + 3
    return text[stub.end() : -3].strip() if stub and is_stub else prompt.strip()


def problem_from(record: dict[str, Any], name: str, tally: Tally, drawn: frozenset[str]) -> Problem:
    """The problem in a record.

    Args:
        name: its position in the list.
        drawn: the positions that the paper sampled, see `drawn_by_the_paper`.

    Raises:
        ProblemError: it cannot be used.
    """
    prompt, cases = record.get("prompt"), record.get("test_cases")
    if not isinstance(prompt, str):
        raise ProblemError('"prompt" is not text')
    if not isinstance(cases, dict):
        raise ProblemError('"test_cases" is not a JSON object')
    statement = _statement(prompt)
    if not statement:
        raise DropRecord("no statement")
    inputs, outputs = cases.get("inputs") or [], cases.get("outputs") or []
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise DropRecord("inputs or outputs are not a list")
    identifier = f"{SOURCE}/{given_id(record, ('problem_id', 'id')) or name}"
    if inputs and all(_is_printed_list(text) for text in inputs):
        raise DropRecord("function arguments without a function name")
    difficulty = record.get("difficulty")
    return Problem(
        id=identifier,
        statement=statement,
        tests=stdin_tests(inputs, outputs, identifier, tally),
        difficulty=difficulty if isinstance(difficulty, str) else "",
        source=SOURCE,
        tags=(PAPER_TAG,) if name in drawn else (),
    )


def drawn_by_the_paper(path: Path) -> frozenset[str]:
    """The positions in a file of the prompts that the paper's evaluator sampled for its first model.

    Empty if the file is truncated: the sample depends on the number of prompts.
    """
    total = count_records(path)
    with open_unpacked(path) as file:
        counted = _COUNT.search(file.read(_HEAD_BYTES))
    if counted is not None and int(counted[1]) != total:
        return frozenset()
    return frozenset(map(str, random.Random(PAPER_SEED).sample(range(total), min(PAPER_PROMPTS, total))))


def _is_printed_list(text: Any) -> bool:
    tree = parse(text.strip()) if isinstance(text, str) and text.startswith("[") else None
    if tree is None or len(tree.body) != 1:
        return False
    statement = tree.body[0]
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.List)
