"""Conversion of problems from APPS, its JSONL on the hub and APPS+, which share their fields and irregularities.

Problems with a function name are call problems, the others read and print (`stdin_tests`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from securecoderl_edge.languages.python_source import (
    add_missing_imports,
    is_function_name,
    only_function,
    signature,
)
from securecoderl_edge.problems.datasets.calls import call_assertion, expected_values, restore_integer_keys
from securecoderl_edge.problems.datasets.fields import check_pairs
from securecoderl_edge.problems.datasets.stdin_tests import are_arguments, stdin_tests
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally
from securecoderl_edge.problems.problem import Problem


@dataclass(frozen=True)
class AppsFields:
    """The fields of one problem in a file; values of other types than text or list are faults of the record.

    Attributes:
        function: the name of the function to call; None for a program that reads and prints.
    """

    id: str
    source: str
    statement: str
    inputs: Any
    outputs: Any
    function: Any = None
    solutions: Any = None
    starter_code: str = ""
    difficulty: Any = None


def make_problem(fields: AppsFields, tally: Tally) -> Problem:
    """The problem; unusable tests are counted in ``tally``.

    Raises:
        DropRecord: it has no statement, no usable test, or is malformed.
    """
    statement = fields.statement.strip()
    if not statement:
        raise DropRecord("no statement")
    inputs, outputs = fields.inputs or [], fields.outputs or []
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        raise DropRecord("inputs or outputs are not a list")
    solutions, starter_code = _solutions(fields.solutions, fields.id, tally), fields.starter_code.rstrip()
    name = fields.function
    if name is None and any(map(are_arguments, inputs)):
        name = only_function(starter_code)
        if name is None:
            raise DropRecord("function arguments without a function name")
    common: dict[str, Any] = {
        "id": fields.id,
        "source": fields.source,
        "difficulty": fields.difficulty if isinstance(fields.difficulty, str) else "",
    }
    if name is None:
        tests = stdin_tests(inputs, outputs, fields.id, tally)
        return Problem(statement=statement, tests=tests, starter_code=starter_code, solutions=solutions, **common)
    check_pairs(inputs, outputs)
    if not isinstance(name, str) or not is_function_name(name):
        raise DropRecord("fn_name is not a function name")
    definition = starter_code or (solutions[0] if solutions else "")
    header = signature(definition, name)
    return Problem(
        statement=f"{statement}\n\n{_task(name, header, definition)}",
        kind="call",
        entry_point=name,
        assertions=_assertions(name, definition, inputs, outputs, fields.id, tally),
        starter_code=add_missing_imports(starter_code),
        solutions=tuple(add_missing_imports(solution) for solution in solutions),
        **common,
    )


def _assertions(
    name: str, definition: str, inputs: list[Any], outputs: list[Any], identifier: str, tally: Tally
) -> tuple[str, ...]:
    # The sandbox gives a method of ``class Solution`` the name of the function, so one form serves both.
    assertions = []
    for arguments, expected in zip(inputs, expected_values(outputs, definition, name), strict=True):
        if not isinstance(arguments, list):
            tally.drop_test(identifier, "arguments are not a list")
            continue
        try:
            assertions.append(call_assertion(name, restore_integer_keys(arguments), restore_integer_keys(expected)))
        except ValueError:
            tally.drop_test(identifier, "value without a Python literal")
    if not assertions:
        raise DropRecord("no usable tests")
    return tuple(assertions)


def _task(name: str, header: str | None, definition: str) -> str:
    if "class Solution" in definition:
        return f"Write the class `Solution` with the method `{header or name}`."
    return f"Write the function `{header or name}`."


def _solutions(solutions: Any, identifier: str, tally: Tally) -> tuple[str, ...]:
    if solutions is None:
        return ()
    if not isinstance(solutions, list):
        tally.drop_solution(identifier, "solutions are not a list")
        return ()
    for _ in range(sum(not isinstance(solution, str) for solution in solutions)):
        tally.drop_solution(identifier, "solution is not text")
    texts = (solution.replace("\r\n", "\n") for solution in solutions if isinstance(solution, str))
    return tuple(dict.fromkeys(text for text in texts if text.strip()))
