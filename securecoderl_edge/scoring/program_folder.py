"""A folder of programs to score: on the tests next to them, by their names, or on the problems of a file.

The tests of ``double.py`` are ``double.in`` and ``double.out``, or ``double.1.in`` and ``double.1.out``,
``double.2.in`` and so on; an output without an input belongs to an empty one. Or they are a Python test file,
``test_double.py``. With problems, ``mbpp/11.py`` is a program for the problem ``mbpp/11``, and ``mbpp/11.2.py`` its
sample 2.

An input without an output, tests of both kinds, and links to elsewhere are errors: nothing would tell that they were
left out, and a program could print what they lead to. An input and its output without a program are a missing one.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from securecoderl_edge.errors import SceError, UsageError, not_utf8
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.test_file import read_test_file
from securecoderl_edge.sandbox.source_files import (
    ELSEWHERE,
    IRREGULAR,
    LEFT_OUT_FOLDERS,
    Selection,
    SourceFile,
    find_sources,
    kinds_in_words,
    read_source,
)
from securecoderl_edge.scoring.scorer import Submission
from securecoderl_edge.text import on_one_line

_SAMPLE = re.compile(r"(.+)\.(\d{1,9})")
# Of the program with a stem, its files with a suffix, each with its number; 0 for one without.
_Cases = dict[tuple[str, str], list[tuple[int, Path]]]


def programs_in(
    folder: Path, problems: Mapping[str, Problem] | None
) -> tuple[dict[str, Submission], Counter[str], list[str]]:
    """What a folder holds, and what is missing in it.

    Returns:
        A submission for each program, by path, with a key each; numbers of other files, by kind; and the names of
        problems, or of inputs with outputs, that have no program.

    Args:
        problems: by id; None: each program has its own tests.

    Raises:
        UsageError: there are no programs, or one has no problem, no tests or such that are not complete; or is no
            file of this folder.
        SceError: a file cannot be read, or its tests are none.
    """
    found: dict[str, Submission] = {}
    cases: dict[Path, _Cases] = {}
    used: set[Path] = set()
    files = find_sources([str(folder)], Selection())
    for kind in (ELSEWHERE, IRREGULAR):
        if number := files.left_out[kind]:
            counted = kinds_in_words(Counter({kind: number}))
            raise UsageError(f"{folder}: {counted}, which sce does not run. Put programs there.")
    for file in files.files:
        path = Path(file.path)
        is_tests = path.suffix == PYTHON.suffix and path.name.startswith("test_")
        if problems is None and is_tests and path.with_name(path.name[5:]).is_file():
            continue
        name = os.path.relpath(os.path.splitext(file.path)[0], folder)
        if problems is None:
            if path.parent not in cases:
                cases[path.parent] = _cases_in(path.parent)
            inputs, outputs = (_of_program(path, suffix, cases[path.parent], folder) for suffix in (".in", ".out"))
            problem, sample = _with_its_tests(path, name, file, inputs, outputs), 0
            used |= {each.with_suffix("") for each in inputs}
            files.left_out.subtract(each.suffix for each in (*inputs, *outputs))
        else:
            problem, sample = _among(problems, name, path)
        if problem.language != file.language.name:
            raise UsageError(f"{path}: the problem {problem.id!r} is in {problem.language}")
        found[file.name] = Submission(problem, _text(file), sample)
    if not found:
        raise UsageError(f"{folder}: no programs in Python or C")
    keys: dict[tuple[str, int], str] = {}
    for path_name, submission in found.items():
        if submission.key in keys:
            raise UsageError(f"{path_name}: {keys[submission.key]} is the same sample of {submission.problem.id!r}")
        keys[submission.key] = path_name
    if problems is not None:
        missing = problems.keys() - {each.problem.id for each in found.values()}
    else:
        without = (os.path.relpath(each, folder) for each in _pairs(folder) - used)
        missing = {match[1] if (match := _SAMPLE.fullmatch(each)) else each for each in without}
    return found, +files.left_out, sorted(missing)


def _pairs(folder: Path) -> set[Path]:
    """The tests in a folder that have an input and an output, without their suffix."""
    found = set()
    for place, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not any(fnmatchcase(each, kind) for kind in LEFT_OUT_FOLDERS)]
        for name in names:
            stem, suffix = os.path.splitext(name)
            if suffix == ".in" and f"{stem}.out" in names:
                found.add(Path(place, stem))
    return found


def _with_its_tests(path: Path, name: str, file: SourceFile, inputs: list[Path], outputs: list[Path]) -> Problem:
    test_file = path.with_name(f"test_{path.stem}.py")
    for each in inputs:
        if each.with_suffix(".out") not in outputs:
            raise UsageError(f"{each}: an input without an output. Expected {each.with_suffix('.out').name}.")
    if test_file.is_file() and outputs:
        raise UsageError(f"{path}: its tests are {test_file.name} and {outputs[0].name}. Keep one of the kinds.")
    if test_file.is_file():
        of_file = read_test_file(test_file, path)
        return Problem(name, "", kind="call", assertions=of_file.tests, test_file=of_file)
    if not outputs:
        if path.name.startswith("test_") and path.suffix == PYTHON.suffix:
            raise UsageError(f"{path}: the tests of {path.name[5:]}, which is missing (or a program without tests)")
        raise UsageError(
            f"{path}: no tests. Expected {path.stem}.in and {path.stem}.out, or {test_file.name}, or --problems FILE."
        )
    texts = {each: _text(SourceFile(str(each), file.language)) for each in (*inputs, *outputs)}
    tests = tuple(Test(texts.get(each.with_suffix(".in"), ""), texts[each]) for each in outputs)
    for each, test in zip(outputs, tests, strict=True):
        if not test.output.strip():
            raise SceError(f"{each}: empty, so a program that prints nothing would pass")
    return Problem(name, "", tests=tests, language=file.language.name)


def _cases_in(folder: Path) -> _Cases:
    """The inputs and outputs in a folder; ``a.1.in`` is the first of ``a``, and that of ``a.1`` without a number."""
    cases: _Cases = defaultdict(list)
    for each in folder.iterdir():
        if each.suffix in (".in", ".out"):
            cases[each.stem, each.suffix].append((0, each))
            if match := _SAMPLE.fullmatch(each.stem):
                cases[match[1], each.suffix].append((int(match[2]), each))
    return cases


def _of_program(program: Path, suffix: str, cases: _Cases, folder: Path) -> list[Path]:
    """The inputs or outputs of a program, in the order of their numbers.

    Raises:
        UsageError: one is no file of the folder.
    """
    found = [path for _, path in sorted(cases.get((program.stem, suffix), ()))]
    for each in found:
        if not each.is_file() or not each.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{each}: not a regular file of {folder}. Put it there, or remove it.")
    return found


def _among(problems: Mapping[str, Problem], name: str, path: Path) -> tuple[Problem, int]:
    match = _SAMPLE.fullmatch(name)
    for known, sample in ((name, 0), *([(match[1], int(match[2]))] if match else [])):
        if known in problems:
            return problems[known], sample
    raise UsageError(f"{path}: no problem {on_one_line(name)!r} in --problems")


def _text(file: SourceFile) -> str:
    try:
        return read_source(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(file.name, error) from None
    except SceError as error:
        raise SceError(f"{file.name}: {error}") from None
