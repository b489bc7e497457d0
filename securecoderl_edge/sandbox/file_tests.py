"""Tests of Python test files as statements; what runs them inside is `inside/filetest.py`, whose text is part of them.

A test process cannot open the files of this package, and has no pytest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path


def statement_of_file_test(file: str, source: str, modules: Sequence[str], test: str) -> str:
    """The statement that runs one test of a file on the program, as a module of these names; it raises if that fails.

    Nothing is added to the names of the program.
    """
    code = (
        "import builtins, sys\n"
        "names = {'__name__': 'filetest'}\n"
        f"builtins.exec(builtins.compile({_harness()!r}, 'filetest', 'exec'), names)\n"
        f"names['run'](sys.modules['solution'], {tuple(modules)!r}, {file!r}, {source!r}, {test!r})\n"
    )
    # In a namespace apart: the program may have a function ``compile``, and must not get names of ours.
    return f"__import__('builtins').exec({code!r}, {{}})"


@cache
def _harness() -> str:
    return Path(__file__).with_name("inside").joinpath("filetest.py").read_text(encoding="utf-8")
