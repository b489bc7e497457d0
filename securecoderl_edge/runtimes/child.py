"""Starting a module of this package as a fresh Python process."""

from __future__ import annotations

import json
import os
import sys

_START = (
    "import sys, json, runpy; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv[1], run_name='__main__')"
)


def module_command(module: str) -> list[str]:
    """The command line that runs ``module`` with the imports of this process.

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
