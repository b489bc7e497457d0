"""APPS+ and the hub's copy of APPS: one file of records, read one at a time whatever its size.

APPS+ (StepCoder, https://github.com/Ablustrund/APPS_Plus) is ``data.json``: an array of records, or an object of them
by name; copies of it use other keys for the same things. The hub's ``codeparrot/apps`` is JSONL whose ``input_output``
and ``solutions`` are JSON texts inside the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from securecoderl_edge.datasets.apps_fields import AppsFields, make_problem
from securecoderl_edge.datasets.tally import DropRecord, Tally
from securecoderl_edge.errors import SceError, UsageError
from securecoderl_edge.problems import Problem, read_jsonl

_STATEMENT = ("question", "prompt", "description")
_INPUTS, _OUTPUTS = ("inputs", "input"), ("outputs", "output")
_SOLUTIONS = ("solutions", "canonical_solution", "solution")
_IDS = ("name", "problem_id", "id", "task_id")
_BOM = b"\xef\xbb\xbf"


def looks_like_one(record: dict[str, Any]) -> bool:
    """Whether a record has a statement and tests under any of the names in use."""
    has_tests = "input_output" in record or (_has(record, _INPUTS) and _has(record, _OUTPUTS))
    return _has(record, _STATEMENT) and has_tests


def read(path: Path, tally: Tally, source: str) -> Iterator[Problem]:
    """Yield the problems of a file; those that cannot be used are counted in ``tally``.

    Args:
        source: ``apps`` or ``apps-plus``, also the first part of each id.

    Raises:
        SceError: the file is cut short, is no JSON, or is not UTF-8 text.
    """
    for place, name, record in records(path):
        identifier = f"{source}/{name}"
        try:
            if not isinstance(record, dict):
                raise DropRecord(f"record is no object but a {type(record).__name__}")
            given = _first(record, _IDS)
            if isinstance(given, (str, int)) and not isinstance(given, bool) and str(given).strip():
                identifier = f"{source}/{str(given).strip()}"
            yield _problem(record, identifier, source, tally)
        except DropRecord as reason:
            tally.drop(f"{path.name}:{place}", str(reason))


def records(path: Path) -> Iterator[tuple[str, str, Any]]:
    """Where each record is, the name that the file gives it (its key, or its number), and the record.

    Raises:
        UsageError: no such file.
        SceError: it is cut short, is no JSON, or is not UTF-8 text.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file")
    kind = _outermost(path)
    if kind == "lines":
        for number, record in read_jsonl(path):
            yield f"line {number}", str(number - 1), record
        return
    import ijson

    count = 0
    try:
        with path.open("rb") as file:
            if file.read(len(_BOM)) != _BOM:
                file.seek(0)
            if kind == "array":
                every = ((str(index), record) for index, record in enumerate(ijson.items(file, "item", use_float=True)))
            else:
                every = ijson.kvitems(file, "", use_float=True)
            for name, record in every:
                yield f"record {name}", name, record
                count += 1
    except (ijson.JSONError, UnicodeDecodeError, OverflowError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise SceError(f"{path}: no whole JSON after {count} records ({reason}); download it again") from None
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None


def _outermost(path: Path) -> str:
    """``array``, ``object`` (of records) or ``lines``, from the beginning of the file."""
    if path.suffix == ".gz":
        return "lines"
    try:
        with path.open("rb") as file:
            head = file.read(1 << 16).removeprefix(_BOM).lstrip()
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SceError(f"{path}: is UTF-16 text; convert it to UTF-8")
    if head.startswith(b"["):
        return "array"
    # An object of records, pretty-printed or not, has an object as its first value; a record has none there.
    after_key = head.partition(b":")[2].lstrip()
    return "object" if head.startswith(b"{") and after_key.startswith(b"{") else "lines"


def _problem(record: dict[str, Any], identifier: str, source: str, tally: Tally) -> Problem:
    statement = _first(record, _STATEMENT)
    if statement is not None and not isinstance(statement, str):
        raise DropRecord("statement is no text")
    examples = record
    if "input_output" in record:
        examples = _decoded(record["input_output"], "input_output") or {}
        if not isinstance(examples, dict):
            raise DropRecord("input_output holds no object")
    solutions = _decoded(_first(record, _SOLUTIONS), "solutions", or_text=True)
    starter_code = record.get("starter_code")
    fields = AppsFields(
        id=identifier,
        source=source,
        statement=statement or "",
        inputs=_decoded(_first(examples, _INPUTS), "inputs"),
        outputs=_decoded(_first(examples, _OUTPUTS), "outputs"),
        function=_function(examples, record),
        solutions=[solutions] if isinstance(solutions, str) else solutions,
        starter_code=starter_code if isinstance(starter_code, str) else "",
        difficulty=record.get("difficulty"),
    )
    return make_problem(fields, tally)


def _function(examples: dict[str, Any], record: dict[str, Any]) -> Any:
    """The name of the function to call; blank is none."""
    name = examples.get("fn_name", record.get("fn_name"))
    return None if isinstance(name, str) and not name.strip() else name


def _decoded(value: Any, name: str, *, or_text: bool = False) -> Any:
    """A list or object that may be there as JSON text; with ``or_text`` other text is itself."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        if or_text:
            return value
        raise DropRecord(f"{name} is not valid JSON") from None


def _has(record: dict[str, Any], names: tuple[str, ...]) -> bool:
    return any(name in record for name in names)


def _first(record: dict[str, Any], names: tuple[str, ...]) -> Any:
    """The value under the first of the names that has one."""
    return next((record[name] for name in names if record.get(name) not in (None, "")), None)
