"""Programs that would live on, and looks at the processes of a sandbox; for tests of how they end."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from places import ROOT

HOSTILE = ROOT / "tests" / "sandbox" / "hostile_c"
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
