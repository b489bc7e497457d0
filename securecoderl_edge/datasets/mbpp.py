"""MBPP, one JSON object a line: text, code, task_id, test_list, test_setup_code.

The full set and the sanitised one (``prompt``, ``test_imports``) are read. Each assertion is one test; the
first is shown in the statement, because many statements do not say what is returned. Source: Austin et al.
(2021), https://github.com/google-research/google-research/tree/master/mbpp
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from securecoderl_edge.datasets.fields import text, texts
from securecoderl_edge.datasets.python_source import called_function, signature
from securecoderl_edge.datasets.tally import DropRecord, MalformedRecord, Tally
from securecoderl_edge.errors import SceError
from securecoderl_edge.problems import Problem, read_jsonl

SOURCE = "mbpp"


def read(path: Path, tally: Tally) -> Iterator[Problem]:
    """Yield the problems of a file; those that cannot be used are counted in ``tally``.

    Raises:
        SceError: a line is not JSON or no MBPP record.
    """
    for number, record in read_jsonl(path):
        try:
            yield _problem(record)
        except MalformedRecord as error:
            raise SceError(f"{path}:{number}: not an MBPP record: {error}") from None
        except DropRecord as reason:
            tally.drop(f"{path.name}:{number}", str(reason))


def _problem(record: Any) -> Problem:
    if not isinstance(record, dict) or "task_id" not in record or "test_list" not in record:
        raise MalformedRecord('it needs "task_id" and "test_list"')
    statement = (text(record, "text") or text(record, "prompt")).strip()
    code = text(record, "code").replace("\r\n", "\n")
    tests = [test.replace("\r\n", "\n").strip() for test in texts(record, "test_list") if test.strip()]
    if not statement:
        raise DropRecord("no statement")
    if not tests:
        raise DropRecord("no tests")
    names = [called_function(test, code) for test in tests]
    name = next((name for name in names if name), None)
    if name is None:
        raise DropRecord("tests call no function")
    imports = "\n".join(texts(record, "test_imports"))
    setup = f"{imports}\n{text(record, 'test_setup_code')}".replace("\r\n", "\n").strip()
    header = signature(code, name) or name
    return Problem(
        id=f"{SOURCE}/{record['task_id']}",
        statement=f"{statement}\n\nWrite the function `{header}`. For example:\n{tests[0]}",
        kind="call",
        entry_point=name,
        assertions=tuple(f"{setup}\n{test}" if setup else test for test in tests),
        solutions=(code,) if code.strip() else (),
        source=SOURCE,
    )
