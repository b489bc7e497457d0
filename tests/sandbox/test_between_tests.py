"""Between two tests nothing is left: neither for the next test of the same program, nor for the next program."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from hostile import descendants

from securecoderl_edge.sandbox import FunctionCall, SandboxPool
from securecoderl_edge.sandbox.inside import lockdown, rehearsal

PROGRAM = """
import atexit, builtins, gc, linecache, math, os, random, resource, signal, sys, threading, time, warnings

def look():
    try:
        return {look}
    except Exception as error:
        return type(error).__name__

def is_open(descriptor):
    try:
        return bool(os.fstat(descriptor))
    except OSError:
        return False

print(look(), flush=True)
try:
    {leave}
except (OSError, ValueError):
    pass
print(look(), flush=True)
os._exit(0)
"""
# What a program tries to leave, and where the next one looks for it.
LEFT = {
    "a global": ("globals()['left'] = 1", "'left' in globals()"),
    "a builtin": ("builtins.left = 1", "hasattr(builtins, 'left')"),
    "a module": ("sys.modules['left'] = sys", "'left' in sys.modules"),
    "a changed module": ("math.sqrt = None", "math.sqrt(4)"),
    "an environment variable": ("os.environ['LEFT'] = '1'", "os.environ.get('LEFT')"),
    "an open descriptor": ("os.dup2(1, 40)", "[each for each in range(4096) if is_open(each)]"),
    "a read input": ("sys.stdin.read()", "os.lseek(0, 0, os.SEEK_CUR)"),
    "random numbers": ("random.random()", "random.getstate()[1][-1]"),
    "a recursion limit": ("sys.setrecursionlimit(7777)", "sys.getrecursionlimit()"),
    "a signal handler": ("signal.signal(signal.SIGUSR1, signal.SIG_IGN)", "signal.getsignal(signal.SIGUSR1)"),
    "a warning filter": ("warnings.simplefilter('error')", "warnings.filters[0][0]"),
    "a thread": ("threading.Thread(target=time.sleep, args=(9,), daemon=True).start()", "threading.active_count()"),
    "an exit function": ("atexit.register(print)", "atexit._ncallbacks()"),
    "no garbage collection": ("gc.disable()", "gc.isenabled()"),
    "a source line": ("linecache.cache['left'] = 1", "linecache.cache"),
    "an attribute of the interpreter": ("sys.left = 1", "hasattr(sys, 'left')"),
    "another output": ("sys.stdout = sys.stderr; os.dup2(1, 2)", "sys.stdout is sys.__stdout__"),
}
# What it cannot do at all.
REFUSED = {
    "a file": ("open('/tmp/sce-left', 'w').close()", "os.path.exists('/tmp/sce-left')"),
    "a file in shared memory": ("open('/dev/shm/sce-left', 'w').close()", "os.path.exists('/dev/shm/sce-left')"),
    "a folder": ("os.mkdir('/tmp/sce-left')", "os.path.exists('/tmp/sce-left')"),
    "a working directory": ("os.chdir('/usr')", "os.getcwd()"),
    "a mode of new files": ("os.umask(0o123)", "None"),
    "a process": ("os.fork() or time.sleep(9)", "None"),
    "a session": ("os.setsid()", "None"),
    "a resource limit": ("resource.setrlimit(resource.RLIMIT_CPU, (1, 1))", "resource.getrlimit(resource.RLIMIT_CPU)"),
}


@pytest.fixture(scope="module", params=["full", "no-landlock"])
def sandbox(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    if request.param == "full" and not lockdown.landlock_version():
        pytest.skip("this kernel has no Landlock")
    with SandboxPool(workers=1, level=request.param) as opened:
        yield opened


def looks(sandbox: SandboxPool, leave: str, look: str, tests: int = 3) -> list[list[str]]:
    """What each test of a program sees before and after it has left something."""
    run = sandbox.run(PROGRAM.format(leave=leave, look=look), ["some input\n"] * tests)
    assert all(execution.clean for execution in run.executions), run
    return [execution.stdout.splitlines() for execution in run.executions]


@pytest.mark.parametrize("what", LEFT)
def test_a_test_leaves_nothing_behind(what: str, sandbox: SandboxPool) -> None:
    leave, look = LEFT[what]
    (untouched,) = looks(sandbox, "pass", look, tests=1)
    assert untouched[0] == untouched[1]
    first, *later = looks(sandbox, leave, look)
    assert first[0] == untouched[0] != first[1]
    assert later == [first, first]
    assert looks(sandbox, "pass", look, tests=1) == [untouched]


@pytest.mark.parametrize("what", REFUSED)
def test_what_would_outlive_a_test_is_refused(what: str, sandbox: SandboxPool) -> None:
    leave, look = REFUSED[what]
    first, *later = looks(sandbox, leave, look)
    assert first[0] == first[1]
    assert later == [first, first]
    assert "Error" in sandbox.run(f"import os, resource, time\n{leave}", [""]).executions[0].stderr


def test_a_test_has_three_open_descriptors(sandbox: SandboxPool) -> None:
    _, look = LEFT["an open descriptor"]
    assert looks(sandbox, "pass", look) == [["[0, 1, 2]"] * 2] * 3


def test_no_process_is_left_by_programs_that_start_some(sandbox: SandboxPool) -> None:
    for leave in (LEFT["a thread"][0], REFUSED["a process"][0], REFUSED["a session"][0]):
        looks(sandbox, leave, "None")
    (zygote,) = sandbox.idle_pids()
    assert descendants(zygote) == []


def test_a_call_leaves_nothing_for_the_next(sandbox: SandboxPool) -> None:
    program = "seen = []\ndef f(x):\n    seen.append(x)\n    return seen"
    run = sandbox.run(program, calls=[FunctionCall(f"f({number})") for number in range(3)])
    assert [execution.value for execution in run.executions] == ["[0]", "[1]", "[2]"]


def test_a_test_cannot_see_how_the_ones_before_it_ended(sandbox: SandboxPool) -> None:
    program = """
