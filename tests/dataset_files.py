"""What the tests of importers share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from places import SHARED

from securecoderl_edge.problems.datasets.importing import Imported, import_problems
from securecoderl_edge.problems.problem import Problem

needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data next to this checkout")

MBPP_RECORD = {
    "task_id": 7,
    "text": "Add two numbers.",
    "code": "def add(a, b):\r\n    return a + b",
    "test_setup_code": "",
    "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"],
    "challenge_test_list": [],
}
HUMANEVAL_RECORD = {
    "task_id": "HumanEval/9",
    "prompt": 'def double(x: int) -> int:\n    """Twice x."""\n',
    "entry_point": "double",
    "canonical_solution": "    return 2 * x\n",
    "test": "METADATA = {}\n\ndef check(f):\n    assert f(1) == 2\n    assert f(0) == 0\n",
}

# A statement that is short in a compressed file.
LARGE = f"x = '{'x' * 600_000}'\n"
TOO_LARGE = {"the setup of its tests is too long for their number": 1}

GOOD = {
    "id": "good",
    "statement": "Say 1.",
    "tests": [{"input": "", "output": "1\n"}],
    "solutions": ["print(1)"],
}
BAD = {**GOOD, "id": "bad", "solutions": ["print(2)"]}
UNCHECKED = {**GOOD, "id": "unchecked", "solutions": []}


def write_lines(path: Path, records: Sequence[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), encoding="utf-8")
    return path


def filtered_tests(imported: Imported) -> dict[str, int]:
    return {reason: entry.count for reason, entry in imported.tally.filtered_tests.items()}


def consume(imported: Imported) -> tuple[list[Problem], dict[str, int], dict[str, int]]:
    problems = list(imported.problems)
    dropped = {reason: entry.count for reason, entry in imported.tally.dropped.items()}
    tests = {reason: entry.count for reason, entry in imported.tally.dropped_tests.items()}
    return problems, dropped, tests


def only_problem(source: Path, format: str = "auto") -> Problem:
    (problem,) = import_problems(source, format).problems
    return problem


def read_lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
