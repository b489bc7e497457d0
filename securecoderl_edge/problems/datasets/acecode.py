"""AceCode-87K, one function per record: id, question, test_cases (assertions), inferences (completion, pass_rate).

A model rewrote the questions and wrote the assertions. The reference is the first answer among the ``inferences`` that
passed all of them. Source: Zeng et al. (2025), arXiv:2502.01718.
"""

from __future__ import annotations

import re
from typing import Any

from securecoderl_edge.languages.python_source import called_function, fault_of_assertion, parse, signature
from securecoderl_edge.problems.datasets.record_files import given_id
from securecoderl_edge.problems.datasets.tally import DropRecord, Tally, usable_tests
from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.problems.problem_file import text, texts

SOURCE = "acecode"
_BLOCK = re.compile(r"^```(?:python|py)?[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


def problem_from(record: dict[str, Any], name: str, tally: Tally) -> Problem:
    """The problem in a record; errors as `mbpp.problem_from`."""
    question, identifier = text(record, "question").strip(), f"{SOURCE}/{given_id(record, ('id',)) or name}"
    written = [test.strip() for test in texts(record, "test_cases") if test.strip()]
    if not question or not written:
        raise DropRecord("no tests" if question else "no statement")
    tests = usable_tests(written, fault_of_assertion, identifier, tally)
    program = _reference(record.get("inferences"))
    function = next(filter(None, (called_function(test, program) for test in tests)), None)
    if function is None:
        raise DropRecord("tests do not call a function")
    return Problem(
        id=identifier,
        statement=f"{question}\n\nWrite the function `{signature(program, function) or function}`.",
        kind="call",
        entry_point=function,
        assertions=tuple(tests),
        solutions=(program,) if program else (),
        source=SOURCE,
    )


def _reference(inferences: Any) -> str:
    """The only block of code in the first answer that passed all tests; empty without one."""
    for each in inferences if isinstance(inferences, list) else ():
        if isinstance(each, dict) and each.get("pass_rate") == 1 and isinstance(each.get("completion"), str):
            blocks: list[str] = _BLOCK.findall(each["completion"])
            if len(blocks) == 1 and parse(blocks[0]) is not None:
                return blocks[0]
    return ""
