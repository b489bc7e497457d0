"""Load problems by name: a built-in set, a file or folder in any format, a published benchmark.

Importers and built-in problems are thousands of lines, so they are imported only when needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.problem import MAX_TESTS, Problem, read_problems, with_few_tests

STARTER = "starter"
# File names of the published benchmarks, and the names that `sce data import` gives to the converted files.
BENCHMARKS = {
    "humaneval": ("HumanEval.jsonl.gz", "HumanEval.jsonl", "humaneval-problems.jsonl", "humaneval.jsonl"),
    "mbpp": ("mbpp.jsonl", "sanitized-mbpp.json", "mbpp-problems.jsonl"),
}

_HUB_IDS = {"humaneval": "openai/openai_humaneval", "mbpp": "google-research-datasets/mbpp --files 'full/test*'"}


def is_built_in(source: str) -> bool:
    """Whether ``source`` names a built-in problem set: ``starter`` or ``starter:SPLIT``."""
    return source == STARTER or source.startswith(f"{STARTER}:")


def load_problems(source: str, max_tests: int = MAX_TESTS) -> list[Problem]:
    """Load a built-in set (``starter:train``, ``starter:eval``, ...) or a JSONL file.

    Raises:
        UsageError: unknown built-in set.
        SceError: the file is missing, empty or not text, repeats an id, or a line breaks the format (the message has
            file and line).
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
        raise SceError(f"{path}: the file is empty; expected one problem per line")
    return problems


def _other_format(path: Path) -> str:
    """A hint how to convert a file that is not in our format; empty if its format is unknown."""
    from securecoderl_edge.problems.datasets.importing import detect_format

    try:
        format = detect_format(path)
    except SceError:
        return ""
    if format == "jsonl":
        return f". To drop unusable problems and tests, run: sce data import {path}"
    return f". The file looks like {format}; convert it with: sce data import {path}"


def open_problems(
    source: str, max_tests: int = MAX_TESTS, tell: Callable[[str], None] = lambda message: None
) -> list[Problem]:
    """The problems of a built-in set, or of a file or folder in any of the formats.

    Args:
        tell: called with a sentence about unusable records, if there are any.

    Raises:
        UsageError: unknown set, file or format.
        SceError: it has no usable problem, or a problem file in our format breaks that format.
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
        raise SceError(f"{source}: no usable {format} problem: {reasons}")
    if dropped:
        tell(f"{source}: {sum(entry.count for entry in dropped.values())} unusable records: {reasons}")
    return problems


def benchmark_problems(name: str, tell: Callable[[str], None] = lambda message: None) -> list[Problem]:
    """The test split of one of `BENCHMARKS`, with all tests.

    Raises:
        UsageError: its file is missing.
        SceError: the file has no problems of that split.
    """
    from securecoderl_edge.problems.datasets.mbpp import TEST_SPLIT

    path = find_benchmark(name)
    problems = [problem for problem in open_problems(str(path), sys.maxsize, tell) if problem.source == name]
    if name == "mbpp":
        problems = [problem for problem in problems if TEST_SPLIT in problem.tags]
    if not problems:
        raise SceError(f"{path}: no problems from the {name} test split")
    return problems


def find_benchmark(name: str) -> Path:
    """The file of one of `BENCHMARKS` in the current folder.

    Raises:
        UsageError: not found. Nothing is downloaded: the name of a benchmark is not a Hugging Face repo id.
    """
    for file in map(Path, BENCHMARKS[name]):
        if file.is_file():
            return file
    raise UsageError(
        f"no {name} file in this folder (looked for {', '.join(BENCHMARKS[name])}). Give one with --problems FILE, or "
        f"download it with: sce data import {_HUB_IDS[name]}"
    )
