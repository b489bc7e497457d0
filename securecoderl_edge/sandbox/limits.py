"""Limits on the resources of a program."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from securecoderl_edge.config import setting

# The compiler works on untrusted text too; its bounds are fixed, so that "parses" depends on no problem's
# limits.
COMPILE_CPU_SECONDS = 5.0
COMPILE_MEMORY_MIB = 1024
STDERR_TAIL_BYTES = 2048
# Outputs of all tests of a program are held until they are judged, in up to four bytes each; tests can be thousands.
OUTPUTS_OF_A_PROGRAM = 64
# A day and a tebibyte: far beyond what a test needs, far below where the system's clocks and limits overflow.
MAX_WALL_SECONDS = 86_400.0
MAX_MEMORY_MIB = 1 << 20
# Each is a process of some 30 to 90 MiB.
MAX_WORKERS = 512


def workers_setting(what: str) -> Any:
    """The setting for how many of these are worked on at the same time."""
    help = f"{what} at the same time.  [default: one per core]"
    return setting(None, help, minimum=1, maximum=MAX_WORKERS, metavar="N")


@dataclass(frozen=True)
class Limits:
    """Bounds of one test run.

    Attributes:
        cpu_seconds: CPU time, so that a busy machine does not change a verdict.
        wall_seconds: wall time without that in which it waits for a core; stops programs that sleep or wait.
        memory_mib: address space (``RLIMIT_AS``), including the 50 MiB of the interpreter; for programs in C, which
            reserve far more addresses, memory in use.
        output_bytes: the most that stdout, and separately stderr, may hold; all tests of a program may write
            `OUTPUTS_OF_A_PROGRAM` times as much.
    """

    cpu_seconds: float = 5.0
    wall_seconds: float = 10.0
    memory_mib: int = 1024
    output_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        if not (self.cpu_seconds > 0 and self.wall_seconds > 0):
            raise ValueError("cpu_seconds and wall_seconds must be positive")
        if self.memory_mib < 128:
            raise ValueError("memory_mib must be at least 128, of which the interpreter needs about half")
        if self.output_bytes < 1:
            raise ValueError("output_bytes must be at least 1")

    def slower(self, factor: float) -> Limits:
        """Limits for the same work on a CPU that is slower by ``factor``."""
        wall = min(self.wall_seconds * factor, MAX_WALL_SECONDS)
        return replace(self, cpu_seconds=self.cpu_seconds * factor, wall_seconds=wall)


# Of rewards for training: policies write many endless loops.
TRAINING_LIMITS = Limits(cpu_seconds=2.0, wall_seconds=10.0, memory_mib=512)
