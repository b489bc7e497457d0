"""Problems as JSON objects, and the JSONL files that hold them (docs/reference/files.md)."""

from __future__ import annotations

import difflib
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.language import LANGUAGES, PYTHON, C
from securecoderl_edge.languages.python_source import fault_of_assertion, only_compares
from securecoderl_edge.languages.targets import NO_BUDGET, TARGETS, TargetBudget, budget_of
from securecoderl_edge.problems.comparison import Rule, rule_from_record
from securecoderl_edge.problems.problem import Kind, Problem, SecurityTest, Test, contains
from securecoderl_edge.system.files import write_atomically
from securecoderl_edge.system.rows import read_jsonl

MAX_TESTS = 5
_FIELDS = dict.fromkeys(field.name for field in fields(Problem))
_ALIKE = 0.8  # names of fields, of 1
_LONGEST_NAME = 256
_MOST_UNKNOWN = 100
_MOST_FAULTS = 5  # of a file, in one message


class ProblemError(ValueError):
    """A record breaks the problem format; the message names the rule."""


def problem_from_record(record: Any, max_tests: int = MAX_TESTS, needs_tests: bool = True) -> Problem:
    """Build a `Problem` from one decoded JSON object; keeps the first ``max_tests`` tests.

    Raises:
        ProblemError: a field is missing or has the wrong type, an expected output is empty, or there is no test, and
            it ``needs_tests``.
    """
    if not isinstance(record, dict):
        raise ProblemError(f"expected a JSON object, found {type(record).__name__}")
    refuse_misspelled(record)
    kind = record.get("kind", "stdin")
    if kind not in ("stdin", "call"):
        raise ProblemError(f'"kind" must be "stdin" or "call", found {kind!r}')
    language = language_of(record)
    driver = text(record, "driver")
    if language == C.name and kind == "call":
        raise ProblemError('"kind": "call" is for Python; a problem in C that asks for a function has a "driver"')
    if driver and language != C.name:
        raise ProblemError('"driver" is for problems in C ("language": "c")')
    if kind == "call" and (record.get("compare") is not None or record.get("checker")):
        raise ProblemError('"compare" and "checker" judge printed output, so they are for "kind": "stdin"')
    if record.get("checker") and record.get("target"):
        raise ProblemError('"checker" is not for problems with a "target", whose outputs are compared')
    time_limit = record.get("time_limit_s")
    if time_limit is not None and (isinstance(time_limit, bool) or not isinstance(time_limit, (int, float))):
        raise ProblemError('"time_limit_s" must be a number')
    if time_limit is not None and not 0 < time_limit <= sys.float_info.max:
        raise ProblemError('"time_limit_s" must be a positive number of seconds')
    problem = Problem(
        id=_required_text(record, "id"),
        statement=_required_text(record, "statement"),
        kind=kind,
        tests=_tests(record, max_tests) if kind == "stdin" else (),
        entry_point=_entry_point(record) if kind == "call" or driver else None,
        assertions=_assertions(record, max_tests) if kind == "call" else (),
        starter_code=text(record, "starter_code"),
        security_tests=security_tests_of(record, kind),
        solutions=texts(record, "solutions"),
        insecure_solutions=texts(record, "insecure_solutions"),
        difficulty=text(record, "difficulty"),
        source=text(record, "source"),
        tags=texts(record, "tags"),
        group=text(record, "group"),
        time_limit_s=float(time_limit) if time_limit is not None else None,
        language=language,
        driver=driver,
        target=target_of(record, language),
        budget=_budget(record),
        compare=_rule(record),
        checker=text(record, "checker"),
    )
    if problem.test_count == 0 and needs_tests:
        missing, other, other_kind = "tests", "assertions", "call"
        if kind == "call":
            missing, other, other_kind = other, missing, "stdin"
        hint = f' ("{other}" are for "kind": "{other_kind}")' if record.get(other) else ""
        raise ProblemError(f"no {missing}{hint}")
    return problem


def language_of(record: dict[str, Any]) -> str:
    """The language of a record, a name in `LANGUAGES`.

    Raises:
        ProblemError: it is none of them.
    """
    language = record.get("language", PYTHON.name)
    if not isinstance(language, str) or language not in LANGUAGES:
        raise ProblemError(f'"language" must be {" or ".join(map(json.dumps, LANGUAGES))}, found {language!r}')
    return language


def target_of(record: dict[str, Any], language: str) -> str:
    """The target of a record, a name in `TARGETS`, or an empty string.

    Raises:
        ProblemError: an unknown one, or not for the language.
    """
    target = text(record, "target")
    if target and language != C.name:
        raise ProblemError('"target" is for problems in C ("language": "c")')
    if target and target not in TARGETS:
        raise ProblemError(f'"target" must be {" or ".join(map(json.dumps, TARGETS))}, found {target!r}')
    return target


def _rule(record: dict[str, Any]) -> Rule | None:
    try:
        return None if record.get("compare") is None else rule_from_record(record["compare"])
    except ValueError as error:
        raise ProblemError(str(error)) from None


