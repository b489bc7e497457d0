"""One zygote and the protocol spoken with it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from securecoderl_edge.errors import SceError
from securecoderl_edge.sandbox.limits import (
    COMPILE_CPU_SECONDS,
    COMPILE_MEMORY_MIB,
    STDERR_TAIL_BYTES,
    Limits,
)
from securecoderl_edge.sandbox.records import Call, Execution, Job, ProgramRun

ZYGOTE = Path(__file__).with_name("zygote.py")
# How long a worker may be silent beyond a program's own limits; generous, for machines that are busy.
GRACE_SECONDS = 60.0
TESTS_AHEAD = 2
MEBIBYTE = 1 << 20


class WorkerLost(Exception):
    """The zygote died or fell silent; says nothing about the program."""


class BoxLost(Exception):
    """The process that supervises a program's tests died; that should be out of a program's reach."""


class Worker:
    """One zygote and the protocol spoken with it; used by one thread at a time."""

    def __init__(self) -> None:
        self.programs = 0
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A virtual environment's python would find our packages; the one that it was made from does not.
        python = getattr(sys, "_base_executable", None) or sys.executable
        # -I would ignore the hash seed, which makes the order of sets, and so rewards, reproducible.
        environment = {"PYTHONHASHSEED": "0"}
        if "LD_LIBRARY_PATH" in os.environ:
            environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
        complaints = _memory_file()
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [python, "-s", "-S", "-B", "-X", "utf8", str(ZYGOTE), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=complaints,
                    start_new_session=True,  # a Ctrl-C at the terminal is for sce alone
                )
            refused = self._greeting(complaints)
        except OSError as error:
            self._socket.close()
            raise SceError(f"the sandbox cannot start {python}: {error.strerror}") from None
        finally:
            os.close(complaints)
        if refused:
            self.kill()
            self.close()
            raise SceError(f"the sandbox cannot start: {refused}")

    def run(self, job: Job, limits: Limits) -> ProgramRun:
        """Compile a program and run its tests.

        Raises:
            WorkerLost: the zygote is gone.
            BoxLost: the box died while the tests ran.
        """
        self.programs += 1
        tests: list[tuple[str, Call | None]] = [(stdin, None) for stdin in job.stdins]
        tests += [("", call) for call in job.calls]
        source = _memory_file(job.program)
        try:
            self._send(
                [source],
                do="program",
                tests=len(tests),
                limits={
                    "cpu": limits.cpu_seconds,
                    "wall": limits.wall_seconds,
                    "memory": limits.memory_mib * MEBIBYTE,
                    "output": limits.output_bytes,
                },
                compile_cpu=COMPILE_CPU_SECONDS,
                compile_memory=COMPILE_MEMORY_MIB * MEBIBYTE,
            )
        finally:
            os.close(source)
        running = [_Test(stdin, call, limits) for stdin, call in tests[:TESTS_AHEAD]]
        executions: list[Execution] = []
        try:
            for test in running:
                self._send(test.to_send(), do="test", prelude=test.prelude)
            reply = self._receive(GRACE_SECONDS + COMPILE_CPU_SECONDS)
            if "ended" in reply:
                return ProgramRun(False, _why_the_compiler_ended(reply["ended"]))
            if not reply["parses"]:
                self._receive(GRACE_SECONDS)
                return ProgramRun(False, reply["error"])
            for number in range(len(tests)):
                reply = self._receive(GRACE_SECONDS + limits.wall_seconds)
                if "ended" in reply:
                    raise BoxLost(f"wait status {reply['ended']}")
                executions.append(running.pop(0).execution(reply))
                if number + TESTS_AHEAD < len(tests):
                    test = _Test(*tests[number + TESTS_AHEAD], limits)
                    running.append(test)
                    self._send(test.to_send(), do="test", prelude=test.prelude)
        finally:
            for test in running:
                test.close()
        self._receive(GRACE_SECONDS)
        return ProgramRun(True, "", tuple(executions))

    def _greeting(self, complaints: int) -> str:
        """Wait until the zygote is ready; returns why it cannot be."""
        try:
            return str(self._receive(GRACE_SECONDS).get("failed", ""))
        except WorkerLost:
            lines = os.pread(complaints, MEBIBYTE, 0).decode("utf-8", "replace").splitlines()
            return f"{ZYGOTE} does not run ({lines[-1] if lines else 'no message'})"

    @property
    def pid(self) -> int:
        """Process id of the zygote."""
        return self._process.pid

    def close(self) -> None:
        """End the zygote; everything below it dies with it."""
        self._socket.close()
        try:
            self._process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End the zygote at once; a thread that waits for its answer gets WorkerLost."""
        self._process.kill()

    def _send(self, files: Sequence[int], **message: Any) -> None:
        try:
            socket.send_fds(self._socket, [json.dumps(message).encode()], list(files))
        except OSError as error:
            raise WorkerLost(str(error)) from None

    def _receive(self, seconds: float) -> dict[str, Any]:
        self._socket.settimeout(seconds)
        try:
            packet = self._socket.recv(MEBIBYTE)
        except OSError as error:
            raise WorkerLost(str(error)) from None
        if not packet:
            raise WorkerLost("end of file")
        message: dict[str, Any] = json.loads(packet)
        return message


