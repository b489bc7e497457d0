"""Contest problems, most of them records of sets for RL. APPS' importer reads them, once their tests have its form.

    livecodebench  question_content, starter_code, public_test_cases, private_test_cases, metadata
    open-r1        prompt, verification_info {"language", "test_cases": [...]}, gold_standard_solution
    deepcoder      problem, tests, solutions, starter_code
    eurus          prompt (messages), ability, reward_model {"ground_truth": tests}
    codeforces     open-r1's: description, input_format, output_format, official_tests, generated_checker, time_limit

Tests are an object with inputs, outputs and perhaps fn_name, or a list of objects with input, output and type; both
also as JSON text. A checker of codeforces is a program that reads three files and prints 1. Here it runs inside of
``check``, with the texts in place of the files.

Private tests of LiveCodeBench may be base64 of zlib of a pickle of such JSON text. Nothing is unpickled: a pickle that
holds one text and nothing else is read by its opcodes, and any other one is dropped.
"""

from __future__ import annotations

import base64
import json
import pickletools
import zlib
from dataclasses import replace
from typing import Any

from securecoderl_edge.problems.datasets import apps
from securecoderl_edge.problems.datasets.apps import decoded
from securecoderl_edge.problems.datasets.code_contests import seconds_of
from securecoderl_edge.problems.datasets.record_files import first_of, given_id
from securecoderl_edge.problems.datasets.tally import DropRecord, FilterRecord, Tally
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import ProblemError, text, texts

_LARGEST = 1 << 27  # bytes of the private tests of a problem
# The opcodes of a pickle that is one text, and how many of them there are at most.
_OF_TEXT = {"PROTO", "FRAME", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "MEMOIZE", "BINPUT", "STOP"}
_MOST_OPCODES = 8
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


def livecodebench_problem_from(record: dict[str, Any], name: str, tally: Tally) -> Problem:
    """The problem in a record: first the public tests, then the private ones; errors as `apps.problem_from`."""
    metadata = decoded(record.get("metadata"), "metadata")
    function = metadata.get("func_name") if isinstance(metadata, dict) else None
    private = record.get("private_test_cases") or "[]"
    if isinstance(private, str) and not private.lstrip().startswith("["):
        private = unpacked(private)
    if private is None:
        tally.drop_test(
            f"livecodebench/{given_id(record, ('question_id',)) or name}", "private tests are not JSON text"
        )
    parts = [decoded(part, "tests") or [] for part in (record.get("public_test_cases"), private)]
    if not all(isinstance(part, list) for part in parts):
        raise DropRecord("tests are not a list of objects")
    examples = examples_of(parts[0] + parts[1], function)
    named = {**record, "question": record.get("question_content"), "input_output": examples}
    return apps.problem_from(named, name, tally, "livecodebench")


def unpacked(packed: str) -> str | None:
    """The JSON text in compressed private tests; None if there is anything else in them."""
    try:
        compressed = zlib.decompressobj()
        data = compressed.decompress(base64.b64decode(packed, validate=True), _LARGEST)
        return text_in_pickle(data) if compressed.eof else None
    except (ValueError, zlib.error):
        return None


def text_in_pickle(data: bytes) -> str | None:
    """The text that a pickle consists of, which is not unpickled; None for a pickle of anything else."""
    found = []
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if opcode.name not in _OF_TEXT or number == _MOST_OPCODES:
                return None
            if isinstance(argument, str):
                found.append(argument)
    except (ValueError, OverflowError):
        return None
    return found[0] if len(found) == 1 else None


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
            outputs[number] = _json(result)
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