def _budget(record: dict[str, Any]) -> TargetBudget:
    if record.get("budget") is None:
        return NO_BUDGET
    if not record.get("target"):
        raise ProblemError('"budget" needs a "target", for which programs are measured')
    try:
        return budget_of(record["budget"])
    except ValueError as error:
        raise ProblemError(str(error)) from None


def problem_to_record(problem: Problem) -> dict[str, Any]:
    """The JSON object of a problem; empty optional fields are left out."""
    record: dict[str, Any] = {"id": problem.id, "statement": problem.statement, "kind": problem.kind}
    if problem.language != PYTHON.name:
        record["language"] = problem.language
    if problem.target:
        record["target"] = problem.target
    if problem.budget != NO_BUDGET:
        record["budget"] = problem.budget.to_record()
    if problem.kind == "stdin":
        record["tests"] = [{"input": test.input, "output": test.output} for test in problem.tests]
        if problem.driver:
            record |= {"entry_point": problem.entry_point, "driver": problem.driver}
    else:
        record["entry_point"] = problem.entry_point
        record["assertions"] = list(problem.assertions)
    if problem.security_tests:
        record["security_tests"] = list(map(_security_record, problem.security_tests))
    if problem.compare is not None:
        record["compare"] = problem.compare.to_record()
    for name in ("starter_code", "difficulty", "source", "group", "time_limit_s", "checker"):
        if getattr(problem, name):
            record[name] = getattr(problem, name)
    for name in ("solutions", "insecure_solutions", "tags"):
        if getattr(problem, name):
            record[name] = list(getattr(problem, name))
    return record


