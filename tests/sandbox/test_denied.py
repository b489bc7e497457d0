"""What a program tries in vain leaves a trace, each way of it; what an interpreter does by itself leaves none."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from securecoderl_edge.sandbox import Limits, SandboxPool, describe_levels
from securecoderl_edge.sandbox.denied import MOST_SHOWN, Denied, denied_in_words, denied_of
from securecoderl_edge.sandbox.inside import lockdown, notary, seccomp, supervision

pytestmark = pytest.mark.skipif(not lockdown.can_listen(), reason="this system lets nobody listen to refused calls")
LIMITS = Limits(cpu_seconds=2, wall_seconds=6, memory_mib=256)
LEVELS = ["full", "no-landlock"]
NATIVE = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
MACHINE = os.uname().machine
CLONE, EXECVEAT = {"x86_64": (56, 322), "aarch64": (220, 281)}[MACHINE]
OPENAT, OPENAT2, SETXATTR = {"x86_64": (257, 437, 188), "aarch64": (56, 437, 5)}[MACHINE]

NETWORK = {
    "socket": "import socket\nsocket.socket()",
    "local socket": "import socket\nsocket.socket(socket.AF_UNIX)",
    "raw socket": "import socket\nsocket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "address": "import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9/')",
    "from native code": NATIVE + "libc.socket(2, 1, 0)",
}
PROCESS = {
    "fork": "import os\nos.fork()",
    "shell": "import os\nos.system('true')",
    "spawn": "import os\nos.posix_spawn('/bin/true', ['true'], {})",
    "subprocess": "import subprocess\nsubprocess.run(['true'])",
    "in a thread": "import os, threading\nthread = threading.Thread(target=os.fork)\nthread.start()\nthread.join()",
    "native fork": NATIVE + "libc.fork()",
    "raw clone": NATIVE + f"libc.syscall({CLONE}, 17, 0, 0, 0, 0)",
    "raw clone with high bits": NATIVE + f"libc.syscall({CLONE}, ctypes.c_ulong(17 | 1 << 40), 0, 0, 0, 0)",
}
EXEC = {
    "execv": "import os\nos.execv('/bin/true', ['true'])",
    "by descriptor": NATIVE + f"libc.syscall({EXECVEAT}, -100, b'/bin/true', 0, 0, 0)",
    "from native code": NATIVE + "libc.execve(b'/bin/true', None, None)",
}
WRITE = {
    "open": "open('/out.txt', 'w')",
    "a relative name": "open('out.txt', 'w')",
    "append": "open('/out.txt', 'a')",
    "exclusive": "open('/out.txt', 'x')",
    "read and write": "open('/out.txt', 'r+')",
    "descriptor": "import os\nos.open('/out.txt', os.O_CREAT)",
    "truncate": "import os\nos.truncate('/out.txt', 0)",
    "pathlib": "from pathlib import Path\nPath('/out.txt').write_text('x')",
    "folder": "import os\nos.mkdir('/out.txt')",
    "remove": "import os\nos.remove('/out.txt')",
    "remove a folder": "import os\nos.rmdir('/out.txt')",
    "rename": "import os\nos.rename('/out.txt', '/other')",
    "hard link": "import os\nos.link('/out.txt', '/other')",
    "mode": "import os\nos.chmod('/out.txt', 0)",
    "owner": "import os\nos.chown('/out.txt', 0, 0)",
    "times": "import os\nos.utime('/out.txt')",
    "fifo": "import os\nos.mkfifo('/out.txt')",
    "symbolic link": "import os\nos.symlink('/etc', '/out.txt')",
    "database": "import sqlite3\nsqlite3.connect('/out.txt').execute('create table x (y)')",
    "attribute": "import os\nos.setxattr('/out.txt', 'user.a', b'x')",
    "from native code": NATIVE + "libc.open(b'/out.txt', 1)",
    "in a newer way": NATIVE + f"libc.syscall({OPENAT2}, -100, b'/out.txt', (ctypes.c_uint64 * 3)(1), 24)",
}
READ = {
    "open": "open('/etc/passwd')",
    "descriptor": "import os\nos.open('/etc/passwd', os.O_RDONLY)",
    "pathlib": "from pathlib import Path\nPath('/etc/passwd').read_text()",
    "up and down": "open('/usr/lib/../../etc/passwd')",
    "through the root of a process": "open('/proc/self/root/etc/passwd')",
    "relative": "open('etc/passwd')",
    "relative to a folder": "import os\nzones = os.open('/usr/share/zoneinfo', 0)\n"
    "os.open('../../../etc/passwd', 0, dir_fd=zones)",
    "in a thread": "import threading\nthread = threading.Thread(target=open, args=['/etc/passwd'])\nthread.start()\n"
    "thread.join()",
    "from native code": NATIVE + "libc.fopen(b'/etc/passwd', b're')",
    "in a newer way": NATIVE + f"libc.syscall({OPENAT2}, -100, b'/etc/passwd', (ctypes.c_uint64 * 3)(), 24)",
    "through the root of a thread": "import threading\n"
    "open(f'/proc/self/task/{threading.get_native_id()}/root/etc/passwd')",
    "through a descriptor": "import os\nzones = os.open('/usr/share/zoneinfo', 0)  # dir_fd\n"
    "open(f'/dev/fd/{zones}/../../../etc/passwd')",
    "of a descriptor with high bits": NATIVE + "zones = os.open('/usr/share/zoneinfo', 0)  # dir_fd\n"
    f"libc.syscall({OPENAT}, ctypes.c_long(zones | 1 << 32), b'../../../etc/passwd', 0)",
    "by a long path": "open('/usr/lib/' + './' * 1000 + '../../etc/passwd')",
    "after a flood": "import os\nfor number in range(1100):\n    try:\n        os.open('/there is none', 0)\n"
    "    except OSError:\n        pass\nopen('/etc/passwd')",
}
HARMLESS = {
    "number of cores": "import os\nassert os.cpu_count()",
    "threads": "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor().submit(len, '').result()",
    "a missing file": "try:\n    open('/etc/there is none')\nexcept OSError:\n    pass",
    "no input file": "import os\nif os.path.exists('input.txt'):\n    open('input.txt')",
    "a late import": "def late():\n    import importlib\n    importlib.import_module('wave')\ntry:\n    late()\n"
    "except OSError:\n    pass",
    "a missing package": "try:\n    import numpy\nexcept ImportError:\n    pass",
    "a crash": "def f():\n    return 1 / 0\nf()",
    "an abort": "import os\nos.abort()",
    "numbers": "import random, secrets\nrandom.seed()\nsecrets.token_bytes(9)",
    "time": "import time, datetime\ntime.tzset()\ndatetime.datetime.now().astimezone()",
    "locale": "import locale\nlocale.setlocale(locale.LC_ALL, '')",
    "encodings": "b'x'.decode('utf-16-le')\n'x'.encode('cp037')",
    "nothing": "open('/dev/null').read()\ntry:\n    open('/dev/null', 'w')\nexcept OSError:\n    pass",
    "ciphers": "import ssl, hashlib\nhashlib.sha3_256(b'x').hexdigest()\nssl.create_default_context",
    "signals to itself": "import os\nos.kill(os.getpid(), 0)",
    "an event loop": "import asyncio\ntry:\n    asyncio.run(asyncio.sleep(0))\nexcept OSError:\n    pass",
    "standard input by its names": "for name in '/dev/stdin', '/dev/fd/0', '/proc/self/fd/0':\n    open(name).read()",
    "examples in comments": "import doctest\ndoctest.testmod()",
    "processor": "import os\nos.sysconf('SC_PHYS_PAGES')\nos.getloadavg",
}
KINDS = {
    "network": ("", NETWORK), "process": ("", PROCESS), "exec": ("/bin/true", EXEC), "write": ("/out.txt", WRITE),
    "read": ("etc/passwd", READ),
}  # fmt: skip
WAYS = [
    pytest.param(kind, path, code, id=f"{kind}: {name}")
    for kind, (path, table) in KINDS.items()
    for name, code in table.items()
]


@pytest.fixture(scope="module", params=LEVELS)
def pool(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    if request.param == "full" and describe_levels()["level"] != "full":
        pytest.skip("this kernel has no Landlock")
    with SandboxPool(1, LIMITS, request.param) as pool:
        yield pool


def tried(pool: SandboxPool, code: str) -> tuple[Denied, ...]:
    denied = pool.run(code, [""]).denied
    assert denied is not None
    return denied


@pytest.mark.parametrize(("kind", "path", "code"), WAYS)
def test_each_way_of_an_attempt_leaves_a_trace(pool: SandboxPool, kind: str, path: str, code: str) -> None:
    if pool.level == "no-landlock" and "dir_fd" in code:
        assert tried(pool, code) == ()  # no folder can be opened to begin with, and that one lies inside
        return
    found = tried(pool, code)
    shown = found[0].path if found and len(found[0].path) < notary.MOST_PATH_BYTES else path
    assert [(each.kind, shown.endswith(path), each.count > 0) for each in found] == [(kind, True, True)]
    assert denied_in_words(found).startswith("tried to ")


@pytest.mark.parametrize("code", HARMLESS.values(), ids=HARMLESS)
def test_what_an_interpreter_does_by_itself_leaves_none(pool: SandboxPool, code: str) -> None:
    assert tried(pool, code) == ()


def test_notes_are_those_of_one_program_and_of_all_its_tests(pool: SandboxPool) -> None:
    attempt = "import socket\ntry:\n    socket.socket()\nexcept OSError:\n    pass"
    assert pool.run(attempt, ["", "", ""]).denied == (Denied("network", "", 3),)
    assert pool.run("print(1)", [""]).denied == ()
    assert pool.run("this is not Python", [""]).denied == ()
    assert pool.run(attempt, [str(number) for number in range(40)]).denied == (Denied("network", "", 40),)


def test_a_program_changes_nothing_by_trying_often(pool: SandboxPool) -> None:
    """A flood costs the notary a bounded number of answers for each second, and its count is a lower bound."""
    flood = "import os\nwhile True:\n    try:\n        os.mkdir('/x')\n    except OSError:\n        pass"
    begun = time.monotonic()
    run = pool.run(flood, [""], replace(LIMITS, wall_seconds=2))
    passed = time.monotonic() - begun
    assert run.executions[0].stopped_by in ("cpu", "wall")
    (denied,) = [each for each in run.denied or () if each.path]
    waiting = 1  # a call is counted before it is made to wait
    assert notary.MOST_PROMPT <= denied.count <= notary.MOST_PROMPT * (1 + passed) + waiting
    attempt = "try:\n        os.mkdir(f'/{number}')\n    except OSError:\n        pass"
    many = f"import os\nfor number in range(100):\n    {attempt}"
    assert len(tried(pool, many)) == notary.MOST_NOTES


@pytest.mark.parametrize("threads", [1, 40])
def test_no_path_keeps_the_notary_busy(pool: SandboxPool, threads: int) -> None:
    """It has 256 names to follow for each call of this program, which itself uses next to no CPU time."""
    call = "    while True:\n        try:\n            os.open(path, 0)\n        except OSError:\n            pass"
    flood = f"import os, threading\npath = '/usr/../' * 125 + 'etc/passwd'\ndef work():\n{call}\n"
    flood += f"for _ in range({threads}):\n    threading.Thread(target=work).start()"
    pool.run("print(1)", [""])
    (zygote,) = pool.idle_pids()
    clock, begun = (~notary_of(zygote) << 3) | 2, time.monotonic()
    before = time.clock_gettime(clock)
    run = pool.run(flood, [""], replace(LIMITS, wall_seconds=3))
    assert run.executions[0].stopped_by == "wall"
    passed = time.monotonic() - begun
    assert time.clock_gettime(clock) - before < 2 * notary.PROMPT_SECONDS * (1 + passed)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("'/\\x1b[31m\\u202e'", "write /\\x1b[31m\\u202e"),
        ("b'/\\xff'", "write /\\xff"),
        ("'/' + 'x' * 200 + '/y'", "write /" + "x" * 79 + "..."),
        ("'/' + 'x/' * 900", "write /" + "x/" * 39 + "x..."),
    ],
)
def test_any_path_can_be_shown(pool: SandboxPool, path: str, shown: str) -> None:
    found = tried(pool, f"import os\nos.mkdir({path})")
    words = denied_in_words(found)
    assert words == f"tried to {shown}: refused"
    assert words.isprintable()


@pytest.mark.parametrize("address", ["None", "1", "-1", "1 << 60", "ctypes.addressof(end) + 4096 - 2"])
def test_a_path_that_cannot_be_read_is_an_attempt_all_the_same(pool: SandboxPool, address: str) -> None:
    at_the_end = "import mmap\npage = mmap.mmap(-1, 4096)\nend = ctypes.c_char.from_buffer(page)\npage[4094:] = b'/x'\n"
    code = NATIVE + at_the_end + f"libc.mkdir.argtypes = [ctypes.c_void_p, ctypes.c_int]\nlibc.mkdir({address}, 0)"
    found = tried(pool, code)
    assert [each.kind for each in found] == ["write"]
    assert tried(pool, "print(1)") == ()  # the notary still serves


@pytest.mark.parametrize(
    ("path", "is_attempt"),
    [
        ("'/proc/1/exe'", True),  # a link that may not be read
        ("'/proc/1/cwd/etc/passwd'", True),
        ("f'/proc/{os.getppid()}/exe'", True),
        ("'/proc/self/exe/x'", False),
        ("'/proc/self/root' * 300", False),  # more links than the kernel follows
        ("'/usr/../' * 500 + 'etc'", True),
        ("'/' + 'x' * 300", False),
        ("b'/\\xff'", False),
    ],
)
def test_no_path_ends_the_notary(pool: SandboxPool, path: str, is_attempt: bool) -> None:
    assert tried(pool, "print(1)") == ()
    workers = pool.idle_pids()
    assert [each.kind for each in tried(pool, f"import os\nopen({path})")] == ["read"] * is_attempt
    assert [each.path for each in tried(pool, "open('/etc/passwd')")] == ["/etc/passwd"]
    assert pool.idle_pids() == workers


def test_nobody_below_the_zygote_can_answer_for_the_notary(pool: SandboxPool) -> None:
    """No descriptor of a listener is left, no new one can be had, and the way in which boxes fork is refused."""
    number = {"x86_64": 317, "aarch64": 277}[MACHINE]
    code = (
        NATIVE
        + f"""
