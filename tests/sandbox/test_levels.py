"""The levels of isolation: which there are, what the lower ones still do, and the parts that macOS would need."""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hostile import execute

from securecoderl_edge.errors import SceError
from securecoderl_edge.sandbox import FunctionCall, Limits, SandboxPool, choose_level, describe_levels, levels
from securecoderl_edge.sandbox.inside import lockdown, memfiles, seatbelt, supervision
from securecoderl_edge.sandbox.levels import SANDBOX_CHOICES

LEVELS: list[str] = ["full", "no-landlock", "off"]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    choice: str = request.param
    if choice == "full" and not lockdown.landlock_version():
        pytest.skip("this kernel has no Landlock")
    return choice


def test_the_best_level_is_chosen_and_described() -> None:
    described = describe_levels()
    assert described["level"] == ("full" if lockdown.landlock_version() else "no-landlock")
    assert described["level"] in levels.LEVELS


def test_a_named_level_is_taken_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [choose_level(choice) for choice in ("no-landlock", "off")] == ["no-landlock", "off"]
    monkeypatch.setattr(lockdown, "landlock_version", lambda: 0)
    assert choose_level() == "no-landlock"
    with pytest.raises(SceError, match="no Landlock; use --sandbox no-landlock"):
        choose_level("full")
    with pytest.raises(ValueError, match="one of"):
        choose_level("most")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("platform.machine", lambda: "riscv64"), "riscv64"),
        (("sys.platform", "freebsd14"), "freebsd14"),
        (("securecoderl_edge.sandbox.inside.lockdown.has_seccomp", lambda: False), "no seccomp"),
    ],
)
def test_a_system_that_cannot_isolate_is_refused_unless_isolation_is_switched_off(
    change: tuple[str, object], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*change)
    for choice in set(SANDBOX_CHOICES) - {"off"}:
        with pytest.raises(SceError, match=rf"{words}.*--sandbox off"):
            SandboxPool(level=choice)  # type: ignore[arg-type]
    assert choose_level("off") == "off"


def test_a_system_without_fork_is_refused_at_any_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(SceError, match="no fork"):
        choose_level("off")


def test_a_layer_that_the_system_refuses_is_an_error_and_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    # There is no such profile on Linux: what the zygote tries out before it serves fails.
    monkeypatch.setattr("securecoderl_edge.sandbox.pool.choose_level", lambda choice: "macos")
    with SandboxPool(1) as pool, pytest.raises(SceError, match=r"cannot be confined.*--sandbox off"):
        pool.run("print(1)", [""])


def test_every_level_judges_benign_programs_alike(level: str) -> None:
    programs = {
        "print(int(input()) * 2)": ("14\n", 0),
        "import sys\nsys.setrecursionlimit(9999)\nsys.exit(3)": ("", 3),
        "import statistics, decimal\nprint(statistics.mean([1, 2]), decimal.Decimal(1))": ("1.5 1\n", 0),
        "from concurrent import futures\nprint(futures.Future.__name__)": ("Future\n", 0),
        "import xml.etree.ElementTree as tree\nprint(tree.fromstring('<a/>').tag)": ("a\n", 0),
        "import os, threading\nt = threading.Thread(target=print, args=(1,))\nt.start(); t.join()": ("1\n", 0),
        "1 / 0": ("", 1),
    }
    with SandboxPool(1, level=level) as pool:
        assert pool.level == level
        for program, expected in programs.items():
            execution = execute(pool, program, "7\n")
            assert (execution.stdout, execution.returncode) == expected, execution


def test_every_level_judges_calls_alike(level: str) -> None:
    calls = [FunctionCall("f(1)"), FunctionCall("assert f(1) == 2", True), FunctionCall("assert f(1) == 3", True)]
    with SandboxPool(1, level=level) as pool:
        run = pool.run("def f(x): return x + 1", calls=calls)
    assert [execution.value for execution in run.executions] == ["2", "True", "False"]


def test_a_program_that_kills_its_supervisor_has_crashed_but_parses() -> None:
    with SandboxPool(1, level="off") as pool:
        run = pool.run("import os\nos.kill(os.getppid(), 9)", ["", ""])
    assert (run.parses, [execution.returncode for execution in run.executions]) == (True, [-9, -9])


def test_limits_hold_at_every_level(level: str) -> None:
    with SandboxPool(1, Limits(cpu_seconds=0.3, wall_seconds=30, output_bytes=1000), level) as pool:
        assert execute(pool, "while True: pass").stopped_by == "cpu"
        soon = Limits(cpu_seconds=5, wall_seconds=0.5)
        assert execute(pool, "import time\ntime.sleep(60)", limits=soon).stopped_by == "wall"
        assert execute(pool, "while True: print('x' * 99)").stopped_by == "output"
        assert execute(pool, "x = 'a' * 10**10").stopped_by == "memory"


