"""Our own JSONL: problems as `securecoderl_edge.problems` writes them.

Importing it checks and filters. Unlike `load_problems`, which refuses a file with a bad record, this counts
problems without tests and tests with a blank expected output, and goes on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from securecoderl_edge.datasets.tally import DropRecord, Tally
from securecoderl_edge.errors import SceError
from securecoderl_edge.problems import Problem, ProblemError, problem_from_record, read_jsonl


def read(path: Path, tally: Tally) -> Iterator[Problem]:
    """Yield the problems of a file; those that cannot be used are counted in ``tally``.

    Raises:
        SceError: a line is not JSON or breaks the format in another way.
    """
    for number, record in read_jsonl(path):
        where = f"{path.name}:{number}"
        try:
            yield problem_from_record(_usable(record, where, tally), max_tests=sys.maxsize)
        except DropRecord as reason:
            tally.drop(where, str(reason))
        except ProblemError as error:
            raise SceError(f"{path}:{number}: {error}") from None


def _usable(record: Any, where: str, tally: Tally) -> Any:
    """The record without tests that expect nothing; other faults are left to `problem_from_record`."""
    if not isinstance(record, dict):
        return record
    field = "assertions" if record.get("kind") == "call" else "tests"
    tests = record.get(field)
    if not tests:
        raise DropRecord("no tests")
    if not isinstance(tests, list) or field == "assertions":
        return record
    kept = [test for test in tests if not _expects_nothing(test)]
    for _ in range(len(tests) - len(kept)):
        tally.drop_test(where, "blank expected output")
    if not kept:
        raise DropRecord("no usable tests")
    return {**record, field: kept}


def _expects_nothing(test: Any) -> bool:
    return isinstance(test, dict) and isinstance(test.get("output"), str) and not test["output"].strip()