def is_open(descriptor):
    try:
        return bool(os.fstat(descriptor))
    except OSError:
        return False
print([each for each in range(3, 1024) if is_open(each)])
rule = ctypes.create_string_buffer(bytes([6, 0, 0, 0, 0, 0, 255, 127]))
program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(rule))
print(libc.syscall({number}, 1, 8, program), ctypes.get_errno())
print(libc.syscall({CLONE}, {seccomp.FORK_OF_A_BOX}, 0, 0, 0, 0), ctypes.get_errno())
"""
    )
    assert pool.run(code, [""]).executions[0].stdout == "[]\n-1 1\n-1 1\n"


def notary_of(zygote: int) -> int:
    below = Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()
    (found,) = [int(pid) for pid in below if Path(f"/proc/{pid}/comm").read_text() == "notary\n"]
    return found


def test_without_its_notary_a_worker_is_replaced(pool: SandboxPool) -> None:
    attempt = "import os\nos.mkdir('/x')"
    assert len(tried(pool, attempt)) == 1
    (zygote,) = pool.idle_pids()
    os.kill(notary_of(zygote), signal.SIGKILL)
    assert len(tried(pool, attempt)) == 1
    assert pool.idle_pids() != [zygote]


def test_programs_at_the_same_time_get_their_own_notes() -> None:
    codes = ["import os\nos.mkdir('/a')", "print(1)", "open('/etc/passwd')", "import os\nos.fork()"] * 10
    with SandboxPool(4, LIMITS, "auto") as pool, ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda code: tried(pool, code), codes))
    kinds = [[each.kind for each in denied] for denied in found]
    assert kinds == [["write"], [], ["read"], ["process"]] * 10


def test_without_isolation_nobody_takes_notes() -> None:
    with SandboxPool(1, LIMITS, "off") as pool:
        assert pool.run("open('/etc/passwd')", [""]).denied is None


C = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
static void *attempt(void *argument) { %s return argument; }
int main(void) { %s return 0; }
"""
IN_C = {
    "socket(AF_INET, SOCK_STREAM, 0);": ("network", ""),
    'if (fopen("/etc/passwd", "r")) abort();': ("read", "/etc/passwd"),
    'if (open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0) abort();': ("read", "/etc/passwd"),
    'if (fopen("/out.txt", "w")) abort();': ("write", "/out.txt"),
    'if (!mkdir("/out.txt", 0777)) abort();': ("write", "/out.txt"),
    "if (fork() >= 0) abort();": ("process", ""),
    'if (!system("true")) abort();': ("process", ""),
    'execl("/bin/true", "true", (char *)0);': ("exec", "/bin/true"),
    "pthread_t id; pthread_create(&id, 0, attempt, 0); pthread_join(id, 0);": ("read", "/etc/shadow"),
}


