"""A zygote process, and the protocol for talking to it."""

from __future__ import annotations

import compileall
import contextlib
import dataclasses
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from securecoderl_edge.errors import SceError
from securecoderl_edge.languages.analyzers import find_analyzers
from securecoderl_edge.languages.language import PYTHON, C
from securecoderl_edge.languages.targets import TARGETS, Footprint, find_target_toolchain, footprint_of
from securecoderl_edge.languages.toolchain import find_toolchain
from securecoderl_edge.sandbox.denied import Denied, denied_of
from securecoderl_edge.sandbox.exchange import Exchange, exit_code, memory_file
from securecoderl_edge.sandbox.inside import messages
from securecoderl_edge.sandbox.inside.supervision import LONGEST_WALL
from securecoderl_edge.sandbox.jobs import BoxLost, Execution, FunctionCall, ProgramRun, SandboxJob, WorkerLost
from securecoderl_edge.sandbox.levels import OFF_HINT, Level
from securecoderl_edge.sandbox.limits import COMPILE_CPU_SECONDS, COMPILE_MEMORY_MIB, OUTPUTS_OF_A_PROGRAM, Limits
from securecoderl_edge.sandbox.sanitizers import analysis_of, with_its_report
from securecoderl_edge.sandbox.security import Scan

INSIDE = Path(__file__).parent / "inside"
# -I would ignore the hash seed, which makes the order of sets, and so rewards, reproducible. Without columns in code
# no traceback has carets: to place them, each test that crashes would import a parser, for two thirds of its CPU time.
OPTIONS = ("-s", "-S", "-B", "-X", "utf8", "-X", "no_debug_ranges")
# A worker may take this much longer to reply than a program's own limits; generous, for busy machines.
GRACE_SECONDS = 60.0
# What a compiler and two analyzers may take on a machine that gives them a tenth of a core (`native.TOOL_WALL_FACTOR`).
BUILD_SECONDS = 3 * 10 * COMPILE_CPU_SECONDS
CANCELLED = "the run was cancelled"
# The kernel passes at most 253 descriptors in one message; a test has up to 7.
TESTS_AT_ONCE = 32
# Between two looks at whether a job is cancelled.
LOOK_MILLISECONDS = 200
MEBIBYTE = 1 << 20


