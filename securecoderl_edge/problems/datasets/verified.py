"""Records of sets that were made for RL with tests. APPS' importer reads them, once their tests have its form.

    open-r1     prompt, verification_info {"language", "test_cases": [...]}, gold_standard_solution
    deepcoder   problem, tests, solutions, starter_code
    eurus       prompt (messages), ability, reward_model {"ground_truth": tests}
    codeforces  open-r1's: description, input_format, output_format, official_tests, generated_checker, time_limit

Tests are an object with inputs, outputs and perhaps fn_name, or a list of objects with input, output and type; both
also as JSON text. A checker of codeforces is a program that reads three files and prints 1. Here it runs inside of
``check``, with the texts in place of the files.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from securecoderl_edge.problems.datasets import apps
from securecoderl_edge.problems.datasets.apps import decoded
from securecoderl_edge.problems.datasets.code_contests import seconds_of
from securecoderl_edge.problems.datasets.record_files import first_of
from securecoderl_edge.problems.datasets.tally import DropRecord, FilterRecord, Tally
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import ProblemError, text, texts

_PARTS = (("input_format", "Input:\n"), ("output_format", "Output:\n"), ("note", "Note:\n"))
_CHECKER = """\
PROGRAM = {program!r}

def check(input, output, expected):
    import contextlib, io, sys
    texts = {{"input": input, "expected": expected, "output": output}}
    sys.argv = ["checker", *texts]
    printed = io.StringIO()
    names = {{"__name__": "__main__", "open": lambda name, *more, **others: io.StringIO(texts[name])}}
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        exec(PROGRAM, names)
    return printed.getvalue().strip() == "1"
"""


def problem_from(record: dict[str, Any], name: str, tally: Tally, source: str) -> Problem:
    """The problem in a record of the format ``source``; errors as `apps.problem_from`."""
    statement, tests = first_of(record, ("problem", "problem_statement", "prompt")), record.get("tests")
    if source == "eurus":
        if record.get("ability") != "code":
            raise FilterRecord("not about code")
        statement, tests = _asked(statement), _object(record, "reward_model").get("ground_truth")
    elif source == "open-r1":
        info = _object(record, "verification_info")
        tests = info.get("test_cases")
        if info.get("language") not in (None, "", "python"):
            record = {**record, "gold_standard_solution": None}
    return apps.problem_from({**record, "question": statement, "input_output": examples_of(tests)}, name, tally, source)


def codeforces_problem_from(record: dict[str, Any], name: str, tally: Tally) -> Problem:
    """The problem in a record of open-r1/codeforces; errors as `apps.problem_from`."""
    if text(record, "interaction_format"):
        raise DropRecord("interactive")
    if text(record, "input_mode") not in ("", "stdio"):
        raise DropRecord("reads or writes files, not standard input and output")
    parts = (("title", ""), ("description", ""), *_PARTS)
    statement = "\n\n".join(title + text(record, key) for key, title in parts if text(record, key))
    tests = examples_of(record.get("official_tests") or record.get("examples"))
    checker = text(record, "generated_checker")
    return replace(
        apps.problem_from({**record, "question": statement, "input_output": tests}, name, tally, "codeforces"),
        checker=_CHECKER.format(program=checker) if checker else "",
        tags=texts(record, "tags"),
        time_limit_s=seconds_of({"seconds": record.get("time_limit")}),
    )


def examples_of(tests: Any, function: Any = None) -> dict[str, Any]:
    """Tests in either form as APPS has them: inputs, outputs and the name of the function, if there is one.

    Raises:
        DropRecord: another form.
    """
    tests = decoded(tests, "tests") or []
    if isinstance(tests, dict):
        return tests
    if not isinstance(tests, list) or not all(isinstance(test, dict) for test in tests):
        raise DropRecord("tests are not a list of objects")
    inputs, outputs = [test.get("input") for test in tests], [test.get("output") for test in tests]
    for number, test in enumerate(tests):
        kind = first_of(test, ("type", "testtype"))
        if kind not in ("function_call", "functional"):
            continue
        metadata = test["metadata"] if isinstance(test.get("metadata"), dict) else {}
        function = function or test.get("fn_name") or metadata.get("func_name")
        if not function:
            raise DropRecord("function arguments without a function name")
        # LiveCodeBench has one argument per line, and a result; the others have APPS' lists, perhaps as text.
        if isinstance(given := inputs[number], str):
            lines = [_json(line) for line in given.splitlines() if line.strip()]
            inputs[number] = lines if kind == "functional" else _json(given)
        if isinstance(result := outputs[number], str):
            outputs[number] = [_json(result)] if kind == "functional" else _json(result)
    return {"inputs": inputs, "outputs": outputs, "fn_name": function}


def _json(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _asked(messages: Any) -> Any:
    """What the user writes last in a list of messages."""
    if not isinstance(messages, list):
        return messages
    asked = [each.get("content") for each in messages if isinstance(each, dict) and each.get("role") == "user"]
    return asked[-1] if asked else ""


def _object(record: dict[str, Any], key: str) -> dict[str, Any]:
    value = decoded(record.get(key), key)
    if not isinstance(value, dict):
        raise ProblemError(f'"{key}" is not an object')
    return value
