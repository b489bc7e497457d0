"""The levels of isolation, and the choice of one that this system offers."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any, Literal

from securecoderl_edge.config import setting
from securecoderl_edge.errors import SceError
from securecoderl_edge.sandbox.inside.seccomp import AUDIT_ARCHITECTURES

Level = Literal["full", "no-landlock", "macos", "off"]
SANDBOX_CHOICES = ("auto", "full", "no-landlock", "off")
LEVELS: dict[str, str] = {
    "full": "seccomp and Landlock: no network, no processes, no writes; reads of the Python library only",
    "no-landlock": "seccomp without Landlock: like full, but a test cannot open any file, not even the Python library",
    "macos": "Seatbelt: designed to match full, untested on a Mac; run the self-test of `sce doctor` first",
    "off": "only limits on time and memory: programs can do everything that you can",
}
OFF_HINT = "see `sce doctor`, or use --sandbox off to run programs without isolation"


def choose_level(choice: str = "auto") -> Level:
    """The level that programs run under: the best available one for ``auto``, else the one that is named.

    Raises:
        ValueError: unknown choice.
        SceError: this system does not offer it; ``auto`` never means ``off``.
    """
    if choice not in SANDBOX_CHOICES:
        raise ValueError(f"sandbox must be one of {', '.join(SANDBOX_CHOICES)}, not {choice!r}")
    if not hasattr(os, "fork"):
        raise SceError(f"cannot run programs on {sys.platform}: it has no fork; use Linux, macOS or WSL")
    if choice == "off":
        return "off"
    if sys.platform == "darwin" and choice == "auto":
        return "macos"
    _demand_seccomp()
    has_landlock = landlock_abi() > 0
    if choice == "full" and not has_landlock:
        raise SceError("--sandbox full: this kernel has no Landlock; use --sandbox no-landlock")
    return "full" if has_landlock and choice != "no-landlock" else "no-landlock"


def named_choice(choice: str) -> str:
    """The choice for other machines, which ``auto`` would let offer less than this one; errors as `choose_level`."""
    level = choose_level(choice)
    return level if level in SANDBOX_CHOICES else "full"


def describe_levels(choice: str = "auto") -> dict[str, Any]:
    """The isolation that programs run under, as a JSON object; for records of runs and for `sce doctor`.

    Raises:
        SceError: as `choose_level`.
    """
    level = choose_level(choice)
    layers: dict[str, Any] = {"level": level, "seccomp": level in ("full", "no-landlock"), "landlock_abi": 0}
    if level == "full":
        layers["landlock_abi"] = landlock_abi()
    return layers | {"machine": platform.machine(), "python": platform.python_version()}


def landlock_abi() -> int:
    """The version of Landlock in this kernel; 0 without it."""
    # Imported here: it looks system calls up in the C library, which other systems do not have.
    from securecoderl_edge.sandbox.inside import lockdown

    return lockdown.landlock_version()


def has_seccomp() -> bool:
    """Whether this kernel filters system calls."""
    from securecoderl_edge.sandbox.inside import lockdown

    return lockdown.has_seccomp()


def _demand_seccomp() -> None:
    machine = platform.machine()
    if sys.platform != "linux":
        raise SceError(f"cannot isolate programs on {sys.platform}; {OFF_HINT}")
    if machine not in AUDIT_ARCHITECTURES:
        known = " and ".join(AUDIT_ARCHITECTURES)
        raise SceError(f"cannot isolate programs on {machine}: only {known} are supported; {OFF_HINT}")
    if not has_seccomp():
        raise SceError(f"cannot isolate programs: this kernel has no seccomp (CONFIG_SECCOMP_FILTER); {OFF_HINT}")


def sandbox_setting() -> Any:
    """The setting for the isolation level of programs."""
    return setting(
        "auto",
        "Isolation level of programs; auto: the best that this system offers; off: none.",
        choices=SANDBOX_CHOICES,
    )
