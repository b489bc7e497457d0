"""Call problems as programs: the arguments are read from standard input, and the result is printed.

Each argument is one line of JSON, in the order of the parameters, and the output is what ``print`` shows. The reference
gets the lines that do this. Only values that JSON keeps as they are can be arguments, and results must have one text:
no sets, dictionaries, or decimals inside of lists, which right programs may print in another way.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from securecoderl_edge.languages.python_source import UNREADABLE, find_function, functions, parse, signature
from securecoderl_edge.problems.assertions import Assertion, assertions_of, translate
from securecoderl_edge.problems.comparison import EXACT, Rule
from securecoderl_edge.problems.near_duplicates import without_task
from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.problems.shown_example import shown_example

TAG = "wrapped-call"
_EXAMPLE = " For example:\n"  # as importers, and `with_one_example`, write it
_TOLERANCE = 1e-5  # the most that printed decimals may differ


class NotWrapped(ValueError):
    """A problem has no such form; the message is the reason, a part of a sentence."""


def all_wrapped(problems: Iterable[Problem]) -> tuple[list[Problem], Counter[str]]:
    """The problems that have such a form, in it; and how many of the others have none, by the reason."""
    found, left_out = [], Counter[str]()
    for problem in problems:
        try:
            found.append(wrapped(problem))
        except NotWrapped as reason:
            left_out[str(reason)] += 1
    return found, left_out


def wrapped(problem: Problem) -> Problem:
    """A call problem as a stdin problem with the same tests, as far as their values can be written.

    Raises:
        NotWrapped: it is no call problem, it has no reference, or none of its tests can be written.
    """
    if problem.kind != "call" or not problem.entry_point:
        raise NotWrapped("it is not a call problem")
    if not problem.solutions:
        raise NotWrapped("it has no reference solution")
    name, reference = problem.entry_point, problem.solutions[0]
    function = find_function(reference, name)
    if function is None:
        raise NotWrapped("its reference does not define the function")
    parameters = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    is_method = parameters[:1] == ["self"]
    parameters = parameters[is_method:]
    tests = [each for assertion in assertions_of(problem) if (each := _test(assertion, name, parameters)) is not None]
    if not tests:
        raise NotWrapped("no test has arguments that JSON keeps and a result that prints one way")
    example = problem.statement.rpartition(_EXAMPLE)[2] if _EXAMPLE in problem.statement else ""
    shown = _test(translate(example, name, problem.rule.name), name, parameters) if example else None
    header = signature(reference, name) or f"{name}({', '.join(parameters)})"
    has_decimals = any(type(value) is float for value, _ in tests)
    called = f"Solution().{name}" if is_method else name
    reading = f"import json, sys\n\nprint({called}(*map(json.loads, sys.stdin)))\n"
    return replace(
        problem,
        kind="stdin",
        statement=_statement(problem, header, len(parameters)) + (shown_example(shown[1]) if shown else ""),
        tests=tuple(dict.fromkeys(test for _, test in tests)),
        entry_point=None,
        assertions=(),
        starter_code="",
        security_tests=(),
        insecure_solutions=(),
        solutions=tuple(f"{program.rstrip()}\n\n{reading}" for program in problem.solutions),
        tags=(*problem.tags, TAG),
        compare=Rule("numbers", _TOLERANCE) if has_decimals else EXACT,
    )


def _statement(problem: Problem, header: str, count: int) -> str:
    given = parse(problem.starter_code) if problem.starter_code else None
    docstrings = [ast.get_docstring(each) for each in (functions(given) if given else ())]
    own = [text for text in docstrings if text]
    # Of HumanEval the task is the docstring in the given code.
    task = own[-1] if own and not without_task(problem.statement) else without_task(problem.statement)
    lines = "its argument" if count == 1 else f"its {count} arguments, one per line in this order,"
    return (
        f"{task.strip()}\n\nWrite a program for `{header}`. It reads {lines} from standard input as JSON, and prints "
        "the result as `print` shows it."
    )


def _test(assertion: Assertion, name: str, parameters: list[str]) -> tuple[Any, Test] | None:
    """The expected value and the test; None if it cannot be written so."""
    if assertion.setup or assertion.negated or assertion.also is not None:
        return None
    expected, expression = assertion.expected, parse(assertion.expression)
    match expression.body if expression else []:
        case [ast.Expr(value=ast.List(elts=[ast.Call() as call]))] if assertion.comparison == "each":
            expected = expected[0] if isinstance(expected, list) and len(expected) == 1 else ...
        case [ast.Expr(value=ast.Call() as call)] if assertion.comparison in ("equal", "identical", "near"):
            # A list of one item is this item, in sets where it may be.
            if assertion.may_be_wrapped and isinstance(expected, list) and len(expected) == 1:
                expected = expected[0]
        case _:
            return None
    if not isinstance(call.func, ast.Name) or call.func.id != name or not _prints_one_way(expected):
        return None
    try:
        arguments = _arguments(call, parameters)
    except UNREADABLE:
        return None
    lines = [line for value in arguments for line in _json(value)]
    if len(lines) != len(parameters) or not str(expected).strip():
        return None
    return expected, Test("".join(f"{line}\n" for line in lines), f"{expected}\n")


def _arguments(call: ast.Call, parameters: list[str]) -> list[Any]:
    """The values of all parameters.

    Raises:
        ValueError: one is missing, or no literal.
    """
    values = dict(zip(parameters, map(ast.literal_eval, call.args), strict=False))
    for keyword in call.keywords:
        given = ast.literal_eval(keyword.value)
        values |= {keyword.arg: given} if keyword.arg else given
    if len(call.args) > len(parameters) or set(values) != set(parameters):
        raise ValueError("a parameter without a value")
    return [values[each] for each in parameters]


def _json(value: Any) -> Iterator[str]:
    """The value in a line of JSON, if that keeps it."""
    try:
        line = json.dumps(value, allow_nan=False)
        if repr(json.loads(line)) == repr(value):
            yield line
    except UNREADABLE:
        return


def _prints_one_way(value: Any, is_inside: bool = False) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_prints_one_way(each, is_inside=True) for each in value)
    if isinstance(value, float):
        return not is_inside and re.fullmatch(r"-?\d+\.\d+", str(value)) is not None
    return value is None or isinstance(value, (bool, int, str))
