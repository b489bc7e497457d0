"""A program in the sandbox runs and ends as in a plain interpreter, which is asked each time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from hostile import execute

from securecoderl_edge.sandbox import SandboxPool

# Whether a module has annotations before it annotates something.
NO_ANNOTATIONS = ("{}\n", 0) if sys.version_info < (3, 14) else ("", 1)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool(workers=1) as opened:
        yield opened


@pytest.mark.parametrize(
    ("program", "stdout", "status"),
    [
        pytest.param("print(42); exit()", "42\n", 0, id="exit"),
        pytest.param("print(42); quit(3)", "42\n", 3, id="quit"),
        pytest.param("import sys\nprint(42)\nsys.exit(2**64)", "42\n", 255, id="an exit status beyond C"),
        pytest.param("out = open(1, 'w')\nout.write('42')", "42", 0, id="a file left open"),
        pytest.param("import os\nos.fdopen(1, 'w').write('42')", "42", 0, id="a file nobody holds"),
        pytest.param("import io, sys\nprint(42)\nsys.stdout = io.StringIO()", "42\n", 0, id="another stdout"),
        pytest.param("import sys\nprint(42)\nsys.stdout = None", "42\n", 0, id="no stdout"),
        pytest.param("class A:\n    def __del__(self): print(42)\na = A()", "42\n", 0, id="__del__"),
        pytest.param("class A:\n    def __del__(self): print(42)\na = A()\na.a = a", "42\n", 0, id="a cycle"),
        pytest.param(
            "import os, sys\ndef hook(*_):\n    print(42, flush=True)\n    os._exit(0)\nsys.excepthook = hook\n1 / 0",
            "42\n", 0, id="excepthook",
        ),
        pytest.param(
            "import warnings\nwith warnings.catch_warnings(record=True) as w:\n    warnings.warn('x')\nprint(len(w))",
            "1\n", 0, id="warnings",
        ),
        pytest.param(
            "import warnings\nprint([each[0] for each in warnings.filters])",
            "['default', 'ignore', 'ignore', 'ignore', 'ignore']\n", 0, id="warning filters",
        ),
        pytest.param("eval('0is 1')\nprint(42)", "42\n", 0, id="a warning of the compiler"),
        pytest.param(
            "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (2**29, resource.RLIM_INFINITY))\nprint(42)",
            "42\n", 0, id="a larger stack",
        ),
        pytest.param("import threading\nthreading.Timer(0.01, print, (42,)).start()", "42\n", 0, id="a timer"),
        pytest.param("import atexit\natexit.register(print, 42)\nexit(5)", "42\n", 5, id="atexit"),
        pytest.param("def g():\n    try: yield\n    finally: print(42)\nh = g()\nnext(h)", "42\n", 0, id="a generator"),
        pytest.param(
            "import codecs, sys\nsys.stdout = codecs.getwriter('utf-8')(sys.stdout.detach())\nprint(42)",
            "42\n", 0, id="a writer around the bytes of stdout",
        ),
        pytest.param(
            "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\nprint(42)",
            "42\n", 0, id="a wrapper around the bytes of stdout",
        ),
        pytest.param(
            "import io, sys\nout = io.TextIOWrapper(sys.stdout.detach())\nprint(42, file=out)",
            "42\n", 120, id="a wrapper that is not stdout",
        ),
        pytest.param(
            "import sys\nclass Out:\n    def write(self, text): sys.__stdout__.write(text)\n"
            "    def flush(self): pass\nsys.stdout = Out()\nprint(42)",
            "42\n", 0, id="a stdout that does not know whether it is closed",
        ),
        pytest.param(
            "import sys\nclass Out:\n    def write(self, text): pass\nsys.stdout = Out()\nprint(42)",
            "", 120, id="a stdout that cannot be flushed",
        ),
        pytest.param(
            "x = [42]\nclass A:\n    def __del__(self): print(*x)\na = A()", "42\n", 0, id="__del__ uses a global",
        ),
        pytest.param(
            "import io, sys\nclass A:\n    def __del__(self): print(42)\na = A()\nsys.stdout = io.StringIO()",
            "42\n", 0, id="__del__ prints to the first stdout",
        ),
        pytest.param("import sys\nprint(42)\ndel sys.stdout", "42\n", 0, id="stdout deleted"),
        pytest.param(
            "import sys\nprint(42)\ndel sys.stdout, sys.__stdout__, sys.stderr", "42\n", 0, id="no streams at all",
        ),
        pytest.param(
            "import builtins\nprint(42)\nbuiltins.any = builtins.len = builtins.setattr = builtins.bool = None",
            "42\n", 0, id="builtins broken",
        ),
        pytest.param("import os\nprint(42)\nos._exit = os.write = None", "42\n", 0, id="os broken"),
        pytest.param(
            "class A:\n    def __str__(self): 1 / 0\nraise SystemExit(A())", "", 1, id="an unprintable reason",
        ),
        pytest.param("import sys\ndel sys.excepthook\nprint(42)\n1 / 0", "42\n", 1, id="no excepthook"),
        pytest.param(
            "import atexit, os\natexit.register(os._exit, 5)\nprint(42)", "42\n", 5, id="printed before atexit",
        ),
        pytest.param("import sys\nsys.modules.clear()\nprint(42)  # open", "42\n", 0, id="no modules"),
        pytest.param("x: int = 42\nprint(x)", "42\n", 0, id="annotations"),
        pytest.param("print(__annotations__)", *NO_ANNOTATIONS, id="no annotations"),
    ],
)  # fmt: skip
def test_a_program_ends_as_in_a_plain_interpreter(program: str, stdout: str, status: int, sandbox: SandboxPool) -> None:
    execution = execute(sandbox, program)
    assert (execution.stdout, execution.returncode) == (stdout, status), execution.stderr
    plain = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (plain.stdout, plain.returncode) == (stdout, status)
