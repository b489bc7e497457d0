"""APPS as folders, APPS as the JSONL of the hub, and APPS+, which share their fields and irregularities.

    train/0001/question.txt         the statement
    train/0001/input_output.json    {"inputs": [...], "outputs": [...], "fn_name"?: str}
    train/0001/solutions.json       [str, ...]       (may be missing)
    train/0001/starter_code.py                       (may be missing)
    train/0001/metadata.json        {"difficulty": str, ...}

The hub's ``codeparrot/apps`` is JSONL whose ``input_output`` and ``solutions`` are JSON texts inside the record.
APPS+ (StepCoder) is ``data.json``: an array of records, or an object of them by name; copies of it use other keys for
the same things. Problems with a function name are call problems, the others read and print.

Sources: https://github.com/hendrycks/apps, also in CodeRL; https://github.com/Ablustrund/APPS_Plus
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.python_source import (
    add_missing_imports,
    is_function_name,
    only_function,
    parse,
    signature,
)
from securecoderl_edge.problems.datasets.calls import call_assertion, restore_integer_keys
from securecoderl_edge.problems.datasets.record_files import first_of, given_id
from securecoderl_edge.problems.datasets.stdin_tests import are_arguments, check_pairs, stdin_tests
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import ProblemError
from securecoderl_edge.system.rows import excess

SOURCE = "apps"
_LARGEST = 1 << 26  # bytes of a file; the tests of one problem can have megabytes
# The names in use, of which the first is that of APPS.
_STATEMENT = ("question", "prompt", "description")
_INPUTS, _OUTPUTS = ("inputs", "input"), ("outputs", "output")
_SOLUTIONS = ("solutions", "canonical_solution", "solution", "gold_standard_solution")
_IDS = ("name", "problem_id", "id", "task_id", "question_id")
_FENCED = re.compile(r"\A\s*```(?:python|py)?[ \t]*\n(.*?)```\s*\Z", re.DOTALL)


def problem_folders(path: Path) -> Iterator[Path]:
    """Folders of single problems at ``path``: the root, a split, or one problem; in name order."""
    if _is_problem(path):
        yield path
        return
    try:
        children = sorted(child for child in path.iterdir() if child.is_dir())
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None
    for child in children:
        if _is_problem(child):
            yield child
        else:
            yield from sorted(grandchild for grandchild in child.iterdir() if _is_problem(grandchild))


def read(path: Path, tally: Tally) -> Iterator[Problem]:
    """Yield the problems in the folders below ``path``; unusable ones are counted in ``tally``."""
    for folder in problem_folders(path.resolve()):
        name = f"{folder.parent.name}/{folder.name}"
        try:
            yield problem_from(_record(folder), name, tally)
        except DropRecord as reason:
            tally.drop(f"{SOURCE}/{name}", reason)


def looks_like_one(record: dict[str, Any]) -> bool:
    """Whether a record has a statement and tests under any of the names in use."""
    has_tests = "input_output" in record or (_has(record, _INPUTS) and _has(record, _OUTPUTS))
    return _has(record, _STATEMENT) and has_tests


def problem_from(record: dict[str, Any], name: str, tally: Tally, source: str = SOURCE) -> Problem:
    """The problem in a record; unusable tests and solutions are counted in ``tally``.

    Args:
        name: the name of the record in the file, in case it has no id.
        source: ``apps`` or ``apps-plus``, also the first part of the id.

    Raises:
        ProblemError: it cannot be used.
    """
    if not looks_like_one(record) and not _has(record, (*_INPUTS, *_OUTPUTS)):
        raise ProblemError("no known key for the statement or for the tests")
    statement = first_of(record, _STATEMENT) or ""
    if not isinstance(statement, str):
        raise DropRecord("statement is not text")
    examples = record
    if "input_output" in record:
        examples = decoded(record["input_output"], "input_output") or {}
        if not isinstance(examples, dict):
            raise DropRecord("input_output is not a JSON object")
    identifier = f"{source}/{given_id(record, _IDS) or name}"
    solutions = _solutions(first_of(record, _SOLUTIONS), identifier, tally)
    inputs, outputs = (decoded(first_of(examples, names), names[0]) or [] for names in (_INPUTS, _OUTPUTS))
    if not statement.strip():
        raise DropRecord("no statement")
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise DropRecord("inputs or outputs are not a list")
    starter_code, difficulty = (
        each if isinstance(each, str) else "" for each in (record.get("starter_code"), record.get("difficulty"))
    )
    problem = Problem(
        id=identifier,
        statement=statement.strip(),
        starter_code=starter_code.rstrip(),
        solutions=solutions,
        difficulty=difficulty,
        source=source,
    )
    function = examples.get("fn_name", record.get("fn_name"))
    if isinstance(function, str) and not function.strip():
        function = None
    if function is None and any(map(are_arguments, inputs)):
        function = only_function(problem.starter_code)
        if function is None:
            raise DropRecord("function arguments without a function name")
    if function is None:
        return replace(problem, tests=stdin_tests(inputs, outputs, identifier, tally))
    check_pairs(inputs, outputs)
    if not isinstance(function, str) or not is_function_name(function):
        raise DropRecord("fn_name is not a function name")
    return _call_problem(problem, function, inputs, outputs, tally)


def _call_problem(problem: Problem, function: str, inputs: list[Any], outputs: list[Any], tally: Tally) -> Problem:
    definition = problem.starter_code or next(iter(problem.solutions), "")
    header = signature(definition, function) or function
    task = f"function `{header}`"
    if "class Solution" in definition:
        task = f"class `Solution` with the method `{header}`"
    # The sandbox gives a method of ``class Solution`` the name of the function, so one form serves both.
    assertions = []
    for arguments, expected in zip(inputs, outputs, strict=True):
        if not isinstance(arguments, list):
            tally.drop_test(problem.id, "arguments are not a list")
            continue
        try:
            assertions.append(call_assertion(function, restore_integer_keys(arguments), restore_integer_keys(expected)))
        except ValueError:
            tally.drop_test(problem.id, "value without a Python literal")
    if not assertions:
        raise DropRecord("no usable tests")
    return replace(
        problem,
        statement=f"{problem.statement}\n\nWrite the {task}.",
        kind="call",
        entry_point=function,
        assertions=tuple(assertions),
        starter_code=add_missing_imports(problem.starter_code),
        solutions=tuple(map(add_missing_imports, problem.solutions)),
    )


def _solutions(value: Any, identifier: str, tally: Tally) -> tuple[str, ...]:
    solutions = decoded(value, "solutions", or_text=True)
    if isinstance(solutions, str):
        if solutions.lstrip().startswith("[") and parse(solutions) is None:
            tally.drop_solution(identifier, "solutions are not valid JSON")
            return ()
        solutions = [solutions]
    if solutions is None:
        return ()
    if not isinstance(solutions, list):
        tally.drop_solution(identifier, "solutions are not a list")
        return ()
    for _ in range(sum(not isinstance(solution, str) for solution in solutions)):
        tally.drop_solution(identifier, "solution is not text")
    texts = (_FENCED.sub(r"\1", each.replace("\r\n", "\n")) for each in solutions if isinstance(each, str))
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def decoded(value: Any, name: str, *, or_text: bool = False) -> Any:
    """Decode a list or object that may be JSON text; with ``or_text`` other text is returned unchanged."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    if reason := excess(value.encode("utf-8", "surrogatepass")):  # a text in a text may have been compressed
        raise DropRecord(f"{name} has {reason}")
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        if or_text:
            return value
        fault = "has a number with too many digits" if type(error) is ValueError else "is not valid JSON"
        raise DropRecord(f"{name} {fault}") from None


