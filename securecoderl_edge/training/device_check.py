"""Child process: whether training can use a device, so that the parent does not hold memory of a GPU."""

from __future__ import annotations

from typing import Any

from securecoderl_edge.system.processes import serve_once


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """``{"error"}``, empty if the device can be used."""
    from securecoderl_edge.models.device import choose_device

    choose_device(request["device"])
    return {"error": ""}


if __name__ == "__main__":
    serve_once(_answer)
