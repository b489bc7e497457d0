"""How the problems of a benchmark are asked: our own way, and those of published results, to compare with them.

* ``sce``: HumanEval's given code; MBPP's task with the function's signature and the first assertion.
* ``evalplus``: as EvalPlus 0.3 asks models that were trained to chat, with the beginning of the answer; MBPP's task
  with the first assertion and no signature. Answers end where EvalPlus ends them. Base models continue the file.
* ``classic``: MBPP as its authors ask it, with all three assertions and no signature (Austin et al., 2021).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from securecoderl_edge.errors import UsageError
from securecoderl_edge.problems.problem import Problem

PROTOCOLS = ("sce", "evalplus", "classic")
# Of both data sets, published results have this limit.
BENCHMARK_TOKENS = 768
# Texts that end an answer in EvalPlus; the end of the code block does so as well.
EVALPLUS_STOPS = ("\nif __name__", "\ndef main(", "\nprint(")
_SOURCES = {
    "evalplus": ("humaneval", "humaneval-plus", "mbpp", "mbpp-plus"),
    "classic": ("mbpp",),
}
# What the importers make of MBPP.
_MBPP = re.compile(r"(?P<task>.*)\n\nWrite the function `[^`]+`\.(?: For example:\n(?P<example>.*))?", re.DOTALL)


def asked_as(problems: Sequence[Problem], protocol: str) -> list[Problem]:
    """The problems with their statements as in a protocol.

    Raises:
        UsageError: it is not defined for one of them.
    """
    if protocol == "sce":
        return list(problems)
    if other := next((each.id for each in problems if each.source not in _SOURCES[protocol]), None):
        sets = " or ".join(_SOURCES[protocol])
        raise UsageError(f"--protocol {protocol} is for problems of {sets}, and {other} is none. Leave it out.")
    return [_asked(problem, protocol) for problem in problems]


def _asked(problem: Problem, protocol: str) -> Problem:
    found = _MBPP.fullmatch(problem.statement)
    if found is None:
        return problem  # HumanEval's statement is its given code
    if protocol == "evalplus":
        return replace(problem, statement="\n".join(filter(None, found.group("task", "example"))))
    tests = "\n".join(problem.assertions)
    statement = f"{found['task']}\n\nYour code should pass these tests:\n{tests}"
    return replace(problem, statement=statement)