def test_all_threads_of_a_program_have_the_descriptors_of_one_process(level: str) -> None:
    """Else each could have 64, with pipes full of bytes that no limit of memory counts."""
    program = """
import ctypes, os, threading
counts, call = [], ctypes.CDLL(None).syscall
def fill():
    call(436, 1000, 2000, 2)  # close_range, CLOSE_RANGE_UNSHARE
    count = 0
    try:
        while count < 1000:
            os.pipe()
            count += 1
    except OSError:
        pass
    counts.append(count)
    end.wait()
end = threading.Event()
threads = [threading.Thread(target=fill) for _ in range(3)]
for thread in threads: thread.start()
while len(counts) < 3: pass
end.set()
print(sum(counts))
"""
    with SandboxPool(1, level=level) as pool:
        execution = execute(pool, program)
    assert execution.clean, execution
    if level != "off":
        assert 0 < int(execution.stdout) <= 32


def test_a_crash_leaves_no_core_file_and_starts_no_program(level: str) -> None:
    """A limit of 0 would forbid a file alone: systemd-coredump and apport would still be started, as root."""
    program = "import os, resource\nprint(*resource.getrlimit(resource.RLIMIT_CORE), flush=True)\nos.abort()"
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    with SandboxPool(1, level=level) as pool:
        crashed = execute(pool, program)
    assert (crashed.returncode, crashed.stdout) == (-signal.SIGABRT, "0 0\n" if most == 0 else "1 1\n")


def test_a_module_with_a_mind_of_its_own_is_left_to_the_test_that_imports_it(level: str) -> None:
    with SandboxPool(1, level=level) as pool:
        assert execute(pool, "import antigravity, this, json.tool\nprint(1)").stdout[-2:] == "1\n" or level != "off"
        assert pool.run("this = antigravity = 1\nprint(this)", [""]).executions[0].stdout == "1\n"


def test_without_landlock_no_file_can_be_opened_at_all() -> None:
    with SandboxPool(1, level="no-landlock") as pool:
        for path in ("/etc/passwd", os.__file__, "/dev/null", "/proc/self/stat"):
            assert "PermissionError" in execute(pool, f"open({path!r})").stderr
        assert execute(pool, "print(open(0).read())", "7").stdout == "7\n"
        assert "Error" in execute(pool, "__import__('tele' 'type')\n__import__('sta' 'tistics')").stderr


# As a zygote begins, and with it whatever reads a program; then what a program could make of a fault of the compiler.
BEFORE_ANY_PROGRAM = """
import importlib.machinery, os, resource, signal, socket, sys, types
zygote = types.ModuleType("zygote")
zygote.__file__ = sys.argv[1]
importlib.machinery.SourceFileLoader("zygote", sys.argv[1]).exec_module(zygote)
zygote.settle()
zygote.confinement.Confinement(sys.argv[2], zygote.sibling).build()
def keep_limits():
    limits = resource.prlimit(os.getppid(), resource.RLIMIT_CORE)
    resource.prlimit(os.getppid(), resource.RLIMIT_CORE, limits)
attempts = {
    "limits": keep_limits,
    "read": lambda: open("/etc/passwd"),
    "read an environment": lambda: open(f"/proc/{os.getppid()}/environ"),
    "list": lambda: os.listdir("/etc"),
    "write": lambda: open("/tmp/sce-left", "w"),
    "change": lambda: os.chmod("/etc/passwd", 0o777),
    "connect": lambda: socket.socket(),
    "execute": lambda: os.execv("/bin/true", ["true"]),
    "signal": lambda: os.kill(os.getppid(), 0),
}
for name, attempt in attempts.items():
    try:
        attempt()
    except OSError:
        continue
    print(name)
exec(compile("import string\\nassert open(string.__file__).read()", "p", "exec"))
"""


@pytest.mark.parametrize("choice", ["full", "no-landlock"])
def test_whatever_reads_a_program_is_confined_before(choice: str) -> None:
    version = lockdown.landlock_version()
    if choice == "full" and not version:
        pytest.skip("this kernel has no Landlock")
    file = Path(supervision.__file__).with_name("zygote.py")
    words = [getattr(sys, "_base_executable", sys.executable), "-s", "-S", "-c", BEFORE_ANY_PROGRAM, file, choice]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    succeeded = set(done.stdout.splitlines()) - {"limits"}  # of other processes, which no layer keeps from it
    if choice == "no-landlock":
        assert {"read", "list", "signal"} <= succeeded <= {"read", "read an environment", "list", "signal"}
    else:
        assert succeeded <= ({"signal"} if version < 6 else set())


def test_without_isolation_what_a_program_started_is_ended_with_it(tmp_path: Path) -> None:
    program = f"""
        import os, time
        file = {str(tmp_path / "child")!r}
        if os.fork() == 0:
            open(file, "w").write(str(os.getpid()))
            time.sleep(60)
        while not (os.path.exists(file) and os.path.getsize(file)): time.sleep(0.01)
    """
    with SandboxPool(1, level="off") as pool:
        assert execute(pool, program).clean
        child = int((tmp_path / "child").read_text())
        assert is_over(child)


