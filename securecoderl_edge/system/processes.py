"""Starting a module of this package as a fresh Python process."""

from __future__ import annotations

import json
import os
import signal
import sys

_START = (
    "import sys, json, runpy; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "del sys.argv[0]; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


def module_command(module: str) -> list[str]:
    """The command line that runs ``module`` with the imports of this process; the module's own arguments can follow.

    ``python -m`` would search the current folder first, where a user may have a ``queue.py`` of their own.
    """
    paths = [path for path in sys.path if path]
    return [sys.executable, "-c", _START, json.dumps(paths), module]


def child_environment() -> dict[str, str]:
    """Our environment with what llama.cpp needs in a child; what the user has set stays.

    OpenMP threads that spin for long while they wait bring decoding down to a tenth when other programs use
    the CPU too; and ggml would start a debugger for a backtrace when it aborts.
    """
    return {"GOMP_SPINCOUNT": "1000", "GGML_NO_BACKTRACE": "1", **os.environ}


def describe_end(status: int) -> str:
    """How a process with this return code ended: ``signal SIGKILL``, ``exit status 1``."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:  # most real-time signals have no name
        return f"signal {-status}"
