"""Self-test of the sandbox: attack programs against canaries, to check that this system contains them.

A program exits with 0 only if its attack succeeded, and most attacks leave a mark outside. A program is contained if it
started, did not exit with 0, and left no mark. All attacks are harmless even without isolation: they touch only
canaries that were set up for them, except for one that prints a line of ``/etc/passwd``.

Covers one attack of each kind; `tests/sandbox/test_adversarial.py` has the others.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from securecoderl_edge.languages.language import C
from securecoderl_edge.sandbox.limits import Limits
from securecoderl_edge.sandbox.pool import SandboxPool
from securecoderl_edge.sandbox.sanitizers import was_reported

LIMITS = Limits(cpu_seconds=1, wall_seconds=3, memory_mib=256)
SECRET_NAME = "SCE_DOCTOR_SECRET"
# Imports come before "started": a program that fails to import must not count as contained.
_HEAD = """\
import json, os, socket, sys, time
canary = json.loads(input())
print("started", flush=True)
"""
ATTACKS = {
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
    "run forever": "end = time.monotonic() + 10\nwhile time.monotonic() < end: pass",
}
# In C: a program, one with a fault that a sanitizer must report, and attacks on the compiler and in the program.
BENIGN_C = '#include <stdio.h>\nint main(void) { int a, b; scanf("%d %d", &a, &b); printf("%d\\n", a + b); }\n'
FAULTY_C = "#include <stdlib.h>\nint main(void) { char *volatile text = malloc(8); text[8] = 1; return text[8]; }\n"
ATTACKS_IN_C = {
    "include /etc/passwd": '#include "/etc/passwd"\nint main(void) { return 0; }\n',
    "read /etc/passwd": '#include <stdio.h>\nint main(void) { return !fopen("/etc/passwd", "r"); }\n',
    "start a process": "#include <unistd.h>\nint main(void) { return fork() < 0; }\n",
    "run another program": '#include <stdlib.h>\nint main(void) { return system("exit 0") != 0; }\n',
}
# For a microcontroller: a file of this machine, by name and by semihosting (SYS_OPEN), which the board does not have.
_SEMIHOSTED = """\
static const unsigned short code[] = {0xbeab, 0x4770}; /* bkpt 0xab; bx lr */
int main(void) {
    struct { const char *name; int mode, length; } file = {"/etc/passwd", 0, 11};
    int (*call)(int, void *) = (int (*)(int, void *))((char *)code + 1);
    return call(1, &file) < 0;
}
"""
ATTACKS_ON_BOARD = {"read /etc/passwd": ATTACKS_IN_C["read /etc/passwd"], "semihosting": _SEMIHOSTED}
NOTED = frozenset(list(ATTACKS)[:6])  # of whose attempts the sandbox takes notes, where it can
BENIGN = "print(sum(int(word) for word in input().split()))"


@dataclass(frozen=True)
class Attempt:
    """The outcome of one attack.

    Attributes:
        how: the limit or error that stopped it, or the damage it did.
        denied: whether the sandbox took a note of it.
    """

    attack: str
    contained: bool
    how: str
    denied: bool = False


@dataclass(frozen=True)
class SelfTest:
    """All programs under one level.

    Attributes:
        level: the level that was chosen.
        benign_ran: whether a benign program ran and printed the right output.
        status: of the process that all tests descend from, as in ``/proc/PID/status``; empty without /proc.
    """

    level: str
    benign_ran: bool
    outcomes: tuple[Attempt, ...]
    status: dict[str, str]

    @property
    def takes_notes(self) -> bool:
        """Whether all attempts were noted that can be."""
        return {outcome.attack for outcome in self.outcomes if outcome.denied} >= NOTED

    @property
    def passed(self) -> bool:
        """All attacks were contained, and the benign program ran."""
        return self.benign_ran and all(outcome.contained for outcome in self.outcomes)


def run_selftest(choice: str = "auto") -> SelfTest:
    """Run the benign program and every attack; takes about two seconds.

    Adds a variable to ``os.environ`` while it runs.

    Raises:
        SceError: this system does not offer the level, or the sandbox does not start.
        OSError: a canary cannot be set up.
    """
    secret = secrets.token_hex(16)
    os.environ[SECRET_NAME] = secret
    try:
        with SandboxPool(1, LIMITS, choice) as pool:
            benign = pool.run(BENIGN, ["20 22\n"]).executions
            status = _process_status(pool.idle_pids())
            outcomes = tuple(_try_out(pool, attack, secret) for attack in ATTACKS)
    finally:
        os.environ.pop(SECRET_NAME, None)
    benign_ran = len(benign) == 1 and benign[0].clean and benign[0].stdout == "42\n"
    return SelfTest(pool.level, benign_ran, outcomes, status)


@dataclass(frozen=True)
class CSelfTest:
    """Programs in C, or for a target, under one level.

    Attributes:
        benign_ran: whether a benign program ran. reports: whether a sanitizer stopped a faulty one; a target has none.
        succeeded: the attacks that were not contained.
    """

    benign_ran: bool
    succeeded: tuple[str, ...]
    reports: bool = True

    @property
    def passed(self) -> bool:
        """All of it."""
        return self.benign_ran and self.reports and not self.succeeded


def run_c_selftest(choice: str = "auto") -> CSelfTest:
    """Compile and run a benign program, a faulty one and attacks, all in C.

    Raises:
        SceError: this system does not offer the level, or cannot compile C programs under it.
    """
    with SandboxPool(1, LIMITS, choice) as pool:
        faulty = pool.run(FAULTY_C, [""], language=C.name).executions
        found = _run_compiled(pool, C.name, ATTACKS_IN_C)
    return replace(found, reports=len(faulty) == 1 and was_reported(faulty[0]))


def run_target_selftest(target: str, choice: str = "auto") -> CSelfTest:
    """Build a benign program and attacks for a target, and run them on its emulated board.

    Raises:
        SceError: this system does not offer the level, or has no tools for the target.
    """
    with SandboxPool(1, LIMITS, choice) as pool:
        return _run_compiled(pool, target, ATTACKS_ON_BOARD, must_compile=True)


def _run_compiled(
    pool: SandboxPool, language: str, attacks: Mapping[str, str], *, must_compile: bool = False
) -> CSelfTest:
    benign = pool.run(BENIGN_C, ["20 22\n"], language=language).executions
    runs = {attack: pool.run(text, [""], language=language) for attack, text in attacks.items()}
    succeeded = (
        name
        for name, run in runs.items()
        if any(each.clean for each in run.executions) or (must_compile and not run.parses)
    )
    return CSelfTest(len(benign) == 1 and benign[0].clean and benign[0].stdout == "42\n", tuple(succeeded))


def _try_out(pool: SandboxPool, attack: str, secret: str) -> Attempt:
    # New canaries for each attack, so that its marks are not taken for those of the next one.
    with _Canaries.set_up(secret) as canaries:
        run = pool.run(_HEAD + ATTACKS[attack], [canaries.as_json()])
        execution = run.executions[0] if run.parses else None
        if execution is None or not execution.stdout.startswith("started"):
            return Attempt(attack, False, "the program did not start, so the attack was not tested")
        marks = canaries.marks(execution.stdout)
    if marks or execution.clean:
        return Attempt(attack, False, "; ".join(marks) or "the attack succeeded")
    if execution.stopped_by:
        return Attempt(attack, True, f"stopped at the limit: {execution.stopped_by}")
    complaint = execution.stderr.strip().splitlines()
    how = complaint[-1] if complaint else f"exit status {execution.returncode}"
    return Attempt(attack, True, how, bool(run.denied))


class _Canaries:
    """Targets of the attacks: a file, a folder, a process, a port."""

    def __init__(self, folder: Path, process: subprocess.Popen[bytes], listener: socket.socket, secret: str) -> None:
        self._folder, self._process, self._listener, self._secret = folder, process, listener, secret
        self._file = folder / "secret"
        self._file.write_text(secret)

    @classmethod
    @contextmanager
    def set_up(cls, secret: str) -> Iterator[_Canaries]:
        """Set them up, and remove them afterwards; the file and our environment hold the secret."""
        # This process waits until it is killed or its input is closed; it inherits our environment.
        command = [sys.executable, "-P", "-S", "-c", "import sys; sys.stdin.read()"]
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sce-doctor-")))
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            listener.setblocking(False)
            process = stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE))
            stack.callback(process.kill)
            yield cls(folder, process, listener, secret)

    def as_json(self) -> str:
        """The places of the canaries, as the programs get them on standard input; without the secret itself."""
        places = {
            "file": str(self._file),
            "folder": str(self._folder),
            "port": self._listener.getsockname()[1],
            "process": self._process.pid,
            "variable": SECRET_NAME,
        }
        return f"{json.dumps(places)}\n"

    def marks(self, stdout: str) -> list[str]:
        """The traces that an attack left."""
        touched = []
        if self._secret in stdout:
            touched.append("the secret was read")
        if (self._folder / "written").exists():
            touched.append("the file was written")
        if self._process.poll() is not None:
            touched.append("the process was killed")
        with suppress(BlockingIOError):
            self._listener.accept()[0].close()
            touched.append("the connection was opened")
        return touched


def _process_status(pids: list[int]) -> dict[str, str]:
    for pid in pids:
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
            return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return {}
