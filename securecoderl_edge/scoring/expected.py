"""Expected outputs for data sets that have none: what a reference solution returns in the sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from securecoderl_edge.problems.datasets.evalplus_tests import Answer, Evaluate
from securecoderl_edge.sandbox import Execution, FunctionCall, Limits, SandboxPool

# A batch of inputs may take the reference solution this long.
LIMITS = Limits(cpu_seconds=30, wall_seconds=60)
_FAULTS = {"cpu": "exceeds the time limit", "wall": "exceeds the time limit", "memory": "exceeds the memory limit"}


@contextmanager
def reference_outputs(sandbox: str = "auto", limits: Limits = LIMITS) -> Iterator[Evaluate]:
    """Yield a function that evaluates an expression after a program has run, in the sandbox.

    Raises:
        SceError: this system does not offer the sandbox level.
    """
    with SandboxPool(1, limits, sandbox) as pool:

        def evaluate(program: str, entry_point: str, expression: str) -> Answer:
            run = pool.run(program, calls=[FunctionCall(expression, entry_point=entry_point)])
            return _answer(run.executions[0]) if run.parses else Answer(None, "does not parse")

        yield evaluate


def _answer(execution: Execution) -> Answer:
    if execution.clean and execution.value is not None:
        return Answer(execution.value, cpu_seconds=execution.cpu_seconds)
    if execution.stopped_by == "output":
        return Answer(None, "prints or returns too much", is_too_long=True, cpu_seconds=execution.cpu_seconds)
    return Answer(None, _FAULTS.get(execution.stopped_by, "fails"))