def problem_digest(problem: Problem) -> str:
    """A hash of a problem's text, tests, solutions and limits, which tells apart problems with the same id."""
    record = json.dumps(problem_to_record(problem), sort_keys=True)
    return hashlib.sha256(record.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def digest_of_problems(problems: Iterable[Problem]) -> str:
    """A hash of a list of problems, including their order."""
    return hashlib.sha256("".join(map(problem_digest, problems)).encode()).hexdigest()


def read_problems(path: Path, max_tests: int = MAX_TESTS, needs_tests: bool = True) -> Iterator[tuple[int, Problem]]:
    """Yield ``(line number, problem)`` for each non-blank line of a file, up to the first one with a fault.

    Raises:
        UsageError, SceError: as `load_problems`; the message names the first `_MOST_FAULTS` faults, one in a line.
    """
    seen: dict[str, int] = {}
    faults: list[str] = []
    for number, record in read_jsonl(path):
        try:
            problem = problem_from_record(record, max_tests, needs_tests)
            if problem.id in seen:
                raise ProblemError(f"duplicate id {problem.id!r}, already used in line {seen[problem.id]}")
        except ProblemError as error:
            faults.append(f"{path}:{number}: {error}")
            if len(faults) == _MOST_FAULTS:
                break
            continue
        seen[problem.id] = number
        if not faults:
            yield number, problem
    if faults:
        raise SceError("\n".join(faults))


def write_problems(path: Path, problems: Iterable[Problem]) -> int:
    """Write problems as JSONL under a temporary name, then rename; returns their number."""
    count = 0
    with write_atomically(path) as out:
        for problem in problems:
            out.write(json.dumps(problem_to_record(problem)) + "\n")
            count += 1
    return count


def refuse_misspelled(record: dict[str, Any]) -> None:
    """Other fields are ignored, as those of other tools, unless one looks like a missing field of ours.

    Raises:
        ProblemError: one does, or there are too many.
    """
    unknown = [name for name in record if name not in _FIELDS and len(name) <= _LONGEST_NAME]
    if len(record) > len(_FIELDS) + _MOST_UNKNOWN:
        raise ProblemError(f"more than {_MOST_UNKNOWN} unknown fields")
    missing = [name for name in _FIELDS if unknown and name not in record]
    for name in unknown:
        if meant := difflib.get_close_matches(name, missing, 1, _ALIKE):
            raise ProblemError(f'unknown field "{name}"; "{meant[0]}" was probably meant')


def _required_text(record: dict[str, Any], name: str) -> str:
    value = text(record, name)
    if not value or value.isspace():
        raise ProblemError(f'"{name}" is missing or empty')
    return value


def _entry_point(record: dict[str, Any]) -> str:
    name = _required_text(record, "entry_point")
    if len(name) > _LONGEST_NAME:
        raise ProblemError(f'"entry_point" has more than {_LONGEST_NAME} characters')
    return name


def text(record: dict[str, Any], name: str) -> str:
    """The string under ``name``; empty when it is missing or null.

    Raises:
        ProblemError: it is something else.
    """
    value = record.get(name)
    if isinstance(value, str):
        return value
    if value is not None:
        raise ProblemError(f'"{name}" must be a string, found {type(value).__name__}')
    return ""


def texts(record: dict[str, Any], name: str) -> tuple[str, ...]:
    """The strings in the list under ``name``; none when it is missing or null.

    Raises:
        ProblemError: it is something else.
    """
    values = record.get(name)
    if not values:
        return ()
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
        raise ProblemError(f'"{name}" must be a list of strings')
    return tuple(values)


def _entries(record: dict[str, Any], name: str) -> list[Any]:
    entries = record.get(name)
    if entries is None:
        return []
    if not isinstance(entries, list):
        raise ProblemError(f'"{name}" must be a list')
    return entries


def _tests(record: dict[str, Any], max_tests: int) -> tuple[Test, ...]:
    entries = _entries(record, "tests")[:max_tests]
    return tuple(stdin_test(entry, f"test {index}") for index, entry in enumerate(entries, 1))


def stdin_test(entry: Any, title: str) -> Test:
    """The test in an object with ``input`` and ``output``.

    Raises:
        ProblemError: it is none, or its output is empty; the message begins with ``title``.
    """
    if not isinstance(entry, dict):
        raise ProblemError(f'{title} must be an object with "input" and "output"')
    given, expected = entry.get("input"), entry.get("output")
    if not isinstance(given, str) or not isinstance(expected, str):
        raise ProblemError(f'{title} needs the strings "input" and "output"')
    if not expected or expected.isspace():
        raise ProblemError(f"{title}: the expected output is empty, so a program that prints nothing passes")
    return Test(given, expected)


def security_tests_of(record: dict[str, Any], kind: Kind = "stdin") -> tuple[SecurityTest, ...]:
    """All security tests of a record; unlike tests, the first ones do not stand for the others.

    Raises:
        ProblemError: one is malformed.
    """
    found = []
    for index, entry in enumerate(_entries(record, "security_tests"), 1):
        title = f"security test {index}"
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"].strip():
            raise ProblemError(f'{title} needs a "name"')
        cwe = entry.get("cwe")
        if isinstance(cwe, bool) or not isinstance(cwe, int) or cwe < 1:
            raise ProblemError(f'{title}: "cwe" must be the number of a weakness, such as 89')
        misplaced = {"input", "output", "forbidden"} if kind == "call" else {"assertion"}
        if misplaced & entry.keys():
            names = " and ".join(map(json.dumps, sorted(misplaced & entry.keys())))
            raise ProblemError(f'{title} has {names}, which is not for "kind": "{kind}"')
        if kind == "call":
            found.append(SecurityTest(entry["name"], cwe, assertion=_security_assertion(entry, title)))
        elif "forbidden" in entry:
            found.append(SecurityTest(entry["name"], cwe, _input(entry, title), forbidden=_forbidden(entry, title)))
        elif "output" in entry:
            test = stdin_test(entry, title)
            found.append(SecurityTest(entry["name"], cwe, test.input, test.output))
        else:
            raise ProblemError(f'{title} needs "output" or "forbidden"')
    return tuple(found)


def _security_assertion(entry: dict[str, Any], title: str) -> str:
    assertion = entry.get("assertion")
    if not isinstance(assertion, str) or not assertion.strip():
        raise ProblemError(f'{title} needs an "assertion"')
    fault = fault_of_assertion(assertion)
    if fault is not None:
        raise ProblemError(f"{title}: the {fault}. Write: assert CONDITION, or assert raises(CALL, ERROR)")
    return assertion


def _security_record(test: SecurityTest) -> dict[str, Any]:
    record: dict[str, Any] = {"name": test.name, "cwe": test.cwe}
    if test.assertion:
        return record | {"assertion": test.assertion}
    judged = {"forbidden": test.forbidden} if test.forbidden else {"output": test.output}
    return record | {"input": test.input} | judged


def _input(entry: dict[str, Any], title: str) -> str:
    if not isinstance(entry.get("input"), str):
        raise ProblemError(f'{title} needs the string "input"')
    return str(entry["input"])


def _forbidden(entry: dict[str, Any], title: str) -> str:
    """Text that the input does not contain: a program may print what it was given."""
    forbidden = entry["forbidden"]
    if not isinstance(forbidden, str) or not forbidden.strip():
        raise ProblemError(f'{title}: "forbidden" is empty; it must be text that no secure program prints')
    if "output" in entry:
        raise ProblemError(f'{title} has "output" and "forbidden", and needs one of them')
    if contains(entry["input"], forbidden):
        raise ProblemError(f"{title}: the input contains the forbidden text, so a program that repeats it fails")
    return forbidden


def _assertions(record: dict[str, Any], max_tests: int) -> tuple[str, ...]:
    assertions = texts(record, "assertions")[:max_tests]
    for index, assertion in enumerate(assertions, 1):
        if not assertion.strip():
            raise ProblemError(f"assertion {index} is empty, so every program passes")
        if "assert" not in assertion and only_compares(assertion):
            raise ProblemError(f"assertion {index} asserts nothing. Write: assert {assertion.strip()[:80]}")
    return assertions
