"""Hostile and awkward programs: the right verdict for each, and nothing left behind by any.

As the user who runs the tests and, where that is root, as an ordinary user too; with Landlock and without.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from other_users import SECRET, Target, as_whom, goes_on, open_house, python_for, target
from places import ROOT

from securecoderl_edge.sandbox import Execution, SandboxPool, describe_levels
from securecoderl_edge.sandbox.security import SecurityScanner
from securecoderl_edge.sandbox.severity import severity
from securecoderl_edge.scoring.reward import Verdict, outcome

DATA = ROOT.parent / "shared" / "data" / "adversarial.jsonl"
EXPECTED_OUTPUT = "42\n"
# The words of the data set for our verdicts; it has one for all ways of not ending cleanly.
WORDS: dict[Verdict, str] = {
    "pass": "pass",
    "wrong": "output",
    "silent": "silent",
    "crash": "crash",
    "memory": "crash",
    "timeout": "timeout",
    "output_limit": "crash",
}
OTHERS = {
    "sigio": "import fcntl, os, signal\nr, w = os.pipe()\nfcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())\n"
    "fcntl.fcntl(r, 10, signal.SIGKILL)\nfcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)\nos.write(w, b'x')",
    "process group": "import os, signal\nos.killpg(0, signal.SIGKILL)",
    "everybody": "import os, signal\nos.kill(-1, signal.SIGKILL)",
    "pidfd": "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
    "prlimit": "import os, resource\nresource.prlimit(os.getppid(), 0, (1, 1))",
    "ptrace": "import ctypes, os\nprint(1 // (ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) + 1))",
    "chmod": "import os\nos.chmod('/canary/data/keep.txt', 0o777)",
    "utime": "import os\nos.utime('/canary/data/keep.txt')",
    "xattr": "import os\nos.setxattr('/canary/data/keep.txt', 'user.x', b'1')",
    "truncate": "import os\nos.truncate('/canary/data/keep.txt', 0)",
    "append": "open('/canary/data/keep.txt', 'a')",
    "hard link": "import os\nos.link('/canary/data/keep.txt', '/canary/data/other.txt')",
    "directory": "import os\nos.mkdir('/tmp/sce-directory')",
    "fifo": "import os\nos.mkfifo('/tmp/sce-fifo')",
    "session": "import os\nos.setsid()",
    "pty": "import os\nos.forkpty()",
    "execute": "import os\nos.execv('/bin/true', ['true'])",
    "multiprocessing": "import multiprocessing\nmultiprocessing.Process(target=print).start()",
    "devices": "open('/dev/mem', 'rb')",
    "memory files": "import os\nos.memfd_create('x')",
    "read a key": "print(open('/canary/.ssh/id_rsa').read())",
    "read a folder": "import os\nprint(os.listdir('/canary'))",
    "links of others": "import os\nprint(os.readlink(f'/proc/{os.getppid()}/exe'))",
    "environment of others": "import os\nprint([open(f'/proc/{p}/environ').read() for p in os.listdir('/proc')])",
    "shared memory": "from multiprocessing import shared_memory\nshared_memory.SharedMemory(create=True, size=9)",
    "unix socket": "import socket\nsocket.socketpair()",
    "raw socket": "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "core affinity": "import os\nos.sched_setaffinity(0, {0})",
    "priority": "import os\nos.nice(-1)",
    "new root": "import os\nos.chroot('/canary')",
    "another user": "import os\nos.setuid(1)",
    "many threads": "import threading, time\nthreading.stack_size(32768)\n"
    "for _ in range(20000): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
}

SLOW_TO_END = {
    "the first thread leaves": "import ctypes, platform, threading, time\n"
    "threading.Thread(target=time.sleep, args=(99,)).start()\n"
    "ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)",
    "the first thread leaves, another works": "import ctypes, platform, threading\n"
    "def work():\n    while True: pass\n"
    "threading.Thread(target=work).start()\n"
    "ctypes.CDLL(None).syscall({'x86_64': 60, 'aarch64': 93}[platform.machine()], 0)",
}


def read_programs() -> list[dict[str, str]]:
    """The programs of the data set, if available, and ours."""
    lines = DATA.read_text(encoding="utf-8").splitlines() if DATA.exists() else []
    ours = [
        {"name": name, "code": code, "stdin": "", "expect": expect}
        for expect, programs in (("crash", OTHERS), ("timeout", SLOW_TO_END))
        for name, code in programs.items()
    ]
    return [json.loads(line) for line in lines] + ours


PROGRAMS = read_programs()
__all__ = ["open_house", "target"]  # fixtures


@dataclass(frozen=True)
class Aftermath:
    """What came of all programs, and what the surroundings looked like before and after."""

    level: str
    verdicts: dict[str, str]
    executions: dict[str, Execution]
    served: int
    left: list[int]
    before: dict[str, Any]
    after: dict[str, Any]
    victim: subprocess.Popen[bytes]


SLOW = ("full, ordinary user", "no-landlock, this user", "no-landlock, ordinary user")


@pytest.fixture(scope="module", params=as_whom(slow=SLOW))
def aftermath(request: pytest.FixtureRequest, target: Target, open_house: Path) -> Iterator[Aftermath]:
    level, user = request.param
    if level == "full" and describe_levels()["level"] != "full":
        pytest.skip("this kernel has no Landlock")
    victim = subprocess.Popen([python_for(user), "-c", "import time; time.sleep(600)"], user=user, group=user)
    (target.folder / "victim.pid").write_text(str(victim.pid))
    for path in [target.folder, *target.folder.rglob("*")]:
        os.chown(path, user or os.getuid(), user or os.getgid())
    places = [Path("/"), Path("/tmp")]  # where the programs run, and where anybody may write
    before = {"files": target.snapshot(), **{str(place): {path.name for path in place.iterdir()} for place in places}}
    done = subprocess.run(
        [python_for(user), "-B", str(open_house / "hostile.py"), level, "python"],
        input=json.dumps([[target.aim(each["code"]), each["stdin"]] for each in PROGRAMS]),
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(open_house), "SECRET_TOKEN": SECRET},
        cwd="/",
        user=user,
        group=user,
    )
    assert done.returncode == 0, done.stderr
    after = {"files": target.snapshot(), **{str(place): {path.name for path in place.iterdir()} for place in places}}
    report = json.loads(done.stdout)
    executions, verdicts = {}, {}
    for each, (parses, stdout, _, returncode, stopped_by) in zip(PROGRAMS, report["runs"], strict=True):
        executions[each["name"]] = Execution(returncode, stopped_by, stdout, "", 0.0)
        verdict = outcome(executions[each["name"]], EXPECTED_OUTPUT).verdict
        verdicts[each["name"]] = WORDS[verdict] if parses else "no_parse"
    yield Aftermath(report["level"], verdicts, executions, report["served"], report["left"], before, after, victim)
    victim.kill()
    victim.wait()


def test_each_program_gets_its_verdict(aftermath: Aftermath) -> None:
    wrong = {
        each["name"]: (aftermath.verdicts[each["name"]], aftermath.executions[each["name"]])
        for each in PROGRAMS
        if aftermath.verdicts[each["name"]] not in each["expect"].split("|")
    }
    assert wrong == {}


def test_no_file_is_read_written_renamed_or_removed(aftermath: Aftermath) -> None:
    assert aftermath.after["files"] == aftermath.before["files"]
    assert [name for name, execution in aftermath.executions.items() if SECRET in execution.stdout] == []


@pytest.mark.parametrize("place", ["/", "/tmp"])
def test_no_file_appears_where_programs_run_or_in_tmp(aftermath: Aftermath, place: str) -> None:
    new = aftermath.after[place] - aftermath.before[place]
    # Those of the programs, and of `sandbox.exchange`; other processes of the machine have names of their own.
    assert [name for name in new if re.fullmatch(r".*pwned.*|sce-\w{8}|fill\.bin|link|solution\.py", name)] == []


def test_no_other_process_is_signalled(aftermath: Aftermath) -> None:
    assert goes_on(aftermath.victim)


def test_no_worker_dies_and_no_process_is_left(aftermath: Aftermath) -> None:
    assert aftermath.served == len(PROGRAMS)
    assert aftermath.left == []


def test_nothing_is_sent_to_the_network(aftermath: Aftermath, target: Target) -> None:
    assert not target.was_reached()


def test_the_pages_give_their_number() -> None:
    number = len(OTHERS) + len(SLOW_TO_END)
    assert f"runs {number} more" in " ".join((ROOT / "SECURITY.md").read_text(encoding="utf-8").split())
    assert f"{number} further attacks" in (ROOT / "docs" / "concepts" / "sandbox.md").read_text(encoding="utf-8")


def test_no_program_keeps_its_security_findings_quiet() -> None:
    code = {each["name"]: each["code"] for each in PROGRAMS}
    with SecurityScanner() as scanner:
        assert severity(scanner.scan("import subprocess\nsubprocess.call(input(), shell=True) # nosec")) == 1.0
        for name in code:
            if name in ("bogus_cookie", "bom_source"):
                assert not scanner.scan(code[name]).failed


@pytest.mark.parametrize("level", ["full", "no-landlock"])
@pytest.mark.parametrize("name", ["sigio", "process group", "everybody", "pidfd", "prlimit", "ptrace"])
def test_an_attack_on_the_processes_above_hurts_none_of_them(name: str, level: str) -> None:
    if level == "full" and describe_levels()["level"] != "full":
        pytest.skip("this kernel has no Landlock")
    with SandboxPool(1, level=level) as pool:
        execution = pool.run(OTHERS[name], [""]).executions[0]
        assert pool.run("print(1)", [""]).executions[0].stdout == "1\n"
        worker = pool._idle.queue[-1]["python"]
        assert worker.programs == 2
    assert execution.returncode not in (0, -signal.SIGKILL), execution
