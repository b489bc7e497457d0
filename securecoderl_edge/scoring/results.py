"""What programs give for inputs, without a judgement: to compare them with each other."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from securecoderl_edge.problems.problem import Problem, Test

if TYPE_CHECKING:
    from securecoderl_edge.sandbox import Execution
    from securecoderl_edge.scoring.scorer import Scorer

_SECONDS = 1.0  # of one input
_LONGEST = 1 << 16  # characters of a result that are compared
_FLOAT = re.compile(r"-?(?<!\d)\d++\.\d+(?:e[-+]?\d+)?")


def results_on(
    scorer: Scorer, problem: Problem, inputs: Sequence[str], programs: Sequence[str]
) -> dict[str, tuple[str | None, ...]]:
    """What each program gives for each input: the text of a value, or of its output; None for a run that fails.

    Numbers with a decimal point are rounded to six digits, and space at the end of lines is left out.

    Args:
        inputs: calls of the function of a call problem; else texts that a program reads.
    """
    if problem.kind == "call":
        asked = replace(problem, assertions=tuple(f"assert {each} == None" for each in inputs), security_tests=())
    else:
        asked = replace(problem, tests=tuple(Test(each, "?") for each in inputs), security_tests=(), checker="")
    asked = replace(asked, time_limit_s=_SECONDS)
    futures = {program: scorer.inspect_async(asked, program) for program in programs}
    # Each run is given up once it is read: it holds megabytes of output.
    return {
        program: tuple(_result(each) for each in scorer.result_of(futures.pop(program))[1].executions)
        for program in list(futures)
    }


def _result(execution: Execution) -> str | None:
    if execution.stopped_by or (not execution.clean and execution.value is None):
        return None
    text = (execution.stdout if execution.value is None else execution.value)[:_LONGEST]
    return "\n".join(_FLOAT.sub(_rounded, line.rstrip()) for line in text.rstrip().split("\n"))


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match[0]):.6g}"