class SandboxWorker:
    """A zygote process, and the protocol for talking to it; used by one thread at a time.

    Args:
        level: of isolation.
        language: of the programs that it runs, a name in `LANGUAGES` or `TARGETS`.
        has_analyzers: whether programs in C are read by static analyzers.

    Raises:
        SceError: the zygote does not start, or there is no toolchain for the language.
    """

    def __init__(self, level: Level, language: str = PYTHON.name, has_analyzers: bool = False) -> None:
        zygote, words = _zygote(language, has_analyzers)
        _compile_inside()
        self.programs = 0
        self._is_cancelled = SandboxJob("").is_cancelled
        self._socket, theirs = socket.socketpair()
        # A virtual environment's python would find our packages; the one that it was made from does not.
        python = getattr(sys, "_base_executable", None) or sys.executable
        # Symbols that are bound at the start need not be looked up again in every forked process.
        environment = {"PYTHONHASHSEED": "0", "LD_BIND_NOW": "1"}
        if "LD_LIBRARY_PATH" in os.environ:
            environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        complaints = memory_file()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [python, *OPTIONS, str(zygote), str(theirs.fileno()), level, *words],
                    pass_fds=[theirs.fileno()],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=complaints,
                    start_new_session=True,  # a Ctrl-C at the terminal is for sce alone
                )
            refused = self._greeting(zygote, complaints)
        except OSError as error:
            self._socket.close()
            raise SceError(f"cannot start the sandbox with {python}: {error.strerror}") from None
        finally:
            os.close(complaints)
        if refused:
            self.kill()
            self.close()
            raise SceError(f"cannot start the sandbox: {refused}; {OFF_HINT}")

    def run(self, job: SandboxJob, limits: Limits) -> ProgramRun:
        """Compile a program and run its tests.

        Raises:
            WorkerLost: the zygote has died, or its reply is invalid.
            BoxLost: the box was killed.
            SceError: the job was cancelled; its program still runs until `kill`.
        """
        self.programs += 1
        self._room = OUTPUTS_OF_A_PROGRAM * limits.output_bytes
        self._footprint: Footprint | None = None
        self._analysis: Scan | None = None
        self._is_cancelled = job.is_cancelled
        tests: list[tuple[str, FunctionCall | None]] = [(stdin, None) for stdin in job.stdins]
        tests += [("", call) for call in job.calls]
        executions: list[Execution] = []
        source = memory_file(_source(job))
        try:
            for start in range(0, max(1, len(tests)), TESTS_AT_ONCE):
                end = start + TESTS_AT_ONCE
                last = messages.PART if job.is_part else str(int(end >= len(tests)))
                executions += self._run_batch(source, tests[start:end], limits, start == 0, last)
        except _Refused as refused:
            return ProgramRun(False, str(refused), denied=())
        finally:
            os.close(source)
        denied = self._goodbye()
        if job.language == C.name:
            executions = list(map(with_its_report, executions))
        return ProgramRun(True, "", tuple(executions), self._footprint, self._analysis, denied)

    def _run_batch(
        self,
        source: int,
        tests: Sequence[tuple[str, FunctionCall | None]],
        limits: Limits,
        is_first: bool,
        last: str,
    ) -> list[Execution]:
        """Run several tests; the first ones go with the program, in one message."""
        running = [Exchange(stdin, call, limits) for stdin, call in tests]
        longest = len(running) * LONGEST_WALL * limits.wall_seconds
        try:
            files = [test.files() for test in running]
            words = [f"{test.prelude}:{len(own)}" for test, own in zip(running, files, strict=True)]
            head = _program_words(limits) if is_first else ("tests",)
            attached = [source] if is_first else []
            attached += [each for own in files for each in own]
            self._send(" ".join([*head, last, *words]), attached)
            reply = self._receive(GRACE_SECONDS + BUILD_SECONDS + longest)
            kind, _, rest = reply.partition(" ")
            if kind in ("measured", "analyzed"):
                self._keep(kind, rest)
                kind, _, rest = self._receive(GRACE_SECONDS + longest).partition(" ")
            if kind == "gone":
                status = rest.partition(" ")[0]
                if os.fstat(source).st_size == 0:  # the box empties it when it has compiled it
                    raise BoxLost(f"wait status {status}", parses=True)
                raise _Refused(_why_the_compiler_ended(status))
            if kind == "refused":
                self._receive(GRACE_SECONDS)
                raise _Refused(rest)
            endings = rest.split()
            if kind != "endings" or len(endings) != 3 * len(running):
                raise WorkerLost(f"invalid reply: {kind[:40]!r}")
            executions = []
            for number, test in enumerate(running):
                size = test.output_bytes()
                is_read = size <= self._room
                executions.append(test.execution(*endings[3 * number : 3 * number + 3], is_read=is_read))
                self._room -= size if is_read else 0
            return executions
        finally:
            for test in running:
                test.close()

    def _goodbye(self) -> tuple[Denied, ...] | None:
        """The last message about a program: its box has ended; what the program tried in vain."""
        kind, _, rest = self._receive(GRACE_SECONDS).partition(" ")
        try:
            if kind != "gone":
                raise ValueError(kind[:40])
            return denied_of(rest.partition(" ")[2])
        except ValueError as error:
            raise WorkerLost(f"invalid reply: {error}") from None

    def _keep(self, kind: str, text: str) -> None:
        """Facts about a program; the box has read untrusted text, so its report is checked."""
        try:
            if kind == "measured":
                self._footprint = footprint_of(json.loads(text))
            else:
                self._analysis = analysis_of(json.loads(text))
        except ValueError as error:
            raise WorkerLost(f"invalid reply: {error}") from None

    def _greeting(self, zygote: Path, complaints: int) -> str:
        """Wait until the zygote is ready; returns the reason if it fails, else an empty string."""
        try:
            return self._receive(GRACE_SECONDS).partition(" ")[2]
        except WorkerLost:
            lines = os.pread(complaints, MEBIBYTE, 0).decode("utf-8", "replace").splitlines()
            return f"{zygote} failed ({lines[-1] if lines else 'no message'})"

    @property
    def pid(self) -> int:
        """Process id of the zygote."""
        return self._process.pid

    def close(self) -> None:
        """End the zygote and everything below it."""
        self._socket.close()
        self.kill()
        self._process.wait()

    def kill(self) -> None:
        """End the zygote and everything below it at once; a thread that waits for its answer gets WorkerLost.

        All are in one process group, which no program can leave. Each dies with its parent as well, for if we are
        killed.
        """
        if self._process.returncode is None:  # so that its id is nobody else's
            with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS reports the second for zombies
                os.killpg(self._process.pid, signal.SIGKILL)

    def _send(self, text: str, files: Sequence[int] = ()) -> None:
        try:
            messages.send(self._socket, text, files)
        except OSError as error:
            raise WorkerLost(str(error)) from None

    def _receive(self, seconds: float) -> str:
        self._wait(seconds)
        self._socket.settimeout(seconds)
        try:
            text, _ = messages.receive(self._socket)
        except OSError as error:
            raise WorkerLost(str(error)) from None
        if not text:
            raise WorkerLost("end of file")
        return text

    def _wait(self, seconds: float) -> None:
        """Wait for a message, as long as it is needed."""
        deadline, arrival = time.monotonic() + seconds, select.poll()
        arrival.register(self._socket, select.POLLIN)
        while not arrival.poll(LOOK_MILLISECONDS):
            if self._is_cancelled():
                raise SceError(CANCELLED)
            if time.monotonic() > deadline:
                raise WorkerLost("no answer")


