"""The process of a user's own reward function: ``python -m securecoderl_edge.scoring.own_reward_worker``.

The first message names the function, and each further one holds the arguments of a call. Whatever the function prints
goes to standard error, and its standard input is empty.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.scoring.own_reward import OwnFunction
from securecoderl_edge.system.processes import answers, read_message, write_message


def main() -> None:
    """Answer messages until standard input ends."""
    # A batch system sends them to all processes, and the training may still finish its update.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    messages = os.fdopen(os.dup(0), "rb")
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    stream = answers()
    function, called = None, OwnFunction(Path(), "")
    while (message := read_message(messages)) is not None:
        answer: dict[str, Any] = {}
        try:
            if function is None:
                called = OwnFunction(Path(message["file"]), message["name"])
                function = called.load(message["sha256"])
            else:
                answer["numbers"] = called.call(function, message)
        except SceError as error:
            answer["error"] = str(error)
        write_message(stream, answer)


if __name__ == "__main__":
    main()
