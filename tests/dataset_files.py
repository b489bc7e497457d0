"""What the tests of importers share."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from securecoderl_edge.problems.datasets.importing import Imported, import_problems
from securecoderl_edge.problems.problem import Problem

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/data beside this checkout")


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
