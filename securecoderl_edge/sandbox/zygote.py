"""The zygote: a fresh interpreter that forks a box per program, which forks a process per test.

    sce --socket--> zygote --fork--> box (compiles the program once) --fork--> test process (runs it)

Run as ``python -s -S -B -X utf8 zygote.py SOCKET`` with an empty environment. Messages are single packets of
JSON with files attached as descriptors: texts and outputs stay in memory files, without pipes or copies.
While a box lives it speaks with sce itself; the zygote waits for it to end. It receives one test at a time.

    to us    {"do": "program", tests, limits, ...} [source]
             {"do": "test", prelude} [stdin, stdout, stderr; for a call also request, value, releases]
    from us  {"parses", "error"}, then for each test {"status", "stopped_by", "cpu"}
             {"ended": wait status of the box}

This file imports the standard library and, by path, its siblings; the package is not there.
"""

from __future__ import annotations

import sys

sys.path.pop(0)  # our own folder: neither we nor the programs may import from it by accident

import gc
import importlib.util
import json
import os
import resource
import select
import signal
import socket
import time
import warnings
from types import CodeType, ModuleType
from typing import Any, NoReturn

# Imported before the forks, so that no program pays for them.
PRELOADED = (
    "abc", "array", "ast", "base64", "binascii", "bisect", "builtins", "calendar", "cmath", "codecs",
    "collections", "collections.abc", "contextlib", "copy", "dataclasses", "datetime", "decimal",
    "encodings.ascii", "encodings.latin_1", "enum", "fractions", "functools", "hashlib", "heapq", "io",
    "itertools", "keyword", "linecache", "locale", "math", "numbers", "operator", "pprint", "queue",
    "random", "re", "secrets", "statistics", "string", "struct", "textwrap", "threading", "timeit",
    "tokenize", "traceback", "types", "typing", "unicodedata", "zlib",
)  # fmt: skip
READABLE = (
    "/usr/lib", "/lib", "/lib64", "/usr/share/zoneinfo", "/etc/localtime", "/etc/ld.so.cache",
    "/dev/null", "/dev/zero", "/dev/urandom", "/dev/random",
)  # fmt: skip
MESSAGE_BYTES = 1 << 16
MOST_DESCRIPTORS = 8
COMPILE_ERRORS = (SyntaxError, ValueError, OverflowError, MemoryError, RecursionError)
ORPHAN_CHECK_MILLISECONDS = 5000
# A box only compiles and waits; far more than that is a fault of ours.
BOX_CPU_SECONDS = 120


def _sibling(name: str) -> ModuleType:
    """Load a file of this folder without making it importable for programs."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


lockdown = _sibling("lockdown")
seccomp = _sibling("seccomp")
testprocess = _sibling("testprocess")


def main() -> None:
    """Lock down, report the layers, then serve programs until sce leaves."""
    control = socket.socket(fileno=int(sys.argv[1]))
    parent = os.getppid()
    try:
        layers = _prepare()
    except OSError as error:
        _send(control, failed=str(error))
        return
    _send(control, ready=True, landlock=layers.ruleset is not None)
    idle = select.poll()
    idle.register(control, select.POLLIN)
    while True:
        # A process that sce forked may keep our socket open after sce has died, so look for that too.
        while not idle.poll(ORPHAN_CHECK_MILLISECONDS):
            if os.getppid() != parent:
                return
        request, files = _receive(control)
        if request is None:
            return
        if request["do"] == "program":  # anything else was meant for a box that died
            zygote = os.getpid()
            pid = os.fork()
            if pid == 0:
                _box(zygote, request, files[0], control, layers)
            _, status = os.waitpid(pid, 0)
            _send(control, ended=status)
        for descriptor in files:
            os.close(descriptor)


class _Layers:
    """What confines a test process, built once and shared by all of them."""

    def __init__(self, ruleset: int | None) -> None:
        self.ruleset = ruleset
        template, self._pid_offsets = seccomp.program_filter_template()
        self._filter = lockdown.Filter(template)

    def confine(self) -> None:
        """Take the file system away from the calling process."""
        if self.ruleset is not None:
            lockdown.restrict_paths(self.ruleset)

    def seal(self, parent: int) -> None:
        """Bind the calling process to its parent's life and to the system calls of a program."""
        _die_with(parent)
        self._filter.replace(self._pid_offsets, os.getpid().to_bytes(4, sys.byteorder))
        self._filter.install()


def _prepare() -> _Layers:
    for name in PRELOADED:
        importlib.import_module(name)
    os.environ.clear()
    os.environ.update(PATH="/usr/bin:/bin", LANG="C.UTF-8", HOME="/nonexistent")
    os.chdir("/")
    lockdown.prctl(lockdown.PR_SET_NO_NEW_PRIVS, 1)
    library = os.path.dirname(os.__file__)
    layers = _Layers(lockdown.create_ruleset([library, os.path.join(sys.base_prefix, "lib"), *READABLE]))
    # Programs must not read this memory through /proc, nor through a debugger.
    lockdown.prctl(lockdown.PR_SET_DUMPABLE, 0)
    lockdown.drop_capabilities()
    testprocess.set_limit(resource.RLIMIT_CORE, 0)
    testprocess.open_streams()
    lockdown.Filter(seccomp.supervisor_filter()).install()
    warnings.simplefilter("ignore")  # the compiler's remarks about a program are nobody's output
    gc.collect()
    gc.disable()
    gc.freeze()
    return layers


def _die_with(parent: int) -> None:
    lockdown.prctl(lockdown.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), signal.SIGKILL)


