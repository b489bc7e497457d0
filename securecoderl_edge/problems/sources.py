"""Load problems by name: a built-in set, a packaged benchmark, a file or folder in any format.

Importers and built-in problems are thousands of lines, so they are imported only when needed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems.problem import Problem, with_few_tests
from securecoderl_edge.problems.problem_file import MAX_TESTS, read_problems

STARTER = "starter"
# Files of a published benchmark in the current folder, which are used instead of the packaged one: the published names,
# and those that `sce data import` gives to the converted files.
BENCHMARKS = {
    "humaneval": ("HumanEval.jsonl.gz", "HumanEval.jsonl", "humaneval-problems.jsonl", "humaneval.jsonl"),
    "mbpp": ("mbpp.jsonl", "sanitized-mbpp.json", "mbpp-problems.jsonl"),
}
# The problems of MBPP for training and validation that are no near-duplicate of one of its test split or of HumanEval.
CLEAN = "clean"
# The splits of the benchmarks: the tag that their problems have, if it is not all of them.
_SPLITS: dict[str, dict[str, str | None]] = {
    "humaneval": {"test": None, "all": None},
    "mbpp": {**{name: f"mbpp-{name}" for name in ("test", "train", "validation", "prompt")}, "all": None, CLEAN: None},
}


def is_benchmark(source: str) -> bool:
    """Whether ``source`` names a packaged benchmark: ``humaneval``, ``mbpp`` or ``mbpp:SPLIT``."""
    return source.partition(":")[0] in BENCHMARKS


def is_built_in(source: str) -> bool:
    """Whether ``source`` names a set that needs no file: ``starter``, ``starter:SPLIT``, or a packaged benchmark."""
    return source.partition(":")[0] == STARTER or is_benchmark(source)


def built_in_sets() -> list[str]:
    """The names that `is_built_in` accepts, with every split."""
    from securecoderl_edge.problems.starter.splits import SPLITS

    splits = {STARTER: SPLITS, **_SPLITS}
    return [each for name, its in splits.items() for each in (name, *(f"{name}:{split}" for split in its))]


def is_for_evaluation(source: str) -> bool:
    """Whether ``source`` names benchmark problems that published results are measured with."""
    return is_benchmark(source) and source.partition(":")[2] in ("", "test", "all")


def check_exists(source: str) -> None:
    """Check, before anything slow begins, that ``source`` is a built-in set or an existing file or folder.

    Raises:
        UsageError: it is neither.
    """
    if not is_built_in(source) and not Path(source).exists():
        sets = f"{STARTER}[:SPLIT], humaneval, mbpp[:SPLIT]"
        raise UsageError(f"{source}: no such file, and not a built-in set ({sets})")


def load_problems(
    source: str,
    max_tests: int = MAX_TESTS,
    tell: Callable[[str], None] = lambda message: None,
    *,
    needs_tests: bool = True,
) -> list[Problem]:
    """Load a built-in set (``starter:train``, ``mbpp:train``, ...) or a JSONL file; ``tell`` as in `open_problems`.

    Args:
        needs_tests: whether a problem without tests is a fault.

    Raises:
        UsageError: unknown built-in set.
        SceError: the file is missing, empty or not text, repeats an id, or a line breaks the format (the message has
            file and line).
    """
    if is_built_in(source):
        name, _, split = source.partition(":")
        if name != STARTER:
            return [with_few_tests(problem, max_tests) for problem in benchmark_problems(name, split, tell)]
        from securecoderl_edge.problems.starter.splits import load_split

        return [with_few_tests(problem, max_tests) for problem in load_split(split or "train")]
    check_exists(source)
    path = Path(source)
    try:
        problems = [problem for _, problem in read_problems(path, max_tests, needs_tests)]
    except UsageError:
        raise
    except SceError as error:
        raise SceError(_with_hint(str(error), path)) from None
    if not problems:
        raise SceError(f"{path}: the file is empty; expected one problem per line")
    return problems


def _with_hint(faults: str, path: Path) -> str:
    """The faults of a file, one in a line, with a hint how to convert or filter it, if its format is known."""
    from securecoderl_edge.problems.datasets.importing import detect_format

    end = "\n" if "\n" in faults else ". "
    try:
        format = detect_format(path)
    except UsageError:
        return f"{faults}{end}For a file with examples, run: sce data new"
    except SceError:
        return faults
    if format == "jsonl":
        return f"{faults}{end}To drop unusable problems and tests, run: sce data import {path}"
    first = faults.splitlines()[0]
    return f"{first}. The file looks like {format}; convert it with: sce data import {path}"


def open_problems(
    source: str, max_tests: int = MAX_TESTS, tell: Callable[[str], None] = lambda message: None
) -> list[Problem]:
    """The problems of a built-in set, or of a file or folder in any of the formats.

    Args:
        tell: called with a sentence about unusable records, or about a file that replaces a packaged benchmark.

    Raises:
        UsageError: unknown set, file or format.
        SceError: it has no usable problem, or a problem file in our format breaks that format.
    """
    if is_built_in(source):
        return load_problems(source, max_tests, tell)
    from securecoderl_edge.problems.datasets.importing import detect_format, import_problems
    from securecoderl_edge.problems.datasets.record_files import form_of

    check_exists(source)
    path = Path(source)
    format = detect_format(path)
    if format == "jsonl" and not path.is_dir() and form_of(path) == "lines":
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


def benchmark_problems(name: str, split: str = "", tell: Callable[[str], None] = lambda message: None) -> list[Problem]:
    """One of `BENCHMARKS` with all tests.

    Args:
        split: by default the test split, of the file in the current folder if there is one. A split that is named
            always comes from the package.

    Raises:
        UsageError: unknown split.
        SceError: the file in the current folder has no problems of the test split.
    """
    from securecoderl_edge.problems.benchmarks.files import packaged_file

    splits = _SPLITS[name]
    if split and split not in splits:
        raise UsageError(f"unknown split {name}:{split}; choose from {', '.join(splits)}")
    if split == CLEAN:
        return _clean(name)
    own = None if split else next((file for file in map(Path, BENCHMARKS[name]) if file.is_file()), None)
    if own is not None:
        tell(f"{name}: reading {own} in this folder; {name}:test is the packaged file")
    path = own or packaged_file(name)
    every = [problem for problem in open_problems(str(path), sys.maxsize, tell) if problem.source == name]
    problems = _of_split(every, name, split or "test")
    if not problems:
        raise SceError(f"{path}: no problems from the {name} {split or 'test'} split")
    return problems


def _of_split(problems: list[Problem], name: str, split: str) -> list[Problem]:
    tag = _SPLITS[name][split]
    return [problem for problem in problems if tag is None or tag in problem.tags]


def _clean(name: str) -> list[Problem]:
    from securecoderl_edge.problems.near_duplicates import without_near_duplicates

    # Each file is read once, which takes most of the time of a plan.
    packaged = {each: benchmark_problems(each, "all") for each in BENCHMARKS}
    evaluated = [problem for each in BENCHMARKS for problem in _of_split(packaged[each], each, "test")]
    trained = [problem for split in ("train", "validation") for problem in _of_split(packaged[name], name, split)]
    return without_near_duplicates(trained, evaluated)
