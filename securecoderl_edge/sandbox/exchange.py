"""Inputs and outputs of one test, in memfds.

A box reports how a test ended. It has compiled untrusted text, so its reports are checked: an invalid one counts as a
lost worker.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import tempfile
from typing import Any

from securecoderl_edge.sandbox.file_tests import statement_of_file_test
from securecoderl_edge.sandbox.inside.script import MEMORY_STATUS, OWN_ERROR_STATUS, THREADS_STATUS
from securecoderl_edge.sandbox.inside.testprocess import RAISED, RETURNED, RETURNED_NONE, request_text
from securecoderl_edge.sandbox.jobs import Execution, FunctionCall, StoppedBy, WorkerLost
from securecoderl_edge.sandbox.limits import STDERR_TAIL_BYTES, Limits
from securecoderl_edge.sandbox.noting import noting

# The limit for which a supervisor stopped a test, as it reports it; - for none.
STOPPED_BY: dict[str, StoppedBy] = {"-": "", "cpu": "cpu", "wall": "wall", "memory": "memory", "threads": "threads"}

MOST_CLASSES = 64  # of an exception

# Exit codes of a process that hit a limit before the supervisor had to enforce it.
_ENDS: dict[int, StoppedBy] = {MEMORY_STATUS: "memory", THREADS_STATUS: "threads", -signal.SIGXCPU: "cpu"}


class Exchange:
    """The memfds of one test: written before its process starts, read after it has died."""

    def __init__(self, stdin: str, call: FunctionCall | None, limits: Limits) -> None:
        self._call, self._limits = call, limits
        self.prelude = "-" if call is None else call.prelude
        self._inputs = [memory_file(stdin)]
        self._outputs = [memory_file(), memory_file()]
        self._pieces: list[int] = []
        self._nonce = ""
        if call is not None:
            self._outputs.append(memory_file())
            self._inputs.append(memory_file())
            test = call.expression
            expression = (
                statement_of_file_test(*call.file, test)
                if call.file is not None
                else noting(test, call.entry_point, call.is_assertion)
            )
            request = request_text(expression, call.is_assertion, call.setup, call.entry_point)
            self._pieces = [memory_file(request)]
            if call.is_assertion:
                self._nonce = secrets.token_hex(16)
                self._pieces.append(memory_file(self._nonce))

    def files(self) -> list[int]:
        """All descriptors, in the order of the protocol."""
        stdin, *request = self._inputs
        stdout, stderr, *value = self._outputs
        return [stdin, stdout, stderr, *request, *value, *self._pieces]

    def output_bytes(self) -> int:
        """What `execution` reads, but for the end of stderr."""
        stdout, _, *value = self._outputs
        return sum(min(os.fstat(each).st_size, self._limits.output_bytes) for each in (stdout, *value))

    def execution(self, status: str, limit_hit: str, cpu_seconds: str, *, is_read: bool) -> Execution:
        """The outcome, from the supervisor's report and, if they are read, the bytes that the process left."""
        stdout, stderr, *value = self._outputs
        limit = self._limits.output_bytes if is_read else 0
        returncode = exit_code(status)
        if limit_hit not in STOPPED_BY:
            raise WorkerLost(f"invalid reply: {limit_hit[:40]!r}")
        stopped_by = STOPPED_BY[limit_hit] or _ENDS.get(returncode, "")
        if not stopped_by and any(os.fstat(output).st_size > limit for output in self._outputs):
            stopped_by = "output"
        tail = max(0, os.fstat(stderr).st_size - STDERR_TAIL_BYTES)
        execution = Execution(
            returncode=returncode,
            stopped_by=stopped_by,
            stdout=os.pread(stdout, limit, 0).decode("utf-8", "replace"),
            stderr=os.pread(stderr, STDERR_TAIL_BYTES, tail).decode("utf-8", "replace"),
            cpu_seconds=_seconds(cpu_seconds),
            own_error=self._call is not None and returncode == OWN_ERROR_STATUS and not stopped_by,
            **(self._result(os.pread(value[0], limit, 0)) if value else {}),
        )
        self.close()
        return execution

    def _result(self, answer: bytes) -> dict[str, Any]:
        """The value, or the classes of the exception; a program can write anything here."""
        if not answer:
            return {}
        if self._call is not None and self._call.is_assertion:
            return {"value": str(answer == self._nonce.encode()), "returns_none": answer == RETURNED_NONE.encode()}
        try:
            text = answer.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            text = answer.decode("utf-8", "replace")
        if text.startswith(RAISED):
            return {"raised": tuple(text[len(RAISED) :].split("\n", MOST_CLASSES)[:MOST_CLASSES])}
        if text.startswith(RETURNED_NONE):
            return {"value": text[len(RETURNED_NONE) :], "returns_none": True}
        return {"value": text.removeprefix(RETURNED)}

    def close(self) -> None:
        for descriptor in (*self._inputs, *self._outputs, *self._pieces):
            os.close(descriptor)
        self._inputs, self._outputs, self._pieces = [], [], []


def exit_code(status: str) -> int:
    """Exit code, or minus a signal, of a wait status that a box reported; a box is not trusted to report one."""
    try:
        return os.waitstatus_to_exitcode(int(status) if len(status) < 10 else -1)
    except ValueError:
        raise WorkerLost(f"invalid reply: {status[:40]!r}") from None


def _seconds(word: str) -> float:
    if not re.fullmatch(r"\d{1,10}(\.\d+)?(e-\d+)?", word):
        raise WorkerLost(f"invalid reply: {word[:40]!r}")
    return float(word)


def memory_file(text: str = "") -> int:
    """A descriptor of an anonymous file that holds ``text``, read from the start."""
    descriptor = os.memfd_create("sandbox") if hasattr(os, "memfd_create") else _unlinked_file()
    data = text.encode("utf-8", "surrogatepass")
    offset = 0
    while offset < len(data):
        offset += os.pwrite(descriptor, data[offset:], offset)
    return descriptor


def _unlinked_file() -> int:
    """An unlinked temporary file, which replaces a memfd on macOS."""
    descriptor, name = tempfile.mkstemp(prefix="sce-")
    os.unlink(name)
    return descriptor
