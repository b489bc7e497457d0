"""Runs untrusted programs and scans them with Bandit: no root, no containers, one or two milliseconds per test.

Three processes, whose files are in `inside/`:

    zygote   a fresh interpreter without our environment, under the first seccomp filter    `zygote`
    box      one per program: compiles it, under Landlock, and supervises its tests          `supervision`
    test     one per test: the program, under the second filter and resource limits          `testprocess`, `script`

Stops: reading files outside the Python library, writing anywhere, network, other processes, signals to any but
itself, and using more CPU time, wall time, memory, threads or output than allowed. `confinement` defines the layers of
each level.

Does not stop: asking whether a path exists, using a core until a limit is reached, side channels, bugs of the
kernel. The level ``macos`` is untested; ``off`` stops only overuse. SECURITY.md documents this for users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from securecoderl_edge.sandbox.inside.testprocess import literal
from securecoderl_edge.sandbox.jobs import Execution, FunctionCall, ProgramRun, SandboxJob
from securecoderl_edge.sandbox.levels import Level, choose_level, describe_levels
from securecoderl_edge.sandbox.limits import Limits

if TYPE_CHECKING:
    from securecoderl_edge.sandbox.pool import SandboxPool

__all__ = [
    "Execution",
    "FunctionCall",
    "Level",
    "Limits",
    "ProgramRun",
    "SandboxJob",
    "SandboxPool",
    "choose_level",
    "describe_levels",
    "literal",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "SandboxPool":  # settings and --help do not need the code that starts processes
        from securecoderl_edge.sandbox.pool import SandboxPool

        return SandboxPool
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