def test_programs_in_c_leave_the_same_traces() -> None:
    if describe_levels()["level"] != "full":
        pytest.skip("C programs need Landlock")
    in_thread = 'if (fopen("/etc/shadow", "r")) abort();'
    with SandboxPool(1, LIMITS, "full") as pool:
        found = [pool.run(C % (in_thread, code), ["", ""], language="c") for code in IN_C]
        plain = pool.run(C % ("", 'puts("42");'), [""], language="c")
    assert [run.denied for run in found] == [(Denied(kind, path, 2),) for kind, path in IN_C.values()]  # type: ignore[arg-type]
    assert plain.denied == ()


THREADS = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000  # flags of clone
ONE_AFTER_THE_OTHER = f"""{NATIVE}
stack = ctypes.create_string_buffer(1 << 14)
top = ctypes.c_void_p(ctypes.addressof(stack) + (1 << 14) - 64 & ~15)
for number in range(1, 2000):
    if libc.clone(libc.pause, top, {THREADS}, None) < 0:
        break
    os.pwrite(1, str(number).encode(), 0)
"""
ALL_MAKE_MORE = f"""
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>
enum {{ MOST = 4000, BYTES = 4096 }};
static char stacks[MOST][BYTES] __attribute__((aligned(64)));
static atomic_int taken, made;
static int work(void *argument)
{{
    for (int n; (n = taken++) < MOST && clone(work, stacks[n] + BYTES, {THREADS}, 0) > 0;) {{
        char text[9] = "0000";
        int count = ++made;
        for (int place = 3; place >= 0; place--, count /= 10) text[place] += count % 10;
        pwrite(1, text, 4, 0);
    }}
    for (;;) ;
}}
int main(void) {{ return work(0); }}
"""


