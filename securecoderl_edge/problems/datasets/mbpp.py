"""MBPP, one JSON object per line: text, code, task_id, test_list, test_setup_code.

Reads the full set and the sanitized one (``prompt``, ``test_imports``). Each assertion is one test; the first is shown
in the statement, because many statements do not specify the return value. Source: Austin et al.
(2021), https://github.com/google-research/google-research/tree/master/mbpp
"""

from __future__ import annotations

from typing import Any

from securecoderl_edge.languages.python_source import called_function, fault_of_assertion, signature
from securecoderl_edge.problems.datasets.record_files import given_id
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally, usable_tests, with_setup
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import ProblemError, text, texts

SOURCE = "mbpp"
# The test split, which published results use: problems 11 to 510.
TEST_SPLIT = "mbpp-test"


def problem_from(record: dict[str, Any], _name: str, tally: Tally) -> Problem:
    """The problem in a record.

    Raises:
        ProblemError: it cannot be used.
    """
    number = given_id(record, ("task_id",))
    if number is None or "test_list" not in record:
        raise ProblemError('"task_id" or "test_list" is missing')
    identifier = f"{SOURCE}/{number}"
    statement = (text(record, "text") or text(record, "prompt")).strip()
    code = text(record, "code").replace("\r\n", "\n")
    written = [test.replace("\r\n", "\n").strip() for test in texts(record, "test_list") if test.strip()]
    if not statement:
        raise DropRecord("no statement")
    if not written:
        raise DropRecord("no tests")
    tests = usable_tests(written, fault_of_assertion, identifier, tally)
    names = [called_function(test, code) for test in tests]
    name = next((name for name in names if name), None)
    if name is None:
        raise DropRecord("tests do not call a function")
    imports = "\n".join(texts(record, "test_imports"))
    setup = f"{imports}\n{text(record, 'test_setup_code')}".replace("\r\n", "\n").strip()
    setup += "\n" * bool(setup)
    header = signature(code, name) or name
    return Problem(
        id=identifier,
        statement=f"{statement}\n\nWrite the function `{header}`. For example:\n{tests[0]}",
        kind="call",
        entry_point=name,
        assertions=with_setup(setup, tests),
        solutions=(code,) if code.strip() else (),
        source=SOURCE,
        tags=_split_of(record["task_id"]),
    )


def _split_of(number: Any) -> tuple[str, ...]:
    """The split of the paper that a problem belongs to."""
    splits = {"mbpp-prompt": (1, 10), TEST_SPLIT: (11, 510), "mbpp-validation": (511, 600), "mbpp-train": (601, 974)}
    place = int(number) if str(number).isdecimal() and len(str(number)) < 9 else 0
    return tuple(name for name, (first, last) in splits.items() if first <= place <= last)