def _has(record: dict[str, Any], names: tuple[str, ...]) -> bool:
    return any(name in record for name in names)


def _is_problem(folder: Path) -> bool:
    return (folder / "question.txt").is_file() or (folder / "input_output.json").is_file()


def _record(folder: Path) -> dict[str, Any]:
    """The record in the folder of a problem."""
    statement = _text(folder / "question.txt")
    if not statement.strip():
        raise DropRecord("no statement")
    examples = _json(folder / "input_output.json") or {}
    if not isinstance(examples, dict):
        raise DropRecord("input_output.json is not a JSON object")
    try:
        metadata = _json(folder / "metadata.json")
    except DropRecord:
        metadata = None  # it only contains the difficulty
    return {
        "question": statement,
        "input_output": examples,
        "solutions": _json(folder / "solutions.json"),
        "starter_code": _text(folder / "starter_code.py"),
        "difficulty": metadata.get("difficulty") if isinstance(metadata, dict) else None,
    }


def _text(file: Path) -> str:
    if not (file.exists() or file.is_symlink()):
        return ""
    if file.is_symlink() or not file.is_file():  # a link can lead out of the folder, a device never ends
        raise DropRecord(f"{file.name} is not a regular file")
    try:
        if file.stat().st_size > _LARGEST:
            raise DropRecord(f"{file.name} is too large")
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DropRecord(f"{file.name} is not UTF-8 text") from None
    except OSError as error:
        raise SceError(f"{file}: {error.strerror}") from None


def _json(file: Path) -> Any:
    return decoded(_text(file), file.name)
