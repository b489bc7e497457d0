"""Problems by the name that a user gives: a built-in set, a file or folder in any format, a published benchmark.

Importers and built-in problems are thousands of lines: they are imported where they are asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.problem import MAX_TESTS, Problem, read_problems, with_few_tests

STARTER = "starter"
# Files that the published benchmarks come in, as they are called where they are published, and as `sce data import`
# calls what it makes of them.
BENCHMARKS = {
    "humaneval": ("HumanEval.jsonl.gz", "HumanEval.jsonl", "humaneval-problems.jsonl", "humaneval.jsonl"),
    "mbpp": ("mbpp.jsonl", "sanitized-mbpp.json", "mbpp-problems.jsonl"),
}

_HUB_IDS = {"humaneval": "openai/openai_humaneval", "mbpp": "google-research-datasets/mbpp --files 'full/test*'"}


def is_built_in(source: str) -> bool:
    """Whether problems are named as a set of the package: ``starter`` or ``starter:SPLIT``."""
    return source == STARTER or source.startswith(f"{STARTER}:")


def load_problems(source: str, max_tests: int = MAX_TESTS) -> list[Problem]:
    """Load a built-in set (``starter:train``, ``starter:eval``, ...) or a JSONL file.

    Raises:
        UsageError: no such built-in set.
        SceError: the file is missing, is no text, is empty, repeats an id, or a line breaks the format (the
            message has file and line).
    """
    if is_built_in(source):
        from securecoderl_edge.problems.starter.splits import load_split

        return [with_few_tests(problem, max_tests) for problem in load_split(source.partition(":")[2] or "train")]
    path = Path(source)
    try:
        problems = [problem for _, problem in read_problems(path, max_tests)]
    except UsageError:
        raise
    except SceError as error:
        raise SceError(f"{error}{_other_format(path)}") from None
    if not problems:
        raise SceError(f"{path}: the file holds no problems")
    return problems


def _other_format(path: Path) -> str:
    """What else a file that does not hold our problems may be, and what to do then; empty if nobody knows."""
    from securecoderl_edge.problems.datasets.importing import detect_format

    try:
        format = detect_format(path)
    except SceError:
        return ""
    if format == "jsonl":
        return f"; a file without what cannot be used is made by: sce data import {path}"
    return f"; it looks like {format}: make problems of it with: sce data import {path}"


def open_problems(
    source: str, max_tests: int = MAX_TESTS, tell: Callable[[str], None] = lambda message: None
) -> list[Problem]:
    """The problems of a built-in set, or of a file or folder in any of the formats.

    Args:
        tell: called with a sentence about records that cannot be used, if there are any.

    Raises:
        UsageError: no such set or file, or a format that is not recognized.
        SceError: it holds no problem that can be used; a problem file of ours breaks the format.
    """
    if is_built_in(source):
        return load_problems(source, max_tests)
    from securecoderl_edge.problems.datasets.importing import detect_format, import_problems
    from securecoderl_edge.problems.datasets.records import form_of

    path = Path(source)
    format = detect_format(path)
    if format == "jsonl" and form_of(path) == "lines":
        return load_problems(source, max_tests)
    imported = import_problems(path, format, max_tests=max_tests)
    problems = list(imported.problems)
    dropped = imported.tally.dropped
    reasons = "; ".join(f"{entry.count} {reason} (first: {entry.first})" for reason, entry in dropped.items())
    if not problems:
        raise SceError(f"{source}: holds no {format} problem that can be used: {reasons}")
    if dropped:
        tell(f"{source}: {sum(entry.count for entry in dropped.values())} records cannot be used: {reasons}")
    return problems


def benchmark_problems(name: str, tell: Callable[[str], None] = lambda message: None) -> list[Problem]:
    """All problems of one of `BENCHMARKS` that published results are measured on, with all of their tests.

    Raises:
        UsageError: its file is not here.
        SceError: it holds no such problem.
    """
    from securecoderl_edge.problems.datasets.mbpp import TEST_SPLIT

    path = find_benchmark(name)
    problems = [problem for problem in open_problems(str(path), sys.maxsize, tell) if problem.source == name]
    if name == "mbpp":
        problems = [problem for problem in problems if TEST_SPLIT in problem.tags]
    if not problems:
        raise SceError(f"{path}: holds no problem of {name} that published results are measured on")
    return problems


def find_benchmark(name: str) -> Path:
    """The file of one of `BENCHMARKS` in the current folder.

    Raises:
        UsageError: there is none. Nothing is downloaded: the name of a benchmark is no hub id.
    """
    for file in map(Path, BENCHMARKS[name]):
        if file.is_file():
            return file
    raise UsageError(
        f"no file of {name} here (looked for {', '.join(BENCHMARKS[name])}); name one with --problems FILE, or get it "
        f"with: sce data import {_HUB_IDS[name]}"
    )
