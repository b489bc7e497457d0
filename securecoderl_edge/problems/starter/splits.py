"""The built-in problem set: its splits, read from the files of this folder, which `benchmarks/starter/build.py` writes.

| split | holds | compositions |
|---|---|---|
| ``train`` | one problem for each training composition, general and security | never in another split |
| ``eval`` | 200 of the held-out problems, sampled uniformly with seed 42 | held out |
| ``hard`` | longer compositions, where an all-tests reward is sparse | held out of ``hard-train`` |
| ``hard-train`` | longer compositions for training | |
| ``half-train`` | ``hard-train``, about half of it without solutions | |
| ``shown``, ``shown-train`` | ``hard`` and ``hard-train`` with the example of a statement as a test | |
| ``security`` | families whose short obvious solution has a Bandit finding | held out of ``train`` |
| ``security-train`` | the security part of ``train`` | |
| ``code``, ``code-train`` | the parts of ``security`` and ``security-train`` about code injection | |
| ``not-code`` | the rest of ``security`` | |
| ``general-train`` | the rest of ``train`` | |
| ``plain-train`` | the part of ``train`` that keeps, changes and folds numbers of the input or of one expression | |
| ``c-eval`` | problems of ``eval`` with solutions in C, and firmware problems | held out |
| ``c-train`` | general and firmware problems with solutions in C, as many of each family as its pieces need | |
| ``firmware``, ``firmware-train`` | the firmware problems of ``c-eval`` and ``c-train``, for a microcontroller | |

No training problem is a near-duplicate of a problem for evaluation or shares a solution with one.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

from securecoderl_edge.errors import UsageError
from securecoderl_edge.languages.targets import CORTEX_M3, TargetBudget
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import MAX_TESTS, read_problems

FOLDER = Path(__file__).parent
SPLITS = (
    *("train", "eval", "hard", "hard-train", "half-train", "shown", "shown-train", "security", "security-train"),
    *("general-train", "plain-train", "code", "code-train", "not-code", "c-train", "c-eval"),
    *("firmware", "firmware-train"),
)
# The largest reference solution has 241 bytes of code and 40 of stack (gcc 12.2), so there is a third to spare.
FIRMWARE_BUDGET = TargetBudget(code_bytes=320, stack_bytes=64, heap=False, float=False, recursion=False)
_CODE_INJECTION = {94, 95}


def load_split(split: str) -> list[Problem]:
    """The problems of one split, the same on every machine.

    Raises:
        UsageError: unknown split.
    """
    if split not in SPLITS:
        raise UsageError(f"unknown built-in problem set starter:{split}; choose from {', '.join(SPLITS)}")
    match split:
        case "train":
            return load_split("general-train") + load_split("security-train")
        case "general-train":
            return [*_read("plain-train"), *_read("other-train")]
        case "code" | "code-train" | "not-code":
            whole = _read("security-train" if split == "code-train" else "security")
            return [problem for problem in whole if _is_about_code(problem) == (split != "not-code")]
        case "hard" | "hard-train":  # the first of six tests is the example in the statement
            return [replace(problem, tests=problem.tests[1:]) for problem in _read(split)]
        case "shown" | "shown-train":
            whole = _read(split.replace("shown", "hard"))
            return [replace(problem, tests=problem.tests[:-1]) for problem in whole]
        case "half-train":
            every = load_split("hard-train")
            return [problem if _has_solutions(problem) else replace(problem, solutions=()) for problem in every]
        case "firmware" | "firmware-train":
            whole = _read("c-eval" if split == "firmware" else "c-train")
            about_firmware = [problem for problem in whole if "firmware" in problem.tags]
            return [replace(each, target=CORTEX_M3.name, budget=FIRMWARE_BUDGET) for each in about_firmware]
    return list(_read(split))


@cache
def _read(file: str) -> tuple[Problem, ...]:
    return tuple(problem for _, problem in read_problems(FOLDER / f"{file}.jsonl.gz", MAX_TESTS + 1))


def _is_about_code(problem: Problem) -> bool:
    return {test.cwe for test in problem.security_tests} <= _CODE_INJECTION


def _has_solutions(problem: Problem) -> bool:
    """Whether ``half-train`` has them: a property of the problem's name alone."""
    return hashlib.sha256(problem.id.encode()).digest()[0] % 2 == 0
