"""Nothing of a program is left when its run is cancelled, or when whoever started it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from quick import few

from securecoderl_edge.errors import SceError
from securecoderl_edge.sandbox import Limits, SandboxPool

pytestmark = pytest.mark.timeout(900)

HOSTILE = Path(__file__).with_name("hostile_c")
SLEEPERS = {
    "c": [
        "#include <unistd.h>\nint main(void) { for (;;) sleep(9); }",
        "#include <pthread.h>\n#include <unistd.h>\nstatic void *s(void *x) { for (;;) sleep(9); return x; }\n"
        "int main(void) { pthread_t t; pthread_create(&t, 0, s, 0); pthread_exit(0); }",
        HOSTILE.joinpath("thread_executes_itself.c")
        .read_text(encoding="utf-8")
        .replace("exit(0);", "for (;;) pause();"),
    ],
    "python": [
        "import time\ntime.sleep(99)",
        "import threading, time, os\nthreading.Thread(target=time.sleep, args=(99,)).start()\n",
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: pass",
    ],
}


def in_session(leader: int) -> set[int]:
    """The processes of a session with a thread that has not ended; the first one may have."""
    found = set()
    for process in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it ends meanwhile
            for thread in os.listdir(f"/proc/{process}/task"):
                status = Path(f"/proc/{process}/task/{thread}/stat").read_text(encoding="utf-8")
                state, *numbers = status.rpartition(") ")[2].split()
                if int(numbers[2]) == leader and state not in "ZX":
                    found.add(int(process))
    return found


def has_begun(leader: int, language: str) -> bool:
    """Whether there are the zygote, the box and the program, whose file is in memory if it was compiled."""

    def is_there() -> bool:
        processes = in_session(leader)
        names = [name_of(each) for each in processes]
        return len(processes) > 2 and (language != "c" or any(name.startswith("memfd:") for name in names))

    return wait_until(is_there)


def name_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/comm").read_text(encoding="utf-8")
    except OSError:
        return ""


def is_over(leader: int) -> bool:
    return wait_until(lambda: not in_session(leader))


def wait_until(is_so: Callable[[], bool], seconds: float = 120) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if is_so():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture(params=["python", "c"])
def language(request: pytest.FixtureRequest) -> str:
    if request.param == "c":
        request.getfixturevalue("c_compiler")
    return str(request.param)


@pytest.mark.parametrize("runs", few([9, 200], 9))
def test_cancelled_runs_leave_no_process(language: str, runs: int) -> None:
    with SandboxPool(1, Limits(cpu_seconds=60, wall_seconds=60), has_analyzers=False) as pool:
        for number in range(runs):
            pool.prepare(language)
            (leader,) = pool.idle_pids()
            program, cancelled = SLEEPERS[language][number % len(SLEEPERS[language])], threading.Event()
            with ThreadPoolExecutor(1) as thread:
                running = thread.submit(pool.run, program, [""], is_cancelled=cancelled.is_set, language=language)
                assert has_begun(leader, language), "the program never started"
                cancelled.set()
                assert isinstance(running.exception(), SceError)
            assert is_over(leader), "something is left"


@pytest.mark.parametrize("number", range(3))
def test_a_killed_supervisor_leaves_no_process(language: str, number: int) -> None:
    script = textwrap.dedent("""
        import sys
        from securecoderl_edge.sandbox import Limits, SandboxPool
        if __name__ == "__main__":
            pool = SandboxPool(1, Limits(cpu_seconds=60, wall_seconds=60), has_analyzers=False)
            pool.prepare(sys.argv[2])
            print(*pool.idle_pids(), flush=True)
            pool.run(sys.argv[1], [""], language=sys.argv[2])
    """)
    words = [sys.executable, "-c", script, SLEEPERS[language][number], language]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        leader = int(process.stdout.readline())
        assert has_begun(leader, language), "the program never started"
        os.kill(process.pid, signal.SIGKILL)
    assert is_over(leader), "something is left"
