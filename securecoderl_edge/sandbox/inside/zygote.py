"""The zygote: a fresh interpreter that forks a box per program, which forks a process per test.

    sce --socket--> zygote --fork--> box (compiles the program once) --fork--> test process (runs it)

Run as ``python OPTIONS zygote.py SOCKET LEVEL``, see `worker`, with an empty environment. Texts and outputs stay in
memory files, which travel as descriptors: no pipes, no copies, and what one test reads is never in the memory
that another is forked from. While a box lives it speaks with sce itself; the zygote waits for it to end.

    to us    program CPU WALL MEMORY OUTPUT COMPILE_CPU COMPILE_MEMORY TESTS   [source, files of the tests]
             tests TESTS   [files of the tests]
             TESTS is LAST PRELUDE:FILES...; of each test the files are stdin, stdout, stderr, and of a call also
             request, value, releases. LAST is 1 if no more tests follow, PRELUDE is - for a program that reads stdin
    from us  ready, or failed WHY, once
             refused WHY, or for each message endings (STATUS LIMIT CPU_SECONDS)...
             gone STATUS NOTES, the wait status of the box and what `notary` noted, or - if nobody takes notes; if it is
             gone early, the source is empty if it did parse

After a fork both processes pay for every page that they write to, if only by counting references: two
microseconds each, and a test that prints a number touches a hundred and fifty. So the zygote imports no more
than most programs use and runs two of them itself (`rehearsal`), nothing runs at forks, and box and test do as
little as they can.

This file imports the standard library and, by path, its siblings; the package is not there.
"""

from __future__ import annotations

import sys

sys.path.pop(0)  # our own folder: neither we nor the programs may import from it by accident

import builtins
import ctypes
import functools
import gc
import importlib
import importlib.machinery
import os
import resource
import select
import signal
import warnings
from _socket import socket
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any, NoReturn

# Modules may register nothing that runs at each fork: ``random`` would seed itself anew, though every test is to
# see the same numbers, and ``threading`` would make new locks, though only one thread ever ran here. That would
# be half the cost of a fork.
_register_at_fork, os.register_at_fork = os.register_at_fork, lambda **_: None

# The C library's own fork. ``os.fork`` then renews locks and the state of threads in the child, which is for processes
# with more than one thread; without it a program of five tests needs 5 % less CPU time.
fork = ctypes.PyDLL(None).fork if sys.platform == "linux" else os.fork

# What programs use most, imported before the forks so that no program pays for it. Every module makes every fork
# a little dearer, so the others are imported by the box of a program that names them.
PRELOADED = (
    "bisect", "collections", "collections.abc", "functools", "heapq", "itertools", "math", "operator", "random",
    "re", "string", "threading", "traceback", "types", "typing",
)  # fmt: skip
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}  # of programs
FILTERS = warnings.filters
COMPILE_ERRORS = (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError)
ORPHAN_CHECK_MILLISECONDS = 5000
# Of our files: a program that sets builtins.len to something else is to break nothing but itself.
BUILTINS = vars(builtins).copy()
# A box only compiles and waits; far more than that is a fault of ours.
BOX_CPU_SECONDS = 120
# No core files: too little for one. Where the kernel hands cores to a program, 1 alone tells it to start none, which
# would run as root, outside of all limits, at each crash (core(5)).
CORE_BYTES = 1


@functools.cache
def sibling(name: str) -> ModuleType:
    """Load a file of this folder, once, without making it importable for programs."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    module = ModuleType(name)
    module.__file__ = path
    module.__dict__["__builtins__"] = BUILTINS
    importlib.machinery.SourceFileLoader(name, path).exec_module(module)
    return module


confinement = sibling("confinement")
messages = sibling("messages")
rehearsal = sibling("rehearsal")
supervision = sibling("supervision")
script = sibling("script")
testprocess = sibling("testprocess")


def serve(prepare: Callable[[str], Any], box: Callable[..., NoReturn]) -> None:
    """Lock down, report whether that worked, then serve programs until sce exits.

    Args:
        prepare: gets the level; confines this process, and returns what a box needs. An OSError is reported.
        box: compiles one program and runs its tests, in a process of its own.
    """
    control = socket(fileno=int(sys.argv[1]))
    parent = os.getppid()
    try:
        layers = prepare(sys.argv[2])
    except OSError as error:
        messages.send(control, f"failed {error}")
        return
    messages.send(control, "ready")
    idle = select.poll()
    idle.register(control, select.POLLIN)
    zygote = os.getpid()
    while True:
        # A process that sce forked may keep our socket open after sce has died, so look for that too.
        while not idle.poll(ORPHAN_CHECK_MILLISECONDS):
            if os.getppid() != parent:
                return
        request, files = messages.receive(control)
        if not request:
            return
        if request.startswith("program"):  # anything else was meant for a box that died
            pid = (layers.fork or fork)()
            if pid == 0:
                box(zygote, request, files, control, layers)
            if pid < 0:
                raise OSError("the system refuses another process")
            _, status = os.waitpid(pid, 0)
            notes = "-" if layers.notary is None else layers.notary.notes(pid)
            messages.send(control, f"gone {status} {notes}")
        for descriptor in files:
            os.close(descriptor)


def _prepare(level: str) -> Any:
    """Import, confine this process, and try out what will confine the tests.

    Raises:
        OSError: the system refuses a layer.
    """
    for name in PRELOADED:
        importlib.import_module(name)
    os.register_at_fork = _register_at_fork
    # For the compiler, whose remarks about a program are nobody's output; a box puts the usual filters back.
    warnings.filters = [("ignore", None, Warning, None, 0)]
    settle()
    layers = confinement.Confinement(level, sibling)
    layers.build()
    _try_out(layers)
    rehearsal.rehearse(script)
    script.prepare()
    gc.collect()
    gc.disable()
    gc.freeze()
    return layers


def settle() -> None:
    """Leave the environment, folder and core files of whoever started this process."""
    os.environ.clear()
    os.environ.update(ENVIRONMENT)
    os.chdir("/")
    testprocess.set_limit(resource.RLIMIT_CORE, CORE_BYTES)


def _try_out(layers: Any) -> None:
    """Confine one process that does nothing: a layer that fails later would look like a program's fault."""
    zygote = os.getpid()
    pid = (layers.fork or fork)()
    if pid == 0:
        try:
            layers.begin_box(zygote)
            layers.enter_box(compile("", script.FILE_NAME, "exec"))
            layers.seal(zygote)
            os._exit(0)
        finally:
            os._exit(1)
    status = os.waitpid(pid, 0)[1] if pid > 0 else None
    if status != 0:
        raise OSError(f"a test process cannot be confined at level {layers.level} (wait status {status})")


