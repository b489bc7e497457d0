"""APPS in its original folder layout: one folder a problem.

    train/0001/question.txt         the statement
    train/0001/input_output.json    {"inputs": [...], "outputs": [...], "fn_name"?: str}
    train/0001/solutions.json       [str, ...]       (may be missing)
    train/0001/starter_code.py                       (may be missing)
    train/0001/metadata.json        {"difficulty": str, ...}

Problems with ``fn_name`` are function-call problems. Inputs and outputs of the others are texts, lists of
lines, or either of them wrapped in one more list. Source: https://github.com/hendrycks/apps, also in CodeRL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from securecoderl_edge.datasets.calls import call_assertion, expected_values, restore_integer_keys
from securecoderl_edge.datasets.python_source import add_missing_imports, signature
from securecoderl_edge.datasets.tally import DropRecord, Tally
from securecoderl_edge.errors import SceError
from securecoderl_edge.problems import Problem, Test

SOURCE = "apps"


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
    """Yield the problems below ``path``; those that cannot be used are counted in ``tally``."""
    for folder in problem_folders(path.resolve()):
        identifier = f"{SOURCE}/{folder.parent.name}/{folder.name}"
        try:
            yield _problem(folder, identifier, tally)
        except DropRecord as reason:
            tally.drop(identifier, str(reason))


def _is_problem(folder: Path) -> bool:
    return (folder / "question.txt").is_file() or (folder / "input_output.json").is_file()


def _problem(folder: Path, identifier: str, tally: Tally) -> Problem:
    statement = _text(folder / "question.txt").strip()
    if not statement:
        raise DropRecord("no statement")
    examples = _json(folder / "input_output.json") or {}
    if not isinstance(examples, dict):
        raise DropRecord("input_output.json holds no object")
    inputs, outputs = examples.get("inputs") or [], examples.get("outputs") or []
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise DropRecord("inputs or outputs are no list")
    if not inputs or not outputs:
        raise DropRecord("no tests")
    if len(inputs) != len(outputs):
        raise DropRecord("unequal numbers of inputs and outputs")
    name = examples.get("fn_name")
    solutions = _solutions(folder)
    starter_code = _text(folder / "starter_code.py").rstrip()
    metadata = _json(folder / "metadata.json")
    difficulty = metadata.get("difficulty") if isinstance(metadata, dict) else None
    common: dict[str, Any] = {
        "id": identifier,
        "source": SOURCE,
        "difficulty": difficulty if isinstance(difficulty, str) else "",
    }
    if name is None:
        tests = _stdin_tests(inputs, outputs, identifier, tally)
        return Problem(statement=statement, tests=tests, starter_code=starter_code, solutions=solutions, **common)
    if not isinstance(name, str) or not name.isidentifier():
        raise DropRecord("fn_name is no function name")
    definition = starter_code or (solutions[0] if solutions else "")
    header = signature(definition, name)
    return Problem(
        statement=f"{statement}\n\n{_task(name, header, definition)}",
        kind="call",
        entry_point=name,
        assertions=_assertions(name, definition, inputs, outputs, identifier, tally),
        starter_code=add_missing_imports(starter_code),
        solutions=tuple(add_missing_imports(solution) for solution in solutions),
        **common,
    )


def _stdin_tests(inputs: list[Any], outputs: list[Any], identifier: str, tally: Tally) -> tuple[Test, ...]:
    tests = []
    for given, expected in zip(inputs, outputs, strict=True):
        try:
            test = Test(_lines(given), _lines(expected))
        except TypeError:
            tally.drop_test(identifier, "input or output is no text")
            continue
        if test.output.strip():
            tests.append(test)
        else:
            tally.drop_test(identifier, "blank expected output")
    if not tests:
        raise DropRecord("no usable tests")
    return tuple(tests)


def _lines(value: Any) -> str:
    """The text of a test: a string as it is, a number printed, a list one line an item.

    Raises:
        TypeError: there is something else in it.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return str(value)
    if not isinstance(value, list):
        raise TypeError(type(value).__name__)
    if len(value) == 1:
        return _lines(value[0])
    return "".join(f"{_lines(item).rstrip()}\n" for item in value)


def _assertions(
    name: str, definition: str, inputs: list[Any], outputs: list[Any], identifier: str, tally: Tally
) -> tuple[str, ...]:
    # The sandbox gives a method of ``class Solution`` the name of the function, so one form serves both.
    assertions = []
    for arguments, expected in zip(inputs, expected_values(outputs, definition, name), strict=True):
        if not isinstance(arguments, list):
            tally.drop_test(identifier, "arguments are no list")
            continue
        try:
            assertions.append(call_assertion(name, restore_integer_keys(arguments), restore_integer_keys(expected)))
        except ValueError:
            tally.drop_test(identifier, "value has no literal")
    if not assertions:
        raise DropRecord("no usable tests")
    return tuple(assertions)


def _is_method(definition: str) -> bool:
    return "class Solution" in definition


def _task(name: str, header: str | None, definition: str) -> str:
    if _is_method(definition):
        return f"Write the class `Solution` with the method `{header or name}`."
    return f"Write the function `{header or name}`."


def _solutions(folder: Path) -> tuple[str, ...]:
    solutions = _json(folder / "solutions.json")
    if not isinstance(solutions, list):
        return ()
    texts = (solution.replace("\r\n", "\n") for solution in solutions if isinstance(solution, str))
    return tuple(dict.fromkeys(text for text in texts if text.strip()))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError:
        raise DropRecord(f"{file.name} is not UTF-8 text") from None
    except OSError as error:
        raise SceError(f"{file}: {error.strerror}") from None


def _json(file: Path) -> Any:
    text = _text(file)
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # ValueError: also a number beyond Python's limit of digits
        raise DropRecord(f"{file.name} is not valid JSON") from None