class _Refused(Exception):
    """The program does not parse; the text is the reason."""


@cache
def _compile_inside() -> None:
    """Compile the files that a zygote loads by path, as an import would where it may write.

    A zygote that compiles them itself has a sixth more memory to copy in each fork.
    """
    if not sys.dont_write_bytecode:
        compileall.compile_dir(INSIDE, maxlevels=0, quiet=2)


def _zygote(language: str, has_analyzers: bool) -> tuple[Path, list[str]]:
    """The script of a language's zygote, and what it is told."""
    if language == PYTHON.name:
        return INSIDE / "zygote.py", []
    is_target = language in TARGETS
    toolchain = find_target_toolchain(language) if is_target else find_toolchain()
    if has_analyzers and not is_target:  # for a target, a program is built after it was analyzed
        toolchain = dataclasses.replace(toolchain, analyzers=find_analyzers())
    limits = [COMPILE_CPU_SECONDS, COMPILE_MEMORY_MIB * MEBIBYTE]
    return INSIDE / ("board.py" if is_target else "native.py"), [
        json.dumps(each) for each in (dataclasses.asdict(toolchain), limits)
    ]


def _source(job: SandboxJob) -> str:
    """What the compiler gets; for a target with a line about it, and the driver (`board`)."""
    if job.language not in TARGETS:
        return job.program
    size = len(job.program.encode("utf-8", "surrogatepass"))
    return f"{json.dumps([size, job.entry_point])}\n{job.program}{job.driver}"


def _program_words(limits: Limits) -> tuple[str, ...]:
    bounds = (limits.cpu_seconds, limits.wall_seconds, limits.memory_mib * MEBIBYTE, limits.output_bytes)
    return ("program", *map(str, (*bounds, COMPILE_CPU_SECONDS, COMPILE_MEMORY_MIB * MEBIBYTE)))


def _why_the_compiler_ended(status: str) -> str:
    returncode = exit_code(status)
    if returncode == -signal.SIGKILL:  # no text makes a compiler do that
        raise BoxLost("killed while compiling", parses=False)
    if returncode == -signal.SIGPROF:
        return f"compiling took more than {COMPILE_CPU_SECONDS:g} s"
    if returncode < 0:
        return f"the compiler crashed (signal {-returncode})"
    return f"the compiler process failed (status {returncode})"