def _box(zygote: int, request: str, files: list[int], control: socket, layers: Any) -> NoReturn:
    """Compile one program and run its tests; the process ends here."""
    try:
        layers.begin_box(zygote)
        cpu, wall, memory, output, compile_cpu, compile_memory, *batch = request.split()[1:]
        source_file = files.pop(0)
        testprocess.set_limit(resource.RLIMIT_CPU, BOX_CPU_SECONDS, keep_hard=True)
        testprocess.set_limit(resource.RLIMIT_AS, int(compile_memory), keep_hard=True)
        text = os.pread(source_file, os.fstat(source_file).st_size, 0)
        source = text.decode("utf-8", "surrogatepass").removeprefix("\ufeff")
        # By CPU time, so a busy machine changes nothing; the signal kills the box.
        signal.setitimer(signal.ITIMER_PROF, float(compile_cpu))
        code: CodeType | None = None
        try:
            code = compile(source, script.FILE_NAME, "exec", dont_inherit=True)
        except COMPILE_ERRORS as caught:
            why = f"{type(caught).__name__}: {caught}"[:500]
        testprocess.set_limit(resource.RLIMIT_AS, resource.RLIM_INFINITY, keep_hard=True)
        if code is None:
            messages.send(control, f"refused {why}".encode("utf-8", "backslashreplace").decode())
            os._exit(0)
        warnings.filters = FILTERS
        os.ftruncate(source_file, 0)
        os.close(source_file)
        layers.enter_box(code)
        signal.setitimer(signal.ITIMER_PROF, 0)
        gc.freeze()  # a collection in a test has nothing of ours to look at
        gc.enable()  # here, so that no test needs to: it would copy five pages for that
        resources = testprocess.resource_limits(float(cpu), int(memory), int(output))
        supervisor = supervision.Supervisor(control.fileno(), float(cpu), float(wall), int(memory))
        _run_tests(script.Script(code, source), batch, files, resources, supervisor, control, layers)
        os._exit(0)
    finally:
        os._exit(1)


def _run_tests(
    program: Any,
    batch: list[str],
    files: list[int],
    resources: list[tuple[int, tuple[int, int]]],
    supervisor: Any,
    control: socket,
    layers: Any,
) -> None:
    """Run the tests of this message and of those that follow it."""
    box = os.getpid()
    while batch:
        last, *tests = batch
        answer = "endings"
        for test in tests:
            prelude, _, count = test.partition(":")
            own, files = files[: int(count)], files[int(count) :]
            # As an imported module a program does not start its `if __name__ == "__main__"` part (HumanEval, MBPP).
            program.stage("__main__" if prelude == "-" else "solution")
            releases = None if prelude == "-" else supervision.Releases(own[3], own[5:])
            pid = (layers.fork or fork)()
            if pid == 0:
                answer = ""  # how earlier tests ended: a program can look into the frames below its own
                if releases is not None:
                    own = [*own[:3], *releases.for_the_test(), *own[3:5]]
                testprocess.run_test(program, own, resources, None if releases is None else prelude, layers, box)
            if pid < 0:
                raise OSError("the system refuses another process")
            answer += supervisor.wait(pid, releases)
            if layers.programs_may_fork:
                supervision.end_group(pid)
            for descriptor in own:
                os.close(descriptor)
        messages.send(control, answer)
        if last == "1":
            return
        request, files = messages.receive(control)
        batch = request.split()[1:]


if __name__ == "__main__":
    serve(_prepare, _box)