def is_over(pid: int) -> bool:
    """Waits until a killed process is gone, or a zombie that nobody asks after."""
    status = Path(f"/proc/{pid}/stat")
    while status.exists():
        with suppress(FileNotFoundError, ProcessLookupError):
            if status.read_text().rpartition(")")[2].split()[0] in "ZX":
                return True
    return True


def test_files_that_stand_for_memory_files_do_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with SandboxPool(1) as pool:
        execution = execute(pool, "print(input())", "7\n")
    assert (execution.stdout, execution.clean) == ("7\n", True)


@pytest.mark.parametrize(
    ("program", "cpu", "wall", "limit", "ends_with"),
    [
        ("pass", 30, 60, "-", 0),
        ("raise SystemExit(3)", 30, 60, "-", 3),
        ("while True: pass", 0.3, 60, "cpu", -9),
        ("input()", 30, 0.5, "wall", -9),
    ],
)
@pytest.mark.parametrize("is_told", [True, False], ids=["pidfd", "asking again and again"])
def test_a_process_is_watched_with_and_without_a_descriptor_for_its_end(
    is_told: bool,
    program: str,
    cpu: float,
    wall: float,
    limit: str,
    ends_with: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not is_told:
        monkeypatch.delattr(os, "pidfd_open")
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE) as child:
        ending = supervision.Supervisor(ours.fileno(), cpu, wall, 1 << 30).wait(child.pid)
        status, stopped_by, seconds = ending.split()
        child.returncode = os.waitstatus_to_exitcode(int(status))
    assert (stopped_by, child.returncode) == (limit, ends_with)
    assert float(seconds) < 10


@pytest.mark.parametrize(
    ("part", "seconds", "limit"),
    [
        (0.0, 60, "wall"),  # it sleeps
        (1.0, 60, "wall"),  # it has the whole core
        (0.5, 1.3, "-"),  # it shares a core, and ends
        (0.5, 60, "wall"),  # as long as it can
    ],
)
def test_time_that_a_program_waits_for_a_core_does_not_count_up_to_a_bound(
    part: float, seconds: float, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = time.monotonic()
    monkeypatch.setattr(supervision, "cpu_seconds", lambda pid: part * (time.monotonic() - started))
    ours, theirs = socket.socketpair()
    with ours, theirs, subprocess.Popen(["sleep", str(seconds)]) as child:
        status, stopped_by, _ = supervision.Supervisor(ours.fileno(), 90, 1, 1 << 30).wait(child.pid).split()
        child.returncode = os.waitstatus_to_exitcode(int(status))
    assert stopped_by == limit


def test_a_supervisor_asks_one_thread_of_many_for_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def look(path: str) -> int:
        asked.append(path)
        return -1 if path.endswith(("/7/status", "/task/8/status")) else 1 << 20  # the first has ended, the next ends

    monkeypatch.setattr(supervision, "_resident_in", look)
    monkeypatch.setattr(os, "listdir", lambda _: list(map(str, range(7, 257))))
    assert supervision._resident_bytes(7) == 1 << 20
    assert asked == ["/proc/7/status", *(f"/proc/7/task/{each}/status" for each in (7, 8, 9))]


@pytest.mark.skipif(sys.platform != "linux", reason="takes it back through /proc")
def test_a_supervisor_does_not_wait_for_what_a_program_took_back() -> None:
    request, piece = memfiles.memory_file(), memfiles.memory_file(b"f(1)")
    releases = supervision.Releases(request, [piece])
    ready, _ = releases.for_the_test()
    again = os.open(f"/proc/self/fd/{ready}", os.O_RDONLY)
    os.write(ready, b"r")
    assert select.select([releases.ready], [], [], 0)[0]
    os.read(again, 1)
    late = threading.Timer(10, os.write, (ready, b"r"))  # so that a supervisor that waits fails and does not hang
    late.start()
    assert not releases.release()  # nor does it look there again, as often as a program likes
    late.cancel()
    assert memfiles.content_of(request) == b""


def test_the_macos_profile_denies_by_default_and_quotes_paths() -> None:
    text = seatbelt.profile(['/a "b"\\c'])
    assert "(deny default)" in text
    assert text.index("site-packages") > text.rindex("(allow file-read* ")
    assert r'(subpath "/a \"b\"\\c")' in text
    assert text.count("(") == text.count(")")
    with pytest.raises(OSError, match="sandbox_init"):
        seatbelt.install(text)


def test_a_descriptor_for_the_end_exists_here() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        descriptor = supervision._end_descriptor(child.pid)
        assert descriptor is not None
        assert not select.select([descriptor], [], [], 0)[0]
        os.close(descriptor)
        child.kill()
