"""Runs untrusted programs, and has Bandit read them: no root, no containers, a millisecond or two a test.

Three processes, whose files are in `inside/`:

    zygote   a fresh interpreter without our environment, under the first seccomp filter    `zygote`
    box      one a program: compiles it, under Landlock, and waits for its tests             `supervision`
    test     one a test: the program, under the second filter and resource limits            `testprocess`, `script`

Stops: reading files outside the Python library, writing anywhere, network, other processes, signals to any but
itself, and using more processor time, time, memory, threads or output than allowed. `confinement` says what each
level consists of.

Does not stop: asking whether a path exists, using a core until a limit is reached, side channels, bugs of the
kernel. The level ``macos`` has never been run; ``off`` stops nothing but overuse. SECURITY.md says it to users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from securecoderl_edge.sandbox.inside.testprocess import literal
from securecoderl_edge.sandbox.levels import Level, choose_level, describe_levels
from securecoderl_edge.sandbox.limits import Limits
from securecoderl_edge.sandbox.records import Call, Execution, Job, ProgramRun

if TYPE_CHECKING:
    from securecoderl_edge.sandbox.pool import SandboxPool

__all__ = [
    "Call", "Execution", "Job", "Level", "Limits", "ProgramRun", "SandboxPool", "choose_level", "describe_levels",
    "literal",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "SandboxPool":  # what starts processes is imported by those who do; settings and --help need it not
        from securecoderl_edge.sandbox.pool import SandboxPool

        return SandboxPool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
