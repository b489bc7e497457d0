"""What a program names is imported by its supervisor only if that does nothing but define names."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import execute

from securecoderl_edge.sandbox import SandboxPool
from securecoderl_edge.sandbox.inside.confinement import NEVER_IMPORTED, only_defines

ACTING = [
    "antigravity", "asyncio.__main__", "ensurepip.__main__", "idlelib.pyshell", "json.__main__", "sqlite3.__main__",
    "this", "turtle", "turtledemo.clock", "unittest.__main__", "unittest.test", "venv.__main__", "zipfile.__main__",
]  # fmt: skip


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxPool]:
    with SandboxPool(workers=1) as opened:
        yield opened


@pytest.mark.parametrize("module", ACTING)
def test_a_module_that_acts_is_not_imported_where_its_import_never_runs(module: str, sandbox: SandboxPool) -> None:
    package, _, last = module.rpartition(".")
    ways = [f"import {module}", f"import {module} as m", f"from {module} import *", f"from {module} import main"]
    ways += [f"from {package} import {last}"] if package else []
    for way in ways:
        body = f"if 0:\n    {way}" if "*" in way else f"def f():\n    {way}\nclass C:\n    def g(self):\n        {way}"
        execution = execute(sandbox, f"{body}\nimport sys\nprint({module!r} in sys.modules)")
        assert (execution.stdout, execution.stderr) == ("False\n", ""), way


def test_a_program_that_does_import_one_hears_what_it_does(sandbox: SandboxPool) -> None:
    assert execute(sandbox, "import this").stdout.startswith("The Zen")
    assert "unittest" in execute(sandbox, "import unittest.__main__").stderr


@pytest.mark.parametrize(
    "name", ["os.path", "xml.etree.ElementTree", "unittest.mock", "doctest", "json.tool", "_bisect"]
)
def test_modules_that_programs_use_are_imported_for_them(name: str) -> None:
    assert only_defines(name)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_no_other_module_of_the_standard_library_acts(tmp_path: Path) -> None:
    """Each in a process of its own, whose system calls for files, processes and connections Python itself reports."""
    python = getattr(sys, "_base_executable", sys.executable)
    script = EACH_MODULE.replace("NEVER_IMPORTED", repr(sorted(NEVER_IMPORTED)))
    environment = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
    done = subprocess.run(
        [python, "-s", "-S", "-B", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["tried"] > 400
    assert report["acting"] == {}
    assert list(tmp_path.iterdir()) == []


EACH_MODULE = textwrap.dedent("""
    import atexit, collections, importlib, io, json, os, random, re, signal, sys, threading, traceback, typing, warnings
    warnings.simplefilter("ignore")
    HOME, names = os.path.dirname(os.__file__), set(sys.stdlib_module_names)
    for folder, folders, files in os.walk(HOME):
        folders[:] = [each for each in folders if os.path.exists(os.path.join(folder, each, "__init__.py"))]
        inner = [os.path.relpath(os.path.join(folder, file), HOME) for file in files if folder != HOME]
        names.update(each[:-3].replace("/", ".").removesuffix(".__init__") for each in inner if each.endswith(".py"))
    names = [each for each in sorted(names) if each.split(".")[0] in sys.stdlib_module_names]
    names = [each for each in names if not set(each.split(".")) & set(NEVER_IMPORTED)]
    ACTS = ("subprocess", "socket", "webbrowser", "shutil", "tempfile", "urllib", "signal", "pty")
    CALLS = ("chdir", "exec", "fork", "forkpty", "kill", "killpg", "link", "mkdir", "posix_spawn", "putenv", "remove",
             "rename", "rmdir", "spawn", "symlink", "system", "truncate", "unsetenv")
    def state():
        streams = [id(each) for each in (sys.stdin, sys.stdout, sys.stderr, sys.excepthook, sys.displayhook)]
        handlers = [str(signal.getsignal(number)) for number in range(1, 32)]
        return [streams, handlers, threading.active_count(), dict(os.environ), os.getcwd(), list(sys.path),
                sys.getrecursionlimit(), len(os.listdir("/proc/self/fd"))]
    def what_it_does(name):
        events, watching = [], [True]
        def hook(event, arguments):
            first, _, last = event.partition(".")
            if not watching or event in ("os.listdir", "os.scandir"):
                return
            if event == "open":
                path, _, flags = arguments
                is_own = isinstance(path, str) and path.startswith(HOME)
                if flags & (os.O_WRONLY | os.O_RDWR) or not is_own:
                    events.append(f"open {path}")
            elif first in ACTS or (first == "os" and last in CALLS) or event == "_thread.start_new_thread":
                events.append(f"{event} {arguments}"[:99])
        before = state()
        sys.addaudithook(hook)
        sys.stdout.flush()
        kept, sys.stdout, sys.stderr = (sys.stdout, sys.stderr), io.StringIO(), io.StringIO()
        before[0][1:3] = id(sys.stdout), id(sys.stderr)
        try:
            importlib.import_module(name)
        except Exception:
            pass  # it is not there, or for another system
        except BaseException as error:
            events.append(f"raises {type(error).__name__}")
        watching.clear()
        if state() != before:
            events.append(f"changes {[now for then, now in zip(before, state()) if then != now]}"[:199])
        if sys.stdout.getvalue() or sys.stderr.getvalue():
            events.append("prints")
        return events
    acting = {}
    for name in names:
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.close(reading)
            found = what_it_does(name)
            os.write(writing, json.dumps(found).encode()[:4000])
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as answer:
            text = answer.read()
        os.wait()
        if not text:
            acting[name] = "ended the process"
        elif json.loads(text):
            acting[name] = json.loads(text)
    print(json.dumps({"tried": len(names), "acting": acting}))
""")
