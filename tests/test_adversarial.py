"""Sixty-four hostile or awkward programs: the right verdict for each, and nothing left behind by any."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from securecoderl_edge.reward import Verdict, outcome
from securecoderl_edge.sandbox import Execution, Job, Limits, ProgramRun, SandboxPool, describe_layers
from securecoderl_edge.security import SecurityScanner, severity

DATA = Path(__file__).parents[2] / "shared" / "data" / "adversarial.jsonl"
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

pytestmark = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data/adversarial.jsonl")
PROGRAMS = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()] if DATA.exists() else []


@dataclass
class Target:
    """What a program could reach if it got out: files, a process, a port."""

    folder: Path
    victim: subprocess.Popen[bytes]
    listener: socket.socket
    datagrams: socket.socket
    runs: dict[str, ProgramRun] = field(default_factory=dict)

    def aim(self, code: str) -> str:
        port = str(self.listener.getsockname()[1])
        return code.replace("/canary", str(self.folder)).replace("47111", port)

    def snapshot(self) -> dict[str, tuple[int, int, bytes]]:
        """Mode, time of change and content of every file."""
        return {
            str(path): (path.stat().st_mode, path.stat().st_mtime_ns, path.read_bytes())
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("canary")
    for name in ("data/keep.txt", ".ssh/id_rsa", ".bashrc"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(f"EXPECTEDSECRET in {name}\n")
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (folder / "victim.pid").write_text(str(victim.pid))
    with socket.socket() as listener, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        datagrams.bind(listener.getsockname())
        datagrams.setblocking(False)
        yield Target(folder, victim, listener, datagrams)
    victim.kill()
    victim.wait()


@pytest.fixture(scope="module")
def aftermath(target: Target) -> dict[str, Any]:
    """All programs run once, one worker for all of them; what the surroundings look like before and after."""
    before = target.snapshot()
    os.environ["SECRET_TOKEN"] = "EXPECTEDSECRET"
    # The programs run in "/" and may try to write there or to /tmp.
    places = [Path("/"), Path("/tmp")]
    names = {place: {path.name for path in place.iterdir()} for place in places}
    with SandboxPool(workers=2, limits=Limits(cpu_seconds=1, wall_seconds=2)) as pool:
        jobs = [Job(target.aim(record["code"]), [record["stdin"]]) for record in PROGRAMS]
        runs = pool.run_all(jobs)
        workers = [worker for worker in pool._idle.queue if worker is not None]
        served = sum(worker.programs for worker in workers)
        left = [pid for worker in workers for pid in _descendants(worker.pid)]
    del os.environ["SECRET_TOKEN"]
    target.runs = dict(zip((record["name"] for record in PROGRAMS), runs, strict=True))
    return {"files": (before, target.snapshot()), "names": names, "served": served, "left": left}


def _descendants(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children] + [pid for child in children for pid in _descendants(int(child))]


@pytest.mark.parametrize("record", PROGRAMS, ids=[record["name"] for record in PROGRAMS])
def test_each_program_gets_its_verdict(record: dict[str, Any], target: Target, aftermath: dict[str, Any]) -> None:
    if record["name"] == "read_passwd" and describe_layers()["level"] != "full":
        pytest.skip("needs Landlock: without it programs can read files")
    run = target.runs[record["name"]]
    got = WORDS[outcome(run.executions[0], EXPECTED_OUTPUT).verdict] if run.parses else "no_parse"
    assert got in record["expect"].split("|"), run


def test_no_file_is_read_written_renamed_or_removed(target: Target, aftermath: dict[str, Any]) -> None:
    before, after = aftermath["files"]
    assert after == before
    executions: list[Execution] = [execution for run in target.runs.values() for execution in run.executions]
    assert not [execution for execution in executions if "EXPECTEDSECRET" in execution.stdout]


def test_no_file_appears_where_programs_run_or_in_tmp(aftermath: dict[str, Any]) -> None:
    for place, names in aftermath["names"].items():
        new = {path.name for path in place.iterdir()} - names
        assert not [name for name in new if "pwned" in name or name in ("fill.bin", "link", "solution.py")]


def test_no_other_process_is_signalled(target: Target, aftermath: dict[str, Any]) -> None:
    assert target.victim.poll() is None
    state = Path(f"/proc/{target.victim.pid}/stat").read_text().rpartition(")")[2].split()[0]
    assert state in "SR"


def test_no_worker_dies_and_no_process_is_left(aftermath: dict[str, Any]) -> None:
    assert aftermath["served"] == len(PROGRAMS)
    assert aftermath["left"] == []


def test_nothing_is_sent_to_the_network(target: Target, aftermath: dict[str, Any]) -> None:
    with pytest.raises(BlockingIOError):
        target.listener.accept()
    with pytest.raises(BlockingIOError):
        target.datagrams.recv(1)


def test_no_program_keeps_its_security_findings_quiet(aftermath: dict[str, Any]) -> None:
    code = {record["name"]: record["code"] for record in PROGRAMS}
    with SecurityScanner() as scanner:
        assert severity(scanner.scan("import subprocess\nsubprocess.call(input(), shell=True) # nosec")) == 1.0
        for name in ("bogus_cookie", "bom_source"):
            assert not scanner.scan(code[name]).failed


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(
            "import fcntl, os, signal\nr, w = os.pipe()\n"
            "fcntl.fcntl(r, fcntl.F_SETOWN, os.getppid())\n"
            "fcntl.fcntl(r, 10, signal.SIGKILL)\nfcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC)\nos.write(w, b'x')",
            id="sigio",
        ),
        pytest.param("import os, signal\nos.killpg(0, signal.SIGKILL)", id="process group"),
        pytest.param("import os, signal\nos.kill(-1, signal.SIGKILL)", id="everybody"),
        pytest.param(
            "import os, signal\nsignal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
            id="pidfd",
        ),
        pytest.param("import resource\nresource.prlimit(__import__('os').getppid(), 0, (1, 1))", id="prlimit"),
        pytest.param(
            "import ctypes\nprint(1 // (ctypes.CDLL(None).ptrace(16, __import__('os').getppid(), 0, 0) + 1))",
            id="ptrace",
        ),
        pytest.param("import os\nos.chmod('CANARY', 0o777)", id="chmod"),
        pytest.param("import os\nos.utime('CANARY')", id="utime"),
        pytest.param("import os\nos.setxattr('CANARY', 'user.x', b'1')", id="xattr"),
        pytest.param("import os\nos.truncate('CANARY', 0)", id="truncate"),
        pytest.param("import os\nos.mkfifo('/tmp/sce-fifo')", id="fifo"),
        pytest.param("import os\nos.setsid()", id="session"),
        pytest.param("import os\nos.vfork() if hasattr(os, 'vfork') else os.forkpty()", id="pty"),
        pytest.param("import multiprocessing\nmultiprocessing.Process(target=print).start()", id="multiprocessing"),
        pytest.param("import mmap\nopen('/dev/mem', 'rb')", id="devices"),
        pytest.param("import os\nos.memfd_create('x')", id="memory files"),
    ],
)
def test_other_ways_out_are_closed_too(code: str, target: Target) -> None:
    program = code.replace("CANARY", str(target.folder / "data" / "keep.txt"))
    before = target.snapshot()
    with SandboxPool(workers=1) as pool:
        execution = pool.run(program, [""]).executions[0]
        # The same worker still serves: nobody above the program was hurt.
        assert pool.run("print(1)", [""]).executions[0].stdout == "1\n"
        worker = pool._idle.queue[-1]
        assert worker is not None
        assert worker.programs == 2
    assert execution.returncode not in (0, -signal.SIGKILL), execution
    assert target.snapshot() == before
