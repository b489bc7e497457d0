"""Parsing of prompts and tests for ``sce generate``: from arguments, files, or examples in the prompt."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, BinaryIO

from securecoderl_edge.errors import SceError, UsageError, not_utf8
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.problems.problem import Problem, SecurityTest, Test
from securecoderl_edge.problems.problem_file import (
    ProblemError,
    language_of,
    problem_from_record,
    security_tests_of,
    stdin_test,
)
from securecoderl_edge.system.rows import read_jsonl
from securecoderl_edge.text import unescaped

_INPUT = re.compile(r"^Example input:[ \t]*\n", re.MULTILINE)
_OUTPUT = re.compile(r"^Example output:[ \t]*\n", re.MULTILINE)
_END_OF_OUTPUT = re.compile(r"\n[ \t]*\n|^Example input:|\Z", re.MULTILINE)


def read_prompt(argument: str | None, stdin: BinaryIO) -> str:
    """The prompt's text: the argument itself, stdin for ``-`` or nothing, or the file that ``@FILE`` names.

    Raises:
        UsageError: the prompt is missing or empty.
        SceError: it is not UTF-8 text.
    """
    if argument is None and stdin.isatty():
        raise UsageError('missing prompt; give one: sce generate "Read a number and print its double."')
    try:
        if argument is None or argument == "-":
            where, text = "stdin", stdin.read().decode("utf-8-sig")
        elif argument.startswith("@"):
            where, text = argument[1:], Path(argument[1:]).read_text(encoding="utf-8-sig")
        else:
            where, text = "argument", argument
    except UnicodeDecodeError as error:
        raise not_utf8("prompt", error) from None
    except OSError as error:
        raise UsageError(f"cannot read the prompt from {argument}: {error.strerror}") from None
    if not text.strip():
        raise UsageError(f"empty prompt ({where}); describe the program to write")
    return text


def read_requests(path: Path, language: str = PYTHON.name) -> list[Problem]:
    """The prompts in a JSONL file: problem records, or ``{"prompt": ...}`` with an optional ``id``.

    A prompt without tests gets its `example_tests`; one without an id, its line number; one without a language,
    ``language``.

    Raises:
        UsageError: no such file.
        SceError: the file is empty, or a line (which the message names) is malformed or repeats an id.
    """
    requests: dict[str, Problem] = {}
    for number, record in read_jsonl(path):
        where = f"{path}:{number}"
        if not isinstance(record, dict):
            raise SceError(f'{where}: expected an object with "prompt"')
        record = {"id": str(number), "statement": record.get("prompt"), "language": language, **record}
        try:
            request = _request(record)
        except ProblemError as error:
            raise SceError(f"{where}: {error}") from None
        if request.id in requests:
            raise SceError(f"{where}: duplicate id {request.id!r}")
        requests[request.id] = request
    if not requests:
        raise SceError(f'{path}: the file is empty; expected one object with "prompt" per line')
    return list(requests.values())


def parse_test(text: str) -> Test:
    r"""The test in ``in=3 4,out=7``; ``\n``, ``\t`` and ``\\`` mean newline, tab and backslash.

    Raises:
        UsageError: another form, or an empty expected output.
    """
    head, separator, output = text.partition(",out=")
    if not separator or not head.startswith("in="):
        raise UsageError(f"--test {text}: expected in=...,out=... (for example: in=3 4,out=7)")
    expected = unescaped(output)
    if not expected.strip():
        raise UsageError(f"--test {text}: the expected output is empty, so a program that prints nothing passes")
    return Test(_with_newline(unescaped(head[len("in=") :])), expected)


def read_tests(path: Path) -> tuple[list[Test], list[SecurityTest]]:
    """The tests in a file: ``{"input", "output"}`` objects, one per line or in a list, or a problem record.

    Only a problem record has security tests.

    Raises:
        UsageError: no such file, or a problem about a function.
        SceError: it has no tests, or one of them is malformed (the message has file and line).
    """
    if not path.is_file():
        raise UsageError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    tests: list[Test] = []
    security_tests: list[SecurityTest] = []
    for where, content in _records(path):
        record = {"tests": content} if isinstance(content, list) else content
        if not isinstance(record, dict) or not isinstance(entries := record.get("tests", [record]), list):
            raise SceError(f'{where}: expected objects with "input" and "output"')
        if record.get("assertions"):
            raise UsageError(f"{where}: a problem about a function; give it as the prompt, by --jsonl {path}")
        try:
            tests += [stdin_test(entry, f"test {number}") for number, entry in enumerate(entries, 1)]
            security_tests += security_tests_of(record)
        except ProblemError as error:
            raise SceError(f"{where}: {error}") from None
    if not tests:
        raise SceError(f'{path}: no tests; expected objects with "input" and "output"')
    return tests, security_tests


def example_tests(prompt: str) -> list[Test]:
    """The examples in a prompt with sections ``Example input:`` and ``Example output:``, as in `starter`.

    An output ends at an empty line, at the next example or at the end of the prompt.
    """
    text, end, examples = prompt.replace("\r\n", "\n"), 0, []
    # One expression for all of it would take quadratic time where outputs are missing.
    while (start := _INPUT.search(text, end)) and (middle := _OUTPUT.search(text, start.end())):
        match = _END_OF_OUTPUT.search(text, middle.end())
        end = match.start() if match else len(text)
        stdin, expected = text[start.end() : middle.start()].removesuffix("\n"), text[middle.end() : end]
        if expected.strip():
            examples.append(Test(_with_newline(stdin), expected))
    return examples


def _request(record: dict[str, Any]) -> Problem:
    if record.get("tests") or record.get("assertions"):
        return problem_from_record(record)
    statement = record["statement"]
    if not isinstance(statement, str) or not statement.strip():
        raise ProblemError('"prompt" is missing or empty')
    starter = record.get("starter_code") or ""
    if not isinstance(starter, str):
        raise ProblemError('"starter_code" must be a string')
    tests = tuple(example_tests(statement))
    return Problem(str(record["id"]), statement, starter_code=starter, tests=tests, language=language_of(record))


def _records(path: Path) -> list[tuple[str, Any]]:
    try:
        return [(str(path), json.loads(path.read_text(encoding="utf-8")))]
    except (ValueError, RecursionError):
        # Not one JSON text: read objects line by line, whose errors have a line number.
        return [(f"{path}:{number}", record) for number, record in read_jsonl(path)]
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None


def _with_newline(text: str) -> str:
    return text if not text or text.endswith("\n") else f"{text}\n"
