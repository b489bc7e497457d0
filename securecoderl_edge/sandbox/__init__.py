"""Runs untrusted programs: no root, no containers, a few milliseconds a test.

Stops: reading files outside the Python library, writing anywhere, network, other processes, signals, and
using more CPU, time, memory or output than allowed. Does not stop: asking whether a path exists, side
channels, bugs of the kernel.
"""

from __future__ import annotations

from securecoderl_edge.sandbox.layers import Level, as_choice, choose_level, describe_layers
from securecoderl_edge.sandbox.limits import Limits
from securecoderl_edge.sandbox.pool import SandboxPool
from securecoderl_edge.sandbox.records import Call, Execution, Job, ProgramRun

__all__ = [
    "Call",
    "Execution",
    "Job",
    "Level",
    "Limits",
    "ProgramRun",
    "SandboxPool",
    "as_choice",
    "choose_level",
    "describe_layers",
]
