"""The devices that a user can ask for; without torch."""

from __future__ import annotations

from securecoderl_edge.config import setting

DEVICES = ("auto", "cpu", "cuda")


def device_setting(default: str = "auto") -> str:
    """The setting of `DEVICES`."""
    found: str = setting(
        default, "Device to compute on. auto: an NVIDIA GPU if a test on it succeeds, else the CPU.", choices=DEVICES
    )
    return found
