"""Our own JSONL: problems as `problem_file` writes them.

The import checks and filters. Unlike `load_problems`, which rejects a file with a bad record, it drops and counts
unusable problems and tests.
"""

from __future__ import annotations

import sys
from typing import Any

from securecoderl_edge.languages.python_source import fault_of_assertion
from securecoderl_edge.problems.datasets.stdin_tests import fault_of
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally, usable_tests
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.problem_file import ProblemError, problem_from_record, refuse_misspelled


def problem_from(record: dict[str, Any], name: str, tally: Tally) -> Problem:
    """The problem in a record, with all of its usable tests.

    Raises:
        ProblemError: it cannot be used.
    """
    for field in ("id", "statement"):
        if field not in record:
            refuse_misspelled(record)
            raise ProblemError(f'"{field}" is missing')
    where = record["id"] if isinstance(record.get("id"), str) else f"record {name}"
    return problem_from_record(_usable(record, where, tally), max_tests=sys.maxsize)


def _usable(record: dict[str, Any], where: str, tally: Tally) -> dict[str, Any]:
    """The record without unusable tests; `problem_from_record` checks the other fields."""
    field = "assertions" if record.get("kind") == "call" else "tests"
    tests = record.get(field)
    if not tests:
        refuse_misspelled(record)
        raise DropRecord("no tests")
    if not isinstance(tests, list):
        return record
    if field == "assertions":
        if not all(isinstance(test, str) for test in tests):
            return record
        record = {**record, **_usable_security_tests(record, where, tally)}
        return {**record, field: usable_tests(tests, fault_of_assertion, where, tally)}
    return {**record, field: usable_tests(tests, _fault, where, tally)}


def _usable_security_tests(record: dict[str, Any], where: str, tally: Tally) -> dict[str, Any]:
    """Those of a call problem that can fail."""
    kept, tests = [], record.get("security_tests") or []
    if not isinstance(tests, list):
        return {}
    for test in tests:
        assertion = test.get("assertion") if isinstance(test, dict) else None
        fault = fault_of_assertion(assertion) if isinstance(assertion, str) else None
        if fault is None:
            kept.append(test)
        else:
            tally.drop_test(where, fault)
    return {"security_tests": kept}


def _fault(test: Any) -> str | None:
    if not isinstance(test, dict) or not all(isinstance(test.get(name), str) for name in ("input", "output")):
        return "input or output is not text"
    return fault_of(Test(test["input"], test["output"]))