@pytest.mark.parametrize("level", LEVELS)
def test_a_program_has_no_more_threads_than_it_may_have(level: str) -> None:
    """Not by the supervisor, which looks at times: these make thousands before it does, and keep it from its core."""
    if level == "full" and describe_levels()["level"] != "full":
        pytest.skip("this kernel has no Landlock")
    programs = [(ONE_AFTER_THE_OTHER, "python"), *([(ALL_MAKE_MORE, "c")] if level == "full" else [])]
    with SandboxPool(1, LIMITS, level) as pool:
        runs = [pool.run(program, [""], language=language) for program, language in programs]
    made = [int(run.executions[0].stdout) for run in runs]
    assert made[0] == supervision.MOST_THREADS
    # Each of so many may have been told that there is room for one more.
    assert all(supervision.MOST_THREADS / 2 < each <= 2 * supervision.MOST_THREADS for each in made), runs


@pytest.mark.parametrize("notes", ["read", "read:0:", "read:1:0", "other:1:", "read:1:zz", "read:99999999999:", "-1"])
def test_what_is_no_note_is_an_error(notes: str) -> None:
    with pytest.raises(ValueError, match="not a note"):
        denied_of(notes)


def test_notes_in_words() -> None:
    assert denied_of("-") is None
    assert denied_of("") == ()
    assert denied_in_words(None) == denied_in_words(()) == ""
    every = denied_of("network:2: process:1: exec:1: write:1: read:1:2f61")
    assert every is not None
    assert every[-1] == Denied("read", "/a", 1)
    assert denied_in_words(every[:2]) == "tried to open a network connection, start a process: refused"
    assert denied_in_words(every).endswith(f"and {len(every) - MOST_SHOWN} more: refused")


def test_a_call_that_a_signal_ends_has_no_path_of_another(pool: SandboxPool) -> None:
    """The notary reads a path from memory that the program uses anew once the call is over."""
    code = """
import os, signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.0003, 0.0003)
for number in range(300):
    try:
        os.mkdir("/out.txt")
    except OSError:
        pass
    try:
        open("/there is none")
    except OSError:
        pass
"""
    found = tried(pool, code)
    assert {(each.kind, each.path) for each in found} <= {("write", "/out.txt"), ("write", "")}
    assert ("write", "/out.txt") in [(each.kind, each.path) for each in found]
