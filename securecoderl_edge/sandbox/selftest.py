"""Hostile programs against canaries: whether this system's sandbox does what its level says.

Every program exits with 0 only when its deed is done, and most deeds leave a mark outside: a program is contained
when it started, did not end well, and left no mark. Each is harmless where nothing contains it: it reads, writes,
connects to and kills nothing but what was put there for it, ``/etc/passwd`` excepted, of which it prints one line.

Covers one way of each kind; `tests/sandbox/test_adversarial.py` has the others.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from securecoderl_edge.sandbox.limits import Limits
from securecoderl_edge.sandbox.pool import SandboxPool

LIMITS = Limits(cpu_seconds=1, wall_seconds=3, memory_mib=256)
SECRET_NAME = "SCE_DOCTOR_SECRET"
# Modules come before the mark: a program that cannot even import must not pass for one that was contained.
_HEAD = """\
import json, os, socket, sys, time
canary = json.loads(input())
print("started", flush=True)
"""
HOSTILE = {
    "read /etc/passwd": "print(open('/etc/passwd').readline())",
    "read your file": "print(open(canary['file']).read())",
    "write a file": "open(canary['folder'] + '/written', 'w').write('x')",
    "connect to 127.0.0.1": "socket.socket().connect(('127.0.0.1', canary['port']))",
    "start a process": "child = os.fork()\nif child == 0: os._exit(0)\nos.waitpid(child, 0)",
    "run another program": "os.execv('/bin/sh', ['sh', '-c', 'exit 0'])",
    "kill your process": "os.kill(canary['process'], 9)",
    "read your environment": """\
seen = repr(dict(os.environ))
place = f"/proc/{canary['process']}/environ"
if os.path.exists(place): seen += open(place).read()
print(seen)
if canary['variable'] not in seen: sys.exit("found nothing")
""",
    "fill the memory": "held = [b'x' * (8 << 20) for _ in range(48)]",
    "run for ever": "end = time.monotonic() + 10\nwhile time.monotonic() < end: pass",
}
HONEST = "print(sum(int(word) for word in input().split()))"


@dataclass(frozen=True)
class Attempt:
    """What became of one hostile program; ``how`` is the limit or the error that stopped it, or what it did."""

    deed: str
    contained: bool
    how: str


@dataclass(frozen=True)
class SelfTest:
    """All programs under one level.

    Attributes:
        level: the level that was chosen.
        honest: whether an ordinary program ran and printed what it should.
        status: of the process that all tests descend from, as in ``/proc/PID/status``; empty without /proc.
    """

    level: str
    honest: bool
    outcomes: tuple[Attempt, ...]
    status: dict[str, str]

    @property
    def passed(self) -> bool:
        """Everything hostile was contained, and what was honest ran."""
        return self.honest and all(outcome.contained for outcome in self.outcomes)


def run_selftest(choice: str = "auto") -> SelfTest:
    """Run the honest program and every hostile one; takes about two seconds.

    Adds a variable to ``os.environ`` while it runs.

    Raises:
        SceError: there is no such level here, or the sandbox does not start.
        OSError: a canary cannot be set up.
    """
    secret = secrets.token_hex(16)
    with _variable(SECRET_NAME, secret), SandboxPool(1, LIMITS, choice) as pool:
        honest = pool.run(HONEST, ["20 22\n"]).executions
        status = _process_status(pool.idle_pids())
        outcomes = tuple(_try_out(pool, deed, secret) for deed in HOSTILE)
    well = len(honest) == 1 and honest[0].clean and honest[0].stdout == "42\n"
    return SelfTest(pool.level, well, outcomes, status)


def _try_out(pool: SandboxPool, deed: str, secret: str) -> Attempt:
    # Canaries of its own, so that the marks of one program are not taken for those of the next.
    with _Canaries.put_up(secret) as canaries:
        run = pool.run(_HEAD + HOSTILE[deed], [canaries.as_json()])
        execution = run.executions[0] if run.parses else None
        if execution is None or not execution.stdout.startswith("started"):
            return Attempt(deed, False, "the program did not start, so nothing was tried")
        marks = canaries.marks(execution.stdout)
    if marks or execution.clean:
        return Attempt(deed, False, "; ".join(marks) or "it was done")
    if execution.stopped_by:
        return Attempt(deed, True, f"stopped at the limit: {execution.stopped_by}")
    complaint = execution.stderr.strip().splitlines()
    return Attempt(deed, True, complaint[-1] if complaint else f"it ended with status {execution.returncode}")


class _Canaries:
    """What a hostile program would touch: a file, a folder, a process, a port."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], listener: socket.socket, secret: str) -> None:
        self._folder, self._process, self._listener, self._secret = folder, process, listener, secret
        self._file = folder / "secret"
        self._file.write_text(secret)

    @classmethod
    @contextmanager
    def put_up(cls, secret: str) -> Iterator[_Canaries]:
        """Set them up, and take them away afterwards; the secret stands in the file and in our environment."""
        # It waits until it is killed or its input is closed; its environment is what ours is now.
        command = [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"]
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sce-doctor-")))
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            listener.setblocking(False)
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE))
            stack.callback(process.kill)
            yield cls(folder, process, listener, secret)

    def as_json(self) -> str:
        """What the programs are told, on their standard input; not the secret itself."""
        told = {
            "file": str(self._file),
            "folder": str(self._folder),
            "port": self._listener.getsockname()[1],
            "process": self._process.pid,
            "variable": SECRET_NAME,
        }
        return f"{json.dumps(told)}\n"

    def marks(self, stdout: str) -> list[str]:
        """What was touched."""
        touched = []
        if self._secret in stdout:
            touched.append("the secret was read")
        if (self._folder / "written").exists():
            touched.append("the file is there")
        if self._process.poll() is not None:
            touched.append("the process is dead")
        with suppress(BlockingIOError):
            self._listener.accept()[0].close()
            touched.append("the connection was made")
        return touched


def _process_status(pids: list[int]) -> dict[str, str]:
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
            return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
