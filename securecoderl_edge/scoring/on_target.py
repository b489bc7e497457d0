"""A program in C on the target of its problem: built, measured, and run on the emulated board.

It runs natively first, where sanitizers watch it. A test passes if it passes there and on the target, so only tests
that pass natively are repeated. Security tests run natively alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from securecoderl_edge.problems.problem import Problem
from securecoderl_edge.sandbox import Limits, ProgramRun, SandboxPool
from securecoderl_edge.scoring.reward import Outcome, outcome, over_budget


def on_target(
    pool: SandboxPool,
    problem: Problem,
    program: str,
    native: ProgramRun,
    outcomes: Sequence[Outcome],
    limits: Limits,
    is_cancelled: Callable[[], bool],
) -> tuple[ProgramRun, list[Outcome]]:
    """The run and the outcomes of tests, both from the target where a test passed natively.

    Args:
        native: a run that compiled, its executions those of the tests and of any others. outcomes: of the tests.

    Raises:
        SceError: this machine has no tools for the target; see `SandboxPool.run`.
    """
    repeated = [index for index, each in enumerate(outcomes) if each.verdict == "pass"]
    built = pool.run(
        program,
        [problem.tests[index].input for index in repeated],
        limits,
        is_cancelled=is_cancelled,
        language=problem.target,
        driver=problem.driver_apart,
        entry_point=problem.entry_point or "",
    )
    if not built.parses:
        return ProgramRun(False, f"for {problem.target}: {built.error}"), []
    executions, judged = list(native.executions), list(outcomes)
    for index, execution in zip(repeated, built.executions, strict=False):
        judged[index] = outcome(execution, problem.tests[index].output, problem.rule)
        seconds = execution.cpu_seconds + executions[index].cpu_seconds
        executions[index] = replace(execution, cpu_seconds=seconds, on_target=True)
    run = replace(native, executions=tuple(executions), footprint=built.footprint)
    # Without a footprint its processes were killed, and it has passed nothing.
    broken = problem.budget.broken_by(built.footprint) if built.footprint is not None else ()
    return run, over_budget(judged, len(broken))