def _box(zygote: int, request: dict[str, Any], source_file: int, control: socket.socket, layers: _Layers) -> NoReturn:
    """Compile one program and run its tests; the process ends here."""
    try:
        _die_with(zygote)
        testprocess.set_limit(resource.RLIMIT_CPU, BOX_CPU_SECONDS)
        testprocess.set_limit(resource.RLIMIT_AS, request["compile_memory"], keep_hard=True)
        source = _text(source_file).removeprefix("\ufeff")
        # By processor time, so a busy machine changes nothing; the signal kills the box.
        signal.setitimer(signal.ITIMER_PROF, request["compile_cpu"])
        code: CodeType | None = None
        error = ""
        try:
            code = compile(source, testprocess.FILE_NAME, "exec", dont_inherit=True)
        except COMPILE_ERRORS as caught:
            error = f"{type(caught).__name__}: {caught}"[:500].encode("utf-8", "backslashreplace").decode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        testprocess.set_limit(resource.RLIMIT_AS, resource.RLIM_INFINITY, keep_hard=True)
        _send(control, parses=code is not None, error=error)
        if code is not None:
            os.close(source_file)
            testprocess.set_limit(resource.RLIMIT_NOFILE, 64)
            for _ in range(request["tests"]):
                test, files = _receive(control)
                if test is None:
                    break
                _test(code, source, test["prelude"], files, request["limits"], control, layers)
        os._exit(0)
    finally:
        os._exit(1)


def _test(
    code: CodeType,
    source: str,
    prelude: str | None,
    files: list[int],
    limits: dict[str, Any],
    control: socket.socket,
    layers: _Layers,
) -> None:
    """Run one test and report how it ended; ``prelude`` is None unless it is a call."""
    ready_in = ready_out = go_in = go_out = -1
    inherited = files
    if prelude is not None:
        ready_in, ready_out = os.pipe()
        go_in, go_out = os.pipe()
        inherited = [*files[:3], ready_out, go_in, *files[3:5]]
    box = os.getpid()
    pid = os.fork()
    if pid == 0:
        testprocess.run_test(code, source, inherited, limits, prelude, layers.confine, lambda: layers.seal(box))
    releases = None
    if prelude is not None:
        os.close(ready_out)
        os.close(go_in)
        releases = _Releases(ready_in, go_out, files[3], files[5:])
    status, stopped_by, seconds = _supervise(pid, limits, control, releases)
    for descriptor in (*files, *((ready_in, go_out) if releases else ())):
        os.close(descriptor)
    returncode = os.waitstatus_to_exitcode(status)
    if not stopped_by and returncode == testprocess.MEMORY_STATUS:
        stopped_by = "memory"
    elif not stopped_by and returncode == -signal.SIGXCPU:
        stopped_by = "cpu"
    _send(control, status=returncode, stopped_by=stopped_by, cpu=seconds)


class _Releases:
    """The pieces of a request that a test process gets one by one, each when it says that it is ready.

    They are read only now, after the fork, so the test process cannot have inherited them.
    """

    def __init__(self, ready: int, go: int, request: int, pieces: list[int]) -> None:
        self.ready, self.go, self.request, self.pieces = ready, go, request, list(pieces)

    def release(self) -> bool:
        """Hand out the next piece; False when the process has ended or asks for more than there is."""
        if not os.read(self.ready, 1) or not self.pieces:
            return False
        piece = self.pieces.pop(0)
        os.ftruncate(self.request, 0)
        os.pwrite(self.request, os.pread(piece, os.fstat(piece).st_size, 0), 0)
        os.write(self.go, b"g")
        return True


def _supervise(
    pid: int, limits: dict[str, Any], control: socket.socket, releases: _Releases | None
) -> tuple[int, str, float]:
    """Wait for a test process; returns its wait status, the limit that stopped it, CPU seconds."""
    process = os.pidfd_open(pid)
    events = select.poll()
    events.register(process, select.POLLIN)
    events.register(control, 0)  # a hang-up is always reported: sce has left
    if releases:
        events.register(releases.ready, select.POLLIN)
    stopped_by = ""
    started = time.monotonic()
    cpu_left = limits["cpu"]
    while True:
        wall_left = limits["wall"] - (time.monotonic() - started)
        woken = {descriptor for descriptor, _ in events.poll(max(1, int(min(cpu_left, wall_left) * 1000) + 1))}
        if process in woken:
            break
        if control.fileno() in woken:
            os.kill(pid, signal.SIGKILL)
            os._exit(0)
        if releases and releases.ready in woken and not releases.release():
            events.unregister(releases.ready)
        cpu_left = limits["cpu"] - time.clock_gettime(((~pid) << 3) | 2)  # CPUCLOCK_SCHED of that process
        if cpu_left <= 0:
            stopped_by = "cpu"
        elif time.monotonic() - started >= limits["wall"]:
            stopped_by = "wall"
        if stopped_by:
            os.kill(pid, signal.SIGKILL)
            break
        cpu_left = max(cpu_left, 0.005)
    os.close(process)
    _, status, usage = os.wait4(pid, 0)
    return status, stopped_by, usage.ru_utime + usage.ru_stime


def _text(descriptor: int) -> str:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0).decode("utf-8", "surrogatepass")


def _receive(control: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next message and its descriptors; None when sce has left."""
    message, files, _, _ = socket.recv_fds(control, MESSAGE_BYTES, MOST_DESCRIPTORS)
    return (json.loads(message) if message else None), list(files)


def _send(control: socket.socket, **message: object) -> None:
    control.sendmsg([json.dumps(message).encode()])


if __name__ == "__main__":
    main()
