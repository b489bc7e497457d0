"""Child process: whether training can use a device, so that the parent does not hold memory of a GPU."""

from __future__ import annotations

from securecoderl_edge.errors import SceError
from securecoderl_edge.system import processes
from securecoderl_edge.system.processes import write_message


def main() -> None:
    """Answer a request ``{"device"}`` with ``{"error"}``, empty if the device can be used."""
    request, answers = processes.request(), processes.answers()
    from securecoderl_edge.models.device import choose_device

    problem = ""
    try:
        choose_device(request["device"])
    except SceError as error:
        problem = str(error)
    write_message(answers, {"error": problem})


if __name__ == "__main__":
    main()
