"""Parsing of prompts and tests for ``sce generate``: from arguments, files, or examples in the prompt."""

from __future__ import annotations

import ast
import builtins
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from securecoderl_edge.errors import SceError, UsageError, not_utf8
from securecoderl_edge.generation.examples import Examples, example_sections, examples_in, with_newline
from securecoderl_edge.languages.language import PYTHON
from securecoderl_edge.languages.python_source import called_function, fault_of_assertion, parse
from securecoderl_edge.problems.problem import Kind, Problem, SecurityTest, Test
from securecoderl_edge.problems.problem_file import (
    ProblemError,
    language_of,
    problem_from_record,
    security_tests_of,
    stdin_test,
    texts,
)
from securecoderl_edge.system.rows import decode_lines, read_jsonl
from securecoderl_edge.text import unescaped

_MOST_EXAMPLES = 50


@dataclass(frozen=True)
class GivenTests:
    """Tests that a user gives: of a program, or assertions on a function; and attacks on it."""

    tests: tuple[Test, ...] = ()
    assertions: tuple[str, ...] = ()
    security_tests: tuple[SecurityTest, ...] = ()

    def __add__(self, other: GivenTests) -> GivenTests:
        return GivenTests(
            self.tests + other.tests, self.assertions + other.assertions, self.security_tests + other.security_tests
        )


def read_prompt(argument: str | None, stdin: BinaryIO, wanted: str = "the program to write") -> str:
    """The prompt's text: the argument itself, stdin for ``-`` or nothing, or the file that ``@FILE`` names.

    Args:
        wanted: what a prompt describes.

    Raises:
        UsageError: the prompt is missing or empty.
        SceError: it is not UTF-8 text.
    """
    if argument is None and stdin.isatty():
        raise UsageError(f'missing prompt; give one that describes {wanted}: sce generate ... "..."')
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
        raise UsageError(f"empty prompt ({where}); describe {wanted}")
    return text


def read_requests(path: Path, language: str = PYTHON.name, stdin: BinaryIO | None = None) -> list[Problem]:
    """The prompts of a JSONL file, or ``stdin`` for ``-``: problem records, or ``{"prompt": ...}`` and maybe ``id``.

    A prompt without tests gets the examples in it; one without an id, its line number; one without a language,
    ``language``.

    Raises:
        UsageError: no such file.
        SceError: the file is empty, or a line (which the message names) is malformed or repeats an id.
    """
    requests: dict[str, Problem] = {}
    name, rows = str(path), read_jsonl(path)
    if stdin is not None and path == Path("-"):
        name, rows = "stdin", decode_lines(stdin, "stdin")
    for number, record in rows:
        where = f"{name}:{number}"
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
        raise SceError(f'{name}: the file is empty; expected one object with "prompt" per line')
    return list(requests.values())


def prompt_problem(
    statement: str,
    language: str = PYTHON.name,
    given: GivenTests = GivenTests(),
    found: Examples | None = None,
    *,
    starter_code: str = "",
    id: str = "prompt",
) -> Problem:
    """The problem that a prompt is: with the tests given, else with the examples in it.

    Assertions, or a prompt in Python that asks for a function, make it a call problem.

    Args:
        found: the examples in the prompt, if they are known.

    Raises:
        UsageError: tests and assertions are given, or assertions for another language.
    """
    if found is None:
        text = f"{statement}\n{starter_code}"
        found = examples_in(text) if language == PYTHON.name else Examples(example_sections(text))
    if given.assertions and given.tests:
        raise UsageError("tests of printed output and assertions are given; a prompt can have one of them")
    if given.assertions and language != PYTHON.name:
        raise UsageError("assertions are for Python; give input and output instead")
    problem = Problem(id, statement, starter_code=starter_code, security_tests=given.security_tests, language=language)
    if given.assertions or (found.entry_point and not given.tests):
        called = Counter(filter(None, (called_function(each, "") for each in given.assertions))).most_common(1)
        name = found.entry_point if found.entry_point in dict(called) or not called else called[0][0]
        assertions = given.assertions or found.assertions[:_MOST_EXAMPLES]
        return replace(problem, kind="call", entry_point=name, assertions=assertions)
    return replace(problem, tests=given.tests or found.tests[:_MOST_EXAMPLES])


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
    return Test(with_newline(unescaped(head[len("in=") :])), expected)


