"""Records of APPS+ and of the hub's copy of APPS.

APPS+ (StepCoder, https://github.com/Ablustrund/APPS_Plus) is ``data.json``: an array of records, or an object of them
by name; copies of it use other keys for the same things. The hub's ``codeparrot/apps`` is JSONL whose ``input_output``
and ``solutions`` are JSON texts inside the record.
"""

from __future__ import annotations

import json
from typing import Any

from securecoderl_edge.languages.python_source import parse
from securecoderl_edge.problems.datasets.apps_fields import AppsFields, make_problem
from securecoderl_edge.problems.datasets.fields import first_of, given_id
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import ProblemError

_STATEMENT = ("question", "prompt", "description")
_INPUTS, _OUTPUTS = ("inputs", "input"), ("outputs", "output")
_SOLUTIONS = ("solutions", "canonical_solution", "solution")
_IDS = ("name", "problem_id", "id", "task_id")


def looks_like_one(record: dict[str, Any]) -> bool:
    """Whether a record has a statement and tests under any of the names in use."""
    has_tests = "input_output" in record or (_has(record, _INPUTS) and _has(record, _OUTPUTS))
    return _has(record, _STATEMENT) and has_tests


def problem_from(record: dict[str, Any], name: str, tally: Tally, source: str) -> Problem:
    """The problem in a record.

    Args:
        name: the name of the record in the file, in case it has no id.
        source: ``apps`` or ``apps-plus``, also the first part of the id.

    Raises:
        ProblemError: it cannot be used.
    """
    if not looks_like_one(record) and not _has(record, (*_INPUTS, *_OUTPUTS)):
        raise ProblemError("no known key for the statement or for the tests")
    statement = first_of(record, _STATEMENT)
    if statement is not None and not isinstance(statement, str):
        raise DropRecord("statement is not text")
    examples = record
    if "input_output" in record:
        examples = _decoded(record["input_output"], "input_output") or {}
        if not isinstance(examples, dict):
            raise DropRecord("input_output is not a JSON object")
    identifier = f"{source}/{given_id(record, _IDS) or name}"
    solutions = _decoded(first_of(record, _SOLUTIONS), "solutions", or_text=True)
    if isinstance(solutions, str) and solutions.lstrip().startswith("[") and parse(solutions) is None:
        tally.drop_solution(identifier, "solutions are not valid JSON")
        solutions = None
    starter_code = record.get("starter_code")
    fields = AppsFields(
        id=identifier,
        source=source,
        statement=statement or "",
        inputs=_decoded(first_of(examples, _INPUTS), "inputs"),
        outputs=_decoded(first_of(examples, _OUTPUTS), "outputs"),
        function=_function(examples, record),
        solutions=[solutions] if isinstance(solutions, str) else solutions,
        starter_code=starter_code if isinstance(starter_code, str) else "",
        difficulty=record.get("difficulty"),
    )
    return make_problem(fields, tally)


def _function(examples: dict[str, Any], record: dict[str, Any]) -> Any:
    """The name of the function to call; None if it is blank."""
    name = examples.get("fn_name", record.get("fn_name"))
    return None if isinstance(name, str) and not name.strip() else name


def _decoded(value: Any, name: str, *, or_text: bool = False) -> Any:
    """Decode a list or object that may be JSON text; with ``or_text`` other text is returned unchanged."""
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
