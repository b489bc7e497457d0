"""CodeContests and files made like it: one competitive problem a record.

    name, description, difficulty (a number), cf_tags, time_limit {"seconds", "nanos"},
    public_tests, private_tests, generated_tests: {"input": [...], "output": [...]}, or lists of {"input", "output"},
    solutions: {"language": [...], "solution": [...]}

Of the solutions those in Python 3 are kept. Source: Li et al., "Competition-level code generation with AlphaCode"
(2022), https://github.com/google-deepmind/code_contests
"""

from __future__ import annotations

from typing import Any

from securecoderl_edge.problems.datasets.stdin_tests import stdin_tests
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import ProblemError, text

SOURCE = "code-contests"
TESTS = ("public_tests", "private_tests", "generated_tests")

_PYTHON_3 = (3, "3", "PYTHON3", "python3")
# Numbers from 7 are the letters of Codeforces: 7 is A.
_DIFFICULTIES = {1: "easy", 2: "medium", 3: "hard", 4: "harder", 5: "hardest", 6: "external"}
_FIRST_LETTER = 7


def problem_from(record: dict[str, Any], _name: str, tally: Tally) -> Problem:
    """The problem in a record; tests in the order public, private, generated.

    Raises:
        ProblemError: it cannot be used.
    """
    if not text(record, "name") or not any(name in record for name in TESTS):
        raise ProblemError(f'"name" or any of {", ".join(TESTS)} is missing')
    identifier = f"{SOURCE}/{text(record, 'name')}"
    statement = text(record, "description").strip()
    if not statement:
        raise DropRecord("no statement")
    if text(record, "input_file") or text(record, "output_file"):
        raise DropRecord("reads or writes files, not standard input and output")
    inputs, outputs = [], []
    for name in TESTS:
        own_inputs, own_outputs = _tests(record.get(name))
        inputs += own_inputs
        outputs += own_outputs
    return Problem(
        id=identifier,
        statement=statement,
        tests=stdin_tests(inputs, outputs, identifier, tally),
        solutions=_python_solutions(record.get("solutions")),
        difficulty=_difficulty(record.get("difficulty")),
        source=SOURCE,
        tags=_texts_of(record.get("cf_tags")),
        time_limit_s=seconds_of(record.get("time_limit")),
    )


def _tests(value: Any) -> tuple[list[Any], list[Any]]:
    if isinstance(value, list) and all(isinstance(test, dict) for test in value):
        return [test.get("input") for test in value], [test.get("output") for test in value]
    if isinstance(value, dict):
        inputs, outputs = value.get("input") or [], value.get("output") or []
        if isinstance(inputs, list) and isinstance(outputs, list):
            return inputs, outputs
    if value is None:
        return [], []
    raise DropRecord("inputs or outputs are not a list")


def _python_solutions(value: Any) -> tuple[str, ...]:
    if isinstance(value, dict):
        languages, programs = value.get("language") or [], value.get("solution") or []
        if not isinstance(languages, list) or not isinstance(programs, list):
            return ()
        pairs = list(zip(languages, programs, strict=False))
    elif isinstance(value, list):
        pairs = [(entry.get("language"), entry.get("solution")) for entry in value if isinstance(entry, dict)]
    else:
        return ()
    kept = (program for language, program in pairs if language in _PYTHON_3 and isinstance(program, str))
    return tuple(dict.fromkeys(program.replace("\r\n", "\n") for program in kept if program.strip()))


def _texts_of(value: Any) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str) and each) if isinstance(value, list) else ()


def _difficulty(value: Any) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, int) or isinstance(value, bool):
        return ""
    letter = value - _FIRST_LETTER
    return chr(ord("A") + letter) if 0 <= letter < 26 else _DIFFICULTIES.get(value, "")


def seconds_of(value: Any) -> float | None:
    """The time in an object with seconds and nanos, if it is one."""
    if not isinstance(value, dict):
        return None
    seconds, nanos = value.get("seconds") or 0, value.get("nanos") or 0
    for part, most in ((seconds, 3600), (nanos, 1e9)):
        if isinstance(part, bool) or not isinstance(part, (int, float)) or not 0 <= part < most:
            return None
    return seconds + nanos / 1e9 or None