def parse_assertion(text: str) -> str:
    """The assertion in a text such as ``is_prime(7)``, ``f(2) == 4`` or ``assert f(2) == 4``.

    Raises:
        UsageError: it is not Python, calls nothing, or cannot fail.
    """
    tree = parse(text.strip())
    is_whole = tree is not None and any(isinstance(each, ast.Assert) for each in tree.body)
    assertion = text.strip() if is_whole else f"assert {text.strip()}"
    fault, tree = fault_of_assertion(assertion), parse(assertion)
    called = [each.func for each in ast.walk(tree) if isinstance(each, ast.Call)] if tree else []
    if fault is None and all(isinstance(each, ast.Name) and hasattr(builtins, each.id) for each in called):
        fault = "test calls no function"
    if fault is not None:
        raise UsageError(f"assertion {text!r}: the {fault}. Write for example: is_prime(7), or f(2) == 4")
    return assertion


def given_tests(file: Path | None, tests: Iterable[str], assertions: Iterable[str]) -> GivenTests:
    """The tests of a file and of options, see `read_tests`, `parse_test` and `parse_assertion`, with their errors."""
    given = read_tests(file) if file else GivenTests()
    return given + GivenTests(tuple(map(parse_test, tests)), tuple(map(parse_assertion, assertions)))


def read_tests(path: Path) -> GivenTests:
    """The tests in a file.

    In JSON they are ``{"input", "output"}`` objects or assertions, one per line or in a list, or a problem record.
    Another file is a text with assertions, sessions of Python, or sections of inputs and outputs.

    Raises:
        UsageError: no such file, or one of test functions.
        SceError: it has no tests, or one of them is malformed (the message has file and line).
    """
    if not path.is_file():
        raise UsageError(f"{path}: {'a folder, not a file' if path.is_dir() else 'no such file'}")
    given = GivenTests()
    for where, content in _records(path):
        try:
            given += content if isinstance(content, GivenTests) else _given_in(content)
        except (ProblemError, UsageError) as error:
            raise SceError(f"{where}: {error}") from None
    if not (given.tests or given.assertions):
        raise SceError(f'{path}: no tests; expected objects with "input" and "output", or assertions')
    return given


def _given_in(content: Any) -> GivenTests:
    """The tests in a JSON value: a test, a list of tests, or a problem record."""
    if isinstance(content, dict) and ("tests" in content or "assertions" in content):
        entries = [*texts(content, "assertions"), *(content.get("tests") or [])]
        kind: Kind = "call" if content.get("assertions") else "stdin"
        attacks = security_tests_of(content, kind)
    else:
        entries, attacks = content if isinstance(content, list) else [content], ()
    given = GivenTests(security_tests=attacks)
    for number, entry in enumerate(entries, 1):
        if isinstance(entry, dict) and isinstance(entry.get("assertion"), str):
            entry = entry["assertion"]
        if isinstance(entry, str):
            given += GivenTests(assertions=(parse_assertion(entry),))
        else:
            given += GivenTests((stdin_test(entry, f"test {number}"),))
    return given


def _request(record: dict[str, Any]) -> Problem:
    if record.get("assertions") and not record.get("entry_point"):
        given = GivenTests(assertions=tuple(map(parse_assertion, texts(record, "assertions"))))
        name = prompt_problem(str(record["statement"]), PYTHON.name, given).entry_point
        record = {**record, "kind": "call", "entry_point": name, "assertions": given.assertions}
    if record.get("tests") or record.get("assertions"):
        return problem_from_record(record)
    statement = record["statement"]
    if not isinstance(statement, str) or not statement.strip():
        raise ProblemError('"prompt" is missing or empty')
    starter = record.get("starter_code") or ""
    if not isinstance(starter, str):
        raise ProblemError('"starter_code" must be a string')
    return prompt_problem(statement, language_of(record), starter_code=starter, id=str(record["id"]))


def _records(path: Path) -> list[tuple[str, Any]]:
    """The JSON values in a file with their places, or the examples of another text."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise not_utf8(str(path), error) from None
    except OSError as error:
        raise SceError(f"{path}: {error.strerror}") from None
    if re.search(r"^[^\S\n]*(?:async )?def test", text, re.MULTILINE):
        raise UsageError(f"{path}: test functions run with --edit only. Give assertions: assert f(2) == 4")
    if (whole := _json(text)) is not None:
        return [(str(path), whole)]
    first = text.lstrip().split("\n", 1)[0]
    if first.startswith("{") or _json(first) is not None:
        # Not one JSON text: read objects line by line, whose errors have a line number.
        return [(f"{path}:{number}", record) for number, record in read_jsonl(path)]
    found = examples_in(text)
    return [(str(path), GivenTests(found.tests, found.assertions))]


def _json(text: str) -> Any:
    """The value of a JSON text; None if it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