class _Test:
    """The memory files of one test: written before, read after the process that used them has died."""

    def __init__(self, stdin: str, call: Call | None, limits: Limits) -> None:
        self._call, self._limits = call, limits
        self.prelude = None if call is None else call.prelude
        self._inputs = [_memory_file(stdin)]
        self._outputs = [_memory_file(), _memory_file()]
        self._pieces: list[int] = []
        self._nonce = ""
        if call is not None:
            self._outputs.append(_memory_file())
            self._inputs.append(_memory_file())
            request = {
                "expression": call.expression,
                "is_assertion": call.is_assertion,
                "setup": call.setup,
                "entry_point": call.entry_point,
            }
            self._pieces = [_memory_file(json.dumps(request))]
            if call.is_assertion:
                self._nonce = secrets.token_hex(16)
                self._pieces.append(_memory_file(self._nonce))

    def to_send(self) -> list[int]:
        stdin, *request = self._inputs
        stdout, stderr, *value = self._outputs
        return [stdin, stdout, stderr, *request, *value, *self._pieces]

    def execution(self, reply: dict[str, Any]) -> Execution:
        """What happened, from the supervisor's report and the bytes that the process left."""
        limit = self._limits.output_bytes
        stdout, stderr, *value = self._outputs
        stopped_by = reply["stopped_by"]
        if not stopped_by and any(os.fstat(output).st_size > limit for output in self._outputs):
            stopped_by = "output"
        tail = max(0, os.fstat(stderr).st_size - STDERR_TAIL_BYTES)
        execution = Execution(
            returncode=reply["status"],
            stopped_by=stopped_by,
            stdout=os.pread(stdout, limit, 0).decode("utf-8", "replace"),
            stderr=os.pread(stderr, STDERR_TAIL_BYTES, tail).decode("utf-8", "replace"),
            cpu_seconds=reply["cpu"],
            value=self._value(os.pread(value[0], limit, 0)) if value else None,
        )
        self.close()
        return execution

    def _value(self, answer: bytes) -> str | None:
        if not answer:
            return None
        if self._call is not None and self._call.is_assertion:
            return str(answer == self._nonce.encode())
        try:
            return answer.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return answer.decode("utf-8", "replace")

    def close(self) -> None:
        for descriptor in (*self._inputs, *self._outputs, *self._pieces):
            os.close(descriptor)
        self._inputs, self._outputs, self._pieces = [], [], []


def _memory_file(text: str = "") -> int:
    """A descriptor of an anonymous file that holds ``text``, read from the start."""
    descriptor = os.memfd_create("sandbox")
    data = text.encode("utf-8", "surrogatepass")
    offset = 0
    while offset < len(data):
        offset += os.pwrite(descriptor, data[offset:], offset)
    return descriptor


def _why_the_compiler_ended(status: int) -> str:
    returncode = os.waitstatus_to_exitcode(status)
    if returncode == -signal.SIGPROF:
        return f"compiling took more than {COMPILE_CPU_SECONDS:g} s"
    if returncode < 0:
        return f"the compiler crashed ({signal.Signals(-returncode).name})"
    return f"the compiler process failed (status {returncode})"