import sys
frame, seen = sys._getframe(), []
while frame := frame.f_back:
    seen += [value for value in frame.f_locals.values() if isinstance(value, str)]
print(seen)
sys.exit(77)
"""
    run = sandbox.run(program, [""] * 3)
    assert [execution.returncode for execution in run.executions] == [77] * 3
    first, *later = (execution.stdout for execution in run.executions)
    assert later == [first, first]


def test_a_test_opens_no_file_of_the_processes_above(sandbox: SandboxPool) -> None:
    """Memory files are beyond Landlock, and those of later tests are open in the supervisor."""
    program = """
import os
supervisor, zygote, seen = os.getppid(), os.getpgrp(), []
for process in (supervisor, zygote):
    for number in range(64):
        for look in (os.stat, lambda path: os.read(os.open(path, os.O_RDONLY), 99)):
            try:
                seen.append((process, number, look(f"/proc/{process}/fd/{number}")))
            except OSError:
                pass
def f(seen=seen): return seen
print(seen)
"""
    run = sandbox.run(program, ["one", "another"], calls=[FunctionCall("f()"), FunctionCall("assert f() == []", True)])
    first, second, value, assertion = run.executions
    assert (first.stdout, second.stdout) == ("[]\n", "[]\n")
    assert (value.value, assertion.value) == ("[]", "True")


def test_a_program_finds_nothing_of_the_rehearsal(sandbox: SandboxPool) -> None:
    program = "import linecache\nprint(linecache.cache, [name for name in globals() if name[0] != '_'])"
    assert sandbox.run(program, [""]).executions[0].stdout == "{} ['linecache']\n"


def test_the_typical_program_of_the_rehearsal_runs_to_its_end() -> None:
    done = subprocess.run([sys.executable, "-c", rehearsal.TYPICAL], input=rehearsal.INPUT, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
