"""Which isolation this system offers."""

from __future__ import annotations

import platform
import sys
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.sandbox.seccomp import AUDIT_ARCHITECTURES


def describe_layers() -> dict[str, Any]:
    """The layers that programs run under: ``level`` is ``full``, or ``no-landlock`` on kernels without it.

    Without Landlock a program still cannot write, connect, fork or signal, but it can read files that this
    user can read; do not publish its raw output then.

    Raises:
        SceError: not Linux, an unknown processor, or a kernel without seccomp: programs cannot be isolated.
    """
    machine = platform.machine()
    if sys.platform != "linux":
        raise SceError(f"programs can only be run on Linux, not on {sys.platform}; use a Linux machine or container")
    if machine not in AUDIT_ARCHITECTURES:
        known = " and ".join(AUDIT_ARCHITECTURES)
        raise SceError(f"programs cannot be isolated on {machine}: system call numbers are known for {known} only")
    from securecoderl_edge.sandbox import lockdown

    if not lockdown.has_seccomp():
        raise SceError("programs cannot be isolated: this kernel has no seccomp (CONFIG_SECCOMP_FILTER)")
    landlock = lockdown.landlock_version()
    return {
        "level": "full" if landlock else "no-landlock",
        "seccomp": True,
        "landlock_abi": landlock,
        "machine": machine,
        "python": platform.python_version(),
    }
