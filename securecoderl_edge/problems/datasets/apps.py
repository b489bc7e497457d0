"""APPS in its original folder layout: one folder per problem.

    train/0001/question.txt         the statement
    train/0001/input_output.json    {"inputs": [...], "outputs": [...], "fn_name"?: str}
    train/0001/solutions.json       [str, ...]       (may be missing)
    train/0001/starter_code.py                       (may be missing)
    train/0001/metadata.json        {"difficulty": str, ...}

Source: https://github.com/hendrycks/apps, also in CodeRL.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.problems.datasets.apps_fields import AppsFields, make_problem
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally
from securecoderl_edge.problems.problem import Problem

SOURCE = "apps"
_LARGEST = 1 << 26  # bytes of a file; the tests of one problem can have megabytes


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
    """Yield the problems below ``path``; unusable ones are counted in ``tally``."""
    for folder in problem_folders(path.resolve()):
        identifier = f"{SOURCE}/{folder.parent.name}/{folder.name}"
        try:
            yield _problem(folder, identifier, tally)
        except DropRecord as reason:
            tally.drop(identifier, reason)


def _is_problem(folder: Path) -> bool:
    return (folder / "question.txt").is_file() or (folder / "input_output.json").is_file()


def _problem(folder: Path, identifier: str, tally: Tally) -> Problem:
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
    fields = AppsFields(
        id=identifier,
        source=SOURCE,
        statement=statement,
        inputs=examples.get("inputs"),
        outputs=examples.get("outputs"),
        function=examples.get("fn_name"),
        solutions=_json(folder / "solutions.json"),
        starter_code=_text(folder / "starter_code.py"),
        difficulty=metadata.get("difficulty") if isinstance(metadata, dict) else None,
    )
    return make_problem(fields, tally)


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
    text = _text(file)
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # ValueError: also a number beyond Python's limit of digits
        raise DropRecord(f"{file.name} is not valid JSON") from None
