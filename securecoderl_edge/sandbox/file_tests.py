"""Tests of Python test files as calls: what runs them inside is `inside/filetest.py`, whose text is a part of the call.

A test process cannot open the files of this package, and has no pytest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from securecoderl_edge.sandbox.jobs import FunctionCall
from securecoderl_edge.sandbox.worker import INSIDE


def call_of_file_test(file: str, source: str, modules: Sequence[str], test: str) -> FunctionCall:
    """The call that runs one test of a file on the program, as a module of these names; it holds if the test passes.

    Nothing is added to the names of the program, and none is defined for it beforehand.
    """
    code = (
        "import builtins, sys\n"
        "names = {'__name__': 'filetest'}\n"
        f"builtins.exec(builtins.compile({_harness()!r}, 'filetest', 'exec'), names)\n"
        f"names['run'](sys.modules['solution'], {tuple(modules)!r}, {file!r}, {source!r}, {test!r})\n"
    )
    # In a namespace apart: the program may have a function ``compile``, and must not get names of ours.
    return FunctionCall(f"__import__('builtins').exec({code!r}, {{}})", is_assertion=True, prelude="")


@cache
def _harness() -> str:
    return (INSIDE / "filetest.py").read_text(encoding="utf-8")
