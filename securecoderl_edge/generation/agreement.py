"""Choice among programs that no test tells apart: what others give as well is more often right.

The programs run on inputs in the sandbox; the one whose results most others share wins: minimum Bayes risk (Shi et al.,
"Natural language to code translation with execution", EMNLP 2022). Unlike the largest group of programs that agree on
everything (AlphaCode), it allows for inputs outside of what the problem asks for, on which right programs differ. The
expected results that the model writes, which CodeT counts (Chen et al., ICLR 2023), are not used.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from securecoderl_edge.problems.problem import Problem, Test
from securecoderl_edge.system.processes import result_of

if TYPE_CHECKING:
    from securecoderl_edge.sandbox import Execution
    from securecoderl_edge.scoring.scorer import Scorer

# Of one input: it is not worth to wait longer.
_SECONDS = 1.0
_FLOAT = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")

Result = tuple[str, ...]


def results_on(
    scorer: Scorer, problem: Problem, inputs: Sequence[str], programs: Sequence[str]
) -> dict[str, tuple[Result, ...]]:
    """What each program gives for each input; a run that fails has a result as well."""
    if problem.kind == "call":
        asked = replace(problem, assertions=tuple(f"assert {each} == None" for each in inputs), security_tests=())
    else:
        asked = replace(problem, tests=tuple(Test(each, "?") for each in inputs), security_tests=(), checker="")
    asked = replace(asked, time_limit_s=_SECONDS)
    distinct = list(dict.fromkeys(programs))
    futures = [scorer.inspect_async(asked, program) for program in distinct]
    runs = [result_of(future)[1] for future in futures]
    return {
        program: tuple(_result(each) for each in run.executions) for program, run in zip(distinct, runs, strict=True)
    }


def _result(execution: Execution) -> Result:
    if execution.raised:
        return ("raises", execution.raised[0])
    if execution.stopped_by or (not execution.clean and execution.value is None):
        return ("fails",)
    text = execution.stdout if execution.value is None else execution.value
    return ("gives", *(_FLOAT.sub(_rounded, line.rstrip()) for line in text.rstrip().split("\n")))


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match[0]):.6g}"


def agreement(programs: Sequence[str], results: dict[str, tuple[Result, ...]]) -> list[float]:
    """For each program, the share of the others that give the same value, on average over inputs: 0 to 1.

    A failure is no value, even if others fail as well.
    """
    given = [results[program] for program in programs]
    count = max(map(len, given), default=0)
    counts = [Counter(each[place] for each in given if len(each) > place) for place in range(count)]
    others = max(1, count * (len(programs) - 1))
    return [
        sum(counts[place][result] - 1 for place, result in enumerate(each) if result[0] == "gives") / others
        for each in given
    ]
